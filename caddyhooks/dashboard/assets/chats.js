// @ts-check
// Chats, the last active first, and one of them as a conversation.
import { attempt, badge, button, el, empty, exportButton, head, icon, muted, put, redraw, since, spring, tag, time } from "./dom.js";
import { pauseButton } from "./pauses.js";
import { list } from "./rawjson.js";
import { askAgain, askCancel } from "./run.js";
import { bytesOf, canRunAgain, capital, count, day, duration, isOpen, shortChat, shortId, size, statusWord, took, waits } from "./words.js";

/** @param {Page} page */
export async function show(page) {
	const { api, params } = page;
	const given = params.get("chatId") ?? "";
	/** @type {any[]} */
	let chats = [];
	let cursor = "", chat = given;
	let part = page.part();
	const items = el("ul.chats"), older = el("div.foot"), trouble = el("div"), right = el("div");
	const pane = el("div.two-pane");
	let turn = 0;
	const search = el("input", {
		type: "search", class: "full", placeholder: "Chat id   /", "aria-label": "Search for a chat", value: params.get("q") ?? "",
		input: page.later(async () => {
			page.setParams({ q: search.value.trim() });
			await load();
			if (chats.some(one => one.chatId === chat)) return;
			page.setParams({ chatId: null });
			openFirst();
		}, 300, true),
	});

	async function load(more = false) {
		const mine = ++turn;
		await attempt(trouble, async () => {
			const found = await api.get("chats", { q: search.value.trim(), cursor: more ? cursor : "", limit: 30 }, page.signal);
			if (mine !== turn) return;
			chats = more ? [...chats, ...list(found.chats)] : list(found.chats);
			cursor = found.cursor ?? "";
			drawList();
		});
	}
	function drawList() {
		redraw(items, chats.map(one => el("li", { "data-row": true }, el("a", {
			"data-open": true, href: page.link("chats", { chatId: one.chatId, q: params.get("q") }), "aria-current": one.chatId === chat ? "true" : null,
			click: (/** @type {MouseEvent} */ event) => {
				if (event.ctrlKey || event.metaKey || event.shiftKey) return;
				event.preventDefault();
				page.setParams({ chatId: one.chatId }, { push: true });
				open(one.chatId);
				if (!items.offsetParent) right.querySelector("h2")?.focus(); // the list made room
			},
		}, el("span.t", el("b.mono", { title: one.chatId }, shortChat(one.chatId)), el("span.muted.small", since(one.lastAt))),
			el("span.p", one.status && one.status !== "completed" && [el("span", { class: isOpen(one.status) ? "" : "bad-text" }, capital(statusWord(one.status))), " · "], one.preview ?? count(one.runs, "run"))))),
		!chats.length && !trouble.firstChild && el("li", search.value ? empty("No chat id contains that.") : empty("There are no chats yet.", "A run that names its chat starts one.")));
		put(older, cursor && button("Older", () => load(true), { class: "small" }));
		older.hidden = !cursor;
	}
	function open(id = "") {
		part.end();
		chat = id;
		drawList();
		pane.classList.toggle("one", Boolean(id));
		page.title(id ? shortChat(id) : "Chats");
		if (id) conversation(part = page.part(), right, id);
		else put(right, chats.length > 0 && el("section.panel", empty("Choose a chat.")));
	}
	const openFirst = () => open(matchMedia("(min-width: 1081px)").matches ? chats[0]?.chatId : "");

	put(pane, el("section.panel", { "aria-label": "Chats" }, el("header", search), items, older), right);
	put(page.main, head("Chats"), trouble, pane);
	await load();
	given ? open(given) : openFirst();
	const soon = page.later(() => { if (chats.length <= 30) load(); }, 1500);
	page.on("reset", soon);
	page.on("runs", soon);
}

/** The run in whose turn a run was carried out. */
const turnOf = (/** @type {any} */ run) => run.foldedInto ?? run.runId;

