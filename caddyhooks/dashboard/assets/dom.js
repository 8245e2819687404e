// @ts-check
// The only module that makes elements. Text always becomes a text node, so nothing from outside is ever read as markup.
import { ago, bytesOf, clock, otherClock, size, statusIcon, statusWord, visible } from "./words.js";

const icons = new URL("icons.svg", import.meta.url).href;

// What is drawn anew while somebody presses on it loses the click. So whatever comes by itself waits until the pointer is up; not
// for long, since a pointer may come up elsewhere.
/** @type {Promise<void>} */
let up = Promise.resolve();
addEventListener("pointerdown", () => {
	up = new Promise(resolve => {
		addEventListener("pointerup", () => setTimeout(resolve), { once: true, capture: true });
		setTimeout(resolve, 1000);
	});
}, true);
export const pointerUp = () => up;

/** @param {Element} node @param {Attributes} attributes */
function dress(node, attributes) {
	for (const [name, value] of Object.entries(attributes)) {
		if (typeof value === "function") node.addEventListener(name, value);
		else if (name === "value" || name === "checked" || name === "indeterminate") Reflect.set(node, name, value);
		else if (value === true) node.setAttribute(name, "");
		else if (value !== false && value != null) node.setAttribute(name, /^(title|aria-)/.test(name) ? visible(String(value)) : String(value));
	}
}

/** @param {Child[]} children @returns {(Node | string)[]} */
const nodes = children => children.flat(9).filter(child => child != null && typeof child !== "boolean").map(child => child instanceof Node ? child : visible(String(child)));

/**
 * Makes an element: el("a.name", {href, click: fn}, "text", node, [more]), with its classes in its name.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K | `${K}.${string}`} name @param {any} [first] attributes, or a child @param {...Child} more @returns {HTMLElementTagNameMap[K]}
 */
export function el(name, first, ...more) {
	const [kind, ...classes] = name.split("."), attributes = first?.constructor === Object;
	const node = /** @type {HTMLElementTagNameMap[K]} */ (document.createElement(kind));
	node.append(...nodes(attributes ? more : [first, ...more])); // before the attributes: a select takes its value from its options
	if (classes.length) node.className = classes.join(" ");
	if (attributes) dress(node, first);
	return node;
}

/** @template {keyof SVGElementTagNameMap} K @param {K} name @param {Attributes} attributes @param {...Child} children @returns {SVGElementTagNameMap[K]} */
export function svg(name, attributes, ...children) {
	const node = document.createElementNS("http://www.w3.org/2000/svg", name);
	dress(node, attributes);
	node.append(...nodes(children));
	return node;
}

/** Replaces what is inside of parent. @template {Element} E @param {E} parent @param {...Child} children @returns {E} */
export function put(parent, ...children) {
	parent.replaceChildren(...nodes(children));
	return parent;
}

/** As put, for what is drawn anew while somebody uses it: the focus stays where it was. @param {Element} parent @param {...Child} children */
export function redraw(parent, ...children) {
	const reachable = () => /** @type {HTMLElement[]} */ ([...parent.querySelectorAll("a, button, input, select, summary, [tabindex]")]);
	const active = document.activeElement, at = reachable().findIndex(node => node === active);
	put(parent, ...children);
	if (at < 0) return;
	const fresh = reachable(), href = active?.getAttribute("href");
	(fresh.find(node => node === active || (href && node.getAttribute("href") === href)) ?? fresh[at])?.focus({ preventScroll: true });
}

/** @param {string} name a symbol of icons.svg @param {string} [label] for an icon that stands alone */
export const icon = (name, label) => svg("svg", label ? { class: "icon", role: "img", "aria-label": label } : { class: "icon", "aria-hidden": "true" }, svg("use", { href: `${icons}#${name}` }));

/** A status as a shape, a word and a colour. @param {string} status @param {string} [text] instead of the usual word */
export const badge = (status, text) => el("span", { class: `status ${status}` }, icon(statusIcon(status)), text ?? statusWord(status));

/** @param {string} name @returns {(...text: Child[]) => HTMLElement} */
const span = name => (...text) => el("span", { class: name }, text);
export const tag = span("tag"), mono = span("mono"), muted = span("muted small"), spring = span("spring");
/** An IP address breaks nowhere. */
export const address = span("mono nowrap");
/** For screen readers only. */
export const unseen = span("sr");

/** @param {Child} text @param {(event: MouseEvent) => unknown} click @param {Attributes & {icon?: string}} [attributes] */
export const button = (text, click, { icon: name, ...attributes } = {}) => el("button", { type: "button", click, ...attributes }, name && icon(name), text);

/** A time in the chosen zone, with the other one on hover. @param {string | undefined | null} iso @param {Parameters<typeof clock>[1]} [how] */
export const time = (iso, how) => iso ? el("time", { datetime: iso, title: otherClock(iso) }, clock(iso, how)) : null;

