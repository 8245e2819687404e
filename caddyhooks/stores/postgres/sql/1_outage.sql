-- What a function has reported as done must survive a crash, whatever the server does by default. The setting is looked at when the
-- transaction commits: a SET clause of a function would be undone by then, and that of a session is lost behind a pgbouncer.
CREATE FUNCTION durable_1() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
END $$;

-- Commits something, so that it is known that commits work. Callers may wait at the node from now on.
CREATE FUNCTION probe_1(p_node text) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM durable_1();
	PERFORM alive_1(p_node, clock_1() + interval '1 minute');
	INSERT INTO counter (node, lane) VALUES (p_node, 4) ON CONFLICT (node, lane) DO UPDATE SET queued = counter.queued;
END $$;
