package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Those that are here twice are done more often.
var runActions = []action{ // the first ones, which are basicActions, are part of every sequence
	{"add", func(w *world, chance *rand.Rand) any { return w.add(chance, w.newRun(chance)) }},
	{"add", func(w *world, chance *rand.Rand) any { return w.add(chance, w.newRun(chance)) }},
	{"add", func(w *world, chance *rand.Rand) any { return w.add(chance, w.newRun(chance)) }},
	{"add several", (*world).addSeveral},
	{"claim", func(w *world, chance *rand.Rand) any { return w.claim(w.batch(chance, 1+chance.IntN(3))) }},
	{"claim one", func(w *world, _ *rand.Rand) any { return w.claim(engine.Batch{Max: 1, Lease: modelLease}) }},
	{"complete", func(w *world, chance *rand.Rand) any { return w.end(chance, w.modelEnd(chance)) }},
	{"complete", func(w *world, chance *rand.Rand) any { return w.end(chance, w.modelEnd(chance)) }},
	{"end otherwise", func(w *world, chance *rand.Rand) any {
		status := oneOf(chance, engine.Failed, engine.TimedOut, engine.Cancelled, engine.Expired)
		end := endedAs(status, oneOf(chance, engine.RunnerFailed, engine.RunnerUnavailable, engine.ShuttingDown, engine.Interrupted))
		end.Unstarted, end.Session = chance.IntN(3) == 0, modelSession(chance)
		return w.end(chance, end)
	}},
	{"put back", (*world).putBack},
	{"put back", (*world).putBack},
	{"let time pass", (*world).pass},
	{"resume", (*world).resume},
	{"resume", (*world).resume},
	{"overdue", func(w *world, _ *rand.Rand) any {
		runs, wait, err := w.s.Runs().Overdue(w.t.Context(), 1000)
		slices.SortFunc(runs, func(a, b *engine.Run) int { return w.compare(a.ID, b.ID) })
		if len(runs) > 0 {
			wait = 0 // how long until there are more, or none since there are some
		}
		return []any{runs, wait, err}
	}},
	{"cancel", func(w *world, chance *rand.Rand) any {
		if len(w.runs) == 0 {
			return nil
		}
		return w.s.Runs().Cancel(w.t.Context(), oneOf(chance, w.runs...).ID, oneOf(chance, "one", "another"))
	}},
	{"watch an end", func(w *world, chance *rand.Rand) any {
		if len(w.runs) > 0 {
			id := oneOf(chance, w.runs...).ID
			ended, stop := w.s.Watch().Ended(id)
			if chance.IntN(4) == 0 {
				stop()
			}
			w.watched = append(w.watched, watchedRun{id, ended})
		}
		return nil
	}},
}

const basicActions = 8

// modelLease is longer than the clock goes on between two renewals.
const modelLease = 3 * time.Hour

var (
	modelChats   = []string{"a", "b", "ab", "d e"}
	modelHooks   = []string{"agent", "github", "grafana"}
	modelRunners = []string{"", "other", "third"}
)

func oneOf[T any](chance *rand.Rand, values ...T) T { return values[chance.IntN(len(values))] }

