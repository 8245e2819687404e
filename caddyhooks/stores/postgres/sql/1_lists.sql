-- Sessions that runners go on with in chats, and what nodes counted.

CREATE TABLE session (
	runner   text COLLATE "C" NOT NULL,
	chat     text COLLATE "C" NOT NULL,
	id       text NOT NULL,
	named_at timestamptz NOT NULL, -- last
	age_at   timestamptz NOT NULL, -- when it was named first, or when pruning last found it named again: no index has to follow named_at
	PRIMARY KEY (runner, chat)
) WITH (fillfactor = 80);
CREATE INDEX session_age ON session (age_at);

-- set_sessions_1 keeps the sessions that ends name. The last one of a runner and chat is in force. It is called within end_runs.
CREATE FUNCTION set_sessions_1(p_runners text[], p_chats text[], p_ids text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	t timestamptz := clock_1();
BEGIN
	INSERT INTO session AS s (runner, chat, id, named_at, age_at)
	SELECT DISTINCT ON (n.runner COLLATE "C", n.chat COLLATE "C") n.runner, n.chat, n.id, t, t
	FROM unnest(p_runners, p_chats, p_ids) WITH ORDINALITY AS n (runner, chat, id, place)
	WHERE n.id <> ''
	ORDER BY n.runner COLLATE "C", n.chat COLLATE "C", n.place DESC
	ON CONFLICT (runner, chat) DO UPDATE SET id = EXCLUDED.id, named_at = EXCLUDED.named_at;
END $$;

CREATE FUNCTION get_session_1(p_runner text, p_chat text) RETURNS text LANGUAGE plpgsql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
	RETURN (SELECT s.id FROM session s WHERE s.runner = p_runner AND s.chat = p_chat);
END $$;

CREATE TABLE minute (
	at      timestamptz NOT NULL, -- when it began, by the clock of the node
	node    text NOT NULL,
	part    bigint NOT NULL,
	counted json NOT NULL,
	PRIMARY KEY (at, part, node)
);

-- save_minutes_1 keeps minutes of a node, also such as are under way: one that is saved again is replaced. It forgets those that began before a time,
-- a bounded number of them.
CREATE FUNCTION save_minutes_1(p_node text, p_at timestamptz[], p_parts bigint[], p_counted text[], p_before timestamptz)
	RETURNS void LANGUAGE plpgsql
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
	PERFORM durable_1();
	INSERT INTO minute (at, node, part, counted)
	SELECT m.at, p_node, m.part, m.counted::json FROM unnest(p_at, p_parts, p_counted) AS m (at, part, counted)
	ON CONFLICT (at, part, node) DO UPDATE SET counted = EXCLUDED.counted WHERE minute.counted::text <> EXCLUDED.counted::text;
	-- Of nodes that do this together one forgets a minute, and no one waits.
	DELETE FROM minute WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM minute WHERE at < p_before ORDER BY at LIMIT 1000 FOR UPDATE SKIP LOCKED));
END $$;

CREATE FUNCTION load_minutes_1(p_since timestamptz) RETURNS TABLE (at timestamptz, part bigint, counted json) LANGUAGE sql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
	SELECT m.at, m.part, m.counted FROM minute m WHERE m.at >= p_since ORDER BY m.at, m.part, m.node
$$;

-- Runs that ended go from queue to done. The functions below are STABLE: all they look at is of one moment, so they see a run in one
-- of the two.

-- A run with what is asked for of it. It is called within other functions, with as many runs as a page has.
CREATE FUNCTION show_runs_1(p_ids uuid[], p_told boolean, p_replies boolean, p_deliveries boolean, p_bytes bigint)
	RETURNS TABLE (place bigint, id text, chat text, hook text, runner text, accepted_at timestamptz, status text, attempts int,
		started_at timestamptz, finished_at timestamptz, waiting_for text, again_as text, folded_into text, folded int,
		run json, ending json, told json, deliveries json)
	LANGUAGE plpgsql STABLE AS $$
