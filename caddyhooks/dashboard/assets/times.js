// @ts-check
// A period of time: in words, as moments, and as something to choose.
import { button, el, field, put } from "./dom.js";
import { clock, now, usesUTC } from "./words.js";

/** That the overview knows figures of. @type {Record<string, [text: string, title: string, minutes: number]>} */
export const ranges = { "1h": ["1 h", "Last hour", 60], "6h": ["6 h", "Last 6 hours", 360], "24h": ["24 h", "Last 24 hours", 1440], "7d": ["7 d", "Last 7 days", 10080] };

/** Durations back from now, which a link keeps as they are. @type {[since: string, text: string][]} */
export const presets = [["", "Any time"], ["15m", "Last 15 minutes"], ["1h", "Last hour"], ["6h", "Last 6 hours"], ["24h", "Last 24 hours"], ["7d", "Last 7 days"]];

/** When "1h" or a time began, in milliseconds. */
export function momentOf(text = "") {
	const [, n, unit] = /^(\d+)([smhd])$/.exec(text) ?? [];
	return n ? now() - Number(n) * ({ s: 1e3, m: 6e4, h: 36e5, d: 864e5 }[unit] ?? 0) : Date.parse(text);
}

/** A moment as a link keeps it: it is the same for whoever opens the link, in whatever zone. */
export const iso = (ms = 0) => new Date(ms).toISOString().replace(".000Z", "Z");

/** What a field for a date and a time shows for a moment, in the zone of the page; and back. */
const shown = (ms = 0) => Number.isNaN(ms) ? "" : new Date(usesUTC() ? ms : ms - new Date(ms).getTimezoneOffset() * 6e4).toISOString().slice(0, 16);
const read = (text = "") => Date.parse(usesUTC() && text ? `${text}Z` : text);

/** The beginning of a day, so many days ago. */
function midnight(days = 0) {
	const at = new Date(now());
	return usesUTC() ? Date.UTC(at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate() - days) : new Date(at.getFullYear(), at.getMonth(), at.getDate() - days).getTime();
}

/** "Last hour", "From 10:00", "Yesterday 10:00 – 12:00". */
export function periodName(since = "", until = "") {
	const preset = !until && presets.find(([value]) => value === since);
	if (preset) return preset[1];
	if (since === iso(midnight()) && !until) return "Today";
	if (since === iso(midnight(1)) && until === iso(midnight())) return "Yesterday";
	const named = (text = "") => Number.isNaN(Date.parse(text)) ? /^\d/.test(text) ? `${text} ago` : text : clock(text, { short: Date.parse(text) % 6e4 === 0 });
	return !since ? `Until ${named(until)}` : !until ? `From ${named(since)}` : `${named(since)} – ${named(until)}`;
}

/**
 * A button that names a period and opens a choice of others.
 * @param {() => {since: string, until: string}} current @param {(since: string, until: string) => void} pick
 */
export function periodPicker(current, pick) {
	const name = el("span"), problem = el("div.wrong", { role: "alert" }), choices = el("div.choices", { role: "group", "aria-label": "Periods" });
	const from = el("input", { type: "datetime-local" }), to = el("input", { type: "datetime-local" });
	const form = el("form.form", { novalidate: true, submit: (/** @type {Event} */ event) => { event.preventDefault(); apply(); } },
		field("From", from), field("To", to, usesUTC() ? "In UTC. Blank: until now." : "In your time zone. Blank: until now."), problem, el("div.acts", el("button.primary", "Show")));
	/** @type {HTMLDetailsElement} */
	const node = el("details.picker", { toggle: () => node.open && fill(), keydown: (/** @type {KeyboardEvent} */ event) => {
		if (event.key !== "Escape" || !node.open) return;
		event.stopPropagation();
		close();
	} }, el("summary.button", { "aria-label": "Time" }, name), el("div.popup", choices, form));

	function close() {
		node.open = false;
		node.querySelector("summary")?.focus();
	}
	function choose(since = "", until = "") {
		close();
		pick(since, until);
		draw();
	}
	function apply() {
		const start = read(from.value), end = read(to.value);
		const wrong = !from.value && !to.value ? "Choose a time." : from.value && to.value && end <= start ? "To must be after From." : "";
		put(problem, wrong);
		if (!wrong) choose(from.value && iso(start), to.value && iso(end));
	}
	function fill() {
		const { since, until } = current(), days = [[iso(midnight()), "", "Today"], [iso(midnight(1)), iso(midnight()), "Yesterday"]];
		put(choices, [...presets.map(([value, text]) => [value, "", text]), ...days].map(([start, end, text]) => button(text, () => choose(start, end), { "aria-pressed": String(start === since && end === until), class: "small" })));
		from.value = since ? shown(momentOf(since)) : "";
		to.value = until ? shown(momentOf(until)) : "";
		put(problem);
	}
	function draw() {
		const { since, until } = current();
		put(name, periodName(since, until));
		node.querySelector("summary")?.setAttribute("aria-label", `Time: ${periodName(since, until)}`);
	}
	const outside = (/** @type {Event} */ event) => { if (node.open && event.target instanceof Node && !node.contains(event.target)) node.open = false; };
	draw();
	return Object.assign(node, { draw, outside });
}
