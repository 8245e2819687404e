// @ts-check
// JSON as text. JSON.parse turns 12345678901234567890 into 12345678901234567000, so values that are shown or sent back
// are cut out of the text as they stand.

/**
 * The values of an object or array, as text. The keys of an array are its indexes.
 * @param {string | undefined} text valid JSON
 * @returns {Map<string, string>} empty if the text is neither an object nor an array
 */
export function parts(text) {
	const found = new Map();
	const object = /^\s*\{/.test(text ?? "");
	if (!text || !object && !/^\s*\[/.test(text)) return found;
	let depth = 0, start = 0, key = "", keyed = false, n = 0;
	const end = (at = 0) => {
		const value = text.slice(start, at).trim();
		if (value) found.set(object ? key : String(n++), value);
		start = at + 1;
		keyed = false;
	};
	for (let at = 0; at < text.length; at++) {
		switch (text[at]) {
			case '"': {
				const from = at;
				for (at++; at < text.length && text[at] !== '"'; at++) if (text[at] === "\\") at++;
				if (depth === 1 && object && !keyed) {
					const colon = text.indexOf(":", at);
					key = JSON.parse(text.slice(from, at + 1));
					start = colon + 1;
					at = colon;
					keyed = true;
				}
				break;
			}
			case "{": case "[":
				if (depth++ === 0) start = at + 1;
				break;
			case "}": case "]":
				if (--depth === 0) end(at);
				break;
			case ",":
				if (depth === 1) end(at);
		}
	}
	return found;
}

/**
 * The same JSON with a line for each value. Only the space between values changes.
 * @param {string} text valid JSON
 */
export function indented(text) {
	let out = "", depth = 0;
	const line = () => "\n" + "  ".repeat(depth);
	for (const [piece] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|[^\s{}[\],:"]+/gs)) {
		if (piece === "{" || piece === "[") depth++, out += piece + line();
		else if (piece === "}" || piece === "]") depth--, out += line() + piece;
		else if (piece === ",") out += piece + line();
		else if (piece === ":") out += ": ";
		else out += /^[{[]/.test(piece) ? piece.replace(/\s/g, "") : piece;
	}
	return out;
}

/**
 * An object of values that are JSON already. Values that are undefined are left out.
 * @param {Iterable<[string, string | undefined]>} members
 */
export function object(members) {
	return "{" + [...members].filter(([, value]) => value !== undefined).map(([key, value]) => JSON.stringify(key) + ":" + value).join(",") + "}";
}

/** Whether a text is a JSON object. */
export function isObject(text = "") {
	try {
		const value = JSON.parse(text);
		return typeof value === "object" && value !== null && !Array.isArray(value);
	} catch {
		return false;
	}
}

/** A list that may be missing. @param {any} value @returns {any[]} */
export const list = value => value ?? [];
