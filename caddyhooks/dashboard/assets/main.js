// @ts-check
// The frame around the pages: routes, instance, keys, theme, and whether the page is live.
import { Live, makeApi } from "./api.js";
import { ask, button, checkbox, dialog, el, empty, errorNote, icon, pointerUp, put, redraw, reveal, segment, tick } from "./dom.js";
import { banner, isPaused, lookAtPauses } from "./pauses.js";
import { capital, number, setClock, useUTC, usesUTC, visible } from "./words.js";

/** @type {Record<string, () => Promise<{show: (page: Page) => unknown}>>} */
const pages = {
	overview: () => import("./overview.js"), runs: () => import("./runs.js"), run: () => import("./run.js"), chats: () => import("./chats.js"),
	deliveries: () => import("./deliveries.js"), settings: () => import("./settings.js"), hook: () => import("./hook.js"), changes: () => import("./changes.js"),
	cost: () => import("./cost.js"),
};

const root = document.documentElement;
/** @param {string} selector @param {ParentNode} [where] */
const find = (selector, where = document) => /** @type {HTMLElement} */ (where.querySelector(selector));
const main = find("#main"), said = find("#said"), state = find(".state"), instances = /** @type {HTMLSelectElement} */ (find(".instance"));

/** What the person chose, kept in the browser where that is allowed. @param {string} name @param {string} [value] to keep */
function pref(name, value) {
	try {
		if (value !== undefined) localStorage.setItem(`hooks-dashboard-${name}`, value);
		return localStorage.getItem(`hooks-dashboard-${name}`) ?? "";
	} catch {
		return value ?? "";
	}
}
let keysOn = pref("keys") !== "off";
useUTC(pref("zone") === "utc");
const wear = (theme = "") => {
	if (theme) root.dataset.theme = theme;
	else delete root.dataset.theme;
	pref("theme", theme);
};
wear(pref("theme"));

const readOnlyWhy = "You may look here, but change nothing.";
/** @type {any} */
let me = { instances: ["default"], readOnly: false };
let api = makeApi("default");
const live = new Live(api);
/** @type {AbortController | undefined} */
let shown;
let here = "";
/** Whether leaving the page would lose something. */
let dirty = () => false;
/** Whether the page could not be shown. */
let broken = false;
/** Where the pages were scrolled to, by their address. @type {Map<string, number>} */
const scrolled = new Map();

function parse(hash = "") {
	const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
	const params = new URLSearchParams(query);
	// A name of dots alone is none of an instance, and would lead out of the address of the API.
	const instance = (params.get("instance") ?? "").replace(/^\.+$/, "");
	params.delete("instance");
	return { path: path.split("/").filter(Boolean).map(decode), params, instance };
}
function decode(text = "") {
	try {
		return decodeURIComponent(text);
	} catch {
		return text;
	}
}

/** @param {string} path @param {Record<string, string | null | undefined> | URLSearchParams} [params] */
function link(path, params = {}) {
	const query = new URLSearchParams();
	for (const [name, value] of params instanceof URLSearchParams ? params : Object.entries(params)) if (value) query.set(name, value);
	if (api.instance !== home()) query.set("instance", api.instance);
	const text = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
	return `#/${path}${text && "?"}${text}`;
}
const home = () => me.instances?.includes("default") ? "default" : me.instances?.[0] ?? "default";

/** The module for a path. @param {string[]} path */
function route([first = "overview", second = "", ...rest]) {
	if (first === "runs" && second && second !== "refused") return { name: "run", current: "runs", path: [second] };
	if (first === "settings" && second === "hooks") return { name: "hook", current: "settings", path: rest };
	return { name: first, current: first, path: second ? [second, ...rest] : [] };
}

const titleOf = (page = "") => page === "settings" ? "Webhooks" : capital(page);

/** @param {AbortSignal} signal @returns {Scope} */
const scope = signal => ({
	signal,
	on: (event, listener) => signal.addEventListener("abort", live.on(event, data => pointerUp().then(() => signal.aborted || listener(data)))),
	every: (wait, act) => {
		const timer = setInterval(() => pointerUp().then(() => signal.aborted || act()), wait);
		signal.addEventListener("abort", () => clearInterval(timer));
	},
	later: (act, wait, anew = false) => {
		let timer = 0;
		return () => {
			if (anew) clearTimeout(timer);
			else if (timer) return;
			timer = setTimeout(() => {
				timer = 0;
				pointerUp().then(() => signal.aborted || act());
			}, wait);
		};
	},
});

