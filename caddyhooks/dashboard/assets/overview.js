// @ts-check
import { ask, attempt, badge, button, codeLine, el, empty, field, head, icon, muted, panel, put, redraw, segment, since, table, tag, tr } from "./dom.js";
import { pauseButton } from "./pauses.js";
import { openQuestions } from "./questions.js";
import { plotPanel, spark } from "./plot.js";
import { iso, ranges } from "./times.js";
import { capital, clock, count, duration, number, percent, setClock, short, statusWord } from "./words.js";

const troubled = "failed,timed_out,expired";

/** @param {Page} page */
export async function show(page) {
	let range = page.params.get("range") ?? "1h";
	if (!ranges[range]) range = "1h";
	const times = segment("Time", Object.entries(ranges).map(([value, [text]]) => [value, text]), range, pick);
	const trouble = el("div"), tiles = el("div.tiles"), needs = el("div"), plots = el("div.grid-2"), hooks = el("div"), nodes = el("div"), first = el("div");
	put(page.main, head("Overview", pauseButton("all"), times), trouble, el("div.stack", first, tiles, needs, plots, hooks, nodes));

	/** @type {ReturnType<typeof plotPanel>[]} */
	let drawn = [];
	/** @type {Overview} */
	let data;
	const asked = openQuestions(page, trouble, load);
	let looked = false, turn = 0, ticks = 0;

	function pick(value = "") {
		range = value;
		times.press(value);
		page.setParams({ range: value === "1h" ? null : value }, { push: true });
		load();
	}

	async function load() {
		const mine = ++turn;
		await attempt(trouble, async () => {
			const found = await page.api.get("overview", { range }, page.signal);
			if (mine !== turn) return;
			data = found;
			if (data.figures.questions || asked.count()) await asked.load();
			draw();
		});
	}

	function draw() {
		setClock(data.now);
		drawTiles();
		drawPlots();
		drawHooks();
		drawNodes();
		if (data.figures.accepted || data.hooks.some(hook => hook.lastAt)) {
			put(first);
			plots.hidden = false;
		} else if (!looked) welcome();
		drawNeeds();
	}

	function drawTiles() {
		const f = data.figures, bad = f.failed + f.timedOut + f.expired, ended = bad + f.completed + f.cancelled;
		/** @type {[path: string, params: Record<string, string>, name: string, value: string, detail: string, bad?: boolean][]} */
		const six = [
			["runs", { since: range }, "Accepted", number(f.accepted), `${number(Math.round(f.accepted / ranges[range][2] * 10) / 10)} per minute`],
			["runs", { status: "running" }, "Running", number(f.running), data.nodes?.[1] ? `on ${count(data.nodes.length, "node")}` : `of ${count(f.workers, "worker")}`],
			["runs", { status: "queued" }, "Queued", number(f.queued), [f.queued ? `oldest ${duration(f.oldestSeconds)}` : "", f.waiting && `${number(f.waiting)} put aside`].filter(Boolean).join(", ") || "none is waiting"],
			["runs", { status: troubled, since: range }, f.expired ? "Failed, timed out, expired" : "Failed or timed out", number(bad), `${percent(bad, ended)} of runs`, bad > 0],
			["runs", { status: "completed", since: range }, "Median duration", duration(f.medianSeconds), f.p95Seconds == null ? "no run ended" : [[95, f.p95Seconds], [99, f.p99Seconds]].map(([share, seconds]) => `${share} % within ${duration(seconds)}`.replaceAll(" ", "\u00a0")).join(", ")],
			["deliveries", f.dead ? { status: "dead" } : f.pending ? { status: "pending" } : { status: "delivered" }, "Deliveries", number(f.delivered), f.dead || f.pending ? [f.dead && `${number(f.dead)} dead`, f.pending && `${number(f.pending)} pending`].filter(Boolean).join(", ") : "none is waiting"],
		];
		redraw(tiles, six.map(([path, params, name, value, detail, alarm]) => el("a.tile", { href: page.link(path, params) }, el("span", name), el("b", { class: alarm && "bad" }, value), el("span", { class: path === "deliveries" && f.dead > 0 && "bad" }, detail))));
	}

	function drawNeeds() {
		const list = data.attention.filter(item => item.kind !== "paused" && item.kind !== "questions" && (item.kind !== "off" || !first.firstChild)), gone = data.dismissed ?? []; // shown above already
		const unfolded = needs.querySelector("details")?.open;
		const all = list.length + data.figures.questions, above = asked.count() > 0; // questions come before everything else
		if (above !== (needs.nextSibling === tiles)) needs[above ? "after" : "before"](tiles);
		redraw(needs, all + gone.length > 0 && panel(["Needs you ", muted(number(all))], [
			asked.count() > 0 && asked.node,
			list.length > 0 && el("ul.todo", list.map(need => el("li", { class: need.severity }, icon(need.severity === "late" ? "warn" : "x", need.severity === "late" ? "warning" : "trouble"),
				el("div", el("b", spoken(need.text)), need.detail && el("div.muted.small", spoken(need.detail))),
				el("span.tools", need.code && !page.readOnly && button("Dismiss", () => dismiss(need), { class: "small", "aria-label": `Dismiss: ${need.text}` }), need.link && el("a.button.small", { href: here(need.link), "aria-label": `Look: ${need.text}` }, "Look"))))),
			gone.length > 0 && el("details.dismissed", { open: unfolded }, el("summary", `Dismissed (${gone.length})`), el("ul.todo", gone.map(warning => el("li", icon("warn", "warning"),
				el("div", el("b", `${capital(warning.setting)}: ${warning.problem}`), el("div.muted.small", `${warning.dismissal.by ?? "Somebody"}, `, since(warning.dismissal.at), `: ${warning.dismissal.reason}`)),
				el("span.tools", !page.readOnly && button("Bring back", () => restore(warning.code), { class: "small", "aria-label": `Bring back: ${warning.problem}` }), el("a.button.small", { href: here(warning.link), "aria-label": `Look: ${warning.problem}` }, "Look")))))),
		]));
	}

	const path = (code = "") => `warnings/${encodeURIComponent(code)}/dismissal`;
	/** @param {Overview["attention"][0]} need */
	function dismiss(need) {
		const reason = el("input", { type: "text", maxlength: 200, required: true, class: "full" });
		ask({
			title: "Dismiss this warning?", text: need.text, yes: "Dismiss", body: field("Why it may stay", reason, "Other operators see it. The warning comes back when it changes."),
			act: async () => { await page.api.request("PUT", path(need.code), { body: { reason: reason.value } }); await load(); },
		});
	}
	const restore = (code = "") => attempt(trouble, async () => { await page.api.request("DELETE", path(code)); await load(); });

	/** A link of the server, for this instance. */
	function here(link = "") {
		const [path, query] = link.replace(/^#\//, "").split("?");
		return page.link(path, Object.fromEntries(new URLSearchParams(query)));
	}

	function drawPlots() {
		if (!data.series.length) return;
		const step = data.stepSeconds === 60 ? "per minute" : `per ${duration(data.stepSeconds)}`;
		/** @param {string} name @param {string} text @param {string} look @returns {Series} */
		const series = (name, text, look) => ({ text, class: look, points: data.series.find(s => s.name === name)?.points ?? [] });
		const outcomes = [["completed", "c1"], ["cancelled", "wait"], ["expired", "c3"], ["timed_out", "late"], ["failed", "bad"]].map(([status, look]) => series(`ended.${status}`, statusWord(status), look))
			.filter((s, i) => i === 0 || s.text === "failed" || total(s) > 0);
		const answers = [series("requests.2xx", "2xx", "c1"), series("requests.4xx", "4xx", "c2"), series("requests.5xx", "5xx", "bad")];
		const times = [series("duration.median", "median", "c1"), series("duration.p95", "95 %", "c3"), series("duration.p99", "99 %", "late")];
		const depth = { ...series("queue.depth", "runs", "c1"), area: true };
		const during = ranges[range][1], length = data.stepSeconds;
		/** @param {number} from @param {number} to */
		const select = (from, to) => page.link("runs", { since: iso(from * 1000), until: iso(to * 1000) });
		/** Runs that ended then were accepted before: at most as long before as the longest of them waited and took. @param {Series} s @param {number} i */
		function open(s, i) {
			const at = (name = "") => data.series.find(one => one.name === name)?.points.slice(Math.max(0, i - 1), i + 1).reduce((most, [, value]) => Math.max(most, value ?? 0), 0) ?? 0;
			const [from] = s.points[i], before = Math.ceil((at("duration.longest") + at("queue.oldest")) / 60) * 60;
			return page.link("runs", { status: s.text.replace(" ", "_"), since: iso((from - before) * 1000), until: iso((from + length) * 1000) });
		}
		const shared = { step: length, select };
		/** @type {Drawing[]} */
		const all = [
			{ ...shared, open, title: `Runs ended ${step}`, kind: "bars", whole: true, series: outcomes, format: short, sentence: `Runs that ended. ${during}: ${outcomes.map(s => `${number(total(s))} ${s.text}`).join(", ")}.` },
			{ ...shared, title: "How long runs took", kind: "lines", seconds: true, series: times, format: duration, sentence: `How long runs took. ${during}: ${times.map(s => `${s.text} ${top(s, duration)}`).join("; ")}.` },
			{ ...shared, title: "Queued", kind: "lines", whole: true, series: [depth], format: short, sentence: `Runs that waited. ${during}: ${top(depth, short)}.` },
			{ ...shared, title: `Requests ${step}`, kind: "bars", whole: true, series: answers, format: short, sentence: `Requests by answer. ${during}: ${answers.map(s => `${number(total(s))} with ${s.text}`).join(", ")}.` },
		];
		if (drawn.length) drawn.forEach((plot, i) => plot.update(all[i]));
		else put(plots, (drawn = all.map(plotPanel)).map(plot => plot.node));
	}

	const columns = [["Hook"], ["Accepted", "right"], ["Failed", "right"], ["Share", "right wide-only"], ["Median", "right wide-only"], ["95 %", "right wide-only"], ["99 %", "right wide-only"], ["", "desktop-only"], ["Last run", "right muted nowrap desktop-only"]];
	function drawHooks() {
		columns[7][0] = ranges[range][1];
		const ended = (/** @type {Overview["hooks"][0]} */ hook) => hook.ended ?? Math.max(hook.accepted, hook.failed);
		redraw(hooks, data.hooks.length > 0 && panel("Hooks", table({ caption: "Hooks", columns, rows: data.hooks.map(hook => tr(columns, [
			[el("a.name", { "data-open": true, href: page.link("runs", { hook: hook.name, since: range }) }, hook.name), " ", hook.action && tag(hook.action)],
			number(hook.accepted),
			hook.failed ? el("a", { href: page.link("runs", { hook: hook.name, status: troubled, since: range }) }, number(hook.failed)) : "0",
			el("span", { class: hook.failed > .05 * ended(hook) ? "bad-text" : "muted" }, percent(hook.failed, ended(hook))),
			duration(hook.medianSeconds), duration(hook.p95Seconds), duration(hook.p99Seconds), spark(hook.points), since(hook.lastAt),
		], { "data-row": hook.name })) }), el("a.small", { href: page.link("settings") }, "Webhooks")));
	}

	const nodeColumns = [["Node"], ["Running", "right"], ["Started", "right muted nowrap"], ["Last seen", "right muted nowrap"]];
	/** The nodes that share a store, if there are several. */
	function drawNodes() {
		redraw(nodes, data.nodes?.[1] && panel("Nodes", table({ caption: "Nodes", columns: nodeColumns, rows: data.nodes.map(node => tr(nodeColumns, [
			[el("span.name", node.host || node.name), " ", node.this && tag("this one"), node.silent && badge("bad", "silent")], number(node.running), since(node.joinedAt), since(node.seenAt),
		], { "data-row": node.name })) })));
	}

	/** What to do on an instance that has seen nothing yet. */
	async function welcome() {
		looked = true;
		const [about, list] = await Promise.all([page.about(), page.api.get("runs", { limit: 1 }, page.signal)]).catch(() => []);
		if (!about || list.runs.length || page.signal.aborted) return;
		const url = `${about.urls?.[0] ?? `https://<your site>${about.path}`}/wake`;
		plots.hidden = true;
		put(first, el("section.panel", about.on
			? empty("Nothing has come in yet.", "Send the first message:", codeLine(`curl ${url} -H "Authorization: Bearer $HOOKS_TOKEN" -d '{"text": "The backup is done"}'`, "Copy the command"))
			: empty(badge("late", "webhooks are off"), capital(about.offBecause ?? ""), "Every hook answers 404 until webhooks are switched on.", el("a.button.primary", { href: page.link("settings") }, "Open Webhooks"))));
		drawNeeds();
	}

	// The figures of the moment come with the stream; the rest is fetched now and then.
	page.on("overview", now => {
		if (!data) return;
		if (now.questions !== undefined && now.questions !== data.figures.questions) load();
		for (const name of ["running", "queued", "waiting", "oldestSeconds", "pending", "dead"]) if (now[name] !== undefined) data.figures[name] = now[name];
		drawTiles();
	});
	page.on("reset", load);
	page.on("settings", load);
	page.every(15e3, () => { if (page.live.state === "live" && (range === "1h" || ++ticks % 4 === 0)) load(); });
	await load();
}

/** A sentence of the server: "3m2s" is "3 min 2 s" here. */
const spoken = (text = "") => capital(text.replace(/\b(?:(\d+)h)?(?:(\d+)m)?(\d+(?:\.\d+)?)s\b/g, (_, h = 0, m = 0, s = 0) => duration(3600 * h + 60 * m + Number(s))));

/** @param {Series} series */
const total = series => series.points.reduce((sum, [, value]) => sum + (value ?? 0), 0);

/** "2.1 s most recently, at most 18 s at 10:44". @param {Series} series @param {(v: number) => string} format */
function top(series, format) {
	const known = series.points.filter(([, value]) => value != null);
	if (!known.length) return "no value";
	const peak = known.reduce((a, b) => (b[1] ?? 0) > (a[1] ?? 0) ? b : a);
	return `${format(known[known.length - 1][1] ?? 0)} most recently, at most ${format(peak[1] ?? 0)} at ${clock(peak[0] * 1000, { short: true })}`;
}
