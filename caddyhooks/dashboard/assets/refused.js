// @ts-check
// Requests that became no run and are kept, below their kinds.
import { address, attempt, badge, el, longText, mono, muted, panel, put, redraw, since, table, tr } from "./dom.js";
import { capital, duration, number, size } from "./words.js";

const columns = [["When", "nowrap muted"], ["Answer"], ["Hook", "line"], ["Why", "line"], ["From", "line keep"], ["Size", "right nowrap drop"]];

/** A panel with the requests, and what loads them. @param {Page} page */
export function keptRequests(page) {
	const node = el("div"), link = (/** @type {KeptRequest} */ r) => page.link(`settings/hooks/${encodeURIComponent(r.hook)}`, { refused: r.id });
	/** Those that are unfolded, and what they hold. @type {Map<string, HTMLElement>} */
	const open = new Map();

	/** @param {KeptRequest} r */
	function unfolded(r) {
		const inside = open.get(r.id) ?? el("div");
		/** @type {HTMLDetailsElement} */
		const fold = el("details", { open: open.has(r.id), toggle: () => {
			if (!fold.open) open.delete(r.id);
			else if (!open.has(r.id)) {
				open.set(r.id, inside);
				attempt(inside, async () => put(inside, shown(await page.api.get(`refused/requests/${r.id}`, {}, page.signal))));
			}
		} }, el("summary", mono(`${r.method} ${r.path}`)), inside);
		return fold;
	}
	/** @param {KeptRequest & {headers: Record<string, string[]>, query: string, payload: string, cut?: boolean, unread?: boolean}} r */
	const shown = r => el("div.stack", longText([r.query && `?${r.query}`, ...Object.entries(r.headers).flatMap(([name, values]) => values.map(value => `${name}: ${value}`))].filter(Boolean).join("\n"), "Headers"),
		r.payload && longText(r.payload, "Body"), (r.cut || r.unread) && muted(r.cut ? "Only the beginning of the body is kept." : "The body was not read, or the hook keeps none."),
		r.hook && !/^(wake|agent|runs)$/.test(r.hook) && !r.unread && el("div", el("a.button.small", { href: link(r) }, "Try with the hook")));

	async function load() {
		const { requests, keptSeconds } = await page.api.get("refused/requests", { hook: page.params.get("hook") ?? "" }, page.signal);
		for (const id of open.keys()) if (!requests.some(r => r.id === id)) open.delete(id);
		redraw(node, panel(["Requests ", muted(keptSeconds ? number(requests.length) : "are not kept")], requests.length ? table({ caption: "Refused requests, the last first", class: "cards refused-cards log", columns, rows: requests.map(r => tr(columns, [
			since(r.at), r.ignored ? badge("ignored") : badge(r.status >= 500 ? "bad" : "late", String(r.status)), r.hook || muted("no such hook"), [r.ignored ? mono(r.reason) : capital(r.reason), unfolded(r)], address(r.client), r.size ? size(r.size) : "–",
		])) }) : el("div.body", muted(keptSeconds ? `Those that come are kept for ${duration(keptSeconds)}, without secrets.` : ["To see what senders send, set ", el("a", { href: page.link("settings") }, "Keep refused requests"), " for a while."]))));
	}
	return { node, load };
}