async function show() {
	const { path, params, instance } = parse(location.hash);
	const { name, current, path: parts } = route(path);
	scrolled.set(here, scrollY);
	const first = !here;
	here = location.hash;
	shown?.abort();
	dirty = () => false;
	broken = false;
	const own = shown = new AbortController();
	if ((instance || home()) !== api.instance) {
		api = makeApi(instance || home());
		live.use(api);
		instances.value = api.instance;
		lookAtPauses(api);
	}
	for (const a of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("a[data-page]"))) {
		const page = a.getAttribute("data-page") ?? "";
		if (page === current) {
			a.setAttribute("aria-current", "page");
			reveal(/** @type {HTMLElement} */ (a.parentElement), a);
		} else a.removeAttribute("aria-current");
		a.setAttribute("href", link(page));
	}
	const title = (text = "") => { document.title = `${visible(text)} · hooks${api.instance === home() ? "" : ` · ${api.instance}`}`; };
	// A page draws into a container of its own, so that one that is slow cannot draw over the next.
	const room = el("div.page", { "aria-busy": "true" });
	put(main, banner, room);
	if (!first) main.focus({ preventScroll: true });
	scrollTo(0, 0);
	const load = Object.hasOwn(pages, name) && pages[name];
	if (!load) {
		title("Not found");
		put(room, empty("There is no such page.", el("a", { href: link("overview") }, "Overview")));
		return;
	}
	title(titleOf(name));
	/** @type {Page} */
	const page = {
		...scope(own.signal), main: room, path: parts, params, api, live, me, title, link,
		readOnly: Boolean(me.readOnly), readOnlyWhy: me.readOnly ? readOnlyWhy : "", acting: me.readOnly ? { disabled: true, title: readOnlyWhy } : {},
		about: () => api.get("about"),
		go: (to, query) => { location.hash = link(to, query); },
		setParams: (change, { push = false } = {}) => {
			if (own.signal.aborted) return;
			for (const [key, value] of Object.entries(change)) value ? params.set(key, value) : params.delete(key);
			here = link(path.map(encodeURIComponent).join("/"), params);
			history[push ? "pushState" : "replaceState"](null, "", here);
		},
		guard: check => { dirty = check; },
		say,
		part: () => {
			const part = new AbortController();
			own.signal.addEventListener("abort", () => part.abort());
			return { ...page, ...scope(part.signal), end: () => part.abort() };
		},
	};
	try {
		const module = await load();
		if (own.signal.aborted) return;
		await module.show(page);
		if (!own.signal.aborted) scrollTo(0, scrolled.get(here) ?? 0);
	} catch (error) {
		if (own.signal.aborted) return;
		broken = true;
		// After an upgrade the modules of the old page are gone.
		const stale = error instanceof TypeError && /module/i.test(error.message);
		room.prepend(stale ? errorNote("This page could not be fetched: the server is unreachable, or it was upgraded. Reload the page.") : errorNote(error));
	} finally {
		room.removeAttribute("aria-busy");
	}
}

// One live region for everything; the last thing said wins, so that a busy server does not talk without end.
let spoken = 0, speaking = 0;
function say(text = "") {
	clearTimeout(speaking);
	speaking = setTimeout(() => {
		spoken = Date.now();
		said.textContent = text;
	}, Math.max(0, spoken + 10e3 - Date.now()));
}

/** @type {Record<LiveState, [word: string, dot: string]>} */
const states = { live: ["Live", "ok"], stalled: ["Store unreachable", "bad"], connecting: ["Connecting…", "wait"], paused: ["Paused", "late"], hidden: ["Resting", "wait"], lost: ["Not live", "bad"] };

function drawState() {
	const [word, dot] = states[live.state];
	redraw(state,
		button([el("span", { class: `dot ${dot}` }), word], () => setPaused(!live.paused), { class: "plain live", title: live.trouble || (live.paused ? "Go on (.)" : "Pause (.)"), "aria-label": `${word}. ${live.paused ? "Go on" : "Pause"}` }),
		live.trouble && el("span.why", live.trouble),
		el("span.who", { title: me.readOnly && readOnlyWhy }, icon(me.readOnly ? "lock" : "user"), el("span", me.user ?? "")),
		button([icon("moon"), el("span.wide", "Theme")], flipTheme, { class: "plain", "aria-label": "Theme: light or dark" }),
		button([el("kbd.wide", "?"), el("span.thin", "?"), el("span.wide", "Keys")], help, { class: "plain", "aria-label": "Keys and preferences" }));
}

function setPaused(on = false) {
	live.pause(on);
	say(on ? "Paused" : "Live");
}

