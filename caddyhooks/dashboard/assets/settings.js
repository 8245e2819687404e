// @ts-check
// Settings → Webhooks: the settings with their source, the token, and the hooks.
import { ApiError } from "./api.js";
import { ask, badge, button, choice, codeLine, el, empty, errorNote, field, head, icon, messageOf, mono, muted, note, panel, put, spring, table, tag, tr, unseen } from "./dom.js";
import { askDelete, clash, curl, guard, pinnedWhy, randomSecret } from "./hook.js";
import { list } from "./rawjson.js";
import { count, duration, number } from "./words.js";

/** @typedef {import("./main.js").Page} Page */

const mask = "••••";

/** A size that the server reads back as the same number. @param {number} bytes */
const exactSize = bytes => bytes % (1 << 20) === 0 ? `${bytes / (1 << 20)} MB` : bytes % 1024 === 0 ? `${bytes / 1024} KB` : String(bytes);

/** @param {Page} page */
export async function show(page) {
	const { api, readOnly } = page;
	const about = await page.about();
	let data = /** @type {any} */ ({}), etag = "";
	let lastHour = new Map();
	/** Tokens that were made here; the server tells none. They are gone when the page is left. @type {(string | undefined)[]} */
	let known = [];
	let leading = false; // through the first steps
	/** Changed fields that are not saved yet. @type {Map<string, () => unknown>} */
	const draft = new Map();
	const trouble = el("div"), fresh = el("div"), steps = el("div"), rows = el("section", { class: "panel", "aria-label": "Settings" }), hooks = el("div", { class: "stack" }), title = el("div");

	/** @param {import("./api.js").Answer} answer */
	function take(answer) {
		({ data, etag } = answer);
		known = list(data.token).map((_, i) => known[i]);
		draft.clear();
		draw();
	}
	const load = async () => take(await api.request("GET", "settings", { signal: page.signal }));

	/**
	 * Changes settings. What others changed meanwhile is told, and not written over.
	 * @param {Record<string, unknown>} change @param {() => void} [done]
	 */
	async function patch(change, done) {
		put(trouble);
		try {
			const answer = await api.request("PATCH", "settings", { body: change, headers: etag ? { "If-Match": etag } : {} });
			done?.();
			take(answer);
			page.say("Saved");
		} catch (error) {
			const late = error instanceof ApiError && error.status === 412;
			put(trouble, late ? clash(messageOf(error), load, async () => { etag = (await api.request("GET", "settings")).etag; patch(change, done); }) : errorNote(error, "Not saved"));
			trouble.scrollIntoView({ block: "nearest" });
		}
	}

	const tokens = () => list(data.token).length;
	const isOn = () => Boolean(data.enabled) && tokens() > 0;
	const pinned = (/** @type {string} */ name) => list(data.pinned).includes(name);
	/** Why it cannot be changed. @param {string} name */
	const why = name => readOnly ? page.readOnlyWhy : pinned(name) ? pinnedWhy : "";
	/** @param {string} name */
	const off = name => ({ disabled: why(name) !== "", title: why(name) || null });

	// Tokens
	/** @param {string} token */
	const addToken = token => {
		const old = tokens();
		return patch({ token: [...Array(old).fill(mask), token] }, () => {
			known[old] = token;
			put(fresh, el("div", { class: "note ok", role: "status" }, icon("check"), el("div", { class: "stack" },
				el("div", null, el("b", null, "The new token. "), "It is shown once: give it to the callers now."), codeLine(token, "Copy the token"))));
		});
	};
	/** @param {number} at */
	function dropToken(at) {
		// The server cannot tell masks apart, so the tokens that stay are sent themselves.
		const stay = known.filter((_, i) => i !== at).map(token => token ?? el("input", { type: "text", autocomplete: "off", spellcheck: "false" }));
		const only = !stay.length;
		return ask({
			title: only ? "Take out the only token?" : `Take out token ${at + 1} of ${tokens()}?`, danger: true, yes: "Take it out",
			text: only ? "Without a token webhooks are off: every hook answers 404." : "Callers that still use it are refused from now on.",
			body: stay.map(one => typeof one !== "string" && field("Paste the token that stays", one, "The server tells no token, and this page knows only those that it has just made. Another text here becomes the token.")),
			act: () => {
				const all = stay.map(one => typeof one === "string" ? one : one.value.trim());
				if (all.some(token => !token || token === mask)) throw new Error("Paste the token that stays.");
				return patch({ token: only ? null : all }, () => { known = all; put(fresh); });
			},
		});
	}
	function tokenRow() {
		const input = el("input", { type: "text", placeholder: tokens() ? `${mask} is set` : "none yet", autocomplete: "off", spellcheck: "false", "aria-label": "New token", ...off("token") });
		return el("div", { class: "stack" },
			!pinned("token") && el("form", { class: "with-button", submit: (/** @type {Event} */ event) => { event.preventDefault(); input.value.trim() ? addToken(input.value.trim()) : input.focus(); } },
				input, el("button", { type: "submit", ...off("token") }, "Add"), button("Generate", () => addToken(randomSecret()), off("token"))),
			fresh, tokens() > 0 && el("ul", { class: "tokens" }, known.map((token, i) => el("li", null, mono(mask), muted(token ? "made just now" : tokens() > 1 && i === 0 ? "the oldest" : "in force"), spring(),
				button("Take out", () => dropToken(i), { class: "small danger", "aria-label": `Take out token ${i + 1}`, ...off("token") })))),
			muted("A new token works beside the old one until the old one is taken out."));
	}

	/** Problems and warnings, to be shown at the thing they are about. @param {string} thing */
	const says = thing => [["bad", `${thing} is left out: `, data.problems], ["late", `${thing}: `, data.warnings]].flatMap(([kind, start, texts]) => list(texts).filter(text => text.startsWith(start)).map(text =>
		el("div", { class: `says ${kind}` }, icon("warn"), el("span", null, kind === "bad" && "Saved, and not in force: ", text.slice(start.length)))));

	/** @param {string} name @param {string} label @param {string} hint @param {import("./dom.js").Child} control */
	function row(name, label, hint, control) {
		const source = pinned(name) ? [icon("lock"), "set in the Caddyfile"] : !list(data.saved).includes(name) ? "default"
			: ["saved", !["token", "enabled"].includes(name) && button("Back to the default", () => patch({ [name]: null }), { class: "plain", ...off(name) })];
		return el("div", { class: "setting" }, el("div", null, el("div", { class: "label", id: `label-${name}` }, label), muted(hint)),
			el("div", { class: "stack" }, el("div", { class: "value" }, control, el("span", { class: "lock" }, source)), says(name)));
	}
	/** A field that is saved with the others. @template {HTMLInputElement | HTMLSelectElement} C @param {string} name @param {C} control @param {(text: string) => unknown} [read] */
	function later(name, control, read = text => text) {
		const first = control.value;
		control.removeAttribute("aria-label");
		control.setAttribute("aria-labelledby", `label-${name}`);
		control.disabled = why(name) !== "";
		control.addEventListener("input", () => {
			control.value === first ? draft.delete(name) : draft.set(name, () => read(control.value.trim()));
			drawBar();
		});
		return control;
	}
	const text = (/** @type {string} */ value) => el("input", { type: "text", value, spellcheck: "false", autocomplete: "off" });
	const save = button("Save", () => patch(Object.fromEntries([...draft].map(([name, read]) => [name, read()]))), { class: "primary" });
	const undo = button("Undo", () => { draft.clear(); put(trouble); draw(); });
	const state = muted();
	function drawBar() {
		save.disabled = undo.disabled = draft.size === 0;
		put(state, readOnly ? page.readOnlyWhy : draft.size ? `${count(draft.size, "change")} not saved yet.` : "Holds from the next request on.");
	}
	function toggle() {
		const node = el("input", {
			type: "checkbox", class: "switch", role: "switch", checked: Boolean(data.enabled), "aria-labelledby": "label-enabled", ...off("enabled"), change: async () => {
				if (node.checked) await patch({ enabled: true });
				else await ask({ title: "Switch webhooks off?", text: "Every hook answers 404 until they are on again. Runs that were accepted go on.", yes: "Switch off", danger: true, act: () => patch({ enabled: false }) });
				node.checked = Boolean(data.enabled);
			},
		});
		return el("label", { class: "check" }, node, !data.enabled ? "Off. Every hook answers 404." : tokens() ? "On." : "On, and still answering 404: there is no token.");
	}

	function draw() {
		leading ||= !isOn();
		put(title, head(["Webhooks ", badge(isOn() ? "completed" : "cancelled", isOn() ? "on" : "off")]));
		const kept = about.retentionSeconds ?? 0;
		const spans = /** @type {[string, string][]} */ ([["0", "off"], ...[3600, 86400, 604800].filter(span => span < kept).map(span => [String(span), duration(span)]), [String(kept), `as long as runs (${duration(kept)})`]]);
		const whole = (/** @type {string} */ value) => /^\d{1,9}$/.test(value) ? Number(value) : value; // the server says what is wrong with it
		put(rows, row("enabled", "Webhooks", "", toggle()),
			row("token", "Token", "For wake, agent and hooks by token", tokenRow()),
			row("defaultTimeoutSeconds", "Time limit of a run", "In seconds, where a hook sets none", later("defaultTimeoutSeconds", text(String(data.defaultTimeoutSeconds)), whole)),
			row("maxPayloadSize", "Largest body of a hook", "Such as 64 KB", later("maxPayloadSize", text(exactSize(data.maxPayloadSize)))),
			row("memoryPreset", "Memory", "Where a hook sets none", later("memoryPreset", choice("", list(about.memoryPresets).map(preset => [preset, preset]), data.memoryPreset, () => {}))),
			row("historySeconds", "History", "How long the messages of runs are kept", later("historySeconds", choice("", spans.some(([span]) => span === String(data.historySeconds)) ? spans : [...spans, [String(data.historySeconds), duration(data.historySeconds)]], String(data.historySeconds), () => {}), Number)),
			el("div", { class: "save-bar" }, save, undo, state));
		drawBar();
		drawSteps();
		drawHooks();
	}

	function drawSteps() {
		/** @param {boolean} done @param {string} label @param {...import("./dom.js").Child} more */
		const step = (done, label, ...more) => el("li", null, el("div", { class: "stack" }, el("div", null, el("b", null, label), " ", done && badge("completed", "done")), !done && more));
		put(steps, leading && panel("Get going", el("ol", { class: "steps" },
			step(tokens() > 0, "Make a token", muted("Callers prove themselves with it."), el("div", null, button("Generate a token", () => addToken(randomSecret()), { class: "primary", ...off("token") }))),
			step(Boolean(data.enabled), "Switch webhooks on", el("div", null, button("Switch on", () => patch({ enabled: true }), { class: tokens() ? "primary" : "", ...off("enabled") }))),
			step(false, "Add a hook, or try it at once", el("div", null, el("a", { class: isOn() ? "button primary" : "button", href: page.link("settings/hooks") }, icon("plus"), "Add a hook")),
				codeLine(curl(about, "wake", "", '{"text":"Hello"}'), "Copy the first command")))));
	}

	function drawHooks() {
		const columns = [{ head: "Name" }, { head: "Action" }, { head: "By", class: "desk-only" }, { head: "Chat", class: "mono clip2 desk-only" }, { head: "Last hour", class: "right desk-only" }, { head: unseen("Actions"), class: "right" }];
		const remove = (/** @type {string} */ name) => button(icon("bin", `Delete ${name}`), () => askDelete(page, name, "", load), { class: "plain", disabled: readOnly, title: readOnly ? page.readOnlyWhy : "Delete" });
		const all = list(data.mappings);
		const lines = all.map(one => tr(columns, [
			[el("a", { class: "name", "data-open": true, href: page.link(`settings/hooks/${encodeURIComponent(one.name)}`) }, one.name), says(`hook ${one.name}`)],
			tag(one.action ?? "wake"), one.authMode === "hmac" ? "signature" : "token", one.chatId, lastHour.has(one.name) && number(lastHour.get(one.name)),
			el("span", { class: "tools" }, one.pinned && el("span", { class: "lock", title: pinnedWhy }, icon("lock"), el("span", { class: "desk-only" }, "Caddyfile")),
				!readOnly && el("a", { class: "button plain", href: page.link("settings/hooks", { copy: one.name }), title: "Copy" }, icon("copy", `Copy ${one.name}`)), !one.pinned && remove(one.name))], { "data-row": true }));
		for (const text of list(data.problems)) {
			const name = /^hook (\S+) is left out: /.exec(text)?.[1];
			if (name && !all.some(one => one.name === name)) lines.push(tr(columns, [[el("b", null, name), says(`hook ${name}`)], badge("failed", "left out"), "", "", "", remove(name)]));
		}
		put(hooks, panel("Hooks", lines.length ? table({ caption: "Hooks", columns, rows: lines }) : empty("There are no hooks yet.", "A hook takes the JSON of any sender, and makes a message of it by a template."),
			!readOnly && el("a", { class: "button small primary", href: page.link("settings/hooks") }, icon("plus"), "Add a hook")),
		panel("How to call it", el("div", { class: "body stack" },
			muted("Tell the agent something, and wait for nothing:"), codeLine(curl(about, "wake", "", '{"text":"The build is red"}'), "Copy the wake command"),
			muted("Ask for a full turn, and wait for the reply:"), codeLine(curl(about, "agent", "", '{"message":"Summarise the last incident","syncResponse":true}'), "Copy the agent command"))));
	}

	put(page.main, title, trouble, el("div", { class: "stack" }, steps, rows, hooks));
	guard(page, () => draft.size > 0);
	await load();
	api.get("overview", { range: "1h" }, page.signal).then(now => {
		lastHour = new Map(list(now.hooks).map(one => [one.name, one.accepted]));
		if (!page.signal.aborted) drawHooks();
	}).catch(() => {}); // the page is whole without it
	const others = async () => {
		const now = await api.request("GET", "settings", { signal: page.signal }).catch(() => null);
		if (!now || now.etag === etag) return;
		if (draft.size) put(trouble, clash("The settings were changed by somebody else.", load, () => { etag = now.etag; }));
		else take(now);
	};
	page.on("settings", others);
	page.on("reset", others);
}
