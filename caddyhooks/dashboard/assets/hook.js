// @ts-check
// The editor of one hook: its fields, the message that a payload makes, and a way to try it.
import { ApiError } from "./api.js";
import { ask, badge, button, codeLine, copyButton, el, errorNote, field, head, icon, longText, messageOf, mono, muted, note, panel, put, spring } from "./dom.js";
import { indented, isObject, list, object, parts } from "./rawjson.js";
import { ago, capital, count, duration, isOpen, size, took } from "./words.js";

/** @typedef {import("./main.js").Page} Page */
/** @typedef {ReturnType<typeof makeField>} Field */

/** Senders that sign the body alone: name, header, prefix, header with the id of a request, example. */
const senders = [
	["GitHub", "X-Hub-Signature-256", "sha256=", "X-GitHub-Delivery", "Issue"],
	["Bitbucket", "X-Hub-Signature", "sha256=", "X-Request-UUID", "Event"],
	["Shopify", "X-Shopify-Hmac-SHA256", "", "X-Shopify-Webhook-Id", "Payment"],
	["Sentry", "Sentry-Hook-Signature", "", "Request-ID", "Alert"],
	["Linear", "Linear-Signature", "", "", "Issue"],
	["PagerDuty", "X-PagerDuty-Signature", "v1=", "", "Alert"],
	["Grafana", "X-Grafana-Alerting-Signature", "", "", "Alert"],
	["Another sender", "X-Signature", "", "", "Event"],
];
/** @type {Record<string, unknown>} */
const examples = {
	Issue: { action: "opened", issue: { number: 1207, title: "Login loops after password reset", user: { login: "mira" }, labels: [{ name: "bug" }] }, repository: { full_name: "acme/api" } },
	Payment: { type: "payment.failed", id: "evt_1042", data: { customer: "cus_77", amount: 4200, currency: "eur" } },
	Alert: { status: "firing", alerts: [{ labels: { alertname: "DiskFull", instance: "web-3" }, annotations: { summary: "The disk of web-3 is 97 % full" } }] },
	Event: { event: "example", id: 1, text: "Something happened" },
};

export const pinnedWhy = "Set in Caddy's configuration, and changed only there.";

/** 32 bytes, in a form that needs no quotes anywhere. */
export const randomSecret = () => Array.from(crypto.getRandomValues(new Uint8Array(32)), byte => byte.toString(16).padStart(2, "0")).join("");

/** A request as a line for a shell; a header in double quotes may name a variable. @param {any} about @param {string} name of the hook @param {string} header @param {string} body */
export function curl(about, name, header, body) {
	const quoted = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;
	return `curl ${quoted(hookURL(about, name))} -H 'Content-Type: application/json' -H ${header ? quoted(header) : '"Authorization: Bearer $HOOKS_TOKEN"'} --data-raw ${quoted(body)}`;
}

/** @param {any} about @param {string} name */
const hookURL = (about, name) => `${about.urls?.[0] ?? `https://<your site>${about.path ?? "/api/hooks"}`}/${name}`;

/** @param {string} name */
const path = name => `mappings/${encodeURIComponent(name)}`;

/** @param {Page} page @param {string} name @param {string} etag @param {() => unknown} done */
export const askDelete = (page, name, etag, done) => ask({
	title: `Delete the hook ${name}?`, danger: true, yes: "Delete", text: "From then on its URL answers 404. Runs that it has started stay.",
	act: async () => {
		await page.api.request("DELETE", path(name), { headers: etag ? { "If-Match": etag } : {} });
		await done();
	},
});

/** Somebody else was quicker. @param {string} text @param {() => unknown} theirs @param {() => unknown} mine */
export function clash(text, theirs, mine) {
	const choose = (/** @type {string} */ label, /** @type {() => unknown} */ act) => button(label, () => { box.remove(); act(); }, { class: "small" });
	const box = note("late", text, el("div", { class: "acts" }, choose("Load theirs", theirs), choose("Keep mine", mine)));
	return box;
}

/**
 * Asks before a page with changes that are not saved is left, by a link, a key or the browser's buttons.
 * @param {Page} page @param {() => boolean} changed
 */
export function guard(page, changed) {
	const here = location.href;
	let leaving = false;
	addEventListener("beforeunload", event => { if (changed()) event.preventDefault(); }, { signal: page.signal });
	addEventListener("popstate", () => { // which comes before the event by which the frame changes pages
		const to = location.hash;
		if (leaving || location.href === here || !changed()) return;
		history.pushState(null, "", here);
		ask({ title: "Leave without saving?", text: "What was changed here is lost.", yes: "Leave", no: "Stay", danger: true, act: () => { leaving = true; location.hash = to; } });
	}, { signal: page.signal });
}

