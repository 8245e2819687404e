// @ts-check
// Acting on all runs or deliveries of a filter: tells the plan, asks, and shows how it goes on.
import { ask, attempt, button, checkbox, el, note, put, redraw, spring } from "./dom.js";
import { capital, count, number } from "./words.js";

/** @typedef {{id: string, do: string, filter: Record<string, string>, by: string, state: string, matching?: number, done: number, skipped?: Record<string, number>, startedAt: string, waiting?: string, error?: string}} Bulk */
/** @typedef {"again" | "cancel" | "retry" | "drop"} Verb */

const verbs = { again: ["run again", "Run", "again", "run"], cancel: ["cancelled", "Cancel", "", "run"], retry: ["sent again", "Send", "again", "delivery"], drop: ["dropped", "Drop", "", "delivery"] };
const texts = {
	again: "A new run gets the message of each. Those that were run again before are left out.", cancel: "What agents have done so far stays done.",
	retry: "They are sent now.", drop: "A dropped delivery is never sent, and cannot be restored.",
};
const reasons = /** @type {Record<string, string>} */ ({
	again: "were run again before", gone: "do not keep their message", cut: "keep a part of their message", ended: "had ended", open: "have not ended",
	underWay: "are being sent", delivered: "have arrived", forgotten: "are gone",
});
const many = (n = 0, noun = "") => count(n, noun, noun === "run" ? "runs" : "deliveries");
const leftOut = (skipped = /** @type {Record<string, number>} */ ({})) => Object.entries(skipped).map(([why, n]) => `${number(n)} ${reasons[why] ?? why}`).join(", ");

/** What a bulk action has done. @param {Bulk} b */
const soFar = b => `${number(b.done)} of ${b.matching == null ? "…" : number(b.matching)} ${verbs[/** @type {Verb} */ (b.do)][0]}${b.skipped ? ` · left out: ${leftOut(b.skipped)}` : ""}`;

/**
 * Tells the number, and asks. What was started is shown by watch.
 * @param {Page} page @param {Element} trouble @param {Verb} verb @param {Params} filter @param {(id: string) => unknown} started gets its id
 */
export async function askBulk(page, trouble, verb, filter, started) {
	const [, first, last, noun] = verbs[verb];
	put(trouble);
	await attempt(trouble, async () => {
		const { would, skipped } = (await page.api.request("POST", "bulk", { params: { do: verb, ...filter, dry: 1 } })).data;
		if (!would) return put(trouble, note("late", `There is nothing to ${verb === "retry" ? "send again" : verb === "again" ? "run again" : verb}.`, skipped && capital(leftOut(skipped))));
		const what = many(would, noun), deliver = checkbox("Send the answers out as well, to callbacks and channels");
		ask({
			title: `${first} ${what}${last && ` ${last}`}?`, text: texts[verb] + (skipped ? ` ${capital(leftOut(skipped))}.` : ""), body: verb === "again" && deliver, yes: `${first} ${number(would)}${last && ` ${last}`}`,
			no: verb === "cancel" ? "Back" : "Cancel", danger: verb === "cancel" || verb === "drop",
			act: async () => { await started((await page.api.post("bulk", verb === "again" ? { deliver: deliver.box.checked } : undefined, { do: verb, ...filter })).id); },
		});
	});
}

/**
 * Shows bulk actions that go on or were stopped, and those that this page has seen going on.
 * @param {Page} page @param {"run" | "delivery"} noun @param {() => unknown} ended
 */
export function watch(page, noun, ended) {
	const node = el("div"), trouble = el("div");
	/** Those that went on while somebody looked, or were dismissed. @type {Map<string, string>} */
	const seen = new Map();
	let looking = false;
	/** One that was started just now may have ended before it is seen. */
	async function look(started = "") {
		if (started) seen.set(started, "running");
		if (looking) return;
		looking = true;
		await page.api.get("bulk", {}, page.signal).then(draw, () => {});
		looking = false;
	}
	const tell = async (/** @type {Bulk} */ b, what = "") => { await attempt(trouble, () => page.api.post(`bulk/${b.id}/${what}`)); await look(); };
	function draw(/** @type {{bulk: Bulk[]}} */ { bulk }) {
		const mine = bulk.filter(b => verbs[/** @type {Verb} */ (b.do)][3] === noun);
		let over = false;
		for (const b of mine) if (b.state === "running" || b.state === "stopped") {
			if (seen.get(b.id) !== "gone" || b.state === "running") seen.set(b.id, b.state);
		} else if (seen.get(b.id) === "running") {
			seen.set(b.id, b.state);
			over = true;
		}
		redraw(node, trouble, mine.filter(b => (seen.get(b.id) ?? "gone") !== "gone").map(b => el("div.banner.bulk", { "data-bulk": b.id },
			el("div", el("b", b.state === "running" ? "Going on: " : `${capital(b.state)}: `), soFar(b), b.waiting && el("div.small.muted", `Waits: ${b.waiting}`), b.error && el("div.small.bad", b.error)),
			b.state === "running" && b.matching ? el("progress", { max: b.matching, value: b.done + Object.values(b.skipped ?? {}).reduce((sum, n) => sum + n, 0), "aria-label": `Progress of ${b.do}` }) : null, spring(),
			b.state === "running" ? button("Stop", () => tell(b, "stop"), { class: "small danger", ...page.acting }) : b.state !== "done" && button("Go on", () => tell(b, "resume"), { class: "small", ...page.acting }),
			b.state !== "running" && button("Hide", () => { seen.set(b.id, "gone"); draw({ bulk }); }, { class: "small" }))));
		if (over) ended();
	}
	page.every(1000, () => { if ([...seen.values()].includes("running")) look(); });
	page.every(10000, () => look());
	look();
	return Object.assign(node, { look });
}
