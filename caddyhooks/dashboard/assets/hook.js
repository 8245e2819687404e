// @ts-check
// The editor of one hook: its fields, the message that a payload makes, and a way to try it.
import { ApiError } from "./api.js";
import { ask, badge, button, codeLine, copyButton, el, errorNote, field, head, icon, longText, messageOf, mono, muted, note, panel, put, spring } from "./dom.js";
import { indented, isObject, object, parts } from "./rawjson.js";
import { ago, bytesOf, capital, count, duration, isOpen, size, took } from "./words.js";

/** @typedef {import("./main.js").Page} Page */
/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Control */
/**
 * @typedef {object} Field
 * @property {string} name in JSON
 * @property {Control} control
 * @property {HTMLElement} box
 * @property {(raw: string | undefined) => void} set
 * @property {() => string | undefined} json the value as JSON; what was not touched stays as it was
 * @property {() => string} value
 * @property {(text: string | undefined) => void} wrong shows a problem
 */

/** Senders that sign the body alone. @type {{name: string, header: string, prefix: string, id: string, example: string}[]} */
const senders = [
	{ name: "GitHub", header: "X-Hub-Signature-256", prefix: "sha256=", id: "X-GitHub-Delivery", example: "GitHub issue" },
	{ name: "Bitbucket", header: "X-Hub-Signature", prefix: "sha256=", id: "X-Request-UUID", example: "Any event" },
	{ name: "Shopify", header: "X-Shopify-Hmac-SHA256", prefix: "", id: "X-Shopify-Webhook-Id", example: "Payment" },
	{ name: "Sentry", header: "Sentry-Hook-Signature", prefix: "", id: "Request-ID", example: "Alert" },
	{ name: "Linear", header: "Linear-Signature", prefix: "", id: "", example: "Any event" },
	{ name: "PagerDuty", header: "X-PagerDuty-Signature", prefix: "v1=", id: "", example: "Alert" },
	{ name: "Grafana", header: "X-Grafana-Alerting-Signature", prefix: "", id: "", example: "Alert" },
	{ name: "Another sender", header: "X-Signature", prefix: "", id: "", example: "Any event" },
];

/** @type {Record<string, any>} */
const examples = {
	"GitHub issue": { action: "opened", issue: { number: 1207, title: "Login loops after password reset", user: { login: "mira" }, labels: [{ name: "bug" }] }, repository: { full_name: "acme/api" } },
	"Payment": { type: "invoice.payment_failed", id: "evt_1042", data: { object: { customer: "cus_77", amount_due: 4200, currency: "eur", attempt_count: 2 } } },
	"Alert": { status: "firing", alerts: [{ labels: { alertname: "DiskFull", instance: "web-3" }, annotations: { summary: "The disk of web-3 is 97 % full" } }] },
	"Any event": { event: "example", id: 1, text: "Something happened" },
};

/** 32 bytes, in a form that needs no quotes anywhere. */
export const randomSecret = () => Array.from(crypto.getRandomValues(new Uint8Array(32)), byte => byte.toString(16).padStart(2, "0")).join("");

/** A text as one word of a shell. @param {string} text */
export const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

/** Where a hook is called. @param {any} about @param {string} name */
export const hookURL = (about, name) => `${about.urls?.[0] ?? `https://<your site>${about.path ?? "/api/hooks"}`}/${name}`;

