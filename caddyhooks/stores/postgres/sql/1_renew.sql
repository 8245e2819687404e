-- Lets claims hold for another lease, also if it is over and nobody else has claimed the runs, and says that the node is alive. The answer
-- has a row for each claim that is lost, and for each run that somebody wants to be cancelled.
CREATE FUNCTION renew_runs_1(p_node text, p_version int, p_ids text[], p_tokens text[], p_folded int[], p_lease double precision)
RETURNS TABLE (o_number int, o_run text, o_by text) LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
	ids uuid[] := p_ids;
	t timestamptz;
	until timestamptz;
	holds boolean[];
	heads uuid[];
	back uuid[];
	members uuid[];
	n int := 0;
BEGIN
	heads := ARRAY(SELECT u.id FROM unnest(ids) AS u(id) CROSS JOIN LATERAL (SELECT x.chat FROM queue x WHERE x.id = u.id LIMIT 1) q ORDER BY q.chat COLLATE "C");
	PERFORM FROM unnest(heads) AS u(id) CROSS JOIN LATERAL (SELECT FROM queue x WHERE x.id = u.id FOR NO KEY UPDATE) q;
	t := clock_1();
	until := t + make_interval(secs => p_lease);
	SELECT array_agg(q.id IS NOT NULL ORDER BY u.i), array_agg(q.id) FILTER (WHERE q.id IS NOT NULL), array_agg(q.id) FILTER (WHERE q.id IS NOT NULL AND q.node IS NULL)
		INTO holds, heads, back
		FROM unnest(ids, p_tokens, p_folded) WITH ORDINALITY AS u(id, token, folded, i)
		LEFT JOIN LATERAL (SELECT x.id, x.node FROM queue x
			WHERE x.id = u.id AND x.leader = x.id AND x.folded = u.folded AND holds_1(x.token, u.token) LIMIT 1) q ON true;
	IF heads IS NOT NULL THEN
		members := members_1(heads);
		UPDATE queue q SET node = p_node, lease_until = until, turn = NULL, due_at = NULL, waiting_for = NULL, expires_at = NULL WHERE q.id = ANY(members);
	END IF;
	INSERT INTO node AS x (name, version, alive_until) VALUES (p_node, p_version, until)
		ON CONFLICT (name) DO UPDATE SET alive_until = until;
	IF back IS NOT NULL THEN
		n := cardinality(members_1(back));
	END IF;
	PERFORM bump_1(p_node, 4, -n, n, 0, 0, 0, 0);
	RETURN QUERY SELECT u.i::int, NULL::text, NULL::text FROM unnest(holds) WITH ORDINALITY AS u(holds, i) WHERE NOT u.holds;
	RETURN QUERY SELECT u.i::int, q.id::text, q.cancel_by FROM unnest(ids, holds) WITH ORDINALITY AS u(id, holds, i)
		CROSS JOIN LATERAL (SELECT x.id, x.cancel_by, x.cancel_no FROM queue x WHERE x.id = ANY(members_1(ARRAY[u.id])) AND x.cancel_by IS NOT NULL) q
		WHERE u.holds ORDER BY q.cancel_no;
END $$;

-- Leaves word for the node that carries out a run, and returns its name, NULL if nobody does. Who asked first is named.
CREATE FUNCTION cancel_run_1(p_id text, p_by text) RETURNS text LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
	holder text;
BEGIN
	PERFORM durable_1();
	UPDATE queue q SET cancel_no = CASE WHEN q.cancel_by IS NULL THEN nextval('token_seq') ELSE q.cancel_no END, cancel_by = coalesce(q.cancel_by, p_by)
		WHERE q.id = p_id::uuid AND q.node IS NOT NULL AND q.lease_until > clock_1() RETURNING q.node INTO holder;
	RETURN holder;
END $$;

-- Ends the waits of some queued runs of the runners, of any runner if p_runners is NULL, and returns how many there were.
CREATE FUNCTION resume_runs_1(p_runners text[]) RETURNS int LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET enable_sort = off
AS $$
DECLARE
	name text;
	ids uuid[];
