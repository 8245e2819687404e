// @ts-check
// The fields of the editor of a hook. What is not touched stays as it was, to the last digit.
import { button, codeLine, el, field, icon, mono, muted, put, spring } from "./dom.js";
import { indented, isObject, list } from "./rawjson.js";
import { reference } from "./reference.js";
import { duration, exactSize } from "./words.js";

/** @typedef {ReturnType<typeof makeField>} Field */
/** @typedef {ReturnType<typeof makeLines>} Lines */
/** @typedef {ReturnType<typeof makeSecrets>} SecretsField */

const mask = "••••";

/** 32 bytes, in a form that needs no quotes anywhere. */
export const randomSecret = () => Array.from(crypto.getRandomValues(new Uint8Array(32)), byte => byte.toString(16).padStart(2, "0")).join("");

const text = (more = {}) => el("input", { type: "text", spellcheck: "false", autocomplete: "off", autocapitalize: "none", ...more });

/** How a value is shown, and how it is read, by the kind of a field. @type {Record<string, {show?: (json: string) => string, read?: (text: string) => string, fault?: (text: string) => string | false}>} */
const kinds = {
	objects: { show: indented, read: text => text, fault: text => !(/^\s*\[/.test(text) && isObject(`{"list":${text}}`)) && "must be a JSON list" },
	json: { show: indented, read: text => text, fault: text => !isObject(text) && "must be a JSON object" },
	seconds: { read: text => text, fault: text => !/^(0|[1-9]\d{0,8})$/.test(text) && "must be a whole number of seconds" },
	number: { read: text => text, fault: text => !/^[1-9]\d{0,8}$/.test(text) && "must be a whole number from 1 on" },
	flag: { read: text => text },
	size: { show: json => /^\d+$/.test(json) ? exactSize(Number(json)) : JSON.parse(json) },
	list: { show: json => JSON.parse(json).join(" "), read: text => JSON.stringify(text.split(/[\s,]+/)) },
};

/**
 * What all kinds of fields have in common.
 * @param {string} name in JSON @param {HTMLElement} control that gets the focus @param {HTMLElement} box @param {string} label
 * @param {{value: () => string, show: (json: string | undefined) => void, read: () => string | undefined, fault?: () => string}} how
 */
function make(name, control, box, label, { value, show, read, fault = () => "" }) {
	const said = el("span.wrong", { id: `field-${name}-wrong`, hidden: true }), short = label.replace(/[,(].*/, "").trim();
	box.append(said, reference("hook", name, short));
	control.setAttribute("aria-describedby", `${control.getAttribute("aria-describedby") ?? ""} ${said.id}`.trim());
	/** @type {string | undefined} */
	let raw;
	let first = "", refused = ["", ""]; // a value, and what the server said of it
	const one = {
		control, box, label: short, value,
		set: (/** @type {string | undefined} */ json) => {
			show(json);
			raw = json;
			first = value();
			refused = ["", ""];
			one.wrong("");
		},
		json: () => value() === first ? raw : !value().trim() || one.fault() ? undefined : read(),
		/** What is wrong with it, as far as that needs no server. */
		fault,
		wrong: (text = "") => {
			text ||= value() === refused[0] ? refused[1] : "";
			said.hidden = !text;
			put(said, icon("warn"), el("span", text));
			control.setAttribute("aria-invalid", String(Boolean(text)));
		},
		refuse: (text = "") => {
			refused = [value(), text];
			one.wrong();
			const fold = box.closest("details");
			if (fold) fold.open = true;
			box.scrollIntoView({ block: "center" });
			control.focus({ preventScroll: true });
		},
	};
	return one;
}

/**
 * A field with one value.
 * @param {string} name in JSON @param {string} label @param {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} control @param {Child} [hint]
 */
function makeField(name, label, control, hint) {
	control.id = `field-${name}`;
	const check = control instanceof HTMLInputElement && control.type === "checkbox" ? control : null;
	const { kind = check ? "flag" : "", usual = "" } = control.dataset, { show, read, fault } = kinds[kind] ?? {};
	const value = () => check ? check.checked ? "true" : "" : control.value;
	const one = make(name, control, check ? el("div.field", el("label.check", check, label), hint && el("span.hint", hint)) : field(label, control, hint), label, {
		value,
		show: json => {
			const text = json === undefined ? usual : show ? show(json) : String(JSON.parse(json));
			if (control instanceof HTMLSelectElement && ![...control.options].some(option => option.value === text)) control.append(el("option", text));
			if (check) check.checked = text === "true";
			else control.value = text;
		},
		read: () => read ? read(value().trim()) : JSON.stringify(value()),
		fault: () => {
			const said = value().trim() && fault?.(value().trim());
			return said ? `${one.label} ${said}` : "";
		},
	});
	return one;
}

/**
 * Several lines, with a blank one at their end to go on with.
 * @param {string} name @param {string} label @param {string} sample @param {Child} hint
 */
function makeLines(name, label, sample, hint) {
	const rows = el("div.lines"), id = `field-${name}`;
	const inputs = () => /** @type {HTMLInputElement[]} */ ([...rows.querySelectorAll("input")]), filled = () => inputs().filter(input => input.value.trim());
	function add(line = "") {
		const n = rows.children.length, said = el("span.said", { id: `${id}-${n}-said` });
		const input = text({
			id: `${id}-${n}`, value: line, class: "mono", placeholder: n ? null : sample, "aria-label": n ? `${label}, line ${n + 1}` : null, "aria-describedby": `${said.id} ${id}-hint`,
			input: () => { put(said); if (input === inputs().at(-1)) add(); },
			change: () => { if (!input.value.trim() && input !== inputs().at(-1)) fill(filled().map(other => other.value)); },
		});
		input.disabled = rows.classList.contains("locked");
		rows.append(el("div", input, said));
	}
	const fill = (lines = [""]) => { put(rows); for (const line of lines) add(line); if (!lines.length || !rows.classList.contains("locked")) add(); };
	const value = () => filled().map(input => input.value.trim()).join("\n");
	const box = el("div.field", el("label", { for: `${id}-0` }, label), rows, el("span.hint", { id: `${id}-hint` }, hint));
	const one = make(name, rows, box, label, {
		value, show: json => fill(list(json && JSON.parse(json))), read: () => JSON.stringify(value().split("\n")),
	});
	return Object.assign(one, {
		/** What the server says of each line: what is wrong with it, or whether it holds. @param {{error?: string, holds?: boolean}[]} checks */
		tell: checks => filled().forEach((input, i) => {
			const { error, holds } = checks[i] ?? {}, said = rows.querySelector(`#${input.id}-said`);
			input.setAttribute("aria-invalid", String(Boolean(error)));
			if (said) put(said, error ? el("span.wrong", icon("warn"), el("span", error)) : holds !== undefined && muted(holds ? "holds for this payload" : "does not hold for this payload"));
		}),
		lock: () => { rows.classList.add("locked"); },
	});
}

/**
 * Secrets, of which the page knows only how many there are. A new one works beside the old ones.
 * @param {string} name @param {boolean} locked
 */
function makeSecrets(name, locked, label = "Secret") {
	/** Whether each of those that are saved stays. @type {boolean[]} */
	let kept = [];
	/** When each of them was last used. @type {Child[]} */
	let uses = [];
	let theirs = "", made = "";
	const input = text({ id: `field-${name}`, disabled: locked, input: () => { if (input.value !== made) made = ""; draw(); } }), old = el("ul.tokens"), fresh = el("div.stack"), changed = () => input.dispatchEvent(new Event("input", { bubbles: true }));
	const generate = button("Generate", () => { made = input.value = randomSecret(); changed(); }, { disabled: locked });
	const box = field(label, el("div.with-button", input, generate));
	box.querySelector("label")?.setAttribute("for", input.id);
	box.append(fresh, old);
	function draw() {
		const stay = kept.filter(Boolean).length;
		input.placeholder = stay ? `${mask} is set; another works beside it` : "";
		generate.hidden = Boolean(theirs);
		put(fresh, theirs && !stay ? muted(`Paste the secret that ${theirs} shows you.`) : made && [muted("Give this to the sender now. It is shown once."), codeLine(made, "Copy the secret")]);
		put(old, kept.map((stays, i) => el("li", mono(mask), muted(!stays ? "removed when you save" : kept.length > 1 ? `secret ${i + 1}` : "in force"), uses[i], spring(),
			!locked && button(stays ? "Remove" : "Keep", () => { kept[i] = !stays; changed(); }, { class: stays ? "small danger" : "small", "aria-label": `${stays ? "Remove" : "Keep"} secret ${i + 1}` }))));
	}
	const one = make(name, input, box, label, {
		value: () => `${kept.join()} ${input.value}`,
		show: json => {
			kept = json === undefined ? [] : [JSON.parse(json)].flat().map(() => true);
			input.value = "";
			draw();
		},
		// A secret that stays keeps its place; an empty text takes out the one in its place.
		read: () => {
			const all = [...kept.some(Boolean) ? kept.map(stays => stays ? mask : "") : [], ...input.value.trim() ? [input.value.trim()] : []];
			return all.length ? JSON.stringify(all.length > 1 ? all : all[0]) : undefined;
		},
	});
	return Object.assign(one, {
		/** The sender makes the secret, if it has a name. */
		from: (sender = "") => { if (sender !== theirs) { theirs = sender; draw(); } },
		/** The secret that was made just now. */
		made: () => made,
		/** @param {Child[]} told */
		used: told => { uses = told; draw(); },
		/** Shows a secret that was made just now, or forgets it. */
		show: (secret = "") => { made = secret; draw(); },
	});
}

/** All fields of a hook, by their names in JSON. @param {any} about @param {boolean} locked */
export function makeFields(about, locked) {
	/** @type {Map<string, Field>} */
	const all = new Map();
	/** @param {string} name @param {string} label @param {Parameters<typeof makeField>[2]} control @param {Child} [hint] */
	const add = (name, label, control, hint) => {
		control.disabled = locked;
		all.set(name, makeField(name, label, control, hint));
	};
	const area = (rows = 8, kind = "") => el("textarea", { rows, spellcheck: "false", "data-kind": kind });
	const pick = (usual = "", words = "", more = [[""]]) => el("select", { "data-usual": usual }, [[usual, words], ...more].map(([value, label]) => el("option", { value }, label ?? value)));
	const box = () => el("input", { type: "checkbox" }), seconds = () => text({ inputmode: "numeric", "data-kind": "seconds" }), number = () => text({ inputmode: "numeric", "data-kind": "number" });
	const tiers = list(about.tiers).map(tier => [tier]), channels = list(about.channels).map(one => [one.name, `${one.name} (${one.kind})`]);
	const offer = (sender = true) => list(about.schemes).filter(one => /^[A-Z]/.test(one.title) === sender).map(one => el("option", { value: one.name }, one.title));

	add("name", "Name", text({ maxlength: 64 }), "Letters, digits, dots, dashes and underscores. It cannot be changed later.");
	add("action", "Action", pick("wake", "wake, answered at once", [["agent", "agent, a full turn"]]));
	add("authMode", "Authentication", el("select", { "data-usual": "bearer" }, offer(false), el("optgroup", { label: "Senders" }, offer())));
	add("hmacHeader", "Header", text());
	add("hmacPrefix", "Prefix", text());
	all.set("hmacSecret", makeSecrets("hmacSecret", locked));
	all.set("authSecret", makeSecrets("authSecret", locked));
	all.set("verifyToken", makeSecrets("verifyToken", locked, "Verify token"));
	add("authHeader", "Header with the token", text(), "Blank: Authorization or X-Service-Token.");
	add("algorithm", "Algorithm", pick("", "SHA-256", [["sha512", "SHA-512"], ["sha1", "SHA-1, for old senders only"]]));
	add("signed", "What is signed", text({ placeholder: "{@body}" }), ["Such as ", mono("{@header.X-Timestamp}.{@body}"), ". Blank: the body."]);
	add("keyEncoding", "Form of the secret", pick("", "the key itself", [["base64", "the key in base64"]]));
	add("timestampHeader", "Header with the time of the signature", text(), ["Or an entry in the header of the signature, such as ", mono("t="), ". Blank: the time is not checked."]);
	add("timestampFormat", "Form of the time", pick("", "seconds since 1970", [["milliseconds", "milliseconds since 1970"], ["rfc3339", "RFC 3339"]]));
	add("authTolerance", "How old a signature may be, in seconds", seconds());
	add("oidcIssuer", "Issuer", text({ inputmode: "url", placeholder: "https://issuer.example" }), ["Its URL, or ", mono("github-actions"), " or ", mono("google"), "."]);
	add("oidcAudience", "Audience", text({ "data-kind": "list" }), "What tokens must be for. Several are separated by spaces.");
	add("oidcKeys", "URL of the issuer's keys", text({ inputmode: "url" }), "Blank: as its discovery document says.");
	add("from", "Addresses of callers", text({ placeholder: "192.0.2.0/24", "data-kind": "list" }), "Ranges, separated by spaces. Callers from elsewhere are answered 403. Blank: any.");
	for (const [name, label, sample, hint] of [
		["oidcClaims", "Claims", "repository octo/shop", ["What tokens must say: a name, and the values that it may have. A ", mono("*"), " at the end stands for any text."]],
		["only", "Only if", "$.action == 'opened'", ["All of these must hold: an expression on the body, ", mono("header X-GitHub-Event issues"), " or ", mono("query team a b"), "; ", mono("not"), " before it means the opposite."]],
		["skip", "Skip if", "$.sender.type == 'Bot'", "None of these may hold. A request that is ignored is answered 200, and listed under Refused."],
	]) {
		const lines = makeLines(String(name), String(label), String(sample), hint);
		if (locked) lines.lock();
		all.set(String(name), lines);
	}
	add("each", "A run for each match of", text({ placeholder: "$.alerts[?@.status == 'firing']", class: "mono" }), ["Placeholders then address the match, and ", mono("{@root.…}"), " the whole body. Blank: one run for a request."]);
	add("body", "Form of the body", pick("", "JSON", [["form", "form (name=value)"], ["auto", "either, by the Content-Type"], ["cloudevents", "CloudEvents"]]));
	add("maxPayloadSize", "Largest body", text({ "data-kind": "size" }), "Such as 64 KB. Blank: as in the settings.");
	add("foldSeconds", "Wait for more, in seconds", seconds(), "Runs of one chat within that time share one turn. Blank: each run has its own.");
	add("foldMax", "Runs in one turn, at most", number(), "Blank: 100.");
	add("foldLatest", "Tell the turn the newest message alone", box());
	add("once", "One run for each value of", text({ placeholder: "{data.id}", class: "mono" }), "An event with a value that was there starts no second run. Blank: all do.");
	add("onceSeconds", "For how long, in seconds", seconds(), "Blank: a day.");
	add("overlap", "While a run of its chat goes on", pick("", "wait for it", [["skip", "ignore the event"], ["replace", "cancel that run"]]));
	add("rate", "Rate", text({ placeholder: "60/1h" }), ["Such as ", mono("60/1h"), ". Requests beyond that are answered 429. Blank: no limit."]);
	add("rateByLimit", "Rate for each value", text({ placeholder: "3/1h" }), "Counted over all nodes.");
	add("rateBy", "Of which value", text({ placeholder: "{sender.login}", class: "mono" }));
	add("workers", "Runs at once", number(), `Blank: up to ${about.workers}, all workers.`);
	add("respondStatus", "Status of the answer", number(), "From 200 to 299. Blank: 202, or 200 for wake and senders that want it.");
	add("respondBody", "Body of the answer", area(2), "For senders that expect a certain text. Blank: the usual answer.");
	add("messageTemplate", "Message", area(), ["Placeholders: ", mono("{issue.title}"), ", ", mono("{labels[0].name}"), ", ", mono("{@header.X-GitHub-Event}"), ", ", mono('{body | truncate 2000}'), ", ", mono('{user.name | default user.login}'), ". Blank: the body as it is."]);
	add("chatId", "Chat", text(), "Runs of one chat are carried out one after the other. Placeholders are allowed. Blank: webhook:default, or a new chat for every agent run.");
	add("model", "Model tier", pick("", "the runner's own", tiers));
	add("runner", "Runner", pick("", "as configured", list(about.runners).map(one => [one.name, `${one.name} (${one.kind})`])), "As configured: the one for the model tier, or else the default one.");
	add("memoryPreset", "Memory preset", pick("", "as in the settings", list(about.memoryPresets).map(preset => [preset])));
	add("timeoutSeconds", "Time limit of a run, in seconds", seconds(), `Blank: as in the settings. At most ${duration(about.maxTimeoutSeconds)}.`);
	add("queueTimeSeconds", "Longest wait in the queue, in seconds", seconds(), `Blank: ${duration(about.queueTimeSeconds)}, which is the longest.`);
	add("idempotencyHeader", "Header with the sender's id of a request", text(), "A second request with the same id starts no run. Blank: the sender's own header, Idempotency-Key or webhook-id.");
	add("untrusted", "Values from the payload", pick("", "inserted as they are", [["wrap", "marked as outside text"]]));
	add("historySeconds", "Keep a run's input, in seconds", seconds(), "0: not at all. Blank: as in the settings, which is the longest.");
	add("metadata", "Metadata, a JSON object", area(4, "json"), "The runner gets it with every message.");
	add("syncResponse", "Wait for the run, and send its answer", box());
	add("responseJsonSchema", "Answer schema (JSON Schema, Draft 2020-12)", area(8, "json"), "For the action agent: the caller waits, and gets JSON that matches. Blank: the answer is text.");
	add("responseValidationModelTier", "Model tier of runs with a schema", pick("", "the model tier", tiers));
	add("callbackUrl", "Callback URL", text({ inputmode: "url" }), "The answer is posted there. Blank: nowhere.");
	add("deliver", "Send the answer to a channel", box(), !channels.length && "No channel is configured here.");
	add("channel", "Channel", pick("", "choose", channels));
	add("to", "To", text(), ["The chat or address on the channel. With placeholders, as in ", mono("{event.channel}/{event.thread_ts | default event.ts}"), ", requests choose it: then the channel needs ", mono("allow_to"), "."]);
	add("budgets", "Budgets, a JSON list", area(3, "objects"), ["What its runs may spend, such as ", mono('[{"limit":"$5/24h","else":"hold"}]'), ". Blank: no limit."]);
	add("ask", "Ask somebody first, a JSON list", area(4, "objects"), ["Who has to approve what, such as ", mono('[{"before":"run","channel":"ops","to":"-100123","seconds":3600}]'), ". Blank: nobody."]);
	add("progress", "While it works", text(), "Posted there when a run starts, such as Working on it …. The answer takes its place.");
	return all;
}
