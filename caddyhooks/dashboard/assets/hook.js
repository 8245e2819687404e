// @ts-check
// The editor of one hook: its fields, the message that a payload makes, and a way to try it.
import { ApiError } from "./api.js";
import { ask, attempt, badge, button, codeLine, copyButton, el, errorNote, field, head, icon, longText, messageOf, mono, muted, note, panel, put, spring } from "./dom.js";
import { indented, isObject, list, object, parts } from "./rawjson.js";
import { ago, capital, clock, count, duration, isOpen, size, took } from "./words.js";

/** @typedef {ReturnType<typeof makeField>} Field */

/** Senders that sign the body alone: header, prefix, header with the id of a request, and whether the secret is made there. @type {Record<string, string[]>} */
const senders = {
	Bitbucket: ["X-Hub-Signature", "sha256=", "X-Request-UUID"], GitHub: ["X-Hub-Signature-256", "sha256=", "X-GitHub-Delivery"], Grafana: ["X-Grafana-Alerting-Signature", "", ""],
	Linear: ["Linear-Signature", "", "", "theirs"], PagerDuty: ["X-PagerDuty-Signature", "v1=", "", "theirs"], Sentry: ["Sentry-Hook-Signature", "", "Request-ID", "theirs"],
	Shopify: ["X-Shopify-Hmac-SHA256", "", "X-Shopify-Webhook-Id", "theirs"], "Another sender": ["X-Signature", "", ""],
};
/** @type {Record<string, unknown>} */
const examples = {
	issue: { action: "opened", issue: { number: 1207, title: "Login loops after password reset", user: { login: "mira" }, labels: [{ name: "bug" }] }, repository: { full_name: "acme/api" } },
	alert: { status: "firing", alerts: [{ labels: { alertname: "DiskFull", instance: "web-3" }, annotations: { summary: "The disk is 97 % full" } }] },
	payment: { type: "payment.failed", data: { customer: "cus_77", amount: 4200, currency: "eur" } },
};
const json = { "Content-Type": "application/json" };
// For the page of a hook that was just added: the secret that was just made, and what the server warned of.
let fresh = "", advice = /** @type {string[]} */ ([]);

export const pinnedWhy = "Set in Caddy's configuration, and changed only there.";

/** 32 bytes, in a form that needs no quotes anywhere. */
export const randomSecret = () => Array.from(crypto.getRandomValues(new Uint8Array(32)), byte => byte.toString(16).padStart(2, "0")).join("");

const quoted = (text = "") => `'${text.replaceAll("'", "'\\''")}'`;
const hookURL = (/** @type {any} */ about, name = "") => `${about.urls?.[0] ?? `https://<your site>${about.path}`}/${name}`;

/** A request as a line for a shell. Without a header it has the token. @param {any} about */
export const curl = (about, name = "", body = "", header = "") =>
	`curl ${quoted(hookURL(about, name))} -H 'Content-Type: application/json' -H ${header ? quoted(header) : '"Authorization: Bearer $HOOKS_TOKEN"'} --data-raw ${quoted(body)}`;

const pathOf = (name = "") => `mappings/${encodeURIComponent(name)}`;

/** @param {Page} page @param {string} name @param {string} etag @param {() => unknown} done */
export const askDelete = (page, name, etag, done) => ask({
	title: `Delete the hook ${name}?`, danger: true, yes: "Delete", text: "From then on its URL answers 404. Runs that it has started stay.",
	act: async () => { await page.api.request("DELETE", pathOf(name), { headers: { "If-Match": etag } }); await done(); },
});

/** Somebody else was quicker. @param {string} text times in it become those of the browser @param {() => unknown} theirs @param {() => unknown} mine */
export function clash(text, theirs, mine) {
	const box = note("late", text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/, at => clock(at)), el("div.acts", [theirs, mine].map(act => button(act === theirs ? "Load theirs" : "Keep mine", () => { box.remove(); act(); }, { class: "small" }))));
	return box;
}

/** Whether somebody else changed it meanwhile. @param {unknown} error */
export const isClash = error => error instanceof ApiError && error.status === 412;