/** "4 s ago", kept right by the frame. @param {string | undefined | null} iso @param {boolean} [due] a time to come, which does not pass */
export const since = (iso, due) => iso ? el("time", { datetime: iso, title: `${clock(iso)} · ${otherClock(iso)}`, class: due ? "ago due" : "ago" }, ago(iso, due)) : null;

/** Brings every "4 s ago" below root up to date. @param {ParentNode} root */
export function tick(root) {
	for (const node of root.querySelectorAll("time.ago")) {
		const text = ago(node.getAttribute("datetime") ?? "", node.classList.contains("due"));
		if (node.textContent !== text) node.textContent = text;
	}
}

/** A button that copies. @param {string | (() => string)} text @param {string} [label] @param {Attributes & {bare?: boolean}} [attributes] bare: an icon alone */
export function copyButton(text, label = "Copy", { bare, ...attributes } = {}) {
	const word = el("span", { class: bare ? "sr" : false }, label);
	const node = button([icon("copy"), word], async () => {
		let said = "Copied";
		try {
			await copy(typeof text === "string" ? text : text());
		} catch (error) {
			said = `Not copied: ${messageOf(error)}`;
		}
		word.textContent = said;
		node.classList.add("said");
		setTimeout(() => { word.textContent = label; node.classList.remove("said"); }, 2000);
	}, { class: "plain", title: bare ? label : undefined, ...attributes });
	return node;
}

/** Copies also where the clipboard's interface is missing: on plain HTTP. */
async function copy(text = "") {
	if (navigator.clipboard) return navigator.clipboard.writeText(text);
	const area = el("textarea.sr", { value: text, "aria-hidden": "true" });
	(document.querySelector("dialog[open]") ?? document.body).append(area);
	area.select();
	const done = document.execCommand("copy");
	area.remove();
	if (!done) throw new Error("the browser refused");
}

/** @param {unknown} error */
export const messageOf = error => error instanceof Error ? error.message : String(error);

/** A note that stays on the page until it is closed or replaced. @param {"bad" | "late" | "ok"} kind @param {Child} text @param {Child} [more] */
export function note(kind, text, more) {
	/** @type {HTMLElement} */
	const node = el("div", { class: `note ${kind}`, role: kind === "ok" ? "status" : "alert" },
		icon(kind === "ok" ? "check" : "warn"), el("div", text, more && el("div.small", more)), spring(),
		button(icon("x", "Close"), () => node.remove(), { class: "plain" }));
	return node;
}

/** The server's sentence about what it refused. @param {unknown} error @param {string} [doing] what was tried: "The run was not cancelled" */
export const errorNote = (error, doing) => note("bad", doing ? el("b", doing, ": ") : null, messageOf(error));

/**
 * Does something, and shows in place what went wrong, unless nobody waits for it any more. 
 * What could not be fetched is forgotten once it can.
 * @param {Element} place @param {() => unknown} act @param {string} [doing] as above
 */
export async function attempt(place, act, doing) {
	try {
		await act();
		place.querySelector(":scope > .unfetched")?.remove();
	} catch (error) {
		if (error instanceof DOMException && error.name === "AbortError") return;
		const told = errorNote(error, doing);
		told.classList.toggle("unfetched", !doing);
		put(place, told);
	}
}

/** A table of rows that tr() made. @param {{caption: string, columns: Column[], class?: string, rows: Child[]}} what the caption is for screen readers */
export function table({ caption, columns, class: name = "", rows }) {
	const body = el("tbody", rows);
	const node = el("table", { class: `rows ${name}` }, el("caption.sr", caption),
		el("thead", el("tr", columns.map(([head, look]) => el("th", { scope: "col", class: look }, head)))), body);
	return Object.assign(node, { body });
}

/** A row whose cells take the classes of their columns. @param {Column[]} columns @param {Child[]} cells @param {Attributes} [attributes] */
export const tr = (columns, cells, attributes) => el("tr", attributes, cells.map((cell, i) => el("td", { class: columns[i][1] }, cell)));

/** @param {[Child, Child][]} pairs those without a value are left out */
export const facts = pairs => el("dl.facts", pairs.filter(([, value]) => value !== false && value != null && value !== "").map(([key, value]) => [el("dt", key), el("dd", value)]));

/** @param {Child} title @param {Child} content @param {Child} [tools] at the right of the title */
export const panel = (title, content, tools) => el("section.panel", el("header", el("h2", title), tools && [spring(), tools]), content);

/** The title of a page with its buttons. @param {Child} title @param {...Child} tools */
export const head = (title, ...tools) => el("div.head", el("h1", title), spring(), tools);

/** Scrolls a strip so that one of its children is seen. @param {HTMLElement} strip @param {HTMLElement | null} child */
export const reveal = (strip, child) => { if (child) strip.scrollLeft = child.offsetLeft - (strip.clientWidth - child.offsetWidth) / 2; };

