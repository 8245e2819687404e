// @ts-check
import { address, attempt, badge, button, choice, copyButton, el, empty, exportButton, head, icon, messageOf, mono, muted, note, put, redraw, segment, since, spring, table, tag, time, tr, unseen } from "./dom.js";
import { askBulk, watch } from "./bulk.js";
import { keptRequests } from "./refused.js";
import { askAgain, askCancel } from "./run.js";
import { momentOf, periodPicker, ranges } from "./times.js";
import { canRunAgain, capital, clock, count, duration, isOpen, number, shortChat, shortId, size, statusWord, took, waits } from "./words.js";

const pageSize = 50;
/** @type {[string, string][]} */
const orders = [["", "Newest first"], ["took", "Longest first"], ["-took", "Shortest first"]];
const statuses = ["queued", "running", "waiting", "completed", "failed", "timed_out", "cancelled", "expired"];

/** @param {Page} page */
export const show = page => page.path[0] === "refused" ? showRefused(page) : showRuns(page);

/** @param {Page} page @param {boolean} refused */
const tabs = (page, refused) => el("nav.tabs", { "aria-label": "Kinds" },
	el("a", { href: page.link("runs"), "aria-current": refused ? null : "page" }, "Runs"), el("a", { href: page.link("runs/refused"), "aria-current": refused ? "page" : null }, "Refused"));

/** A choice of all hooks, which are asked for when the page is there. @param {Page} page @param {(hook: string) => void} pick */
function hookChoice(page, pick) {
	const node = choice("Hook", [["", "All hooks"]], page.params.get("hook") ?? "", pick);
	const load = () => page.api.get("settings", {}, page.signal).then((/** @type {any} */ settings) => {
		for (const name of ["wake", "agent", ...settings.mappings.map((/** @type {any} */ m) => m.name)]) if (![...node.options].some(option => option.value === name)) node.append(el("option", { value: name }, name));
	}).catch(() => {}); // then there is what the address says
	load();
	page.on("reset", load);
	return node;
}

