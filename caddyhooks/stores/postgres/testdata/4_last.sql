-- A release after that, which removes what only those before the next one need. It is for tests.
DO $$ BEGIN
	EXECUTE 'DROP FUNCTION ' || 'add_runs_1'::regproc::regprocedure;
	EXECUTE 'DROP FUNCTION ' || 'end_runs_1'::regproc::regprocedure;
	EXECUTE 'DROP FUNCTION ' || 'add_and_claim_2'::regproc::regprocedure;
	EXECUTE 'DROP FUNCTION ' || 'end_plain_2'::regproc::regprocedure;
END $$;
