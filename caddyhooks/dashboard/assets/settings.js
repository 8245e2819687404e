// @ts-check
// Settings → Webhooks: the settings with their source, the token, and the hooks.
import { ApiError } from "./api.js";
import { ask, badge, button, choice, codeLine, el, empty, errorNote, field, head, icon, messageOf, mono, muted, note, panel, put, spring, table, tag, tr } from "./dom.js";
import { guard, hookURL, quoted, randomSecret } from "./hook.js";
import { capital, count, duration, number } from "./words.js";

/** @typedef {import("./main.js").Page} Page */

const mask = "••••";

/** A size that the server reads back as the same number. @param {number} bytes */
const exactSize = bytes => bytes % (1 << 20) === 0 ? `${bytes / (1 << 20)} MB` : bytes % 1024 === 0 ? `${bytes / 1024} KB` : String(bytes);

/** @param {Page} page */
export async function show(page) {
	const { api, readOnly } = page;
	const about = await page.about();
	let data = /** @type {any} */ ({}), etag = "";
	let busyHooks = /** @type {Record<string, number>} */ ({});
	/** Tokens that were made here; the server tells none. They are gone when the page is left. @type {(string | undefined)[]} */
	let known = [];
	let leading = false; // through the first steps
	/** Changed fields that are not saved yet. @type {Map<string, () => unknown>} */
	const draft = new Map();
	const trouble = el("div"), fresh = el("div"), steps = el("div"), rows = el("div"), hooks = el("div"), title = el("div");

	/** @param {import("./api.js").Answer} answer */
	function take(answer) {
		({ data, etag } = answer);
		if (known.length !== data.token?.length) known = (data.token ?? []).map((/** @type {any} */ _, /** @type {number} */ i) => known[i]);
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
			take(answer.etag ? answer : await api.request("GET", "settings"));
			page.say("Saved");
			return true;
		} catch (error) {
			const clash = error instanceof ApiError && error.status === 412;
			const box = clash ? note("late", messageOf(error), el("div", { class: "acts" },
				button("Load theirs", () => { box.remove(); load(); }, { class: "small" }),
				button("Keep mine", async () => { etag = (await api.request("GET", "settings")).etag; patch(change, done); }, { class: "small" }))) : errorNote(error, "Not saved");
			put(trouble, box);
			box.scrollIntoView({ block: "nearest" });
			return false;
		}
	}

	const tokens = () => data.token?.length ?? 0;
	const isOn = () => Boolean(data.enabled) && tokens() > 0;
	/** @param {string} name */
	const pinned = name => (data.pinned ?? []).includes(name);
	/** @param {string} name */
	const why = name => readOnly ? page.readOnlyWhy : pinned(name) ? "Set in Caddy's configuration, and changed only there." : "";

	// Tokens
	/** @param {string} token */
	async function addToken(token) {
		const place = tokens();
		const done = await patch({ token: [...Array(place).fill(mask), token] }, () => { known[place] = token; });
		if (!done) return;
		put(fresh, el("div", { class: "note ok", role: "status" }, icon("check"), el("div", { class: "stack" },
			el("div", null, el("b", null, "The new token. "), "It is shown once: give it to the callers now.", place > 0 && ` The old ${place > 1 ? "ones go" : "one goes"} on working until you take ${place > 1 ? "them" : "it"} out.`),
			codeLine(token, "Copy the token"))));
	}
	/** @param {number} at */
	function dropToken(at) {
		if (tokens() === 1) {
			return ask({
				title: "Take out the only token?", danger: true, yes: "Take it out", text: "Without a token webhooks are off: every hook answers 404.",
				act: async () => { if (!await patch({ token: null }, () => { known = []; put(fresh); })) throw new Error("Not done. The page says why."); },
			});
		}
		// The server knows no token by its number, so that those that stay are named.
		const stay = known.filter((_, i) => i !== at);
		const inputs = stay.map((token, i) => token === undefined ? el("input", { type: "text", autocomplete: "off", spellcheck: "false", required: true, id: `stay-${i}` }) : token);
		return ask({
			title: `Take out token ${at + 1} of ${tokens()}?`, danger: true, yes: "Take it out",
			text: "Callers that still use it are refused from now on.",
			body: inputs.map(input => typeof input !== "string" && field("Paste the token that stays", input, "Only a token that was made on this page a moment ago is known here. Any other that is not pasted stops working.")),
			act: async () => {
				const all = inputs.map(input => typeof input === "string" ? input : input.value.trim());
				if (all.some(token => !token || token === mask)) throw new Error("Paste the token that stays.");
				if (!await patch({ token: all }, () => { known = all; put(fresh); })) throw new Error("Not done. The page says why.");
			},
		});
	}
	function tokenRow() {
		const no = why("token") !== "";
		const input = el("input", { type: "text", id: "new-token", placeholder: tokens() ? `${mask} is set` : "none yet", autocomplete: "off", spellcheck: "false", disabled: no, "aria-label": "New token" });
		const form = el("form", { class: "with-button", submit: (/** @type {Event} */ event) => { event.preventDefault(); if (input.value.trim()) addToken(input.value.trim()); else input.focus(); } },
			input, el("button", { type: "submit", disabled: no }, "Add"), button("Generate", () => addToken(randomSecret()), { disabled: no }));
		const list = tokens() > 0 && el("ul", { class: "tokens" }, data.token.map((/** @type {any} */ _, /** @type {number} */ i) => el("li", null,
			mono(mask), muted(tokens() === 1 ? "in force" : known[i] ? "made just now" : i === 0 ? "the oldest" : `token ${i + 1}`), spring(),
			button("Take out", () => dropToken(i), { class: "small danger", disabled: no, title: why("token") || null, "aria-label": `Take out token ${i + 1}` }))));
		return el("div", { class: "stack" }, pinned("token") ? null : form, list, fresh, muted("A new token works beside the old one until the old one is taken out."));
	}

	// Problems and warnings, at the thing they are about
	/** @param {string} about */
	const saysAbout = about => [
		...(data.problems ?? []).map((/** @type {string} */ text) => ({ kind: "bad", text, start: `${about} is left out: ` })),
		...(data.warnings ?? []).map((/** @type {string} */ text) => ({ kind: "late", text, start: `${about}: ` })),
	].filter(each => each.text.startsWith(each.start)).map(each => el("div", { class: `says ${each.kind}` }, icon("warn"), el("span", null, each.kind === "bad" ? "Saved, and not in force: " : "", capital(each.text.slice(each.start.length)))));

	/** @param {string} name @param {string} label @param {string | null} hint @param {import("./dom.js").Child} control */
	function row(name, label, hint, control) {
		const saved = (data.saved ?? []).includes(name);
		const source = pinned(name) ? el("span", { class: "lock", title: why(name) }, icon("lock"), "set in the Caddyfile")
			: saved ? el("span", { class: "lock" }, "saved", name !== "token" && name !== "enabled" && !readOnly && button("Back to the default", () => patch({ [name]: null }), { class: "plain" }))
			: el("span", { class: "lock" }, "default");
		return el("div", { class: "setting" }, el("div", null, el("div", { class: "label", id: `label-${name}` }, label), hint && muted(hint)),
			el("div", { class: "stack" }, el("div", { class: "value" }, control, source), saysAbout(name)));
	}
	/** A text that is saved with the others. @param {string} name @param {string} value @param {(text: string) => unknown} read @param {import("./dom.js").Attributes} [more] */
	const input = (name, value, read, more) => {
		const node = el("input", { type: "text", value, disabled: why(name) !== "", title: why(name) || null, "aria-labelledby": `label-${name}`, spellcheck: "false", autocomplete: "off", ...more, input: () => set(name, node.value !== value, () => read(node.value.trim())) });
		return node;
	};
	/** @param {string} name @param {[string, string][]} options @param {string} value @param {(text: string) => unknown} read */
	const select = (name, options, value, read) => {
		const node = choice("", options, value, text => set(name, text !== value, () => read(text)));
		node.removeAttribute("aria-label");
		node.setAttribute("aria-labelledby", `label-${name}`);
		node.disabled = why(name) !== "";
		return node;
	};
	const save = el("button", { type: "button", class: "primary", click: () => patch(Object.fromEntries([...draft].map(([name, read]) => [name, read()]))) }, "Save");
	const undo = button("Undo", () => { draft.clear(); draw(); });
	const state = muted();
	/** @param {string} name @param {boolean} differs @param {() => unknown} read */
	function set(name, differs, read) {
		if (differs) draft.set(name, read);
		else draft.delete(name);
		drawBar();
	}
	function drawBar() {
		save.disabled = undo.disabled = draft.size === 0;
		put(state, readOnly ? page.readOnlyWhy : draft.size ? `${count(draft.size, "change")} not saved yet.` : "Holds from the next request on.");
	}
	/** Numbers go as they are written; the server says what is wrong with others. @param {string} text */
	const whole = text => /^\d{1,9}$/.test(text) ? Number(text) : text;

	function toggle() {
		const node = el("input", {
			type: "checkbox", class: "switch", role: "switch", checked: Boolean(data.enabled), disabled: why("enabled") !== "", "aria-labelledby": "label-enabled", change: async () => {
				const on = node.checked;
				if (on) await patch({ enabled: true });
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
		const history = String(data.historySeconds ?? 0);
		if (!spans.some(([value]) => value === history)) spans.push([history, duration(Number(history))]);
		put(rows, el("section", { class: "panel", "aria-label": "Settings" },
			row("enabled", "Webhooks", null, toggle()),
			row("token", "Token", "For wake, agent and hooks by token", tokenRow()),
			row("defaultTimeoutSeconds", "Time limit of a run", "In seconds, where the hook sets none", input("defaultTimeoutSeconds", String(data.defaultTimeoutSeconds ?? ""), whole, { inputmode: "numeric" })),
			row("maxPayloadSize", "Largest body of a hook", "Such as 64 KB", input("maxPayloadSize", exactSize(data.maxPayloadSize ?? 0), text => text)),
			row("memoryPreset", "Memory", "Where the hook sets none", select("memoryPreset", (about.memoryPresets ?? []).map((/** @type {string} */ preset) => [preset, preset]), data.memoryPreset ?? "disabled", text => text)),
			row("historySeconds", "History", "What runs were told is kept", select("historySeconds", spans, history, Number)),
			el("div", { class: "save-bar" }, save, undo, state)));
		drawBar();
		drawSteps();
		drawHooks();
	}

	function drawSteps() {
		if (!leading) return void put(steps);
		const on = Boolean(data.enabled), base = hookURL(about, "wake");
		/** @param {boolean} done @param {string} label @param {...import("./dom.js").Child} more */
		const step = (done, label, ...more) => el("li", { class: done ? "done" : "" }, el("div", { class: "stack" }, el("div", null, el("b", null, label), done && [" ", badge("completed", "done")]), done ? null : more));
		put(steps, panel("Get going", el("ol", { class: "steps" },
			step(tokens() > 0, "Make a token", muted("Callers prove themselves with it."), el("div", null, button("Generate a token", () => addToken(randomSecret()), { class: "primary", disabled: why("token") !== "", title: why("token") || null }))),
			step(on, "Switch webhooks on", el("div", null, button("Switch on", () => patch({ enabled: true }), { class: tokens() ? "primary" : "", disabled: why("enabled") !== "", title: why("enabled") || null }))),
			step(false, "Add a hook, or try it at once", el("div", null, el("a", { class: isOn() ? "button primary" : "button", href: page.link("settings/hooks") }, icon("plus"), "Add a hook")),
				codeLine(`curl ${quoted(base)} -H "Authorization: Bearer $HOOKS_TOKEN" -H 'Content-Type: application/json' -d '{"text":"Hello"}'`, "Copy the command")))));
	}

	function drawHooks() {
		const columns = [{ head: "Name" }, { head: "Action" }, { head: "By", class: "desk-only" }, { head: "Chat", class: "mono clip2 desk-only" }, { head: "Last hour", class: "right" }, { head: el("span", { class: "sr" }, "Actions"), class: "right" }];
		/** @param {string} name */
		const remove = name => button(icon("bin", `Delete ${name}`), () => ask({
			title: `Delete the hook ${name}?`, text: "From then on its URL answers 404. Runs that it has started stay.", yes: "Delete", danger: true,
			act: async () => {
				await api.request("DELETE", `mappings/${encodeURIComponent(name)}`);
				await load();
			},
		}), { class: "plain", disabled: readOnly, title: readOnly ? page.readOnlyWhy : "Delete" });
		const all = data.mappings ?? [];
		const lines = all.map((/** @type {any} */ one) => tr(columns, [
			[el("a", { class: "name", "data-open": true, href: page.link(`settings/hooks/${encodeURIComponent(one.name)}`) }, one.name), saysAbout(`hook ${one.name}`)],
			tag(one.action ?? "wake"), one.authMode === "hmac" ? "signature" : "token", one.chatId ?? "", busyHooks[one.name] === undefined ? "" : number(busyHooks[one.name]),
			el("span", { class: "nowrap" }, one.pinned && el("span", { class: "lock", title: "Set in Caddy's configuration, and changed only there." }, icon("lock"), el("span", { class: "desk-only" }, "Caddyfile")),
				el("a", { class: "button plain", href: page.link("settings/hooks", { copy: one.name }), title: "Copy" }, icon("copy", `Copy ${one.name}`)), !one.pinned && remove(one.name))], { "data-row": true }));
		const out = (data.problems ?? []).map((/** @type {string} */ text) => /^hook (\S+) is left out: /.exec(text)?.[1]).filter((/** @type {string | undefined} */ name) => name && !all.some((/** @type {any} */ one) => one.name === name));
		for (const name of out) lines.push(tr(columns, [[el("b", null, name), saysAbout(`hook ${name}`)], badge("failed", "left out"), "", "", "", remove(name)]));
		const add = el("a", { class: "button small primary", href: page.link("settings/hooks") }, icon("plus"), "Add a hook");
		const base = hookURL(about, "");
		put(hooks, el("div", { class: "stack" },
			panel("Hooks", lines.length ? table({ caption: "Hooks", columns, rows: lines }) : empty("There are no hooks yet.", "A hook takes the JSON of any sender, and makes a message of it by a template."), !readOnly && add),
			panel("How to call it", el("div", { class: "body stack" },
				muted("Tell the agent something, and wait for nothing:"),
				codeLine(`curl ${quoted(`${base}wake`)} -H "Authorization: Bearer $HOOKS_TOKEN" -H 'Content-Type: application/json' -d '{"text":"The build is red"}'`, "Copy the wake command"),
				muted("Ask for a full turn, and wait for the reply:"),
				codeLine(`curl ${quoted(`${base}agent`)} -H "Authorization: Bearer $HOOKS_TOKEN" -H 'Content-Type: application/json' -d '{"message":"Summarise the last incident","syncResponse":true}'`, "Copy the agent command")))));
	}

	put(page.main, title, readOnly && note("late", page.readOnlyWhy), trouble, el("div", { class: "stack" }, steps, rows, hooks));
	guard(page, () => draft.size > 0);
	await load();
	api.get("overview", { range: "1h" }, page.signal).then(now => {
		busyHooks = Object.fromEntries((now.hooks ?? []).map((/** @type {any} */ one) => [one.name, one.accepted]));
		if (!page.signal.aborted) drawHooks();
	}).catch(() => {}); // the page is whole without it
	const others = async () => {
		const now = await api.request("GET", "settings", { signal: page.signal }).catch(() => null);
		if (!now || now.etag === etag) return;
		if (!draft.size) return take(now);
		const box = note("late", "The settings were changed by somebody else.", el("div", { class: "acts" },
			button("Load theirs", () => { box.remove(); load(); }, { class: "small" }), button("Keep mine", () => { etag = now.etag; box.remove(); }, { class: "small" })));
		put(trouble, box);
	};
	page.on("settings", others);
	page.on("reset", others);
}