/** @param {Page} page */
async function showRuns(page) {
	const { params, api } = page;
	const get = (name = "") => params.get(name) ?? "";
	const filters = () => ({ status: get("status"), hook: get("hook"), chatId: get("chatId"), runner: get("runner"), since: get("since"), until: get("until"), q: get("q") });

	/** All rows that are shown, the newest first. @type {Run[]} */
	let list = [];
	/** Those that wait to be shown. @type {Map<string, Run>} */
	const newer = new Map();
	/** @type {Map<string, HTMLTableRowElement>} */
	const drawn = new Map();
	const picked = new Set(get("selected").split(",").filter(Boolean));
	let cursor = "", searchedTo = "", missed = false, stop = false;
	/** Where a range of rows begins that Shift selects, and whether all that match are meant. */
	let last = "", every = false;
	/** Of the list that is being fetched; a new filter begins another. @type {AbortController | undefined} */
	let fetching;

	const allBox = el("input", { type: "checkbox", "aria-label": "Select all that are shown", change: () => { for (const run of list) allBox.checked ? picked.add(run.runId) : picked.delete(run.runId); picks(); list.forEach(draw); } });
	const columns = [...page.readOnly ? [] : [[allBox, "pick a-pick"]], ["Status", "a-status"], ["Hook", "nowrap a-name"], ["Message", "clip a-text"], ["Chat", "clip2 wide-only"], ["Sent out", "nowrap a-out"], ["Took", "right nowrap a-took"], ["Accepted", "right nowrap muted a-time"]];
	const rows = table({ caption: "Runs, the newest first", class: "cards run-cards", columns, rows: [] });
	const trouble = el("div"), bar = el("div"), foot = el("div.foot"), nothing = el("div"), going = watch(page, "run", () => refresh());
	const status = segment("Status", [["", "All"], ...statuses.map(value => [value, [capital(statusWord(value)), " ", el("span.n", { "data-n": value })]])], get("status"), value => filter({ status: value }));
	const updates = segment("Updates", [["live", "Live"], ["paused", "Paused"]], "live", value => page.live.pause(value === "paused"));
	const search = el("input", { type: "search", class: "grow", "aria-label": "Search", placeholder: "Run id, request id, or words", title: "Run id, request id, or words of the message, answer or error", value: get("q"), input: page.later(() => { filter({ q: search.value.trim() }, false); }, 400, true) });
	const chat = el("input", { type: "text", "aria-label": "Chat", placeholder: "Chat", value: get("chatId"), size: 14, spellcheck: "false", change: () => filter({ chatId: chat.value.trim() }) });
	const period = periodPicker(() => ({ since: get("since"), until: get("until") }), (since, until) => filter({ since, until }));
	addEventListener("pointerdown", period.outside, { signal: page.signal });
	const { runners } = await page.about();
	const runner = (runners.length > 1 || get("runner")) && choice("Runner", [["", "All runners"], ...runners.map((/** @type {{name: string}} */ one) => [one.name])], get("runner"), value => filter({ runner: value }));
	const order = choice("Order", orders, get("sort"), sort => { page.setParams({ sort }); arrange(); drawFoot(); });
	put(page.main, head("Runs", exportButton(api, "runs", filters), updates), tabs(page, false), trouble, going,
		el("div.filters", status), el("div.filters", search, hookChoice(page, value => filter({ hook: value })), chat, runner, period, order),
		el("section.panel", bar, rows, nothing, foot));
	status.press(get("status")); // now that it is there, what is pressed can be seen

	/** @param {Record<string, string | null>} change @param {boolean} [push] */
	function filter(change, push = true) {
		picked.clear();
		page.setParams({ ...change, selected: null }, { push });
		status.press(get("status"));
		load();
	}

	const failing = () => trouble.querySelector(".unfetched") !== null;
	/** Whether somebody is busy with the rows, so that they must not move. */
	const held = () => list.some(run => picked.has(run.runId)) || scrollY > 60 || rows.querySelector(".here") !== null;

	/** @param {Run} run */
	function matches(run) {
		const { status, hook, chatId, runner, since, until, q } = filters(), accepted = Date.parse(run.acceptedAt);
		return !q && (!status || status.split(",").includes(run.status)) && (!hook || hook.split(",").includes(run.hook)) && (!chatId || chatId === run.chatId) && (!runner || runner === run.runner) && (!since || accepted >= momentOf(since)) && (!until || accepted < momentOf(until));
	}

	/** @param {Run} run */
	function cells(run) {
		const out = run.sentOut ?? { delivered: 0, pending: 0, dead: 0 };
		return [
			...page.readOnly ? [] : [el("input", { type: "checkbox", "aria-label": `Select ${run.hook} ${shortId(run.runId)}`, checked: picked.has(run.runId), click: (/** @type {MouseEvent} */ event) => pick(run.runId, event.shiftKey) })],
			badge(run.status),
			[el("a.name", { "data-open": true, href: page.link(`runs/${run.runId}`), title: run.runId }, run.hook), run.name && [" ", el("span.wide-only", tag(run.name))], run.test && [" ", tag("test")]],
			[run.waitingFor && el("span.muted", waits(run), run.preview && " · "), run.preview, why(run)],
			el("a.mono", { href: page.link("chats", { chatId: run.chatId }), title: run.chatId }, shortChat(run.chatId)),
			out.dead ? badge("dead", `${out.dead} dead`) : out.pending ? badge("pending", `${out.pending} pending`) : out.delivered ? muted(icon("check", "delivered"), ` ${out.delivered}`) : null,
			tookCell(run),
			timeCell(run.acceptedAt),
		];
	}

	/** @param {Run} run */
	function draw(run) {
		const old = drawn.get(run.runId);
		const row = tr(columns, cells(run), { "data-row": run.runId, class: old?.className });
		drawn.set(run.runId, row);
		if (!old?.isConnected) return row;
		const at = [...old.querySelectorAll("a, input")].findIndex(node => node === document.activeElement);
		old.replaceWith(row);
		if (at >= 0) /** @type {HTMLElement | undefined} */ ([...row.querySelectorAll("a, input")][at])?.focus({ preventScroll: true });
		return row;
	}

	/** Puts a row where it belongs; most are the newest. @param {Run} run */
	function insert(run) {
		let at = list.findIndex(other => other.runId < run.runId); // ids begin with the time
		if (at < 0 && cursor && list.length) return; // it comes with the older ones
		if (at < 0) at = list.length;
		list.splice(at, 0, run);
		rows.body.insertBefore(draw(run), rows.body.rows[at] ?? null);
		arrange();
	}

	/** Puts the rows that are loaded in their order. Those that stay where they are keep the focus. */
	function arrange() {
		const sign = get("sort") === "took" ? -1 : get("sort") === "-took" ? 1 : 0;
		const sorted = sign ? [...list].sort((a, b) => sign * ((took(a) ?? -1) - (took(b) ?? -1))) : list;
		sorted.forEach((run, i) => {
			const row = drawn.get(run.runId), there = rows.body.rows[i];
			if (row && row !== there) rows.body.insertBefore(row, there ?? null);
		});
	}

	/** What the stream, or a second look, says about a run. @param {Run} run */
	function take(run) {
		const at = list.findIndex(other => other.runId === run.runId);
		if (at >= 0) {
			list[at] = run;
			if (matches(run) || get("q") || held()) draw(run);
			else {
				list.splice(at, 1);
				drawn.get(run.runId)?.remove();
				drawn.delete(run.runId);
			}
		} else if (matches(run)) {
			if (held()) newer.set(run.runId, run);
			else insert(run);
		} else newer.delete(run.runId);
	}

	/** What can be done with all that match, by the statuses that are chosen. */
	const fits = (/** @type {"again" | "cancel"} */ verb) => {
		const can = statuses.filter(verb === "again" ? canRunAgain : isOpen), chosen = get("status").split(",").filter(Boolean);
		return (chosen.length ? chosen.filter(one => can.includes(one)) : can).join(",");
	};
	const onAll = (/** @type {"again" | "cancel"} */ verb) => askBulk(page, trouble, verb, { ...filters(), status: fits(verb) }, id => { picked.clear(); picks(); list.forEach(draw); going.look(id); });

	function drawBar() {
		allBox.checked = list.length > 0 && list.every(run => picked.has(run.runId));
		allBox.indeterminate = !allBox.checked && list.some(run => picked.has(run.runId));
		every &&= allBox.checked;
		const runs = list.filter(run => picked.has(run.runId)), open = runs.filter(run => isOpen(run.status)), ended = runs.filter(run => canRunAgain(run.status));
		redraw(bar,
			(newer.size > 0 || missed) && el("div.banner", button(missed ? "Newer runs" : count(newer.size, "newer run"), showNewer, { class: "linky" })),
			every ? el("div.banner", "All that match are selected", fits("again") && button("Run all again …", () => onAll("again"), { class: "small", icon: "again" }), fits("cancel") && button("Cancel all …", () => onAll("cancel"), { class: "small danger" }), button("Clear", () => { picked.clear(); picks(); list.forEach(draw); }, { class: "small" }))
			: runs.length > 0 && el("div.banner", `${number(runs.length)} selected`, allBox.checked ? (cursor || newer.size > 0 || missed) && button("Select all that match", () => { every = true; drawBar(); }, { class: "linky" }) : button("Select all", () => allBox.click(), { class: "linky" }), ended.length > 0 && button(`Run ${ended.length} again`, () => askAgain(page, ended, again => each(ended, "started", again)), { class: "small", icon: "again" }), open.length > 0 && button(`Cancel ${open.length}`, () => askCancel(page, open.length, cancel => each(open, "cancelled", cancel)), { class: "small danger" }),
				copyButton(() => runs.map(run => run.runId).join("\n"), "Copy ids", { class: "small" }), button("Clear", () => { picked.clear(); picks(); for (const run of runs) draw(run); }, { class: "small" })));
	}

	/** The server lists runs by time alone, so that any other order is one of the rows that are here. */
	const ordered = () => get("sort") ? `the ${get("sort") === "took" ? "longest" : "shortest"} of these first${cursor ? "; older runs are not loaded" : ""}` : "newest first";

	function drawFoot() {
		const busy = Boolean(fetching);
		const back = searchedTo && get("q") ? `searched back to ${clock(searchedTo)}` : "";
		redraw(foot, el("span", busy && !list.length ? (back ? capital(back) : "Looking…") : `${count(list.length, "run")}, ${ordered()}${back && ` · ${back}`}${!cursor && !busy && get("q") ? " · searched everything" : ""}`), spring(),
			el("span.desktop-only", el("kbd", "j"), " ", el("kbd", "k"), " move ", el("kbd", "Enter"), " open ", !page.readOnly && [el("kbd", "x"), " select "], el("kbd", "/"), " search"),
			busy ? button("Stop", () => { stop = true; fetching?.abort(); }, { class: "small" }) : cursor && button(get("q") ? "Search further" : "Older", more, { class: "small" }));
		const filtered = Object.values(filters()).some(Boolean), failed = failing();
		foot.hidden = failed && !list.length;
		put(nothing, !busy && !failed && !list.length && !cursor && (filtered ? empty("No run matches.", el("div.acts", button("Show all", () => page.go("runs"), { class: "small" }), el("a.button.small", { href: page.link("runs/refused") }, "Look at refused requests"))) : empty("No runs yet.", ["The ", el("a", { href: page.link("overview") }, "overview"), " says how to send the first."])));
		rows.hidden = !list.length;
	}

	function drawAll() {
		drawn.clear();
		put(rows.body, list.map(draw));
		arrange();
		drawBar();
		drawFoot();
	}

	/** The first page anew. */
	async function load() {
		fetching?.abort();
		list = [];
		newer.clear();
		missed = false;
		cursor = searchedTo = "";
		drawAll();
		counts();
		await more();
	}

	/** Fetches on until there is a page of rows: a filter or a search that matches little gets short answers. */
	async function more() {
		const own = fetching = new AbortController();
		const signal = AbortSignal.any([own.signal, page.signal]);
		const goal = list.length + pageSize;
		stop = false;
		put(trouble);
		drawFoot();
		await attempt(trouble, async () => {
			do {
				const answer = await api.get("runs", { ...filters(), limit: pageSize, cursor }, signal);
				const known = new Set(list.map(run => run.runId));
				const fresh = answer.runs.filter(run => !known.has(run.runId));
				list.push(...fresh);
				rows.body.append(...fresh.map(draw));
				arrange();
				cursor = answer.cursor ?? "";
				searchedTo = answer.searchedTo ?? "";
				drawFoot();
			} while (cursor && list.length < goal && !stop);
		});
		if (fetching !== own || page.signal.aborted) return;
		fetching = undefined;
		drawFoot();
		drawBar();
		if (get("q")) page.say(`${count(list.length, "run")} found`);
	}
	/** Looks at the newest rows without moving those that are shown. */
	async function refresh() {
		if (fetching) return look();
		if (failing() && !held()) return load();
		if (get("q")) return;
		await attempt(trouble, async () => {
			const answer = await api.get("runs", { ...filters(), limit: pageSize }, page.signal);
			const known = new Set(list.map(run => run.runId));
			if (list.length && !answer.runs.some(run => known.has(run.runId))) {
				if (!held()) return load();
				missed = true;
			} else for (const run of answer.runs.reverse()) take(run);
			drawBar();
			drawFoot();
		});
	}

	function showNewer() {
		scrollTo(0, 0);
		rows.querySelector(".here")?.classList.remove("here");
		if (missed) return load();
		for (const run of newer.values()) insert(run);
		newer.clear();
		drawBar();
		drawFoot();
	}

	/** With Shift, all rows from the last one on are selected or not, as this one is. */
	function pick(id = "", range = false) {
		const on = !picked.has(id), from = list.findIndex(run => run.runId === last), to = list.findIndex(run => run.runId === id);
		for (const run of range && from >= 0 ? list.slice(Math.min(from, to), Math.max(from, to) + 1) : [list[to]]) {
			if (on) picked.add(run.runId); else picked.delete(run.runId);
			if (run.runId !== id) draw(run);
		}
		last = id;
		picks();
	}
	function picks() {
		page.setParams({ selected: [...picked].slice(0, 20).join(",") });
		drawBar();
	}

	/** How many there are by status, where the overview knows. */
	async function counts() {
		const range = get("since"), plain = !get("hook") && !get("chatId") && !get("runner") && !get("q") && !get("until") && (!range || Object.hasOwn(ranges, range));
		const f = plain ? await api.get("overview", { range: range || "1h" }, page.signal).then(answer => answer.figures, () => null) : null;
		if (range !== get("since")) return;
		const all = { ...f, timed_out: f?.timedOut ?? 0 };
		for (const name of statuses) showCount(name, range || isOpen(name) ? all[/** @type {keyof typeof all} */ (name)] : 0);
	}
	/** @param {string} name @param {number | undefined} n */
	const showCount = (name, n) => put(/** @type {Element} */ (status.querySelector(`[data-n=${name}]`)), n ? number(n) : "");

	/** Does one after the other; what was refused stays selected. @param {Run[]} runs @param {string} done @param {(run: Run) => Promise<unknown>} act */
	async function each(runs, done, act) {
		const refused = [];
		for (const run of runs) {
			try {
				await act(run);
				picked.delete(run.runId);
			} catch (error) {
				refused.push(el("div", mono(shortId(run.runId)), ` ${messageOf(error)}`));
			}
		}
		picks();
		for (const run of runs) draw(run);
		put(trouble, note(refused.length ? "bad" : "ok", `${number(runs.length - refused.length)} of ${count(runs.length, "run")} ${done}.`, refused.length > 0 && refused));
		if (!page.live.paused) refresh();
	}

	const look = page.later(refresh, 2000);
	page.on("runs", event => {
		if (fetching && !list.length) return look(); // the answer may have been made before
		for (const run of event.runs) take(run);
		if (event.counts && !get("hook") && !get("chatId") && !get("runner") && !get("q")) for (const name of ["queued", "running", "waiting"]) showCount(name, event.counts[name]);
		if (event.skipped) look();
		if (list.length > 500 && !held()) return load();
		drawBar();
		drawFoot();
		const ended = event.runs.filter(run => run.status === "failed" || run.status === "timed_out").length;
		if (ended) page.say(`${count(ended, "run")} failed`);
	});
	page.on("reset", refresh);
	const pressed = () => updates.press(page.live.paused ? "paused" : "live");
	page.on("state", pressed);
	pressed();
	page.every(1000, () => {
		for (const run of list) if (run.status === "running") {
			const cell = drawn.get(run.runId)?.querySelector(".a-took");
			if (cell) cell.textContent = tookCell(run);
		}
	});
	await load();
}

