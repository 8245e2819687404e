-- What a next release might add: columns, an index, and functions that fill and keep the column. It is for tests.
-- The queue comes first, as in functions. The other way round the migration gives way for long.
ALTER TABLE queue ADD COLUMN release int NOT NULL DEFAULT 1;
ALTER TABLE done ADD COLUMN release int NOT NULL DEFAULT 1;
CREATE INDEX queue_release ON queue (release) WHERE release > 1;

-- They are those of before but for some words.
CREATE PROCEDURE pg_temp.next_function(p_name text, VARIADIC p_words text[]) LANGUAGE plpgsql AS $$
DECLARE
	source text := replace(pg_get_functiondef(p_name::regproc), p_name, regexp_replace(p_name, '.$', '3'));
BEGIN
	FOR i IN 1 .. cardinality(p_words) BY 2 LOOP
		IF position(p_words[i] IN source) = 0 THEN
			RAISE EXCEPTION '% does not say "%" any more: change this test', p_name, p_words[i];
		END IF;
		source := replace(source, p_words[i], p_words[i + 1]);
	END LOOP;
	EXECUTE source;
END $$;
CALL pg_temp.next_function('add_runs_1',
	'INSERT INTO queue (id,', 'INSERT INTO queue (release, id,',
	'SELECT u.id::uuid, nextval', 'SELECT 2, u.id::uuid, nextval');
CALL pg_temp.next_function('end_runs_1',
	'RETURNING q.id, q.seq,', 'RETURNING q.release, q.id, q.seq,',
	'INSERT INTO done (id,', 'INSERT INTO done (release, id,',
	'SELECT g.id, g.seq,', 'SELECT g.release, g.id, g.seq,');
CALL pg_temp.next_function('add_and_claim_2',
	'INSERT INTO queue (id,', 'INSERT INTO queue (release, id,',
	'SELECT u.id::uuid, nextval', 'SELECT 2, u.id::uuid, nextval',
	'FROM add_runs_1(', 'FROM add_runs_3(');
CALL pg_temp.next_function('end_plain_2',
	'RETURNING q.id, q.seq,', 'RETURNING q.release, q.id, q.seq,',
	'INSERT INTO done (id,', 'INSERT INTO done (release, id,',
	'SELECT g.id, g.seq,', 'SELECT g.release, g.id, g.seq,');
