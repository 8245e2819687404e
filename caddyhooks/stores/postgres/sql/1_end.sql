-- Ends runs, or puts them back, and claims others in the same step. The ends are of different runs. Nothing was done if the answer is
-- 'retry': then all chats must be locked, by p_careful.
--
-- A run that is put back was started, unless p_unstarted says otherwise: its turn was cut off. Such a run does not wait for its runner any
-- more, though it may pause. The runner of one that p_held names was not tried: its waits are not counted up, but for the first.
--
-- The answer has a row for each end: 'ended', 'queued' (ended without a claim) and 'requeued' were done, 'repeated' and 'put_back' were done by an
-- earlier call, 'lost' and 'gap' (its question is not the next one) are not done, and claim nothing.
CREATE FUNCTION end_runs_1(p_node text, p_call bigint, p_careful boolean,
	p_ids text[], p_tokens text[], p_folded int[], p_requeue boolean[], p_unstarted boolean[], p_held boolean[], p_pauses double precision[], p_reasons text[],
	p_statuses text[], p_endings text[],
	-- The runs that end, each with the number of its end: that of the claim, and those that are folded into it.
	p_run_ids text[], p_run_end int[], p_runs text[], p_past boolean[], p_forget boolean[], p_history double precision[], p_told text[], p_told_bytes int[],
	p_delivery_end int[], p_delivery_runs text[], p_delivery_indexes int[], p_delivery_ids text[], p_delivery_hosts text[], p_delivery_chats text[],
	p_delivery_records text[], p_delivery_bodies bytea[],
	p_session_end int[], p_session_runners text[], p_session_chats text[], p_session_ids text[],
	-- The questions for which runs are put aside, as put_aside_1 has them. They pause by it, and not by p_pauses and p_reasons.
	p_question_end int[], p_question_numbers int[], p_question_people boolean[], p_question_fors double precision[], p_questions text[], p_question_states bytea[],
	p_question_pauses double precision[], p_question_reasons text[],
	p_spent json, -- as spend_1 has it, NULL if nothing was
	-- What to claim, as claim_runs_1 has it.
	p_end_ask int[], p_end_max int[], -- the question of each end, and how many runs it may have of it
	p_after bigint, p_lapsed double precision, p_ask_max int[], p_ask_lease double precision[], p_bound_ask int[], p_bound_most int[], p_name_bound int[], p_names text[], p_name_hook boolean[],
	p_without_ask int[], p_without text[])
RETURNS TABLE (o_kind text, o_number int, o_id text, o_token text, o_attempt int, o_at timestamptz, o_seconds double precision, o_waits int,
	o_alive boolean, o_turn bigint, o_accepted timestamptz, o_chat text, o_hook text, o_runner text, o_run json, o_state bytea) LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET enable_sort = off
