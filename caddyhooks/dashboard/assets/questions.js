// @ts-check
// Questions that runs wait for: on the overview, and on the page of a run.
import { ask, attempt, button, el, icon, longText, muted, note, put, since, time } from "./dom.js";
import { capital } from "./words.js";

/** @type {Record<string, string>} */
const kinds = { start: "may this run start?", deliver: "may this answer be sent?", input: "the agent asks", permission: "the agent wants to do something", agent: "the agent works on its turn" };

/** "“yes” by ann (page), 4 s ago". @param {NonNullable<Question["answer"]>} answer */
const answerOf = ({ text, error, by, via, at }) => [via === "end" ? "Closed, since the run ended" : via === "deadline" ? `${text ? `“${text}”` : "Closed"}, since nobody answered in time` : [error ? `The agent failed: ${error}` : text ? `“${text}”` : "Answered", by && ` by ${by}`, ` (${via})`], ", ", since(at)];

/**
 * A question with what answers it, or with its answer.
 * @param {Page} page @param {Question} q @param {Element} place for what is said afterwards @param {() => unknown} done
 */
export function questionItem(page, q, place, done) {
	const open = !q.answer && q.kind !== "agent", title = `${q.hook ?? "A run"}: ${kinds[q.kind] ?? q.kind}`;
	/** Asks, as before all that cannot be undone. Who comes second is told who was first. @param {string} text */
	const give = text => ask({
		title: text.length > 40 ? "Send this answer?" : `Answer “${text}”?`, text: capital(title), yes: "Answer",
		act: async () => {
			let said = note("ok", `Answered “${text}”.`);
			try {
				await page.api.post(`questions/${q.id}`, { answer: text });
			} catch (error) {
				if (/** @type {any} */ (error).status !== 409) throw error;
				said = note("late", capital(/** @type {Error} */ (error).message));
			}
			put(place, said);
			await done();
		},
	});
	const input = el("textarea", { rows: 2, maxlength: 16000, required: true, "aria-label": `Answer: ${title}`, ...page.acting });
	return el("li.late", { "data-question": q.id }, icon("chat"), el("div.stack",
		el("div", el("a.name", { href: page.link(`runs/${q.runId}`) }, capital(title))), muted("asked ", since(q.askedAt), q.channel && ` in ${q.channel} ${q.to ?? ""}`,
			open && q.until && [", closes ", since(q.until, true), q.else && ` with “${q.else}”`]),
		q.text ? longText(q.text, `Question ${q.id}`) : open && el("p.muted", "The question is on the page of the run."),
		q.answer && el("div", answerOf(q.answer)),
		open && (q.choices?.length ? el("div.tools", q.choices.map(text => button(text, () => give(text), { "aria-label": `${text}: ${title}`, ...page.acting })))
			: el("form.stack", { submit: (/** @type {Event} */ event) => { event.preventDefault(); give(input.value); } }, input, el("div", el("button", { type: "submit", "aria-label": `Answer: ${title}`, ...page.acting }, "Answer"))))));
}

/** The open questions. What is typed into one stays while others come and go. @param {Page} page @param {Element} place @param {() => unknown} changed */
export function openQuestions(page, place, changed) {
	const node = el("ul.todo.questions"), more = button("Show more", () => { most += 20; load(); }, { class: "small" });
	/** @type {Map<string, Element>} */
	let items = new Map();
	let most = 20, turn = 0;
	async function load() {
		const mine = ++turn;
		await attempt(place, async () => {
			const found = await page.api.get("questions", { limit: most }, page.signal);
			if (mine !== turn) return;
			const gone = [...items.keys()].some(id => !found.questions.some(q => q.id === id)), before = items.size;
			items = new Map(found.questions.map(q => [q.id, items.get(q.id) ?? questionItem(page, q, place, changed)]));
			for (const child of [...node.children]) if (![...items.values()].includes(child)) child.remove();
			[...items.values()].forEach((item, i) => { if (node.children[i] !== item) node.insertBefore(item, node.children[i] ?? null); });
			if (found.cursor) node.append(el("li", el("span"), more));
			if (gone || before !== items.size) page.say(`${items.size} waiting for your answer`);
		});
	}
	return { node, load, count: () => items.size };
}