/** @param {Page} page */
export async function show(page) {
	const { api, signal, readOnly } = page;
	const name = page.path[0] ?? "", from = name || page.params.get("copy") || "";
	const [about, answer, recent] = await Promise.all([page.about(), from ? api.request("GET", path(from)) : null, name ? api.get("samples", { hook: name }).catch(() => null) : null]);
	const samples = list(recent?.samples);
	page.title(name || "New hook");

	/** What is saved, member by member as JSON. @param {string} [text] */
	const read = text => {
		const all = parts(text);
		for (const key of name ? ["pinned", "warnings"] : ["pinned", "warnings", "name", "hmacSecret"]) all.delete(key);
		return all;
	};
	let saved = read(answer?.text), etag = name && answer ? answer.etag : "";
	const pinned = name !== "" && answer?.data.pinned === true, locked = pinned || readOnly, why = pinned ? pinnedWhy : readOnly ? page.readOnlyWhy : "";
	let before = "", tried = false, gone = false;

	const fields = makeFields(about, locked);
	const of = (/** @type {string} */ key) => /** @type {Field} */ (fields.get(key));
	const value = (/** @type {string} */ key) => of(key).value();
	const isSigned = () => value("authMode") === "hmac";
	const trouble = el("div"), conflict = el("div");

	/** The mapping as JSON. */
	const body = () => {
		const all = /** @type {Map<string, string | undefined>} */ (new Map(saved));
		for (const [key, one] of fields) all.set(key, key.startsWith("hmac") && !isSigned() ? undefined : one.json());
		if (name) all.set("name", JSON.stringify(name));
		return object(all);
	};
	const changed = () => !gone && body() !== before;
	/** @param {string} text @param {string} tag */
	const fill = (text, tag) => {
		saved = read(text);
		etag = tag;
		reset();
	};
	function reset() {
		for (const [key, one] of fields) {
			one.set(saved.get(key));
			one.wrong();
		}
		before = body();
		put(made);
		put(conflict);
		react();
	}

	// The form
	const url = el("div"), made = el("div");
	const sender = el("select", {
		disabled: locked, change: () => {
			const [, header, prefix, id, example] = senders.find(([each]) => each === sender.value) ?? [];
			if (header === undefined) return;
			of("hmacHeader").control.value = header;
			of("hmacPrefix").control.value = prefix;
			if (id) of("idempotencyHeader").control.value = id;
			if (source.value.startsWith("example")) take(`example:${example}`);
		},
	}, el("option", { value: "" }, "Choose to fill in the header"), senders.map(([each]) => el("option", null, each)));
	const secret = of("hmacSecret"), beside = el("div", { class: "with-button" });
	secret.control.replaceWith(beside);
	beside.append(secret.control, button("Generate", () => {
		secret.control.value = randomSecret();
		put(made, muted("Give this to the sender now. It is shown once."), codeLine(secret.control.value, "Copy the secret"));
		react();
	}, { disabled: locked }));
	const signed = el("div", { class: "form" }, field("Sender", sender), el("div", { class: "row-21" }, of("hmacHeader").box, of("hmacPrefix").box), secret.box, made);
	/** @param {string} label @param {string[]} names @param {() => (string | false)[]} words */
	const fold = (label, names, words) => {
		const sum = el("span", { class: "muted" });
		const node = el("details", { class: "more" }, el("summary", null, label, sum), el("div", { class: "form" }, names.map(key => of(key).box)));
		return { node, used: () => names.some(value), draw: () => put(sum, words().filter(Boolean).join(" · ")) };
	};
	const span = (/** @type {string} */ key, /** @type {string} */ label) => value(key) && `${label} ${duration(Number(value(key)))}`;
	const folds = [
		fold("Model and memory", ["model", "memoryPreset", "timeoutSeconds", "queueTimeSeconds"], () => [value("model") || "default model", value("memoryPreset") && `memory ${value("memoryPreset")}`, span("timeoutSeconds", "at most"), span("queueTimeSeconds", "waits")]),
		fold("Answer to the caller", ["syncResponse", "responseJsonSchema", "responseValidationModelTier"], () => [value("syncResponse") ? value("responseJsonSchema") ? "JSON by a schema" : "the reply" : "202 and a run id"]),
		fold("Send the answer on", ["callbackUrl", "deliver", "channel", "to"], () => [value("deliver") && `channel ${value("channel")}, to ${value("to")}`, value("callbackUrl") && "callback", !value("deliver") && !value("callbackUrl") && "nowhere"]),
		fold("Repeats, outside text, history", ["idempotencyHeader", "untrusted", "historySeconds", "metadata"], () => [value("idempotencyHeader"), value("untrusted") === "wrap" ? "values marked" : "values as they are", value("historySeconds") === "0" ? "no history" : span("historySeconds", "history"), value("metadata") && "metadata"]),
	];
	const saveButton = el("button", { type: "submit", class: "primary", disabled: locked, title: why || null }, name ? "Save" : "Add the hook");
	const undo = button("Undo", () => { put(trouble); reset(); }), state = muted();
	const form = el("form", { class: "panel", novalidate: true, input: () => react(), submit: (/** @type {Event} */ event) => { event.preventDefault(); save(); } },
		el("div", { class: "body form" }, el("div", { class: "field" }, el("span", { class: "label" }, "URL"), url), !name && of("name").box,
			el("div", { class: "row-2" }, of("action").box, of("authMode").box), signed, of("messageTemplate").box, of("chatId").box, el("div", null, folds.map(one => one.node))),
		el("div", { class: "save-bar" }, saveButton, undo, state));

	/** Brings everything up to date that depends on the fields. */
	function react() {
		const dirty = changed(), called = name || value("name"), agent = value("action") === "agent";
		signed.hidden = !isSigned();
		for (const key of ["channel", "to"]) of(key).box.hidden = !value("deliver");
		for (const key of ["responseJsonSchema", "responseValidationModelTier"]) of(key).box.hidden = !value("syncResponse") && !value(key);
		for (const one of folds) one.draw();
		for (const one of folds.slice(1, 3)) one.node.hidden = !agent && !one.used(); // which wake ignores
		put(url, called ? codeLine(hookURL(about, called), "Copy the URL") : muted("It ends with the name."));
		undo.disabled = !dirty;
		test.disabled = readOnly || !name || dirty;
		test.title = readOnly ? page.readOnlyWhy : test.disabled ? "Save first: a test uses what is saved." : "";
		put(state, why || (dirty ? "Not saved yet." : "Holds from the next request on."));
		later();
	}

	// Preview and payload
	const preview = el("pre"), told = el("p", { class: "small", "aria-live": "polite" }), chat = muted();
	const payload = el("textarea", { rows: 12, spellcheck: "false", "aria-label": "Payload", input: () => { source.value = "pasted"; later(); } });
	const source = el("select", { "aria-label": "Take a payload", change: () => take(source.value) },
		samples.map((sample, i) => el("option", { value: `sample:${i}` }, `Recent: ${ago(sample.at)}, ${size(sample.bytes)}`)),
		Object.keys(examples).map(key => el("option", { value: `example:${key}` }, `Example: ${key.toLowerCase()}`)), el("option", { value: "pasted" }, "Pasted"));
	let origin = { shown: "", text: "" }; // a text area turns every line end into \n
	const payloadText = () => payload.value === origin.shown ? origin.text : payload.value;
	/** @param {string} what */
	function take(what) {
		const [kind, key] = what.split(":");
		if (kind === "pasted") return payload.select();
		const text = kind === "sample" ? samples[Number(key)].payload : JSON.stringify(examples[key], null, 2);
		source.value = what;
		payload.value = text;
		origin = { shown: payload.value, text };
		later();
	}
	let timer = 0, busy = false, last = 0;
	/** Asks for a preview, at most twice a second. */
	function later() {
		clearTimeout(timer);
		if (!signal.aborted) timer = setTimeout(look, Math.max(150, last + 520 - Date.now()));
	}
	async function look() {
		if (busy) return later();
		busy = true;
		last = Date.now();
		try {
			drawPreview((await api.request("POST", "preview", { body: `{"mapping":${body()},"payload":${JSON.stringify(payloadText())}}`, headers: json, signal })).data);
			await sign();
		} catch (error) {
			if (!signal.aborted) put(told, el("span", { class: "bad-text" }, messageOf(error)));
		} finally {
			busy = false;
		}
	}
	/** @param {any} data */
	function drawPreview(data) {
		const pieces = list(data.message), n = data.placeholders, rest = [];
		put(preview, pieces.map(piece => piece.placeholder ? el("span", { class: piece.missing ? "ins missing" : "ins", title: piece.placeholder }, piece.text) : piece.text));
		put(chat, data.chatId && ["chat ", mono(data.chatId)]);
		const missing = new Set(pieces.filter(piece => piece.missing).map(piece => piece.placeholder));
		put(told, data.missing ? [el("span", { class: "ins missing" }, "<missing>"), ` ${data.missing} of ${count(n, "placeholder")} ${data.missing === 1 ? "is" : "are"} not in this payload: `, el("code", null, [...missing].join(", "))]
			: n > 0 && `${n === 1 ? "The placeholder is" : `All ${n} placeholders are`} in this payload.`);
		const at = new Map(); // problems by field
		for (const { field: key, message } of list(data.problems)) {
			const known = key === "template" ? "messageTemplate" : key;
			if (!fields.has(known) || known === "name" && name) rest.push(message);
			else if (!at.has(known)) at.set(known, message);
		}
		for (const [key, one] of fields) one.wrong(!name && !tried && !one.control.value ? "" : at.get(key) ?? one.fault());
		if (rest.length) told.append(el("span", { class: "bad-text" }, ` ${capital(rest.join("; "))}`));
	}

	// Try it
	const signature = el("div", { class: "stack" }), result = el("div", { class: "stack", "aria-live": "polite" });
	const test = button("Send a test", async () => {
		test.disabled = true;
		try {
			watch((await api.post(`${path(name)}/test`, payloadText())).runId);
		} catch (error) {
			put(result, errorNote(error, "Not sent"));
		}
		react();
	}, { class: "small primary" });
	let signedKey = "";
	/** Shows how the payload is sent, with its signature where the saved hook has a secret. */
	async function sign() {
		const text = payloadText(), hmac = saved.get("authMode") === '"hmac"', key = etag + text;
		if (!name) return void put(signature, muted("Once the hook is saved it can be tried here."));
		if (key === signedKey) return;
		signedKey = key;
		if (hmac && readOnly) return void put(signature, muted("Signatures are made for those who may change hooks."));
		try {
			const made = hmac && await api.post(`${path(name)}/sign`, text), header = made ? `${made.header}: ${made.value}` : "";
			put(signature, header && codeLine(header, "Copy the header"), el("div", null, copyButton(curl(about, name, header, text), "Copy as a curl command", { class: "small" })),
				muted(hmac ? "Signed with the saved secret, which stays on the server. " : "Callers send the token of the settings. ", "A test is a real run in the chat ", mono(`test:${name}`), "; nothing is sent on."));
		} catch (error) {
			put(signature, errorNote(error));
		}
	}
	let onRuns = (/** @type {any[]} */ _runs) => {};
	page.on("runs", event => onRuns(list(event.runs)));
	/** Shows a run until it has ended. @param {string} id */
	function watch(id) {
		let wait = 0;
		const draw = async () => {
			clearTimeout(wait);
			const run = await api.get(`runs/${encodeURIComponent(id)}`, {}, signal).catch(error => { if (!signal.aborted) put(result, errorNote(error)); });
			if (!run || signal.aborted) return;
			const seconds = took(run), ended = !isOpen(run.status);
			put(result, el("div", { class: "value" }, badge(run.status), seconds !== null && muted(duration(seconds)), spring(), el("a", { href: page.link(`runs/${encodeURIComponent(id)}`) }, "Open the run")),
				run.errorMessage && el("p", { class: "bad-text" }, run.errorMessage), run.reply && longText(run.reply, { label: "Reply" }));
			if (ended) onRuns = () => {};
			else wait = setTimeout(draw, 2000);
		};
		onRuns = runs => { if (runs.some(run => run.runId === id)) draw(); };
		draw();
	}

	// Saving
	const theirs = async () => { const now = await api.request("GET", path(name)); fill(now.text, now.etag); };
	async function save() {
		tried = true;
		put(trouble);
		const key = name || value("name");
		if (!key) return of("name").refuse("must not be empty");
		for (const one of fields.values()) if (one.fault()) return one.refuse(one.fault());
		saveButton.disabled = true;
		try {
			const done = await api.request("PUT", path(key), { body: body(), headers: { ...json, ...(!name ? { "If-None-Match": "*" } : etag && { "If-Match": etag }) } });
			gone = !name;
			if (gone) return page.go(`settings/hooks/${encodeURIComponent(key)}`);
			fill(done.text, done.etag || (await api.request("GET", path(key))).etag);
			put(trouble, note("ok", "Saved."), list(done.data.warnings).map(text => note("late", text)));
			page.say("Saved");
		} catch (error) {
			refuse(error);
		} finally {
			saveButton.disabled = locked;
		}
	}
	/** @param {unknown} error */
	function refuse(error) {
		const late = error instanceof ApiError && error.status === 412, sentence = error instanceof ApiError ? String(error.body?.error ?? "") : "";
		if (late && !name) return of("name").refuse("is taken by another hook");
		put(trouble, late ? clash(messageOf(error), theirs, async () => { etag = (await api.request("GET", path(name))).etag; save(); }) : errorNote(sentence || error, "Not saved"));
		trouble.scrollIntoView({ block: "nearest" });
		const [key, ...words] = sentence.split(" ");
		if (!late) fields.get(key)?.refuse(words.join(" "));
	}
	page.on("settings", async () => {
		const now = name && !gone && !saveButton.disabled && await api.request("GET", path(name), { signal }).catch(() => null);
		if (!now || now.etag === etag || saveButton.disabled) return;
		if (changed()) put(conflict, clash("This hook was changed by somebody else.", theirs, () => { etag = now.etag; }));
		else fill(now.text, now.etag);
	});
	guard(page, changed);

	put(page.main, el("div", { class: "crumbs" }, el("a", { href: page.link("settings") }, "Webhooks"), " / Hooks"),
		head(name || "New hook", name && [pinned && el("span", { class: "lock" }, icon("lock"), "Caddyfile"), !readOnly && el("a", { class: "button", href: page.link("settings/hooks", { copy: name }) }, icon("copy"), "Copy"),
			button("Delete", () => askDelete(page, name, etag, () => { gone = true; page.go("settings"); }), { class: "danger", disabled: locked, title: why || null })]),
		why && note("late", why),
		el("div", { class: "editor" }, el("div", { class: "stack" }, trouble, conflict, form), el("div", { class: "stack" },
			panel("Preview", el("div", { class: "body stack" }, el("div", { class: "text", tabindex: "0", role: "region", "aria-label": "Message" }, preview), told), chat),
			panel("Payload", el("div", { class: "body" }, payload), source),
			panel("Try it", el("div", { class: "body stack" }, signature, result), test))));
	reset();
	const known = senders.find(([, header]) => JSON.stringify(header) === saved.get("hmacHeader"));
	take(samples.length ? "sample:0" : `example:${known?.[4] ?? "Issue"}`);
	if (!name) of("name").control.focus();
	return () => clearTimeout(timer);
}

