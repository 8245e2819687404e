-- The tables that several concerns share. Texts are as codec.Escape writes them. All times are those of clock_1().

CREATE TABLE meta (
	version           int NOT NULL, -- the newest migration
	oldest_compatible int NOT NULL  -- the oldest version of the program that may work with it
);

-- The clock of all nodes.
CREATE FUNCTION clock_1() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';

CREATE SEQUENCE run_seq;   -- the order of runs in their chats
CREATE SEQUENCE turn_seq;  -- the order in which runs became ready
CREATE SEQUENCE token_seq; -- tells claims apart
CREATE SEQUENCE question_seq; -- the order in which questions were asked

-- The number of the advisory lock of a chat. Other schemas of the database have other numbers.
DO $do$ BEGIN
	EXECUTE format('CREATE FUNCTION chat_lock_1(chat text) RETURNS bigint LANGUAGE sql IMMUTABLE AS ''SELECT hashtextextended(chat, %s)''',
		(SELECT oid FROM pg_namespace WHERE nspname = current_schema()));
END $do$;

-- Nodes that are alive, and their figures. The sums of all rows are what counts, also of nodes that are gone: a row is changed by its
-- node alone, on one of its connections, so that nodes do not wait for each other.
CREATE TABLE node (
	name        text PRIMARY KEY,
	host        text NOT NULL DEFAULT '',
	version     int NOT NULL DEFAULT 1,
	joined_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
	alive_until timestamptz NOT NULL,               -- as its last renewal says: until then callers that wait at it are answered
	seen_at     timestamptz NOT NULL DEFAULT '-infinity', -- its last pulse
	follows     bigint NOT NULL DEFAULT 0           -- another number whenever it follows other runs
) WITH (fillfactor = 50);
CREATE TABLE counter (
	node       text NOT NULL,
	lane       int NOT NULL,
	queued     bigint NOT NULL DEFAULT 0, -- runs that are not claimed and not put aside
	running    bigint NOT NULL DEFAULT 0, -- runs that are claimed
	pending    bigint NOT NULL DEFAULT 0, -- deliveries
	dead       bigint NOT NULL DEFAULT 0, -- deliveries
	keys       bigint NOT NULL DEFAULT 0,
	told_bytes bigint NOT NULL DEFAULT 0, -- that ended runs keep
	waiting    bigint NOT NULL DEFAULT 0, -- runs that are put aside
	asking     bigint NOT NULL DEFAULT 0, -- open questions for people
	PRIMARY KEY (node, lane)
) WITH (fillfactor = 50);

-- What tells ready runs apart when there is no room for all of them. A row is never changed.
CREATE TABLE kind (
	id     int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	runner text NOT NULL,
	hook   text NOT NULL,
	UNIQUE (runner, hook)
);

