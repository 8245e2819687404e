// @ts-check
// Requests to the API beside this page, and the stream of what happens.

/** What the server refused, with its own sentence. */
export class ApiError extends Error {
	/** @param {string} message @param {number} status 0 when no answer came @param {any} [body] */
	constructor(message, status, body) {
		super(message);
		this.status = status;
		this.body = body;
	}
}

/** @typedef {Record<string, string | number | boolean | string[] | null | undefined>} Params empty ones are left out */
/**
 * @typedef {object} Options
 * @property {Params} [params]
 * @property {any} [body] sent as JSON; a string is sent as it is
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 */
/** @typedef {{data: any, text: string, etag: string, status: number}} Answer text is the body as it came, in which numbers are still whole */
/** @typedef {ReturnType<typeof makeApi>} Api */

/**
 * A run as lists show it.
 * @typedef {object} Run
 * @property {string} status @property {string} runId @property {string} chatId @property {string} hook @property {string} action @property {string} [name]
 * @property {string} acceptedAt @property {string} [startedAt] @property {string} [finishedAt] @property {number} attempts
 * @property {string} [errorMessage] what the caller was told @property {string} [reason] what operators are told
 * @property {string} [preview] @property {boolean} [test] @property {{delivered: number, pending: number, dead: number}} [sentOut]
 */