const json = { "Content-Type": "application/json" };

/**
 * A field of the form. What is not touched stays as it was, to the last digit.
 * @param {string} name in JSON @param {string} label @param {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} control @param {import("./dom.js").Child} [hint]
 */
function makeField(name, label, control, hint) {
	control.id = `field-${name}`;
	const kind = control.dataset.kind, check = control instanceof HTMLInputElement && control.type === "checkbox" ? control : null;
	const said = el("span", { class: "wrong", id: `${control.id}-wrong`, hidden: true });
	const box = check ? el("div", { class: "field" }, el("label", { class: "check" }, check, label), hint && el("span", { class: "hint" }, hint)) : field(label, control, hint);
	box.append(said);
	const described = control.getAttribute("aria-describedby") ?? "";
	/** @type {string | undefined} */
	let raw;
	let first = "", refused = { value: "", text: "" }; // by the server
	const one = {
		control, box,
		value: () => check ? check.checked ? "true" : "" : control.value,
		/** @param {string} [json] */
		set: json => {
			raw = json;
			refused.text = "";
			const text = name === "hmacSecret" ? "" : json === undefined ? control.dataset.usual ?? "" : kind === "json" ? indented(json) : String(JSON.parse(json));
			if (control instanceof HTMLSelectElement && ![...control.options].some(option => option.value === text)) control.append(el("option", { value: text }, text));
			if (check) check.checked = text === "true";
			else control.value = text;
			if (name === "hmacSecret") control.setAttribute("placeholder", json ? "•••• is set; leave blank to keep it" : "");
			first = one.value();
		},
		json: () => {
			const text = one.value();
			if (text === first) return raw;
			return text.trim() === "" || one.fault() ? undefined : check || kind ? text.trim() : JSON.stringify(text);
		},
		/** What is wrong with it, as far as that needs no server. */
		fault: () => {
			const text = one.value().trim();
			return text && kind === "json" && !isObject(text) ? "must be a JSON object" : text && kind === "seconds" && !/^(0|[1-9]\d{0,8})$/.test(text) ? "must be a whole number of seconds" : "";
		},
		/** @param {string} [text] */
		wrong: text => {
			text ||= one.value() === refused.value ? refused.text : "";
			said.hidden = !text;
			put(said, text && [icon("warn"), text]);
			control.setAttribute("aria-invalid", String(Boolean(text)));
			control.setAttribute("aria-describedby", `${described} ${said.id}`.trim());
		},
		/** @param {string} text */
		refuse: text => {
			refused = { value: one.value(), text };
			one.wrong(text);
			const fold = box.closest("details");
			if (fold) fold.open = true;
			control.focus();
		},
	};
	return one;
}

