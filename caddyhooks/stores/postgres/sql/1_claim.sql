-- Claims of runs, and their ends.
--
-- Who holds the lock of a chat's head may change the chat's other runs too, but for new ones, which are only added behind them. Claims
-- never wait for such a lock. Whoever waits for several takes them in the order of their chats. A head is deleted under the advisory lock
-- of its chat alone.
--
-- Joins with arrays are written as LATERAL or = ANY, so that no plan, made when the table was empty say, goes through the whole table. For the
-- same reason whoever looks for an id asks for nothing by which one of the partial indexes would do.

-- Whether a claim is the one that a run is held by.
CREATE FUNCTION holds_1(p_held text, p_given text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT p_held = p_given';

-- When a queued run is overdue, NULL if never: once it was started it is not, unless it waits for its runner, nor if it has questions.
CREATE FUNCTION expiry_1(p_accepted timestamptz, p_starts int, p_waits int, p_asked bigint, p_run json) RETURNS timestamptz LANGUAGE sql STABLE AS $$
	SELECT CASE WHEN p_asked = 0 AND (p_starts = 0 OR p_waits > 0) AND (p_run ->> 'queueTime')::bigint BETWEEN 1 AND 3153600000000000000
		THEN p_accepted + make_interval(secs => (p_run ->> 'queueTime')::bigint / 1e9) END
$$;

-- The runs that are folded with a head which may start now, and whether it need not wait for more.
CREATE FUNCTION fold_1(p_head queue, OUT ids uuid[], OUT is_full boolean) LANGUAGE plpgsql AS $$
DECLARE
	n record;
	total bigint := p_head.size;
BEGIN
	ids := '{}';
	FOR n IN SELECT q.id, q.starts, q.alike, q.hook, q.runner, q.fold_window, q.size
		FROM queue q WHERE q.chat = p_head.chat AND NOT q.head ORDER BY q.seq LIMIT p_head.fold_max - 1
	LOOP
		IF n.fold_window IS NULL OR n.starts <> p_head.starts OR n.alike <> p_head.alike OR n.hook <> p_head.hook OR n.runner <> p_head.runner THEN
			is_full := false;
			RETURN;
		END IF;
		total := total + n.size;
		IF total > 1048576 THEN -- engine.MaxFoldMessage
			is_full := true;
			RETURN;
		END IF;
		ids := ids || n.id;
	END LOOP;
	is_full := cardinality(ids) = p_head.fold_max - 1;
END $$;

-- Makes the first run of each of some chats its head, and a head that is not claimed ready, unless it pauses, is put aside or waits for
-- others to be folded with. The chats must be locked. With p_headless none of them has a head.
CREATE FUNCTION offer_locked_1(p_chats text[], p_at timestamptz, p_headless boolean, OUT o_ready int, OUT o_waiting int) LANGUAGE plpgsql AS $$
DECLARE
	ids uuid[];
	h queue;
	due timestamptz;
	ready boolean;
BEGIN
	o_ready := 0;
	o_waiting := 0;
	ids := ARRAY(SELECT f.id FROM unnest(p_chats) AS c(chat) CROSS JOIN LATERAL (
		SELECT q.id FROM queue q WHERE q.chat = c.chat AND NOT q.head ORDER BY q.seq LIMIT 1) f
		WHERE NOT EXISTS (SELECT FROM queue x WHERE x.chat = c.chat AND x.head));
	IF ids <> '{}' THEN
		WITH promoted AS (
			UPDATE queue q SET head = true,
				turn = CASE WHEN q.fold_window IS NULL OR q.accepted_at + q.fold_window <= p_at THEN nextval('turn_seq') END
			WHERE q.id = ANY(ids) RETURNING q.turn)
		SELECT count(p.turn) INTO o_ready FROM promoted p;
	END IF;
	IF o_ready = (CASE WHEN p_headless THEN cardinality(ids) ELSE cardinality(p_chats) END) THEN
		RETURN; -- no other head is left to be looked at
	END IF;
	FOR h IN SELECT (f.head).* FROM unnest(p_chats) AS c(chat) CROSS JOIN LATERAL (
		SELECT q AS head FROM queue q WHERE q.chat = c.chat AND q.head AND q.node IS NULL AND (q.turn IS NULL OR q.fold_window IS NOT NULL) LIMIT 1) f
	LOOP
		CONTINUE WHEN h.question IS NOT NULL OR h.waiting_for IS NOT NULL AND h.due_at > p_at;
		due := h.accepted_at + h.fold_window;
		ready := due IS NULL OR due <= p_at;
		IF NOT ready THEN
			SELECT f.is_full INTO ready FROM fold_1(h) f;
		END IF;
		IF ready THEN
			CONTINUE WHEN h.turn IS NOT NULL;
			UPDATE queue q SET turn = nextval('turn_seq'), due_at = NULL, waiting_for = NULL WHERE q.id = h.id;
			o_ready := o_ready + 1;
		ELSIF h.due_at IS DISTINCT FROM due OR h.turn IS NOT NULL THEN
			UPDATE queue q SET turn = NULL, due_at = due, waiting_for = NULL WHERE q.id = h.id;
			o_waiting := o_waiting + 1;
		END IF;
	END LOOP;
END $$;

-- The same for chats that are not locked yet and that runs were just added to. If a head is being ended, this waits, and looks at the
-- next one, unless somebody has that too, who will find the new runs.
CREATE FUNCTION offer_1(p_chats text[], OUT o_ready int, OUT o_waiting int) LANGUAGE plpgsql AS $$
DECLARE
	chats text[] := ARRAY(SELECT DISTINCT c COLLATE "C" FROM unnest(p_chats) c ORDER BY 1);
BEGIN
	PERFORM FROM unnest(chats) AS c(chat) CROSS JOIN LATERAL (
		SELECT FROM queue q WHERE q.chat = c.chat AND q.head FOR NO KEY UPDATE) h;
	chats := ARRAY(SELECT c.chat FROM unnest(chats) AS c(chat) CROSS JOIN LATERAL (
			SELECT FROM queue q WHERE q.chat = c.chat AND q.head FOR NO KEY UPDATE SKIP LOCKED) h)
		|| ARRAY(SELECT c.chat FROM unnest(chats) AS c(chat) WHERE NOT EXISTS (SELECT FROM queue q WHERE q.chat = c.chat AND q.head));
	SELECT o.o_ready, o.o_waiting INTO o_ready, o_waiting FROM offer_locked_1(chats, clock_1(), false) o;
END $$;

-- Runs that were claimed, with those that are folded into their claims.
CREATE FUNCTION members_1(p_heads uuid[]) RETURNS uuid[] LANGUAGE sql STABLE AS $$
	SELECT p_heads || ARRAY(SELECT f.id FROM unnest(p_heads) AS u(id)
		CROSS JOIN LATERAL (SELECT q.chat, q.folded FROM queue q WHERE q.id = u.id AND q.folded > 0 LIMIT 1) h
		CROSS JOIN LATERAL (SELECT n.id FROM queue n WHERE n.chat = h.chat AND NOT n.head ORDER BY n.seq LIMIT h.folded) f)
$$;

-- Puts claims back whose heads are locked: their lease is over. The start counts. As long as nobody else claims the runs, the holder can
-- take them back by its token.
CREATE FUNCTION put_back_1(p_heads uuid[], p_at timestamptz, OUT o_runs int, OUT o_ready int) LANGUAGE plpgsql AS $$
DECLARE
	members uuid[] := members_1(p_heads);
BEGIN
	UPDATE queue q SET node = NULL, lease_until = NULL, call = NULL, expires_at = expiry_1(q.accepted_at, q.starts, q.waits, q.asked, q.run)
		WHERE q.id = ANY(members);
	GET DIAGNOSTICS o_runs = ROW_COUNT;
	SELECT o.o_ready INTO o_ready FROM offer_locked_1(ARRAY(SELECT q.chat FROM queue q WHERE q.id = ANY(p_heads)), p_at, false) o;
END $$;

-- Puts back some claims whose lease was over at p_at and not yet at p_from, and makes some heads ready that have waited long enough, of
-- which o_aside were put aside.
CREATE FUNCTION ripen_1(p_from timestamptz, p_at timestamptz, OUT o_runs int, OUT o_ready int, OUT o_aside int) LANGUAGE plpgsql AS $$
DECLARE
	ids uuid[];
	chats text[];
	n int;
BEGIN
	o_runs := 0;
	o_ready := 0;
	o_aside := 0;
	ids := ARRAY(SELECT q.id FROM queue q WHERE q.node IS NOT NULL AND q.head AND q.lease_until > p_from AND q.lease_until <= p_at
		ORDER BY q.lease_until LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED);
	IF ids <> '{}' THEN
		SELECT b.o_runs, b.o_ready INTO o_runs, o_ready FROM put_back_1(ids, p_at) b;
	END IF;
	SELECT array_agg(d.id), count(d.question) INTO ids, o_aside FROM (
		SELECT q.id, q.question FROM queue q WHERE q.due_at <= p_at ORDER BY q.due_at LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED) d;
	IF ids IS NOT NULL THEN
		WITH due AS (
			UPDATE queue q SET due_at = NULL, waiting_for = NULL, question = NULL,
				turn = CASE WHEN q.fold_window IS NULL OR q.accepted_at + q.fold_window <= p_at THEN nextval('turn_seq') END
			WHERE q.id = ANY(ids) RETURNING q.chat, q.turn)
		SELECT array_agg(d.chat) FILTER (WHERE d.turn IS NULL), o_ready + count(d.turn) INTO chats, o_ready FROM due d;
		IF chats IS NOT NULL THEN -- a pause is over, and others may come to be folded
			SELECT o.o_ready INTO n FROM offer_locked_1(chats, p_at, false) o;
			o_ready := o_ready + n;
		END IF;
	END IF;
END $$;

-- Locks heads that one call for claims may have, the longest-ready first, and says whether some of them may be folded with others or have
-- questions. A bound says how
-- many runs of some runners or hooks there may be. Some chats are left out: they have one head each, which is passed over. o_cut says that there are more, but the answer has to arrive, and to be read, in time.
CREATE FUNCTION pick_1(p_ask int, p_max int, p_after bigint, p_bound_ask int[], p_bound_most int[], p_name_bound int[], p_names text[],
	p_name_hook boolean[], p_without_ask int[], p_without text[], OUT o_ids uuid[], OUT o_turn bigint, OUT o_folds boolean, OUT o_asked boolean, OUT o_cut boolean) LANGUAGE plpgsql AS $$
DECLARE
	most CONSTANT bigint := 16777216; -- bytes, about. The last run may go over it. Those that are folded have up to engine.MaxFoldMessage
	bytes bigint := 0;
	k int := 0;
	room int;
	kinds int[] := '{}';
	rooms int[] := '{}';
	bound_kind int[] := '{}'; -- bound_of[i] is a bound for runs of the kind bound_kind[i]
	bound_of int[] := '{}';
	bounds int[];
	room_left int[] := p_bound_most;
	without text[] := ARRAY(SELECT w.chat FROM unnest(p_without_ask, p_without) AS w(ask, chat) WHERE w.ask = p_ask);
	is_ready boolean;
	c record;
	i int;
BEGIN
	IF NOT p_ask = ANY(p_bound_ask) THEN
		SELECT array_agg(r.id) FILTER (WHERE r.before < most), max(r.turn) FILTER (WHERE r.before < most), bool_or(r.folds), bool_or(r.asked), bool_or(r.before >= most)
			INTO o_ids, o_turn, o_folds, o_asked, o_cut FROM (
			SELECT q.id, q.turn, q.folds, q.asked, sum(q.size) OVER (ROWS UNBOUNDED PRECEDING) - q.size AS before FROM (
				SELECT q.id, q.turn, CASE WHEN q.fold_window IS NULL THEN greatest(q.size, pg_column_size(q.run)) + q.asked ELSE 1048576 END AS size,
					q.fold_window IS NOT NULL AS folds, q.asked > 0 AS asked
				FROM queue q WHERE q.turn >= p_after AND q.chat <> ALL(without) ORDER BY q.turn LIMIT p_max FOR NO KEY UPDATE SKIP LOCKED) q) r;
		RETURN;
	END IF;
	LOOP -- over the kinds that have ready heads, whatever their number
		SELECT q.kind INTO k FROM queue q WHERE q.turn IS NOT NULL AND q.kind > k ORDER BY q.kind LIMIT 1;
		EXIT WHEN NOT FOUND;
		bounds := ARRAY(SELECT DISTINCT n.bound FROM kind x, unnest(p_name_bound, p_names, p_name_hook) AS n(bound, name, is_hook)
			WHERE x.id = k AND p_bound_ask[n.bound] = p_ask AND n.name = CASE WHEN n.is_hook THEN x.hook ELSE x.runner END);
		SELECT least(p_max, min(p_bound_most[b])) INTO room FROM unnest(bounds) b;
		CONTINUE WHEN room <= 0;
		kinds := kinds || k;
		rooms := rooms || room;
		FOREACH i IN ARRAY bounds LOOP
			bound_kind := bound_kind || k;
			bound_of := bound_of || i;
		END LOOP;
	END LOOP;
	o_ids := '{}';
	o_folds := true;
	o_asked := true;
	o_cut := false;
	-- A few more of each, since others may have some. Written so that queue_kind alone has the order: by queue_turn all runs of other kinds
	-- would be read.
	FOR c IN SELECT f.id, f.turn, f.size, x.kind FROM unnest(kinds, rooms) AS x(kind, room) CROSS JOIN LATERAL (
		SELECT q.id, q.turn, CASE WHEN q.fold_window IS NULL THEN greatest(q.size, pg_column_size(q.run)) + q.asked ELSE 1048576 END AS size
		FROM queue q WHERE (q.kind, q.turn) >= (x.kind, 0) AND q.kind <= x.kind AND q.turn IS NOT NULL AND q.chat <> ALL(without)
		ORDER BY q.kind, q.turn LIMIT x.room + 16) f ORDER BY f.turn
	LOOP
		EXIT WHEN cardinality(o_ids) = p_max;
		o_cut := bytes >= most;
		EXIT WHEN o_cut;
		CONTINUE WHEN EXISTS (SELECT FROM unnest(bound_kind, bound_of) AS b(kind, bound) WHERE b.kind = c.kind AND room_left[b.bound] <= 0);
		SELECT q.turn IS NOT NULL INTO is_ready FROM queue q WHERE q.id = c.id FOR NO KEY UPDATE SKIP LOCKED;
		CONTINUE WHEN is_ready IS NOT TRUE;
		o_ids := o_ids || c.id;
		bytes := bytes + c.size;
		FOR i IN 1 .. cardinality(bound_kind) LOOP
			IF bound_kind[i] = c.kind THEN
				room_left[bound_of[i]] := room_left[bound_of[i]] - 1;
			END IF;
		END LOOP;
	END LOOP;
END $$;

-- Claims runs for several calls, one after the other: the first one is number 1. What happened before in the same step counts for
-- the node's figures.
CREATE FUNCTION claim_more_1(p_node text, p_call bigint,
	p_after bigint,            -- the first turn to look at
	p_lapsed double precision, -- look for leases that were over only since so many seconds; -1 for all
	p_ask_max int[], p_ask_lease double precision[],
	p_bound_ask int[], p_bound_most int[], p_name_bound int[], p_names text[], p_name_hook boolean[], p_without_ask int[], p_without text[],
	d_queued bigint, d_running bigint, d_pending bigint, d_keys bigint, d_told bigint, d_waiting bigint, d_asking bigint, p_must_write boolean)
RETURNS TABLE (o_kind text, o_number int, o_id text, o_token text, o_attempt int, o_at timestamptz, o_seconds double precision, o_waits int,
	o_alive boolean, o_turn bigint, o_accepted timestamptz, o_chat text, o_hook text, o_runner text, o_run json, o_state bytea) LANGUAGE plpgsql AS $$
DECLARE
	t timestamptz;
	until timestamptz;
	put_back int := 0;
	ready int := 0;
	returned int := 0; -- runs that are put aside no more
	picked record;
	h queue;
	followers uuid[];
	leaders uuid[];
	claimed int := 0;
	is_cut boolean := false;
	n int;
	last_turn bigint := 0;
	next_due timestamptz;
BEGIN
	t := clock_1();
	SELECT r.o_runs, r.o_ready, r.o_aside INTO put_back, ready, returned FROM ripen_1(CASE WHEN p_lapsed < 0 THEN '-infinity' ELSE t - make_interval(secs => p_lapsed) END, t) r;
	FOR ask IN 1 .. cardinality(p_ask_max) LOOP
		CONTINUE WHEN p_ask_max[ask] <= 0;
		SELECT * INTO picked FROM pick_1(ask, p_ask_max[ask], p_after, p_bound_ask, p_bound_most, p_name_bound, p_names, p_name_hook,
			p_without_ask, p_without);
		CONTINUE WHEN picked.o_ids IS NULL OR picked.o_ids = '{}';
		last_turn := greatest(last_turn, picked.o_turn);
		is_cut := is_cut OR picked.o_cut;
		until := t + make_interval(secs => p_ask_lease[ask]);
		leaders := '{}';
		followers := '{}';
		IF picked.o_folds THEN
			FOR h IN SELECT q.* FROM queue q WHERE q.id = ANY(picked.o_ids) AND q.fold_window IS NOT NULL LOOP
				followers := followers || (SELECT f.ids FROM fold_1(h) f);
				leaders := leaders || array_fill(h.id, ARRAY[cardinality(followers) - cardinality(leaders)]);
			END LOOP;
		END IF;
		RETURN QUERY UPDATE queue q SET turn = NULL, node = p_node, token = p_node || '-' || p_call || '-' || nextval('token_seq'), call = p_call, leader = q.id,
				lease_until = until, started_at = t, starts = q.starts + 1, expires_at = NULL, cancel_by = NULL, cancel_no = NULL,
				folded = cardinality(array_positions(leaders, q.id))
			WHERE q.id = ANY(picked.o_ids)
			RETURNING 'claim', ask, q.id::text, q.token, q.starts, t, extract(epoch FROM t - q.accepted_at)::double precision, q.waits,
				EXISTS (SELECT FROM node x WHERE x.name = q.owner AND x.alive_until > t), q.seq, q.accepted_at, q.chat, q.hook, q.runner, q.run, NULL::bytea;
		GET DIAGNOSTICS n = ROW_COUNT;
		claimed := claimed + n;
		IF cardinality(leaders) > 0 THEN
			UPDATE queue q SET node = p_node, token = l.token, call = p_call, leader = l.id, lease_until = until, started_at = t,
					starts = q.starts + 1, expires_at = NULL, cancel_by = NULL, cancel_no = NULL
				FROM unnest(followers, leaders) AS f(id, leader) CROSS JOIN LATERAL (SELECT x.id, x.token FROM queue x WHERE x.id = f.leader LIMIT 1) l
				WHERE q.id = ANY(followers) AND q.id = f.id;
			GET DIAGNOSTICS n = ROW_COUNT;
			claimed := claimed + n;
			RETURN QUERY SELECT 'folded', ask, q.id::text, q.token, 0, t, NULL::double precision, 0, false, q.seq, q.accepted_at, q.chat, q.hook, q.runner, q.run,
				NULL::bytea FROM queue q WHERE q.id = ANY(followers);
		END IF;
		IF picked.o_asked THEN
			RETURN QUERY SELECT 'question', x.number, x.run::text, q.token, 0, t, extract(epoch FROM x.answered_at)::double precision, 0, false, NULL::bigint, x.asked_at,
					x.answer::text, NULL::text, NULL::text, x.record, x.state
				FROM unnest(picked.o_ids) AS u(id) CROSS JOIN LATERAL (SELECT c.token FROM queue c WHERE c.id = u.id AND c.asked > 0 OFFSET 0) q
				CROSS JOIN LATERAL (SELECT a.* FROM question a WHERE a.run = u.id ORDER BY a.run, a.number) x;
		END IF;
	END LOOP;
	next_due := (SELECT q.due_at FROM queue q WHERE q.due_at IS NOT NULL ORDER BY q.due_at LIMIT 1);
	IF p_must_write OR claimed > 0 OR put_back > 0 OR returned > 0 THEN
		PERFORM bump_1(p_node, 2, d_queued + put_back + returned - claimed, d_running - put_back + claimed, d_pending, 0, d_keys, d_told);
		IF d_waiting <> returned OR d_asking <> 0 THEN
			PERFORM bump_questions_1(p_node, 2, d_waiting - returned, d_asking);
		END IF;
	END IF;
	IF is_cut THEN
		ready := ready + claimed + 1; -- who was given less than there is looks again at once
	END IF;
	RETURN QUERY SELECT 'clock', ready, NULL::text, NULL::text, 0, t, extract(epoch FROM next_due - t)::double precision, 0, false, last_turn,
		NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::json, NULL::bytea;
END $$;

-- The same for those who end nothing.
CREATE FUNCTION claim_runs_1(p_node text, p_call bigint, p_after bigint, p_lapsed double precision, p_ask_max int[], p_ask_lease double precision[],
	p_bound_ask int[], p_bound_most int[], p_name_bound int[], p_names text[], p_name_hook boolean[],
	p_without_ask int[], p_without text[])
RETURNS TABLE (o_kind text, o_number int, o_id text, o_token text, o_attempt int, o_at timestamptz, o_seconds double precision, o_waits int,
	o_alive boolean, o_turn bigint, o_accepted timestamptz, o_chat text, o_hook text, o_runner text, o_run json, o_state bytea) LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET enable_sort = off
AS $$
BEGIN
	-- Whoever undoes a call whose answer was lost waits until it is over.
	PERFORM pg_advisory_xact_lock(chat_lock_1(E'\\node ' || p_node));
	RETURN QUERY SELECT c.* FROM claim_more_1(p_node, p_call, p_after, p_lapsed, p_ask_max, p_ask_lease, p_bound_ask, p_bound_most, p_name_bound, p_names, p_name_hook,
		p_without_ask, p_without, 0, 0, 0, 0, 0, 0, 0, false) c;
END $$;

-- Undoes claims that nobody was told of, as if they had not been: those of some calls whose answer was lost, and those with some tokens.
CREATE FUNCTION undo_claims_1(p_node text, p_calls bigint[], p_tokens text[]) RETURNS int LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
	t timestamptz;
	ids uuid[];
	members uuid[];
	n int;
BEGIN
	PERFORM pg_advisory_xact_lock(chat_lock_1(E'\\node ' || p_node)); -- the call may still be under way
	t := clock_1();
	ids := ARRAY(SELECT q.id FROM queue q WHERE q.node IS NOT NULL AND q.head AND q.lease_until > '-infinity'
		AND q.node = p_node AND (q.call = ANY(p_calls) OR q.token = ANY(p_tokens)) ORDER BY q.chat);
	ids := ARRAY(SELECT h.id FROM unnest(ids) AS u(id) CROSS JOIN LATERAL (
		SELECT q.id FROM queue q WHERE q.id = u.id AND q.node = p_node AND (q.call = ANY(p_calls) OR q.token = ANY(p_tokens)) FOR NO KEY UPDATE) h);
	IF ids = '{}' THEN
		RETURN 0;
	END IF;
	members := members_1(ids);
	UPDATE queue q SET node = NULL, lease_until = NULL, call = NULL, token = NULL, leader = NULL, folded = 0, started_at = NULL, cancel_by = NULL,
			cancel_no = NULL, starts = q.starts - 1, expires_at = expiry_1(q.accepted_at, q.starts - 1, q.waits, q.asked, q.run)
		WHERE q.id = ANY(members);
	GET DIAGNOSTICS n = ROW_COUNT;
	PERFORM offer_locked_1(ARRAY(SELECT q.chat FROM queue q WHERE q.id = ANY(ids)), t, false);
	PERFORM bump_1(p_node, 2, n, -n, 0, 0, 0, 0);
	RETURN n;
END $$;
