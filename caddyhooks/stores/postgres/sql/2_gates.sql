-- Gates let runs in only so often. Nodes read them, decide, and write what is new; the version tells whether somebody else was quicker.

CREATE SEQUENCE gate_seq; -- tells versions apart, also those of a gate that was forgotten meanwhile
CREATE TABLE gate (
	id      bytea PRIMARY KEY,
	version bigint NOT NULL DEFAULT nextval('gate_seq'),
	until   timestamptz NOT NULL, -- from then on it is not kept
	run     uuid,                 -- that has passed, if the gate remembers one
	state   bytea NOT NULL        -- as package gate writes it
);
CREATE INDEX gate_until ON gate (until);
CREATE INDEX gate_version ON gate (version); -- the order in which they were written

-- look_at_gates_2 returns a row for each of the ids, with NULL for a gate that nobody has passed. Of the run that has passed it tells whether
-- it is unfinished, and otherwise how it ended, as far as that is known.
CREATE FUNCTION look_at_gates_2(p_ids bytea[]) RETURNS TABLE (o_now timestamptz, o_id bytea, o_version bigint, o_until timestamptz, o_state bytea,
	o_unfinished boolean, o_status text, o_failure text) LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	t timestamptz := clock_1();
BEGIN
	RETURN QUERY SELECT t, u.id, g.version, g.until, g.state, q.id IS NOT NULL, d.status,
		CASE WHEN d.status <> 'completed' THEN coalesce(d.ending, (SELECT f.ending FROM done f WHERE f.id = d.folded_into)) ->> 'failure' END
	FROM unnest(p_ids) AS u(id) LEFT JOIN gate g ON g.id = u.id LEFT JOIN queue q ON q.id = g.run LEFT JOIN done d ON d.id = g.run;
END $$;

-- add_gated_2 is add_runs_1 for requests that have passed gates, as far as the node knows. A request one of whose gates has another version than
-- the node saw has the status gates_changed, unless it is a repeated one. The gates of those that are accepted are written.
--
-- A request may have passed a gate after an earlier one, or not have passed it because of that. If the earlier one is refused then, the call
-- fails, and the node makes one for each request.
--
-- The locks of gates come before all others, so that nobody changes one meanwhile. A run that has ended stays so: that a gate was open because of
-- it need not be looked at again.
CREATE FUNCTION add_gated_2(
	-- The gates that requests have passed, or not because of an earlier one, in the order of requests.
	p_gates bytea[],
	p_gate_requests int[],     -- the number of the request
	p_gate_versions bigint[],  -- 0 if it was not there
	p_gate_untils timestamptz[], p_gate_runs text[],
	p_gate_states bytea[],     -- NULL if the request has not passed
	-- The others are those of add_runs_1.
	p_node text, p_made timestamptz, p_off double precision, p_revision bigint, p_queue_limit bigint, p_chat_limit bigint,
	p_key_limit bigint, p_key_age double precision, p_odd boolean, p_places text[], p_counts int[], p_firsts text[], p_numbers int[],
	p_replays int[], p_keys int[], p_refuse boolean[], p_again text[], p_once boolean[], p_key_ids bytea[], p_key_bodies bytea[],
	p_key_any boolean[], p_key_runs text[], p_key_firsts text[], p_kind_runners text[], p_kind_hooks text[], p_order int[], p_ids text[],
	p_chats text[], p_at int[], p_states int[], p_kinds int[], p_hooks text[], p_runners text[], p_queue_times double precision[],
	p_fold_windows double precision[], p_fold_maxes int[], p_alikes bigint[], p_sizes int[], p_named boolean[], p_owners text[],
	p_requests text[], p_runs text[]
) RETURNS TABLE (o_request int, o_status text, o_now timestamptz, o_accepted timestamptz, o_ready boolean, o_first text, o_same boolean) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	changed int[];
	refused int[] := '{}'; -- whatever the reason …
	settled int[] := '{}'; -- … and those for which it is none of their gates
	n       int;
