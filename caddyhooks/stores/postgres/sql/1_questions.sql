-- Questions of runs. Whoever asks, answers or closes one has locked the row of the run in queue, and locks no other run. So it comes where heads
-- come in the order of locks: after chats, and before the counter.

-- About how many bytes the questions of a run have.
CREATE FUNCTION question_bytes_1(p_run uuid) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN (SELECT coalesce(sum(64 + pg_column_size(x.record) + coalesce(pg_column_size(x.answer), 0) + coalesce(octet_length(x.state), 0)), 0)
		FROM question x WHERE x.run = p_run);
END $$;

-- Whether a question is the next one of a run. Numbers have no gaps.
CREATE FUNCTION is_next_1(p_run uuid, p_number int) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN p_number = (SELECT count(*) FROM question x WHERE x.run = p_run AND x.asked_at IS NOT NULL);
END $$;

-- Stores a question, and tells when it was asked first, whether it is open, and how many more questions for people are. What is there under its
-- number is the same question, with an earlier state, or an answer that came first.
CREATE FUNCTION ask_1(p_run uuid, p_number int, p_people boolean, p_record text, p_state bytea, p_at timestamptz,
	OUT o_asked_at timestamptz, OUT o_is_open boolean, OUT o_asking int) LANGUAGE plpgsql AS $$
DECLARE
	before record;
BEGIN
	SELECT x.asked_at, x.answered_at, x.people INTO before FROM question x WHERE x.run = p_run AND x.number = p_number;
	o_asked_at := coalesce(before.asked_at, p_at);
	o_is_open := before.answered_at IS NULL;
	o_asking := CASE WHEN o_is_open THEN p_people::int - coalesce(before.people, false)::int ELSE 0 END;
	INSERT INTO question AS x (run, number, seq, people, asked_at, record, state)
		VALUES (p_run, p_number, nextval('question_seq'), p_people, p_at, p_record::json, p_state)
		ON CONFLICT (run, number) DO UPDATE SET seq = coalesce(x.seq, EXCLUDED.seq), people = p_people, asked_at = o_asked_at, record = EXCLUDED.record, state = p_state;
END $$;

-- Puts runs aside which were just put back, each for one question, unless that is answered already. A run that is NULL is
-- left out. It returns how many were put aside, and how many more questions for people are open. It is called within end_runs.
CREATE FUNCTION put_aside_1(p_runs uuid[], p_numbers int[], p_people boolean[], p_fors double precision[], p_records text[], p_states bytea[],
	p_pauses double precision[], p_reasons text[], p_at timestamptz, OUT o_waiting bigint, OUT o_asking bigint) LANGUAGE plpgsql AS $$
DECLARE
	asked record;
	due   timestamptz;
	aside boolean;
BEGIN
	o_waiting := 0;
	o_asking := 0;
	FOR i IN 1 .. cardinality(p_runs) LOOP
		CONTINUE WHEN p_runs[i] IS NULL;
		SELECT * INTO asked FROM ask_1(p_runs[i], p_numbers[i], p_people[i], p_records[i], p_states[i], p_at);
		due := least(CASE WHEN p_fors[i] > 0 THEN asked.o_asked_at + make_interval(secs => p_fors[i]) END,
			CASE WHEN p_pauses[i] > 0 THEN p_at + make_interval(secs => p_pauses[i]) END);
		aside := asked.o_is_open;
		UPDATE queue q SET expires_at = NULL, waits = 0, asked = question_bytes_1(q.id), question = CASE WHEN aside THEN p_numbers[i] END,
				due_at = CASE WHEN aside THEN due END, waiting_for = CASE WHEN aside THEN nullif(p_reasons[i], '') END
			WHERE q.id = p_runs[i];
		o_asking := o_asking + asked.o_asking;
		o_waiting := o_waiting + aside::int;
	END LOOP;
END $$;