BEGIN
	PERFORM durable_1();
	-- Those of one runner at a time, so that they come in the order of their chats.
	IF p_runners IS NULL THEN
		SELECT q.runner INTO name FROM queue q WHERE q.waits > 0 AND q.node IS NULL ORDER BY q.runner LIMIT 1;
	ELSE
		SELECT u.name INTO name FROM unnest(p_runners) AS u(name) WHERE EXISTS (SELECT FROM queue q WHERE q.runner = u.name AND q.waits > 0 AND q.node IS NULL) LIMIT 1;
	END IF;
	IF name IS NULL THEN
		RETURN 0;
	END IF;
	ids := ARRAY(SELECT q.id FROM queue q WHERE q.runner = name AND q.waits > 0 AND q.node IS NULL ORDER BY q.runner, q.chat LIMIT 500 FOR NO KEY UPDATE);
	UPDATE queue q SET waits = 0, waiting_for = NULL, due_at = NULL, expires_at = expiry_1(q.accepted_at, q.starts, 0, q.asked, q.run) WHERE q.id = ANY(ids);
	PERFORM offer_locked_1(ARRAY(SELECT q.chat FROM queue q WHERE q.id = ANY(ids)), clock_1(), false);
	RETURN greatest(cardinality(ids), 1); -- they may have been claimed meanwhile, and there may be others
END $$;

-- Queued runs that nobody took on in time, and in the last row how long until there are more, NULL if that is not a question of time.
CREATE FUNCTION overdue_runs_1(p_node text, p_most int)
RETURNS TABLE (o_id text, o_accepted timestamptz, o_chat text, o_hook text, o_runner text, o_run json, o_wait double precision) LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET enable_sort = off
AS $$
DECLARE
	t timestamptz := clock_1();
	n int;
	returned int;
BEGIN
	SELECT r.o_runs, r.o_aside INTO n, returned FROM ripen_1('-infinity', t) r;
	IF n > 0 OR returned > 0 THEN
		PERFORM bump_1(p_node, 4, n + returned, -n, 0, 0, 0, 0);
	END IF;
	IF returned > 0 THEN
		PERFORM bump_questions_1(p_node, 4, -returned, 0);
	END IF;
	RETURN QUERY SELECT q.id::text, q.accepted_at, q.chat, q.hook, q.runner, q.run, NULL::double precision
		FROM queue q WHERE q.expires_at <= t ORDER BY q.expires_at LIMIT p_most;
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN QUERY SELECT NULL::text, NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::json, CASE WHEN n = p_most AND n > 0 THEN 0::double precision ELSE
		(SELECT extract(epoch FROM q.expires_at - t)::double precision FROM queue q WHERE q.expires_at > t ORDER BY q.expires_at LIMIT 1) END;
END $$;

-- Puts back all that a node has claimed, which is being closed, if it was the last one: the next one that is opened need not wait. Other nodes go by
-- leases. The starts count.
CREATE FUNCTION leave_runs_1(p_node text) RETURNS int LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
	ids uuid[];
	n int;
BEGIN
	IF EXISTS (SELECT FROM node x WHERE x.name <> p_node AND is_there_1(x.seen_at, clock_1())) THEN
		RETURN 0;
	END IF;
	PERFORM pg_advisory_xact_lock(chat_lock_1(E'\\node ' || p_node));
	ids := ARRAY(SELECT q.id FROM queue q WHERE q.node IS NOT NULL AND q.head AND q.lease_until > '-infinity' AND q.node = p_node ORDER BY q.chat);
	ids := ARRAY(SELECT h.id FROM unnest(ids) AS u(id) CROSS JOIN LATERAL (SELECT q.id FROM queue q WHERE q.id = u.id AND q.node = p_node FOR NO KEY UPDATE) h);
	IF ids = '{}' THEN
		RETURN 0;
	END IF;
	SELECT b.o_runs INTO n FROM put_back_1(ids, clock_1()) b;
	PERFORM bump_1(p_node, 4, n, -n, 0, 0, 0, 0);
	RETURN n;
END $$;