BEGIN
	PERFORM pg_advisory_xact_lock(l.number) FROM (SELECT DISTINCT chat_lock_1(E'\\gate ' || encode(i, 'hex')) AS number FROM unnest(p_gates) i ORDER BY 1) l;
	changed := ARRAY(SELECT DISTINCT u.request FROM unnest(p_gates, p_gate_requests, p_gate_versions) AS u(id, request, version)
		LEFT JOIN gate g ON g.id = u.id WHERE coalesce(g.version, 0) <> u.version);
	FOREACH n IN ARRAY changed LOOP
		p_refuse[n] := true;
		p_odd := true;
	END LOOP;
	FOR o_request, o_status, o_now, o_accepted, o_ready, o_first, o_same IN SELECT * FROM add_runs_1(
		p_node, p_made, p_off, p_revision, p_queue_limit, p_chat_limit, p_key_limit, p_key_age, p_odd, p_places, p_counts, p_firsts,
		p_numbers, p_replays, p_keys, p_refuse, p_again, p_once, p_key_ids, p_key_bodies, p_key_any, p_key_runs, p_key_firsts,
		p_kind_runners, p_kind_hooks, p_order, p_ids, p_chats, p_at, p_states, p_kinds, p_hooks, p_runners, p_queue_times, p_fold_windows,
		p_fold_maxes, p_alikes, p_sizes, p_named, p_owners, p_requests, p_runs)
	LOOP
		IF o_request > 0 THEN
			IF o_status = 'refused' AND o_request = ANY(changed) THEN
				o_status := 'gates_changed';
			END IF;
			refused := refused || o_request;
			IF o_status <> 'refused' THEN
				settled := settled || o_request;
			END IF;
		ELSIF o_status = 'ok' THEN
			IF settled <> '{}' AND EXISTS (SELECT FROM unnest(p_gates, p_gate_requests, p_gate_states) AS u(id, request, state) GROUP BY u.id
					HAVING min(u.request) FILTER (WHERE u.state IS NOT NULL AND u.request = ANY(settled)) < max(u.request) FILTER (WHERE u.request <> ALL(settled))) THEN
				RAISE EXCEPTION 'a request that was refused was counted by a gate' USING ERRCODE = '23000';
			END IF;
			INSERT INTO gate AS g (id, until, run, state)
				SELECT DISTINCT ON (u.id) u.id, u.until, u.run::uuid, u.state FROM unnest(p_gates, p_gate_requests, p_gate_untils, p_gate_runs, p_gate_states) AS u(id, request, until, run, state)
				WHERE u.state IS NOT NULL AND u.request <> ALL(refused) ORDER BY u.id, u.request DESC
				ON CONFLICT (id) DO UPDATE SET version = excluded.version, until = excluded.until, run = excluded.run, state = excluded.state;
		END IF;
		RETURN NEXT;
	END LOOP;
END $$;

-- beside_2 lists unfinished runs of the hook of a run: those that stand before it in its chat and those behind it, the last ones first, up to p_most
-- of each. The head is before all others, whatever its number: those of runs that are accepted at the same time need not become visible in their
-- order.
CREATE FUNCTION beside_2(p_id text, p_most int) RETURNS TABLE (o_id text, o_before boolean) LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET enable_sort = off
SET jit = off AS $$
DECLARE
	r record;
BEGIN
	SELECT q.chat, q.hook, CASE WHEN NOT q.head THEN q.seq ELSE 0 END AS seq INTO r FROM queue q WHERE q.id = p_id::uuid;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	IF r.seq > 0 THEN
		RETURN QUERY SELECT b.id::text, true FROM (
			(SELECT q.id FROM queue q WHERE q.chat = r.chat AND NOT q.head AND q.seq < r.seq AND q.hook = r.hook
				ORDER BY q.chat DESC, q.seq DESC LIMIT p_most)
			UNION ALL
			(SELECT q.id FROM queue q WHERE q.chat = r.chat AND q.head AND q.hook = r.hook)) b LIMIT p_most;
	END IF;
	RETURN QUERY SELECT q.id::text, false FROM queue q WHERE q.chat = r.chat AND NOT q.head AND q.seq > r.seq AND q.hook = r.hook
		ORDER BY q.chat DESC, q.seq DESC LIMIT p_most;
END $$;

-- prune_gates_2 forgets gates whose time is over, and if there are more than p_most, those that were written first. It says whether there is
-- more. Ids are hashes, so of all gates about one in 256 has an id that begins with a zero: counting these takes no longer than a step does, and
-- among a million gates it is off by some percent.
CREATE FUNCTION prune_gates_2(p_most bigint, p_step int) RETURNS boolean LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	t timestamptz := clock_1();
	n bigint;
BEGIN
	IF NOT pg_try_advisory_xact_lock(hashint8('done'::regclass::oid::bigint), 1) THEN -- as in prune_1
		RETURN false;
	END IF;
	DELETE FROM gate g WHERE g.id = ANY (ARRAY(SELECT o.id FROM gate o WHERE o.until <= t ORDER BY o.until LIMIT p_step FOR UPDATE SKIP LOCKED));
	GET DIAGNOSTICS n = ROW_COUNT;
	IF n = p_step THEN
		RETURN true;
	END IF;
	SELECT 256 * count(*) - p_most INTO n FROM gate g WHERE g.id < '\x01';
	IF n > 0 THEN
		DELETE FROM gate g WHERE g.id = ANY (ARRAY(SELECT o.id FROM gate o ORDER BY o.version LIMIT least(n, p_step) FOR UPDATE SKIP LOCKED));
	END IF;
	RETURN n > p_step;
END $$;