/** @param {Page} page */
export async function show(page) {
	const { api, signal, readOnly } = page;
	const name = page.path[0] ?? "", from = name || page.params.get("copy"), path = pathOf(name);
	page.title(name || "New hook");
	const lost = (/** @type {unknown} */ error) => { put(page.main, head(from), errorNote(error), el("p", "A hook that is saved and not in force is listed under ", el("a", { href: page.link("settings") }, "Webhooks"), ", with the reason.")); };
	const [about, answer, recent] = await Promise.all([page.about(), from ? api.request("GET", pathOf(from)).catch(lost) : null, name ? api.get("samples", { hook: name }).catch(() => null) : null]);
	if (answer === undefined) return;
	const samples = list(recent?.samples), pinned = name !== "" && answer?.data.pinned === true, locked = pinned || readOnly;
	const why = pinned ? pinnedWhy : page.readOnlyWhy;

	/** What is saved, member by member as JSON. */
	let saved = parts(""), etag = "", before = "", tried = false, gone = false;
	const fields = makeFields(about, locked);
	const of = (key = "") => /** @type {Field} */ (fields.get(key));
	const value = (key = "") => of(key).value();
	const trouble = el("div"), conflict = el("div"), made = el("div.stack"), warned = el("div.stack", { "aria-live": "polite" }), url = el("div");

	/** A sentence of the server, with the labels of fields instead of their names in JSON. */
	const worded = (text = "") => capital(text.replace(/^\w+|\b[a-z]+[A-Z]\w*/g, key => fields.get(key === "template" ? "messageTemplate" : key)?.label ?? key));
	const warn = (texts = [""]) => put(warned, texts.map(text => el("div.says.late", icon("warn"), el("span", worded(text)))));
	/** The mapping as JSON. */
	function body() {
		/** @type {Map<string, string | undefined>} */
		const all = new Map(saved);
		for (const [key, one] of fields) all.set(key, key.startsWith("hmac") && value("authMode") !== "hmac" ? undefined : one.json());
		if (name) all.set("name", JSON.stringify(name));
		return object(all);
	}
	const changed = () => !gone && body() !== before;
	function fill(text = "", tag = "") {
		saved = parts(text);
		etag = tag;
		for (const key of name ? ["pinned", "warnings"] : ["pinned", "warnings", "name", "hmacSecret"]) saved.delete(key);
		reset();
	}
	function reset() {
		for (const [key, one] of fields) one.set(saved.get(key));
		before = body();
		put(conflict);
		react();
	}

	const noHeader = () => value("authMode") === "hmac" && !value("hmacHeader") ? "Header must name the header that carries the signature" : "";

	// The form
	const sender = el("select", {
		disabled: locked, input: () => { // before the form hears of it
			const [header, prefix, id] = senders[sender.value];
			of("hmacHeader").control.value = header;
			of("hmacPrefix").control.value = prefix;
			if (id) of("idempotencyHeader").control.value = id;
		},
	}, el("option", { value: "", disabled: true, selected: true }, "Choose to fill in the header"), Object.keys(senders).map(each => el("option", each)));
	const secret = of("hmacSecret"), beside = el("div.with-button");
	secret.control.replaceWith(beside);
	const generate = button("Generate", () => { fresh = secret.control.value = randomSecret(); react(); }, { disabled: locked });
	beside.append(secret.control, generate);
	function drawSecret() {
		const [header, prefix] = ["hmacHeader", "hmacPrefix"].map(value);
		sender.value = header && (Object.keys(senders).find(each => senders[each][0].toLowerCase() === header.toLowerCase() && senders[each][1] === prefix) ?? "Another sender");
		generate.hidden = Boolean(senders[sender.value]?.[3]);
		put(made, generate.hidden ? muted(`Paste the secret that ${sender.value} shows you.`) : fresh && [muted("Give this to the sender now. It is shown once."), codeLine(fresh, "Copy the secret")]);
	}
	const signed = el("div.form", field("Sender", sender), el("div.row-21", of("hmacHeader").box, of("hmacPrefix").box), secret.box, made);
	const fold = (label = "", names = [""], words = () => /** @type {(string | false)[]} */ ([])) => {
		const sum = el("span.muted");
		const node = el("details.more", el("summary", label, sum), el("div.form", names.map(key => of(key).box)));
		return { node, used: () => names.some(value), draw: () => put(sum, words().filter(Boolean).join(" · ")) };
	};
	const span = (key = "", label = "") => value(key) && !of(key).fault() && `${label} ${duration(Number(value(key)))}`;
	const folds = [
		fold("Model and memory", ["model", "runner", "memoryPreset", "timeoutSeconds", "queueTimeSeconds"], () => [value("model") || "default model", value("runner") && `runner ${value("runner")}`, value("memoryPreset"), span("timeoutSeconds", "at most"), span("queueTimeSeconds", "waits")]),
		fold("Answer to the caller", ["syncResponse", "responseJsonSchema", "responseValidationModelTier"], () => [value("syncResponse") ? value("responseJsonSchema") ? "JSON by a schema" : "the answer" : "202 and a run id"]),
		fold("Send the answer out", ["callbackUrl", "deliver", "channel", "to"], () => [value("deliver") && `channel ${value("channel")}, to ${value("to")}`, value("callbackUrl") && "callback", !value("deliver") && !value("callbackUrl") && "nowhere"]),
		fold("Repeats, outside text, history", ["idempotencyHeader", "untrusted", "historySeconds", "metadata"], () => [value("idempotencyHeader"), value("action") === "wake" ? "message marked" : value("untrusted") ? "values marked" : "values as they are", value("historySeconds") === "0" ? "no history" : span("historySeconds", "history"), value("metadata") && "metadata"]),
	];
	const saveButton = el("button", { type: "submit", class: "primary", disabled: locked, title: why || null }, name ? "Save" : "Add the hook");
	const undo = button("Undo", () => { put(trouble); fresh = ""; reset(); }), state = muted();
	const form = el("form.panel", { novalidate: true, input: () => react(), submit: (/** @type {Event} */ event) => { event.preventDefault(); save(); } },
		el("div.body.form", el("div.field", el("span.label", "URL"), url), !name && of("name").box,
			el("div.row-2", of("action").box, of("authMode").box), signed, of("messageTemplate").box, of("chatId").box, el("div", folds.map(one => one.node)), warned),
		el("div.save-bar", saveButton, undo, state));

	/** Brings everything up to date that depends on the fields. */
	function react() {
		const dirty = changed(), called = name || value("name");
		signed.hidden = value("authMode") !== "hmac";
		drawSecret();
		for (const key of ["channel", "to"]) of(key).box.hidden = !value("deliver");
		for (const key of ["responseJsonSchema", "responseValidationModelTier"]) of(key).box.hidden = !value("syncResponse") && !value(key);
		of("runner").box.hidden = list(about.runners).length < 2 && !value("runner");
		for (const one of folds) one.draw();
		for (const one of folds.slice(1, 3)) one.node.hidden = value("action") === "wake" && !one.used(); // wake ignores them
		put(url, called ? codeLine(hookURL(about, called), "Copy the URL") : muted("It ends with the name."));
		undo.disabled = !dirty;
		test.disabled = readOnly || !name || dirty;
		test.title = page.readOnlyWhy || test.disabled ? "Save first: a test uses what is saved." : "";
		put(state, why || (dirty ? "Not saved yet." : "Holds from the next request on."));
		later();
	}

	// Preview and payload
	const preview = el("pre"), told = el("p.small", { "aria-live": "polite" }), chat = muted();
	const payload = el("textarea", { rows: 12, spellcheck: "false", "aria-label": "Payload", input: () => { source.value = "pasted"; later(); } });
	const source = el("select", { "aria-label": "Take a payload", change: () => take() }, samples.map((sample, i) => el("option", { value: i }, `Recent: ${ago(sample.at)}, ${size(sample.bytes)}`)),
		Object.keys(examples).map(key => el("option", { value: key }, `Example: ${key}`)), el("option", { value: "pasted" }, "Pasted"));
	let origin = ["", ""]; // as it is shown, and as it came: a text area turns every line end into \n
	const payloadText = () => payload.value === origin[0] ? origin[1] : payload.value;
	function take() {
		if (source.value === "pasted") return payload.select();
		const text = samples[Number(source.value)]?.payload ?? JSON.stringify(examples[source.value], null, 2);
		payload.value = text;
		origin = [payload.value, text];
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
			if (error instanceof ApiError && error.status === 429) later();
			else if (!signal.aborted) put(told, el("span.bad-text", messageOf(error)));
		} finally {
			busy = false;
		}
	}
	function drawPreview(/** @type {any} */ data) {
		const pieces = list(data.message), n = data.placeholders, rest = [], at = new Map();
		put(preview, pieces.map(piece => piece.placeholder ? el("span", { class: piece.missing ? "ins missing" : "ins", title: piece.placeholder }, piece.text) : piece.text));
		put(chat, data.chatId && ["chat ", mono(data.chatId)]);
		for (const { field: key, message } of list(data.problems)) {
			const known = key === "template" ? "messageTemplate" : key;
			if (!fields.has(known) || known === "name" && name) rest.push(message);
			else if (!at.has(known)) at.set(known, worded(message));
		}
		if (noHeader()) at.set("hmacHeader", noHeader()); // the server looks at the secret first
		for (const [key, one] of fields) one.wrong(name || tried || one.control.value || key === "hmacHeader" ? at.get(key) ?? one.fault() : "");
		const missing = new Set(pieces.filter(piece => piece.missing).map(piece => piece.placeholder));
		put(told, data.missing ? [el("span.ins.missing", "<missing>"), ` ${data.missing} of ${count(n, "placeholder")} ${data.missing === 1 ? "is" : "are"} not in this payload: `, el("code", [...missing].join(", "))]
			: n > 0 && `${n === 1 ? "The placeholder is" : `All ${n} placeholders are`} in this payload.`, rest.map(text => el("span.bad-text", ` ${worded(text)}`)));
		if (data.warnings) warn(data.warnings);
	}

	// Try it
	const signature = el("div.stack"), result = el("div.stack", { "aria-live": "polite" });
	const test = button("Send a test", async () => {
		test.disabled = true;
		await attempt(result, async () => {
			watched = (await api.post(`${path}/test`, payloadText())).runId;
			drawRun();
		}, "Not sent");
		react();
	}, { class: "small primary" });
	let signedKey = "";
	/** Shows how the payload is sent, with its signature where the saved hook has a secret. */
	async function sign() {
		const text = payloadText(), hmac = saved.get("authMode") === '"hmac"';
		if (!name || hmac && readOnly) return void put(signature, muted(name ? page.readOnlyWhy : "Once the hook is saved it can be tried here."));
		if (signedKey === etag + text) return;
		signedKey = etag + text;
		await attempt(signature, async () => {
			const by = hmac && await api.post(`${path}/sign`, text), header = by ? `${by.header}: ${by.value}` : "";
			put(signature, header && codeLine(header, "Copy the header"), el("div", copyButton(curl(about, name, text, header), "Copy as a curl command", { class: "small" })),
				muted(hmac ? "Signed with the saved secret, which stays on the server. " : "Callers send the token of the settings. ", "A test is a real run in the chat ", mono(`test:${name}`), "; nothing is sent out."));
		});
	}
	let watched = "";
	const drawRun = () => attempt(result, async () => {
		const to = `runs/${watched}`, run = await api.get(to, {}, signal);
		put(result, el("div.value", badge(run.status), muted(duration(took(run))), spring(), el("a", { href: page.link(to) }, "Open the run")),
			run.errorMessage && el("p.bad-text", run.errorMessage), run.reply && longText(run.reply, "Answer"));
		if (isOpen(run.status)) drawSoon();
	});
	const drawSoon = page.later(drawRun, 2000, true);
	page.on("runs", event => { if (event.runs.some(run => run.runId === watched)) drawRun(); });

	// Saving
	const load = async () => { const now = await api.request("GET", path); fill(now.text, now.etag); };
	async function save() {
		const key = name || value("name");
		tried = true;
		put(trouble);
		put(state, "Not saved.");
		if (!key) return of("name").refuse("Name must not be empty");
		if (noHeader()) return of("hmacHeader").refuse(noHeader());
		for (const one of fields.values()) if (one.fault()) return one.refuse(one.fault());
		saveButton.disabled = true;
		try {
			const done = await api.request("PUT", pathOf(key), { body: body(), headers: { ...json, [name ? "If-Match" : "If-None-Match"]: etag || "*" } });
			gone = !name;
			warn(advice = list(done.data.warnings));
			if (gone) return void page.go(`settings/hooks/${encodeURIComponent(key)}`);
			fill(done.text, done.etag);
			put(trouble, note("ok", "Saved."));
			page.say("Saved");
		} catch (error) {
			refuse(error);
		} finally {
			saveButton.disabled = locked;
		}
	}
	function refuse(/** @type {any} */ error) {
		const sentence = error.body?.error ?? "", about = fields.get(sentence.split(/\W/)[0]);
		if (isClash(error)) {
			if (!name) return of("name").refuse("Name is taken by another hook");
			put(conflict, clash(error.message, load, async () => { etag = (await api.request("GET", path)).etag; save(); }));
			conflict.scrollIntoView({ block: "nearest" });
		} else if (about) about.refuse(worded(sentence));
		else {
			put(trouble, errorNote(worded(sentence) || error, "Not saved"));
			trouble.scrollIntoView({ block: "nearest" });
		}
	}
	page.on("settings", async ({ by }) => {
		const now = name && !gone && await api.request("GET", path, { signal }).catch(() => null);
		if (!now || now.etag === etag || saveButton.disabled && !locked) return;
		if (changed()) put(conflict, clash(`This hook was changed by ${by || "somebody else"} at ${clock(Date.now())}.`, load, () => { etag = now.etag; }));
		else fill(now.text, now.etag);
	});
	page.guard(changed);

	put(page.main, el("div.crumbs", el("a", { href: page.link("settings") }, "Webhooks"), " / Hooks"),
		el("div.head", el("h1", name || "New hook"), name && (about.on ? badge("ok", "in force") : badge("late", "webhooks are off")), spring(), name && [pinned && el("span.lock", icon("lock"), "Caddyfile"), !readOnly && el("a.button", { href: page.link("settings/hooks", { copy: name }) }, icon("copy"), "Copy"),
			button("Delete", () => askDelete(page, name, etag, () => { gone = true; page.go("settings"); }), { class: "danger", disabled: locked, title: why || null })]),
		why && note("late", why),
		el("div.editor", el("div.stack", trouble, conflict, form), el("div.stack",
			panel("Preview", el("div.body.stack", el("div.text", { tabindex: "0", role: "region", "aria-label": "Message" }, preview), told), chat),
			panel("Payload", el("div.body", payload), source),
			panel("Try it", el("div.body.stack", signature, result), test))));
	fill(answer?.text, name && answer ? answer.etag : "");
	take();
	warn(advice);
	if (!name) of("name").control.focus();
	signal.addEventListener("abort", () => { if (name || !gone) [fresh, advice] = ["", []]; });
}

