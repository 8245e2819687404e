// Types that the modules of the page share. They are checked by tsc and not served.

type Item = Node | string | number | boolean | null | undefined;
/** What an element may hold: text, elements, and lists of them. False and null are nothing. */
type Child = Item | any[];
/** As in HTML. Functions are listeners ({click: f}); false and null leave an attribute out. */
type Attributes = Record<string, any>;
/** What its head holds, and the class of the head and of every cell. */
type Column = (string | Node)[];

/** Seconds since 1970, and a value where there is one. */
type Point = [at: number, value: number | null];
interface Series {
	text: string;
	class: string;
	points: Point[];
	area?: boolean;
}
interface Drawing {
	title: string;
	kind: "bars" | "lines";
	/** Over the same times. */
	series: Series[];
	/** What the plot shows, for those who do not see it. */
	sentence: string;
	format: (value: number) => string;
	/** There are only whole numbers. */
	whole?: boolean;
	/** They are durations. */
	seconds?: boolean;
	/** Seconds from the beginning of a point to that of the next. */
	step: number;
	/** Leads to the runs of a time, in seconds since 1970. */
	select: (from: number, to: number) => string;
	/** Leads to what a part of a bar counts. "" for what leads nowhere. */
	open?: (series: Series, i: number) => string;
}

/** Empty ones are left out. */
type Params = Record<string, string | number | boolean | string[] | null | undefined>;
interface Options {
	params?: Params;
	/** Sent as JSON; a string is sent as it is. */
	body?: unknown;
	headers?: Record<string, string>;
	signal?: AbortSignal;
}
interface Answer {
	data: any;
	/** The body as it came, in which large numbers are whole. */
	text: string;
	etag: string;
	status: number;
}
interface Api {
	instance: string;
	request(method: string, path: string, options?: Options): Promise<Answer>;
	get(path: "overview", params: Params, signal: AbortSignal): Promise<Overview>;
	get(path: "runs", params: Params, signal: AbortSignal): Promise<{ runs: Run[]; cursor?: string; searchedTo?: string }>;
	get(path: "questions", params: Params, signal: AbortSignal): Promise<{ questions: Question[]; cursor?: string }>;
	get(path: "refused", params: Params, signal: AbortSignal): Promise<{ refused: Refused[] }>;
	get(path: "refused/requests", params: Params, signal: AbortSignal): Promise<{ requests: KeptRequest[]; keptSeconds: number }>;
	get(path: "runners", params: Params, signal: AbortSignal): Promise<Runner[]>;
	get(path: "cost", params: Params, signal: AbortSignal): Promise<Costs>;
	get(path: string, params?: Params, signal?: AbortSignal): Promise<any>;
	post(path: string, body?: unknown, params?: Params): Promise<any>;
	/** Fetches a file: a link cannot send the header that the server asks for. */
	file(path: string, params: Params, accept: string): Promise<Blob>;
	stream(params: Params, signal: AbortSignal, lastId: string): Promise<Response>;
}

type Topic = "runs" | "deliveries" | "overview" | "settings" | "refused";
interface Events {
	runs: { runs: Run[]; skipped: number; counts?: Record<string, number> };
	deliveries: { deliveries: Delivery[]; skipped: number };
	/** Either figures, or why there are none. */
	overview: Record<string, number> & { storeUnreachable?: string };
	settings: { by?: string };
	refused: { refused: Refused[]; skipped: number };
	reset: unknown;
	state: unknown;
}
type LiveState = "live" | "stalled" | "connecting" | "paused" | "hidden" | "lost";

/** What ends when a page is left, or a part of it is replaced. */
interface Scope {
	signal: AbortSignal;
	/** An event of the stream. On "reset" what was missed is not known: fetch again. */
	on<K extends keyof Events>(name: K, listener: (data: Events[K]) => void): void;
	every(milliseconds: number, act: () => void): void;
	/** A function that has act called a while after its first call, or, if it begins anew, after its last. */
	later(act: () => unknown, milliseconds: number, anew?: boolean): () => void;
}

/** What a page module's show(page) is given. */
interface Page extends Scope {
	/** Where the page puts itself; empty at first. */
	main: HTMLElement;
	/** The parts after the page's name: ["019a…"] of #/runs/019a…. */
	path: string[];
	/** Of the fragment, without the instance. */
	params: URLSearchParams;
	api: Api;
	live: import("./assets/api.js").Live;
	me: any;
	readOnly: boolean;
	/** Why controls are switched off; "" for those who may use them. */
	readOnlyWhy: string;
	/** Attributes of a control that changes something. */
	acting: { disabled?: boolean; title?: string };
	/** Fetched anew each time: a change of the settings changes it. */
	about(): Promise<any>;
	/** Of the window. */
	title(text: string): void;
	/** A fragment for an href, with the instance. */
	link(path: string, params?: Record<string, string | null | undefined>): string;
	go(path: string, params?: Record<string, string | null | undefined>): void;
	/** Changes the address without showing the page anew. */
	setParams(change: Record<string, string | null | undefined>, how?: { push?: boolean }): void;
	/** Asks before the page is left while dirty() says so. */
	guard(dirty: () => boolean): void;
	/** To screen readers, at most every 10 s. */
	say(text: string): void;
	/** The same page for a part that may end sooner. */
	part(): Page & { end(): void };
}

