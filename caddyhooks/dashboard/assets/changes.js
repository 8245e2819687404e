// @ts-check
// Who changed which live setting and when. Values are shown as the server wrote them.
import { address, attempt, button, el, empty, head, longText, mono, muted, put, table, time, tr } from "./dom.js";
import { parts } from "./rawjson.js";

const columns = [["When", "nowrap muted"], ["Who", "clip2"], ["What", "keep line"], ["Change", "line"]];
const fieldColumns = [["Field", "keep"], ["Before"], ["After"]];

/** A value as text: strings without their quotes, all else as it stands. */
function value(raw = "null", none = "–") {
	if (raw === "null") return muted(none);
	const text = raw[0] === '"' ? String(JSON.parse(raw)) : raw;
	if (text.length <= 160 && !text.includes("\n")) return mono(text || '""');
	return el("details", el("summary.mono", `${text.slice(0, 60).split("\n")[0]} …`), longText(text, "Whole value"));
}

function described(what = "", before = "", after = "") {
	if (!before && !after) return "changed"; // an option of the Caddyfile that may hold secrets
	before ||= "null";
	after ||= "null";
	if (what === "token") return value(after, "removed");
	if (what.startsWith("warnings/")) {
		const gone = after !== "null", { warning, reason } = JSON.parse(gone ? after : before) ?? {};
		return [gone ? "Dismissed: " : "Brought back: ", warning, gone && el("div.muted.small", reason)];
	}
	if (what.startsWith("pauses/")) {
		const { reason, rate } = JSON.parse(after) ?? {};
		return [after === "null" ? "Resumed" : rate ? `Resumed at ${rate} on each node` : "Paused", reason && `: ${reason}`];
	}
	if (!what.startsWith("mappings/")) return [value(before, "default"), " → ", value(after, "default")];
	const had = parts(before), has = parts(after);
	const names = [...new Set([...had.keys(), ...has.keys()])];
	const rows = names.map(name => tr(fieldColumns, [mono(name), value(had.get(name)), value(has.get(name))]));
	const fields = rows.length > 0 && table({ caption: `Fields of ${what.slice(9)}`, class: "tight", columns: fieldColumns, rows });
	if (before !== "null" && after !== "null") return fields;
	return el("details", el("summary", before === "null" ? "Added" : "Deleted", muted(` with ${names.join(", ")}`)), fields);
}

/** @param {Page} page */
export async function show(page) {
	const { api } = page;
	let cursor = "";
	/** @type {HTMLElement[]} */
	let rows = [];
	const trouble = el("div"), body = el("div"), foot = el("div.foot", button("Older", () => load(true), { class: "small" }));

	async function load(older = false) {
		await attempt(trouble, async () => {
			const answer = await api.request("GET", "changes", { params: { limit: 50, cursor: older ? cursor : "" }, signal: page.signal });
			cursor = answer.data.cursor ?? "";
			if (!older) rows = [];
			for (const text of parts(parts(answer.text).get("changes")).values()) rows.push(...rowsOf(text));
			foot.hidden = !cursor;
			put(body, rows.length ? table({ caption: "Changes", class: "cards log", columns, rows }) : empty("No setting was changed yet.", "Every change of the live settings is listed here, with who made it."));
		});
	}
	/** One change may be about several settings. */
	function rowsOf(text = "") {
		const { at, by, via, address: from, more } = JSON.parse(text);
		return [...parts(parts(text).get("changes")).values()].map((part, i, all) => {
			const { what, cut } = JSON.parse(part), raw = parts(part);
			const hook = what.startsWith("mappings/") ? what.slice(9) : "";
			return tr(columns, [time(at), [by || via, el("div.muted.small", by && via, by && via && from && ", ", from && address(from))],
				hook && (raw.get("after") ?? "null") !== "null" ? el("a.mono", { href: page.link(`settings/hooks/${encodeURIComponent(hook)}`) }, hook) : mono(hook || what),
				[described(what, raw.get("before"), raw.get("after")), cut && muted(" Shortened."), more > 0 && i === all.length - 1 && muted(` And ${more} more.`)]]);
		});
	}

	put(page.main, head("Changes"), trouble, el("section.panel", { "aria-label": "Changes" }, body, foot));
	await load();
	const fresh = () => { if (!body.querySelector("details[open]")) load(); };
	page.on("settings", fresh);
	page.on("reset", fresh);
}
