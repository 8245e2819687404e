-- What was spent on accounts, by spans of time. Nodes add to rows of their own, as far as there are enough parts, so that they do not wait for
-- each other.
CREATE TABLE ledger (
	account    text COLLATE "C" NOT NULL,
	start_at   timestamptz NOT NULL,
	part       int NOT NULL,
	span       bigint NOT NULL,      -- in microseconds
	keep       bigint NOT NULL,      -- likewise
	until      timestamptz NOT NULL, -- it is forgotten from then on
	runs       bigint NOT NULL,
	has_tokens boolean NOT NULL,
	has_cost   boolean NOT NULL,
	input      bigint NOT NULL,
	output     bigint NOT NULL,
	cached     bigint NOT NULL,
	reasoning  bigint NOT NULL,
	cost       bigint NOT NULL,
	PRIMARY KEY (account, start_at, part)
);
CREATE INDEX ledger_until ON ledger (until);

-- Adds what ends have spent that were done, as end_runs_1 has them. The rows of a call are changed in their order, as in all calls.
CREATE FUNCTION spend_1(p_node text, p_spent json, p_states text[], p_at timestamptz) RETURNS void LANGUAGE sql
	SET search_path FROM CURRENT AS $$
	INSERT INTO ledger AS l (account, start_at, part, span, keep, until, runs, has_tokens, has_cost, input, output, cached, reasoning, cost)
	SELECT s.account, s.start_at, hashtext(p_node) & 7, s.span, s.keep, s.start_at + make_interval(secs => (s.span + s.keep) / 1e6),
		sum(s.runs), bool_or(s."hasTokens"), bool_or(s."hasCost"), sum(s.input), sum(s.output), sum(s.cached), sum(s.reasoning), sum(s.cost)
	FROM (SELECT e.*, to_timestamp(((extract(epoch FROM p_at) * 1000000)::bigint / e.span * e.span) / 1e6) AS start_at
		FROM json_to_recordset(p_spent) AS e("end" int, account text, span bigint, keep bigint, runs bigint, "hasTokens" boolean, "hasCost" boolean,
			input bigint, output bigint, cached bigint, reasoning bigint, cost bigint)
		WHERE p_states[e."end"] IN ('ended', 'requeued')) s
	GROUP BY s.account COLLATE "C", s.account, s.start_at, s.span, s.keep ORDER BY s.account COLLATE "C", s.start_at
	ON CONFLICT (account, start_at, part) DO UPDATE SET runs = l.runs + excluded.runs,
		has_tokens = l.has_tokens OR excluded.has_tokens, has_cost = l.has_cost OR excluded.has_cost, input = l.input + excluded.input,
		output = l.output + excluded.output, cached = l.cached + excluded.cached, reasoning = l.reasoning + excluded.reasoning, cost = l.cost + excluded.cost
$$;

-- What was spent on the accounts of a prefix in spans that were not over so many seconds ago. There is a row for the time in any case.
CREATE FUNCTION spent_1(p_prefix text, p_within double precision) RETURNS TABLE (o_now timestamptz, o_account text, o_start timestamptz, o_span bigint,
	o_keep bigint, o_runs bigint, o_tokens boolean, o_has_cost boolean, o_input bigint, o_output bigint, o_cached bigint, o_reasoning bigint, o_cost bigint)
	LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
	t timestamptz := clock_1();
	last text := p_prefix || chr(1114111);
BEGIN
	RETURN QUERY SELECT t, NULL::text, t, 0::bigint, 0::bigint, 0::bigint, false, false, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint;
	RETURN QUERY SELECT t, l.account, l.start_at, l.span, l.keep, sum(l.runs)::bigint, bool_or(l.has_tokens), bool_or(l.has_cost), sum(l.input)::bigint,
			sum(l.output)::bigint, sum(l.cached)::bigint, sum(l.reasoning)::bigint, sum(l.cost)::bigint
		FROM ledger l WHERE l.account >= p_prefix AND l.account < last
			AND l.start_at + make_interval(secs => l.span / 1e6) > t - make_interval(secs => p_within)
		GROUP BY l.account, l.start_at, l.span, l.keep ORDER BY l.account, l.start_at;
END $$;