/** @param {Page} page */
export async function show(page) {
	const { api } = page;
	const name = page.path[0] ?? "";
	const from = name || page.params.get("copy") || "";
	const [about, answer, samples] = await Promise.all([page.about(), from ? api.request("GET", path(from)) : null, samplesOf(page, name)]);
	const title = name || "New hook";
	page.title(title);
	let etag = name ? answer?.etag ?? "" : "";
	/** What is saved, member by member as text. */
	let saved = parts(answer?.text);
	const pinned = name !== "" && saved.get("pinned") === "true";
	const locked = pinned || page.readOnly;
	saved.delete("pinned");
	saved.delete("warnings");
	if (!name) {
		saved.delete("name");
		saved.delete("hmacSecret"); // nobody can copy it
	}
	let tried = false; // to save it
	let gone = false;

	const fields = makeFields(about, locked);
	/** @param {string} key */
	const of = key => /** @type {Field} */ (fields.find(one => one.name === key));
	const trouble = el("div"), conflict = el("div", { "aria-live": "polite" });

	/** The mapping as JSON. */
	const body = () => {
		const all = /** @type {Map<string, string | undefined>} */ (new Map(saved));
		const signed = of("authMode").value() === "hmac";
		for (const one of fields) all.set(one.name, one.name.startsWith("hmac") && !signed ? undefined : one.json());
		if (name) all.set("name", JSON.stringify(name));
		return object(all);
	};
	let before = "";
	const changed = () => !gone && body() !== before;
	const fill = () => {
		for (const one of fields) {
			one.set(saved.get(one.name));
			one.wrong(undefined);
		}
		before = body();
		react();
	};

	// Layout
	const url = el("div");
	const sender = el("select", {
		disabled: locked, change: () => {
			const chosen = senders.find(one => one.name === sender.value);
			if (!chosen) return;
			of("hmacHeader").control.value = chosen.header;
			of("hmacPrefix").control.value = chosen.prefix;
			if (chosen.id) of("idempotencyHeader").control.value = chosen.id;
			if (source.value.startsWith("example:") || !payload.value.trim()) take(`example:${chosen.example}`);
			react();
		},
	}, el("option", { value: "" }, "Choose to fill in the next two …"), senders.map(one => el("option", null, one.name)));
	const shown = el("div");
	const secret = of("hmacSecret");
	const generate = button("Generate", () => {
		const made = randomSecret();
		secret.control.value = made;
		put(shown, el("p", { class: "small" }, "Give this to the sender now. It is shown once."), codeLine(made, "Copy the secret"));
		react();
	}, { disabled: locked });
	secret.box.append(shown);
	const beside = el("div", { class: "with-button" });
	secret.control.replaceWith(beside);
	beside.append(secret.control, generate);
	const signed = el("div", { class: "form" }, field("Sender", sender),
		el("div", { class: "row-21" }, of("hmacHeader").box, of("hmacPrefix").box), secret.box);
	const folds = [
		fold("Model and memory", ["model", "memoryPreset", "timeoutSeconds", "queueTimeSeconds"], v => [
			v("model") || "default model", `memory ${v("memoryPreset") || "as in the settings"}`, v("timeoutSeconds") && duration(Number(v("timeoutSeconds"))), v("queueTimeSeconds") && `waits ${duration(Number(v("queueTimeSeconds")))}`]),
		fold("Answer to the caller", ["syncResponse", "responseJsonSchema", "responseValidationModelTier"], v => [
			!v("syncResponse") ? v("action") === "agent" ? "202 and a run id" : "an acknowledgement" : v("responseJsonSchema") ? "JSON by a schema" : "the reply as text", v("responseValidationModelTier")]),
		fold("Send the answer on", ["callbackUrl", "deliver", "channel", "to"], v => [
			v("deliver") && `channel ${v("channel")}, to ${v("to")}`, v("callbackUrl") && "callback", !v("deliver") && !v("callbackUrl") && "nowhere"]),
		fold("Repeats, outside text, history", ["idempotencyHeader", "untrusted", "historySeconds", "metadata"], v => [
			v("idempotencyHeader") || "usual id headers", v("untrusted") === "wrap" ? "values marked" : "values as they are",
			v("historySeconds") && (v("historySeconds") === "0" ? "history off" : `history ${duration(Number(v("historySeconds")))}`), v("metadata") && "metadata"]),
	];
	/** @param {string} label @param {string[]} names @param {(value: (key: string) => string) => (string | false)[]} words */
	function fold(label, names, words) {
		const sum = el("span", { class: "muted" });
		const node = el("details", { class: "more" }, el("summary", null, label, sum), el("div", { class: "form" }, names.map(key => of(key).box)));
		return { node, names, draw: () => put(sum, words(key => of(key).value()).filter(Boolean).join(" · ")) };
	}

	const saveButton = el("button", { type: "submit", class: "primary", disabled: locked }, name ? "Save" : "Add the hook");
	const undo = button("Undo", () => { put(trouble); put(conflict); put(shown); fill(); }, { disabled: true });
	const state = muted("Holds from the next request on.");
	const form = el("form", { class: "panel", novalidate: true, input: () => react(), submit: (/** @type {Event} */ event) => { event.preventDefault(); save(); } },
		el("div", { class: "body form" },
			el("div", { class: "field" }, el("span", { class: "label" }, "URL"), url),
			!name && of("name").box,
			el("div", { class: "row-2" }, of("action").box, of("authMode").box), signed, of("messageTemplate").box, of("chatId").box,
			el("div", null, folds.map(one => one.node))),
		el("div", { class: "save-bar" }, saveButton, undo, state));

	// Preview and payload
	const preview = el("pre"), told = el("p", { class: "small", "aria-live": "polite" }), chat = muted();
	const payload = el("textarea", { rows: 12, spellcheck: "false", "aria-label": "Payload", input: () => { source.value = "pasted"; later(); } });
	const source = el("select", { "aria-label": "Where the payload comes from", change: () => take(source.value) },
		samples.map((sample, i) => el("option", { value: `sample:${i}` }, `Recent: ${ago(sample.at)}, ${size(sample.bytes)}`)),
		Object.keys(examples).map(key => el("option", { value: `example:${key}` }, `Example: ${key}`)), el("option", { value: "pasted" }, "Pasted"));
	/** The payload as it came: a text area turns every line end into \n. */
	let origin = { shown: "", text: "" };
	/** @param {string} what */
	function take(what) {
		const [kind, key] = what.split(/:(.*)/s);
		if (kind === "pasted") {
			payload.select();
			return;
		}
		const text = kind === "sample" ? samples[Number(key)].payload : JSON.stringify(examples[key], null, 2);
		source.value = what;
		payload.value = text;
		origin = { shown: payload.value, text };
		later();
	}
	const payloadText = () => payload.value === origin.shown ? origin.text : payload.value;

	// Try it
	const signature = el("div", { class: "stack" }), result = el("div", { class: "stack", "aria-live": "polite" });
	const test = button("Send a test", () => sendTest(), { class: "small primary" });
	let onRun = (/** @type {any} */ _runs) => {};
	page.on("runs", event => onRun(event.runs));

	let timer = 0, busy = false, last = 0;
	/** Asks for a preview, at most twice a second. */
	function later() {
		clearTimeout(timer);
		if (!page.signal.aborted) timer = setTimeout(look, Math.max(150, last + 520 - Date.now()));
	}
	async function look() {
		if (busy) return later();
		busy = true;
		last = Date.now();
		try {
			const sent = `{"mapping":${body()},"payload":${JSON.stringify(payloadText())}}`;
			const { data } = await api.request("POST", "preview", { body: sent, headers: { "Content-Type": "application/json" }, signal: page.signal });
			if (!page.signal.aborted) drawPreview(data);
		} catch (error) {
			if (!page.signal.aborted) put(told, el("span", { class: "bad-text" }, messageOf(error)));
		} finally {
			busy = false;
		}
		if (!page.signal.aborted) sign();
	}
	/** @param {any} data */
	function drawPreview(data) {
		put(preview, (data.message ?? []).map((/** @type {any} */ piece) => piece.placeholder
			? el("span", { class: piece.missing ? "ins missing" : "ins", title: piece.placeholder }, piece.text) : piece.text));
		put(chat, data.chatId && ["chat ", mono(data.chatId)]);
		const missing = [...new Set((data.message ?? []).filter((/** @type {any} */ piece) => piece.missing).map((/** @type {any} */ piece) => piece.placeholder))];
		put(told, data.missing
			? [el("span", { class: "ins missing" }, "<missing>"), ` ${data.missing} of ${count(data.placeholders, "placeholder")} ${data.missing === 1 ? "is" : "are"} not in this payload: `, missing.map((word, i) => [i > 0 && ", ", el("code", null, word)])]
			: data.placeholders ? `${count(data.placeholders, "placeholder")}, all of them in this payload.` : !data.problems?.length && "There are no placeholders in it.");
		const unplaced = showProblems(data.problems ?? []);
		if (unplaced.length) told.append(el("span", { class: "bad-text" }, " ", unplaced.join(" ")));
	}

	/** Shows problems at their fields. @param {{field?: string, message: string}[]} problems @returns {string[]} those without a field here */
	function showProblems(problems) {
		const rest = [];
		/** @type {Map<string, string>} */
		const at = new Map();
		for (const problem of problems) {
			const key = problem.field === "template" ? "messageTemplate" : problem.field ?? "";
			const one = fields.find(each => each.name === key && (key !== "name" || !name));
			if (!one) rest.push(capital(problem.message));
			else if (!at.has(key)) at.set(key, problem.message);
		}
		for (const one of fields) {
			const untouched = !name && !tried && !one.control.value;
			one.wrong(untouched ? undefined : at.get(one.name) ?? local(one));
		}
		return rest;
	}

	let signedText = "", sign0 = 0;
	/** Shows how the payload is sent: with its signature, where the hook is saved and signs. */
	async function sign() {
		const text = payloadText();
		const hmac = saved.get("authMode") === '"hmac"' && name !== "";
		const key = `${etag}\n${hmac}\n${text}`;
		if (key === signedText) return;
		signedText = key;
		const turn = ++sign0;
		let header = 'Authorization: Bearer $HOOKS_TOKEN', problem = "";
		if (hmac && !page.readOnly) {
			try {
				const { data } = await api.request("POST", `${path(name)}/sign`, { body: text, signal: page.signal });
				header = `${data.header}: ${data.value}`;
			} catch (error) {
				problem = messageOf(error);
			}
		}
		if (turn !== sign0 || page.signal.aborted) return;
		if (!name) return void put(signature, muted("Save the hook first; then it can be tried here."));
		if (hmac && page.readOnly) return void put(signature, muted(`The payload is signed for those who may change things. ${page.readOnlyWhy}`));
		const line = `curl ${quoted(hookURL(about, name))} -H 'Content-Type: application/json' -H ${hmac ? quoted(header) : `"${header}"`} --data-raw ${quoted(text)}`;
		put(signature, problem ? note("bad", problem) : [
			hmac && codeLine(header, "Copy the header"),
			el("div", null, copyButton(line, "Copy as a curl command", { class: "small" })),
			muted(hmac ? "Signed with the saved secret, which does not leave the server. " : "Callers send the token of the settings. ", "A test is a real run in the chat ", mono(`test:${name}`), "; nothing is sent on.")]);
	}

	async function sendTest() {
		test.disabled = true;
		try {
			const { data } = await api.request("POST", `${path(name)}/test`, { body: payloadText() });
			watch(data.runId);
		} catch (error) {
			put(result, errorNote(error, "The test was not sent"));
		} finally {
			react();
		}
	}
	/** Shows a run until it has ended. @param {string} id */
	function watch(id) {
		let fetching = false, ended = false;
		const draw = async () => {
			if (fetching || ended || page.signal.aborted) return;
			fetching = true;
			try {
				const run = await api.get(`runs/${encodeURIComponent(id)}`, {}, page.signal);
				ended = !isOpen(run.status);
				const seconds = took(run);
				put(result, el("div", { class: "who" }, badge(run.status), seconds !== null && muted(duration(seconds)), spring(), el("a", { href: page.link(`runs/${encodeURIComponent(id)}`) }, "Open the run")),
					(run.errorMessage || run.reason) && el("p", { class: "bad-text small" }, run.errorMessage || run.reason),
					ended && replyText(run) !== "" && longText(replyText(run), { label: "Reply" }));
			} catch (error) {
				if (!page.signal.aborted) put(result, errorNote(error));
			} finally {
				fetching = false;
			}
			if (!ended && !page.signal.aborted) setTimeout(draw, 2000);
		};
		onRun = runs => { if (runs?.some((/** @type {any} */ run) => run.runId === id)) draw(); };
		draw();
	}

	/** Brings everything up to date that depends on the fields. */
	function react() {
		const hmac = of("authMode").value() === "hmac", agent = of("action").value() === "agent", dirty = changed();
		signed.hidden = !hmac;
		for (const key of ["channel", "to"]) of(key).box.hidden = !of("deliver").value();
		for (const key of ["responseJsonSchema", "responseValidationModelTier"]) of(key).box.hidden = !of("syncResponse").value();
		for (const one of folds) one.draw();
		folds[1].node.hidden = folds[2].node.hidden = !agent && !folds[1].names.concat(folds[2].names).some(key => of(key).value());
		const called = name || of("name").value();
		put(url, called ? codeLine(hookURL(about, called), "Copy the URL") : muted("Made of the name."));
		undo.disabled = !dirty;
		test.disabled = locked && !pinned || page.readOnly || !name || dirty;
		test.title = page.readOnly ? page.readOnlyWhy : dirty || !name ? "Save first: a test uses what is saved." : "";
		put(state, pinned ? "Set in Caddy's configuration, and changed only there." : page.readOnly ? page.readOnlyWhy : dirty ? "Not saved yet." : "Holds from the next request on.");
		later();
	}

	/** @param {boolean} [over] whatever others changed */
	async function save(over) {
		tried = true;
		put(trouble);
		const key = name || of("name").value();
		const wrong = fields.filter(one => local(one));
		for (const one of wrong) one.wrong(local(one));
		if (!key) of("name").wrong("must not be empty");
		const first = !key ? of("name") : wrong[0];
		if (first) return reveal(first);
		saveButton.disabled = true;
		try {
			if (over) etag = (await api.request("GET", path(key))).etag;
			const done = await api.request("PUT", path(key), { body: body(), headers: { "Content-Type": "application/json", ...(name ? etag && { "If-Match": etag } : { "If-None-Match": "*" }) } });
			if (!name) {
				gone = true;
				page.go(`settings/hooks/${encodeURIComponent(key)}`);
				return;
			}
			etag = done.etag || (await api.request("GET", path(key))).etag;
			saved = parts(done.text);
			const warnings = done.data?.warnings ?? [];
			saved.delete("pinned");
			saved.delete("warnings");
			put(conflict);
			put(shown);
			fill();
			put(trouble, note("ok", "Saved. It holds from the next request on."), warnings.map((/** @type {string} */ text) => note("late", capital(text))));
			page.say("Saved");
		} catch (error) {
			refuse(error);
		} finally {
			saveButton.disabled = locked;
		}
	}
	/** @param {unknown} error */
	function refuse(error) {
		if (error instanceof ApiError && error.status === 412) {
			if (!name) {
				of("name").wrong("is taken by another hook");
				reveal(of("name"));
			} else {
				clash(messageOf(error));
			}
			return;
		}
		const sentence = error instanceof ApiError && typeof error.body?.error === "string" ? error.body.error : "";
		const one = fields.find(each => sentence.startsWith(`${each.name} `));
		put(trouble, errorNote(error, "Not saved"));
		if (one) {
			one.wrong(sentence.slice(one.name.length + 1));
			reveal(one);
		}
	}
	/** Somebody else was quicker. @param {string} text */
	function clash(text) {
		const box = note("late", text, el("div", { class: "acts" },
			button("Load theirs", () => { gone = true; reload(page); }, { class: "small" }),
			button("Keep mine", () => { box.remove(); save(true); }, { class: "small" })));
		put(conflict, box);
		box.scrollIntoView({ block: "nearest" });
	}
	/** @param {Field} one */
	function reveal(one) {
		const inside = one.control.closest("details");
		if (inside) inside.open = true;
		one.control.focus();
	}

	const remove = () => ask({
		title: `Delete the hook ${name}?`, danger: true, yes: "Delete",
		text: "From then on its URL answers 404. Runs that it has started stay.",
		act: async () => {
			await api.request("DELETE", path(name), { headers: etag ? { "If-Match": etag } : {} });
			gone = true;
			page.go("settings");
		},
	});

	page.on("settings", async () => {
		if (!name || gone || page.readOnly) return;
		const now = await api.request("GET", path(name)).catch(() => null);
		if (!now || now.etag === etag || page.signal.aborted || saveButton.disabled) return;
		if (changed()) clash("This hook was changed by somebody else meanwhile.");
		else reload(page);
	});
	guard(page, changed);

	const left = el("div", { class: "stack" }, trouble, conflict, form);
	put(page.main, el("div", { class: "crumbs" }, el("a", { href: page.link("settings") }, "Webhooks"), " / Hooks"),
		head(title, name && [
			pinned && el("span", { class: "lock" }, icon("lock"), "Caddyfile"),
			el("a", { class: "button", href: page.link("settings/hooks", { copy: name }) }, icon("copy"), "Copy"),
			button("Delete", remove, { class: "danger", disabled: locked, title: pinned ? "Set in Caddy's configuration, and changed only there." : page.readOnly ? page.readOnlyWhy : null })]),
		pinned && note("late", "This hook is set in Caddy's configuration. It can be read and tried here, and changed only there."),
		el("div", { class: "editor" }, left, el("div", { class: "stack" },
			panel("Preview", el("div", { class: "body stack" }, el("div", { class: "text", tabindex: "0", role: "region", "aria-label": "Message" }, preview), told), chat),
			panel("Payload", el("div", { class: "body" }, payload), source),
			panel("Try it", el("div", { class: "body stack" }, signature, result), test))));
	fill();
	const fits = senders.find(one => JSON.stringify(one.header) === saved.get("hmacHeader"));
	take(samples.length ? "sample:0" : `example:${fits?.example ?? (name ? "Any event" : "GitHub issue")}`);
	if (!name) of("name").control.focus();
	return () => clearTimeout(timer);
}

