// @ts-check
// What is sent out: dead and pending deliveries first, to send again or drop.
import { ask, badge, button, choice, dialog, el, empty, errorNote, facts, head, icon, longText, muted, put, save, segment, since, spring, table, time, tr, unseen } from "./dom.js";
import { list } from "./rawjson.js";
import { capital, clock, count, duration, number, statusWord } from "./words.js";

/** @typedef {import("./main.js").Page} Page */

const columns = [
	{ head: unseen("Select"), class: "pick desk-only" }, { head: "Status", class: "a-status" }, { head: "To", class: "mono clip2 a-to" }, { head: "Hook", class: "nowrap drop" },
	{ head: "Last attempt", class: "muted a-why" }, { head: "Attempts", class: "right drop" }, { head: "When", class: "right nowrap muted a-time" }, { head: unseen("Actions"), class: "right a-do" },
];

/** @param {any} d */
const words = d => d.lastError || (d.lastStatus ? `Answered ${d.lastStatus}` : d.attempts ? "" : "Not tried yet");

/** A host as people write it. @param {string} host */
const plainHost = host => host.replace(/^https:\/\/|^http:\/\//, "").replace(/:443$|:80$/, "");

/** @param {any} d @returns {[key: string, name: string]} */
function receiver(d) {
	if (d.kind === "channel") return ["channel", d.target.split(":")[0]];
	try {
		return ["host", new URL(d.target).host];
	} catch {
		return ["host", d.target];
	}
}

/** @param {Page} page */
export async function show(page) {
	const { api, params, readOnly } = page;
	const about = await page.about();
	/** @type {Map<string, {d: any, node: HTMLTableRowElement, more?: HTMLTableRowElement}>} */
	const shown = new Map();
	/** @type {Set<string>} */
	const picked = new Set();
	/** Receivers seen so far. */
	const seen = new Map(list(about.channels).map(one => [`channel:${one.name}`, `channel ${one.name}`]));
	let cursor = "";
	const why = readOnly ? page.readOnlyWhy : null;
	const trouble = el("div"), bar = el("div"), foot = el("div", { class: "foot" }), body = el("div"), to = el("span");

	const status = () => params.get("status") ?? "";
	/** Those that can be sent again or dropped all at once. */
	const bulk = () => status() === "pending" ? "pending" : "dead";
	const filter = () => ({ status: status() || "dead,pending", host: params.get("host"), channel: params.get("channel") });
	const where = () => params.get("host") ? ` to ${plainHost(params.get("host") ?? "")}` : params.get("channel") ? ` to channel ${params.get("channel")}` : "";

	const tabs = segment("Status", [{ value: "", text: "Open" }, ...["dead", "pending"].map(value => ({ value, text: [capital(value), " ", el("span", { class: "n" })] })), { value: "delivered", text: "Delivered" }], status(), value => { page.setParams({ status: value }); tabs.press(value); load(); });
	page.on("overview", now => tabs.querySelectorAll(".n").forEach((node, i) => { node.textContent = number([now.dead, now.pending][i] ?? 0); }));

	const again = button("Send all again", () => all("POST", "deliveries/retry"), { icon: "again", class: "primary" });
	const drop = button("Drop all", () => all("DELETE", "deliveries"), { icon: "bin", class: "danger" });

	/** Asks with the number first. @param {"POST" | "DELETE"} method @param {string} path */
	async function all(method, path) {
		put(trouble);
		const which = { ...filter(), status: bulk() };
		try {
			const would = (await api.request(method, path, { params: { ...which, dry: 1 } })).data.would;
			if (!would) return void put(trouble, el("p", { class: "muted" }, `There is no ${bulk()} delivery${where()}.`));
			const what = `${count(would, `${bulk()} delivery`, `${bulk()} deliveries`)}${where()}`;
			await ask({
				...(method === "POST" ? { title: `Send ${what} again?`, yes: `Send ${number(would)} again` } : { title: `Drop ${what}?`, yes: `Drop ${number(would)}`, danger: true, text: "They are never sent, and cannot be brought back." }),
				act: async () => { await api.request(method, path, { params: which }); await load(); },
			});
		} catch (error) {
			put(trouble, errorNote(error));
		}
	}
	/** One after the other; what the server refuses is told. @param {boolean} dropped @param {string[]} ids */
	async function each(dropped, ids) {
		for (const id of ids) {
			if (dropped) await api.request("DELETE", `deliveries/${encodeURIComponent(id)}`);
			else update(await api.post(`deliveries/${encodeURIComponent(id)}/retry`));
			picked.delete(id);
			if (dropped) {
				shown.get(id)?.node.remove();
				shown.get(id)?.more?.remove();
				shown.delete(id);
			}
		}
		drawBar();
	}
	/** @param {string[]} ids */
	const askDrop = ids => ask({ title: ids.length === 1 ? "Drop this delivery?" : `Drop ${count(ids.length, "delivery", "deliveries")}?`, text: `${ids.length === 1 ? "It is" : "They are"} never sent, and cannot be brought back.`, yes: `Drop ${ids.length === 1 ? "it" : number(ids.length)}`, danger: true, act: () => each(true, ids) });
	/** @param {string[]} ids */
	const sendNow = ids => { put(trouble); return each(false, ids).catch(error => put(trouble, errorNote(error, "Not sent again"))); };

	function drawBar() {
		put(bar, picked.size > 0 && el("div", { class: "banner" }, `${number(picked.size)} selected`, spring(),
			button(`Send ${number(picked.size)} again`, () => ask({ title: `Send ${count(picked.size, "delivery", "deliveries")} again?`, yes: "Send again", act: () => each(false, [...picked]) }), { class: "small" }),
			button(`Drop ${number(picked.size)}`, () => askDrop([...picked]), { class: "small danger" }),
			button("None", () => { picked.clear(); body.querySelectorAll("input").forEach(box => { box.checked = false; }); drawBar(); }, { class: "small" })));
	}

	/** @param {any} d */
	function row(d) {
		const open = d.status !== "delivered";
		const fold = el("button", { type: "button", class: "plain", "aria-expanded": "false", "aria-label": "Attempts and details", title: "Attempts and details", click: () => unfold(d.id, fold) }, icon("log"));
		return tr(columns, [
			el("input", { type: "checkbox", "aria-label": `Select the delivery to ${d.target}`, checked: picked.has(d.id), disabled: readOnly || !open, change: (/** @type {any} */ event) => { event.target.checked ? picked.add(d.id) : picked.delete(d.id); drawBar(); } }),
			badge(d.status), el("span", { title: d.target }, plainHost(d.target)),
			el("a", { class: "name", "data-open": true, href: page.link(`runs/${encodeURIComponent(d.runId)}`) }, d.hook || "run"),
			words(d), d.attempts, d.nextAttemptAt ? since(d.nextAttemptAt) : time(d.lastAttemptAt ?? d.createdAt),
			el("span", { class: "tools" }, open && button(d.status === "dead" ? "Send again" : "Send now", () => sendNow([d.id]), { class: "small", disabled: readOnly, title: why }),
				open && button(icon("bin", "Drop"), () => askDrop([d.id]), { class: "plain", disabled: readOnly, title: why ?? "Drop" }), fold)], { "data-row": true });
	}
	/** @param {any} d */
	function update(d) {
		const old = shown.get(d.id);
		if (!old || !d.target) return;
		const node = row({ ...old.d, lastError: undefined, nextAttemptAt: undefined, lastStatus: undefined, ...d });
		old.node.replaceWith(node);
		old.more?.remove();
		shown.set(d.id, { d: { ...old.d, ...d }, node });
	}
	/** @param {string} id @param {HTMLElement} toggle */
	async function unfold(id, toggle) {
		const one = shown.get(id);
		if (!one) return;
		toggle.setAttribute("aria-expanded", String(!one.more));
		if (one.more) {
			one.more.remove();
			one.more = undefined;
			return;
		}
		const cell = el("td", { colspan: columns.length, class: "line" }, muted("Loading …"));
		one.node.after(one.more = el("tr", { class: "fold" }, cell));
		try {
			const d = await api.get(`deliveries/${encodeURIComponent(id)}`, {}, page.signal);
			const tries = [{ head: "When" }, { head: "Took", class: "right" }, { head: "Outcome" }];
			put(cell, el("div", { class: "stack" },
				facts([["To", d.target], ["Chat", d.chatId], ["Run", `${d.runId}, ${statusWord(d.runStatus)}`], ["Made", time(d.createdAt)]]),
				list(d.history).length > 0 && table({ caption: "Attempts", class: "tight", columns: tries, rows: list(d.history).map(at => tr(tries, [time(at.at), duration(at.seconds), at.error || (at.status ? `Answered ${at.status}` : "")])) }),
				d.lastAnswer && [el("h3", null, "Last answer"), longText(d.lastAnswer, { label: "Last answer" })],
				d.body && [el("h3", null, "What is sent"), longText(d.body, { label: "What is sent" })]));
		} catch (error) {
			if (!page.signal.aborted) put(cell, errorNote(error));
		}
	}

	let turn = 0;
	/** @param {boolean} [older] */
	async function load(older) {
		const mine = ++turn;
		if (!older) {
			cursor = "";
			picked.clear();
			drawBar();
		}
		again.disabled = drop.disabled = readOnly || status() === "delivered";
		again.title = drop.title = why ?? "";
		try {
			const found = await api.get("deliveries", { ...filter(), limit: 50, cursor }, page.signal);
			if (mine !== turn) return;
			cursor = found.cursor ?? "";
			if (!older) shown.clear();
			for (const d of list(found.deliveries)) shown.set(d.id, { d, node: row(d) });
			draw(list(found.paused));
		} catch (error) {
			if (!page.signal.aborted) put(trouble, errorNote(error));
		}
	}
	/** @type {any[]} */
	let alone = [];
	/** @param {any[]} paused hosts and channels that are left alone */
	function draw(paused) {
		if (paused.length) alone = paused;
		for (const { d } of shown.values()) {
			const [key, name] = receiver(d);
			seen.set(`${key}:${name}`, key === "host" ? name : `channel ${name}`);
		}
		const host = params.get("host"), channel = params.get("channel");
		put(to, choice("To", [["", "All hosts and channels"], ...seen], host ? `host:${host}` : channel ? `channel:${channel}` : "", value => {
			const [key, name] = value.split(/:(.*)/s);
			page.setParams({ host: key === "host" ? name : null, channel: key === "channel" ? name : null });
			load();
		}));
		put(body, shown.size ? table({ caption: "Deliveries", class: "cards out-cards", columns, rows: [...shown.values()].map(one => one.node) })
			: empty(status() || where() ? `There is no ${status() || "open"} delivery${where()}.` : "Nothing waits to be sent out.", !status() && !where() && "Replies go out to callback URLs and channels; those that could not be sent are listed here."));
		put(foot, el("span", null, alone.map(one => `${one.host ? plainHost(one.host) : `Channel ${one.channel}`} is left alone until ${clock(one.until, { short: true })}. `)), spring(),
			cursor && button("Older", () => load(true), { class: "small" }));
		foot.hidden = !alone.length && !cursor;
	}

	put(page.main, head("Deliveries", exportButton(page, () => ({ of: "deliveries", ...filter() })), drop, again), trouble,
		el("div", { class: "filters" }, tabs, to), el("section", { class: "panel", "aria-label": "Deliveries" }, bar, body, foot));
	await load();
	page.on("reset", () => { if (!picked.size && !page.live.paused) load(); });
	page.on("deliveries", event => {
		let fresh = event.skipped > 0;
		for (const d of list(event.deliveries)) {
			if (shown.has(d.id)) update(d);
			else fresh ||= filter().status.includes(d.status);
		}
		const busy = picked.size || body.querySelector(".fold") || scrollY > 200;
		if (fresh && busy) put(bar, picked.size ? [...bar.childNodes] : el("div", { class: "banner" }, "There are newer deliveries.", button("Show them", () => { put(bar); load(); }, { class: "linky" })));
		else if (fresh) load();
	});
}

/** Saves what a filter selects as a file. @param {Page} page @param {() => import("./api.js").Params} filter @param {import("./dom.js").Attributes} [attributes] */
export function exportButton(page, filter, attributes) {
	return button([icon("down"), "Export"], () => {
		const trouble = el("div");
		const take = (/** @type {string} */ type, /** @type {string} */ end) => async () => {
			try {
				const what = filter();
				put(trouble, muted("Fetching …"));
				save(await page.api.file("export", what, type), `${what.of}.${end}`);
				box.close();
			} catch (error) {
				put(trouble, errorNote(error));
			}
		};
		const box = dialog("Export", [el("p", null, "All that the filter selects, not only what is shown."), trouble,
			el("div", { class: "acts" }, button("Cancel", () => box.close()), button("CSV", take("text/csv", "csv")), button("JSON lines", take("application/x-ndjson", "jsonl"), { class: "primary" }))]);
	}, attributes);
}
