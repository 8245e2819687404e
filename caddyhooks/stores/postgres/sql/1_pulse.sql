-- What nodes hear of each other, and the live settings.

-- Changes of the settings that were saved with a description: the last ones.
CREATE TABLE settings_change (
	revision    bigint PRIMARY KEY,
	at          timestamptz NOT NULL,
	description bytea NOT NULL
);

-- The number of the advisory lock of the settings. Whoever accepts runs under a revision holds it, shared, before reading the revision:
-- so a change that was answered for is in force for all runs that are acknowledged after it.
DO $do$ BEGIN
	EXECUTE format('CREATE FUNCTION settings_lock_1() RETURNS bigint LANGUAGE sql IMMUTABLE AS ''SELECT hashtextextended(''''settings'''', %s)''',
		(SELECT -oid::bigint FROM pg_namespace WHERE nspname = current_schema()));
END $do$;

-- save_settings_1 returns the new revision, or NULL if the settings were changed since p_from.
CREATE FUNCTION save_settings_1(p_settings bytea, p_description bytea, p_from bigint, p_kept int) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	saved bigint;
BEGIN
	PERFORM durable_1();
	PERFORM pg_advisory_xact_lock(settings_lock_1());
	UPDATE settings SET revision = revision + 1, body = p_settings WHERE one AND revision = p_from RETURNING revision INTO saved;
	IF saved IS NOT NULL AND p_description IS NOT NULL THEN
		INSERT INTO settings_change (revision, at, description) VALUES (saved, clock_1(), p_description);
		DELETE FROM settings_change WHERE revision <= (SELECT c.revision FROM settings_change c ORDER BY c.revision DESC OFFSET p_kept LIMIT 1);
	END IF;
	RETURN saved;
END $$;

-- Small records of what is neither a run nor a setting.
CREATE TABLE document (
	kind     text COLLATE "C" NOT NULL,
	name     text COLLATE "C" NOT NULL,
	revision bigint NOT NULL,
	value    bytea NOT NULL,
	PRIMARY KEY (kind, name)
);

-- save_documents_1 stores documents, or removes those without a value, and returns false if one was changed since its revision. They are
-- locked in the order of their names, so that two calls cannot wait for each other.
CREATE FUNCTION save_documents_1(p_kinds text[], p_names text[], p_revisions bigint[], p_values bytea[]) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	d record;
BEGIN
	PERFORM durable_1();
	BEGIN
		FOR d IN SELECT * FROM unnest(p_kinds, p_names, p_revisions, p_values) AS u (kind, name, revision, value)
			ORDER BY u.kind COLLATE "C", u.name COLLATE "C"
		LOOP
			IF d.revision = 0 AND d.value IS NULL THEN
				IF EXISTS (SELECT FROM document o WHERE o.kind = d.kind AND o.name = d.name) THEN
					RAISE EXCEPTION USING ERRCODE = 'P0D01';
				END IF;
				CONTINUE;
			ELSIF d.revision = 0 THEN
				INSERT INTO document (kind, name, revision, value) VALUES (d.kind, d.name, 1, d.value) ON CONFLICT DO NOTHING;
			ELSIF d.value IS NULL THEN
				DELETE FROM document o WHERE o.kind = d.kind AND o.name = d.name AND o.revision = d.revision;
			ELSE
				UPDATE document o SET revision = o.revision + 1, value = d.value
					WHERE o.kind = d.kind AND o.name = d.name AND o.revision = d.revision;
			END IF;
			IF NOT FOUND THEN
				RAISE EXCEPTION USING ERRCODE = 'P0D01';
			END IF;
		END LOOP;
	EXCEPTION WHEN SQLSTATE 'P0D01' THEN
		RETURN false;
	END;
	RETURN true;
END $$;