// newRun makes a run by chance.
func (w *world) newRun(chance *rand.Rand) *engine.Run {
	run := &engine.Run{TraceParent: "00-1"}
	if chance.IntN(3) == 0 {
		run = fullRun(w.t, "a")
		run.Message, run.Metadata = "for <the id> ", oneOf(chance, run.Metadata, nil)
	}
	run.ChatID, run.Hook = oneOf(chance, modelChats...), oneOf(chance, modelHooks...)
	run.Action = oneOf(chance, engine.Agent, engine.Agent, engine.Wake)
	run.Message += strings.Repeat("a message ", 1+chance.IntN(4)) + oneOf(chance, "Red", "green", "BLUE")
	run.MemoryPreset, run.Timeout = oneOf(chance, "disabled", "general_chat"), time.Duration(1+chance.IntN(3))*time.Minute
	run.Runner, run.History = oneOf(chance, modelRunners...), oneOf[time.Duration](chance, 0, time.Hour, 5*time.Hour)
	run.QueueTime = oneOf[time.Duration](chance, 0, 0, time.Hour, 2*time.Hour)
	run.RequestID = oneOf(chance, "", "evt_1", "evt_2")
	run.Sync, run.Owner, run.AgainOf, run.NewChat, run.Fold = false, "", "", false, engine.Fold{}
	run.Key, run.Replay, run.Together = nil, nil, nil
	if chance.IntN(5) == 0 {
		run.Message += strings.Repeat("long ", oneOf(chance, 2000, 2000, engine.MaxInput/4))
	} else if chance.IntN(15) == 0 {
		run.Metadata = []byte(`"` + strings.Repeat("x", engine.MaxInput) + `"`)
	}
	if chance.IntN(6) == 0 {
		run.ChatID, run.NewChat, run.IDPlaceholder = "of <the id>", true, "<the id>"
	}
	if w.is(chance, 0) {
		run.Fold = engine.Fold{Window: oneOf(chance, time.Minute, time.Hour), Max: 1 + chance.IntN(4), Alike: chance.Uint32N(2)}
	}
	if chance.IntN(4) == 0 {
		run.Sync, run.Owner = true, oneOf(chance, "another node", w.nodes[0].Node(), w.s.Node())
	}
	if w.is(chance, 1) {
		run.Key = &engine.Key{ID: [32]byte{0: byte(chance.IntN(2)), 31: byte(chance.IntN(2))}, Body: [32]byte{31: byte(chance.IntN(2))}}
		run.Key.AnyBody = chance.IntN(8) == 0
	}
	if w.is(chance, 2) {
		run.Replay = &engine.Key{ID: [32]byte{byte(chance.IntN(4)), 1}, AnyBody: true}
	}
	if len(w.runs) > 0 && w.is(chance, 3) {
		run.AgainOf = oneOf(chance, append([]string{"no id"}, w.ids()...)...)
	}
	return run
}

// is reports whether a run is of a kind, by chance.
func (w *world) is(chance *rand.Rand, kind int) bool {
	if w.often>>kind&1 != 0 {
		return chance.IntN(3) > 0
	}
	return chance.IntN(10) == 0
}

// ids are those of all runs, in their order.
func (w *world) ids() (ids []string) {
	for _, run := range w.runs {
		ids = append(ids, run.ID)
	}
	return ids
}

// addSeveral adds the runs of a list, which may be one.
func (w *world) addSeveral(chance *rand.Rand) any {
	runs := []*engine.Run{w.newRun(chance)}
	runs[0].Together = []engine.Sibling{{}}
	for range chance.IntN(3) {
		run := w.newRun(chance)
		run.Key, run.Replay, run.AgainOf = nil, nil, ""
		runs = append(runs, run)
	}
	return w.add(chance, runs...)
}

// add adds runs, and gives them names.
func (w *world) add(chance *rand.Rand, runs ...*engine.Run) any {
	terms := engine.Terms{Settings: w.saved, Once: chance.IntN(2) == 0}
	terms.Limits = engine.Limits{Queue: oneOf(chance, 0, 0, 6), Chat: oneOf(chance, 0, 0, 3),
		Keys: oneOf(chance, 0, 3), KeyAge: 2 * time.Hour} // the same every time: a store may forget a key that is too old once
	if slices.ContainsFunc(w.runs, func(run *engine.Run) bool { return run.Replay != nil }) || runs[0].Replay != nil {
		terms.Limits.Keys = 0 // of a run with two keys, a store may forget one or both
	}
	if chance.IntN(12) == 0 {
		terms.Settings++
	}
	if chance.IntN(12) == 0 {
		terms.Refuse = errors.New("refused")
	}
	if err := w.s.Runs().AddAll(w.t.Context(), runs, terms); err != nil {
		return []any{err, runs[0].ChatID, runs[0].IDPlaceholder} // of a run that is refused nothing is filled in
	}
	for _, run := range runs {
		if w.began.IsZero() {
			w.began = run.AcceptedAt
		}
		w.runs = append(w.runs, run)
		name := fmt.Sprintf("run %d", len(w.runs))
		w.names = append(w.names, run.ID, name, strings.ReplaceAll(run.ID, "-", ""), name) // ids of deliveries have no hyphens
	}
	return runs
}

