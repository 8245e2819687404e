package bulk

import "context"

// Plan is what an action would do.
type Plan struct {
	Would   int          // act on so many
	Skipped map[Skip]int // and on these not
}

// Plan counts what an action would do now, and changes nothing.
func (s *Actions) Plan(ctx context.Context, a *Action) (Plan, error) {
	planned := *a
	if a.Runs != nil {
		query := *a.Runs
		planned.Runs = &query
		if err := s.bound(ctx, &planned); err != nil || planned.Newest == "" {
			return Plan{}, err
		}
		query.Input = a.Do == Again
	}
	for cursor := ""; ; {
		next, err := s.planPage(ctx, &planned, cursor)
		if err != nil || next == "" {
			return Plan{planned.Done, planned.Skipped}, err
		}
		cursor = next
	}
}

func (s *Actions) planPage(ctx context.Context, a *Action, cursor string) (next string, err error) {
	if a.Do != Again {
		ids, _, next, err := s.nextPage(ctx, a, cursor)
		a.Done += len(ids)
		return next, err
	}
	query := *a.Runs
	query.Cursor = cursor
	page, next, err := s.engine.List(ctx, query)
	for _, record := range page {
		skip := SkipRepeated
		if record.AgainAs == "" {
			skip, _ = whyNotAgain(record.CheckAgain()) // which has no errors but those of the run
		}
		a.count(skip)
	}
	return next, err
}