AS $$
DECLARE
	ids uuid[] := p_ids::uuid[];
	run_ids uuid[] := p_run_ids::uuid[];
	keys bytea[];
	chats text[];       -- of the ends, NULL for runs that are not there
	exclusive boolean[]; -- likewise
	states text[];      -- likewise
	t timestamptz;
	heads uuid[];
	members uuid[];
	cut_off uuid[];
	ended uuid[];
	offered record;
	d_queued bigint := 0;
	d_running bigint := 0;
	d_pending bigint := 0;
	d_keys bigint := 0;
	d_told bigint;
	d_waiting bigint := 0;
	d_asking bigint := 0;
	asked uuid[]; -- runs that ended and have questions
	aside record;
	made record;
	n bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(chat_lock_1(E'\\node ' || p_node)); -- see claim_runs_1
	IF true = ANY(p_forget) THEN
		keys := ARRAY(SELECT k.id FROM unnest(run_ids, p_forget) AS u(id, forget)
			CROSS JOIN LATERAL (SELECT x.id FROM key x WHERE x.run = u.id OFFSET 0) k WHERE u.forget ORDER BY k.id);
		PERFORM FROM unnest(keys) AS u(id) CROSS JOIN LATERAL (SELECT FROM key x WHERE x.id = u.id FOR UPDATE) k;
	END IF;

	-- A chat about to run empty: nobody may add to it between the look for a successor and the commit. Nor may two ends of runs of one
	-- chat go on at the same time, if one of them is queued.
	SELECT array_agg(q.chat ORDER BY u.i), array_agg(p_careful OR u.token = '' OR NOT u.requeue AND NOT EXISTS (
			SELECT FROM queue s WHERE s.chat = q.chat AND NOT s.head ORDER BY s.seq OFFSET u.folded) ORDER BY u.i)
		INTO chats, exclusive
		FROM unnest(ids, p_tokens, p_folded, p_requeue) WITH ORDINALITY AS u(id, token, folded, requeue, i)
		LEFT JOIN LATERAL (SELECT x.chat FROM queue x WHERE x.id = u.id LIMIT 1) q ON true;
	PERFORM CASE WHEN l.exclusive THEN pg_advisory_xact_lock(l.number) ELSE pg_advisory_xact_lock_shared(l.number) END FROM (
		SELECT chat_lock_1(c.chat) AS number, bool_or(c.exclusive) AS exclusive FROM unnest(chats, exclusive) AS c(chat, exclusive)
		WHERE c.chat IS NOT NULL GROUP BY 1 ORDER BY 1) l;
	PERFORM FROM (SELECT DISTINCT c.chat COLLATE "C" AS chat FROM unnest(chats) AS c(chat) WHERE c.chat IS NOT NULL ORDER BY 1) c
		CROSS JOIN LATERAL (SELECT FROM queue x WHERE x.chat = c.chat AND x.head FOR NO KEY UPDATE) h;

	t := clock_1();
	SELECT array_agg(CASE
			WHEN chats[u.i] IS NULL OR q.id IS NULL THEN
				CASE WHEN u.token <> '' AND EXISTS (SELECT FROM done d WHERE d.id = u.id AND holds_1(d.token, u.token)) THEN 'repeated' ELSE 'lost' END
			WHEN u.token = '' THEN CASE WHEN NOT u.requeue AND (q.node IS NULL OR q.lease_until <= t) THEN 'queued' ELSE 'lost' END
			WHEN holds_1(q.token, u.token) IS NOT TRUE THEN 'lost'
			WHEN q.leader IS NULL THEN 'put_back'
			WHEN q.leader <> q.id OR q.folded <> u.folded THEN 'lost'
			WHEN u.requeue THEN 'requeued'
			ELSE 'ended' END ORDER BY u.i)
		INTO states
		FROM unnest(ids, p_tokens, p_folded, p_requeue) WITH ORDINALITY AS u(id, token, folded, requeue, i)
		LEFT JOIN LATERAL (SELECT x.id, x.token, x.leader, x.folded, x.node, x.lease_until FROM queue x WHERE x.id = u.id LIMIT 1) q ON true;
	FOR i IN 1 .. cardinality(p_question_end) LOOP
		IF states[p_question_end[i]] = 'requeued' AND NOT is_next_1(ids[p_question_end[i]], p_question_numbers[i])
			AND NOT EXISTS (SELECT FROM question x WHERE x.run = ids[p_question_end[i]] AND x.number = p_question_numbers[i]) THEN
			states[p_question_end[i]] := 'gap';
		END IF;
	END LOOP;
	IF false = ANY(exclusive) THEN
		IF EXISTS (SELECT FROM unnest(chats, exclusive, states, p_folded) AS c(chat, exclusive, state, folded)
			WHERE c.state = 'ended' AND NOT c.exclusive
			AND NOT EXISTS (SELECT FROM queue s WHERE s.chat = c.chat AND NOT s.head ORDER BY s.seq OFFSET c.folded))
		THEN -- the successor was withdrawn before the chat was locked
			RETURN QUERY SELECT 'retry', 0, NULL::text, NULL::text, 0, t, NULL::double precision, 0, false, NULL::bigint, NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::json, NULL::bytea;
			RETURN;
		END IF;
	END IF;

	IF 'queued' = ANY(states) THEN
		-- Nobody carries them out any more, though nobody has noticed.
		heads := ARRAY(SELECT DISTINCT q.leader FROM unnest(ids, states) AS u(id, state)
			CROSS JOIN LATERAL (SELECT x.leader FROM queue x WHERE x.id = u.id AND x.node IS NOT NULL LIMIT 1) q WHERE u.state = 'queued');
		IF heads <> '{}' THEN
			SELECT b.o_runs INTO n FROM put_back_1(heads, t) b;
			d_queued := d_queued + n;
			d_running := d_running - n;
		END IF;
		-- A claim whose lease is over cannot be taken back without all of its runs.
		heads := ARRAY(SELECT h.id FROM unnest(ids, states) AS u(id, state)
			CROSS JOIN LATERAL (SELECT x.leader, x.token FROM queue x WHERE x.id = u.id AND x.leader <> x.id LIMIT 1) q
			CROSS JOIN LATERAL (SELECT x.id FROM queue x WHERE x.id = q.leader AND x.token = q.token AND x.node IS NULL LIMIT 1) h WHERE u.state = 'queued');
		IF heads <> '{}' THEN
			UPDATE queue q SET token = NULL, leader = NULL, folded = 0 WHERE q.id = ANY(heads);
		END IF;
	END IF;

	WITH gone AS (
		DELETE FROM queue q USING unnest(run_ids, p_run_end, p_runs, p_past, p_history, p_told, p_told_bytes) AS r(id, number, run, past, history, told, told_bytes)
		WHERE q.id = ANY(run_ids) AND q.id = r.id AND states[r.number] IN ('ended', 'queued') AND (q.id = ids[r.number] OR q.leader = ids[r.number])
		RETURNING q.id, q.seq, q.chat, q.hook, q.runner, q.accepted_at, q.started_at, q.starts, q.named, q.request, q.node, q.question, q.asked, ids[r.number] AS leader, r.number, r.run, r.past, r.history, r.told, r.told_bytes),
	kept AS (
		INSERT INTO done (id, seq, chat, hook, runner, status, accepted_at, started_at, finished_at, attempts, token, named, past, folded_into, folded, request, run, ending)
		SELECT g.id, g.seq, g.chat, g.hook, g.runner, p_statuses[g.number], g.accepted_at,
			CASE WHEN states[g.number] = 'ended' AND NOT p_unstarted[g.number] THEN g.started_at END, t,
			CASE WHEN states[g.number] = 'ended' AND p_unstarted[g.number] THEN g.starts - 1 ELSE g.starts END,
			nullif(p_tokens[g.number], ''), g.named, g.past,
			CASE WHEN g.id <> g.leader THEN g.leader END, CASE WHEN g.id = g.leader AND p_folded[g.number] > 0 THEN 1 + p_folded[g.number] ELSE 0 END,
			g.request, g.run::json, CASE WHEN g.id = g.leader THEN p_endings[g.number]::json END
		FROM gone g),
	remembered AS (
		INSERT INTO told (id, at, until, bytes, told)
		SELECT g.id, t, t + make_interval(secs => g.history), g.told_bytes, g.told::json FROM gone g WHERE g.told <> '')
	SELECT d_queued - count(*) FILTER (WHERE g.node IS NULL AND g.question IS NULL), d_running - count(*) FILTER (WHERE g.node IS NOT NULL),
		-count(g.question), coalesce(sum(g.told_bytes) FILTER (WHERE g.told <> ''), 0), array_agg(g.id), array_agg(g.id) FILTER (WHERE g.asked > 0)
		INTO d_queued, d_running, d_waiting, d_told, ended, asked FROM gone g;
	IF asked IS NOT NULL THEN
		d_asking := -close_questions_1(asked, t);
	END IF;

	IF 'requeued' = ANY(states) THEN
		heads := ARRAY(SELECT u.id FROM unnest(ids, states) AS u(id, state) WHERE u.state = 'requeued');
		cut_off := ARRAY(SELECT u.id FROM unnest(ids, states, p_unstarted) AS u(id, state, unstarted) WHERE u.state = 'requeued' AND NOT u.unstarted);
		members := members_1(heads);
		SELECT count(*) INTO n FROM queue q WHERE q.id = ANY(members) AND q.node IS NOT NULL;
		d_queued := d_queued + n;
		d_running := d_running - n;
		UPDATE queue q SET node = NULL, lease_until = NULL, call = NULL, token = CASE WHEN q.leader = q.id THEN q.token END, leader = NULL, folded = 0,
				turn = NULL, due_at = NULL, waiting_for = NULL, started_at = NULL, cancel_by = NULL, cancel_no = NULL,
				starts = CASE WHEN q.leader = ANY(cut_off) THEN q.starts ELSE q.starts - 1 END,
				waits = CASE WHEN q.leader = ANY(cut_off) THEN 0 ELSE q.waits END,
				expires_at = CASE WHEN NOT q.leader = ANY(cut_off) THEN expiry_1(q.accepted_at, q.starts - 1, q.waits, q.asked, q.run) END
			WHERE q.id = ANY(members);
		UPDATE queue q SET waits = CASE WHEN u.unstarted THEN greatest(q.waits + (NOT u.held)::int, 1) ELSE 0 END, waiting_for = u.reason, due_at = t + make_interval(secs => u.pause),
				expires_at = CASE WHEN u.unstarted THEN expiry_1(q.accepted_at, q.starts, 1, q.asked, q.run) END
			FROM unnest(ids, p_unstarted, p_held, p_reasons, p_pauses) AS u(id, unstarted, held, reason, pause)
			WHERE q.id = ANY(heads) AND q.id = u.id AND u.reason <> '';
		IF cardinality(p_question_end) > 0 THEN
			SELECT p.* INTO aside FROM put_aside_1(ARRAY(SELECT CASE WHEN states[u.e] = 'requeued' THEN ids[u.e] END FROM unnest(p_question_end) AS u(e)), p_question_numbers,
				p_question_people, p_question_fors, p_questions, p_question_states, p_question_pauses, p_question_reasons, t) p;
			d_queued := d_queued - aside.o_waiting;
			d_waiting := d_waiting + aside.o_waiting;
			d_asking := d_asking + aside.o_asking;
		END IF;
	END IF;
	SELECT o.o_ready, o.o_waiting INTO offered FROM offer_locked_1(ARRAY(SELECT DISTINCT c.chat FROM unnest(chats, states) AS c(chat, state)
		WHERE c.state IN ('ended', 'queued', 'requeued')), t, NOT ('queued' = ANY(states) OR 'requeued' = ANY(states))) o;

	IF cardinality(p_delivery_end) > 0 THEN
		SELECT count(*) AS n, array_agg(u.run) AS runs, array_agg(u.index) AS indexes, array_agg(u.id) AS ids, array_agg(u.host) AS hosts,
				array_agg(nullif(u.chat, '')) AS chats, array_agg(u.record) AS records, array_agg(u.body) AS bodies
			INTO made
			FROM unnest(p_delivery_end, p_delivery_runs, p_delivery_indexes, p_delivery_ids, p_delivery_hosts, p_delivery_chats, p_delivery_records, p_delivery_bodies)
			AS u(number, run, index, id, host, chat, record, body) WHERE states[u.number] IN ('ended', 'queued', 'requeued')
			-- Those of questions may be there already, as if a run is put aside again.
			AND (asked IS NULL AND states[u.number] <> 'requeued' OR NOT EXISTS (SELECT FROM delivery d WHERE d.run = u.run::uuid AND d.index = u.index));
		IF made.n > 0 THEN
			PERFORM add_deliveries_1(made.runs, made.indexes, made.ids, made.hosts, made.chats, made.records, made.bodies, t);
			d_pending := made.n;
		END IF;
	END IF;
	IF cardinality(p_session_end) > 0 THEN
		PERFORM set_sessions_1(s.runners, s.chats, s.ids) FROM (
			SELECT array_agg(u.runner) AS runners, array_agg(u.chat) AS chats, array_agg(u.id) AS ids
			FROM unnest(p_session_end, p_session_runners, p_session_chats, p_session_ids) AS u(number, runner, chat, id)
			WHERE states[u.number] IN ('ended', 'queued', 'requeued') HAVING count(*) > 0) s;
	END IF;
	IF p_spent IS NOT NULL THEN
		PERFORM spend_1(p_node, p_spent, states, t);
	END IF;
	IF keys <> '{}' THEN
		DELETE FROM key k WHERE k.id = ANY(keys) AND k.run = ANY(ended);
		GET DIAGNOSTICS d_keys = ROW_COUNT;
	END IF;
	IF 'lost' = ANY(states) OR 'gap' = ANY(states) THEN
		FOR i IN 1 .. cardinality(states) LOOP
			IF states[i] IN ('lost', 'gap') AND p_end_ask[i] > 0 THEN
				p_ask_max[p_end_ask[i]] := p_ask_max[p_end_ask[i]] - p_end_max[i];
			END IF;
		END LOOP;
	END IF;
	RETURN QUERY SELECT 'end', u.i::int, NULL::text, u.state, 0, t, NULL::double precision, 0, false, NULL::bigint, NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::json, NULL::bytea
		FROM unnest(states) WITH ORDINALITY AS u(state, i)
		UNION ALL SELECT 'offered', offered.o_ready, NULL::text, NULL::text, 0, t, NULL::double precision, offered.o_waiting, false, NULL::bigint, NULL::timestamptz,
		NULL::text, NULL::text, NULL::text, NULL::json, NULL::bytea;
	RETURN QUERY SELECT c.* FROM claim_more_1(p_node, p_call, p_after, p_lapsed, p_ask_max, p_ask_lease, p_bound_ask, p_bound_most, p_name_bound, p_names, p_name_hook,
		p_without_ask, p_without, d_queued, d_running, d_pending, -d_keys, d_told, d_waiting, d_asking, true) c;
END $$;
