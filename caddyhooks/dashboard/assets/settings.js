// @ts-check
// Settings → Webhooks: the settings with their source, the token, the hooks and the runners.
import { ask, badge, button, choice, codeLine, el, empty, errorNote, head, icon, mono, muted, panel, put, spring, table, tag, tr, unseen } from "./dom.js";
import { randomSecret } from "./fields.js";
import { askDelete, clash, curl, isClash, lastUses, pinnedWhy } from "./hook.js";
import { list } from "./rawjson.js";
import { reference } from "./reference.js";
import { runnersPanel } from "./runners.js";
import { clock, count, duration, exactSize, number } from "./words.js";

const mask = "••••";

/** @param {Page} page */
export async function show(page) {
	const { api, readOnly, signal } = page;
	const about = await page.about();
	let data = /** @type {any} */ ({}), etag = "", lastHour = new Map(), leading = false; // through the first steps
	/** For each token whether it was added here just now. @type {boolean[]} */
	let known = [];
	/** Fields that are not saved yet. @type {Map<string, () => unknown>} */
	const draft = new Map();
	const title = el("div"), trouble = el("div"), fresh = el("div"), steps = el("div"), rows = el("section.panel", { "aria-label": "Settings" }), hooks = el("div.stack");

	function take(/** @type {Answer} */ answer) {
		({ data, etag } = answer);
		known = [data.token ?? []].flat().map((_, i) => known[i] ?? false); // one token is a string
		draft.clear();
		draw();
	}
	const get = () => api.request("GET", "settings", { signal });
	const load = async () => take(await get());

	/** Changes settings, unless somebody else was quicker. @param {Record<string, unknown>} change @param {() => void} [done] */
	async function patch(change, done) {
		put(trouble);
		try {
			const answer = await api.request("PATCH", "settings", { body: change, headers: { "If-Match": etag } });
			done?.();
			take(answer);
			page.say("Saved");
		} catch (/** @type {any} */ error) {
			put(trouble, isClash(error) ? clash(error.message, load, async () => { etag = (await get()).etag; patch(change, done); }) : errorNote(error.body?.error ?? error, "Not saved"));
			trouble.scrollIntoView({ block: "nearest" });
		}
	}

	const isOn = () => Boolean(data.enabled) && known.length > 0;
	const pinned = (name = "") => list(data.pinned).includes(name);
	const why = (name = "") => page.readOnlyWhy || pinned(name) && pinnedWhy || "";
	const off = (name = "") => ({ disabled: why(name) !== "", title: why(name) || null });

	function addToken(token = randomSecret()) {
		const old = known.length;
		patch({ token: [...Array(old).fill(mask), token] }, () => {
			known[old] = true;
			put(fresh, el("div.note.ok", { role: "status" }, icon("check"), el("div.stack", el("div", el("b", "The new token. "), "It is shown once: give it to the callers now."), codeLine(token, "Copy the token"))));
		});
	}
	function dropToken(at = 0) {
		const only = known.length === 1;
		ask({
			title: only ? "Remove the only token?" : `Remove token ${at + 1} of ${known.length}?`, danger: true, yes: "Remove",
			text: only ? "Without a token webhooks are off: every hook answers 404." : "Callers that still use it are refused from now on.",
			act: () => patch({ token: only ? null : known.map((_, i) => i === at ? "" : mask) }, () => { known.splice(at, 1); if (at === known.length) put(fresh); }),
		});
	}
	function tokenRow() {
		const input = el("input", { type: "text", placeholder: known.length ? `${mask} is set` : "none yet", autocomplete: "off", spellcheck: "false", "aria-label": "New token", ...off("token") });
		const used = known.map(() => el("span"));
		lastUses(page).then(uses => used.forEach((node, i) => put(node, uses[i])));
		return el("div.stack",
			!pinned("token") && el("form.with-button", { submit: (/** @type {Event} */ event) => { event.preventDefault(); if (input.value.trim()) addToken(input.value.trim()); } },
				input, el("button", off("token"), "Add"), button("Generate", () => addToken(), off("token"))),
			fresh, el("ul.tokens", known.map((made, i) => el("li", mono(mask), muted(made ? "added just now" : known.length > 1 && !i ? "the oldest" : "in force"), used[i], spring(), !pinned("token") &&
				button("Remove", () => dropToken(i), { class: "small danger", "aria-label": `Remove token ${i + 1}`, ...off("token") })))),
			!pinned("token") && muted("A new token works beside the old one until you remove the old one."));
	}

	/** Problems and warnings, at the thing they are about. */
	const says = (thing = "") => [["bad", `${thing} is left out: `, data.problems], ["late", `${thing}: `, data.warnings]].flatMap(([kind, start, texts]) => list(texts).filter(text => text.startsWith(start)).map(text =>
		el("div", { class: `says ${kind}` }, icon("warn"), el("span", kind === "bad" && "Saved, but not in force: ", text.slice(start.length)))));

	/** @param {string} name @param {string} label @param {string} hint @param {HTMLElement} control */
	function row(name, label, hint, control) {
		const source = pinned(name) ? [icon("lock"), "set in the Caddyfile"] : !list(data.saved).includes(name) ? name !== "token" && "default" : ["saved", control.matches("input, select") && button("Back to the default", () => patch({ [name]: null }), { class: "plain", ...off(name) })];
		return el("div.setting", el("div.field", el("div.label", { id: `label-${name}` }, label), muted(hint), reference("settings", name, label)),
			el("div.stack", el("div.value", control, el("span.lock", source)), says(name)));
	}
	/** A field that is saved with the others. @param {string} name @param {string} label @param {string} hint @param {HTMLInputElement | HTMLSelectElement} control */
	function saved(name, label, hint, control, read = (text = "") => /** @type {unknown} */ (text)) {
		const first = control.value;
		control.removeAttribute("aria-label");
		control.setAttribute("aria-labelledby", `label-${name}`);
		control.disabled = why(name) !== "";
		control.addEventListener("input", () => {
			control.value === first ? draft.delete(name) : draft.set(name, () => read(control.value.trim()));
			drawBar();
		});
		return row(name, label, hint, control);
	}
	const text = (value = "") => el("input", { type: "text", value, spellcheck: "false", autocomplete: "off" });
	const save = button("Save", () => patch(Object.fromEntries([...draft].map(([name, read]) => [name, read()]))), { class: "primary" });
	const undo = button("Undo", () => { draft.clear(); put(trouble); draw(); }), state = muted();
	function drawBar() {
		save.disabled = undo.disabled = !draft.size;
		put(state, page.readOnlyWhy || (draft.size ? `${count(draft.size, "change")} not saved yet.` : "Takes effect on the next request."));
	}
	function toggle() {
		const node = el("input", {
			type: "checkbox", class: "switch", role: "switch", checked: Boolean(data.enabled), "aria-labelledby": "label-enabled", ...off("enabled"), change: async () => {
				await (node.checked ? patch({ enabled: true }) : ask({ title: "Switch webhooks off?", text: "Every hook answers 404 until they are on again. Runs that were accepted go on.", yes: "Switch off", danger: true, act: () => patch({ enabled: false }) }));
				node.checked = Boolean(data.enabled);
			},
		});
		return el("label.check", node, isOn() ? "On." : data.enabled ? "On, but every hook answers 404: there is no token." : "Off. Every hook answers 404.");
	}

	function spans() {
		const { retentionSeconds: kept = 0 } = about, history = data.historySeconds;
		return [...new Set([0, 3600, 86400, 604800, history, kept])].filter(span => span <= kept).sort((a, b) => a - b).map(span => /** @type {[string, string]} */ ([String(span), !span ? "off" : span === kept ? `as long as runs (${duration(kept)})` : duration(span)]));
	}
	/** The control of each kind of input that about names, and how it is read. @type {Record<string, (value: any) => [any, ((text?: string) => unknown)?]>} */
	const inputs = {
		switch: () => [toggle()],
		token: () => [tokenRow()],
		seconds: value => [text(String(value)), (written = "") => /^\d{1,9}$/.test(written) ? Number(written) : written],
		size: value => [text(exactSize(value))],
		preset: value => [choice("", list(about.memoryPresets).map(preset => [preset, preset]), value, () => {})],
		history: value => [choice("", spans(), String(value), () => {}), Number],
		fold: value => [text([value?.seconds, value?.max].filter(Boolean).join(" ")), (written = "") => {
			const [all, seconds, max] = /^(\d{1,9})(?:\s+(\d{1,9}))?$/.exec(written) ?? [];
			return all ? { seconds: Number(seconds), max: max && Number(max) } : written || null;
		}],
	};
	function setting({ name = "", label = "", hint = "", input = "" }) {
		const [control, read] = inputs[input](data[name]);
		return control.matches("input, select") ? saved(name, label, hint, control, read) : row(name, label, hint, control);
	}

	function draw() {
		leading ||= !isOn();
		put(title, head(["Webhooks ", badge(isOn() ? "completed" : "cancelled", isOn() ? "on" : "off")]));
		put(rows, list(about.settings).map(setting), el("div.save-bar", save, undo, state));
		drawBar();
		drawSteps();
		drawHooks();
	}
	const addHook = (kind = "") => !readOnly && el("a", { class: `button ${kind}`, href: page.link("settings/hooks") }, icon("plus"), "Add a hook");
	function drawSteps() {
		/** @param {boolean} done @param {string} label @param {...Child} more */
		const step = (done, label, ...more) => el("li", el("div.stack", el("div", el("b", label), " ", done && badge("completed", "done")), !done && more));
		put(steps, leading && panel("Get started", el("ol.steps",
			step(known.length > 0, "Make a token", muted("Callers authenticate with it."), el("div", button("Generate a token", () => addToken(), { class: "primary", ...off("token") }))),
			step(data.enabled, "Switch webhooks on", el("div", button("Switch on", () => patch({ enabled: true }), { class: known.length ? "primary" : "", ...off("enabled") }))),
			step(false, "Add a hook, or try it at once", el("div", addHook(isOn() ? "primary" : "")), codeLine(curl(about, "wake", '{"text":"Hello"}'), "Copy the first command")))));
	}
	function drawHooks() {
		const columns = [["Name"], ["Action"], ["Authentication", "desktop-only"], ["Chat", "mono clip2 desktop-only"], ["Last hour", "right desktop-only"], [unseen("Actions"), "right"]];
		const remove = (name = "") => button(icon("bin", `Delete ${name}`), () => askDelete(page, name, "*", load), { class: "plain", title: "Delete", ...page.acting });
		const all = list(data.mappings), lines = all.map(one => tr(columns, [
			[el("a.name", { "data-open": true, href: page.link(`settings/hooks/${encodeURIComponent(one.name)}`) }, one.name), says(`hook ${one.name}`)],
			tag(one.action ?? "wake"), list(about.schemes).find(scheme => scheme.name === (one.authMode ?? "bearer"))?.title ?? one.authMode, one.chatId, lastHour.has(one.name) && number(lastHour.get(one.name)),
			el("span.tools", one.pinned && el("span.lock", { title: pinnedWhy }, icon("lock"), el("span.desktop-only", "Caddyfile")),
				!readOnly && el("a.button.plain", { href: page.link("settings/hooks", { copy: one.name }), title: "Copy" }, icon("copy", `Copy ${one.name}`)), !one.pinned && remove(one.name))], { "data-row": true }));
		for (const text of list(data.problems)) {
			const name = /^hook (\S+) is left out: /.exec(text)?.[1];
			if (name && !all.some(one => one.name === name)) lines.push(tr(columns, [[el("b", name), says(`hook ${name}`)], badge("failed", "left out"), "", "", "", remove(name)]));
		}
		put(hooks, panel("Hooks", lines.length ? table({ caption: "Hooks", columns, rows: lines }) : empty("There are no hooks yet.", "A hook takes the JSON of any sender, and turns it into a message with a template."), addHook("small primary")),
			panel("How to call hooks", el("div.body.stack",
				muted("Tell the agent something, and do not wait:"), codeLine(curl(about, "wake", '{"text":"The build is red"}'), "Copy the wake command"),
				muted("Start a run, and wait for its answer:"), codeLine(curl(about, "agent", '{"message":"Summarise the last incident","syncResponse":true}'), "Copy the agent command"))));
	}

	put(page.main, title, trouble, el("div.stack", steps, rows, hooks, runnersPanel(page)));
	page.guard(() => draft.size > 0);
	await load();
	api.get("overview", { range: "1h" }, signal).then(now => {
		lastHour = new Map(list(now.hooks).map(one => [one.name, one.accepted]));
		if (!signal.aborted) drawHooks();
	}).catch(() => {}); // the page is whole without it
	const others = async ({ by = "" } = {}) => {
		const now = await get().catch(() => null);
		if (!now || now.etag === etag) return;
		if (draft.size) put(trouble, clash(`The settings were changed by ${by || "somebody else"} at ${clock(Date.now())}.`, load, () => { etag = now.etag; }));
		else take(now);
	};
	page.on("settings", others);
	page.on("reset", () => others());
}
