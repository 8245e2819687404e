// @ts-check
// Times, sizes and statuses in words.

let utc = false;
let ahead = 0; // how far the server's clock is ahead of the browser's, in milliseconds

/** Whether times are shown in UTC instead of the browser's zone. */
export const useUTC = (on = false) => { utc = on; };
export const usesUTC = () => utc;

/** Takes the server's time as the one that counts. */
export const setClock = (serverNow = "") => { ahead = Date.parse(serverNow) - Date.now() || 0; };
export const now = () => Date.now() + ahead;

export const number = (n = 0) => n.toLocaleString("en");
/** For the axis of a plot. */
export const short = (v = 0) => v >= 1e6 ? `${Number((v / 1e6).toPrecision(3))}M` : v >= 10000 ? `${Number((v / 1000).toPrecision(3))}k` : number(v);
/** An amount of US dollars: small ones have more digits. */
export const dollars = (v = 0) => `$${v.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: v < 1 ? 4 : 2 })}`;
/** "1 run", "2 runs". @param {number} n @param {string} one @param {string} [many] */
export const count = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;
export const capital = (text = "") => text.charAt(0).toUpperCase() + text.slice(1);
/** Characters that change the direction of the text around them can make it read as another text: their codes are shown instead. */
export const visible = (text = "") => text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, c => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
/** The length of a text in UTF-8. */
export const bytesOf = (text = "") => new TextEncoder().encode(text).length;

export function percent(part = 0, whole = 0) {
	const share = whole ? 100 * part / whole : 0;
	return `${share === 0 ? 0 : share > 99.9 ? 100 : share < .1 ? "< 0.1" : share.toFixed(1)} %`;
}

/** "0.4 s", "12 s", "5 min", "1 h 5 min". @param {number | null | undefined} seconds */
export function duration(seconds) {
	if (seconds == null) return "–";
	if (seconds > 0 && seconds < .0995) return `${Math.ceil(seconds * 1000)} ms`;
	if (seconds < 59.5) return `${Number(seconds.toFixed(seconds < 19.95 ? 1 : 0))} s`;
	const whole = Math.round(seconds);
	const units = /** @type {const} */ ([[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]]);
	const first = units.findIndex(([n]) => n);
	return units.slice(first, first + 2).filter(([n]) => n).map(([n, unit]) => `${n} ${unit}`).join(" ");
}

/** "213 bytes", "1.5 KB". */
export function size(bytes = 0) {
	if (bytes < 1024) return count(bytes, "byte");
	const power = Math.min(3, Math.floor(Math.log2(bytes) / 10)), n = bytes / 1024 ** power;
	return `${Number(n.toFixed(n < 100 ? 1 : 0))} ${["", "KB", "MB", "GB"][power]}`;
}

/** A size that the server reads as the same number. */
export const exactSize = (bytes = 0) => bytes % 1024 ? String(bytes) : bytes % (1 << 20) ? `${bytes / 1024} KB` : `${bytes / (1 << 20)} MB`;

/** @param {Date} at @param {boolean} inUTC @param {Intl.DateTimeFormatOptions} options */
const format = (at, inUTC, options) => new Intl.DateTimeFormat("en-GB", { ...options, hourCycle: "h23", timeZone: inUTC ? "UTC" : undefined }).format(at);

/** "Today", "Yesterday", "3 November". @param {string | number} iso @param {"long" | "short"} [month] */
export function day(iso, month = "long") {
	const at = new Date(iso), date = (/** @type {number | Date} */ of) => format(new Date(of), utc, { dateStyle: "short" });
	if (date(at) === date(now())) return "Today";
	if (date(at) === date(now() - 86400e3)) return "Yesterday";
	return format(at, utc, { day: "numeric", month, year: at.getFullYear() === new Date(now()).getFullYear() ? undefined : "numeric" });
}

/**
 * "10:59:58" today, "Yesterday 10:59", "3 Nov 10:59".
 * @param {string | number} at @param {{exact?: boolean, short?: boolean, always?: boolean}} [how] exact: with milliseconds; short: without seconds; always: without the day
 */
export function clock(at, how = {}) {
	const date = how.always ? "Today" : day(at, "short"), today = date === "Today";
	const time = format(new Date(at), utc, { hour: "2-digit", minute: "2-digit", second: (today && !how.short) || how.exact ? "2-digit" : undefined, fractionalSecondDigits: how.exact ? 3 : undefined });
	return today ? time : `${date} ${time}`;
}

/** The same time in the other zone and in full, for hovering. @param {string | number} at */
export const otherClock = at => utc ? format(new Date(at), false, { dateStyle: "medium", timeStyle: "long" }) : new Date(at).toISOString().replace("T", " ").replace("Z", " UTC");

/** "4 s ago", "in 18 s". Something due is never in the past. */
export function ago(iso = "", due = false) {
	const seconds = (now() - Date.parse(iso)) / 1000, far = Math.abs(seconds);
	if (due && seconds > -1) return "due now";
	if (far < 1) return "now";
	const rough = far < 59.5 ? `${Math.round(far)} s` : far < 3570 ? `${Math.round(far / 60)} min` : far < 84600 ? `${Math.round(far / 3600)} h` : `${Math.round(far / 86400)} d`;
	return seconds > 0 ? `${rough} ago` : `in ${rough}`;
}

/** @type {Record<string, string>} */
const icons = { queued: "dots", waiting: "chat", running: "half", pending: "half", completed: "check", delivered: "check", ok: "check", failed: "x", dead: "x", bad: "x", timed_out: "clock", expired: "glass", late: "warn" };
export const statusIcon = (status = "") => icons[status] ?? "dash";
export const statusWord = (status = "") => status.replace("_", " ");
/** Whether the server runs such a run again. */
export const canRunAgain = (status = "") => !isOpen(status);
/** Runs that go on. */
export const isOpen = (status = "") => ["queued", "running", "waiting"].includes(status);

/** Why a run is not started yet: "waits: the agent cannot be reached". @param {{waitingFor?: string}} run */
export const waits = ({ waitingFor = "" }) => `waits${waitingFor && ": "}${waitingFor.charAt(0).toLowerCase()}${waitingFor.slice(1).replace(/\.(\s.*)?$/s, "")}`;

/** Ids that begin with a time differ at their end. */
export const shortId = (id = "") => id.length > 12 ? `…${id.slice(-6)}` : id;
/** A chat that was made for one run is long and says little. */
export const shortChat = (chat = "") => /^hook:[0-9a-f]{8}-/.test(chat) ? `hook:${shortId(chat)}` : chat;
/** How long a run took, or has taken so far, in seconds. @param {{startedAt?: string, finishedAt?: string}} run */
export const took = run => run.startedAt ? Math.max(0, ((run.finishedAt ? Date.parse(run.finishedAt) : now()) - Date.parse(run.startedAt)) / 1000) : null;
