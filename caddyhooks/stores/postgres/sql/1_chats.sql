-- The list of chats. There is no table of chats, which every run would have to write to: a chat is found by its newest run. Of the unfinished
-- runs of a chat that is the last in their order, of those that have ended the one with the greatest id, and of these two the one with the
-- greater id.
--
-- Of done, runs of a chat are looked for in the order of the index that is meant, so that no other one can be used: EXISTS would not keep the order.

-- newest_runs_1 returns the newest runs of all chats that somebody named, in no order, NULL if there are more chats than p_most. It skips from
-- chat to chat in the indexes, so it takes as long with many runs as with few.
CREATE FUNCTION newest_runs_1(p_most int) RETURNS uuid[] LANGUAGE plpgsql STABLE AS $$
DECLARE
	chats  text[];
	queued text[];
BEGIN
	queued := ARRAY(SELECT q.chat FROM queue q WHERE q.head ORDER BY q.chat LIMIT p_most + 1);
	IF cardinality(queued) > p_most THEN
		RETURN NULL;
	END IF;
	chats := ARRAY(
		WITH RECURSIVE c AS (
			(SELECT d.chat FROM done d WHERE d.named ORDER BY d.chat, d.id LIMIT 1)
			UNION ALL
			(SELECT n.chat FROM c CROSS JOIN LATERAL (
				SELECT d.chat FROM done d WHERE d.named AND (d.chat, d.id) > (c.chat, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY d.chat, d.id LIMIT 1) n)
		)
		SELECT c.chat FROM c LIMIT p_most + 1);
	IF cardinality(chats) > p_most THEN
		RETURN NULL;
	END IF;
	RETURN ARRAY(
		SELECT d.id FROM unnest(chats) AS a (chat) CROSS JOIN LATERAL (
			SELECT x.id FROM done x WHERE x.named AND (x.chat, x.id) >= (a.chat, '00000000-0000-0000-0000-000000000000')
				AND (x.chat, x.id) <= (a.chat, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY x.chat DESC, x.id DESC LIMIT 1) d
		WHERE (SELECT n.id FROM done n WHERE n.named AND (n.chat, n.id) > (a.chat, d.id) AND (n.chat, n.id) <= (a.chat, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY n.chat, n.id LIMIT 1) IS NULL
			AND NOT EXISTS (SELECT FROM queue n WHERE n.head AND n.chat = a.chat AND n.id > d.id)
			AND NOT EXISTS (SELECT FROM (SELECT n.id FROM queue n WHERE NOT n.head AND n.chat = a.chat ORDER BY n.chat DESC, n.seq DESC LIMIT 1) l WHERE l.id > d.id)
		UNION ALL
		SELECT l.id FROM unnest(queued) AS a (chat) CROSS JOIN LATERAL (
			SELECT x.id, x.seq, x.named FROM (
				(SELECT q.id, q.seq, q.named FROM queue q WHERE NOT q.head AND q.chat = a.chat ORDER BY q.chat DESC, q.seq DESC LIMIT 1)
				UNION ALL (SELECT q.id, q.seq, q.named FROM queue q WHERE q.head AND q.chat = a.chat)
			) x LIMIT 1) l
		WHERE l.named AND NOT EXISTS (SELECT FROM queue n WHERE NOT n.head AND n.chat = a.chat AND n.seq > l.seq)
			AND (SELECT n.id FROM done n WHERE n.named AND (n.chat, n.id) > (a.chat, l.id) AND (n.chat, n.id) <= (a.chat, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY n.chat, n.id LIMIT 1) IS NULL);
END $$;

-- list_chats_1 is a page of chats: each one's newest run, the one with the greatest id first. If the list goes on, the last row has no chat,
-- as with list_runs_1. It goes over all runs of chats that somebody named, the newest first. If there are long stretches without a chat that
-- was not there before, and not more than p_chats chats, it looks at the chats instead.
CREATE FUNCTION list_chats_1(p_first text, p_last text, p_most int, p_looks int, p_chats int) RETURNS TABLE (place bigint, id text, chat text)
	LANGUAGE plpgsql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
	SET enable_sort = off SET jit = off AS $$
DECLARE
	entry record;
	ids   uuid[] := '{}';
	every uuid[];
	stop  uuid;
	after boolean := false;
BEGIN
	FOR entry IN SELECT a.id, a.n, a.fits FROM (
			(SELECT w.id, w.n, w.fits FROM (
				SELECT e.id, row_number() OVER () AS n,
					(SELECT n.id FROM done n WHERE n.named AND (n.chat, n.id) > (e.chat, e.id) AND (n.chat, n.id) <= (e.chat, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY n.chat, n.id LIMIT 1) IS NULL
					AND NOT EXISTS (SELECT FROM queue n WHERE n.head AND n.chat = e.chat AND n.id > e.id)
					AND NOT EXISTS (SELECT FROM (SELECT n.id FROM queue n WHERE NOT n.head AND n.chat = e.chat ORDER BY n.chat DESC, n.seq DESC LIMIT 1) l WHERE l.id > e.id) AS fits
				FROM (SELECT d.id, d.chat FROM done d WHERE d.named AND d.id >= p_first::uuid AND d.id <= p_last::uuid ORDER BY d.id DESC LIMIT p_looks) e
				ORDER BY e.id DESC) w
			WHERE w.fits OR w.n = p_looks ORDER BY w.id DESC LIMIT p_most + 1)
			UNION ALL
			(SELECT w.id, w.n, w.fits FROM (
				SELECT e.id, row_number() OVER () AS n, e.named
					AND NOT EXISTS (SELECT FROM queue n WHERE NOT n.head AND n.chat = e.chat AND n.seq > e.seq)
					AND (SELECT n.id FROM done n WHERE n.named AND (n.chat, n.id) > (e.chat, e.id) AND (n.chat, n.id) <= (e.chat, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY n.chat, n.id LIMIT 1) IS NULL AS fits
				FROM (SELECT q.id, q.chat, q.seq, q.named FROM queue q WHERE q.id >= p_first::uuid AND q.id <= p_last::uuid ORDER BY q.id DESC LIMIT p_looks) e
				ORDER BY e.id DESC) w
			WHERE w.fits OR w.n = p_looks ORDER BY w.id DESC LIMIT p_most + 1)
		) a ORDER BY a.id DESC LIMIT p_most + 1
	LOOP
		IF cardinality(ids) = p_most THEN
			stop := entry.id;
			EXIT;
		END IF;
		IF entry.fits THEN
			ids := ids || entry.id;
		END IF;
		IF entry.n = p_looks THEN
			stop := entry.id;
			after := true;
			EXIT;
		END IF;
	END LOOP;
	IF after AND cardinality(ids) < p_most AND p_chats > 0 THEN
		every := newest_runs_1(p_chats);
		IF every IS NOT NULL THEN
			ids := ARRAY(SELECT i FROM unnest(every) i WHERE i >= p_first::uuid AND i <= p_last::uuid ORDER BY i DESC LIMIT p_most + 1);
			stop := ids[p_most + 1];
			after := false;
			ids := ids[1:p_most];
		END IF;
	END IF;
	RETURN QUERY SELECT n.place, n.id::text, COALESCE(q.chat, d.chat)
	FROM unnest(ids) WITH ORDINALITY AS n (id, place) LEFT JOIN queue q ON q.id = n.id LEFT JOIN done d ON d.id = n.id
	ORDER BY n.place;
	IF stop IS NOT NULL THEN
		place := CASE WHEN after THEN -1 ELSE 0 END;
		id := stop::text;
		chat := NULL;
		RETURN NEXT;
	END IF;
END $$;

-- show_chats_1 returns the newest runs of chats, and how many runs each of these chats has, at most p_most (and some more) of them.
CREATE FUNCTION show_chats_1(p_ids text[], p_told boolean, p_bytes bigint, p_most int)
	RETURNS TABLE (place bigint, id text, chat text, hook text, runner text, accepted_at timestamptz, status text, attempts int,
		started_at timestamptz, finished_at timestamptz, waiting_for text, again_as text, folded_into text, folded int,
		run json, ending json, told json, deliveries json, runs bigint)
	LANGUAGE plpgsql STABLE
	SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
	RETURN QUERY SELECT s.*,
		(SELECT count(*) FROM (SELECT FROM done d WHERE d.named AND d.chat = s.chat ORDER BY d.chat, d.id LIMIT p_most) c)
		+ (SELECT count(*) FROM (SELECT FROM done d WHERE NOT d.named AND d.chat = s.chat ORDER BY d.chat, d.id LIMIT p_most) c)
		+ (SELECT count(*) FROM queue q WHERE q.head AND q.chat = s.chat)
		+ (SELECT count(*) FROM (SELECT FROM queue q WHERE NOT q.head AND q.chat = s.chat ORDER BY q.chat, q.seq LIMIT p_most) c)
	FROM show_runs_1(p_ids::uuid[], p_told, false, false, p_bytes) s;
END $$;