/** Pages live below any prefix, so that everything is relative to the page itself. */
const base = new URL("api/", location.href.replace(/[?#].*/, ""));

/** What a status means where the server said nothing. @param {Response} answer */
const meaning = answer => ({
	401: "You are not signed in any more. Reload the page to sign in.",
	403: "You may not do this.",
	404: "This is not there (any more).",
	412: "It was changed by somebody else in the meantime.",
	413: "That is too much for one request.",
	429: "Too many requests. Try again in a moment.",
	502: "The server behind this page does not answer.",
	503: "The server is busy. Try again in a moment.",
}[answer.status] ?? `The server answered ${answer.status} ${answer.statusText}`.trim());

/** @param {string} text */
function parse(text) {
	try {
		return text ? JSON.parse(text) : null;
	} catch {
		return null;
	}
}

/**
 * @param {URL} url @param {RequestInit} init
 * @returns {Promise<Response>} an answer below 400
 */
async function ask(url, init) {
	let answer;
	try {
		answer = await fetch(url, { ...init, cache: "no-store", credentials: "same-origin", headers: { "X-Hooks-Desk": "1", ...init.headers } });
	} catch (error) {
		if (init.signal?.aborted) throw error;
		throw new ApiError("The server cannot be reached.", 0);
	}
	if (answer.ok) return answer;
	const text = await answer.text().catch(() => "");
	const body = parse(text);
	const sentence = typeof body?.error === "string" ? body.error : "";
	throw new ApiError(sentence ? sentence.charAt(0).toUpperCase() + sentence.slice(1) : meaning(answer), answer.status, body);
}

/** @param {string} instance */
export function makeApi(instance) {
	const root = instance === "default" ? base : new URL(`instances/${encodeURIComponent(instance)}/`, base);

	/** @param {string} path @param {Params} [params] */
	const url = (path, params = {}) => {
		const to = new URL(path, path === "me" ? base : root);
		for (const [name, value] of Object.entries(params)) {
			const text = Array.isArray(value) ? value.join(",") : value;
			if (text !== "" && text != null && text !== false) to.searchParams.set(name, text === true ? "1" : String(text));
		}
		return to;
	};

	/** @param {string} method @param {string} path @param {Options} [options] @returns {Promise<Answer>} */
	const request = async (method, path, { params, body, headers, signal } = {}) => {
		const json = body !== undefined && typeof body !== "string";
		const answer = await ask(url(path, params), { method, signal, body: json ? JSON.stringify(body) : body, headers: { ...(json && { "Content-Type": "application/json" }), ...headers } });
		const text = await answer.text();
		return { data: parse(text), text, etag: answer.headers.get("ETag") ?? "", status: answer.status };
	};

	return {
		instance, url, request,
		/** @param {string} path @param {Params} [params] @param {AbortSignal} [signal] @returns {Promise<any>} */
		get: async (path, params, signal) => (await request("GET", path, { params, signal })).data,
		/** @param {string} path @param {any} [body] @param {Params} [params] @returns {Promise<any>} */
		post: async (path, body, params) => (await request("POST", path, { body, params })).data,
		/** Fetches a file; a link cannot send the header that the server asks for. @param {string} path @param {Params} params @param {string} accept */
		file: async (path, params, accept) => (await ask(url(path, params), { headers: { Accept: accept } })).blob(),
		/** @param {Params} params @param {AbortSignal} signal @param {string} lastId */
		stream: (params, signal, lastId) => ask(url("events", params), { signal, headers: { Accept: "text/event-stream", ...(lastId && { "Last-Event-ID": lastId }) } }),
	};
}

/** @typedef {"live" | "connecting" | "paused" | "hidden" | "lost"} LiveState */
/** @typedef {"runs" | "deliveries" | "overview" | "settings"} Topic */

const silence = 40e3; // the server says something every 15 s
const gap = 8e3; // after a longer one the page is fetched anew, whatever the server remembers

/**
 * One stream of events for the whole page. It is let go of while the page is hidden or paused, and comes back by itself after a reload, a restart or sleep.
 */
export class Live {
	/** @param {Api} api */
	constructor(api) {
		this.api = api;
		/** @type {LiveState} */
		this.state = "connecting";
		/** Why there is no stream. */
		this.trouble = "";
		this.paused = false;
		/** @type {Map<string, Set<(data: any) => void>>} */
		this.listeners = new Map();
		this.lastId = "";
		this.heard = 0; // when the last byte came
		this.failures = 0;
		/** @type {AbortController | undefined} */
		this.open = undefined;
		this.timer = 0;
		this.topics = "";
		document.addEventListener("visibilitychange", () => this.settle());
		addEventListener("online", () => this.again(0));
		addEventListener("pagehide", () => this.close("hidden"));
		addEventListener("pageshow", () => this.settle());
		setInterval(() => {
			if (this.open && Date.now() - this.heard > silence) this.again(0);
		}, 5e3);
	}

	/**
	 * Calls listener for every event of that name: a topic, "hello", "reset" (what was missed is not known: fetch again) or "state".
	 * @param {Topic | "hello" | "reset" | "state"} name @param {(data: any) => void} listener @returns {() => void} takes the listener away
	 */
	on(name, listener) {
		const set = this.listeners.get(name) ?? new Set();
		this.listeners.set(name, set.add(listener));
		this.soon();
		return () => { set.delete(listener); this.soon(); };
	}

	/** @param {string} name @param {any} data */
	emit(name, data) {
		for (const listener of [...this.listeners.get(name) ?? []]) listener(data);
	}

	/** @param {boolean} on */
	pause(on) {
		this.paused = on;
		this.settle();
	}

	/** Another instance. @param {Api} api */
	use(api) {
		this.api = api;
		this.lastId = "";
		this.close("connecting");
		this.settle();
	}

	/** Opens or closes the stream as it should be now. */
	settle() {
		if (this.paused) this.close("paused");
		else if (document.hidden) this.close("hidden");
		else if (!this.open) this.again(0);
	}

	/** Looks a little later whether the topics have changed: a page that is left and one that is shown do so together. */
	soon() {
		if (this.waiting) return;
		this.waiting = true;
		setTimeout(() => {
			this.waiting = false;
			if (this.open && this.wanted() !== this.topics) this.again(0);
			else this.settle();
		}, 50);
	}

	wanted() {
		return ["runs", "deliveries", "overview", "settings"].filter(topic => this.listeners.get(topic)?.size).join(",");
	}

	/** @param {LiveState} state @param {string} [trouble] */
	turn(state, trouble = "") {
		if (state === this.state && trouble === this.trouble) return;
		this.state = state;
		this.trouble = trouble;
		this.emit("state", state);
	}

	/** @param {LiveState} state */
	close(state) {
		clearTimeout(this.timer);
		this.open?.abort();
		this.open = undefined;
		this.turn(state);
	}

	/** Opens a new stream after a while. @param {number} wait in milliseconds */
	again(wait) {
		clearTimeout(this.timer);
		this.open?.abort();
		this.open = undefined;
		if (this.paused || document.hidden) return;
		this.timer = setTimeout(() => this.read(), wait);
	}

	async read() {
		const open = this.open = new AbortController();
		const quietFor = Date.now() - this.heard;
		const lastId = quietFor < gap ? this.lastId : "";
		this.topics = this.wanted();
		if (!this.topics) return;
		this.heard = Date.now();
		try {
			const answer = await this.api.stream({ topics: this.topics }, open.signal, lastId);
			const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader(), decoder = new TextDecoder();
			for (let rest = ""; ;) {
				const { done, value } = await reader.read();
				if (open.signal.aborted) return;
				if (done) break;
				this.heard = Date.now();
				const frames = (rest + decoder.decode(value, { stream: true })).split(/\r?\n\r?\n/);
				rest = frames.pop() ?? "";
				for (const frame of frames) this.take(frame, lastId);
				if (open.signal.aborted) return;
			}
			this.turn("connecting");
			this.again(300 + Math.random() * 700); // a reload closes the streams of all pages at once
		} catch (error) {
			if (open.signal.aborted) return;
			const wait = Math.min(30e3, 500 * 2 ** this.failures++);
			this.turn("lost", error instanceof ApiError ? error.message : "The connection was lost.");
			this.again(wait / 2 + Math.random() * wait / 2);
		}
	}

	/** @param {string} frame @param {string} lastId what the stream was opened with */
	take(frame, lastId) {
		let name = "message", data = "";
		for (const line of frame.split(/\r?\n/)) {
			const [, field, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
			if (field === "event") name = value;
			else if (field === "data") data += (data && "\n") + value;
			else if (field === "id") this.lastId = value;
		}
		const body = parse(data);
		if (!data || !body) return;
		if (name === "hello") {
			this.failures = 0;
			this.turn("live");
		}
		this.emit(name, body);
		if (name === "hello" && !lastId) this.emit("reset", {});
	}
}