DECLARE
	t timestamptz := clock_1();
BEGIN
	RETURN QUERY
	SELECT s.place, s.id::text, s.chat, s.hook, s.runner, s.accepted_at, s.status, s.attempts,
		s.started_at, s.finished_at, s.waiting_for, s.again_as::text, s.folded_into::text, s.folded,
		-- Texts of which nothing is wanted stay here if they are long. Nothing at all is given out after so many bytes.
		CASE WHEN s.before > p_bytes THEN NULL
			WHEN s.ended OR p_told OR pg_column_size(s.run) < 2000 THEN s.run
			ELSE (s.run::jsonb - '{message,metadata,schema}'::text[])::json END,
		CASE WHEN s.before > p_bytes THEN NULL
			WHEN p_replies OR pg_column_size(s.ending) < 2000 THEN s.ending
			ELSE (s.ending::jsonb - '{text,json,lastAnswer,validationErrors,steps}'::text[])::json END,
		CASE WHEN s.before <= p_bytes THEN s.told END,
		CASE WHEN p_deliveries AND (s.ended OR s.asked > 0) AND s.before <= p_bytes THEN run_deliveries_1(s.id) END
	FROM (
		SELECT i.place, i.id, COALESCE(q.chat, d.chat) AS chat, COALESCE(q.hook, d.hook) AS hook, COALESCE(q.runner, d.runner) AS runner,
			COALESCE(q.accepted_at, d.accepted_at) AS accepted_at,
			CASE WHEN d.id IS NOT NULL THEN d.status WHEN q.node IS NOT NULL AND q.lease_until > t THEN 'running'
				WHEN q.question IS NOT NULL THEN 'waiting' ELSE 'queued' END AS status,
			COALESCE(q.starts, d.attempts) AS attempts,
			CASE WHEN d.id IS NOT NULL THEN d.started_at WHEN q.node IS NOT NULL AND q.lease_until > t THEN q.started_at END AS started_at,
			d.finished_at, CASE WHEN q.node IS NULL THEN q.waiting_for END AS waiting_for, d.again_as, d.folded_into, d.folded,
			COALESCE(q.run, d.run) AS run, COALESCE(d.ending, l.ending) AS ending, d.id IS NOT NULL AS ended, q.asked, w.told,
			COALESCE(sum(CASE WHEN p_told THEN COALESCE(q.size, w.bytes, 0) ELSE 0 END
				+ CASE WHEN p_replies THEN COALESCE(pg_column_size(COALESCE(d.ending, l.ending)), 0) ELSE 0 END)
				OVER (ORDER BY i.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
		FROM unnest(p_ids) WITH ORDINALITY AS i (id, place)
		LEFT JOIN queue q ON q.id = i.id
		LEFT JOIN done d ON d.id = i.id
		LEFT JOIN done l ON l.id = d.folded_into
		LEFT JOIN told w ON w.id = d.id AND p_told
		WHERE q.id IS NOT NULL OR d.id IS NOT NULL
	) s
	ORDER BY s.place;
END $$;

CREATE FUNCTION get_runs_1(p_ids text[])
	RETURNS TABLE (place bigint, id text, chat text, hook text, runner text, accepted_at timestamptz, status text, attempts int,
		started_at timestamptz, finished_at timestamptz, waiting_for text, again_as text, folded_into text, folded int,
		run json, ending json, told json, deliveries json, questions json)
	LANGUAGE plpgsql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
	SET plan_cache_mode = force_generic_plan AS $$
BEGIN
	RETURN QUERY SELECT s.*, run_questions_1(s.id::uuid) FROM show_runs_1(p_ids::uuid[], true, true, true, 9223372036854775807) s;
END $$;

CREATE FUNCTION is_unfinished_1(p_id text) RETURNS boolean LANGUAGE plpgsql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
	RETURN EXISTS (SELECT FROM queue q WHERE q.id = p_id::uuid);
END $$;


-- backlog_1 is how many runs are queued, are carried out and are put aside, and the time of the oldest that is queued. A claim whose lease is over still counts as
-- running until somebody else claims the run: few are of that kind, and those are counted as what they are.
CREATE FUNCTION backlog_1() RETURNS TABLE (queued bigint, running bigint, waiting bigint, oldest double precision) LANGUAGE plpgsql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	t     timestamptz := clock_1();
	over  bigint;
	first timestamptz;
BEGIN
	SELECT COALESCE(sum(1 + o.folded), 0) INTO over
	FROM (SELECT q.folded FROM queue q WHERE q.node IS NOT NULL AND q.head AND q.lease_until <= t ORDER BY q.lease_until LIMIT 10000) o;
	SELECT COALESCE(sum(c.queued), 0)::bigint + over, COALESCE(sum(c.running), 0)::bigint - over, COALESCE(sum(c.waiting), 0)::bigint
	INTO queued, running, waiting FROM counter c;
	SELECT o.accepted_at INTO first
	FROM (SELECT q.accepted_at, q.node, q.lease_until, q.question FROM queue q ORDER BY q.id LIMIT 1000) o
	WHERE (o.node IS NULL OR o.lease_until <= t) AND o.question IS NULL LIMIT 1;
	IF first IS NULL AND queued > 0 THEN -- many are put aside that are older: skip from hook to hook in the index of the others
		WITH RECURSIVE h AS (
			(SELECT q.hook FROM queue q WHERE q.question IS NULL ORDER BY q.hook, q.id LIMIT 1)
			UNION ALL
			(SELECT n.hook FROM h CROSS JOIN LATERAL (
				SELECT q.hook FROM queue q WHERE q.question IS NULL AND (q.hook, q.id) > (h.hook, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY q.hook, q.id LIMIT 1) n)
		)
		SELECT min(o.accepted_at) INTO first FROM h CROSS JOIN LATERAL (
			SELECT f.accepted_at FROM (
				SELECT q.accepted_at, q.node, q.lease_until FROM queue q WHERE q.question IS NULL AND (q.hook, q.id) >= (h.hook, '00000000-0000-0000-0000-000000000000')
					AND (q.hook, q.id) <= (h.hook, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY q.hook, q.id LIMIT 10000) f
			WHERE f.node IS NULL OR f.lease_until <= t LIMIT 1) o;
	END IF;
	oldest := extract(epoch FROM t - first)::double precision;
	RETURN NEXT;
END $$;

-- list_runs_1 is a page of runs. They are found in the order of their ids, in indexes that lead to all that are asked for and to few
-- others. No more than p_looks entries of an index are looked at. If the list goes on, the last row has only an id: the list goes on
-- with that (place 0), or after it (place -1). looked is how many entries were looked at. A run without its data is too much for the page.
CREATE FUNCTION list_runs_1(p_first text, p_last text, p_descending boolean, p_chat text, p_hooks text[], p_statuses text[],
	p_runners text[], p_request text, p_most int, p_looks int, p_told boolean, p_replies boolean, p_deliveries boolean, p_bytes bigint)
	RETURNS TABLE (place bigint, id text, chat text, hook text, runner text, accepted_at timestamptz, status text, attempts int,
		started_at timestamptz, finished_at timestamptz, waiting_for text, again_as text, folded_into text, folded int,
		run json, ending json, told json, deliveries json, looked bigint)
	LANGUAGE plpgsql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
	SET enable_sort = off SET jit = off AS $$
DECLARE
	t       timestamptz := clock_1();
	ended   text[] := ARRAY(SELECT DISTINCT s FROM unnest(p_statuses) s WHERE s NOT IN ('queued', 'running', 'waiting'));
	hooks   text[] := ARRAY(SELECT DISTINCT h FROM unnest(p_hooks) h); -- an entry of an index must not be found twice
	sources text[] := '{}';
	few     uuid[];  -- all unfinished runs that can be in the list, if they are few
	walk    text := '(SELECT w.id, w.n, w.fits FROM (SELECT e.id, row_number() OVER () AS n, (%s) AS fits FROM (%s LIMIT $7) e) w WHERE w.fits OR w.n = $7 LIMIT $6 + 1)';
	way     text := CASE WHEN p_descending THEN 'DESC' ELSE 'ASC' END;
	fits    text := 'true';
	by_hook boolean := false; -- unfinished runs are found by their hook
	-- Runs that are put aside are found in indexes of their own.
	apart   boolean := p_chat IS NULL AND p_request IS NULL AND (p_hooks IS NOT NULL OR p_statuses IS NOT NULL AND NOT p_statuses && '{queued}');
	source  text;
	entry   record;
	ids     uuid[] := '{}';
	stop_at uuid;
	after   boolean := false;
	looks   bigint := 0;
BEGIN
	-- $1 first, $2 last, $3 chat, $4 hooks, $5 ended statuses, $6 most, $7 looks, $8 few, $9 clock, $10 statuses, $11 runners, $12 request
	IF p_hooks IS NOT NULL THEN
		fits := fits || ' AND e.hook = ANY ($4)';
	END IF;
	IF p_runners IS NOT NULL THEN
		fits := fits || ' AND e.runner = ANY ($11)';
	END IF;
	IF p_chat IS NOT NULL THEN
		fits := fits || ' AND e.chat = $3';
	END IF;

	IF p_statuses IS NULL OR p_statuses && '{queued,running}' OR NOT apart AND p_statuses && '{waiting}' THEN
		IF p_chat IS NOT NULL AND p_request IS NULL THEN
			few := ARRAY((SELECT q.id FROM queue q WHERE q.chat = p_chat AND q.head)
				UNION ALL (SELECT q.id FROM queue q WHERE q.chat = p_chat AND NOT q.head ORDER BY q.chat, q.seq LIMIT 1000));
		ELSIF p_request IS NULL AND p_statuses IS NOT NULL AND NOT p_statuses && '{queued}' THEN
			WITH head AS MATERIALIZED (
				SELECT q.id, q.chat, q.folded FROM queue q WHERE q.node IS NOT NULL AND q.head AND q.lease_until > t ORDER BY q.lease_until LIMIT 1001
			)
			SELECT COALESCE(array_agg(DISTINCT h.id), '{}') || COALESCE(array_agg(f.id) FILTER (WHERE f.id IS NOT NULL), '{}') INTO few FROM head h LEFT JOIN LATERAL (
				SELECT q.id FROM queue q WHERE q.chat = h.chat AND NOT q.head ORDER BY q.chat, q.seq LIMIT h.folded) f ON true;
		END IF;
		IF p_request IS NOT NULL THEN
			source := format('SELECT q.id, q.hook, q.runner, q.chat, q.node, q.lease_until, q.question FROM queue q WHERE q.request IS NOT NULL AND (q.request, q.id) >= ($12, $1)
				AND (q.request, q.id) <= ($12, $2) ORDER BY q.request %1$s, q.id %1$s', way);
		ELSIF cardinality(few) <= 1000 THEN
			few := ARRAY(SELECT f FROM unnest(few) f WHERE f >= p_first::uuid AND f <= p_last::uuid ORDER BY f);
			IF p_descending THEN
				few := ARRAY(SELECT few[i] FROM generate_series(cardinality(few), 1, -1) i);
			END IF;
			source := 'SELECT q.id, q.hook, q.runner, q.chat, q.node, q.lease_until, q.question FROM unnest($8) WITH ORDINALITY AS f (id, place) JOIN queue q ON q.id = f.id ORDER BY f.place';
		ELSIF p_hooks IS NOT NULL THEN
			by_hook := true;
			source := format('SELECT q.id, q.hook, q.runner, q.chat, q.node, q.lease_until, q.question FROM queue q WHERE q.question IS NULL AND (q.hook, q.id) >= (k.hook, $1)
				AND (q.hook, q.id) <= (k.hook, $2) ORDER BY q.hook %1$s, q.id %1$s', way);
		ELSE
			source := 'SELECT q.id, q.hook, q.runner, q.chat, q.node, q.lease_until, q.question FROM queue q WHERE q.id >= $1 AND q.id <= $2 ORDER BY q.id ' || way;
		END IF;
		source := format(walk, fits || CASE WHEN apart THEN ' AND e.question IS NULL' ELSE '' END
			|| CASE WHEN p_statuses IS NULL OR p_statuses @> CASE WHEN apart THEN '{queued,running}' ELSE '{queued,running,waiting}' END::text[] THEN ''
				ELSE ' AND CASE WHEN e.node IS NOT NULL AND e.lease_until > $9 THEN ''running'' WHEN e.question IS NOT NULL THEN ''waiting'' ELSE ''queued'' END = ANY ($10)' END, source);
		IF by_hook THEN
			source := '(SELECT l.id, l.n, l.fits FROM unnest($4) AS k (hook) CROSS JOIN LATERAL ' || source || ' l)';
		END IF;
		sources := sources || source;
	END IF;
	IF apart AND (p_statuses IS NULL OR p_statuses && '{waiting}') THEN
		IF p_hooks IS NOT NULL THEN
			sources := sources || ('(SELECT l.id, l.n, l.fits FROM unnest($4) AS k (hook) CROSS JOIN LATERAL ' || format(walk, fits, format(
				'SELECT q.id, q.hook, q.runner, q.chat FROM queue q WHERE q.question IS NOT NULL AND (q.hook, q.id) >= (k.hook, $1)
				AND (q.hook, q.id) <= (k.hook, $2) ORDER BY q.hook %1$s, q.id %1$s', way)) || ' l)');
		ELSE
			sources := sources || format(walk, fits,
				'SELECT q.id, q.hook, q.runner, q.chat FROM queue q WHERE q.question IS NOT NULL AND q.id >= $1 AND q.id <= $2 ORDER BY q.id ' || way);
		END IF;
	END IF;

	-- Comparisons of rows leave no other index than the one that is meant, whatever is known about the table.
	IF p_statuses IS NULL OR ended <> '{}' THEN
		IF p_statuses IS NOT NULL THEN
			fits := fits || ' AND e.status = ANY ($5)';
		END IF;
		IF p_request IS NOT NULL THEN
			sources := sources || format(walk, fits, format('SELECT d.id, d.hook, d.runner, d.chat, d.status FROM done d WHERE d.request IS NOT NULL
				AND (d.request, d.id) >= ($12, $1) AND (d.request, d.id) <= ($12, $2) ORDER BY d.request %1$s, d.id %1$s', way));
		ELSIF p_chat IS NOT NULL THEN
			FOREACH source IN ARRAY ARRAY['d.named', 'NOT d.named'] LOOP
				sources := sources || format(walk, fits, format('SELECT d.id, d.hook, d.runner, d.chat, d.status FROM done d WHERE %s AND (d.chat, d.id) >= ($3, $1)
					AND (d.chat, d.id) <= ($3, $2) ORDER BY d.chat %2$s, d.id %2$s', source, way));
			END LOOP;
		ELSIF p_statuses IS NOT NULL AND NOT ended @> '{completed}' THEN
			sources := sources || ('(SELECT l.id, l.n, l.fits FROM unnest($5) AS k (status) CROSS JOIN LATERAL ' || format(walk, fits, format(
				'SELECT d.id, d.hook, d.runner, d.chat, d.status FROM done d WHERE d.status <> ''completed'' AND (d.status, d.id) >= (k.status, $1)
				AND (d.status, d.id) <= (k.status, $2) ORDER BY d.status %1$s, d.id %1$s', way)) || ' l)');
		ELSIF p_hooks IS NOT NULL THEN
			sources := sources || ('(SELECT l.id, l.n, l.fits FROM unnest($4) AS k (hook) CROSS JOIN LATERAL ' || format(walk, fits, format(
				'SELECT d.id, d.hook, d.runner, d.chat, d.status FROM done d WHERE (d.hook, d.id) >= (k.hook, $1)
				AND (d.hook, d.id) <= (k.hook, $2) ORDER BY d.hook %1$s, d.id %1$s', way)) || ' l)');
		ELSE
			sources := sources || format(walk, fits,
				'SELECT d.id, d.hook, d.runner, d.chat, d.status FROM done d WHERE d.id >= $1 AND d.id <= $2 ORDER BY d.id ' || way);
		END IF;
	END IF;

	FOR entry IN EXECUTE format('SELECT a.id, a.n, a.fits FROM (%s) a ORDER BY a.id %s LIMIT $6 + 1', array_to_string(sources, ' UNION ALL '), way)
		USING p_first::uuid, p_last::uuid, p_chat, hooks, ended, p_most, p_looks, few, t, p_statuses, p_runners, p_request
	LOOP
		looks := GREATEST(looks, entry.n);
		IF NOT entry.fits OR cardinality(ids) = p_most THEN
			stop_at := entry.id;
			after := NOT entry.fits;
			EXIT;
		END IF;
		ids := ids || entry.id;
		IF entry.n = p_looks THEN
			stop_at := entry.id;
			after := true;
			EXIT;
		END IF;
	END LOOP;
	RETURN QUERY SELECT s.*, looks FROM show_runs_1(ids, p_told, p_replies, p_deliveries, p_bytes) s;
	IF stop_at IS NOT NULL THEN
		place := CASE WHEN after THEN -1 ELSE 0 END;
		id := stop_at::text;
		looked := looks;
		RETURN NEXT;
	END IF;
END $$;

-- past_1 is the last turns of a chat, those that later turns are told about, with what they were told and their ends. Every turn is
-- followed by the runs that were folded into it, which have no end. It ends with the turn with which messages and answers have
-- more than p_bytes bytes, or when p_misses turns did not keep their message.
CREATE FUNCTION past_1(p_chat text, p_turns int, p_bytes bigint, p_misses int)
	RETURNS TABLE (place bigint, id text, chat text, hook text, runner text, accepted_at timestamptz, status text, attempts int,
		started_at timestamptz, finished_at timestamptz, waiting_for text, again_as text, folded_into text, folded int,
		run json, ending json, told json, deliveries json)
	LANGUAGE plpgsql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
	SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	turn  record;
	misses int := 0;
	turns int := 0;
	bytes bigint := p_bytes;
BEGIN
	FOR turn IN SELECT d.id, d.folded, octet_length(w.told ->> 'message') AS message, octet_length(d.ending ->> 'text') AS answer, w.id IS NOT NULL AS kept
		FROM (SELECT e.id, e.folded, e.ending FROM done e WHERE e.past AND e.chat = p_chat ORDER BY e.chat DESC, e.seq DESC LIMIT p_turns + p_misses + 1) d
		LEFT JOIN LATERAL (SELECT w.id, w.told FROM told w WHERE w.id = d.id) w ON true
	LOOP
		IF NOT turn.kept THEN
			misses := misses + 1;
			EXIT WHEN misses > p_misses;
			CONTINUE;
		END IF;
		EXIT WHEN turns = p_turns OR bytes < 0;
		turns := turns + 1;
		bytes := bytes - COALESCE(turn.message, 0) - COALESCE(turn.answer, 0);
		RETURN QUERY SELECT s.* FROM show_runs_1(ARRAY[turn.id], true, true, false, 9223372036854775807) s;
		IF turn.folded > 0 THEN
			RETURN QUERY SELECT s.place, s.id, s.chat, s.hook, s.runner, s.accepted_at, s.status, s.attempts, s.started_at, s.finished_at, s.waiting_for,
				s.again_as, s.folded_into, s.folded, s.run, NULL::json, s.told, NULL::json
			FROM show_runs_1(ARRAY(SELECT f.id FROM done f WHERE f.folded_into = turn.id ORDER BY f.folded_into, f.seq), true, false, false, 9223372036854775807) s;
		END IF;
	END LOOP;
END $$;