-- settings_changes_1 returns changes before a revision, the newest first. A page ends after so many bytes, too.
CREATE FUNCTION settings_changes_1(p_before bigint, p_limit int, p_bytes bigint)
RETURNS TABLE (o_revision bigint, o_at timestamptz, o_description bytea, o_last boolean)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	change record;
	oldest bigint := (SELECT revision FROM settings_change ORDER BY revision LIMIT 1);
	size bigint := 0;
BEGIN
	FOR change IN SELECT c.revision, c.at, c.description FROM settings_change c WHERE c.revision < p_before ORDER BY c.revision DESC LIMIT p_limit LOOP
		EXIT WHEN size >= p_bytes;
		o_revision := change.revision;
		o_at := change.at;
		o_description := change.description;
		o_last := change.revision = oldest;
		size := size + octet_length(change.description);
		RETURN NEXT;
	END LOOP;
END $$;

-- alive_1 says that callers who wait at a node are there to be answered until a time.
CREATE FUNCTION alive_1(p_node text, p_until timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO node (name, alive_until) VALUES (p_node, p_until) ON CONFLICT (name) DO UPDATE SET alive_until = p_until;
END $$;

-- is_there_1 reports whether a node that was seen at a time still counts: others tell it what they do. It is STABLE, as what it does with
-- intervals is, or it would not be made part of the statements that ask, and take longer than they do.
CREATE FUNCTION is_there_1(p_seen_at timestamptz, p_at timestamptz) RETURNS boolean LANGUAGE sql STABLE AS
	'SELECT p_seen_at > p_at - interval ''10 seconds''';

-- Which runs a node follows that others carry out. A number is used once: another one asks for all that was said in the present turn.
CREATE TABLE follow (
	run    uuid NOT NULL,
	node   text NOT NULL,
	number bigint NOT NULL,
	PRIMARY KEY (run, node)
);
CREATE INDEX follow_node ON follow (node);
CREATE SEQUENCE follow_seq;

-- What was said in a turn, on its way to a node. Nothing of it has to survive.
CREATE UNLOGGED TABLE frame (
	id   bigint GENERATED ALWAYS AS IDENTITY,
	node text NOT NULL, -- that reads it
	run  uuid NOT NULL,
	turn bigint NOT NULL,
	at   bigint NOT NULL,
	said bigint NOT NULL,
	text bytea NOT NULL,
	over boolean NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX frame_node ON frame (node, id);

-- pulse_1 tells a node all that changed. A full pulse also says that the node is there, and looks for work; others are quick, and are
-- asked after the word of another node.
CREATE FUNCTION pulse_1(
	p_node    text,
	p_host    text,    -- the machine that it is on
	p_version int,
	p_full    boolean,
	p_watched text[],  -- runs
	p_others  text,    -- o_others of the last pulse
	p_frames  int,     -- at most
	OUT o_at        timestamptz,
	OUT o_is_new    boolean, -- others took the node for gone
	OUT o_revision  bigint,  -- of the settings
	OUT o_claimable boolean,
	OUT o_due       boolean,
	OUT o_cancelled boolean,
	OUT o_ended     text[],  -- of those watched
	OUT o_others    text,    -- the other nodes, and the number of what they follow
	OUT o_follows   text[],  -- runs that they follow, if o_others has changed …
	OUT o_numbers   bigint[], -- … and a number of each
	OUT o_frames    int,
	OUT o_runs      text[],  -- of frames, like those below
	OUT o_turns     bigint[],
	OUT o_ats       bigint[],
	OUT o_saids     bigint[],
	OUT o_texts     bytea[],
	OUT o_overs     boolean[]
) LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
	o_at := clock_1();
	o_is_new := false;
	o_claimable := false;
	o_due := false;
	IF p_full THEN
		PERFORM durable_1(); -- ends that it tells of are on the synchronous standby then, too
		o_is_new := NOT EXISTS (SELECT FROM node WHERE name = p_node AND is_there_1(seen_at, o_at));
		-- Whether callers wait at the node is not said by a pulse: a node that renews nothing answers nobody.
		INSERT INTO node (name, host, version, alive_until, seen_at) VALUES (p_node, p_host, p_version, o_at, o_at)
		ON CONFLICT (name) DO UPDATE SET host = p_host, version = p_version, seen_at = o_at;
		o_claimable := EXISTS (SELECT FROM queue WHERE turn IS NOT NULL)
			OR EXISTS (SELECT FROM queue WHERE due_at <= o_at)
			OR EXISTS (SELECT FROM queue WHERE node IS NOT NULL AND head AND lease_until <= o_at);
		o_due := deliveries_due_1();
	END IF;
	o_revision := (SELECT revision FROM settings);
	o_cancelled := EXISTS (SELECT FROM queue WHERE node = p_node AND cancel_by IS NOT NULL);
	o_ended := ARRAY(SELECT w::text FROM unnest(p_watched::uuid[]) w WHERE NOT EXISTS (SELECT FROM queue WHERE id = w));
	o_others := coalesce((SELECT string_agg(name || ' ' || follows, ' ' ORDER BY name) FROM node WHERE name <> p_node AND is_there_1(seen_at, o_at)), '');
	IF o_others <> p_others THEN
		SELECT array_agg(f.run::text), array_agg(f.number) INTO o_follows, o_numbers FROM (
			SELECT f.run, f.number FROM node n JOIN follow f ON f.node = n.name
			WHERE n.name <> p_node AND is_there_1(n.seen_at, o_at) LIMIT 10000) f;
	END IF;
	o_frames := 0;
	IF p_frames > 0 THEN
		WITH taken AS (
			DELETE FROM frame WHERE node = p_node AND id = ANY (ARRAY(SELECT id FROM frame WHERE node = p_node ORDER BY id LIMIT p_frames))
			RETURNING *)
		SELECT count(*), array_agg(t.run::text ORDER BY t.id), array_agg(t.turn ORDER BY t.id), array_agg(t.at ORDER BY t.id),
			array_agg(t.said ORDER BY t.id), array_agg(t.text ORDER BY t.id), array_agg(t.over ORDER BY t.id)
		INTO o_frames, o_runs, o_turns, o_ats, o_saids, o_texts, o_overs FROM taken t;
	END IF;
END $$;

-- nodes_1 lists the nodes that have not left, those included that were not seen for a while.
CREATE FUNCTION nodes_1(p_limit int, OUT o_name text, OUT o_host text, OUT o_joined_at timestamptz, OUT o_seen timestamptz, OUT o_silent boolean, OUT o_running bigint)
RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
	RETURN QUERY
		WITH running AS MATERIALIZED (SELECT q.node, count(*) AS runs FROM queue q WHERE q.node IS NOT NULL AND q.head GROUP BY q.node)
		SELECT n.name, n.host, n.joined_at, n.seen_at, NOT is_there_1(n.seen_at, clock_1()), coalesce(r.runs, 0)
		FROM node n LEFT JOIN running r ON r.node = n.name WHERE n.seen_at > '-infinity' ORDER BY n.host, n.joined_at, n.name LIMIT p_limit;
END $$;

-- unfinished_1 returns which of some runs have not ended.
CREATE FUNCTION unfinished_1(p_runs text[]) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
	RETURN QUERY SELECT r::text FROM unnest(p_runs::uuid[]) r WHERE EXISTS (SELECT FROM queue WHERE id = r);
END $$;

-- leave_1 forgets a node that is closed. What it has claimed stays until its leases are over.
CREATE FUNCTION leave_1(p_node text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
	DELETE FROM node WHERE name = p_node;
	DELETE FROM follow WHERE node = p_node;
	DELETE FROM frame WHERE node = p_node;
END $$;

-- sweep_nodes_1 forgets nodes that nobody has heard of for long. One that comes back joins again.
CREATE FUNCTION sweep_nodes_1() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	t timestamptz := clock_1();
	gone text;
BEGIN
	FOR gone IN SELECT name FROM node WHERE seen_at < t - interval '5 minutes' AND alive_until < t FOR UPDATE SKIP LOCKED LOOP
		PERFORM leave_1(gone);
	END LOOP;
END $$;

-- follow_1 stores that a node follows some runs, or asks for them again, and others no more. With p_all it follows nothing else.
CREATE FUNCTION follow_1(p_node text, p_runs text[], p_gone text[], p_all boolean) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
	UPDATE node SET follows = nextval('follow_seq') WHERE name = p_node;
	IF NOT FOUND THEN
		RETURN; -- it has left, or was forgotten: then its next pulse tells, and it stores everything again
	END IF;
	DELETE FROM follow WHERE node = p_node AND (run = ANY (p_gone::uuid[]) OR p_all AND run <> ALL (p_runs::uuid[]));
	INSERT INTO follow (run, node, number) SELECT r, p_node, nextval('follow_seq') FROM unnest(p_runs::uuid[]) r
	ON CONFLICT (run, node) DO UPDATE SET number = excluded.number;
END $$;

-- send_frames_1 sends frames to the other nodes that follow their runs, and returns those nodes. A frame is sent to none of its nodes as
-- long as one of them has too much to read: p_indexes of such frames come back with no node.
CREATE FUNCTION send_frames_1(p_node text, p_runs text[], p_turns bigint[], p_ats bigint[], p_saids bigint[], p_texts bytea[], p_overs boolean[])
RETURNS TABLE (o_index int, o_node text)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	t timestamptz := clock_1();
	readers text[];
	busy text[];
BEGIN
	FOR i IN 1 .. cardinality(p_runs) LOOP
		o_index := i;
		readers := ARRAY(SELECT f.node FROM follow f JOIN node n ON n.name = f.node
			WHERE f.run = p_runs[i]::uuid AND f.node <> p_node AND is_there_1(n.seen_at, t));
		CONTINUE WHEN readers = '{}';
		busy := ARRAY(SELECT r FROM unnest(readers) r WHERE EXISTS (SELECT FROM frame WHERE node = r ORDER BY id OFFSET 1000 LIMIT 1));
		IF busy <> '{}' THEN
			o_node := NULL;
			RETURN NEXT;
			CONTINUE;
		END IF;
		FOREACH o_node IN ARRAY readers LOOP
			INSERT INTO frame (node, run, turn, at, said, text, over) VALUES
				(o_node, p_runs[i]::uuid, p_turns[i], p_ats[i], p_saids[i], p_texts[i], p_overs[i]);
			RETURN NEXT;
		END LOOP;
	END LOOP;
END $$;

-- news_1 returns runs that were accepted, started or ended since a time, up to p_most of each kind. Of those that the node p_node has
-- accepted itself it tells, too; of what it has started or ended it does not.
CREATE FUNCTION news_1(p_node text, p_since timestamptz, p_most int, OUT o_at timestamptz, OUT o_kinds text[], OUT o_runs text[])
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
	o_at := clock_1();
	IF p_since IS NULL THEN
		RETURN;
	END IF;
	SELECT array_agg(n.kind), array_agg(n.id::text) INTO o_kinds, o_runs FROM (
		-- Ids begin with the time, in milliseconds.
		(SELECT 'accepted' AS kind, q.id FROM queue q
		WHERE q.id >= (lpad(to_hex(floor(extract(epoch FROM p_since) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
		ORDER BY q.id DESC LIMIT p_most)
		UNION ALL
		(SELECT 'started', q.id FROM (SELECT id, node, started_at FROM queue WHERE node IS NOT NULL AND head ORDER BY lease_until DESC LIMIT 1000) q
		WHERE q.node <> p_node AND q.started_at >= p_since LIMIT p_most)
		UNION ALL
		(SELECT 'ended', d.id FROM done d WHERE d.finished_at >= p_since AND (d.token IS NULL OR NOT starts_with(d.token, p_node || '-'))
		ORDER BY d.finished_at DESC LIMIT p_most)) n;
END $$;