-- Closes the questions of runs that end, and returns how many of the open ones were for people. Nobody needs their state any more.
CREATE FUNCTION close_questions_1(p_runs uuid[], p_at timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	SELECT count(*) INTO n FROM question x WHERE x.run = ANY(p_runs) AND x.people AND x.answered_at IS NULL;
	UPDATE question x SET state = NULL, answered_at = coalesce(x.answered_at, p_at), answer = coalesce(x.answer, '{"via":"end"}') WHERE x.run = ANY(p_runs);
	RETURN n;
END $$;

-- Adds deliveries of an unfinished run but for those that are there, and returns how many.
CREATE FUNCTION add_question_deliveries_1(p_run text, p_indexes int[], p_hosts text[], p_chats text[], p_records text[], p_bodies bytea[], p_at timestamptz)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	made record;
BEGIN
	SELECT count(*) AS n, array_agg(p_run) AS runs, array_agg(u.index) AS indexes, array_agg(u.host) AS hosts, array_agg(nullif(u.chat, '')) AS chats,
			array_agg(u.record) AS records, array_agg(u.body) AS bodies
		INTO made FROM unnest(p_indexes, p_hosts, p_chats, p_records, p_bodies) AS u(index, host, chat, record, body)
		WHERE NOT EXISTS (SELECT FROM delivery d WHERE d.run = p_run::uuid AND d.index = u.index);
	IF made.n > 0 THEN
		PERFORM add_deliveries_1(made.runs, made.indexes, NULL, made.hosts, made.chats, made.records, made.bodies, p_at);
	END IF;
	RETURN made.n;
END $$;

-- Stores a question of a run that is being carried out, with its deliveries. The answer is 'done', 'lost' if the claim does not hold, or 'gap' if
-- it is not the next one.
CREATE FUNCTION ask_question_1(p_node text, p_run text, p_token text, p_number int, p_people boolean, p_record text, p_state bytea,
	p_indexes int[], p_hosts text[], p_chats text[], p_records text[], p_bodies bytea[]) RETURNS text LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
	t timestamptz;
	claim record;
	asked record;
BEGIN
	SELECT q.id, q.token, q.leader INTO claim FROM queue q WHERE q.id = p_run::uuid FOR NO KEY UPDATE;
	IF claim.id IS NULL OR holds_1(claim.token, p_token) IS NOT TRUE OR claim.leader IS DISTINCT FROM claim.id THEN
		RETURN 'lost';
	ELSIF NOT is_next_1(claim.id, p_number) AND NOT EXISTS (SELECT FROM question x WHERE x.run = claim.id AND x.number = p_number) THEN
		RETURN 'gap';
	END IF;
	t := clock_1();
	SELECT * INTO asked FROM ask_1(claim.id, p_number, p_people, p_record, p_state, t);
	UPDATE queue q SET asked = question_bytes_1(q.id) WHERE q.id = claim.id;
	PERFORM bump_1(p_node, 5, 0, 0, add_question_deliveries_1(p_run, p_indexes, p_hosts, p_chats, p_records, p_bodies, t), 0, 0, 0);
	PERFORM bump_questions_1(p_node, 5, 0, asked.o_asking);
	RETURN 'done';
END $$;

-- Answers a question, with deliveries of its run. The status is
--   done      o_ready says that the run was put aside for it, and is ready now
--   answered  there is an answer already, and nothing was done
--   unknown   there is no such question, and it is not the next one of a run that has not ended
CREATE FUNCTION answer_question_1(p_node text, p_run text, p_number int, p_answer text,
	p_indexes int[], p_hosts text[], p_chats text[], p_records text[], p_bodies bytea[])
RETURNS TABLE (o_status text, o_ready boolean, run uuid, number int, asked_at timestamptz, answered_at timestamptz, record json, answer json, state bytea)
LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
	v_run     uuid := p_run::uuid;
	t         timestamptz;
	unended   record;
	before    record;
	v_ready   boolean;
	v_pending bigint;
BEGIN
	SELECT q.id, q.question INTO unended FROM queue q WHERE q.id = v_run FOR NO KEY UPDATE;
	SELECT x.number, x.people, x.answered_at INTO before FROM question x WHERE x.run = v_run AND x.number = p_number;
	IF before.number IS NULL AND (unended.id IS NULL OR NOT is_next_1(v_run, p_number)) THEN
		RETURN QUERY SELECT 'unknown', false, NULL::uuid, NULL::int, NULL::timestamptz, NULL::timestamptz, NULL::json, NULL::json, NULL::bytea;
		RETURN;
	END IF;
	IF before.answered_at IS NOT NULL OR unended.id IS NULL THEN
		RETURN QUERY SELECT 'answered', false, x.run, x.number, x.asked_at, x.answered_at, x.record, x.answer, x.state FROM question x WHERE x.run = v_run AND x.number = p_number;
		RETURN;
	END IF;
	t := clock_1();
	INSERT INTO question AS x (run, number, people, answered_at, record, answer) VALUES (v_run, p_number, false, t, '{}', p_answer::json)
		ON CONFLICT (run, number) DO UPDATE SET answered_at = t, answer = EXCLUDED.answer;
	v_ready := coalesce(unended.question = p_number, false);
	IF v_ready THEN
		UPDATE queue q SET asked = question_bytes_1(q.id), question = NULL, waiting_for = NULL, due_at = NULL, turn = nextval('turn_seq') WHERE q.id = v_run;
	ELSE
		UPDATE queue q SET asked = question_bytes_1(q.id), expires_at = NULL WHERE q.id = v_run;
	END IF;
	v_pending := add_question_deliveries_1(p_run, p_indexes, p_hosts, p_chats, p_records, p_bodies, t);
	PERFORM bump_1(p_node, 5, v_ready::int, 0, v_pending, 0, 0, 0);
	PERFORM bump_questions_1(p_node, 5, -v_ready::int, CASE WHEN before.people THEN -1 ELSE 0 END);
	RETURN QUERY SELECT 'done', v_ready, x.run, x.number, x.asked_at, x.answered_at, x.record, x.answer, x.state FROM question x WHERE x.run = v_run AND x.number = p_number;
END $$;

-- One question, if it is there.
CREATE FUNCTION get_question_1(p_run text, p_number int)
RETURNS TABLE (run uuid, number int, asked_at timestamptz, answered_at timestamptz, record json, answer json, state bytea) LANGUAGE plpgsql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY SELECT x.run, x.number, x.asked_at, x.answered_at, x.record, x.answer, x.state FROM question x WHERE x.run = p_run::uuid AND x.number = p_number;
END $$;

-- The questions of a run, as codec.DecodeQuestions reads them; NULL if there are none.
CREATE FUNCTION run_questions_1(p_run uuid) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN (SELECT json_agg(json_build_object('number', x.number, 'askedAt', (extract(epoch FROM x.asked_at) * 1000000)::bigint,
		'answeredAt', (extract(epoch FROM x.answered_at) * 1000000)::bigint, 'record', x.record, 'answer', x.answer, 'state', encode(x.state, 'base64')) ORDER BY x.number)
	FROM question x WHERE x.run = p_run);
END $$;

-- Open questions for people that were asked before one, the one that was asked last first, without their state.
CREATE FUNCTION list_questions_1(p_before bigint, p_limit int)
RETURNS TABLE (run uuid, number int, asked_at timestamptz, answered_at timestamptz, record json, answer json, state bytea, seq bigint) LANGUAGE plpgsql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY SELECT x.run, x.number, x.asked_at, x.answered_at, x.record, x.answer, NULL::bytea, x.seq FROM question x
		WHERE x.people AND x.answered_at IS NULL AND x.seq < p_before ORDER BY x.seq DESC LIMIT p_limit;
END $$;