/** Why a run did not complete. @param {Run} run */
function why(run) {
	const said = run.status === "cancelled" ? run.cancelledBy && `by ${run.cancelledBy}` : !isOpen(run.status) && run.status !== "completed" && (run.reason ?? run.errorMessage);
	return said && el("div.why", { title: said }, said);
}

/** @param {Run} run */
const tookCell = run => run.startedAt ? duration(run.status === "running" ? Math.floor(took(run) ?? 0) : took(run)) : "";

/** Without seconds where there is little room. */
function timeCell(iso = "") {
	const node = time(iso), text = node?.textContent ?? "";
	if (node && /^\d\d:\d\d:\d\d$/.test(text)) put(node, text.slice(0, 5), el("span.desktop-only", text.slice(5)));
	return node;
}

/** Requests that became no run. @param {Page} page */
async function showRefused(page) {
	const trouble = el("div"), place = el("section.panel"), kept = keptRequests(page);
	page.title("Refused");
	put(page.main, head("Runs"), tabs(page, true), trouble, el("div.filters", hookChoice(page, value => { page.setParams({ hook: value }, { push: true }); load(); }), muted("Requests that became no run, of all nodes.")), el("div.stack", place, kept.node));
	const columns = [["Last", "nowrap muted"], ["Answer"], ["Count", "right"], ["Hook", "line"], ["Why", "line"], ["From", "line keep"], ["Size", "right nowrap drop"]];
	/** Those that are unfolded. */
	const open = new Set();

	/** Who was refused. @param {Refused} r */
	function from(r) {
		const key = [r.hook, r.status, r.reason, r.firstAt].join(" "), clients = r.clients ?? [];
		if (clients.length < 2) return address(r.client);
		/** @type {HTMLDetailsElement} */
		const node = el("details", { open: open.has(key), toggle: () => node.open ? open.add(key) : open.delete(key) }, el("summary", address(r.client), ` and ${clients.length - 1} more`), el("ul.folds.small.muted", clients.map(c => el("li", address(c.client), ` ${count(c.count, "time")}, last `, since(c.lastAt)))));
		return node;
	}

	async function load() {
		await attempt(trouble, async () => {
			const { refused } = await page.api.get("refused", { hook: page.params.get("hook") ?? "" }, page.signal);
			redraw(place, refused.length ? table({ caption: "Requests that became no run, the last first", class: "cards refused-cards", columns, rows: refused.map(r => tr(columns, [
				[since(r.lastAt), Date.parse(r.lastAt) - Date.parse(r.firstAt) > 60e3 && el("span.desktop-only.small", " · first ", since(r.firstAt))], r.ignored ? badge("ignored") : badge(r.status >= 500 ? "bad" : "late", String(r.status)), r.count > 1 ? `× ${number(r.count)}` : "1",
				!r.hook ? muted(r.asked?.length ? ["asked for ", mono(r.asked.join(", "))] : "no such hook") : /^(wake|agent)$/.test(r.hook) ? el("b.name", r.hook) : el("a.name", { href: page.link(`settings/hooks/${encodeURIComponent(r.hook)}`) }, r.hook),
				[r.ignored ? mono(r.condition ?? r.reason) : capital(r.reason), !r.ignored && r.message && r.message !== capital(r.reason) && el("div.muted.small", "The caller got: ", r.message), r.error && el("div.muted.small", r.error), r.chat && el("div.muted.small", "chat ", mono(r.chat))], from(r), r.size ? size(r.size) : "–",
			])) }) : empty("No request was refused or ignored.", "Requests with a wrong token, signature, size or name are listed here, and those that a hook ignores."));
			await kept.load();
		});
	}
	page.on("reset", load);
	page.on("overview", load); // every 5 s while live, for those that are too old
	page.on("refused", page.later(load, 500));
	await load();
}