/** @param {string} name */
const path = name => `mappings/${encodeURIComponent(name)}`;

/** @param {Page} page @param {string} name @returns {Promise<any[]>} */
async function samplesOf(page, name) {
	if (!name) return [];
	const found = await page.api.get("samples", { hook: name }).catch(() => null);
	return found?.samples ?? [];
}

/** Shows the page anew. @param {Page} page */
export const reload = page => { if (!page.signal.aborted) dispatchEvent(new HashChangeEvent("hashchange")); };

/** The reply of a run as text. @param {any} run */
const replyText = run => run.reply == null ? "" : typeof run.reply === "string" ? run.reply : JSON.stringify(run.reply, null, 2);

/** A problem that needs no server. @param {Field} one */
function local(one) {
	const text = one.value().trim();
	if (one.control.classList.contains("json") && text && !isObject(text)) return "must be a JSON object";
	if (one.control.getAttribute("inputmode") === "numeric" && text && !/^\d{1,9}$/.test(text)) return "must be a whole number of seconds";
	return undefined;
}

/**
 * Asks before the page is left with changes that are not saved.
 * @param {Page} page @param {() => boolean} changed
 */
export function guard(page, changed) {
	addEventListener("beforeunload", event => { if (changed()) event.preventDefault(); }, { signal: page.signal });
	document.addEventListener("click", event => {
		const link = event.target instanceof Element ? event.target.closest("a[href^='#/']") : null;
		if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey || !changed()) return;
		event.preventDefault();
		event.stopPropagation();
		ask({ title: "Leave without saving?", text: "What was changed here is lost.", yes: "Leave", no: "Stay", danger: true, act: () => { location.hash = link.hash; } });
	}, { capture: true, signal: page.signal });
}

