// @ts-check
// The editor of one hook: its fields, the message that a payload makes, and a way to try it.
import { ApiError } from "./api.js";
import { ask, attempt, badge, button, codeLine, copyButton, el, errorNote, head, icon, longText, messageOf, mono, muted, note, panel, put, since, spring } from "./dom.js";
import { makeFields } from "./fields.js";
import { pauseButton } from "./pauses.js";
import { list, object, parts } from "./rawjson.js";
import { ago, capital, clock, count, duration, isOpen, size, took } from "./words.js";

/** @typedef {import("./fields.js").Field} Field */

const json = { "Content-Type": "application/json" };
// For the page of a hook that was just added: the secret that was just made, and what the server warned of.
let fresh = "", advice = /** @type {string[]} */ ([]);

export const pinnedWhy = "Set in Caddy's configuration: change it there.";

const quoted = (text = "") => `'${text.replaceAll("'", "'\\''")}'`;
const hookURL = (/** @type {any} */ about, name = "") => `${about.urls?.[0] ?? `https://<your site>${about.path}`}/${name}`;

/** A request as a line for a shell. An empty header is the token. @param {any} about */
export const curl = (about, name = "", body = "", headers = ["Content-Type: application/json", ""], to = hookURL(about, name)) =>
	`curl ${quoted(to)}${headers.map(header => ` -H ${header ? quoted(header) : '"Authorization: Bearer $HOOKS_TOKEN"'}`).join("")} --data-raw ${quoted(body)}`;

const pathOf = (name = "") => `mappings/${encodeURIComponent(name)}`;

