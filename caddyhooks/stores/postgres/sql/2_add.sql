-- Whether a run is ready of other runners and hooks than these. It takes no longer if there are many.
CREATE FUNCTION ready_besides_2(p_runners text[], p_hooks text[]) RETURNS boolean LANGUAGE sql STABLE AS $$
	WITH RECURSIVE ready AS (
		(SELECT q.kind FROM queue q WHERE q.turn IS NOT NULL ORDER BY q.kind LIMIT 1)
		UNION ALL SELECT n.kind FROM ready r CROSS JOIN LATERAL (SELECT q.kind FROM queue q WHERE q.turn IS NOT NULL AND q.kind > r.kind ORDER BY q.kind LIMIT 1) n)
	SELECT EXISTS (SELECT FROM ready r CROSS JOIN LATERAL (SELECT FROM kind k WHERE k.id = r.kind AND k.runner <> ALL(p_runners) AND k.hook <> ALL(p_hooks)) x)
$$;

-- add_and_claim_2 is add_runs_1, and claims up to p_most of the runs that it accepts, if nothing else is ready that the node may claim: they are
-- stored as claimed, which is about half the work of a claim. The answer has a row 'added' for each row of add_runs_1, with its columns in o_number, o_token, o_at, o_accepted,
-- o_alive, o_chat and o_waits (1 for o_same), and a row 'started' for each run that is claimed: the node has the rest of it.
--
-- If something else is ready then claim_runs_1 has to choose. That is left to the next one: its counts are those that ends change too, and adding
-- would have to wait for them.
--
-- Its locks are those of add_runs_1. Claims do not wait for any.
CREATE FUNCTION add_and_claim_2(
	p_call bigint,             -- less than 0, so that no claim_runs_1 has the same
	p_most int, p_lease double precision,
	p_after bigint, p_lapsed double precision, -- as claim_runs_1 has them
	p_left_runners text[], p_left_hooks text[], -- whose runs the node may not claim now; none of those that are accepted is one
	-- The others are those of add_runs_1.
	p_node text, p_made timestamptz, p_off double precision, p_revision bigint, p_queue_limit bigint, p_chat_limit bigint,
	p_key_limit bigint, p_key_age double precision, p_odd boolean, p_places text[], p_counts int[], p_firsts text[], p_numbers int[],
	p_replays int[], p_keys int[], p_refuse boolean[], p_again text[], p_once boolean[], p_key_ids bytea[], p_key_bodies bytea[],
	p_key_any boolean[], p_key_runs text[], p_key_firsts text[], p_kind_runners text[], p_kind_hooks text[], p_order int[], p_ids text[],
	p_chats text[], p_at int[], p_states int[], p_kinds int[], p_hooks text[], p_runners text[], p_queue_times double precision[],
	p_fold_windows double precision[], p_fold_maxes int[], p_alikes bigint[], p_sizes int[], p_named boolean[], p_owners text[],
	p_requests text[], p_runs text[])
RETURNS TABLE (o_kind text, o_number int, o_id text, o_token text, o_attempt int, o_at timestamptz, o_seconds double precision, o_waits int,
	o_alive boolean, o_turn bigint, o_accepted timestamptz, o_chat text, o_hook text, o_runner text, o_run json, o_state bytea) LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
	t        timestamptz := clock_1();
	kinds    int[];
	headed   boolean[];         -- the chat has a head
	claims   boolean[];         -- the run is claimed
	tokens   text[];
	started  uuid[];
	crowded  boolean;
	heads    int := 0;          -- that are new
	room     int := p_most;
	n_keys   int := 0;          -- that are new
	accepted int := cardinality(p_ids);
	stored   int;
	i        int;
	added    record;
	ok       boolean := false;
