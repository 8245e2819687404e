// @ts-check
// Requests to the API beside this page, and the stream of what happens.
import { pointerUp } from "./dom.js";

/** What the server refused, with its own sentence. */
export class ApiError extends Error {
	/** @param {string} message @param {number} status 0 when no answer came @param {any} [body] */
	constructor(message, status, body) {
		super(message);
		this.status = status;
		this.body = body;
	}
}

// The page lives below any prefix, so everything is relative to it.
const base = new URL("api/", location.href.replace(/[?#].*/, ""));

/** What a status means where the server said nothing. @type {Record<number, string>} */
const meanings = {
	401: "You are not signed in any more. Reload the page to sign in.",
	403: "You may not do this.",
	404: "It does not exist (any more).",
	412: "It was changed by somebody else in the meantime.",
	502: "The server behind this page does not answer.",
	503: "The server is busy. Try again in a moment.",
};

function parse(text = "") {
	try {
		return JSON.parse(text);
	} catch {
		return null;
	}
}

/** @param {URL} url @param {RequestInit} init @returns {Promise<Response>} an answer below 400 */
async function ask(url, init) {
	let answer;
	try {
		answer = await fetch(url, { ...init, cache: "no-store", headers: { "X-Hooks-Dashboard": "1", ...init.headers } });
	} catch (error) {
		if (init.signal?.aborted) throw error;
		throw new ApiError("The server cannot be reached.", 0);
	}
	if (answer.ok) return answer;
	const body = parse(await answer.text().catch(() => ""));
	const said = typeof body?.error === "string" ? body.error : meanings[answer.status] ?? `The server answered ${answer.status}.`;
	throw new ApiError(said.charAt(0).toUpperCase() + said.slice(1), answer.status, body);
}

/** @param {string} instance @returns {Api} */
export function makeApi(instance) {
	const root = instance === "default" ? base : new URL(`instances/${encodeURIComponent(instance)}/`, base);

	/** @param {string} path @param {Params} [params] */
	function url(path, params = {}) {
		const to = new URL(path, path === "me" ? base : root);
		for (const [name, value] of Object.entries(params)) {
			const text = value === true ? "1" : String(value || "");
			if (text) to.searchParams.set(name, text);
		}
		return to;
	}

	/** @param {string} method @param {string} path @param {Options} [options] */
	async function request(method, path, { params, body, headers, signal } = {}) {
		const plain = typeof body === "string" || body === undefined;
		const answer = await ask(url(path, params), { method, signal, body: plain ? body : JSON.stringify(body), headers: { ...(!plain && { "Content-Type": "application/json" }), ...headers } });
		const text = await answer.text();
		await pointerUp();
		return { data: parse(text), text, etag: answer.headers.get("ETag") ?? "", status: answer.status };
	}

	return {
		instance, request,
		get: async (/** @type {string} */ path, /** @type {Params} */ params, /** @type {AbortSignal} */ signal) => (await request("GET", path, { params, signal })).data,
		post: async (path, body, params) => (await request("POST", path, { body, params })).data,
		file: async (path, params, accept) => (await ask(url(path, params), { headers: { Accept: accept } })).blob(),
		stream: (params, signal, lastId) => ask(url("events", params), { signal, headers: { Accept: "text/event-stream", ...(lastId && { "Last-Event-ID": lastId }) } }),
	};
}

const silence = 40e3; // the server says something every 15 s
const gap = 8e3; // after a longer one the page is fetched anew, whatever the server remembers

// One stream of events for the whole page. It is let go of while the page is hidden or paused, and comes back by itself.
export class Live {
	/** @type {LiveState} */
	state = "connecting";
	/** Why there is no stream. */
	trouble = "";
	paused = false;
	/** @type {Map<string, Set<(data: any) => void>>} */
	#listeners = new Map();
	#lastId = "";
	#heard = 0; // when the last byte came
	#failures = 0;
	/** @type {AbortController | undefined} */
	#open;
	#topics = "";
	#timer = 0;
	#settling = 0;

	/** @param {Api} api */
	constructor(api) {
		this.api = api;
		document.addEventListener("visibilitychange", () => this.#settle());
		addEventListener("pageshow", () => this.#settle());
		addEventListener("pagehide", () => this.#close("hidden"));
		addEventListener("online", () => this.#again(0));
		setInterval(() => { if (this.#open && Date.now() - this.#heard > silence) this.#again(0); }, 5e3);
	}

	/** Calls listener for every event of that name. @param {keyof Events | "hello"} name @param {(data: any) => void} listener @returns {() => void} takes it away */
	on(name, listener) {
		const set = this.#listeners.get(name) ?? new Set();
		this.#listeners.set(name, set.add(listener));
		this.#soon();
		return () => { set.delete(listener); this.#soon(); };
	}

	pause(on = false) {
		this.paused = on;
		this.#settle();
	}

	/** Another instance. @param {Api} api */
	use(api) {
		this.api = api;
		this.#lastId = "";
		this.#close("connecting");
		this.#settle();
	}

	/** @param {string} name @param {any} data */
	#emit(name, data) {
		for (const listener of [...this.#listeners.get(name) ?? []]) listener(data);
	}

	/** Opens or closes the stream as it should be now. */
	#settle() {
		if (this.paused) this.#close("paused");
		else if (document.hidden) this.#close("hidden");
		else if (!this.#open || this.#wanted() !== this.#topics) this.#again(0);
	}

	/** A page that is left and one that is shown change the topics together. */
	#soon() {
		clearTimeout(this.#settling);
		this.#settling = setTimeout(() => this.#settle(), 50);
	}

	#wanted() {
		return ["runs", "deliveries", "overview", "settings", "refused"].filter(topic => this.#listeners.get(topic)?.size).join();
	}

	/** @param {LiveState} state @param {string} [trouble] */
	#turn(state, trouble = "") {
		if (state === this.state && trouble === this.trouble) return;
		this.state = state;
		this.trouble = trouble;
		this.#emit("state", state);
	}

	/** @param {LiveState} [state] */
	#close(state) {
		clearTimeout(this.#timer);
		this.#open?.abort();
		this.#open = undefined;
		if (state) this.#turn(state);
	}

	/** Opens a new stream after a while. @param {number} wait in milliseconds */
	#again(wait) {
		this.#close();
		if (!this.paused && !document.hidden) this.#timer = setTimeout(() => this.#read(), wait);
	}

	async #read() {
		const open = this.#open = new AbortController();
		const lastId = Date.now() - this.#heard < gap ? this.#lastId : "";
		this.#topics = this.#wanted();
		this.#heard = Date.now();
		try {
			const answer = await this.api.stream({ topics: this.#topics }, open.signal, lastId);
			const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader(), decoder = new TextDecoder();
			for (let rest = ""; ;) {
				const { done, value } = await reader.read();
				if (done) break;
				this.#heard = Date.now();
				const frames = (rest + decoder.decode(value, { stream: true })).split(/\r?\n\r?\n/);
				rest = frames.pop() ?? "";
				for (const frame of frames) if (!open.signal.aborted) this.#take(frame, lastId);
			}
			this.#turn("connecting");
			this.#again(300 + Math.random() * 700); // a reload ends the streams of all pages at once
		} catch (error) {
			if (open.signal.aborted) return;
			const wait = Math.min(30e3, 500 * 2 ** this.#failures++);
			this.#turn("lost", error instanceof ApiError ? error.message : "The connection was lost.");
			if (error instanceof ApiError && [429, 503].includes(error.status)) this.#emit("reset", {}); // no stream is left for this page, so it looks anew at every try
			this.#again(wait / 2 + Math.random() * wait / 2);
		}
	}

	/** @param {string} frame @param {string} lastId what the stream was opened with */
	#take(frame, lastId) {
		let name = "", data = "";
		for (const line of frame.split(/\r?\n/)) {
			const [, field, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
			if (field === "event") name = value;
			else if (field === "data") data += value;
			else if (field === "id") this.#lastId = value;
		}
		const body = parse(data);
		if (!body) return;
		const anew = name === "hello" && (!lastId || this.#failures > 0) || name === "overview" && !body.storeUnreachable && this.state === "stalled"; // pages may show what went wrong
		if (name === "hello") this.#failures = 0;
		if (name === "hello" || name === "overview") this.#turn(body.storeUnreachable ? "stalled" : "live", body.storeUnreachable && `The server cannot reach its store: ${body.storeUnreachable}`);
		this.#emit(name, body);
		if (anew) this.#emit("reset", {});
	}
}
