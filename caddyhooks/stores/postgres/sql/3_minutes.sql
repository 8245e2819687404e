-- save_minutes_3 is save_minutes_1 for minutes that are under way, too: one that is saved again is replaced.
CREATE FUNCTION save_minutes_3(p_node text, p_at timestamptz[], p_parts bigint[], p_counted text[], p_before timestamptz)
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