-- Runs that have not ended. The first one of a chat is its head, claimed or not.
CREATE TABLE queue (
	id          uuid NOT NULL,
	seq         bigint NOT NULL,
	chat        text COLLATE "C" NOT NULL,
	head        boolean NOT NULL,
	turn        bigint,            -- of a head that is ready to be claimed
	due_at      timestamptz,       -- of a head that is not claimed and not ready: when it will be, by its pause, the window of its fold or its question
	kind        int NOT NULL,
	hook        text NOT NULL,
	runner      text NOT NULL,
	accepted_at timestamptz NOT NULL,
	expires_at  timestamptz,       -- when its queue time is over, if it has one and was never started
	starts      int NOT NULL DEFAULT 0, -- also the one that is under way
	waits       int NOT NULL DEFAULT 0, -- how often in a row it was put back to wait
	waiting_for text,              -- while it is put back to wait, or put aside
	question    int,               -- of a head that is put aside: the number of the question. It is not claimed then, and has no turn
	asked       bigint NOT NULL DEFAULT 0, -- about how many bytes its questions have, 0 if it has none. With some it does not expire
	fold_window interval,          -- NULL if it is not folded with others, as if a caller waits or it is another run again
	fold_max    int NOT NULL DEFAULT 0,
	alike       bigint NOT NULL DEFAULT 0,
	size        int NOT NULL,      -- of the message
	named       boolean NOT NULL,  -- somebody named the chat
	owner       text,              -- the node of the caller that waits
	request     text COLLATE "C",  -- the sender's id of the request, as run has it too
	-- Of a claim. The token stays when the lease is over, until somebody else claims the run.
	node        text,              -- NULL if the run is not claimed
	token       text,
	call        bigint,            -- the call of the node by which it was claimed
	leader      uuid,              -- the run that leads the fold, also of that run itself; NULL once it was put back by its holder
	folded      int NOT NULL DEFAULT 0, -- of a leader: how many runs are folded into its claim
	lease_until timestamptz,
	started_at  timestamptz,
	cancel_by   text,              -- who wants it to be cancelled …
	cancel_no   bigint,            -- … and in which order
	run         json NOT NULL
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX queue_id ON queue (id);
CREATE UNIQUE INDEX queue_head ON queue (chat) WHERE head;
CREATE INDEX queue_rest ON queue (chat, seq) WHERE NOT head;
CREATE INDEX queue_turn ON queue (turn) WHERE turn IS NOT NULL;
CREATE INDEX queue_kind ON queue (kind, turn) WHERE turn IS NOT NULL;
CREATE INDEX queue_due ON queue (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX queue_lease ON queue (lease_until) WHERE node IS NOT NULL AND head;
CREATE INDEX queue_waits ON queue (runner, chat) WHERE waits > 0 AND node IS NULL;
CREATE INDEX queue_cancel ON queue (node) WHERE cancel_by IS NOT NULL;
CREATE INDEX queue_hook ON queue (hook, id) WHERE question IS NULL;
CREATE INDEX queue_aside ON queue (id) WHERE question IS NOT NULL;
CREATE INDEX queue_aside_hook ON queue (hook, id) WHERE question IS NOT NULL;
CREATE INDEX queue_request ON queue (request, id) WHERE request IS NOT NULL;
CREATE INDEX queue_expiry ON queue (expires_at) WHERE expires_at IS NOT NULL;

-- Questions of runs, from when they are asked until the runs are pruned. Whoever changes one has locked the run's row in queue.
CREATE TABLE question (
	run         uuid NOT NULL,
	number      int NOT NULL,
	seq         bigint,            -- the order in which they were asked; NULL, like asked_at, if it was answered before it was asked
	people      boolean NOT NULL,  -- a person is asked
	asked_at    timestamptz,
	answered_at timestamptz,       -- NULL while it is open
	record      json NOT NULL,     -- what was asked
	answer      json,
	state       bytea,             -- what the engine needs to go on
	PRIMARY KEY (run, number)
);
CREATE INDEX question_open ON question (seq) WHERE people AND answered_at IS NULL;

-- Runs that have ended. Rows are inserted and deleted, and changed only when a run is run again.
CREATE TABLE done (
	id          uuid PRIMARY KEY,
	seq         bigint NOT NULL,
	chat        text COLLATE "C" NOT NULL,
	hook        text NOT NULL,
	runner      text NOT NULL,
	status      text NOT NULL,
	accepted_at timestamptz NOT NULL,
	started_at  timestamptz,
	finished_at timestamptz NOT NULL,
	attempts    int NOT NULL,
	token       text,              -- of the claim under which it ended
	named       boolean NOT NULL,
	past        boolean NOT NULL,  -- later turns of the chat are told about it
	folded_into uuid,
	folded      int NOT NULL DEFAULT 0,
	again_as    uuid,
	request     text COLLATE "C",
	run         json NOT NULL,     -- without what it was told
	ending      json               -- outcome and steps; NULL if they are those of folded_into
);
CREATE INDEX done_named ON done (chat, id) WHERE named;
CREATE INDEX done_unnamed ON done (chat, id) WHERE NOT named;
CREATE INDEX done_named_id ON done (id) WHERE named;
CREATE INDEX done_folded ON done (folded_into, seq) WHERE folded_into IS NOT NULL;
CREATE INDEX done_hook ON done (hook, id);
CREATE INDEX done_request ON done (request, id) WHERE request IS NOT NULL;
CREATE INDEX done_status ON done (status, id) WHERE status <> 'completed';
CREATE INDEX done_past ON done (chat, seq) WHERE past;
CREATE INDEX done_finished ON done (finished_at, id);

-- What ended runs were told, as long as it is kept.
CREATE TABLE told (
	id    uuid PRIMARY KEY,
	at    timestamptz NOT NULL, -- when the run ended
	until timestamptz NOT NULL, -- by the run's own wish: its History after that
	bytes int NOT NULL,
	told  json NOT NULL
);
CREATE INDEX told_until ON told (until);
CREATE INDEX told_at ON told (at);

-- Idempotency keys, and what repeated requests are answered with.
CREATE TABLE key (
	id    bytea PRIMARY KEY,
	body  bytea NOT NULL,
	at    timestamptz NOT NULL,
	run   uuid NOT NULL,
	first json NOT NULL -- as much of the first run as callers are told
);
CREATE INDEX key_at ON key (at);
CREATE INDEX key_run ON key (run);

CREATE TABLE settings (
	one      boolean PRIMARY KEY DEFAULT true CHECK (one),
	revision bigint NOT NULL,
	body     bytea
);
INSERT INTO settings (revision) VALUES (0);