// batch is one of so many runs, possibly with bounds.
func (w *world) batch(chance *rand.Rand, most int) engine.Batch {
	batch := engine.Batch{Max: most, Lease: modelLease}
	if chance.IntN(3) == 0 {
		batch.Bounds = []engine.Bound{{Hooks: []string{oneOf(chance, modelHooks...)}, AtMost: chance.IntN(2)},
			{Runners: oneOf(chance, modelRunners[:1], modelRunners[1:], modelRunners[2:]), AtMost: chance.IntN(2)}}
	}
	if chance.IntN(4) == 0 {
		batch.Without = []string{oneOf(chance, modelChats...)}
	}
	if !w.ordered && most > 0 { // which chat comes first is not said
		batch.Max = 1000
		batch.Bounds = slices.DeleteFunc(batch.Bounds, func(bound engine.Bound) bool { return bound.AtMost > 0 })
	}
	return batch
}

func (w *world) claim(batch engine.Batch) any {
	if !w.ordered {
		batch.Max = 1000
	}
	claims, wait, err := w.s.Runs().Claim(w.t.Context(), batch)
	isLate := func() bool { return w.model != nil && len(w.claims)+len(claims) < len(w.model.claims) }
	for began := time.Now(); isLate() && time.Since(began) < patience/5; time.Sleep(10 * time.Millisecond) {
		var more []*engine.Claim // whose leases were over
		more, wait, err = w.s.Runs().Claim(w.t.Context(), batch)
		claims = append(claims, more...)
	}
	return []any{w.claimed(claims), wait, err}
}

// claimed notes claims.
func (w *world) claimed(claims []*engine.Claim) []*engine.Claim {
	if !w.ordered {
		slices.SortFunc(claims, func(a, b *engine.Claim) int { return w.compare(a.Run.ID, b.Run.ID) })
	}
	w.claims = append(w.claims, claims...)
	return claims
}

// modelSession is one that a runner names, or none.
func modelSession(chance *rand.Rand) engine.Session {
	return engine.Session{Runner: oneOf(chance, modelRunners...), ID: oneOf(chance, "", "s", "t", "a longer name")}
}

// modelEnd is the end of a run, mostly one that gave an answer.
func (w *world) modelEnd(chance *rand.Rand) engine.End {
	end := ended()
	if chance.IntN(3) == 0 {
		end.Outcome = fullOutcome(w.t)
		end.Outcome.Status = oneOf(chance, engine.Completed, engine.Failed)
		end.Steps = twoSteps(w.t, &engine.Run{AcceptedAt: w.began})
	}
	end.Session, end.Deliveries = modelSession(chance), modelDeliveries(chance)
	return end
}

// end ends a claim, or one that was ended before.
func (w *world) end(chance *rand.Rand, end engine.End) any {
	var claim *engine.Claim
	next := w.batch(chance, chance.IntN(3))
	if end.Requeue && !w.ordered {
		next.Max = 0 // whether it is claimed again at once is not said
	}
	switch {
	case len(w.ends) > 0 && chance.IntN(8) == 0:
		claim, next.Max = oneOf(chance, w.ends...), 0 // one that is repeated may claim as any other, or nothing
	case len(w.claims) > 0 && chance.IntN(6) > 0:
		i := chance.IntN(len(w.claims))
		claim = w.claims[i]
		w.claims = slices.Delete(w.claims, i, i+1)
		w.ends = append(w.ends, claim)
	case len(w.runs) > 0: // one that is queued, or is not
		claim = &engine.Claim{Run: oneOf(chance, w.runs...)}
	default:
		return nil
	}
	if end.Question != nil && (len(claim.Folded) > 0 || claim.Run.Fold.IsSet()) {
		end.Question, end.Pause = nil, time.Minute
	}
	if end.Question != nil {
		end.Question = w.newQuestion(chance, claim.Run)
		w.asked = append(w.asked, claim.Run)
		end.Deliveries = w.questionDeliveries(chance, claim.Run, end.Question.Number)
	}
	for _, d := range end.Deliveries {
		run := oneOf(chance, append(claim.Folded[:len(claim.Folded):len(claim.Folded)], claim.Run)...)
		d.RunID, d.ID, d.ChatID, d.Hook = run.ID, engine.DeliveryID(run.ID, d.Index), run.ChatID, run.Hook
	}
	claims, err := w.s.Runs().End(w.t.Context(), claim, end, next)
	return []any{w.claimed(claims), err}
}