/** What was used, as far as agents told. */
interface Spent {
	inputTokens?: number;
	outputTokens?: number;
	costUsd?: number;
}
interface CostRow extends Spent {
	/** A hook, a runner, a model or a time. */
	key: string;
	runs: number;
}
interface Costs {
	rows: CostRow[];
	total: Spent & { runs: number };
	budgets?: Budget[];
}
interface Budget {
	/** As it is written: $5/24h. */
	budget: string;
	/** None for those of all hooks. */
	hook?: string;
	by?: string;
	/** From outside; "" for runs without one. */
	value?: string;
	limit: Amount;
	used: Amount;
	percent: number;
	leftAt?: string;
}
interface Amount {
	tokens?: number;
	costUsd?: number;
}

/** What an operator has paused. */
interface Pause {
	what: string;
	name?: string;
	reason?: string;
	by?: string;
	at: string;
	/** How many of its runs start all the same. */
	rate?: string;
	/** How many of its runs wait. */
	waiting: number;
	waitingMore?: boolean;
}

/** A run as lists show it. */
interface Run {
	status: string;
	runId: string;
	chatId: string;
	hook: string;
	action: string;
	runner?: string;
	name?: string;
	acceptedAt: string;
	startedAt?: string;
	finishedAt?: string;
	attempts: number;
	waitingFor?: string;
	/** What the caller was told. */
	errorMessage?: string;
	/** What operators are told. */
	reason?: string;
	cancelledBy?: string;
	repairAttempts?: number;
	/** The agent had lost the session of the chat, and began another one. */
	sessionRenewed?: boolean;
	client?: string;
	/** By which the sender knows the request. */
	requestId?: string;
	againOf?: string;
	/** The run in whose turn it was carried out, and of that run how many the turn had. */
	foldedInto?: string;
	folded?: number;
	preview?: string;
	tier?: string;
	test?: boolean;
	sync?: boolean;
	sentOut?: { delivered: number; pending: number; dead: number };
}
interface Runner {
	name: string;
	module: string;
	preset?: string;
	address?: string;
	default?: boolean;
	/** That are sent to it. */
	tiers?: string[];
	/** A reload took it away, and turns of before are under way. */
	gone?: boolean;
	state: string;
	inFlight: number;
	lastError: string;
	lastErrorAt: string | null;
	lastOk: string | null;
}
interface Step {
	phase: string;
	startedAt: string;
	seconds: number;
	tier?: string;
	bytes?: number;
	errors?: string[];
}
interface Delivery {
	id: string;
	kind: string;
	target: string;
	status: string;
	attempts: number;
	/** How often it was sent again although it had arrived. */
	repeats?: number;
	lastError?: string;
	lastStatus?: number;
	nextAttemptAt?: string;
	/** Besides its time: "an earlier delivery to the same chat". */
	waitsFor?: string;
	runId: string;
	chatId: string;
	history?: { at: string; seconds: number; status?: number; error?: string }[];
}
/** What a run waits for. */
interface Question {
	id: string;
	runId: string;
	hook?: string;
	kind: string;
	text?: string;
	/** Without them, any text answers it. */
	choices?: string[];
	channel?: string;
	to?: string;
	askedAt?: string;
	until?: string;
	else?: string;
	answer?: { text?: string; error?: string; by?: string; via: string; at: string };
}
interface Permission {
	kind: string;
	title: string;
	answer: string;
}
interface RunDetails extends Run {
	reply?: string;
	message?: string;
	messageCut?: boolean;
	keyHeader?: string;
	lastAnswer?: string;
	validationErrors?: string[];
	/** What the agent asked to be allowed, and how often it asked besides. */
	permissions?: Permission[];
	morePermissions?: number;
	questions?: Question[];
	/** By model. */
	usage?: (Spent & { model?: string })[];
	/** Why a report of the agent does not count. */
	usageRefused?: string;
	againAs?: string;
	steps?: Step[];
	keptUntil?: string;
	validationTier?: string;
	memoryPreset?: string;
	timeoutSeconds?: number;
	queueTimeSeconds?: number;
	traceParent?: string;
	deliveries?: Delivery[];
}
interface Overview {
	stepSeconds: number;
	now: string;
	figures: Record<string, number>;
	attention: { kind: string; text: string; detail?: string; link?: string; severity: string; code?: string }[];
	dismissed?: { code: string; setting: string; problem: string; link: string; dismissal: { reason: string; by?: string; at: string } }[];
	series: { name: string; points: Point[] }[];
	hooks: { name: string; action?: string; accepted: number; ended?: number; failed: number; medianSeconds: number | null; p95Seconds: number | null; p99Seconds: number | null; lastAt?: string; points: Point[] }[];
	nodes?: { name: string; host: string; this?: boolean; silent?: boolean; joinedAt: string; seenAt: string; running: number }[];
}
/** A request that became no run and is kept. */
interface KeptRequest {
	id: string;
	at: string;
	hook: string;
	status: number;
	ignored?: boolean;
	reason: string;
	method: string;
	path: string;
	client: string;
	size: number;
}
interface Refused {
	hook: string;
	status: number;
	/** It was left out by the condition, and not refused. */
	ignored?: boolean;
	condition?: string;
	reason: string;
	message: string;
	count: number;
	firstAt: string;
	lastAt: string;
	error?: string;
	chat?: string;
	client: string;
	size: number;
	clients?: { client: string; count: number; lastAt: string }[];
	asked?: string[];
}
