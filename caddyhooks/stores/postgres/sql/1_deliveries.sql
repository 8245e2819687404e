-- Deliveries, and the hosts they go to. Whoever changes a delivery that is pending has locked the row of its host. So how many are under
-- way need not be written down anywhere: it is counted, and a crash leaks nothing. Only add_deliveries_1 locks no host, since many runs end
-- at once whose deliveries go to the same one: it leaves news, which the next claim takes in.
--
-- OFFSET 0 keeps the planner from beginning with the table, which it likes to do while that is empty. Functions are in PL/pgSQL, since those in
-- SQL are planned anew each time they are called, and have generic plans, since planning takes as long as the work.

CREATE SEQUENCE delivery_seq; -- the order of deliveries that are due at the same time

CREATE TABLE delivery (
	run         uuid NOT NULL,
	index       int NOT NULL,
	seq         bigint NOT NULL,
	host        text COLLATE "C" NOT NULL,
	chat        text COLLATE "C",  -- to which one is sent at a time; NULL of callbacks
	status      text NOT NULL,
	created_at  timestamptz NOT NULL,
	due         timestamptz NOT NULL,
	-- When it can be handed out, as far as its host allows: of a callback that waits when it is due. To a chat only the first one that waits has
	-- it, and none while one is under way.
	ready_at    timestamptz,
	-- Of the last claim. The token holds until the attempt is settled, or somebody else claims the delivery.
	token       text,
	holds       boolean NOT NULL DEFAULT false,
	lease_until timestamptz,       -- while it is under way. NULL again when somebody saw that the lease was over
	tried_at    timestamptz,
	record      json NOT NULL,
	body        bytea,             -- NULL of one that arrived
	PRIMARY KEY (run, index)
) WITH (fillfactor = 90, toast_tuple_target = 512, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX delivery_ready ON delivery (host, ready_at, seq) WHERE ready_at IS NOT NULL;
CREATE UNIQUE INDEX delivery_head ON delivery (host, chat) WHERE chat IS NOT NULL AND ready_at IS NOT NULL;
CREATE INDEX delivery_under_way ON delivery (host, lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX delivery_chat_under_way ON delivery (host, chat) WHERE chat IS NOT NULL AND lease_until IS NOT NULL;
CREATE INDEX delivery_lease ON delivery (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX delivery_chat ON delivery (host, chat, due, seq) WHERE chat IS NOT NULL AND status = 'pending';
CREATE INDEX delivery_channel ON delivery (host, due, seq) WHERE chat IS NOT NULL AND status = 'pending';
CREATE INDEX delivery_pending ON delivery (run, index) WHERE status = 'pending';
CREATE INDEX delivery_dead ON delivery (run, index) WHERE status = 'dead';

-- Where deliveries go that share a fate. A host that is blocked is one row here, however many deliveries wait for it.
CREATE TABLE host (
	host     text COLLATE "C" PRIMARY KEY,
	at_once  int,         -- how many may be under way, NULL for as many as usual
	until    timestamptz, -- none is handed out before
	next_at  timestamptz, -- when the next one can be handed out; NULL if none waits, or as many are under way as may be
	empty_at timestamptz  -- since when none is pending
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX host_next ON host (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX host_until ON host (until) WHERE until IS NOT NULL;
CREATE INDEX host_empty ON host (empty_at) WHERE empty_at IS NOT NULL;

-- Chats of channels with a pause of their own. The lock of their host is theirs.
CREATE TABLE chat_pause (
	host  text COLLATE "C" NOT NULL,
	chat  text COLLATE "C" NOT NULL,
	until timestamptz NOT NULL,
	PRIMARY KEY (host, chat)
);

-- Hosts and chats that have got deliveries which their rows do not know of yet.
CREATE TABLE delivery_news (
	seq  bigint PRIMARY KEY,
	host text COLLATE "C" NOT NULL,
	chat text COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Adds the deliveries of runs that end. The caller counts them.
CREATE FUNCTION add_deliveries_1(p_runs text[], p_indexes int[], p_ids text[], p_hosts text[], p_chats text[], p_records text[],
	p_bodies bytea[], p_at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO delivery (run, index, seq, host, chat, status, created_at, due, ready_at, record, body)
	SELECT d.run::uuid, d.index, nextval('delivery_seq'), d.host, d.chat, 'pending', p_at, p_at, CASE WHEN d.chat IS NULL THEN p_at END, d.record::json, d.body
	FROM unnest(p_runs, p_indexes, p_hosts, p_chats, p_records, p_bodies) AS d (run, index, host, chat, record, body);

	INSERT INTO delivery_news (seq, host, chat)
	SELECT nextval('delivery_seq'), d.host, d.chat FROM (SELECT DISTINCT host, chat FROM unnest(p_hosts, p_chats) AS x (host, chat)) d;
END $$;

-- Locks hosts, those that are missing too, in ascending order, as everybody who waits for such locks has to.
CREATE FUNCTION lock_hosts_1(p_hosts text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM unnest(p_hosts) AS u (host) WHERE NOT EXISTS (SELECT FROM host h WHERE h.host = u.host)) THEN
		INSERT INTO host (host) SELECT DISTINCT u.host COLLATE "C" FROM unnest(p_hosts) AS u (host) ORDER BY 1
		ON CONFLICT (host) DO UPDATE SET host = EXCLUDED.host;
	ELSE
		PERFORM FROM host h WHERE h.host = ANY (p_hosts) ORDER BY h.host FOR UPDATE;
	END IF;
END $$;

-- Offers the first delivery of each of some chats, unless one is under way. Their hosts are locked.
CREATE FUNCTION offer_chats_1(p_hosts text[], p_chats text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	-- A pause is forgotten when nothing is pending for the chat.
	DELETE FROM chat_pause p USING unnest(p_hosts, p_chats) AS c (host, chat)
	WHERE p.host = c.host AND p.chat = c.chat AND NOT EXISTS (
		SELECT FROM delivery d WHERE d.host = c.host AND d.chat = c.chat AND d.chat IS NOT NULL AND d.status = 'pending');

	UPDATE delivery d SET ready_at = NULL FROM unnest(p_hosts, p_chats) AS c (host, chat)
	WHERE d.host = c.host AND d.chat = c.chat AND d.chat IS NOT NULL AND d.ready_at IS NOT NULL AND (
		EXISTS (SELECT FROM delivery u WHERE u.host = c.host AND u.chat = c.chat AND u.chat IS NOT NULL AND u.lease_until IS NOT NULL) OR
		d.seq <> (SELECT f.seq FROM delivery f WHERE f.host = c.host AND f.chat = c.chat AND f.chat IS NOT NULL AND f.status = 'pending' ORDER BY f.due, f.seq LIMIT 1));

	UPDATE delivery d SET ready_at = f.ready_at
	FROM (SELECT DISTINCT x.host, x.chat FROM unnest(p_hosts, p_chats) AS x (host, chat) WHERE x.chat IS NOT NULL) c
	CROSS JOIN LATERAL (
		SELECT f.run, f.index, greatest(f.due, (SELECT p.until FROM chat_pause p WHERE p.host = c.host AND p.chat = c.chat)) AS ready_at
		FROM delivery f WHERE f.host = c.host AND f.chat = c.chat AND f.chat IS NOT NULL AND f.status = 'pending' ORDER BY f.due, f.seq LIMIT 1) f
	WHERE d.run = f.run AND d.index = f.index AND d.ready_at IS DISTINCT FROM f.ready_at AND NOT EXISTS (
		SELECT FROM delivery u WHERE u.host = c.host AND u.chat = c.chat AND u.chat IS NOT NULL AND u.lease_until IS NOT NULL);
END $$;

-- Finds out when the next delivery to each of some hosts can be handed out. A host for which nothing is pending loses its throttle. They are
-- locked.
CREATE FUNCTION refresh_hosts_1(p_hosts text[], t timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE host h SET next_at = n.next_at,
		at_once = CASE WHEN n.pending THEN h.at_once END, until = CASE WHEN n.pending THEN h.until END,
		empty_at = CASE WHEN NOT n.pending THEN coalesce(h.empty_at, t) END
	FROM (
		SELECT g.host, CASE WHEN f.ready_at IS NOT NULL AND u.n < coalesce(g.at_once, 16) THEN greatest(f.ready_at, g.until) END AS next_at,
			f.ready_at IS NOT NULL OR u.n > 0 OR EXISTS (SELECT FROM delivery d WHERE d.host = g.host AND d.lease_until IS NOT NULL)
				OR EXISTS (SELECT FROM delivery d WHERE d.host = g.host AND d.chat IS NOT NULL AND d.status = 'pending') AS pending
		FROM host g
		LEFT JOIN LATERAL (SELECT d.ready_at FROM delivery d WHERE d.host = g.host AND d.ready_at IS NOT NULL ORDER BY d.ready_at, d.seq LIMIT 1) f ON true
		CROSS JOIN LATERAL (
			SELECT count(*) AS n FROM (SELECT FROM delivery d WHERE d.host = g.host AND d.lease_until > t LIMIT coalesce(g.at_once, 16)) x) u
		WHERE g.host = ANY (p_hosts)) n
	WHERE h.host = n.host AND (h.next_at IS DISTINCT FROM n.next_at OR (h.empty_at IS NULL) <> n.pending
		OR NOT n.pending AND (h.at_once IS NOT NULL OR h.until IS NOT NULL));
END $$;

-- Lets deliveries wait again whose lease is over, as due as before: those to some hosts, which are locked.
CREATE FUNCTION lapse_deliveries_1(p_hosts text[], t timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_hosts text[];
	v_chats text[];
BEGIN
	WITH lapsed AS (
		UPDATE delivery d SET lease_until = NULL, ready_at = CASE WHEN d.chat IS NULL THEN d.due END
		WHERE d.host = ANY (p_hosts) AND d.lease_until <= t RETURNING d.host, d.chat)
	SELECT array_agg(l.host), array_agg(l.chat) INTO v_hosts, v_chats FROM lapsed l WHERE l.chat IS NOT NULL;
	IF v_hosts IS NOT NULL THEN
		PERFORM offer_chats_1(v_hosts, v_chats);
	END IF;
END $$;

-- Stores how attempts ended, hands out deliveries that are due, or both. The first row has no delivery: it tells whose tokens do not hold (their
-- places among the p_runs, from 1), how long until there is more, and whether something was due that was left to others. The p_throttles_of tell
-- by which of the p_runs each throttle is.
CREATE FUNCTION deliver_1(p_node text,
	p_runs text[], p_indexes int[], p_tokens text[], p_statuses text[], p_pauses double precision[], p_records text[],
	p_throttles_of int[], p_throttle_hosts text[], p_throttle_chats text[], p_at_once int[], p_throttle_pauses double precision[],
	p_max int, p_lease double precision)
RETURNS TABLE (lost int[], wait double precision, more boolean, run uuid, index int, status text, created_at timestamptz, due timestamptz,
	tried_at timestamptz, token text, record json, body bytea)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	t         timestamptz := clock_1();
	v_ids     uuid[] := p_runs::uuid[];
	v_settles boolean := cardinality(p_runs) > 0;
	v_wanted  text[] := '{}'; -- hosts to wait for
	v_hosts   text[] := '{}'; -- hosts that are locked
	v_extra   text[];
	v_news    bigint[];
	v_held    int[];
	v_known   int[];
	v_chats_h text[];
	v_chats   text[];
	v_pending bigint := 0;
	v_dead    bigint := 0;
	v_runs    uuid[] := '{}';
	v_indexes int[] := '{}';
	v_next    timestamptz;
	v_n       int;
BEGIN
	PERFORM durable_1(); -- of claims, too: a token that is forgotten would be given out again
	IF v_settles THEN
		SELECT coalesce(array_agg(DISTINCT d.host), '{}') INTO v_wanted
		FROM unnest(v_ids, p_indexes) AS s (run, index) JOIN delivery d ON d.run = s.run AND d.index = s.index;
		v_wanted := v_wanted || p_throttle_hosts;
	END IF;
	IF p_max > 0 THEN
		-- News of hosts that have no row yet: those are few.
		SELECT array_agg(n.seq), v_wanted || coalesce(array_agg(DISTINCT n.host) FILTER (WHERE h.host IS NULL), '{}') INTO v_news, v_wanted
		FROM (SELECT seq, host FROM delivery_news ORDER BY seq LIMIT 500) n LEFT JOIN host h ON h.host = n.host;
	END IF;
	IF cardinality(v_wanted) > 0 THEN
		PERFORM lock_hosts_1(v_wanted);
		v_hosts := v_wanted;
	END IF;

	IF v_settles THEN
		SELECT array_agg(s.nth) FILTER (WHERE d.holds), array_agg(s.nth) INTO v_held, v_known
		FROM unnest(v_ids, p_indexes, p_tokens) WITH ORDINALITY AS s (run, index, token, nth)
		CROSS JOIN LATERAL (SELECT d.token, d.holds FROM delivery d WHERE d.run = s.run AND d.index = s.index OFFSET 0) d
		WHERE d.token = s.token;
		WITH settled AS (
			UPDATE delivery d SET status = s.status, holds = false, lease_until = NULL, record = s.record::json,
				due = CASE WHEN s.status = 'pending' AND s.pause > 0 THEN t + make_interval(secs => s.pause) ELSE d.due END,
				ready_at = CASE WHEN s.status = 'pending' AND d.chat IS NULL THEN CASE WHEN s.pause > 0 THEN t + make_interval(secs => s.pause) ELSE d.due END END,
				body = CASE WHEN s.status <> 'delivered' THEN d.body END
			FROM unnest(v_ids, p_indexes, p_statuses, p_pauses, p_records) WITH ORDINALITY AS s (run, index, status, pause, record, nth)
			WHERE s.nth = ANY (v_held) AND d.run = s.run AND d.index = s.index
			RETURNING d.host, d.chat, d.status)
		SELECT array_agg(host) FILTER (WHERE chat IS NOT NULL), array_agg(chat) FILTER (WHERE chat IS NOT NULL),
			-count(*) FILTER (WHERE status <> 'pending'), count(*) FILTER (WHERE status = 'dead')
		INTO v_chats_h, v_chats, v_pending, v_dead FROM settled;

		IF cardinality(p_throttles_of) > 0 AND v_held IS NOT NULL THEN
			-- Of several for one destination the last one counts.
			UPDATE host h SET at_once = nullif(x.at_once, 0), until = CASE WHEN x.pause > 0 THEN t + make_interval(secs => x.pause) END
			FROM (
				SELECT DISTINCT ON (x.host) x.host, x.at_once, x.pause
				FROM unnest(p_throttles_of, p_throttle_hosts, p_throttle_chats, p_at_once, p_throttle_pauses) WITH ORDINALITY AS x (of, host, chat, at_once, pause, nth)
				WHERE x.of = ANY (v_held) AND x.chat IS NULL ORDER BY x.host, x.nth DESC) x
			WHERE h.host = x.host;
			DELETE FROM chat_pause p USING unnest(p_throttles_of, p_throttle_hosts, p_throttle_chats, p_throttle_pauses) AS x (of, host, chat, pause)
			WHERE x.of = ANY (v_held) AND p.host = x.host AND p.chat = x.chat;
			INSERT INTO chat_pause (host, chat, until)
			SELECT x.host, x.chat, t + make_interval(secs => x.pause) FROM (
				SELECT DISTINCT ON (x.host, x.chat) x.host, x.chat, x.pause
				FROM unnest(p_throttles_of, p_throttle_hosts, p_throttle_chats, p_throttle_pauses) WITH ORDINALITY AS x (of, host, chat, pause, nth)
				WHERE x.of = ANY (v_held) AND x.chat IS NOT NULL ORDER BY x.host, x.chat, x.nth DESC) x
			WHERE x.pause > 0;
			SELECT v_chats_h || array_agg(x.host), v_chats || array_agg(x.chat) INTO v_chats_h, v_chats
			FROM unnest(p_throttles_of, p_throttle_hosts, p_throttle_chats) AS x (of, host, chat) WHERE x.of = ANY (v_held) AND x.chat IS NOT NULL;
		END IF;
	END IF;

	IF p_max > 0 THEN
		-- Hosts with news, or with leases that are over. Whoever else has locked one looks after it.
		SELECT array_agg(l.host) INTO v_extra FROM (
			SELECT h.host FROM host h WHERE h.host = ANY (ARRAY(
					SELECT n.host FROM delivery_news n WHERE n.seq = ANY (v_news)
					UNION SELECT d.host FROM (SELECT d.host FROM delivery d WHERE d.lease_until <= t ORDER BY d.lease_until LIMIT 100) d))
				AND h.host <> ALL (v_hosts)
			FOR UPDATE SKIP LOCKED) l;
		v_hosts := v_hosts || coalesce(v_extra, '{}');
		IF v_news IS NOT NULL THEN
			WITH heard AS (DELETE FROM delivery_news n WHERE n.seq = ANY (v_news) AND n.host = ANY (v_hosts) RETURNING n.host, n.chat)
			SELECT v_chats_h || array_agg(host), v_chats || array_agg(chat) INTO v_chats_h, v_chats FROM heard WHERE chat IS NOT NULL;
		END IF;
		IF cardinality(v_hosts) > 0 THEN
			PERFORM lapse_deliveries_1(v_hosts, t);
		END IF;
	END IF;
	IF v_chats IS NOT NULL THEN
		PERFORM offer_chats_1(v_chats_h, v_chats);
	END IF;

	IF p_max > 0 THEN
		-- Hosts that have waited for longest come first. No more are locked than have enough for the caller.
		LOOP
			SELECT coalesce(array_agg(l.host), '{}') INTO v_extra FROM (
				SELECT h.host FROM host h WHERE h.next_at <= t AND h.host <> ALL (v_hosts) ORDER BY h.next_at LIMIT 16 + p_max / 16
				FOR UPDATE SKIP LOCKED) l;
			v_hosts := v_hosts || v_extra;
			SELECT coalesce(array_agg(c.run), '{}'), coalesce(array_agg(c.index), '{}') INTO v_runs, v_indexes FROM (
				SELECT c.run, c.index FROM host h CROSS JOIN LATERAL (
					SELECT d.run, d.index, d.due, d.seq FROM delivery d WHERE d.host = h.host AND d.ready_at <= t ORDER BY d.ready_at, d.seq
					LIMIT least(p_max, coalesce(h.at_once, 16) - least(coalesce(h.at_once, 16), (
						SELECT count(*) FROM (SELECT FROM delivery u WHERE u.host = h.host AND u.lease_until > t LIMIT coalesce(h.at_once, 16)) u)))) c
				WHERE h.host = ANY (v_hosts) AND (h.until IS NULL OR h.until <= t)
				ORDER BY c.due, c.seq LIMIT p_max) c;
			v_n := cardinality(v_runs);
			EXIT WHEN v_n = p_max OR cardinality(v_extra) < 16 + p_max / 16;
		END LOOP;
	END IF;

	IF cardinality(v_runs) > 0 THEN
		RETURN QUERY WITH claimed AS (
			UPDATE delivery d SET token = p_node || '-' || nextval('token_seq'), holds = true, lease_until = t + make_interval(secs => p_lease),
				ready_at = NULL, tried_at = t
			FROM unnest(v_runs, v_indexes) AS c (run, index) WHERE d.run = c.run AND d.index = c.index
			RETURNING d.*)
		SELECT NULL::int[], NULL::double precision, NULL::boolean, c.run, c.index, c.status, c.created_at, c.due, c.tried_at, c.token, c.record, c.body
		FROM claimed c;
	END IF;
	IF cardinality(v_hosts) > 0 THEN
		PERFORM refresh_hosts_1(v_hosts, t);
	END IF;

	-- What is due and was not handed out, though there was room for more, belongs to hosts that others have locked.
	SELECT h.next_at INTO v_next FROM host h WHERE h.next_at IS NOT NULL ORDER BY h.next_at LIMIT 1;
	IF EXISTS (SELECT FROM delivery_news n) THEN
		v_next := least(v_next, t);
	END IF;
	lost := ARRAY(SELECT n FROM generate_series(1, cardinality(p_runs)) n WHERE n <> ALL (coalesce(v_known, '{}')));
	more := coalesce(v_next <= t, false);
	wait := CASE WHEN v_next IS NULL THEN -1
		WHEN v_next <= t AND v_n < p_max THEN 0.01
		ELSE greatest(extract(epoch FROM v_next - t), 0) END;
	RETURN NEXT;

	IF v_settles THEN
		PERFORM bump_1(p_node, 3, 0, 0, v_pending, v_dead, 0, 0);
	END IF;
END $$;

-- Hands out deliveries to a host that have been due for long, whether they could be sent now or not.
CREATE FUNCTION claim_overdue_1(p_node text, p_host text, p_due_for double precision, p_max int, p_lease double precision)
RETURNS TABLE (run uuid, index int, status text, created_at timestamptz, due timestamptz, tried_at timestamptz, token text, record json, body bytea)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	t         timestamptz := clock_1();
	v_runs    uuid[];
	v_indexes int[];
	v_chats   text[];
BEGIN
	PERFORM durable_1();
	PERFORM lock_hosts_1(ARRAY[p_host]);
	PERFORM lapse_deliveries_1(ARRAY[p_host], t);
	SELECT array_agg(c.run), array_agg(c.index), array_agg(DISTINCT c.chat) FILTER (WHERE c.chat IS NOT NULL) INTO v_runs, v_indexes, v_chats FROM (
		SELECT * FROM (
			(SELECT d.run, d.index, d.chat, d.due, d.seq FROM delivery d
			WHERE d.host = p_host AND d.ready_at <= t - make_interval(secs => p_due_for) AND d.chat IS NULL ORDER BY d.ready_at, d.seq LIMIT p_max)
			UNION ALL
			(SELECT d.run, d.index, d.chat, d.due, d.seq FROM delivery d
			WHERE d.host = p_host AND d.due <= t - make_interval(secs => p_due_for) AND d.chat IS NOT NULL AND d.status = 'pending' AND d.lease_until IS NULL
			ORDER BY d.due, d.seq LIMIT p_max)) c
		ORDER BY c.due, c.seq LIMIT p_max) c;
	RETURN QUERY WITH claimed AS (
		UPDATE delivery d SET token = p_node || '-' || nextval('token_seq'), holds = true, lease_until = t + make_interval(secs => p_lease),
			ready_at = NULL, tried_at = t
		FROM unnest(v_runs, v_indexes) AS c (run, index) WHERE d.run = c.run AND d.index = c.index
		RETURNING d.*)
	SELECT c.run, c.index, c.status, c.created_at, c.due, c.tried_at, c.token, c.record, c.body FROM claimed c;
	IF v_chats IS NOT NULL THEN
		PERFORM offer_chats_1(array_fill(p_host, ARRAY[cardinality(v_chats)]), v_chats);
	END IF;
	PERFORM refresh_hosts_1(ARRAY[p_host], t);
END $$;

-- Lets claimed deliveries stay for another lease, and tells the places of those that are lost, from 1.
CREATE FUNCTION renew_deliveries_1(p_runs text[], p_indexes int[], p_tokens text[], p_lease double precision) RETURNS int[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	t         timestamptz := clock_1();
	v_ids     uuid[] := p_runs::uuid[];
	v_held    int[];
	v_hosts   text[];
	v_chats_h text[];
	v_chats   text[];
BEGIN
	SELECT array_agg(DISTINCT d.host) INTO v_hosts FROM unnest(v_ids, p_indexes) AS s (run, index) JOIN delivery d ON d.run = s.run AND d.index = s.index;
	IF v_hosts IS NOT NULL THEN
		PERFORM lock_hosts_1(v_hosts);
		SELECT array_agg(s.nth) INTO v_held FROM unnest(v_ids, p_indexes, p_tokens) WITH ORDINALITY AS s (run, index, token, nth)
		CROSS JOIN LATERAL (SELECT d.token, d.holds FROM delivery d WHERE d.run = s.run AND d.index = s.index OFFSET 0) d
		WHERE d.token = s.token AND d.holds;
		-- A lease that somebody saw to be over is taken up again: its host and chat have to know.
		SELECT array_agg(DISTINCT d.host), array_agg(d.host) FILTER (WHERE d.chat IS NOT NULL), array_agg(d.chat) FILTER (WHERE d.chat IS NOT NULL)
		INTO v_hosts, v_chats_h, v_chats FROM unnest(v_ids, p_indexes) WITH ORDINALITY AS s (run, index, nth)
		CROSS JOIN LATERAL (SELECT d.host, d.chat, d.lease_until FROM delivery d WHERE d.run = s.run AND d.index = s.index OFFSET 0) d
		WHERE s.nth = ANY (v_held) AND d.lease_until IS NULL;
		UPDATE delivery d SET lease_until = t + make_interval(secs => p_lease), ready_at = NULL
		FROM unnest(v_ids, p_indexes) WITH ORDINALITY AS s (run, index, nth)
		WHERE s.nth = ANY (v_held) AND d.run = s.run AND d.index = s.index;
		IF v_chats IS NOT NULL THEN
			PERFORM offer_chats_1(v_chats_h, v_chats);
		END IF;
		IF v_hosts IS NOT NULL THEN
			PERFORM refresh_hosts_1(v_hosts, t);
		END IF;
	END IF;
	RETURN ARRAY(SELECT n FROM generate_series(1, cardinality(p_runs)) n WHERE n <> ALL (coalesce(v_held, '{}')));
END $$;

-- Locks the host of a delivery, and tells whether it can be retried or dropped: 'ok', 'unknown', 'delivered' or 'under way'.
CREATE FUNCTION unsent_1(p_run uuid, p_index int, t timestamptz) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	v_host   text;
	v_status text;
	v_lease  timestamptz;
BEGIN
	SELECT d.host INTO v_host FROM delivery d WHERE d.run = p_run AND d.index = p_index;
	IF v_host IS NULL THEN
		RETURN 'unknown';
	END IF;
	PERFORM lock_hosts_1(ARRAY[v_host]);
	SELECT d.status, d.lease_until INTO v_status, v_lease FROM delivery d WHERE d.run = p_run AND d.index = p_index FOR UPDATE;
	RETURN CASE WHEN v_status IS NULL THEN 'unknown' WHEN v_status = 'delivered' THEN v_status WHEN v_lease > t THEN 'under way' ELSE 'ok' END;
END $$;

-- Makes a delivery due now, and one that has arrived if a body for it is given. The first column is as unsent_1 has it; the others are NULL
-- unless it is 'ok'.
CREATE FUNCTION retry_delivery_1(p_node text, p_run text, p_index int, p_body bytea)
RETURNS TABLE (answer text, run uuid, index int, status text, created_at timestamptz, due timestamptz, tried_at timestamptz, token text, record json, body bytea)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	t         timestamptz := clock_1();
	v_answer  text := unsent_1(p_run::uuid, p_index, t);
	v_arrived boolean := v_answer = 'delivered' AND p_body IS NOT NULL;
	v_pending bigint;
	v_dead    bigint;
	v_host    text;
	v_chat    text;
BEGIN
	IF v_arrived THEN
		v_answer := 'ok';
	END IF;
	IF v_answer <> 'ok' THEN
		RETURN QUERY SELECT v_answer, NULL::uuid, NULL::int, NULL::text, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::text, NULL::json, NULL::bytea;
		RETURN;
	END IF;
	SELECT d.host, d.chat, CASE WHEN d.status = 'dead' THEN 1 ELSE 0 END, CASE WHEN d.status = 'pending' THEN 0 ELSE 1 END
	INTO v_host, v_chat, v_dead, v_pending FROM delivery d WHERE d.run = p_run::uuid AND d.index = p_index;
	RETURN QUERY UPDATE delivery d SET status = 'pending', due = t, ready_at = CASE WHEN d.chat IS NULL THEN t END, token = NULL, holds = false, lease_until = NULL,
		record = d.record::jsonb || jsonb_build_object('restart', coalesce(d.record::jsonb -> 'attempt', '0')) || CASE WHEN v_arrived
			THEN jsonb_build_object('sent', 0, 'progress', '', 'repeats', coalesce((d.record ->> 'repeats')::int, 0) + 1) ELSE '{}' END,
		body = CASE WHEN v_arrived THEN p_body ELSE d.body END
	WHERE d.run = p_run::uuid AND d.index = p_index
	RETURNING v_answer, d.run, d.index, d.status, d.created_at, d.due, d.tried_at, ''::text, d.record, d.body;
	UPDATE host h SET at_once = NULL, until = NULL WHERE h.host = v_host AND (h.at_once IS NOT NULL OR h.until IS NOT NULL);
	IF v_chat IS NOT NULL THEN
		DELETE FROM chat_pause p WHERE p.host = v_host AND p.chat = v_chat;
		PERFORM offer_chats_1(ARRAY[v_host], ARRAY[v_chat]);
	END IF;
	PERFORM refresh_hosts_1(ARRAY[v_host], t);
	PERFORM bump_1(p_node, 3, 0, 0, v_pending, -v_dead, 0, 0);
END $$;

-- Forgets a delivery. The answer is that of unsent_1.
CREATE FUNCTION drop_delivery_1(p_node text, p_run text, p_index int) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	t        timestamptz := clock_1();
	v_answer text := unsent_1(p_run::uuid, p_index, t);
	v_host   text;
	v_chat   text;
	v_dead   bigint;
BEGIN
	IF v_answer <> 'ok' THEN
		RETURN v_answer;
	END IF;
	DELETE FROM delivery d WHERE d.run = p_run::uuid AND d.index = p_index
	RETURNING d.host, d.chat, CASE WHEN d.status = 'dead' THEN 1 ELSE 0 END INTO v_host, v_chat, v_dead;
	IF v_chat IS NOT NULL THEN
		PERFORM offer_chats_1(ARRAY[v_host], ARRAY[v_chat]);
	END IF;
	PERFORM refresh_hosts_1(ARRAY[v_host], t);
	PERFORM bump_1(p_node, 3, 0, 0, v_dead - 1, -v_dead, 0, 0);
	RETURN v_answer;
END $$;

-- One delivery, if it is there.
CREATE FUNCTION get_delivery_1(p_run text, p_index int)
RETURNS TABLE (run uuid, index int, status text, created_at timestamptz, due timestamptz, tried_at timestamptz, token text, record json, body bytea)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY SELECT d.run, d.index, d.status, d.created_at, d.due, d.tried_at, d.token, d.record, d.body FROM delivery d WHERE d.run = p_run::uuid AND d.index = p_index;
END $$;

-- What each of some deliveries waits for, and until when at least as far as that is a question of time.
CREATE FUNCTION delivery_waits_1(p_runs text[], p_indexes int[]) RETURNS TABLE (nth bigint, obstacle text, until timestamptz)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	t timestamptz := clock_1();
BEGIN
	RETURN QUERY SELECT w.nth, w.obstacle,
		CASE w.obstacle WHEN 'host' THEN w.host_until WHEN '' THEN CASE WHEN w.until > t THEN w.until END END
	FROM (
		SELECT w.nth, w.until, w.host_until, CASE
			WHEN w.chat IS NOT NULL AND w.due <= t AND (
				EXISTS (SELECT FROM delivery u WHERE u.host = w.host AND u.chat = w.chat AND u.chat IS NOT NULL AND u.lease_until > t) OR
				w.seq <> (SELECT f.seq FROM delivery f WHERE f.host = w.host AND f.chat = w.chat AND f.chat IS NOT NULL AND f.status = 'pending' ORDER BY f.due, f.seq LIMIT 1)) THEN 'chat'
			WHEN w.host_until > w.until AND w.host_until > t THEN 'host'
			WHEN w.until <= t AND (SELECT count(*) FROM (
				SELECT FROM delivery u WHERE u.host = w.host AND u.lease_until > t LIMIT w.at_once) u) >= w.at_once THEN 'room'
			ELSE '' END AS obstacle
		FROM (
			SELECT s.nth, d.host, d.chat, d.due, d.seq, h.until AS host_until, coalesce(h.at_once, 16) AS at_once,
				greatest(d.due, (SELECT p.until FROM chat_pause p WHERE p.host = d.host AND p.chat = d.chat)) AS until
			FROM unnest(p_runs, p_indexes) WITH ORDINALITY AS s (run, index, nth)
			CROSS JOIN LATERAL (SELECT d.* FROM delivery d WHERE d.run = s.run::uuid AND d.index = s.index OFFSET 0) d
			LEFT JOIN host h ON h.host = d.host
			WHERE d.status = 'pending' AND (d.lease_until IS NULL OR d.lease_until <= t)) w) w;
END $$;

-- Hosts that have a pause, the one first whose pause is over first.
CREATE FUNCTION paused_hosts_1(p_most int) RETURNS TABLE (host text, until timestamptz)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	t timestamptz := clock_1();
BEGIN
	RETURN QUERY SELECT h.host, h.until FROM host h WHERE h.until > t ORDER BY h.until LIMIT p_most;
END $$;

-- Reports whether there may be deliveries to hand out now.
CREATE FUNCTION deliveries_due_1() RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	t timestamptz := clock_1();
BEGIN
	RETURN EXISTS (SELECT FROM host h WHERE h.next_at <= t) OR EXISTS (SELECT FROM delivery_news) OR EXISTS (SELECT FROM delivery d WHERE d.lease_until <= t);
END $$;

-- Lists deliveries, those of the newest run first, that come before one, from a run on. It looks at p_look of them at most; the last row tells the last one it
-- looked at if there may be more: it has no record.
CREATE FUNCTION list_deliveries_1(p_statuses text[], p_channel text, p_host text, p_first text, p_run text, p_index int, p_limit int, p_look int)
RETURNS TABLE (run uuid, index int, status text, created_at timestamptz, due timestamptz, tried_at timestamptz, token text, record json, body bytea)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	v_first    uuid := p_first::uuid;
	v_run      uuid := p_run::uuid;
	v_index    int := p_index;
	v_all      boolean := cardinality(p_statuses) = 0 OR 'delivered' = ANY (p_statuses);
	v_selected boolean;
	v_looked   int := 0;
	v_found    int := 0;
	d          record;
BEGIN
	FOR d IN
		SELECT d.run, d.index, d.host, d.status FROM (
			(SELECT d.run, d.index, d.host, d.status FROM delivery d WHERE v_all AND (d.run, d.index) < (v_run, v_index) AND d.run >= v_first
			ORDER BY d.run DESC, d.index DESC LIMIT p_look)
			UNION ALL
			(SELECT d.run, d.index, d.host, d.status FROM delivery d WHERE NOT v_all AND 'pending' = ANY (p_statuses) AND d.status = 'pending' AND (d.run, d.index) < (v_run, v_index) AND d.run >= v_first
			ORDER BY d.run DESC, d.index DESC LIMIT p_look)
			UNION ALL
			(SELECT d.run, d.index, d.host, d.status FROM delivery d WHERE NOT v_all AND 'dead' = ANY (p_statuses) AND d.status = 'dead' AND (d.run, d.index) < (v_run, v_index) AND d.run >= v_first
			ORDER BY d.run DESC, d.index DESC LIMIT p_look)) d
		ORDER BY d.run DESC, d.index DESC
	LOOP
		IF v_found = p_limit OR v_looked = p_look THEN
			RETURN QUERY SELECT v_run, v_index, NULL::text, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::text, NULL::json, NULL::bytea;
			RETURN;
		END IF;
		v_looked := v_looked + 1;
		v_run := d.run;
		v_index := d.index;
		v_selected := (cardinality(p_statuses) = 0 OR d.status = ANY (p_statuses)) AND (p_channel IS NULL OR d.host = 'channel/' || p_channel)
			AND (p_host IS NULL OR d.host NOT LIKE 'channel/%' AND p_host IN (
				substring(d.host FROM '://(.*)'), substring(d.host FROM '://(.*):[0-9]*$'), substring(d.host FROM '://\[(.*)\]:[0-9]*$')));
		IF v_selected THEN
			v_found := v_found + 1;
			RETURN QUERY SELECT e.run, e.index, e.status, e.created_at, e.due, e.tried_at, coalesce(e.token, ''), e.record, NULL::bytea
			FROM delivery e WHERE e.run = d.run AND e.index = d.index;
		END IF;
	END LOOP;
END $$;

-- The deliveries of a run, without their bodies, as decodeDeliveries reads them; NULL if there are none.
CREATE FUNCTION run_deliveries_1(p_run uuid) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN (SELECT json_agg(json_build_object('index', d.index, 'status', d.status, 'createdAt', (extract(epoch FROM d.created_at) * 1000000)::bigint,
		'due', (extract(epoch FROM d.due) * 1000000)::bigint, 'triedAt', (extract(epoch FROM d.tried_at) * 1000000)::bigint, 'token', d.token, 'record', d.record) ORDER BY d.index)
	FROM delivery d WHERE d.run = p_run);
END $$;

-- Which of some ended runs have to stay: a delivery is pending, or was given up after a time. Deliveries that could be retried are locked, so
-- that the others are over until the caller has forgotten them.
CREATE FUNCTION held_runs_1(p_runs uuid[], p_before timestamptz) RETURNS SETOF uuid LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM delivery d WHERE d.run = ANY (p_runs) AND d.status <> 'pending' ORDER BY d.run, d.index FOR UPDATE;
	RETURN QUERY SELECT r FROM unnest(p_runs) r CROSS JOIN LATERAL (
		SELECT FROM delivery d WHERE d.run = r AND (d.status = 'pending' OR d.status = 'dead' AND d.tried_at > p_before) LIMIT 1) d;
END $$;

-- Forgets the deliveries of runs, and hosts that had none for an hour. It returns how many deliveries had been given up; the caller counts them.
CREATE FUNCTION forget_deliveries_1(p_runs uuid[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	v_dead bigint;
BEGIN
	WITH forgotten AS (DELETE FROM delivery d WHERE d.run = ANY (p_runs) RETURNING d.status)
	SELECT count(*) FILTER (WHERE f.status = 'dead') INTO v_dead FROM forgotten f;
	-- If one has got a delivery meanwhile, the claim that takes in the news makes a new row.
	DELETE FROM host h WHERE h.host = ANY (ARRAY(
		SELECT e.host FROM host e WHERE e.empty_at < clock_1() - interval '1 hour' ORDER BY e.empty_at LIMIT 1000 FOR UPDATE SKIP LOCKED));
	RETURN v_dead;
END $$;
