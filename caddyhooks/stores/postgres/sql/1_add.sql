-- Adds to the figures of a node in one of its lanes. It writes also if there is nothing to add, so that a synchronous standby has
-- all that was committed before once this is.
CREATE FUNCTION bump_1(p_node text, p_lane int, d_queued bigint, d_running bigint, d_pending bigint, d_dead bigint, d_keys bigint, d_told bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable_1();
	UPDATE counter SET queued = queued + d_queued, running = running + d_running, pending = pending + d_pending, dead = dead + d_dead,
		keys = keys + d_keys, told_bytes = told_bytes + d_told
		WHERE node = p_node AND lane = p_lane;
	IF NOT FOUND THEN
		INSERT INTO counter AS c (node, lane, queued, running, pending, dead, keys, told_bytes)
			VALUES (p_node, p_lane, d_queued, d_running, d_pending, d_dead, d_keys, d_told)
			ON CONFLICT (node, lane) DO UPDATE SET queued = c.queued + d_queued, running = c.running + d_running, pending = c.pending + d_pending,
				dead = c.dead + d_dead, keys = c.keys + d_keys, told_bytes = c.told_bytes + d_told;
	END IF;
END $$;

-- The same for the figures of questions, which few runs have.
CREATE FUNCTION bump_questions_1(p_node text, p_lane int, d_waiting bigint, d_asking bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO counter AS c (node, lane, waiting, asking) VALUES (p_node, p_lane, d_waiting, d_asking)
		ON CONFLICT (node, lane) DO UPDATE SET waiting = c.waiting + d_waiting, asking = c.asking + d_asking;
END $$;

-- Adds the figures of nodes that are gone to those of no node, which has a row for each lane too. A node that works on after all begins
-- anew.
CREATE FUNCTION merge_counters_1() RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	r record;
BEGIN
	FOR r IN
		WITH gone AS (
			DELETE FROM counter c WHERE c.node <> '' AND NOT EXISTS (SELECT FROM node n WHERE n.name = c.node) RETURNING c.*
		)
		SELECT g.lane, sum(g.queued) AS queued, sum(g.running) AS running, sum(g.pending) AS pending, sum(g.dead) AS dead, sum(g.keys) AS keys,
			sum(g.told_bytes) AS told_bytes, sum(g.waiting) AS waiting, sum(g.asking) AS asking
		FROM gone g GROUP BY g.lane ORDER BY g.lane
	LOOP
		PERFORM bump_1('', r.lane, r.queued::bigint, r.running::bigint, r.pending::bigint, r.dead::bigint, r.keys::bigint, r.told_bytes::bigint);
		PERFORM bump_questions_1('', r.lane, r.waiting::bigint, r.asking::bigint);
	END LOOP;
END $$;

-- The numbers of kinds. Those that are new are written down.
CREATE FUNCTION kinds_1(p_runners text[], p_hooks text[]) RETURNS TABLE (o_runner text, o_hook text, o_kind int) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
	INSERT INTO kind (runner, hook)
		SELECT u.runner, u.hook FROM unnest(p_runners, p_hooks) AS u(runner, hook)
		WHERE NOT EXISTS (SELECT FROM kind k WHERE k.runner = u.runner AND k.hook = u.hook)
		ORDER BY u.runner, u.hook
		ON CONFLICT DO NOTHING;
	RETURN QUERY SELECT k.runner, k.hook, k.id FROM unnest(p_runners, p_hooks) AS u(runner, hook) JOIN kind k ON k.runner = u.runner AND k.hook = u.hook;
END $$;

-- Accepts the runs of many requests, which all have the same terms. Each request is taken as a whole or not at all.
--
-- The first row of the answer is for no request. Its status is
--   ok                all requests are accepted but those that have a row of their own
--   settings_changed  p_revision is not in force: none is
--   clock             the time by which the node made the ids is off by more than p_off seconds: none is
-- and o_ready says that there may be something to claim. The rows of requests have the status duplicate, refused, not_found, again, queue_full
-- or chat_full.
--
-- Locks come in the order in which all functions take them: that of the settings, new kinds, keys, runs that have ended, chats, heads, the counter.
CREATE FUNCTION add_runs_1(
	p_node text, p_made timestamptz, p_off double precision,
	p_revision bigint, p_queue_limit bigint, p_chat_limit bigint, p_key_limit bigint, p_key_age double precision,
	p_odd boolean,              -- a request is to be refused, or is another run again
	-- The chats of all runs, each once, in their order.
	p_places text[],
	p_counts int[],             -- how many runs there are for the chat
	-- The requests.
	p_firsts text[],            -- the id of its first run
	p_numbers int[],            -- how many runs it has
	p_replays int[],            -- the number of its key in p_key_ids, 0 if it has none …
	p_keys int[],               -- … likewise
	p_refuse boolean[], p_again text[], p_once boolean[],
	-- Their keys, in the order of ids. If a key is there twice, the second is for a later request.
	p_key_ids bytea[], p_key_bodies bytea[], p_key_any boolean[], p_key_runs text[], p_key_firsts text[],
	-- The kinds of all runs, each once. A node does not remember their numbers: after a failover others may have them.
	p_kind_runners text[], p_kind_hooks text[],
	-- The runs, in the order of chats, and those of a chat in that of requests.
	p_order int[],              -- the numbers of all runs, in the order of requests
	p_ids text[], p_chats text[],
	p_at int[],                 -- the number of its chat in p_places
	p_states int[],             -- 1 for the first run of a chat, 2 for others
	p_kinds int[],              -- the number of its kind in p_kind_runners
	p_hooks text[], p_runners text[],
	p_queue_times double precision[],  -- 0 if it has none
	p_fold_windows double precision[], -- -1 if it is not folded
	p_fold_maxes int[], p_alikes bigint[], p_sizes int[], p_named boolean[], p_owners text[], p_requests text[], p_runs text[]
) RETURNS TABLE (o_request int, o_status text, o_now timestamptz, o_accepted timestamptz, o_ready boolean, o_first text, o_same boolean) LANGUAGE plpgsql
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$ -- or few requests at a time are planned anew
#variable_conflict use_column
DECLARE
	t        timestamptz := clock_1();
	at       timestamptz := t;   -- when the runs are accepted
	states   int[] := p_states; -- 0 for a run that is not accepted
	accepted int := cardinality(p_ids);
	n_new    int := 0;          -- keys
	n_keys   bigint := 0;       -- how many keys there are more
	queued   bigint;
	keys     bigint;
	headed   boolean[];         -- the chat has a head
	rooms    bigint[];          -- how many runs may be added to the chat
	crowded  boolean := false;  -- there is no room for all
	folds    text[] := '{}';
	kinds    int[];
	refused  uuid[] := '{}';
	done_as  uuid;
	stored   key;
	taken    int[];
	n        int;
	last     int := 0;
	place    int;
	r        record;
BEGIN
	IF abs(extract(epoch FROM p_made - t)) > p_off THEN
		RETURN QUERY SELECT 0, 'clock', t, t, false, NULL::text, false;
		RETURN;
	END IF;
	IF abs(extract(epoch FROM p_made - t)) > 0.5 THEN
		at := p_made; -- ids tell about when runs were accepted, and lists rely on it
	END IF;
	-- Whoever saves settings waits until all have ended who still go by the old ones.
	PERFORM pg_advisory_xact_lock_shared(settings_lock_1());
	IF p_revision <> (SELECT s.revision FROM settings s) THEN
		RETURN QUERY SELECT 0, 'settings_changed', t, t, false, NULL::text, false;
		RETURN;
	END IF;

	kinds := ARRAY(SELECT (SELECT k.id FROM kind k WHERE k.runner = u.runner AND k.hook = u.hook) FROM unnest(p_kind_runners, p_kind_hooks) AS u(runner, hook));
	IF array_position(kinds, NULL) > 0 THEN
		PERFORM kinds_1(p_kind_runners, p_kind_hooks);
		kinds := ARRAY(SELECT (SELECT k.id FROM kind k WHERE k.runner = u.runner AND k.hook = u.hook) FROM unnest(p_kind_runners, p_kind_hooks) AS u(runner, hook));
	END IF;

	-- Another node that has the same key at the same time is waited for, and then its key is there.
	IF cardinality(p_key_ids) > 0 THEN
		INSERT INTO key (id, body, at, run, first)
			SELECT u.id, u.body, t, u.run::uuid, u.first::json FROM unnest(p_key_ids, p_key_bodies, p_key_runs, p_key_firsts) AS u(id, body, run, first)
			ON CONFLICT (id) DO NOTHING;
		GET DIAGNOSTICS n_new = ROW_COUNT;
		IF n_new < cardinality(p_key_ids) THEN
			p_odd := true;
			IF p_key_age > 0 THEN -- the old ones can be taken over, by one alone
				PERFORM FROM key k WHERE k.id = ANY(p_key_ids) AND abs(extract(epoch FROM t - k.at)) > p_key_age ORDER BY k.id FOR UPDATE;
			END IF;
		END IF;
		n_keys := n_new;
	END IF;
	IF p_odd THEN
		PERFORM FROM done d WHERE d.id = ANY(ARRAY(SELECT a::uuid FROM unnest(p_again) a WHERE a IS NOT NULL)) ORDER BY d.id FOR NO KEY UPDATE;
	END IF;

	-- As long as this is held, nobody may find that a chat has no more runs.
	PERFORM pg_advisory_xact_lock_shared(l.number) FROM (SELECT DISTINCT chat_lock_1(c) AS number FROM unnest(p_places) c ORDER BY 1) l;

	IF p_queue_limit > 0 OR p_key_limit > 0 AND n_new > 0 THEN
		SELECT sum(c.queued), sum(c.keys) INTO queued, keys FROM counter c;
		crowded := p_queue_limit > 0 AND coalesce(queued, 0) + accepted > p_queue_limit;
	END IF;
	SELECT array_agg(h.waits IS NOT NULL), array_agg(p_chat_limit - coalesce(h.waits::int, 0) - w.n), -- in the order of p_places
			crowded OR p_chat_limit > 0 AND bool_or(c.n > p_chat_limit - coalesce(h.waits::int, 0) - w.n)
		INTO headed, rooms, crowded
		FROM unnest(p_places, p_counts) AS c(chat, n)
		LEFT JOIN LATERAL (SELECT q.node IS NULL AND q.question IS NULL AS waits FROM queue q WHERE q.chat = c.chat AND q.head) h ON true
		CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM queue q WHERE q.chat = c.chat AND NOT q.head AND q.node IS NULL LIMIT p_chat_limit) x) w;

	-- Most often that is all, and every request is accepted. Otherwise they are looked at one after the other.
	IF p_odd OR crowded THEN
		accepted := 0;
		states := array_fill(0, ARRAY[cardinality(p_ids)]);
		FOR i IN 1 .. cardinality(p_firsts) LOOP
			o_status := NULL; o_first := NULL; o_same := false; taken := '{}';
			FOREACH n IN ARRAY ARRAY[p_replays[i], p_keys[i]] LOOP
				CONTINUE WHEN n = 0;
				SELECT * INTO stored FROM key k WHERE k.id = p_key_ids[n];
				IF NOT FOUND THEN
					RAISE EXCEPTION 'a key was forgotten meanwhile' USING ERRCODE = '40001';
				ELSIF stored.run = p_firsts[i]::uuid THEN
					CONTINUE;
				ELSIF stored.run = ANY(refused) OR p_key_age > 0 AND abs(extract(epoch FROM t - stored.at)) > p_key_age THEN
					taken := taken || n;
				ELSE
					o_status := 'duplicate'; o_first := stored.first;
					o_same := n = p_replays[i] OR p_key_any[n] OR stored.body = p_key_bodies[n];
					EXIT;
				END IF;
			END LOOP;
			IF o_status IS NULL AND p_refuse[i] THEN
				o_status := 'refused';
			END IF;
			IF o_status IS NULL AND p_once[i] THEN
				SELECT d.again_as INTO done_as FROM done d WHERE d.id = p_again[i]::uuid;
				IF NOT FOUND THEN
					o_status := 'not_found';
				ELSIF done_as IS NOT NULL THEN
					o_status := 'again';
				END IF;
			END IF;
			IF o_status IS NULL AND p_queue_limit > 0 AND coalesce(queued, 0) + accepted + p_numbers[i] > p_queue_limit THEN
				o_status := 'queue_full';
			END IF;
			IF o_status IS NULL THEN
				FOR j IN last + 1 .. last + p_numbers[i] LOOP
					place := p_at[p_order[j]];
					rooms[place] := rooms[place] - 1;
					IF rooms[place] < 0 AND p_chat_limit > 0 THEN
						o_status := 'chat_full';
					END IF;
				END LOOP;
				IF o_status IS NOT NULL THEN
					FOR j IN last + 1 .. last + p_numbers[i] LOOP
						place := p_at[p_order[j]];
						rooms[place] := rooms[place] + 1;
					END LOOP;
				END IF;
			END IF;
			IF o_status IS NULL THEN
				FOR j IN last + 1 .. last + p_numbers[i] LOOP
					states[p_order[j]] := 2;
				END LOOP;
				FOREACH n IN ARRAY taken LOOP
					UPDATE key k SET body = p_key_bodies[n], at = t, run = p_key_runs[n]::uuid, first = p_key_firsts[n]::json WHERE k.id = p_key_ids[n];
				END LOOP;
				IF p_again[i] IS NOT NULL THEN
					UPDATE done d SET again_as = p_firsts[i]::uuid WHERE d.id = p_again[i]::uuid;
				END IF;
				accepted := accepted + p_numbers[i];
			ELSE
				o_request := i; o_now := t; o_accepted := at; o_ready := false;
				RETURN NEXT;
				refused := refused || p_firsts[i]::uuid;
			END IF;
			last := last + p_numbers[i];
		END LOOP;
		-- Their keys are free, and others may now be the first of their chats.
		IF cardinality(refused) > 0 AND n_new > 0 THEN
			DELETE FROM key k WHERE k.id = ANY(p_key_ids) AND k.run = ANY(refused);
			GET DIAGNOSTICS n = ROW_COUNT;
			n_keys := n_keys - n;
		END IF;
		place := 0;
		FOR j IN 1 .. cardinality(p_ids) LOOP
			IF states[j] > 0 AND p_at[j] <> place THEN
				place := p_at[j];
				states[j] := 1;
			END IF;
		END LOOP;
	END IF;

	-- The first run of a chat without a head is its head, unless another node was quicker. There is one pass over heads, in the order of chats, or nodes
	-- could wait for each other.
	IF accepted > 0 THEN
		INSERT INTO queue (id, seq, chat, head, turn, kind, hook, runner, accepted_at, expires_at, fold_window, fold_max, alike, size, named, owner, request, run)
			SELECT u.id::uuid, nextval('run_seq'), u.chat, NOT headed[u.place], CASE WHEN NOT headed[u.place] AND u.fold_window < 0 THEN nextval('turn_seq') END,
				kinds[u.kind], u.hook, u.runner, at, CASE WHEN u.queue_time > 0 THEN at + make_interval(secs => u.queue_time) END,
				CASE WHEN u.fold_window >= 0 THEN make_interval(secs => u.fold_window) END, u.fold_max, u.alike, u.size, u.named, nullif(u.owner, ''), nullif(u.request, ''), u.run::json
			FROM unnest(p_ids, p_chats, p_at, states, p_kinds, p_hooks, p_runners, p_queue_times, p_fold_windows, p_fold_maxes, p_alikes, p_sizes, p_named,
				p_owners, p_requests, p_runs) AS u(id, chat, place, state, kind, hook, runner, queue_time, fold_window, fold_max, alike, size, named, owner, request, run)
			WHERE u.state = 1 OR u.state = 2 AND headed[u.place]
			ON CONFLICT (chat) WHERE head DO NOTHING;
		GET DIAGNOSTICS n = ROW_COUNT;
		IF n < accepted THEN
			INSERT INTO queue (id, seq, chat, head, kind, hook, runner, accepted_at, expires_at, fold_window, fold_max, alike, size, named, owner, request, run)
				SELECT u.id::uuid, nextval('run_seq'), u.chat, false,
					kinds[u.kind], u.hook, u.runner, at, CASE WHEN u.queue_time > 0 THEN at + make_interval(secs => u.queue_time) END,
					CASE WHEN u.fold_window >= 0 THEN make_interval(secs => u.fold_window) END, u.fold_max, u.alike, u.size, u.named, nullif(u.owner, ''), nullif(u.request, ''), u.run::json
				FROM unnest(p_ids, p_chats, states, p_kinds, p_hooks, p_runners, p_queue_times, p_fold_windows, p_fold_maxes, p_alikes, p_sizes, p_named,
					p_owners, p_requests, p_runs) AS u(id, chat, state, kind, hook, runner, queue_time, fold_window, fold_max, alike, size, named, owner, request, run)
				WHERE u.state > 0 AND NOT EXISTS (SELECT FROM queue q WHERE q.id = u.id::uuid);
		END IF;
		IF 0 <= ANY(p_fold_windows) THEN
			folds := ARRAY(SELECT DISTINCT u.chat COLLATE "C" FROM unnest(p_chats, states, p_fold_windows) AS u(chat, state, fold_window)
				WHERE u.state > 0 AND u.fold_window >= 0 ORDER BY 1);
			PERFORM offer_1(folds);
		END IF;
	END IF;

	-- The oldest keys make room, some at a time.
	IF p_key_limit > 0 AND n_keys > 0 AND keys + n_keys > p_key_limit + p_key_limit / 100 THEN
		DELETE FROM key k WHERE k.id = ANY(ARRAY(SELECT o.id FROM key o ORDER BY o.at LIMIT least(keys + n_keys - p_key_limit, 20000) FOR UPDATE SKIP LOCKED));
		GET DIAGNOSTICS n = ROW_COUNT;
		n_keys := n_keys - n;
	END IF;
	PERFORM bump_1(p_node, 1, accepted, 0, 0, 0, n_keys, 0);
	o_request := 0; o_status := 'ok'; o_now := t; o_accepted := at; o_ready := accepted > 0 AND (cardinality(folds) > 0 OR false = ANY(headed)); o_first := NULL; o_same := false;
	RETURN NEXT;
END $$;
