-- end_plain_2 is end_runs_1 for ends that have nothing but a session and what was spent: the runs are claimed, are folded with no others, and have
-- neither deliveries nor questions nor keys to be forgotten. They are in the order of their chats. If one of them is not as it should be, nothing was
-- done and the answer is 'retry': end_runs_1 finds out.
--
-- Its locks are those of end_runs_1.
CREATE FUNCTION end_plain_2(p_node text, p_call bigint,
	p_chats text[], p_ids text[], p_tokens text[], p_statuses text[], p_endings text[],
	p_runs text[], p_past boolean[], p_history double precision[], p_told text[], p_told_bytes int[],
	p_session_runners text[], p_session_chats text[], p_session_ids text[], p_spent json,
	-- What to claim, as claim_runs_1 has it.
	p_after bigint, p_lapsed double precision, p_ask_max int[], p_ask_lease double precision[], p_bound_ask int[], p_bound_most int[], p_name_bound int[],
	p_names text[], p_name_hook boolean[], p_without_ask int[], p_without text[])
RETURNS TABLE (o_kind text, o_number int, o_id text, o_token text, o_attempt int, o_at timestamptz, o_seconds double precision, o_waits int,
	o_alive boolean, o_turn bigint, o_accepted timestamptz, o_chat text, o_hook text, o_runner text, o_run json, o_state bytea) LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET enable_sort = off
AS $$
DECLARE
	ids uuid[] := p_ids::uuid[];
	exclusive boolean[]; -- the chat is about to run empty
	followed text[];     -- the chats that do not
	good bigint;
	t timestamptz;
	offered record;
	d_queued bigint;
	d_running bigint;
	d_told bigint;
	busy boolean := true; -- there may be something to claim, or to make ready
	next_due timestamptz;
BEGIN
	PERFORM pg_advisory_xact_lock(chat_lock_1(E'\\node ' || p_node)); -- see claim_runs_1
	exclusive := ARRAY(SELECT NOT EXISTS (SELECT FROM queue s WHERE s.chat = u.chat AND NOT s.head) FROM unnest(p_chats) AS u(chat));
	PERFORM CASE WHEN l.exclusive THEN pg_advisory_xact_lock(l.number) ELSE pg_advisory_xact_lock_shared(l.number) END FROM (
		SELECT chat_lock_1(c.chat) AS number, bool_or(c.exclusive) AS exclusive FROM unnest(p_chats, exclusive) AS c(chat, exclusive) GROUP BY 1 ORDER BY 1) l;
	SELECT count(*), array_agg(l.chat) FILTER (WHERE l.is_followed) INTO good, followed FROM (
		SELECT u.chat, u.exclusive, EXISTS (SELECT FROM queue s WHERE s.chat = u.chat AND NOT s.head) AS is_followed
		FROM unnest(p_chats, ids, p_tokens, exclusive) AS u(chat, id, token, exclusive) CROSS JOIN LATERAL (
			SELECT x.id, x.token, x.leader, x.folded, x.asked, x.question FROM queue x WHERE x.chat = u.chat AND x.head FOR NO KEY UPDATE) h
		WHERE h.id = u.id AND holds_1(h.token, u.token) AND h.leader = h.id AND h.folded = 0 AND h.asked = 0 AND h.question IS NULL) l
	WHERE l.exclusive OR l.is_followed;
	t := clock_1();
	IF good < cardinality(ids) THEN
		RETURN QUERY SELECT 'retry', 0, NULL::text, NULL::text, 0, t, NULL::double precision, 0, false, NULL::bigint, NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::json, NULL::bytea;
		RETURN;
	END IF;

	WITH gone AS (
		DELETE FROM queue q USING unnest(ids, p_tokens, p_statuses, p_endings, p_runs, p_past, p_history, p_told, p_told_bytes)
			AS r(id, token, status, ending, run, past, history, told, told_bytes)
		WHERE q.id = ANY(ids) AND q.id = r.id
		RETURNING q.id, q.seq, q.chat, q.hook, q.runner, q.accepted_at, q.started_at, q.starts, q.named, q.request, q.node, r.token, r.status, r.ending, r.run, r.past, r.history, r.told, r.told_bytes),
	kept AS (
		INSERT INTO done (id, seq, chat, hook, runner, status, accepted_at, started_at, finished_at, attempts, token, named, past, request, run, ending)
		SELECT g.id, g.seq, g.chat, g.hook, g.runner, g.status, g.accepted_at, g.started_at, t, g.starts, g.token, g.named, g.past, g.request, g.run::json, g.ending::json FROM gone g),
	remembered AS (
		INSERT INTO told (id, at, until, bytes, told)
		SELECT g.id, t, t + make_interval(secs => g.history), g.told_bytes, g.told::json FROM gone g WHERE g.told <> '')
	SELECT -count(*) FILTER (WHERE g.node IS NULL), -count(g.node), coalesce(sum(g.told_bytes) FILTER (WHERE g.told <> ''), 0) INTO d_queued, d_running, d_told FROM gone g;
	IF followed IS NOT NULL THEN
		SELECT o.o_ready, o.o_waiting INTO offered FROM offer_locked_1(followed, t, true) o;
	ELSE
		SELECT 0 AS o_ready, 0 AS o_waiting INTO offered;
	END IF;
	IF cardinality(p_session_ids) > 0 THEN
		PERFORM set_sessions_1(p_session_runners, p_session_chats, p_session_ids);
	END IF;
	IF p_spent IS NOT NULL THEN
		PERFORM spend_1(p_node, p_spent, array_fill('ended'::text, ARRAY[cardinality(ids)]), t);
	END IF;
	RETURN QUERY SELECT 'end', i, NULL::text, 'ended', 0, t, NULL::double precision, 0, false, NULL::bigint, NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::json, NULL::bytea
		FROM generate_series(1, cardinality(ids)) i
		UNION ALL SELECT 'offered', offered.o_ready, NULL::text, NULL::text, 0, t, NULL::double precision, offered.o_waiting, false, NULL::bigint, NULL::timestamptz,
		NULL::text, NULL::text, NULL::text, NULL::json, NULL::bytea;

	IF offered.o_ready = 0 THEN -- a look takes less than the attempt
		SELECT d.due_at, 0 < ANY(p_ask_max) AND EXISTS (SELECT FROM queue q WHERE q.turn >= p_after) OR d.due_at <= t OR EXISTS (SELECT FROM queue q
				WHERE q.node IS NOT NULL AND q.head AND q.lease_until > CASE WHEN p_lapsed < 0 THEN '-infinity' ELSE t - make_interval(secs => p_lapsed) END AND q.lease_until <= t)
			INTO next_due, busy
			FROM (SELECT (SELECT q.due_at FROM queue q WHERE q.due_at IS NOT NULL ORDER BY q.due_at LIMIT 1) AS due_at) d;
	END IF;
	IF busy THEN
		RETURN QUERY SELECT c.* FROM claim_more_1(p_node, p_call, p_after, p_lapsed, p_ask_max, p_ask_lease, p_bound_ask, p_bound_most, p_name_bound, p_names, p_name_hook,
			p_without_ask, p_without, d_queued, d_running, 0, 0, d_told, 0, 0, true) c;
		RETURN;
	END IF;
	PERFORM bump_1(p_node, 2, d_queued, d_running, 0, 0, 0, d_told);
	RETURN QUERY SELECT 'clock', 0, NULL::text, NULL::text, 0, t, extract(epoch FROM next_due - t)::double precision, 0, false, 0::bigint,
		NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::json, NULL::bytea;
END $$;
