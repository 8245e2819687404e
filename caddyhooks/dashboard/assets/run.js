// @ts-check
import { ask, attempt, badge, button, checkbox, copyButton, el, facts, field, longText, mono, muted, note, panel, put, redraw, segment, since, spring, svg, table, tag, time, tr, unseen } from "./dom.js";
import { questionItem } from "./questions.js";
import { indented, parts } from "./rawjson.js";
import { bytesOf, canRunAgain, capital, count, dollars, duration, isOpen, now, number, shortId, size, statusWord, took } from "./words.js";

/** Asks, and hands over what cancels a run. @param {Page} page @param {number} n @param {(cancel: (run: Run) => Promise<any>) => unknown} go */
export const askCancel = (page, n, go) => ask({
	title: `Cancel ${count(n, "run")}?`, text: "What the agent has done so far stays done.", yes: `Cancel ${count(n, "run")}`, no: "Back", danger: true,
	act: () => go(run => page.api.post(`runs/${run.runId}/cancel`)),
});

/** Asks, and hands over what runs a run again. @param {Page} page @param {Run[]} runs @param {(again: (run: Run) => Promise<any>) => unknown} go */
export async function askAgain(page, runs, go) {
	// Of a single run, the question says that somebody did so before. Lists do not know.
	const before = runs.length === 1 ? (await page.api.get(`runs/${runs[0].runId}`).catch(() => null))?.againAs : null;
	const deliver = checkbox("Send the answer out as well, to callbacks and channels"), chat = el("input", { type: "text", spellcheck: "false", autocomplete: "off" });
	ask({
		title: `Run ${count(runs.length, "run")} again?`, text: "A new run gets the same message.",
		body: [before && note("late", `This run was already run again, as ${before}.`), deliver, field("Chat", chat, "Blank: the same chat.")], yes: "Run again",
		act: () => go(run => page.api.post(`runs/${run.runId}/again`, { deliver: deliver.box.checked, chatId: chat.value.trim() || null })),
	});
}

/** Asks before a delivery is sent again that has arrived. @param {Delivery} d @param {() => unknown} act */
export const askRepeat = (d, act) => ask({ title: "Send the delivery again?", text: `It has arrived already at ${d.target}. The receiver gets it once more, with the same id.`, yes: "Send again", act });

/** Says that a delivery was sent again although it had arrived. @param {Delivery} d */
export const repeated = d => d.repeats && el("div.small", `sent again ${count(d.repeats, "time")}`);