/** When each secret of a hook was last used, or each token for "". @param {Page} page @returns {Promise<(HTMLElement | DocumentFragment)[]>} */
export async function lastUses(page, hook = "") {
	const answer = await page.api.get("tokens", {}, page.signal).catch(() => null); // the page is whole without it
	return list(answer?.tokens).filter(one => (one.hook ?? "") === hook).map(one => muted(one.lastUsedAt ? ["last used ", since(one.lastUsedAt)] : "not used yet"));
}

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
	const lost = (/** @type {unknown} */ error) => { put(page.main, head(from), errorNote(error), el("p", "A hook that is saved but not in force is listed under ", el("a", { href: page.link("settings") }, "Webhooks"), ", with the reason.")); };
	const [about, answer, recent, kept] = await Promise.all([page.about(), from ? api.request("GET", pathOf(from)).catch(lost) : null, name ? api.get("samples", { hook: name }).catch(() => null) : null, name ? api.get("refused/requests", { hook: name, limit: 200 }, signal).catch(() => null) : null]);
	if (answer === undefined) return;
	let samples = list(recent?.samples);
	const pinned = name !== "" && answer?.data.pinned === true, locked = pinned || readOnly;
	const why = pinned ? pinnedWhy : page.readOnlyWhy;

	/** What is saved, member by member as JSON. */
	let saved = parts(""), etag = "", before = "", tried = false, gone = false;
	const fields = makeFields(about, locked);
	const of = (key = "") => /** @type {Field} */ (fields.get(key));
	const value = (key = "") => of(key).value();
	const scheme = () => list(about.schemes).find(one => one.name === value("authMode")) ?? { fields: [] }, isAuth = (key = "") => list(about.schemes).some(one => one.fields.includes(key));
	const [verify, ...secrets] = ["verifyToken", "hmacSecret", "authSecret"].map(key => /** @type {import("./fields.js").SecretsField} */ (fields.get(key))), lines = ["only", "skip"].map(key => /** @type {[string, import("./fields.js").Lines]} */ ([key, fields.get(key)]));
	const trouble = el("div"), conflict = el("div"), warned = el("div.stack", { "aria-live": "polite" }), url = el("div");

	/** A sentence of the server, with the labels of fields instead of their names in JSON. */
	const worded = (text = "") => capital(text.replace(/ \(\w+ in a Caddyfile\)/g, "").replace(/^\w+|\b[a-z]+[A-Z]\w*/g, key => fields.get(key === "template" ? "messageTemplate" : key)?.label ?? key));
	const warn = (texts = [""]) => put(warned, texts.map(text => el("div.says.late", icon("warn"), el("span", worded(text)))));
	/** The mapping as JSON. */
	function body() {
		/** @type {Map<string, string | undefined>} */
		const all = new Map(saved);
		for (const [key, one] of fields) all.set(key, isAuth(key) && !scheme().fields.includes(key) ? undefined : one.json());
		if (name) all.set("name", JSON.stringify(name));
		return object(all);
	}
	const changed = () => !gone && body() !== before;
	function fill(text = "", tag = "") {
		saved = parts(text);
		etag = tag;
		for (const key of name ? ["pinned", "warnings"] : ["pinned", "warnings", "name", "hmacSecret", "authSecret", "verifyToken"]) saved.delete(key);
		reset();
		if (name) lastUses(page, name).then(uses => { for (const one of secrets) one.used(uses); });
	}
	function reset() {
		for (const [key, one] of fields) one.set(saved.get(key));
		before = body();
		put(conflict);
		react();
	}

	const noHeader = () => value("authMode") === "hmac" && !value("hmacHeader") ? "Header must name the header that carries the signature" : "";

	// The form
	const header = el("div.row-21", of("hmacHeader").box, of("hmacPrefix").box), issued = ["oidcIssuer", "oidcAudience", "oidcClaims"];
	const proof = el("div.form", header, issued.map(key => of(key).box), secrets.map(one => one.box), verify?.box);
	const fold = (label = "", names = [""], words = () => /** @type {(string | false)[]} */ ([])) => {
		const sum = el("span.muted");
		const node = el("details.more", el("summary", label, sum), el("div.form", names.map(key => of(key).box)));
		return { node, used: () => names.some(value), draw: () => put(sum, node.querySelector(".wrong:not([hidden])") ? el("span.bad-text", icon("warn"), " has a mistake") : words().filter(Boolean).join(" · ")) };
	};
	const span = (key = "", label = "") => value(key) && !of(key).fault() && `${label} ${duration(Number(value(key)))}`;
	const isShown = (key = "") => scheme().fields.includes(key), usualTolerance = el("span.hint");
	of("authTolerance").box.append(usualTolerance);
	const conditions = () => ["only", "skip"].flatMap(key => value(key) ? value(key).split("\n") : []).length;
	const out = fold("Send the answer out", ["callbackUrl", "deliver", "channel", "to", "progress"], () => [value("deliver") && `channel ${value("channel")}, to ${value("to")}`, value("callbackUrl") && "callback", !value("deliver") && !value("callbackUrl") && "nowhere"]);
	const folds = [
		fold("Which requests count", ["only", "skip", "each", "body", "maxPayloadSize"], () => [conditions() ? count(conditions(), "condition") : !value("each") && "all", value("each") && "a run for each match", value("body") && ({ auto: "JSON or form", cloudevents: "CloudEvents" }[value("body")] || "form"), value("maxPayloadSize") && `up to ${value("maxPayloadSize")}`]),
		fold("Who may call", ["from", "authHeader", "algorithm", "keyEncoding", "signed", "timestampHeader", "timestampFormat", "authTolerance", "oidcKeys"], () => [value("from") ? `from ${value("from")}` : "any address", isShown("algorithm") && value("algorithm"), isShown("signed") && value("signed") && "signed parts", isShown("authTolerance") && span("authTolerance", "within")]),
		fold("Batching and rate limits", ["once", "onceSeconds", "overlap", "foldSeconds", "foldMax", "foldLatest", "rate", "rateByLimit", "rateBy", "budgets", "workers"], () => [value("once") && "once", value("overlap"), span("foldSeconds", "folded for"), value("rate") && `at most ${value("rate")}`, value("rateBy") && `${value("rateByLimit")} by value`, value("budgets") && "with a budget", value("workers") && `${value("workers")} at once`, !["once", "overlap", "foldSeconds", "rate", "rateBy", "budgets", "workers"].some(value) && "a turn for each run"]),
		fold("Answer to the caller", ["syncResponse", "respondStatus", "respondBody"], () => [value("syncResponse") ? value("responseJsonSchema") ? "JSON by a schema" : "the answer" : value("respondStatus") || (value("action") === "wake" ? "200" : `${scheme().successStatus || 202} and a run id`), value("respondBody") && "a text of its own"]),
		fold("Answer schema", ["responseJsonSchema", "responseValidationModelTier"], () => [value("responseJsonSchema") ? "JSON" : "none"]),
		fold("Model and memory", ["model", "runner", "memoryPreset", "timeoutSeconds", "queueTimeSeconds"], () => [value("model") || "default model", value("runner") && `runner ${value("runner")}`, value("memoryPreset"), span("timeoutSeconds", "at most"), span("queueTimeSeconds", "waits")]),
		out,
		fold("Approval", ["ask"], () => [value("ask") ? "somebody is asked" : "nobody is asked"]),
		fold("Repeats, outside text, history", ["idempotencyHeader", "untrusted", "historySeconds", "metadata"], () => [value("idempotencyHeader"), value("action") === "wake" ? "message marked" : value("untrusted") ? "values marked" : "values as they are", value("historySeconds") === "0" ? "no history" : span("historySeconds", "history"), value("metadata") && "metadata"]),
	];
	const sync = /** @type {HTMLInputElement} */ (of("syncResponse").control);
	of("responseJsonSchema").control.addEventListener("input", () => { sync.checked ||= Boolean(value("responseJsonSchema").trim()); }); // a schema is for a caller that waits
	const saveButton = el("button", { type: "submit", class: "primary", disabled: locked, title: why || null }, name ? "Save" : "Add the hook");
	const undo = button("Undo", () => { put(trouble); for (const one of [verify, ...secrets]) one?.show(); reset(); }), state = muted();
	const form = el("form.panel", { novalidate: true, input: () => react(), submit: (/** @type {Event} */ event) => { event.preventDefault(); save(); } },
		el("div.body.form", el("div.field", el("span.label", "URL"), url), !name && of("name").box,
			el("div.row-2", of("action").box, of("authMode").box), proof, of("messageTemplate").box, of("chatId").box, el("div", folds.map(one => one.node)), warned),
		el("div.save-bar", saveButton, undo, state));

	/** Brings everything up to date that depends on the fields. */
	function react() {
		const dirty = changed(), called = name || value("name");
		for (const key of fields.keys()) if (isAuth(key)) of(key).box.hidden = !isShown(key);
		for (const one of secrets) one.from(scheme().theirs ? scheme().title : "");
		header.hidden = !isShown("hmacHeader");
		proof.hidden = !["hmacHeader", "hmacSecret", "authSecret", ...issued].some(isShown);
		put(usualTolerance, `Blank: ${duration(scheme().toleranceSeconds)}.`);
		for (const key of ["channel", "to"]) of(key).box.hidden = !value("deliver");
		of("syncResponse").box.hidden = value("action") === "wake" && !value("syncResponse"); // wake ignores it
		for (const key of ["model", "responseValidationModelTier"]) of(key).box.hidden = !list(about.tiers).length && !value(key);
		for (const [key, needs] of [["foldMax", "foldSeconds"], ["foldLatest", "foldSeconds"], ["onceSeconds", "once"], ["rateBy", "rateByLimit"]]) of(key).box.hidden = !value(needs) && !value(key);
		of("runner").box.hidden = list(about.runners).length < 2 && !value("runner");
		for (const one of folds) one.draw();
		out.node.hidden = value("action") === "wake" && !out.used();
		put(url, called ? codeLine(hookURL(about, called), "Copy the URL") : muted("It ends with the name of the hook."));
		undo.disabled = !dirty;
		test.disabled = readOnly || !name || dirty;
		test.title = page.readOnlyWhy || (test.disabled ? "Save first: a test uses what is saved." : "");
		put(state, why || (dirty ? "Not saved yet." : "Takes effect on the next request."));
		later();
	}

	// Preview and payload
	const preview = el("pre"), told = el("p.small", { "aria-live": "polite" }), chat = muted(), verdict = el("div.value"), lately = el("div"), together = el("div");
	const payload = el("textarea", { rows: 12, spellcheck: "false", "aria-label": "Payload", input: () => { source.value = "pasted"; later(); } });
	const headers = el("textarea", { rows: 4, spellcheck: "false", "aria-label": "Headers and query", placeholder: "X-GitHub-Event: issues", input: () => { source.value = "pasted"; later(); } });
	const source = el("select", { "aria-label": "Take a payload", change: () => take() });
	const offer = () => put(source, samples.map((sample, i) => el("option", { value: i }, `Recent: ${ago(sample.at)}, ${size(sample.bytes)}`)),
		el("option", { value: "example" }, "Example"), el("option", { value: "pasted" }, "Pasted"),
		list(kept?.requests).map(one => el("option", { value: one.id }, `${one.ignored ? "Ignored" : "Refused"}: ${ago(one.at)}, ${one.status}, ${size(one.size)}`)));
	offer();
	/** Shows a recent request, which may have come since the page was opened. */
	const showRecent = (at = "") => attempt(trouble, async () => {
		if (!samples.some(one => one.at === at)) samples = list((await api.get("samples", { hook: name }, signal)).samples);
		offer();
		const i = samples.findIndex(one => one.at === at);
		source.value = String(Math.max(0, i));
		take();
	});
	let origin = ["", ""]; // as it is shown, and as it came: a text area turns every line end into \n
	const payloadText = () => payload.value === origin[0] ? origin[1] : payload.value;
	function take() {
		if (source.value === "pasted") return payload.select();
		if (source.value.length > 9) return takeRefused(source.value);
		if (source.value !== "example") fillIn(samples[Number(source.value)]);
		later();
	}
	/** Tries a request that became no run, without its secrets. */
	const takeRefused = (id = "") => attempt(trouble, async () => {
		const { payload, query, headers, cut, unread } = await api.get(`refused/requests/${id}`, {}, signal);
		fillIn({ payload, query, headers: Object.fromEntries(Object.entries(headers).filter(([, values]) => !values.includes("••••"))) });
		if (cut || unread) put(trouble, note("late", cut ? "Of this request only the beginning of the body is kept." : "Of this request no body is kept."));
		later();
	});
	const lineUp = (/** @type {Record<string, string[]>} */ all) => Object.entries(all).flatMap(([key, values]) => list(values).map(one => `${key}: ${one}`));
	/** Shows a request. @param {{payload: string, query: string, headers: Record<string, string[]>}} request */
	function fillIn(request) {
		payload.value = request.payload;
		origin = [payload.value, request.payload];
		headers.value = [request.query && `?${request.query}`, ...lineUp(request.headers)].filter(Boolean).join("\n");
	}
	/** What is beside the payload: a line "?a=b" is the query, and others are headers. */
	function beside() {
		/** @type {Record<string, string[]>} */
		const all = {};
		let query = "";
		for (const line of headers.value.split("\n")) {
			const [, key, one] = /^([^:\s]+)\s*:(.*)$/.exec(line) ?? [];
			if (key) (all[key] ??= []).push(one.trim());
			else if (line.startsWith("?")) query = line.slice(1).trim();
		}
		return { headers: all, query };
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
			// Without a payload, the server makes an example of what the sender of this hook sends.
			const request = source.value === "example" ? "" : `,"payload":${JSON.stringify(payloadText())},"headers":${JSON.stringify(beside().headers)},"query":${JSON.stringify(beside().query)}`;
			const { data } = await api.request("POST", "preview", { body: `{"mapping":${body()}${request}}`, headers: json, signal });
			if (data.request && source.value === "example") fillIn(data.request);
			drawPreview(data);
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
		put(chat, data.chatId && ["chat ", mono(data.chatId)], data.chatId && data.to && ", ", data.to && ["answer to ", mono(`${data.channel} ${data.to}`)]);
		for (const { field: key, message } of list(data.problems)) {
			const known = key === "template" ? "messageTemplate" : key;
			if (!fields.has(known) || known === "name" && name) rest.push(message);
			else if (!at.has(known)) at.set(known, worded(message));
		}
		if (noHeader()) at.set("hmacHeader", noHeader()); // the server looks at the secret first
		for (const [key, one] of lines) {
			const checks = list(data.conditions).filter(check => check.field === key);
			if (checks.some(check => check.error)) at.delete(key); // it stands at its line
			one.tell(checks);
		}
		for (const [key, one] of fields) one.wrong(name || tried || value(key).trim() || key === "hmacHeader" ? at.get(key) ?? one.fault() : "");
		for (const one of folds) one.draw();
		const missing = new Set(pieces.filter(piece => piece.missing).map(piece => piece.placeholder));
		put(told, data.missing ? [el("span.ins.missing", "<missing>"), ` ${data.missing} of ${count(n, "placeholder")} ${data.missing === 1 ? "is" : "are"} not in this payload: `, el("code", [...missing].join(", "))]
			: n > 0 && `${n === 1 ? "The placeholder is" : `All ${n} placeholders are`} in this payload.`, rest.map(text => el("span.bad-text", ` ${worded(text)}`)));
		put(verdict, outcome(data));
		drawLately(list(data.samples));
		put(together, data.folded && el("details.small", { open: together.querySelector("details")?.open }, el("summary", "Several runs in one turn"), el("div.text", { tabindex: "0", role: "region", "aria-label": "Folded message" }, el("pre", data.folded))));
		if (data.warnings) warn(data.warnings);
	}
	/** What would become of a request. @param {{ignored?: string, runs: number, problem?: string}} one */
	const outcome = one => one.ignored ? [badge("late", "ignored"), muted(mono(one.ignored))] : one.problem ? [badge("bad", "refused"), muted(one.problem)]
		: one.runs > 1 && badge("ok", `${one.runs} runs, the first is shown`);
	/** What would have become of the last requests. @param {any[]} all */
	function drawLately(all) {
		const left = all.filter(one => one.ignored).length, refused = all.filter(one => one.problem).length;
		put(lately, all.length > 0 && (conditions() > 0 || value("each") || refused > 0) && el("details.small", { open: lately.querySelector("details")?.open }, el("summary", left || !refused ? `Would have ignored ${left} of the last ${all.length} requests` : "", left && refused ? ", and " : "", refused > 0 && `${left ? "" : "Would have "}refused ${refused}${left ? "" : ` of the last ${all.length} requests`}`),
			el("ul.folds", all.map((one, i) => el("li.value", since(one.at), outcome(one) || badge("ok", "a run"), spring(), button("Show", () => showRecent(one.at), { class: "small", "aria-label": `Show request ${i + 1}` }))))));
	}

	// Try it
	const signature = el("div.stack"), result = el("div.stack", { "aria-live": "polite" });
	const test = button("Send a test", async () => {
		test.disabled = true;
		await attempt(result, async () => {
			watched = (await api.post(`${path}/test`, payloadText(), parameters())).runId;
			drawRun();
		}, "Not sent");
		react();
	}, { class: "small primary" });
	/** How the server is told of headers and query. */
	const parameters = () => ({ headers: lineUp(beside().headers).join("\n"), query: beside().query });
	let signedKey = "";
	/** Shows how the payload is sent, with its signature where the saved hook has a secret to sign with. */
	async function sign() {
		const text = payloadText(), request = parameters(), by = list(about.schemes).find(one => JSON.stringify(one.name) === (saved.get("authMode") ?? '"bearer"')) ?? {};
		if (!name || by.signs && readOnly) return void put(signature, muted(name ? page.readOnlyWhy : "Save the hook to try it here."));
		const key = etag + text + JSON.stringify(request);
		if (signedKey === key) return;
		signedKey = key;
		await attempt(signature, async () => {
			const signed = by.signs ? await api.post(`${path}/sign`, text, request) : {}, made = list(signed.headers).map(one => `${one.name}: ${one.value}`), shared = by.name === "bearer";
			const names = made.map(header => header.split(":")[0].toLowerCase()), others = Object.entries(beside().headers).filter(([header]) => !names.includes(header.toLowerCase()));
			if (!others.some(([header]) => /^content-type$/i.test(header))) others.unshift(["Content-Type", [text.trim() && !/^\s*[[{"]/.test(text) ? "application/x-www-form-urlencoded" : value("body") === "cloudevents" && !others.some(([header]) => /^ce-/i.test(header)) ? `application/cloudevents${/^\s*\[/.test(text) ? "-batch" : ""}+json` : "application/json"]]);
			put(signature, made.map(header => codeLine(header, `Copy ${header.split(":")[0]}`)), (shared || made.length > 0) && el("div", copyButton(curl(about, name, text, [...lineUp(Object.fromEntries(others)), ...shared ? [""] : made], signed.url || hookURL(about, name) + (request.query && `?${request.query}`)), "Copy as a curl command", { class: "small" })),
				muted(made.length ? "Signed with the saved secret, which stays on the server. " : shared ? "Callers send the token of the settings. " : "There is no credential to show here. ", "A test is a real run in the chat ", mono(`test:${name}`), "; nothing is sent out."));
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
			fresh = secrets.map(one => one.made()).find(Boolean) ?? "";
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
	const force = el("span"), drawForce = (on = false) => put(force, name && (on ? badge("ok", "in force") : badge("late", "webhooks are off")));
	drawForce(about.on);
	page.on("settings", async ({ by }) => {
		page.about().then(now => drawForce(now.on)).catch(() => {}); // it stays as it was
		const now = name && !gone && await api.request("GET", path, { signal }).catch(() => null);
		if (!now || now.etag === etag || saveButton.disabled && !locked) return;
		if (changed()) put(conflict, clash(`This hook was changed by ${by || "somebody else"} at ${clock(Date.now())}.`, load, () => { etag = now.etag; }));
		else fill(now.text, now.etag);
	});
	page.guard(changed);

	put(page.main, el("div.crumbs", el("a", { href: page.link("settings") }, "Webhooks"), " / Hooks"),
		el("div.head", el("h1", name || "New hook"), force, spring(), name && [pinned && el("span.lock", icon("lock"), "Caddyfile"), pauseButton("hook", name), !readOnly && el("a.button", { href: page.link("settings/hooks", { copy: name }) }, icon("copy"), "Copy"),
			button("Delete", () => askDelete(page, name, etag, () => { gone = true; page.go("settings"); }), { class: "danger", disabled: locked, title: why || null })]),
		why && note("late", why),
		el("div.editor", el("div.stack", trouble, conflict, form), el("div.stack",
			panel("Preview", el("div.body.stack", verdict, el("div.text", { tabindex: "0", role: "region", "aria-label": "Message" }, preview), told, together, lately), chat),
			panel("Payload", el("div.body.stack", payload, el("details.small", el("summary", "Headers and query"), headers, muted("A line that begins with ? is the query. Headers that may hold a secret are not kept."))), source),
			panel("Try it", el("div.body.stack", signature, result), test))));
	fill(answer?.text, name && answer ? answer.etag : "");
	const wanted = page.params.get("refused") ?? "";
	if (list(kept?.requests).some(one => one.id === wanted)) {
		source.value = wanted;
		verdict.scrollIntoView({ block: "center" });
	}
	take();
	for (const one of secrets) one.show(fresh);
	warn(advice);
	if (!name) of("name").control.focus();
	signal.addEventListener("abort", () => { if (name || !gone) [fresh, advice] = ["", []]; });
}