/**
 * A field of the form. What is not touched stays as it was, to the last digit.
 * @param {string} name in JSON @param {string} label @param {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} control @param {Child} [hint]
 */
function makeField(name, label, control, hint) {
	control.id = `field-${name}`;
	const { kind, usual = "" } = control.dataset, check = control instanceof HTMLInputElement && control.type === "checkbox" ? control : null;
	const said = el("span.wrong", { id: `${control.id}-wrong` });
	const box = check ? el("div.field", el("label.check", check, label), hint && el("span.hint", hint)) : field(label, control, hint);
	box.append(said);
	control.setAttribute("aria-describedby", `${control.getAttribute("aria-describedby") ?? ""} ${said.id}`.trim());
	/** @type {string | undefined} */
	let raw;
	let first = "", refused = ["", ""]; // a value, and what the server said of it
	const one = {
		control, box, label: label.replace(/[,(].*/, "").trim(),
		value: () => check ? check.checked ? "true" : "" : control.value,
		set: (/** @type {string | undefined} */ json) => {
			const text = name === "hmacSecret" ? "" : json === undefined ? usual : kind === "json" ? indented(json) : String(JSON.parse(json));
			if (control instanceof HTMLSelectElement && ![...control.options].some(option => option.value === text)) control.append(el("option", text));
			if (check) check.checked = text === "true";
			else control.value = text;
			if (name === "hmacSecret") control.setAttribute("placeholder", json ? "•••• is set; leave blank to keep it" : "");
			raw = json;
			first = one.value();
			refused = ["", ""];
			one.wrong("");
		},
		json: () => {
			const text = one.value();
			return text === first ? raw : !text.trim() || one.fault() ? undefined : check || kind ? text.trim() : JSON.stringify(text);
		},
		/** What is wrong with it, as far as that needs no server. */
		fault: () => {
			const text = one.value().trim();
			return text && kind === "json" && !isObject(text) ? `${one.label} must be a JSON object` : text && kind === "seconds" && !/^(0|[1-9]\d{0,8})$/.test(text) ? `${one.label} must be a whole number of seconds` : "";
		},
		wrong: (text = "") => {
			text ||= one.value() === refused[0] ? refused[1] : "";
			said.hidden = !text;
			put(said, icon("warn"), text);
			control.setAttribute("aria-invalid", String(Boolean(text)));
		},
		refuse: (text = "") => {
			refused = [one.value(), text];
			one.wrong();
			const fold = box.closest("details");
			if (fold) fold.open = true;
			box.scrollIntoView({ block: "center" });
			control.focus({ preventScroll: true });
		},
	};
	return one;
}

function makeFields(/** @type {any} */ about, locked = false) {
	/** @type {Map<string, Field>} */
	const all = new Map();
	/** @param {string} name @param {string} label @param {Parameters<typeof makeField>[2]} control @param {Child} [hint] */
	const add = (name, label, control, hint) => {
		control.disabled = locked;
		all.set(name, makeField(name, label, control, hint));
	};
	const text = (more = {}) => el("input", { type: "text", spellcheck: "false", autocomplete: "off", autocapitalize: "none", ...more });
	const area = (rows = 8, kind = "") => el("textarea", { rows, spellcheck: "false", "data-kind": kind });
	const pick = (usual = "", words = "", more = [[""]]) => el("select", { "data-usual": usual }, [[usual, words], ...more].map(([value, label]) => el("option", { value }, label ?? value)));
	const box = () => el("input", { type: "checkbox" }), seconds = () => text({ inputmode: "numeric", "data-kind": "seconds" });
	const tiers = list(about.tiers).map(tier => [tier]), channels = list(about.channels).map(one => [one.name, `${one.name} (${one.kind})`]);

	add("name", "Name", text({ maxlength: 64 }), "Letters, digits, dots, dashes and underscores. It cannot be changed later.");
	add("action", "Action", pick("wake", "wake, answered at once", [["agent", "agent, a full turn"]]));
	add("authMode", "Callers prove themselves by", pick("bearer", "token", [["hmac", "signature (HMAC-SHA256)"]]));
	add("hmacHeader", "Header", text());
	add("hmacPrefix", "Prefix", text());
	add("hmacSecret", "Secret", text());
	add("messageTemplate", "Message", area(), ["Placeholders: ", mono("{issue.title}"), ", ", mono("{labels[0].name}"), ", ", mono("{$.a.b}"), ". Blank: the body as it is."]);
	add("chatId", "Chat", text(), "Runs of one chat are carried out one after the other. Placeholders are allowed. Blank: webhook:default, or a new chat for every agent run.");
	add("model", "Model tier", pick("", "the runner's own", tiers));
	add("runner", "Runner", pick("", "as configured", list(about.runners).map(one => [one.name, `${one.name} (${one.kind})`])), "As configured: the one for the model tier, or else the default one.");
	add("memoryPreset", "Memory", pick("", "as in the settings", list(about.memoryPresets).map(preset => [preset])));
	add("timeoutSeconds", "Time limit of a run, in seconds", seconds(), `Blank: as in the settings. At most ${duration(about.maxTimeoutSeconds)}.`);
	add("queueTimeSeconds", "Longest wait in the queue, in seconds", seconds(), `Blank: ${duration(about.queueTimeSeconds)}, which is the most.`);
	add("idempotencyHeader", "Header with the sender's id of a request", text(), "A second request with the same id starts no run. Blank: Idempotency-Key or webhook-id.");
	add("untrusted", "Values from the payload", pick("", "inserted as they are", [["wrap", "marked as outside text"]]));
	add("historySeconds", "Keep what a run was told, in seconds", seconds(), "0: not at all. Blank: as in the settings, which is the most.");
	add("metadata", "Metadata, a JSON object", area(4, "json"), "The runner gets it with every message.");
	add("syncResponse", "Wait for the run, and send its answer", box());
	add("responseJsonSchema", "JSON Schema of the answer (Draft 2020-12)", area(8, "json"), "Blank: the answer is text.");
	add("responseValidationModelTier", "Model tier with a schema", pick("", "the model tier", tiers));
	add("callbackUrl", "Callback URL", text({ inputmode: "url" }), "The answer is posted there. Blank: nowhere.");
	add("deliver", "Send the answer to a channel", box(), !channels.length && "No channel is configured here.");
	add("channel", "Channel", pick("", "choose", channels));
	add("to", "To", text(), "The chat or address on the channel.");
	return all;
}