/** Shows one chat, the oldest run first. @param {Page} page @param {HTMLElement} into @param {string} chat */
function conversation(page, into, chat) {
	const { api, signal } = page;
	/** @type {Map<string, {key: string, node: HTMLElement, run: any}>} */
	const shown = new Map();
	let cursor = "", first = true;
	const trouble = el("div"), told = el("a.small", { href: page.link("runs", { chatId: chat }) }), box = el("div.chat", { tabindex: "0", role: "log", "aria-label": `Conversation in ${chat}` });
	const older = button("Older", () => load(true), { class: "small", hidden: true });
	put(into, el("section.panel", el("header", null,
		el("a.back", { href: page.link("chats") }, "All chats"), el("h2.mono", { tabindex: "-1" }, chat), told, spring(), older, pauseButton("chat", chat, { class: "small" }), exportButton(api, "chat", () => ({ chatId: chat }), { class: "small" })),
	trouble, box, el("div.foot", "Shown as the agent got it. Text from outside is marked.")));

	async function load(more = false) {
		await attempt(trouble, async () => {
			const found = await api.get("chat", { chatId: chat, limit: 20, cursor: more ? cursor : "" }, signal);
			const runs = list(found.runs), apart = !more && !runs.some(run => shown.has(run.runId)); // more came than one page holds
			if (apart) shown.clear();
			if (apart || more) cursor = found.cursor ?? "";
			older.hidden = !cursor;
			const height = box.scrollHeight;
			draw(runs);
			if (more) box.scrollTop = box.scrollHeight - height - box.clientHeight / 2; // where the older ones end
		});
	}
	/** @param {any[]} runs */
	function draw(runs) {
		const atEnd = first || box.scrollHeight - box.scrollTop - box.clientHeight < 60;
		const known = new Map([...shown].map(([id, { run }]) => [id, run]));
		for (const run of runs) known.set(run.runId, run);
		const sorted = [...known.values()].sort((a, b) => a.runId < b.runId ? -1 : 1);
		let together = 0, sent = list(null);
		const all = sorted.map((run, i) => {
			// Runs of one turn have one answer, which stands after the last of them.
			const next = sorted[i + 1], later = !isOpen(run.status) && next?.status === run.status && turnOf(next) === turnOf(run);
			const to = later ? "" : ++together === 1 ? "one" : known.has(turnOf(run)) ? String(together) : "several"; // older ones may be on another page
			together = later ? together + 1 : 0;
			sent.push(...list(run.deliveries));
			const out = later ? [] : sent;
			if (!later) sent = [];
			const key = JSON.stringify([run, to, out]), old = shown.get(run.runId);
			if (old?.key === key) return old;
			const node = turns(run, to, out);
			old?.node.replaceWith(node);
			const fresh = { key, node, run };
			shown.set(run.runId, fresh);
			return fresh;
		});
		const wanted = all.flatMap(({ node, run }, i) => {
			const today = day(run.acceptedAt);
			return i === 0 || day(all[i - 1].run.acceptedAt) !== today ? [today, node] : [node];
		});
		// Nodes that stay are left where they are, with the focus that may be in them.
		let at = box.firstChild;
		for (const item of wanted) {
			if (at === item || at instanceof HTMLElement && at.dataset.day === item) at = at.nextSibling;
			else box.insertBefore(typeof item === "string" ? el("div.day", { "data-day": item }, el("span", item)) : item, at);
		}
		for (let next; at; at = next) {
			next = at.nextSibling;
			at.remove();
		}
		if (!all.length) put(box, empty("There are no runs in this chat (any more)."));
		put(told, `${count(all.length, "run")}${cursor ? " shown" : ""}`);
		if (atEnd) box.scrollTop = box.scrollHeight;
		first = false;
	}

	/** A text of 16 KB at most; the whole one is fetched on demand. @param {any} run @param {"message" | "reply"} what */
	function bubble(run, what) {
		const text = run[what], whole = run[`${what}Bytes`] ?? 0;
		const node = el("div.bubble", text);
		if (whole <= bytesOf(text)) return node;
		const more = button(`Show all ${size(whole)}`, () => attempt(trouble, async () => {
			put(node, (await api.get(`runs/${run.runId}`, {}, signal))[what]);
			more.remove();
		}), { class: "small" });
		return [node, el("div.after", more)];
	}
	/** A message, and the answer to it and to those before it. @param {any} run @param {string} to how many messages the answer is for; "" if it comes later @param {any[]} out where the answer went */
	function turns(run, to, out) {
		const ended = !isOpen(run.status), good = run.status === "completed", seconds = took(run);
		const link = el("a", { href: page.link(`runs/${run.runId}`) }, `run ${shortId(run.runId)}`);
		const sent = out.map(d => d.status === "delivered" ? el("span", icon("send"), ` sent to ${d.target}`)
			: [badge(d.status), el("a", { href: page.link("deliveries", { status: d.status }) }, `to ${d.target}`)]);
		return el("div.run",
			el("article.turn.in", { "aria-label": `Message from ${run.hook}` }, el("div.who", el("b", run.hook), tag("outside"), run.name && tag(run.name), run.test && tag("test"), time(run.acceptedAt, { always: true })),
				run.message === undefined ? muted("The message is not kept.") : bubble(run, "message"), run.messageCut && muted("Cut: only the beginning was kept."),
				!ended && el("div.after", badge(run.status), run.startedAt ? el("span", "started ", since(run.startedAt)) : el("span", waits(run)),
					button("Cancel", () => askCancel(page, 1, async cancel => { await cancel(run); await load(); }), { class: "small danger", ...page.acting }), link),
				ended && !to && el("div.after", link)),
			ended && to && el("article", { class: `turn reply ${good ? "" : "bad"}`, "aria-label": "Agent" }, el("div.who", el("b", "Agent"), to !== "one" && el("span", `to ${to} messages, in one turn`), time(run.finishedAt, { always: true })),
				good ? run.reply ? bubble(run, "reply") : el("div.bubble.muted", "No answer.") : el("div.bubble", run.errorMessage || (run.cancelledBy ? `Cancelled by ${run.cancelledBy}.` : capital(statusWord(run.status)))),
				el("div.after", good ? seconds !== null && el("span", icon("check"), ` ${duration(seconds)}`) : [badge(run.status), el("span", seconds !== null && duration(seconds), run.attempts > 1 && `, ${run.attempts} attempts`)],
					sent, canRunAgain(run.status) && button("Run again", () => askAgain(page, [run], async again => { await again(run); await load(); }), { class: "small", ...page.acting }), link)));
	}
	load();
	const soon = page.later(load, 400);
	page.on("runs", event => { if (event.skipped || event.runs.some(run => run.chatId === chat)) soon(); });
	page.on("deliveries", event => { if (event.deliveries.some(d => d.chatId === chat)) soon(); });
	page.on("reset", soon);
}