// endAll ends what is claimed.
func (w *world) endAll() any {
	var all []any
	for _, claim := range w.claims {
		_, err := w.s.Runs().End(w.t.Context(), claim, endedAs(engine.Failed, engine.RunnerFailed), engine.Batch{})
		all = append(all, err)
	}
	for _, d := range w.held {
		d.Status = engine.Delivered
		all = append(all, w.s.Deliveries().Settle(w.t.Context(), d, 0))
	}
	w.claims, w.held = nil, nil
	return all
}

// drain claims and ends all runs that can be.
func (w *world) drain() any {
	var all []any
	w.advance(24 * time.Hour)
	for range len(w.runs) {
		_ = w.claim(engine.Batch{Max: len(w.runs), Lease: modelLease})
		slices.SortFunc(w.claims, func(a, b *engine.Claim) int { return w.compare(a.Run.ID, b.Run.ID) }) // which chat comes first is not said
		all = append(all, slices.Clone(w.claims), w.endAll())
	}
	return all
}

// pass lets time pass. Claims are renewed before, but for one at most: which of several comes first whose leases are over at once is not told.
func (w *world) pass(chance *rand.Rand) any {
	lease, by := modelLease, time.Duration(1+chance.IntN(170))*time.Minute
	if chance.IntN(4) == 0 { // the lease that is not renewed is over
		lease, by = 2*modelLease, modelLease+time.Minute
	}
	claims, held := slices.Clone(w.claims), slices.Clone(w.held)
	if len(claims) > 0 && chance.IntN(3) == 0 {
		i := chance.IntN(len(claims))
		claims = slices.Delete(claims, i, i+1)
	}
	if len(held) > 0 && chance.IntN(3) == 0 {
		i := chance.IntN(len(held))
		held = slices.Delete(held, i, i+1)
	}
	lost, cancelled, err := w.s.Runs().Renew(w.t.Context(), claims, lease)
	lostDeliveries, deliveriesErr := w.s.Deliveries().Renew(w.t.Context(), held, lease)
	for _, node := range w.nodes { // which say that they are alive, or do not
		if chance.IntN(2) == 0 {
			_, _, _ = node.Runs().Renew(w.t.Context(), nil, lease)
		}
	}
	w.advance(by)
	w.claims = slices.DeleteFunc(w.claims, func(c *engine.Claim) bool { return slices.Contains(lost, c) })
	w.held = slices.DeleteFunc(w.held, func(d *engine.Delivery) bool { return slices.Contains(lostDeliveries, d) })
	return []any{by, len(lost), cancelled, err, len(lostDeliveries), deliveriesErr}
}

// putBack ends a claim so that its run goes back, possibly to wait.
func (w *world) putBack(chance *rand.Rand) any {
	return w.end(chance, engine.End{Requeue: true, Interrupted: chance.IntN(3) == 0, Held: chance.IntN(3) == 0, Session: modelSession(chance),
		WaitingFor: oneOf(chance, "", strings.Repeat("The agent is unreachable. ", 20), "It went down."), Pause: oneOf(chance, time.Minute, engine.LongestRunPause)})
}

// resume ends waits, and sometimes looks whether they stay so.
func (w *world) resume(chance *rand.Rand) any {
	waiting := w.waiting()
	if w.ordered && waiting > 1 { // which of several comes first is not said
		return nil
	}
	err := w.s.Runs().Resume(w.t.Context(), oneOf(chance, nil, modelRunners[1:2], modelRunners[:2])...)
	if waiting == 0 || w.reopen == nil || w.throttled {
		return err
	}
	return []any{err, w.openAgain(), w.list(engine.Query{Limit: 7}), w.claim(engine.Batch{Lease: modelLease})}
}

// waiting is how many runs wait for their runner. A store may say so for longer than the model.
func (w *world) waiting() (n int) {
	if w.model != nil {
		return w.model.waits
	}
	page, _, _ := w.s.Runs().List(w.t.Context(), engine.Query{Statuses: []engine.Status{engine.Queued}, Limit: 1000})
	for _, record := range page {
		if record.WaitingFor != "" {
			n++
		}
	}
	w.waits = n
	return n
}