/** @param {Page} page */
export async function show(page) {
	const id = page.path[0], { api } = page;
	/** The run, and the text it came in. @type {RunDetails} */
	let run;
	let text = "";
	const crumbs = el("div.crumbs", el("a", { href: page.link("runs") }, "Runs"), " / ", mono(id), copyButton(id, "Copy the run id", { bare: true }));
	const top = el("div.head", el("h1", "Run")), trouble = el("div"), questions = el("div"), why = el("div"), message = el("div"), answer = el("div"), asked = el("div"), out = el("div"), side = el("div.stack"), told = el("div");
	put(page.main, crumbs, top, trouble, el("div.split", el("div.stack", questions, why, message, answer, asked, out), el("aside.stack", { "aria-label": "Details" }, side, told)));

	/** What each part shows; a part that shows the same is left as it is, with what was unfolded in it. @type {Map<Element, string>} */
	const shown = new Map();
	/** @param {Element} place @param {unknown} of @param {() => Child} make */
	function part(place, of, make) {
		const key = JSON.stringify(of);
		if (shown.get(place) === key) return;
		shown.set(place, key);
		redraw(place, make());
	}

	async function load() {
		await attempt(trouble, async () => {
			({ data: run, text } = await api.request("GET", `runs/${encodeURIComponent(id)}`, { signal: page.signal }));
			draw();
		});
	}

	function draw() {
		const raw = parts(text), open = isOpen(run.status);
		page.title(`${run.hook} ${shortId(id)}`);
		part(top, [run.status, run.message == null], () => [el("h1", run.hook), badge(run.status), run.name && tag(run.name), run.test && tag("test"), spring(),
			copyButton(() => text, "Copy as JSON", { class: "" }), open ? button("Cancel", cancel, { class: "danger", ...page.acting }) : canRunAgain(run.status) && button("Run again", again, { icon: "again", ...run.message == null || run.messageCut ? { disabled: true, title: "Its message is not kept." } : {}, ...page.acting })]);
		part(questions, run.questions, drawQuestions);
		drawWhy();
		part(message, [run.message, run.messageCut], () => run.message == null
			? panel("Message", el("div.body.muted", "The run's input is no longer kept, or never was (history)."))
			: panel(["Message ", muted(size(bytesOf(run.message)))], el("div.body", run.messageCut && note("late", "Only the beginning was kept, so this run cannot be run again."), longText(run.message, "Message")), copyButton(run.message)));
		part(answer, [run.reply, run.lastAnswer, raw.get("schema")], () => drawAnswer(raw.get("schema")));
		part(asked, [run.permissions, run.morePermissions], drawAsked);
		part(out, run.deliveries ?? [], drawOut);
		part(side, [run, Math.floor(now() / 60e3)], () => el("section.panel", el("h2.sr", "Details"), el("div.body", drawFacts())));
		part(told, [raw.get("metadata"), run.keptUntil], () => [drawMetadata(raw.get("metadata")),
			run.keptUntil && el("p.muted.small.kept", "Message, metadata and schema are kept until ", time(run.keptUntil), ".")]);
	}

	function sentence() {
		const said = run.reason || run.errorMessage;
		switch (run.status) {
			case "queued": return run.waitingFor ? `Queued: ${run.waitingFor}` : "Queued: it waits for a worker, or for the run before it in the same chat";
			case "waiting": return `Waiting: ${run.waitingFor ?? ""}`;
			case "running": return `Running for ${duration(Math.floor(took(run) ?? 0))}`;
			case "completed": return `Completed in ${duration(took(run))}`;
			case "cancelled": return run.cancelledBy ? `Cancelled by ${run.cancelledBy}` : said || "Cancelled";
			default: return said ? capital(said) : capital(statusWord(run.status));
		}
	}

	function drawWhy() {
		const errors = run.validationErrors ?? [];
		const steps = run.steps?.length && !isOpen(run.status) ? run.steps : guess();
		part(why, [sentence(), errors, steps, run.sessionRenewed], () => {
			const told = run.reason && run.errorMessage && run.errorMessage !== run.reason && el("p.muted.small", "The caller got: ", run.errorMessage);
			const renewed = run.sessionRenewed && el("p", "The agent had lost the session of this chat and began a new one.");
			return panel(sentence(), el("div.body.stack", told, renewed, errors.length > 0 && el("ul.error-list", errors.map(e => el("li", e))), steps.length > 0 && waterfall(steps)));
		});
	}

	/** The steps of a run that goes on are not kept yet: what is known of them. */
	function guess() {
		const end = run.startedAt ? Date.parse(run.startedAt) : now();
		const steps = [{ phase: "queued", startedAt: run.acceptedAt, seconds: (end - Date.parse(run.acceptedAt)) / 1000 }];
		if (run.startedAt) steps.push({ phase: "turn", startedAt: run.startedAt, seconds: took(run) ?? 0 });
		return steps.map(step => ({ ...step, seconds: isOpen(run.status) ? Math.floor(step.seconds) : step.seconds }));
	}

	/** @param {Step[]} steps */
	function waterfall(steps) {
		const from = Date.parse(steps[0].startedAt), ends = steps.map(step => (Date.parse(step.startedAt) - from) / 1000 + step.seconds);
		const whole = Math.max(...ends, .001);
		let repairs = 0, before = "";
		const columns = [["Step"], [el("span.ends", el("span", "0 s"), el("span", duration(whole))), "fall desktop-only"], ["Took", "right nowrap"], ["Result", "muted"]];
		return table({ caption: "Steps of the run", class: "tight", columns, rows: steps.map(step => {
			const errors = step.errors ?? [], same = errors.length > 0 && before === errors.join("\n");
			before = errors.join("\n");
			const name = step.phase === "repair" ? `Repair ${++repairs}` : capital(step.phase);
			const result = errors.length ? `${same ? "the same " : ""}${count(errors.length, "error")}` : step.bytes ? size(step.bytes) : "";
			const wide = Math.max(4, 1000 * step.seconds / whole), at = Math.min(1000 - wide, 1000 * (Date.parse(step.startedAt) - from) / 1000 / whole);
			return tr(columns, [[name, step.tier && [" ", tag(step.tier)]],
				svg("svg", { viewBox: "0 0 1000 8", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { class: step.phase === "queued" ? "wait" : errors.length ? "bad" : null, x: Math.max(0, at).toFixed(1), width: wide.toFixed(1), height: 8 })),
				duration(step.seconds),
				errors.length && !same ? el("details", el("summary", result), el("ul.error-list", errors.map(e => el("li", e)))) : result]);
		}) });
	}

	/** @param {string | undefined} schema */
	function drawAnswer(schema) {
		const said = run.reply ?? run.lastAnswer;
		if (said == null && !schema) return null;
		const texts = { text: said ?? "", schema: schema ?? "" };
		const body = el("div.body");
		let which = /** @type {keyof typeof texts} */ (said == null ? "schema" : "text");
		const pick = (/** @type {keyof typeof texts} */ value) => {
			which = value;
			choose.press(value);
			put(body, value === "schema" ? longText(indented(texts.schema), "Schema") : texts.text ? longText(texts.text, "Answer") : el("p.muted", "The answer is empty."));
		};
		const choose = segment("Show", [["text", "Text"], ["schema", "Schema"]], which, pick);
		pick(which);
		const title = said == null ? "Answer schema" : run.reply == null ? "Last answer" : "Answer";
		return panel([title, " ", said && muted(size(bytesOf(said)))], body, [schema && said != null && choose, copyButton(() => texts[which])]);
	}

	/** @param {string | undefined} metadata */
	function drawMetadata(metadata) {
		const pairs = [...parts(metadata)];
		// Strings lose their quotes; everything else stays as it was sent.
		return pairs.length > 0 && panel("Metadata", el("div.body", facts(pairs.map(([key, value]) => [mono(key), mono(value.startsWith('"') ? JSON.parse(value) : value)]))), copyButton(metadata ?? ""));
	}

	function drawQuestions() {
		const list = run.questions ?? [];
		return list.length > 0 && panel(list.some(q => !q.answer && q.kind !== "agent") ? "Needs you" : "Questions", el("ul.todo", list.map(q => questionItem(page, q, trouble, load))));
	}

	const asks = [["Answer", "nowrap"], ["Wanted", "mono"]];
	function drawAsked() {
		const list = run.permissions ?? [], more = run.morePermissions ?? 0;
		return list.length > 0 && panel("Permissions", el("div.body", table({ caption: "Permissions that the agent asked for", class: "tight", columns: asks, rows: list.map(p => tr(asks, [
			badge(p.answer.startsWith("allowed") ? "ok" : "bad", p.answer), [muted(p.kind), " ", p.title],
		])) }), more > 0 && el("p.muted.small", `${count(more, "more request")} not kept.`)));
	}

	const columns = [["Status", "a-status"], ["To", "mono keep a-to"], ["Attempts", "right nowrap a-time"], ["Last attempt", "a-why"], [unseen("Actions"), "right a-do"]];
	function drawOut() {
		const list = run.deliveries ?? [];
		return list.length > 0 && panel("Deliveries", table({ caption: "Deliveries of this run", class: "cards out-cards", columns, rows: list.map(d => tr(columns, [
			badge(d.status), d.target, [count(d.attempts, "attempt"), repeated(d)], attempts(d),
			button(d.status === "pending" ? "Send now" : "Send again", () => d.status === "delivered" ? askRepeat(d, () => send(d)) : send(d, "?unsent=1"), { class: "small", ...page.acting }),
		])) }));
	}

	/** @param {Delivery} d */
	function attempts(d) {
		const last = d.lastError || (d.lastStatus ? `answered ${d.lastStatus}` : ""), next = d.status === "pending" && [d.nextAttemptAt && [last && " · ", "next ", since(d.nextAttemptAt, true)], d.waitsFor && ` · waits for ${d.waitsFor}`];
		if (!d.history?.length) return el("span.muted", last, next);
		return el("details", el("summary", el("span.muted", last || count(d.history.length, "attempt"), next)), el("ul.folds.small.muted", d.history.map(a => el("li", time(a.at), ` · ${[a.error || (a.status && `answered ${a.status}`), duration(a.seconds)].filter(Boolean).join(" · ")}`))));
	}

	function drawFacts() {
		const link = (/** @type {string | undefined} */ other) => other && el("a.mono", { href: page.link(`runs/${other}`) }, other);
		return facts([
			["Chat", el("a.mono", { href: page.link("chats", { chatId: run.chatId }) }, run.chatId)],
			["Action", run.action + (run.sync ? ", the caller waited" : "")], ["Accepted", [time(run.acceptedAt, { exact: true }), el("span.muted", " · ", since(run.acceptedAt))]],
			["Started", time(run.startedAt, { exact: true })], ["Ended", time(run.finishedAt, { exact: true })], ["Took", run.finishedAt && duration(took(run))], ["Attempts", run.attempts], ["Repairs", run.repairAttempts],
			["Used", run.usage?.map(u => el("div", [u.model, u.inputTokens != null && `${number(u.inputTokens)} + ${number(u.outputTokens)} tokens`, u.costUsd != null && dollars(u.costUsd)].filter(Boolean).join(" · ")))], ["Not counted", run.usageRefused],
			["Waits for", run.waitingFor], ["Cancelled by", run.cancelledBy], ["Runner", run.runner], ["Model tier", run.tier], ["Tier with a schema", run.validationTier], ["Memory preset", run.memoryPreset],
			["Time limit", run.timeoutSeconds && duration(run.timeoutSeconds)], ["Longest wait", run.queueTimeSeconds && duration(run.queueTimeSeconds)],
			["Idempotency key", run.keyHeader && ["from ", mono(run.keyHeader)]], ["Request id", run.requestId && [mono(run.requestId), copyButton(run.requestId, "Copy the request id", { bare: true })]], ["Client", run.client && mono(run.client)], ["Trace", run.traceParent && mono(run.traceParent.split("-")[1] ?? run.traceParent)],
			["Folded into", run.foldedInto !== run.runId && link(run.foldedInto)], ["Folded", (run.folded ?? 0) > 1 && el("a", { href: page.link("chats", { chatId: run.chatId }) }, `one turn for ${count(run.folded ?? 0, "run")}`)],
			["Repeats run", link(run.againOf)], ["Run again as", link(run.againAs)],
		]);
	}

	const cancel = () => askCancel(page, 1, async act => { await act(run); await load(); });
	const again = () => askAgain(page, [run], async act => page.go(`runs/${(await act(run)).runId}`));

	/** @param {Delivery} d */
	const send = (d, unsent = "") => attempt(trouble, async () => {
		await api.post(`deliveries/${encodeURIComponent(d.id)}/retry${unsent}`);
		put(trouble, note("ok", `The delivery is sent again to ${d.target}.`));
		await load();
	}, "Not sent again");

	const later = page.later(load, 200);
	page.on("runs", event => {
		const news = event.runs.find(r => r.runId === id);
		if (news && run && news.status !== run.status) page.say(`${run.hook}: ${statusWord(news.status)}`);
		if (news || (event.skipped && run && isOpen(run.status))) later();
	});
	page.on("deliveries", event => {
		if (event.skipped || event.deliveries.some(d => d.runId === id)) later();
	});
	page.on("reset", later);
	page.every(1000, () => { if (run && isOpen(run.status) && !page.live.paused) drawWhy(); });
	await load();
}
