// @ts-check
// What operators have paused: a banner above every page, and buttons that pause and resume.
import { ask, button, el, field, icon, muted, redraw, since, spring } from "./dom.js";
import { capital, count, number } from "./words.js";

/** For the frame. */
export const banner = el("section.stack.pauses", { "aria-label": "Paused", hidden: true });

/** @type {Api} */
let api;
/** Of buttons that change something. @type {Attributes} */
let acting = {};
/** @type {Pause[]} */
let paused = [];
/** Buttons, and how they are drawn. @type {Map<Element, () => void>} */
const buttons = new Map();

const nameOf = (what = "", name = "") => what === "all" ? "everything" : `${what} ${name}`;
/** How many runs wait. @param {Pause} pause */
const waiting = pause => `${number(pause.waiting)}${pause.waitingMore ? " or more" : ""} ${pause.waiting === 1 && !pause.waitingMore ? "run waits" : "runs wait"}`;
/** @param {string} what @param {string} [name] */
const find = (what, name = "") => paused.find(one => one.what === what && (one.name ?? "") === name);

/** Asks the server anew. What is paused stays as it was if there is no answer. @param {Api} [of] @param {Attributes} [attributes] */
export async function lookAtPauses(of = api, attributes = acting) {
	if (!of) return; // the stream may be there before the page is
	if (of !== api) paused = [];
	[api, acting] = [of, attributes];
	const found = await of.get("pauses").catch(() => null);
	if (!found || of !== api) return;
	paused = found.pauses;
	draw();
}
/** Whether something is paused, whose count changes. */
export const isPaused = () => paused.length > 0;

function draw() {
	const most = innerWidth > 760 ? 3 : 1, lines = paused.map(line);
	banner.hidden = !lines.length;
	redraw(banner, lines.slice(0, most), lines.length > most && el("details", { open: banner.querySelector("details")?.open }, el("summary", `${count(lines.length - most, "more pause")}`), lines.slice(most)));
	for (const [node, one] of buttons) node.isConnected ? one() : buttons.delete(node);
}
/** @param {Pause} pause */
const line = pause => el("div.note.late", icon("warn"), el("div", el("b", capital(nameOf(pause.what, pause.name)), pause.rate ? ` is resumed at ${pause.rate} on each node` : " is paused"), pause.by && ` by ${pause.by}`, ", ", since(pause.at), pause.reason && `: ${pause.reason}`, " ", muted(waiting(pause))),
	spring(), button("Resume", () => askResume(pause.what, pause.name), { class: "small", "aria-label": `Resume ${nameOf(pause.what, pause.name)}`, ...acting }));

/** A button that pauses a thing, or resumes it. @param {string} what @param {string} [name] @param {Attributes} [attributes] */
export function pauseButton(what, name = "", attributes = {}) {
	const node = el("span"), thing = nameOf(what, name);
	const own = () => {
		const act = find(what, name) ? "Resume" : "Pause";
		redraw(node, button(what === "all" ? `${act} everything` : act, () => act === "Pause" ? askPause(what, name) : askResume(what, name), { "aria-label": `${act} ${thing}`, ...attributes, ...acting }));
	};
	own();
	buttons.set(node, own);
	return node;
}

function askPause(what = "", name = "") {
	const reason = el("input", { type: "text", maxlength: 200, autocomplete: "off" });
	ask({
		title: `Pause ${nameOf(what, name)}?`, yes: "Pause", body: field("Reason", reason, "Other operators see it."),
		text: "Requests are accepted and kept, and their runs start when you resume. Turns under way go on, and so do deliveries.",
		act: async () => { await api.post("pauses", { what, name, reason: reason.value }); await lookAtPauses(); },
	});
}

function askResume(what = "", name = "") {
	const pause = find(what, name), rate = el("input", { type: "text", placeholder: "10/s", autocomplete: "off", spellcheck: "false" });
	ask({
		title: `Resume ${nameOf(what, name)}?`, yes: "Resume", text: pause && `${waiting(pause)}.`,
		body: field("Rate", rate, "How many of its runs start in a time on each node, such as 10/s, until you resume without a rate. Blank: all at once."),
		act: async () => {
			if (rate.value.trim()) await api.post("pauses", { what, name, rate: rate.value.trim() });
			else await api.request("DELETE", "pauses", { params: { what, name } });
			await lookAtPauses();
		},
	});
}
