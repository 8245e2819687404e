// @ts-check
// What is sent out: dead and pending deliveries first, to send again or drop.
import { ask, attempt, badge, button, choice, el, empty, exportButton, facts, head, icon, longText, muted, note, put, segment, since, spring, table, time, tr, unseen } from "./dom.js";
import { askBulk, watch } from "./bulk.js";
import { list } from "./rawjson.js";
import { askRepeat, repeated } from "./run.js";
import { capital, clock, count, duration, number, statusWord } from "./words.js";

const columns = [
	[unseen("Select"), "pick drop"], ["Status", "a-status"], ["To", "mono clip2 a-to"], ["Hook", "nowrap drop"],
	["Last attempt", "muted a-why"], ["Attempts", "right drop"], ["When", "right nowrap muted a-time"], [unseen("Actions"), "right a-do"],
];
const triesColumns = [["When"], ["Took", "right"], ["Outcome"]];

/** A host as people write it. */
const plain = (target = "") => target.replace(/^https?:\/\//, "").replace(/:(443|80)$/, "");
const many = (n = 0, kind = "") => count(n, `${kind}delivery`, `${kind}deliveries`);
const forGood = "A dropped delivery is never sent, and cannot be restored.";

/** @param {Page} page */
export async function show(page) {
	const { api, params, readOnly, signal } = page;
	/** Rows, and what is folded out below them. @type {Map<string, {d: any, node: HTMLElement, more?: HTMLElement}>} */
	const shown = new Map();
	/** @type {Set<string>} */
	const picked = new Set();
	/** Receivers seen so far. @type {Map<string, string>} */
	const seen = new Map(list((await page.about()).channels).map(one => [`channel:${one.name}`, `channel ${one.name}`]));
	/** Hosts and channels that get nothing for a while. @type {any[]} */
	let alone = [];
	let cursor = "", turn = 0;
	const trouble = el("div"), bar = el("div"), foot = el("div.foot"), body = el("div"), to = el("span");

	const status = () => params.get("status") ?? "";
	/** Those that can be sent again or dropped all at once. */
	const bulk = () => status() === "pending" ? "pending" : "dead";
	const filter = () => ({ status: status() || "dead,pending", host: params.get("host"), channel: params.get("channel") });
	const where = () => params.get("host") ? ` to ${plain(params.get("host") ?? "")}` : params.get("channel") ? ` to channel ${params.get("channel")}` : "";
	const one = (id = "") => `deliveries/${encodeURIComponent(id)}`;

	const tabs = segment("Status", ["", "dead", "pending", "delivered"].map(value => [value, [capital(value || "open"), " ", el("span.n")]]), status(), value => { page.setParams({ status: value }); tabs.press(value); load(); });
	const drawCounts = (/** @type {Record<string, number>} */ now) => tabs.querySelectorAll(".n").forEach((node, i) => { if (i === 1 || i === 2) node.textContent = number(i === 1 ? now.dead : now.pending); });
	page.on("overview", now => now.storeUnreachable || drawCounts(now));
	/** Says what was done, and looks what is left. @param {number} n @param {"sent again" | "dropped"} word */
	async function done(n, word) {
		put(trouble, note("ok", `${number(n)} ${word}.`));
		await load();
		await api.get("overview", {}, signal).then(({ figures }) => drawCounts(figures), () => {});
	}

	const going = watch(page, "delivery", () => load());
	const all = (/** @type {"retry" | "drop"} */ verb) => askBulk(page, trouble, verb, { ...filter(), status: bulk() }, going.look);
	const againWords = el("span"), dropWords = el("span");
	const again = button(againWords, () => all("retry"), { icon: "again", class: "primary" }), drop = button(dropWords, () => all("drop"), { icon: "bin", class: "danger" });

	const sendAgain = async (ids = [""], unsent = "?unsent=1") => {
		for (const id of ids) {
			update(await api.post(`${one(id)}/retry${unsent}`));
			picked.delete(id);
		}
		if (ids.length > 1) return done(ids.length, "sent again");
		drawBar();
	};
	const askDrop = (ids = [""]) => ask({
		title: `Drop ${many(ids.length)}?`, text: forGood, yes: `Drop ${number(ids.length)}`, danger: true, act: async () => {
			for (const id of ids) {
				await api.request("DELETE", one(id));
				picked.delete(id);
			}
			await done(ids.length, "dropped");
		},
	});
	function drawBar() {
		const n = picked.size, ids = [...picked];
		put(bar, n > 0 && el("div.banner", `${number(n)} selected`, spring(),
			button(`Send ${number(n)} again`, () => ask({ title: `Send ${many(n)} again?`, yes: "Send again", act: () => sendAgain(ids) }), { class: "small" }),
			button(`Drop ${number(n)}`, () => askDrop(ids), { class: "small danger" }),
			button("Clear", () => { picked.clear(); for (const box of body.querySelectorAll("input")) box.checked = false; drawBar(); }, { class: "small" })));
	}

	function row(/** @type {any} */ d) {
		const open = d.status !== "delivered";
		const box = el("input", { type: "checkbox", "aria-label": `Select the delivery to ${d.target}`, checked: picked.has(d.id), disabled: readOnly || !open, change: () => { box.checked ? picked.add(d.id) : picked.delete(d.id); drawBar(); } });
		const fold = button(icon("log", "Attempts and details"), () => unfold(d.id, fold), { class: "plain", "aria-expanded": "false", title: "Attempts and details" });
		return tr(columns, [box, badge(d.status), el("span", { title: d.target }, d.target), el("a.name", { "data-open": true, href: page.link(`runs/${d.runId}`) }, d.hook || "run"),
			[d.lastError || (d.lastStatus ? `Answered ${d.lastStatus}` : !d.attempts && "Not tried yet"), repeated(d), d.waitsFor && el("div.small", `Waits for ${d.waitsFor}`)], d.attempts,
			d.status !== "pending" ? time(d.lastAttemptAt ?? d.createdAt) : d.nextAttemptAt ? [el("span.desktop-only", "next "), since(d.nextAttemptAt, true)] : !d.waitsFor && "due now",
			el("span.tools",
				button(d.status === "pending" ? "Send now" : "Send again", () => { put(trouble); open ? attempt(trouble, () => sendAgain([d.id]), "Not sent again") : askRepeat(d, () => sendAgain([d.id], "")); }, { class: "small", ...page.acting }),
				open && button(icon("bin", "Drop"), () => askDrop([d.id]), { class: "plain", title: "Drop", ...page.acting }), fold)], { "data-row": true });
	}
	function update(/** @type {any} */ d) {
		const old = shown.get(d.id);
		if (!old) return;
		const node = row(d), used = old.node.contains(document.activeElement);
		old.node.replaceWith(node);
		shown.set(d.id, { d, node, more: old.more });
		if (old.more) node.querySelector("[aria-expanded]")?.setAttribute("aria-expanded", "true");
		if (used) node.querySelector("button")?.focus();
	}
	async function unfold(id = "", toggle = el("button")) {
		const line = shown.get(id);
		if (!line) return;
		toggle.setAttribute("aria-expanded", String(!line.more));
		if (line.more) {
			line.more.remove();
			line.more = undefined;
			return;
		}
		const cell = el("td", { colspan: columns.length, class: "line" }, muted("Loading …"));
		line.node.after(line.more = el("tr.fold", cell));
		await attempt(cell, async () => {
			const d = await api.get(one(id), {}, signal), tries = list(d.history);
			put(cell, el("div.stack",
				facts([["To", d.target], ["Chat", d.chatId], ["Run", `${d.runId}, ${statusWord(d.runStatus)}`], ["Created", time(d.createdAt)]]),
				tries.length > 0 && table({ caption: "Attempts", class: "tight", columns: triesColumns, rows: tries.map(at => tr(triesColumns, [time(at.at), duration(at.seconds), at.error || `Answered ${at.status}`])) }),
				[["Last answer", d.lastAnswer], ["What is sent", d.body]].map(([label, text]) => text && [el("h3", label), longText(text, label)])));
		});
	}

	async function load(older = false) {
		const mine = ++turn;
		if (!older) picked.clear();
		drawBar();
		again.disabled = drop.disabled = readOnly || status() === "delivered";
		again.title = drop.title = page.readOnlyWhy;
		put(againWords, bulk() === "dead" ? "Send all dead again" : "Send all pending now");
		put(dropWords, `Drop all ${bulk()}`);
		await attempt(trouble, async () => {
			const found = await api.get("deliveries", { ...filter(), limit: 50, cursor: older ? cursor : "" }, signal);
			if (mine !== turn) return;
			cursor = found.cursor ?? "";
			if (!older) {
				shown.clear();
				alone = list(found.paused);
			}
			for (const d of list(found.deliveries)) shown.set(d.id, { d, node: row(d) });
			draw();
		});
	}
	function draw() {
		const { host, channel } = filter();
		const see = (name = "", isChannel = false) => seen.set(isChannel ? `channel:${name}` : `host:${name}`, isChannel ? `channel ${name}` : plain(name));
		for (const { d } of shown.values()) see(d.kind === "channel" ? d.target.split(":")[0] : plain(d.target).split("/")[0], d.kind === "channel");
		if (host || channel) see(host || channel || "", !host);
		put(to, choice("To", [["", "All hosts and channels"], ...seen], host ? `host:${host}` : channel ? `channel:${channel}` : "", value => {
			const [key, name] = value.split(/:(.*)/s);
			page.setParams({ host: key === "host" ? name : null, channel: key === "channel" ? name : null });
			load();
		}));
		put(body, shown.size ? table({ caption: "Deliveries", class: "cards out-cards", columns, rows: [...shown.values()].flatMap(line => [line.node, line.more]) })
			: empty(status() || where() ? `There is no ${status() || "open"} delivery${where()}.` : "No delivery is waiting.", "Answers go to callbacks and channels. Deliveries that have not arrived are listed here."));
		put(foot, el("span", alone.map(each => `${each.host ? plain(each.host) : `Channel ${each.channel}`} is paused until ${clock(each.until, { short: true })}. `)), spring(), cursor && button("Older", () => load(true), { class: "small" }));
		foot.hidden = !alone.length && !cursor;
	}

	put(page.main, head("Deliveries", exportButton(api, "deliveries", filter), drop, again), trouble, going, el("div.filters", tabs, to), el("section.panel", { "aria-label": "Deliveries" }, bar, body, foot));
	await load();
	/** New rows wait while somebody is at work with those that are there. */
	const fresh = () => {
		if (picked.size) return;
		if (body.querySelector(".fold") || scrollY > 200) put(bar, el("div.banner", "There are newer deliveries.", button("Show them", () => load(), { class: "linky" })));
		else load();
	};
	page.on("reset", fresh);
	page.on("deliveries", event => {
		const rows = event.deliveries;
		rows.forEach(update);
		if (event.skipped || rows.some(d => !shown.has(d.id) && filter().status.includes(d.status))) fresh();
	});
}
