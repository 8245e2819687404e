// @ts-check
// Times, sizes and statuses in words.

/** Whether times are shown in UTC instead of the browser's zone. */
let utc = false;
/** How far the server's clock is ahead of the browser's, in milliseconds. */
let ahead = 0;

/** @param {boolean} on */
export const useUTC = on => { utc = on; };
export const usesUTC = () => utc;

/** Takes the server's time as the one that counts. @param {string} serverNow */
export function setClock(serverNow) {
	const at = Date.parse(serverNow);
	if (!Number.isNaN(at)) ahead = at - Date.now();
}

/** The server's time in milliseconds. */
export const now = () => Date.now() + ahead;

/** @param {number} n */
export const number = n => n.toLocaleString("en");

/** "1 run", "2 runs". @param {number} n @param {string} one @param {string} [many] */
export const count = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;

/** "1.0 %". @param {number} part @param {number} whole */
export function percent(part, whole) {
	if (!whole || !part) return "0 %";
	const share = 100 * part / whole;
	return `${share >= 99.95 ? 100 : share < .1 ? "< 0.1" : share.toFixed(1)} %`;
}

/** "0.4 s", "12 s", "5 min", "1 h 5 min". @param {number | null | undefined} seconds */
export function duration(seconds) {
	if (seconds == null) return "–";
	if (seconds > 0 && seconds < .0995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
	if (seconds < 19.95) return `${Number(seconds.toFixed(1))} s`;
	if (seconds < 59.5) return `${Math.round(seconds)} s`;
	const whole = Math.round(seconds);
	const parts = [[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
	const first = parts.findIndex(([n]) => n);
	return parts.slice(first, first + 2).filter(([n]) => n).map(([n, unit]) => `${n} ${unit}`).join(" ");
}

/** "213 bytes", "16 KB". @param {number} bytes */
export function size(bytes) {
	if (bytes < 1024) return count(bytes, "byte");
	if (bytes < 1 << 20) return `${trim(bytes / 1024)} KB`;
	return bytes < 1 << 30 ? `${trim(bytes / (1 << 20))} MB` : `${trim(bytes / (1 << 30))} GB`;
}
/** @param {number} n */
const trim = n => n >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toFixed(1);

/** The length of a text in UTF-8. @param {string} text */
export const bytesOf = text => new TextEncoder().encode(text).length;

/** @param {Date} at @param {boolean} inUTC @param {Intl.DateTimeFormatOptions} options */
const format = (at, inUTC, options) => new Intl.DateTimeFormat("en-GB", { ...options, hourCycle: "h23", timeZone: inUTC ? "UTC" : undefined }).format(at);

/** @param {Date} at */
const dayOf = at => format(at, utc, { year: "numeric", month: "2-digit", day: "2-digit" });

/** "Today", "Yesterday", "3 November". @param {string} iso */
export function day(iso) {
	const at = new Date(iso);
	if (dayOf(at) === dayOf(new Date(now()))) return "Today";
	if (dayOf(at) === dayOf(new Date(now() - 86400e3))) return "Yesterday";
	return format(at, utc, { day: "numeric", month: "long", year: at.getFullYear() === new Date(now()).getFullYear() ? undefined : "numeric" });
}

/**
 * "10:59:58" today, "Yesterday 10:59", "3 Nov 10:59".
 * @param {string | number} at @param {{exact?: boolean, short?: boolean, always?: boolean}} [how] exact: with milliseconds; short: without seconds; always: without the day
 */
export function clock(at, how = {}) {
	const date = new Date(at);
	const near = how.always || dayOf(date) === dayOf(new Date(now()));
	const time = format(date, utc, { hour: "2-digit", minute: "2-digit", second: (near && !how.short) || how.exact ? "2-digit" : undefined, fractionalSecondDigits: how.exact ? 3 : undefined });
	if (near) return time;
	const name = day(date.toISOString());
	return `${name === "Yesterday" ? name : format(date, utc, { day: "numeric", month: "short" })} ${time}`;
}

/** The same time in the other zone and in full, for hovering. @param {string | number} at */
export function otherClock(at) {
	const date = new Date(at);
	if (!utc) return date.toISOString().replace("T", " ").replace("Z", " UTC");
	return format(date, false, { dateStyle: "medium", timeStyle: "long" });
}

/** "4 s ago", "in 18 s". @param {string} iso */
export function ago(iso) {
	const seconds = (now() - Date.parse(iso)) / 1000;
	const far = Math.abs(seconds);
	const rough = far < 60 ? `${Math.round(far)} s` : far < 3600 ? `${Math.round(far / 60)} min` : far < 86400 ? `${Math.round(far / 3600)} h` : `${Math.round(far / 86400)} d`;
	return far < 1 ? "now" : seconds > 0 ? `${rough} ago` : `in ${rough}`;
}

/** @type {Record<string, [word: string, icon: string]>} */
const statuses = {
	queued: ["queued", "dots"], running: ["running", "half"], completed: ["completed", "check"], failed: ["failed", "x"],
	timed_out: ["timed out", "clock"], cancelled: ["cancelled", "dash"], expired: ["expired", "glass"],
	pending: ["pending", "half"], delivered: ["delivered", "check"], dead: ["dead", "x"],
};
/** @param {string} status */
export const statusWord = status => statuses[status]?.[0] ?? status;
/** @param {string} status */
export const statusIcon = status => statuses[status]?.[1] ?? "dash";
/** Runs that go on. @param {string} status */
export const isOpen = status => status === "queued" || status === "running";

/** The beginning of an id, enough to tell rows of a list apart: ids that begin with a time differ at their end. @param {string} id */
export const shortId = id => id.length > 12 ? `…${id.slice(-6)}` : id;

/** A chat that was made for one run is long and says little. @param {string} chat */
export const shortChat = chat => /^hook:[0-9a-f]{8}-/.test(chat) ? `hook:…${chat.slice(-6)}` : chat;

/** @param {string} text */
export const capital = text => text.charAt(0).toUpperCase() + text.slice(1);

/** How long a run took, or has taken so far. @param {{startedAt?: string, finishedAt?: string}} run */
export const took = run => run.startedAt ? Math.max(0, ((run.finishedAt ? Date.parse(run.finishedAt) : now()) - Date.parse(run.startedAt)) / 1000) : null;
