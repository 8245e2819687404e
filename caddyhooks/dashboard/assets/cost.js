// @ts-check
// What runs cost, as far as agents told: over time, and by hook, runner or model.
import { attempt, el, empty, head, muted, panel, put, redraw, segment, svg, table, time, tr } from "./dom.js";
import { plotPanel } from "./plot.js";
import { iso } from "./times.js";
import { capital, dollars, now, number, short } from "./words.js";

/** Periods, what their plots are by, and of how many seconds and bars those are. @type {Record<string, [text: string, by: string, step: number, bars: number]>} */
const periods = { "24h": ["24 h", "hour", 3600, 24], "7d": ["7 d", "day", 86400, 7], "31d": ["31 d", "day", 86400, 31] };
const what = [["hook", "Hook"], ["runner", "Runner"], ["model", "Model"]];

/** @param {Page} page */
export async function show(page) {
	const { api, params } = page;
	let since = params.get("since") ?? "", by = params.get("by") ?? "";
	if (!Object.hasOwn(periods, since)) since = "7d";
	if (!what.some(([name]) => name === by)) by = "hook";
	const budgets = el("div"), plots = el("div.grid-2"), rows = el("div"), trouble = el("div");
	const pickPeriod = segment("Period", Object.entries(periods).map(([name, [text]]) => [name, text]), since, name => { pickPeriod.press(since = name); change(); });
	const pickBy = segment("Sums", what, by, name => { pickBy.press(by = name); change(); });
	put(page.main, head("Cost", pickPeriod), trouble, el("div.stack", budgets, plots, rows));
	page.title("Cost");

	function change() {
		page.setParams({ since: since === "7d" ? null : since, by: by === "hook" ? null : by });
		load();
	}
	let turn = 0;
	async function load() {
		const mine = ++turn;
		await attempt(trouble, async () => {
			const [sums, times] = await Promise.all([by, periods[since][1]].map(by => api.get("cost", { since, by }, page.signal)));
			if (mine !== turn) return;
			drawBudgets(sums.budgets);
			drawPlots(times);
			drawRows(sums);
		});
	}

	function drawBudgets(/** @type {Budget[]} */ all = []) {
		const columns = [["Budget"], ["Used", "fall"], ["Left again", "right"]];
		const amount = (/** @type {Amount} */ { tokens, costUsd }) => tokens == null ? dollars(costUsd) : number(tokens);
		redraw(budgets, all.length > 0 && panel("Budgets", table({ caption: "Budgets", columns, rows: all.map(one => {
			const { hook, by, value, percent, leftAt } = one;
			return tr(columns, [
				[el("b", one.budget), " ", hook ? el("a", { href: page.link(`settings/hooks/${encodeURIComponent(hook)}`) }, hook) : "all hooks", by && el("div", muted(by, value != null && ` is ${value || "missing"}`))],
				by && !percent ? "each less than 80 %" : [`${percent} %, ${amount(one.used)} of ${amount(one.limit)}`, svg("svg", { "aria-hidden": "true" }, svg("rect", { class: leftAt ? "bad" : percent < 80 ? "c1" : "late", width: `${Math.min(percent, 100)}%`, height: 8 }))],
				time(leftAt, { short: true }),
			]);
		}) })));
	}

	/** @param {Costs} costs */
	function drawPlots(costs) {
		const [, unit, step, bars] = periods[since], last = Math.floor(now() / 1000 / step) * step;
		const spent = new Map(costs.rows.map(row => [Date.parse(row.key) / 1000, row]));
		/** @param {string} text @param {string} look @param {(row: CostRow) => number | undefined} value @returns {Series} */
		const series = (text, look, value) => ({ text, class: look, points: Array.from({ length: bars }, (_, i) => {
			const at = last - (bars - 1 - i) * step, row = spent.get(at);
			return [at, row ? value(row) ?? null : 0];
		}) });
		/** @param {number} from @param {number} to */
		const select = (from, to) => page.link("runs", { since: iso(from * 1000), until: iso(to * 1000) });
		const { inputTokens = 0, outputTokens = 0, costUsd } = costs.total;
		/** @type {Drawing[]} */
		const all = [{ title: `Tokens per ${unit}`, kind: "bars", whole: true, step, select, format: short, series: [series("input", "c1", row => row.inputTokens), series("output", "c3", row => row.outputTokens)], sentence: `Tokens: ${number(inputTokens)} input, ${number(outputTokens)} output.` }];
		if (costUsd != null) all.unshift({ title: `US dollars per ${unit}`, kind: "bars", step, select, format: dollars, series: [series("cost", "c1", row => row.costUsd)], sentence: `Cost: ${dollars(costUsd)}.` });
		redraw(plots, costs.rows.length > 0 && all.map(plot => plotPanel(plot).node));
	}

	/** @param {Costs} costs */
	function drawRows(costs) {
		const columns = [[capital(by), "keep line"], ["Runs", "right nowrap"], ["Input tokens", "right nowrap desktop-only"], ["Output tokens", "right nowrap desktop-only"], ["Cost", "right nowrap"]];
		const known = (/** @type {number | undefined} */ n, format = number) => n == null ? "–" : format(n);
		/** @param {Child} name @param {Costs["total"]} of */
		const row = (name, of) => tr(columns, [name, number(of.runs), known(of.inputTokens), known(of.outputTokens), known(of.costUsd, dollars)]);
		const named = (key = "") => by === "hook" ? el("a", { href: page.link("runs", { hook: key, since }) }, key) : key || "not told";
		redraw(rows, panel("Sums", costs.rows.length ? table({ caption: `What runs cost, by ${by}`, columns, rows: [...costs.rows.map(one => row(named(one.key), one)), costs.rows.length > 1 && row(el("b", "All"), costs.total)].filter(Boolean) })
			: empty("No agent has told what its turns cost.", "Runners read it where agents report it."), pickBy));
	}

	await load();
	page.every(60e3, () => { if (!page.live.paused && !document.hidden) load(); });
	page.on("reset", load);
}