BEGIN
	PERFORM pg_advisory_xact_lock(chat_lock_1(E'\\adding ' || p_node));
	IF NOT p_odd AND NOT 0 <= ANY(p_fold_windows)
		AND abs(extract(epoch FROM p_made - t)) <= least(p_off, 0.5)
	THEN
		PERFORM pg_advisory_xact_lock_shared(settings_lock_1());
		kinds := ARRAY(SELECT (SELECT k.id FROM kind k WHERE k.runner = u.runner AND k.hook = u.hook) FROM unnest(p_kind_runners, p_kind_hooks) AS u(runner, hook));
		IF array_position(kinds, NULL) > 0 THEN
			PERFORM kinds_1(p_kind_runners, p_kind_hooks);
			kinds := ARRAY(SELECT (SELECT k.id FROM kind k WHERE k.runner = u.runner AND k.hook = u.hook) FROM unnest(p_kind_runners, p_kind_hooks) AS u(runner, hook));
		END IF;
		IF p_revision = (SELECT s.revision FROM settings s)
			AND (NOT EXISTS (SELECT FROM queue q WHERE q.turn >= p_after)
				OR p_left_runners || p_left_hooks <> '{}' AND NOT ready_besides_2(p_left_runners, p_left_hooks))
			AND NOT EXISTS (SELECT FROM queue q WHERE q.due_at <= t)
			AND NOT EXISTS (SELECT FROM queue q WHERE q.node IS NOT NULL AND q.head AND q.lease_until > t - make_interval(secs => p_lapsed) AND q.lease_until <= t)
			AND NOT EXISTS (SELECT FROM key k WHERE k.id = ANY(p_key_ids))
			AND NOT (p_key_ids <> '{}' AND p_key_limit > 0
				AND (SELECT coalesce(sum(f.keys), 0) FROM counter f) + cardinality(p_key_ids) > p_key_limit + p_key_limit / 100)
		THEN
			IF p_key_ids <> '{}' THEN
				INSERT INTO key (id, body, at, run, first)
					SELECT u.id, u.body, t, u.run::uuid, u.first::json FROM unnest(p_key_ids, p_key_bodies, p_key_runs, p_key_firsts) AS u(id, body, run, first)
					ON CONFLICT (id) DO NOTHING;
				GET DIAGNOSTICS n_keys = ROW_COUNT;
			END IF;
			IF n_keys = cardinality(p_key_ids) THEN -- or add_runs_1 waits for keys, which come before chats
				PERFORM pg_advisory_xact_lock_shared(l.number) FROM (SELECT DISTINCT chat_lock_1(c) AS number FROM unnest(p_places) c ORDER BY 1) l;
			END IF;
			SELECT array_agg(h.waits IS NOT NULL), p_chat_limit > 0 AND bool_or(c.n > p_chat_limit - coalesce(h.waits::int, 0) - w.n)
					OR p_queue_limit > 0 AND (SELECT coalesce(sum(f.queued), 0) FROM counter f) + accepted > p_queue_limit
				INTO headed, crowded
				FROM unnest(p_places, p_counts) AS c(chat, n)
				LEFT JOIN LATERAL (SELECT q.node IS NULL AND q.question IS NULL AS waits FROM queue q WHERE q.chat = c.chat AND q.head) h ON true
				CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM queue q WHERE q.chat = c.chat AND NOT q.head AND q.node IS NULL LIMIT p_chat_limit) x) w;
			ok := NOT crowded AND n_keys = cardinality(p_key_ids);
			IF NOT ok AND n_keys > 0 THEN -- add_runs_1 writes and counts them
				DELETE FROM key k WHERE k.id = ANY(p_key_ids) AND k.run = ANY(p_key_runs::uuid[]);
			END IF;
		END IF;
	END IF;

	IF NOT ok THEN
		FOR added IN SELECT * FROM add_runs_1(
			p_node, p_made, p_off, p_revision, p_queue_limit, p_chat_limit, p_key_limit, p_key_age, p_odd, p_places, p_counts, p_firsts,
			p_numbers, p_replays, p_keys, p_refuse, p_again, p_once, p_key_ids, p_key_bodies, p_key_any, p_key_runs, p_key_firsts,
			p_kind_runners, p_kind_hooks, p_order, p_ids, p_chats, p_at, p_states, p_kinds, p_hooks, p_runners, p_queue_times, p_fold_windows,
			p_fold_maxes, p_alikes, p_sizes, p_named, p_owners, p_requests, p_runs)
		LOOP
			RETURN QUERY SELECT 'added', added.o_request, NULL::text, added.o_status, 0, added.o_now, NULL::double precision, added.o_same::int, added.o_ready, NULL::bigint,
				added.o_accepted, added.o_first, NULL::text, NULL::text, NULL::json, NULL::bytea;
		END LOOP;
		RETURN;
	END IF;

	-- A run that somebody at another node waits for needs a look at that node.
	claims := array_fill(false, ARRAY[accepted]);
	FOREACH i IN ARRAY p_order LOOP
		IF p_states[i] = 1 AND NOT headed[p_at[i]] THEN
			heads := heads + 1;
			IF room > 0 AND p_owners[i] IN ('', p_node) THEN
				claims[i] := true;
				room := room - 1;
			END IF;
		END IF;
	END LOOP;
	WITH new AS (
		INSERT INTO queue (id, seq, chat, head, turn, kind, hook, runner, accepted_at, expires_at, fold_max, alike, size, named, owner, request, run,
				node, token, call, leader, lease_until, started_at, starts)
			SELECT u.id::uuid, nextval('run_seq'), u.chat, NOT headed[u.place], CASE WHEN NOT headed[u.place] AND NOT u.claims THEN nextval('turn_seq') END,
				kinds[u.kind], u.hook, u.runner, t, CASE WHEN u.queue_time > 0 AND NOT u.claims THEN t + make_interval(secs => u.queue_time) END,
				u.fold_max, u.alike, u.size, u.named, nullif(u.owner, ''), nullif(u.request, ''), u.run::json,
				CASE WHEN u.claims THEN p_node END, CASE WHEN u.claims THEN p_node || '-' || p_call || '-' || nextval('token_seq') END, CASE WHEN u.claims THEN p_call END,
				CASE WHEN u.claims THEN u.id::uuid END, CASE WHEN u.claims THEN t + make_interval(secs => p_lease) END, CASE WHEN u.claims THEN t END, u.claims::int
			FROM unnest(p_ids, p_chats, p_at, p_states, p_kinds, p_hooks, p_runners, p_queue_times, p_fold_maxes, p_alikes, p_sizes, p_named,
				p_owners, p_requests, p_runs, claims) AS u(id, chat, place, state, kind, hook, runner, queue_time, fold_max, alike, size, named, owner, request, run, claims)
			WHERE u.state = 1 OR headed[u.place]
			ON CONFLICT (chat) WHERE head DO NOTHING RETURNING id, token)
	SELECT count(*), array_agg(n.id) FILTER (WHERE n.token IS NOT NULL), array_agg(n.token) FILTER (WHERE n.token IS NOT NULL) INTO stored, started, tokens FROM new n;
	IF stored < accepted THEN
		INSERT INTO queue (id, seq, chat, head, kind, hook, runner, accepted_at, expires_at, fold_max, alike, size, named, owner, request, run)
			SELECT u.id::uuid, nextval('run_seq'), u.chat, false,
				kinds[u.kind], u.hook, u.runner, t, CASE WHEN u.queue_time > 0 THEN t + make_interval(secs => u.queue_time) END,
				u.fold_max, u.alike, u.size, u.named, nullif(u.owner, ''), nullif(u.request, ''), u.run::json
			FROM unnest(p_ids, p_chats, p_kinds, p_hooks, p_runners, p_queue_times, p_fold_maxes, p_alikes, p_sizes, p_named,
				p_owners, p_requests, p_runs) AS u(id, chat, kind, hook, runner, queue_time, fold_max, alike, size, named, owner, request, run)
			WHERE NOT EXISTS (SELECT FROM queue q WHERE q.id = u.id::uuid);
	END IF;
	PERFORM bump_1(p_node, 1, accepted - coalesce(cardinality(started), 0), coalesce(cardinality(started), 0), 0, 0, n_keys, 0);
	RETURN QUERY SELECT 'added', 0, NULL::text, 'ok', 0, t, NULL::double precision, 0, heads > coalesce(cardinality(started), 0), NULL::bigint, t, NULL::text, NULL::text, NULL::text, NULL::json, NULL::bytea
		UNION ALL SELECT 'started', 1, u.id::text, u.token, 1, t, 0, 0, false, NULL::bigint, t, NULL::text, NULL::text, NULL::text, NULL::json, NULL::bytea
		FROM unnest(started, tokens) AS u(id, token);
END $$;

-- undo_added_2 is undo_claims_1 for calls of add_and_claim_2. The runs stay.
CREATE FUNCTION undo_added_2(p_node text, p_calls bigint[]) RETURNS int LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(chat_lock_1(E'\\adding ' || p_node)); -- the call may still be under way
	RETURN undo_claims_1(p_node, p_calls, '{}');
END $$;