const flipTheme = () => wear((root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark" ? "light" : "dark");

/** Beside the name of a page. @param {"open" | "dead"} kind @param {number} n */
const counter = (kind, n) => { find(`[data-count=${kind}]`).textContent = n ? `${number(n)} ${kind}` : ""; };

function help() {
	if (document.querySelector("dialog[open]")) return;
	const keys = [...Object.entries(goTo).map(([key, page]) => [`g ${key}`, titleOf(page)]), ["j k", "next and previous row"], ["Enter", "open the row"], ["x", "select the row"], ["/", "search"], [".", "pause, or go on"], ["?", "this list"], ["Esc", "close, or leave a field"]];
	const own = checkbox("Single-letter keys work", { checked: keysOn, change: () => { keysOn = own.box.checked; pref("keys", keysOn ? "on" : "off"); } });
	const zone = segment("Times", [["local", "Local"], ["utc", "UTC"]], usesUTC() ? "utc" : "local", value => {
		zone.press(value);
		useUTC(value === "utc");
		pref("zone", value);
		if (!dirty()) show();
	});
	const theme = segment("Theme", [["", "System"], ["light", "Light"], ["dark", "Dark"]], root.dataset.theme ?? "", value => {
		theme.press(value);
		wear(value);
	});
	const node = dialog("Keys and preferences", [
		el("dl.keys", keys.map(([key, what]) => [el("dt", key.split(" ").map(k => [el("kbd", k), " "])), el("dd", what)])),
		own, el("div.prefs", el("span.label", "Times"), zone, el("span.label", "Theme"), theme),
		el("div.acts", button("Close", () => node.close(), { class: "primary" })),
	]);
}

// Rows of any page: tables and lists mark them with data-row, and their link with data-open.
function move(step = 0) {
	const rows = [...main.querySelectorAll("[data-row]")], at = rows.findIndex(row => row.classList.contains("here"));
	const row = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + step))];
	if (!row) return;
	find("[data-open]", row)?.focus();
	row.scrollIntoView({ block: "nearest" });
}
main.addEventListener("focusin", event => {
	const row = event.target instanceof Element ? event.target.closest("[data-row]") : null;
	for (const old of main.querySelectorAll(".here")) if (old !== row) old.classList.remove("here");
	row?.classList.add("here");
});
// A click anywhere in a row opens it, unless it was meant for something inside or to mark text.
main.addEventListener("click", event => {
	if (!(event.target instanceof Element) || event.target.closest("a, button, input, select, label, summary") || String(getSelection())) return;
	const open = event.target.closest("[data-row]")?.querySelector("[data-open]");
	if (open instanceof HTMLAnchorElement) event.ctrlKey || event.metaKey ? window.open(open.href) : open.click();
});

let afterG = 0;
/** @type {Record<string, string>} */
const goTo = { o: "overview", r: "runs", h: "chats", d: "deliveries", m: "cost", w: "settings", c: "changes" };
addEventListener("keydown", event => {
	const target = event.target instanceof HTMLElement ? event.target : main;
	const typing = target.matches("input:not([type=checkbox], [type=radio]), textarea, select");
	if (event.key === "Escape" && !target.closest("dialog")) {
		target.blur();
		main.querySelector(".here")?.classList.remove("here");
	}
	if (!keysOn || typing || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
	const jump = Date.now() - afterG < 1500 && goTo[event.key];
	afterG = 0;
	if (jump) location.hash = link(jump);
	else if (event.key === "g") afterG = Date.now();
	else if (event.key === "j") move(1);
	else if (event.key === "k") move(-1);
	else if (event.key === "x") find("[data-row].here input[type=checkbox]", main)?.click();
	else if (event.key === "/") find("input[type=search]", main)?.focus();
	else if (event.key === ".") setPaused(!live.paused);
	else if (event.key === "?") help();
	else return;
	event.preventDefault();
});

find("[data-skip]").addEventListener("click", event => {
	event.preventDefault();
	main.focus();
});
instances.addEventListener("change", () => {
	location.hash = `#/${parse(here).path[0] ?? "overview"}${instances.value === home() ? "" : `?instance=${encodeURIComponent(instances.value)}`}`;
});
addEventListener("hashchange", async () => {
	const to = location.hash;
	if (to === here) return;
	for (const open of document.querySelectorAll("dialog")) open.close(); // it asks about the page that is left
	if (dirty()) {
		history.replaceState(null, "", here);
		if (!await ask({ title: "Leave without saving?", text: "What you changed on this page is not saved.", yes: "Leave", no: "Stay", danger: true, act: () => {} })) {
			instances.value = api.instance;
			return;
		}
		dirty = () => false;
		history.replaceState(null, "", to);
	}
	show();
});
addEventListener("beforeunload", event => { if (dirty()) event.preventDefault(); });
live.on("state", () => drawState());
live.on("reset", () => {
	if (broken) show();
	lookAtPauses();
});
live.on("settings", () => lookAtPauses());
setInterval(() => { if (isPaused() && !document.hidden && !live.paused) lookAtPauses(); }, 10e3);
live.on("hello", hello => setClock(hello.now));
live.on("overview", now => {
	if (now.storeUnreachable) return;
	counter("open", now.running + now.queued);
	counter("dead", now.dead);
});
setInterval(() => { if (!document.hidden) tick(main); }, 1000);

async function start() {
	drawState();
	try {
		me = await api.get("me");
	} catch (error) {
		put(main, errorNote(error), empty("This page could not be opened.", button("Try again", start)));
		return;
	}
	const names = me.instances?.length ? me.instances : ["default"];
	put(instances, names.map((name = "") => el("option", { value: name }, name)));
	instances.hidden = names.length < 2;
	drawState();
	lookAtPauses(api, me.readOnly ? { disabled: true, title: readOnlyWhy } : {});
	show();
}
start();
