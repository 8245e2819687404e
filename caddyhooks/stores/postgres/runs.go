package postgres

// runs implements engine.Runs.
type runs struct {
	*store
	adding   adding
	claiming claiming
}

func newRuns(s *store) *runs {
	r := &runs{store: s}
	r.adding.init(r)
	r.claiming.init(r)
	return r
}
