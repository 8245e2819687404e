// @ts-check
// The runners, how they fare, and a way to try each of them.
import { attempt, badge, button, el, longText, muted, panel, put, redraw, since, spring, table, tag, tr, unseen } from "./dom.js";
import { pauseButton } from "./pauses.js";
import { duration } from "./words.js";

/** Colours and words for states. @type {Record<string, string[]>} */
const states = { ok: ["ok", "takes runs"], failing: ["failed", "its last turn failed"], unreachable: ["failed", "unreachable, its runs wait"], busy: ["late", "busy, its runs wait"], unknown: ["cancelled", "not known"] };
const columns = [["Name"], ["Kind", "desktop-only"], ["State"], ["In flight", "right desktop-only"], ["Last error", "desktop-only"], [unseen("Actions"), "right keep"]];

/** A panel with the runners. @param {Page} page */
export function runnersPanel(page) {
	const { api, signal } = page;
	const rows = el("div"), result = el("div", { "aria-live": "polite" });
	/** The one that is being tried. */
	let tried = "";

	const load = () => attempt(rows, async () => draw(await api.get("runners", {}, signal)));
	function draw(/** @type {Runner[]} */ all) {
		redraw(rows, table({ caption: "Runners", columns, rows: all.map(one => {
			const [look, words] = states[one.state] ?? ["cancelled", one.state];
			return tr(columns, [
				[el("b", one.name), " ", all.length > 1 && one.default && tag("default"), one.tiers?.map(tier => [" ", tag(tier)])],
				[one.module, one.preset && ` ${one.preset}`, one.address && one.address !== one.preset && [" ", muted(one.address)]],
				badge(look, one.gone ? "removed, finishes its turns" : words), one.inFlight,
				one.lastErrorAt && el("div", one.lastError, " ", el("span.muted.small", since(one.lastErrorAt))),
				!one.gone && [pauseButton("runner", one.name, { class: "small" }), " ", button("Try", () => tryOne(one.name), { class: "small", "aria-label": `Try ${one.name}`, "aria-disabled": tried ? "true" : null, ...page.acting })],
			]);
		}) }));
	}
	async function tryOne(name = "") {
		if (tried) return;
		tried = name;
		put(result, el("div.body", muted(`Waiting for ${name}, at most 30 s …`)));
		await load();
		await attempt(result, async () => {
			const { ok, text, error, seconds } = (await api.request("POST", `runners/${encodeURIComponent(name)}/try`, { signal })).data;
			put(result, el("div.body.stack", el("div.value", badge(ok ? "completed" : "failed", ok ? `${name} answered` : `${name} failed`), muted(`after ${duration(seconds)}`), spring()),
				error && el("p.bad-text", error), text && longText(text, "Answer")));
		}, `${name} was not tried`);
		tried = "";
		await load();
	}

	load();
	page.every(5000, () => { if (!page.live.paused && !document.hidden) load(); });
	page.on("reset", load);
	return panel("Runners", [rows, result]);
}