/** @param {any} about @param {boolean} locked @returns {Map<string, Field>} */
function makeFields(about, locked) {
	const all = new Map();
	/** @param {string} name @param {string} label @param {Parameters<typeof makeField>[2]} control @param {import("./dom.js").Child} [hint] */
	const add = (name, label, control, hint) => {
		control.disabled = locked;
		all.set(name, makeField(name, label, control, hint));
	};
	const text = (/** @type {import("./dom.js").Attributes} */ more = {}) => el("input", { type: "text", spellcheck: "false", autocomplete: "off", autocapitalize: "none", ...more });
	const area = (/** @type {number} */ rows, kind = "") => el("textarea", { rows, spellcheck: "false", "data-kind": kind || null });
	const pick = (/** @type {string[][]} */ options) => el("select", { "data-usual": options[0][0] }, options.map(([value, words]) => el("option", { value }, words ?? value)));
	const box = () => el("input", { type: "checkbox" }), seconds = () => text({ inputmode: "numeric", "data-kind": "seconds" });
	const tiers = list(about.tiers).map(tier => [tier]);
	const code = (/** @type {string} */ words) => el("code", null, words);

	add("name", "Name", text({ maxlength: 64 }), "Letters, digits, dots, dashes and underscores. It stays as it is.");
	add("action", "Action", pick([["wake", "wake, answered at once"], ["agent", "agent, a full turn"]]));
	add("authMode", "Callers prove themselves by", pick([["bearer", "token"], ["hmac", "signature (HMAC-SHA256)"]]));
	add("hmacHeader", "Header", text());
	add("hmacPrefix", "Prefix", text());
	add("hmacSecret", "Secret", text());
	add("messageTemplate", "Message", area(8), ["Placeholders: ", code("{issue.title}"), ", ", code("{labels[0].name}"), ", ", code("{$.a.b}"), ". Blank: the body as it is."]);
	add("chatId", "Chat", text(), "Runs of one chat are carried out one after the other. Placeholders are allowed. Blank: webhook:default for wake, a new chat for every agent run.");
	add("model", "Model tier", pick([["", "the runner's own"], ...tiers]));
	add("memoryPreset", "Memory", pick([["", "as in the settings"], ...list(about.memoryPresets).map(preset => [preset])]));
	add("timeoutSeconds", "Time limit of a run, in seconds", seconds(), `Blank: as in the settings. At most ${duration(about.maxTimeoutSeconds)}.`);
	add("queueTimeSeconds", "Longest wait in the queue, in seconds", seconds(), `Blank, and at most: ${duration(about.queueTimeSeconds)}.`);
	add("syncResponse", "Wait for the run, and answer with the reply", box());
	add("responseJsonSchema", "JSON Schema of the reply (Draft 2020-12)", area(8, "json"), "Blank: the reply is text.");
	add("responseValidationModelTier", "Model tier with a schema", pick([["", "the model tier"], ...tiers]));
	add("callbackUrl", "Callback URL", text({ inputmode: "url" }), "The reply is posted there. Blank: nowhere.");
	add("deliver", "Send the reply to a channel", box(), !list(about.channels).length && "No channel is configured here.");
	add("channel", "Channel", pick([["", "choose"], ...list(about.channels).map(one => [one.name, `${one.name} (${one.kind})`])]));
	add("to", "To", text(), "The chat or address on the channel.");
	add("idempotencyHeader", "Header with the sender's id of a request", text(), "A second request with the same id starts no run. Blank: Idempotency-Key or webhook-id.");
	add("untrusted", "Values from the payload", pick([["", "inserted as they are"], ["wrap", "marked as outside text"]]), "Messages of wake hooks are always marked as a whole.");
	add("historySeconds", "Keep what a run was told, in seconds", seconds(), "0: not at all. Blank, and at most: as in the settings.");
	add("metadata", "Metadata, a JSON object", area(4, "json"), "The runner gets it with every message.");
	return all;
}