/** @param {any} about @param {boolean} locked @returns {Field[]} */
function makeFields(about, locked) {
	/** @type {Field[]} */
	const all = [];
	/**
	 * @param {string} name @param {string} label @param {Control} control @param {import("./dom.js").Child} [hint]
	 * @param {{read?: (raw: string | undefined) => string, write?: (text: string) => string | undefined}} [how]
	 */
	const add = (name, label, control, hint, { read = raw => raw === undefined ? "" : String(JSON.parse(raw)), write = text => text === "" ? undefined : JSON.stringify(text) } = {}) => {
		control.id = `field-${name}`;
		control.disabled = locked;
		const check = control instanceof HTMLInputElement && control.type === "checkbox" ? control : null;
		const said = el("span", { class: "wrong", id: `${control.id}-wrong`, hidden: true });
		const box = check ? el("div", { class: "field" }, el("label", { class: "check" }, check, label), hint && el("span", { class: "hint" }, hint)) : field(label, control, hint);
		box.append(said);
		const described = control.getAttribute("aria-describedby") ?? "";
		/** @type {string | undefined} */
		let raw;
		let first = "";
		const value = () => check ? check.checked ? "true" : "" : control.value;
		all.push({
			name, control, box, value,
			set: text => {
				raw = text;
				const words = read(raw);
				if (control instanceof HTMLSelectElement && ![...control.options].some(option => option.value === words)) control.append(el("option", { value: words }, words));
				if (check) check.checked = words === "true";
				else control.value = words;
				if (name === "hmacSecret") control.setAttribute("placeholder", raw ? "•••• is set; leave blank to keep it" : "");
				first = value();
			},
			json: () => value() === first ? raw : write(value()),
			wrong: text => {
				said.hidden = !text;
				put(said, text && [icon("warn"), text]);
				if (text) control.setAttribute("aria-invalid", "true");
				else control.removeAttribute("aria-invalid");
				control.setAttribute("aria-describedby", `${described} ${text ? said.id : ""}`.trim());
				if (!control.getAttribute("aria-describedby")) control.removeAttribute("aria-describedby");
			},
		});
	};
	const text = (/** @type {import("./dom.js").Attributes} */ more = {}) => el("input", { type: "text", spellcheck: "false", autocomplete: "off", autocapitalize: "none", ...more });
	const area = (/** @type {import("./dom.js").Attributes} */ more) => el("textarea", { spellcheck: "false", ...more });
	const pick = (/** @type {[string, string][]} */ options) => el("select", null, options.map(([value, words]) => el("option", { value }, words)));
	const box = () => el("input", { type: "checkbox" });
	const seconds = () => text({ inputmode: "numeric" });
	const json = (/** @type {number} */ rows) => area({ rows, class: "json" });
	const number = { write: (/** @type {string} */ value) => /^\d{1,9}$/.test(value.trim()) ? String(Number(value)) : undefined };
	const flag = { write: (/** @type {string} */ value) => value || undefined };
	const raw = { read: (/** @type {string | undefined} */ value) => value === undefined ? "" : indented(value), write: (/** @type {string} */ value) => isObject(value) ? value.trim() : undefined };
	const tiers = (about.tiers ?? []).map((/** @type {string} */ tier) => [tier, tier]);
	const presets = (about.memoryPresets ?? []).map((/** @type {string} */ preset) => [preset, preset]);
	const channels = (about.channels ?? []).map((/** @type {any} */ one) => [one.name, one.kind ? `${one.name} (${one.kind})` : one.name]);

	add("name", "Name", text({ maxlength: 64 }), "Letters, digits, dots, dashes and underscores. It is the end of the URL, and stays as it is.");
	add("action", "Action", pick([["wake", "wake, an acknowledgement only"], ["agent", "agent, a full turn"]]), null, { read: value => value === undefined ? "wake" : JSON.parse(value) });
	add("authMode", "Callers prove themselves by", pick([["bearer", "token"], ["hmac", "signature (HMAC-SHA256)"]]), null, { read: value => value === undefined ? "bearer" : JSON.parse(value) });
	add("hmacHeader", "Header", text());
	add("hmacPrefix", "Prefix", text());
	add("hmacSecret", "Secret", text(), null, { read: () => "" });
	add("messageTemplate", "Message", area({ rows: 8 }), ["Placeholders: ", el("code", null, "{issue.title}"), ", ", el("code", null, "{labels[0].name}"), ", ", el("code", null, "{$.a.b}"), ". Blank: the body as it is."]);
	add("chatId", "Chat", text(), "Runs of one chat are carried out one after the other. May have placeholders. Blank: webhook:default for wake, a new chat for every run of an agent hook.");
	add("model", "Model tier", pick([["", "the runner's own"], ...tiers]));
	add("memoryPreset", "Memory", pick([["", "as in the settings"], ...presets]));
	add("timeoutSeconds", "Time limit of a run, in seconds", seconds(), `Blank: as in the settings.${about.maxTimeoutSeconds ? ` At most ${duration(about.maxTimeoutSeconds)}.` : ""}`, number);
	add("queueTimeSeconds", "Longest wait in the queue, in seconds", seconds(), about.queueTimeSeconds ? `Blank, and at most: ${duration(about.queueTimeSeconds)}.` : null, number);
	add("syncResponse", "Wait for the run, and answer with the reply", box(), null, flag);
	add("responseJsonSchema", "JSON Schema of the reply (Draft 2020-12)", json(8), "Blank: the reply is text.", raw);
	add("responseValidationModelTier", "Model tier with a schema", pick([["", "as above"], ...tiers]));
	add("callbackUrl", "Callback URL", text({ inputmode: "url" }), "The reply is posted there. Blank: nowhere.");
	add("deliver", "Send the reply to a channel", box(), channels.length ? null : "No channel is configured here.", flag);
	add("channel", "Channel", pick([["", "choose …"], ...channels]));
	add("to", "To", text(), "The chat or address on the channel.");
	add("idempotencyHeader", "Header with the sender's id of a request", text(), "A second request with the same id starts no second run. Blank: Idempotency-Key or webhook-id.");
	add("untrusted", "Values from the payload", pick([["", "inserted as they are"], ["wrap", "marked as outside text"]]), "Messages of wake hooks are always marked as a whole.");
	add("historySeconds", "Keep what a run was told, in seconds", seconds(), "0: not at all. Blank, and at most: as in the settings.", number);
	add("metadata", "Metadata (a JSON object)", json(4), "The runner gets it with every message.", raw);
	return all;
}