/** Buttons of which one is pressed. @param {string} label @param {Child[][]} options values and texts @param {string} current @param {(value: any) => void} pick */
export function segment(label, options, current, pick) {
	const node = el("div.segment", { role: "group", "aria-label": label }, options.map(([value, text]) => button(text, () => pick(value), { "data-value": value })));
	const press = (values = "") => { // several are separated by commas
		for (const child of node.children) child.setAttribute("aria-pressed", String(values.split(",").includes(child.getAttribute("data-value") ?? "")));
		reveal(node, node.querySelector("[aria-pressed=true]"));
	};
	press(current);
	return Object.assign(node, { press });
}

/** @param {string} label @param {[value: string, text: string][]} options @param {string} current @param {(value: string) => unknown} pick */
export function choice(label, options, current, pick) {
	if (!options.some(([value]) => value === current)) options = [...options, [current, current]];
	const node = el("select", { "aria-label": label, value: current, change: () => pick(node.value) }, options.map(([value, text]) => el("option", { value, selected: value === current }, text ?? value)));
	return node;
}

/** @param {string} label @param {HTMLElement} control @param {Child} [hint] */
export function field(label, control, hint) {
	control.id ||= `f${++fields}`;
	if (hint) control.setAttribute("aria-describedby", `${control.id}-hint`);
	return el("div.field", el("label", { for: control.id }, label), control, hint && el("span.hint", { id: `${control.id}-hint` }, hint));
}
let fields = 0;

/** A box with its label at its right. @param {string} label @param {Attributes} [attributes] */
export function checkbox(label, attributes) {
	const box = el("input", { type: "checkbox", ...attributes });
	return Object.assign(el("label.check", box, el("span", label)), { box });
}

/**
 * Asks before something is done. The dialog stays open while act does it, and shows the server's sentence if it refuses. Resolves to whether it was done.
 * @param {{title: string, text?: Child, body?: Child, yes: string, no?: string, danger?: boolean, act: () => unknown}} what
 * @returns {Promise<boolean>}
 */
export function ask({ title, text, body, yes, no = "Cancel", danger, act }) {
	return new Promise(resolve => {
		let done = false;
		const trouble = el("div");
		const go = el("button", { type: "submit", class: danger ? "primary danger" : "primary" }, yes);
		const form = el("form", {
			submit: async (/** @type {Event} */ event) => {
				event.preventDefault();
				go.disabled = true;
				await attempt(trouble, async () => {
					await act();
					done = true;
					node.close();
				});
				go.disabled = false;
			},
		}, text && el("p", text), body, trouble, el("div.acts", button(no, () => node.close()), go));
		const node = dialog(title, form, () => resolve(done));
		(/** @type {HTMLElement | null} */ (form.querySelector("input, select, textarea")) ?? go).focus();
	});
}

/** Shows a dialog that Esc closes. @param {string} title @param {Child} content @param {() => void} [closed] */
export function dialog(title, content, closed) {
	const id = `d${++fields}`;
	const node = el("dialog", { "aria-labelledby": id, close: () => { node.remove(); closed?.(); } }, el("h2", { id }, title), content);
	document.body.append(node);
	node.showModal();
	return node;
}

/** Saves bytes as a file. @param {Blob} blob @param {string} name */
function save(blob, name) {
	const href = URL.createObjectURL(blob);
	el("a", { href, download: name }).click();
	setTimeout(() => URL.revokeObjectURL(href), 60e3);
}

/** A button that saves a list as a file. @param {Api} api @param {string} of @param {() => Params} params @param {Attributes} [attributes] */
export const exportButton = (api, of, params, attributes) => button("Export", () => {
	const kind = choice("Format", [["application/x-ndjson", "JSON lines"], ["text/csv", "CSV"]], "application/x-ndjson", () => {});
	ask({
		title: `Export ${of === "chat" ? "this chat" : of}`, text: "Everything that the filters select is saved as a file, not only what is shown.", body: field("Format", kind), yes: "Export",
		act: async () => save(await api.file("export", { of, ...params() }, kind.value), `${of}-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.${kind.value === "text/csv" ? "csv" : "jsonl"}`),
	});
}, { icon: "down", ...attributes });

/** What a page without anything to show says. @param {Child} title @param {...Child} next what to do next */
export const empty = (title, ...next) => el("div.empty", el("p", el("b", title)), next.map(line => el("div.muted", line)));

/** A line of code with a button that copies it. */
export const codeLine = (text = "", label = "") => el("div.url", el("span", text), copyButton(text, label, { bare: true }));

/** A text from outside, as it is stored: 16 KB first, the rest on demand. */
export function longText(text = "", label = "") {
	const first = 16384;
	const pre = el("pre", text.slice(0, first));
	const box = el("div.text", { tabindex: "0", role: "region", "aria-label": label }, pre);
	if (text.length <= first) return box;
	const rest = el("div.foot", button(`Show all ${size(bytesOf(text))}`, () => { put(pre, text); rest.remove(); }, { class: "small" }), muted("The first 16 KB are shown."));
	return el("div", box, rest);
}
