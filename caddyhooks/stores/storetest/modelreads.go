package storetest

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var readActions = []action{
	{"list", func(w *world, chance *rand.Rand) any { return w.list(w.query(chance)) }},
	{"list while runs come and go", func(w *world, chance *rand.Rand) any {
		query := engine.Query{Limit: 1 + chance.IntN(3), OldestFirst: chance.IntN(2) == 0}
		page, next, err := w.s.Runs().List(w.t.Context(), query)
		if err != nil || next == "" {
			return []any{page, err}
		}
		added, ended := w.add(chance, w.newRun(chance)), w.end(chance, w.modelEnd(chance))
		_, pruneErr := w.s.Prune(w.t.Context(), engine.Limits{Retention: time.Hour})
		query.Cursor = next
		return []any{page, added, ended, pruneErr, w.list(query)}
	}},
	{"list chats", func(w *world, chance *rand.Rand) any {
		query := engine.ChatQuery{Limit: 1 + chance.IntN(3), Text: oneOf(chance, "", "", "d", "A"), Input: chance.IntN(2) == 0}
		if len(w.runs) > 0 && chance.IntN(3) == 0 {
			query.Since = oneOf(chance, w.runs...).AcceptedAt
		}
		return w.listChats(query)
	}},
	{"past", func(w *world, chance *rand.Rand) any {
		past, err := w.s.Runs().Past(w.t.Context(), oneOf(chance, modelChats...), 1+chance.IntN(4), oneOf(chance, 1, 60, 20_000))
		return []any{past, err}
	}},
	{"read settings", func(w *world, chance *rand.Rand) any {
		revision, err := w.s.Settings().Revision(w.t.Context())
		page, next, changesErr := w.s.Settings().Changes(w.t.Context(), 1+chance.IntN(3), "")
		if chance.IntN(2) == 0 {
			_ = w.saveSettings(chance) // the pages after this one are the same
		}
		rest, _, restErr := w.s.Settings().Changes(w.t.Context(), 2, next)
		return []any{revision, err, page, changesErr, rest, restErr}
	}},
	{"look at all", func(w *world, _ *rand.Rand) any { return w.lookAtAll() }},
}

// query makes a query of several filters.
func (w *world) query(chance *rand.Rand) engine.Query {
	query := engine.Query{Limit: 1 + chance.IntN(4), OldestFirst: chance.IntN(2) == 0,
		Input: chance.IntN(2) == 0, Replies: chance.IntN(2) == 0, Deliveries: chance.IntN(2) == 0}
	if chance.IntN(2) == 0 {
		query.Hooks = oneOf(chance, []string{"agent"}, []string{"github", "agent", "github"}, []string{"none"})
	}
	if chance.IntN(2) == 0 {
		query.Statuses = oneOf(chance, []engine.Status{engine.Queued}, []engine.Status{engine.Failed, engine.Cancelled},
			[]engine.Status{engine.Waiting}, []engine.Status{engine.Waiting, engine.Completed, engine.Running},
			[]engine.Status{engine.Completed, engine.Failed},
			[]engine.Status{engine.Running, engine.TimedOut})
	}
	if chance.IntN(3) == 0 {
		query.ChatID = oneOf(chance, "a", "b", "none")
	}
	if chance.IntN(4) == 0 {
		query.RequestID = oneOf(chance, "evt_1", "evt_2", "none")
	}
	if chance.IntN(4) == 0 {
		query.Runners = oneOf(chance, []string{""}, []string{"other", "third"}, []string{"none"})
	}
	if chance.IntN(4) == 0 {
		query.Text = oneOf(chance, "red", "Message GREEN", "answer")
	}
	if len(w.runs) > 0 {
		run := oneOf(chance, w.runs...)
		switch chance.IntN(8) {
		case 0:
			query.Since = run.AcceptedAt
		case 1:
			query.Until = run.AcceptedAt
		case 2:
			query.UpTo = run.ID
		case 3:
			query.Prefix = run.ID
		case 4:
			query.Cursor = run.ID
		case 5:
			query.Since, query.Until = run.AcceptedAt, run.AcceptedAt.Add(time.Hour)
		}
	}
	return query
}

func (w *world) list(query engine.Query) any {
	return allPages(w.t, query.Limit, func(cursor string) ([]*engine.Record, string, error) {
		query.Cursor = cmp.Or(cursor, query.Cursor)
		return w.s.Runs().List(w.t.Context(), query)
	})
}

func (w *world) listDeliveries(query engine.DeliveryQuery) []*engine.Delivery {
	return allPages(w.t, query.Limit, func(cursor string) ([]*engine.Delivery, string, error) {
		query.Cursor = cursor
		return w.s.Deliveries().List(w.t.Context(), query)
	})
}

func (w *world) listChats(query engine.ChatQuery) any {
	return allPages(w.t, query.Limit, func(cursor string) ([]*engine.ChatSummary, string, error) {
		query.Cursor = cursor
		return w.s.Runs().Chats(w.t.Context(), query)
	})
}

// lookAtAll reads all that can be read.
func (w *world) lookAtAll() any {
	ctx := w.t.Context()
	deliveries := w.listDeliveries(engine.DeliveryQuery{Limit: 5})
	runs := w.list(engine.Query{Limit: 7, Input: true, Replies: true, Deliveries: true})
	all := []any{runs, deliveries, w.listChats(engine.ChatQuery{Limit: 2})}
	add := func(values ...any) { all = append(all, values) }
	for _, listed := range deliveries {
		d, err := w.s.Deliveries().Get(ctx, listed.ID)
		if err == nil && d.Status == engine.Delivered {
			d.Body = "" // a store need not keep what has arrived
		}
		add(d, err)
	}
	seen := make(map[string]bool)
	for _, run := range w.runs {
		record, err := w.s.Runs().Get(ctx, run.ID)
		unfinished, _ := w.s.Runs().Unfinished(ctx, run.ID)
		add(record, err, unfinished)
		if seen[run.ChatID] {
			continue
		}
		seen[run.ChatID] = true
		past, err := w.s.Runs().Past(ctx, run.ChatID, 5, 500)
		add(past, err)
		for _, runner := range modelRunners {
			session, err := w.s.Sessions().Get(ctx, runner, run.ChatID)
			add(session, err)
		}
	}
	settings, revision, err := w.s.Settings().Load(ctx)
	changes, _, _ := w.s.Settings().Changes(ctx, 100, "")
	queued, _ := w.s.Runs().Queued(ctx)
	backlog, _ := w.s.Runs().Backlog(ctx)
	pending, dead, _ := w.s.Deliveries().Count(ctx)
	byChannel, _ := w.s.Deliveries().CountByChannel(ctx)
	add(settings, revision, err, changes, queued, backlog, pending, dead, byChannel, w.minutes(), w.listQuestions(3))
	return all
}

// minutes are those of all nodes. Of the same time they can be in any order.
func (w *world) minutes() any {
	minutes, err := w.s.Minutes().Load(w.t.Context(), aMinute.Add(time.Minute))
	isSorted := slices.IsSortedFunc(minutes, func(a, b engine.Minute) int { return a.At.Compare(b.At) })
	var all []string
	for _, m := range minutes {
		m.At = m.At.UTC()
		for name, hook := range m.Hooks {
			hook.Last = hook.Last.UTC()
			m.Hooks[name] = hook
		}
		encoded, _ := json.Marshal(m)
		all = append(all, string(encoded))
	}
	slices.Sort(all)
	return []any{isSorted, all, err}
}
