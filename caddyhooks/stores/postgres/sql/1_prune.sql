-- What is forgotten, and when.

-- prune_1 forgets what is old, some of each kind, and says whether there is more. One node does it at a time; for others there is nothing to
-- do. A limit that is NULL is none. Runs that have to stay though they are old are passed over: a step goes on after the run at which the
-- last one ended, and o_at and o_id are NULL again when it has come to the end.
CREATE FUNCTION prune_1(p_node text, p_retention double precision, p_at timestamptz, p_id text, p_keys bigint, p_key_age double precision,
	p_history double precision, p_history_bytes bigint, p_step int, p_session_step int, OUT o_more boolean, OUT o_at timestamptz, OUT o_id text)
	LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	t          timestamptz := clock_1();
	cut        timestamptz := t - make_interval(secs => p_retention);
	runs       uuid[];
	held       uuid[];
	old        record;
	n          bigint;
	freed      bigint;
	gone_keys  bigint := 0;
	gone_told  bigint := 0;
	gone_dead  bigint := 0;
	has_pruned boolean := false;
BEGIN
	o_more := false;
	o_at := p_at;
	o_id := p_id;
	IF NOT pg_try_advisory_xact_lock(hashint8('done'::regclass::oid::bigint), 1) THEN
		RETURN;
	END IF;

	IF p_retention IS NOT NULL THEN
		SELECT array_agg(d.id), max(d.finished_at) INTO runs, o_at
		FROM (SELECT e.id, e.finished_at FROM done e
			WHERE e.finished_at <= cut AND (e.finished_at, e.id) > (COALESCE(p_at, '-infinity'), COALESCE(p_id::uuid, '00000000-0000-0000-0000-000000000000'))
			ORDER BY e.finished_at, e.id LIMIT p_step) d;
		IF cardinality(runs) = p_step THEN
			o_id := runs[p_step]::text;
			o_more := true;
		ELSE
			o_at := NULL;
			o_id := NULL;
		END IF;
		IF runs IS NOT NULL THEN
			held := ARRAY(SELECT h FROM held_runs_1(runs, cut) h);
			IF held <> '{}' THEN
				-- A run whose end is that of another one needs it.
				held := held || ARRAY(SELECT d.folded_into FROM unnest(held) h JOIN done d ON d.id = h WHERE d.folded_into IS NOT NULL);
				runs := ARRAY(SELECT r FROM unnest(runs) r EXCEPT SELECT h FROM unnest(held) h);
			END IF;
			IF runs <> '{}' THEN
				has_pruned := true;
				gone_dead := forget_deliveries_1(runs);
				WITH gone AS (DELETE FROM told w WHERE w.id = ANY (runs) RETURNING w.bytes)
				SELECT COALESCE(sum(g.bytes), 0) INTO gone_told FROM gone g;
				DELETE FROM question x WHERE x.run = ANY (runs);
				DELETE FROM done d WHERE d.id = ANY (runs);
			END IF;
		END IF;

		FOR old IN SELECT s.runner, s.chat, s.named_at FROM session s WHERE s.age_at <= cut ORDER BY s.age_at LIMIT p_session_step FOR UPDATE SKIP LOCKED
		LOOP
			IF old.named_at <= cut THEN
				DELETE FROM session s WHERE s.runner = old.runner AND s.chat = old.chat;
			ELSE
				UPDATE session s SET age_at = s.named_at WHERE s.runner = old.runner AND s.chat = old.chat;
			END IF;
			p_session_step := p_session_step - 1;
			has_pruned := true;
		END LOOP;
		o_more := o_more OR p_session_step = 0;
	END IF;

	-- Keys that are ahead by so much were used before the clock was set back.
	IF p_key_age IS NOT NULL THEN
		DELETE FROM key k WHERE k.id = ANY (ARRAY(
			SELECT o.id FROM key o WHERE o.at < t - make_interval(secs => p_key_age) ORDER BY o.at LIMIT p_step FOR UPDATE SKIP LOCKED));
		GET DIAGNOSTICS gone_keys = ROW_COUNT;
		DELETE FROM key k WHERE k.id = ANY (ARRAY(
			SELECT o.id FROM key o WHERE o.at > t + make_interval(secs => p_key_age) ORDER BY o.at DESC LIMIT p_step FOR UPDATE SKIP LOCKED));
		GET DIAGNOSTICS n = ROW_COUNT;
		o_more := o_more OR gone_keys = p_step OR n = p_step;
		gone_keys := gone_keys + n;
	END IF;
	IF p_keys IS NOT NULL THEN
		SELECT sum(c.keys) - gone_keys - p_keys INTO n FROM counter c;
		IF n > 0 THEN
			o_more := o_more OR n > p_step;
			DELETE FROM key k WHERE k.id = ANY (ARRAY(SELECT o.id FROM key o ORDER BY o.at LIMIT LEAST(n, p_step) FOR UPDATE SKIP LOCKED));
			GET DIAGNOSTICS n = ROW_COUNT;
			gone_keys := gone_keys + n;
		END IF;
	END IF;

	WITH gone AS (DELETE FROM told w WHERE w.id = ANY (ARRAY(SELECT o.id FROM told o WHERE o.until <= t ORDER BY o.until LIMIT p_step)) RETURNING w.bytes)
	SELECT count(*), COALESCE(sum(g.bytes), 0) INTO n, freed FROM gone g;
	o_more := o_more OR n = p_step;
	has_pruned := has_pruned OR n > 0;
	gone_told := gone_told + freed;
	IF p_history IS NOT NULL THEN
		WITH gone AS (DELETE FROM told w WHERE w.id = ANY (ARRAY(
			SELECT o.id FROM told o WHERE o.at <= t - make_interval(secs => p_history) ORDER BY o.at LIMIT p_step)) RETURNING w.bytes)
		SELECT count(*), COALESCE(sum(g.bytes), 0) INTO n, freed FROM gone g;
		o_more := o_more OR n = p_step;
		has_pruned := has_pruned OR n > 0;
		gone_told := gone_told + freed;
	END IF;
	IF p_history_bytes IS NOT NULL THEN
		SELECT sum(c.told_bytes) - gone_told - p_history_bytes INTO freed FROM counter c; -- too many
		IF freed > 0 THEN
			WITH gone AS (DELETE FROM told w WHERE w.id = ANY (ARRAY(
				SELECT b.id FROM (
					SELECT o.id, sum(o.bytes) OVER (ORDER BY o.at ROWS UNBOUNDED PRECEDING) - o.bytes AS before
					FROM (SELECT f.id, f.at, f.bytes FROM told f ORDER BY f.at LIMIT p_step) o
				) b WHERE b.before < freed)) RETURNING w.bytes)
			SELECT count(*), COALESCE(sum(g.bytes), 0) INTO n, freed FROM gone g;
			o_more := o_more OR n = p_step;
			has_pruned := has_pruned OR n > 0;
			gone_told := gone_told + freed;
		END IF;
	END IF;

	DELETE FROM ledger l USING (SELECT o.account, o.start_at, o.part FROM ledger o WHERE o.until <= t ORDER BY o.until LIMIT p_step) gone
		WHERE l.account = gone.account AND l.start_at = gone.start_at AND l.part = gone.part;
	GET DIAGNOSTICS n = ROW_COUNT;
	o_more := o_more OR n = p_step;

	IF NOT o_more THEN
		PERFORM merge_counters_1();
	END IF;
	IF has_pruned OR gone_keys > 0 THEN
		PERFORM bump_1(p_node, 4, 0, 0, 0, -gone_dead, -gone_keys, -gone_told);
	END IF;
END $$;
