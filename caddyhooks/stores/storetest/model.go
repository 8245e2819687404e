package storetest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var (
	modelSeed      = flag.Uint64("model-seed", 0, "the seed of a sequence that differs from the model; 0: all from 1 on")
	modelSequences = flag.Int("model-sequences", 30, "how many sequences are compared with the model")
)

// Model is an empty store whose behaviour is right, and a way to let its clock go forward.
type Model func() (s engine.Store, advance func(time.Duration))

// RunAgainst does the same random operations with a store and with a model, and compares all that they answer. A sequence with a difference is
// shown with the operations alone that lead to it.
func RunAgainst(t *testing.T, model Model, open func(t *testing.T) engine.Store, options Options) {
	t.Helper()
	seeds := []uint64{*modelSeed}
	if *modelSeed == 0 {
		seeds = nil
		for i := range *modelSequences { // the same every time: what CI refuses can be repeated
			seeds = append(seeds, uint64(i+1))
		}
	}
	var shrinking atomic.Bool // one sequence is enough to look at
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // nothing here is secret
			operations := make([]operation, 30+random.IntN(70))
			for i := range operations {
				operations[i] = operation{&actions[random.IntN(len(actions))], random.Uint64()}
			}
			comparison := &comparison{t, model, open, options}
			difference := comparison.difference(operations)
			if difference == "" {
				return
			}
			if shrinking.CompareAndSwap(false, true) {
				operations, difference = shrink(operations, difference, comparison.difference)
			}
			t.Errorf("-model-seed %d: after %d operations\n%s", seed, len(operations), difference)
		})
	}
}

// shrink drops operations as long as there is a difference without them.
func shrink(all []operation, found string, difference func([]operation) string) ([]operation, string) {
	for size := len(all) / 2; size > 0; {
		dropped := false
		for from := 0; from+size <= len(all); {
			fewer := slices.Delete(slices.Clone(all), from, from+size)
			if without := difference(fewer); without != "" {
				all, found, dropped = fewer, without, true
			} else {
				from += size
			}
		}
		if !dropped || size > len(all) {
			size /= 2
		}
	}
	return all, found
}

// operation is an action, and what it depends on by chance.
type operation struct {
	*action
	seed uint64
}

// action is something that is done with a store. It returns what came of it.
type action struct {
	name string
	do   func(w *world, chance *rand.Rand) any
}

type comparison struct {
	t       *testing.T
	model   Model
	open    func(t *testing.T) engine.Store
	options Options
}

// difference says where the store and the model first differ, "" if they do not.
func (c *comparison) difference(operations []operation) string {
	expected, advance := c.model()
	defer expected.Close()
	tested := c.open(c.t)
	defer func() { _ = tested.Close() }()
	want := &world{t: c.t, s: expected, advance: advance, exact: c.options.IDsAscend}
	got := &world{t: c.t, s: tested, exact: c.options.IDsAscend}
	got.advance = func(d time.Duration) { c.options.Advance(c.t, tested, d) }
	var history strings.Builder
	step := func(name string, do func(w *world) any) bool {
		wanted, was := want.show(want.note(do)), got.show(got.note(do))
		fmt.Fprintf(&history, "%s: %.300s\n", name, wanted)
		if wanted == was {
			return true
		}
		at := 0
		for at < min(len(wanted), len(was)) && wanted[at] == was[at] {
			at++
		}
		from := max(0, at-100)
		fmt.Fprintf(&history, "got  …%.250s\nwant …%.250s\n", was[from:], wanted[from:])
		return false
	}
	for _, o := range operations {
		if !step(o.name, func(w *world) any { return o.do(w, rand.New(rand.NewPCG(o.seed, 1))) }) { //nolint:gosec // nothing here is secret
			return history.String()
		}
	}
	if !step("end what is claimed", (*world).endAll) || !step("look at all", (*world).lookAtAll) {
		return history.String()
	}
	if c.options.Reopen != nil {
		tested = c.options.Reopen(c.t, tested)
		got.s = tested
		if !step("look at all after opening it again", (*world).lookAtAll) || !step("claim the rest", (*world).drain) {
			return history.String()
		}
	}
	return ""
}

// world is a store, and what a caller of it knows. That of a store and that of a model are the same but for ids, tokens and the time.
type world struct {
	t       *testing.T
	s       engine.Store
	advance func(time.Duration)
	exact   bool            // the store hands out runs of different chats in the very order of the model
	began   time.Time       // when the first run was accepted
	runs    []*engine.Run   // in their order
	names   []string        // pairs of an id and a name, for a strings.Replacer
	ends    []*engine.Claim // that were ended or put back
	claims  []*engine.Claim
	held    []*engine.Delivery
	settled []*engine.Delivery
	saved   int64 // the revision of the settings
}

// note does something, and has the store notice which waits and windows are over. Otherwise it may notice later, and another chat comes first.
func (w *world) note(do func(w *world) any) any {
	_, _ = w.s.Runs().Backlog(w.t.Context())
	result := do(w)
	backlog, err := w.s.Runs().Backlog(w.t.Context())
	return []any{result, backlog, err}
}

// modelLease is longer than the clock goes on between two renewals.
const modelLease = 3 * time.Hour

// show writes a value down without what differs between two stores.
func (w *world) show(value any) string {
	var b strings.Builder
	w.write(&b, reflect.ValueOf(value))
	return strings.NewReplacer(w.names...).Replace(b.String())
}

func (w *world) write(b *strings.Builder, v reflect.Value) {
	if !v.IsValid() {
		b.WriteString("nil")
		return
	}
	switch value := v.Interface().(type) {
	case time.Time:
		if value.IsZero() {
			b.WriteString("never")
		} else { // nothing takes half a minute, and the clock is advanced by whole ones
			fmt.Fprintf(b, "minute %d", int(value.Sub(w.began).Round(time.Minute)/time.Minute))
		}
		return
	case time.Duration:
		fmt.Fprint(b, value.Round(time.Minute))
		return
	case *engine.DuplicateError:
		fmt.Fprintf(b, "duplicate of %s, %t, %v", value.First.ID, value.SameBody, value.First.Together)
		return
	case error:
		b.WriteString(value.Error())
		return
	case []byte:
		fmt.Fprintf(b, "%t %q", value == nil, value)
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		w.write(b, v.Elem())
	case reflect.Struct:
		b.WriteByte('{')
		for i := range v.NumField() {
			name, field := v.Type().Field(i).Name, v.Field(i)
			isEmpty := field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0
			if isEmpty || name == "Token" || name == "TriedAt" && !w.exact { // which some stores keep from the claim on
				continue
			}
			b.WriteString(name + ":")
			w.write(b, field)
			b.WriteByte(' ')
		}
		b.WriteByte('}')
	case reflect.Slice:
		b.WriteByte('[')
		for i := range v.Len() {
			w.write(b, v.Index(i))
			b.WriteByte(' ')
		}
		b.WriteByte(']')
	default:
		fmt.Fprintf(b, "%v", v.Interface())
	}
}

func oneOf[T any](chance *rand.Rand, values ...T) T { return values[chance.IntN(len(values))] }

// newRun makes a run by chance.
func (w *world) newRun(chance *rand.Rand) *engine.Run {
	run := &engine.Run{ChatID: oneOf(chance, "a", "b", "c", "d e"), Hook: oneOf(chance, "agent", "github", "grafana"), Action: engine.Agent,
		Message:      strings.Repeat("a message ", 1+chance.IntN(4)) + oneOf(chance, "Red", "green", "BLUE"),
		MemoryPreset: oneOf(chance, "disabled", "general_chat"), Timeout: time.Minute, TraceParent: "00-1",
		Runner: oneOf(chance, "", "other"), History: oneOf[time.Duration](chance, 0, time.Hour, 5*time.Hour),
		QueueTime: oneOf[time.Duration](chance, 0, 0, time.Hour)}
	if chance.IntN(5) == 0 {
		run.Message += strings.Repeat("long ", 2000)
	}
	if chance.IntN(4) == 0 {
		run.Fold = engine.Fold{Window: oneOf(chance, time.Minute, time.Hour), Max: 2 + chance.IntN(3), Alike: chance.Uint32N(2)}
	}
	if chance.IntN(4) == 0 {
		run.Sync, run.Owner = true, "another node"
	}
	if chance.IntN(3) == 0 {
		run.Key = &engine.Key{ID: [32]byte{byte(chance.IntN(4))}, Body: [32]byte{byte(chance.IntN(2))}}
	}
	if chance.IntN(6) == 0 {
		run.Replay = &engine.Key{ID: [32]byte{byte(chance.IntN(4)), 1}}
	}
	if len(w.runs) > 0 && chance.IntN(5) == 0 {
		run.AgainOf = oneOf(chance, w.runs...).ID
	}
	return run
}

// add adds runs, and gives them names.
func (w *world) add(chance *rand.Rand, runs ...*engine.Run) any {
	terms := engine.Terms{Settings: w.saved, Once: chance.IntN(2) == 0}
	terms.Limits = engine.Limits{Queue: oneOf(chance, 0, 0, 6), Chat: oneOf(chance, 0, 0, 3),
		Keys: oneOf(chance, 0, 3), KeyAge: oneOf[time.Duration](chance, 0, 2*time.Hour)}
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
		return err
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

// compare tells which of two runs was added first.
func (w *world) compare(a, b string) int {
	place := func(id string) int {
		return slices.IndexFunc(w.runs, func(run *engine.Run) bool { return run.ID == id })
	}
	return place(a) - place(b)
}

func (w *world) claim(batch engine.Batch) any {
	if !w.exact {
		batch.Max, batch.Bounds = 1000, nil
	}
	claims, wait, err := w.s.Runs().Claim(w.t.Context(), batch)
	if !w.exact {
		slices.SortFunc(claims, func(a, b *engine.Claim) int { return w.compare(a.Run.ID, b.Run.ID) })
	}
	w.claims = append(w.claims, claims...)
	return []any{claims, wait, err}
}

// end ends a claim, or one that was ended before.
func (w *world) end(chance *rand.Rand, end engine.End) any {
	var claim *engine.Claim
	switch {
	case len(w.ends) > 0 && chance.IntN(8) == 0:
		claim = oneOf(chance, w.ends...)
	case len(w.claims) > 0:
		i := chance.IntN(len(w.claims))
		claim = w.claims[i]
		w.claims = slices.Delete(w.claims, i, i+1)
		w.ends = append(w.ends, claim)
	case len(w.runs) > 0: // one that is queued, or is not
		claim = &engine.Claim{Run: oneOf(chance, w.runs...)}
	default:
		return nil
	}
	for i := range end.Deliveries {
		d := end.Deliveries[i]
		d.RunID, d.ID, d.ChatID, d.Hook = claim.Run.ID, engine.DeliveryID(claim.Run.ID, i), claim.Run.ChatID, claim.Run.Hook
	}
	batch := engine.Batch{Max: chance.IntN(2), Lease: modelLease}
	if !w.exact {
		batch.Max = 0
	}
	next, err := w.s.Runs().End(w.t.Context(), claim, end, batch)
	w.claims = append(w.claims, next...)
	return []any{next, err}
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
		slices.SortFunc(w.claims, func(a, b *engine.Claim) int { return w.compare(a.Run.ID, b.Run.ID) }) // which chat comes first is not told
		all = append(all, slices.Clone(w.claims), w.endAll())
	}
	return all
}

// pass lets time pass. Claims are renewed before, but for one at most: which of several comes first whose leases are over at once is not told.
func (w *world) pass(chance *rand.Rand) any {
	keep := func(n int) (lost int) {
		if lost = -1; n > 0 && chance.IntN(3) == 0 {
			lost = chance.IntN(n)
		}
		return lost
	}
	claims, held := slices.Clone(w.claims), slices.Clone(w.held)
	if i := keep(len(claims)); i >= 0 {
		claims = slices.Delete(claims, i, i+1)
	}
	if i := keep(len(held)); i >= 0 {
		held = slices.Delete(held, i, i+1)
	}
	lost, cancelled, err := w.s.Runs().Renew(w.t.Context(), claims, modelLease)
	lostDeliveries, deliveriesErr := w.s.Deliveries().Renew(w.t.Context(), held, modelLease)
	by := time.Duration(1+chance.IntN(170)) * time.Minute
	w.advance(by)
	w.claims = slices.DeleteFunc(w.claims, func(c *engine.Claim) bool { return slices.Contains(lost, c) })
	w.held = slices.DeleteFunc(w.held, func(d *engine.Delivery) bool { return slices.Contains(lostDeliveries, d) })
	return []any{by, len(lost), cancelled, err, len(lostDeliveries), deliveriesErr}
}

// waiting is how many runs wait for their runner.
func (w *world) waiting() (n int) {
	page, _, _ := w.s.Runs().List(w.t.Context(), engine.Query{Statuses: []engine.Status{engine.Queued}, Limit: 1000})
	for _, record := range page {
		if record.WaitingFor != "" {
			n++
		}
	}
	return n
}

// list lists all pages of a query.
func (w *world) list(query engine.Query) any {
	var all []*engine.Record
	for {
		page, next, err := w.s.Runs().List(w.t.Context(), query)
		if err != nil {
			return err
		}
		if all = append(all, page...); next == "" {
			return all
		}
		query.Cursor = next
	}
}

func (w *world) listDeliveries(query engine.DeliveryQuery) any {
	var all []*engine.Delivery
	for {
		page, next, err := w.s.Deliveries().List(w.t.Context(), query)
		if err != nil {
			return err
		}
		if all = append(all, page...); next == "" {
			return all
		}
		query.Cursor = next
	}
}

func (w *world) listChats(query engine.ChatQuery) any {
	var all []*engine.ChatSummary
	for {
		page, next, err := w.s.Runs().Chats(w.t.Context(), query)
		if err != nil {
			return err
		}
		if all = append(all, page...); next == "" {
			return all
		}
		query.Cursor = next
	}
}

// lookAtAll reads all that can be read.
func (w *world) lookAtAll() any {
	ctx := w.t.Context()
	all := []any{w.list(engine.Query{Limit: 7, Told: true, Replies: true, Deliveries: true}),
		w.listDeliveries(engine.DeliveryQuery{Limit: 5}), w.listChats(engine.ChatQuery{Limit: 2})}
	add := func(values ...any) { all = append(all, values) }
	for _, run := range w.runs {
		record, err := w.s.Runs().Get(ctx, run.ID)
		unfinished, _ := w.s.Runs().Unfinished(ctx, run.ID)
		add(record, err, unfinished)
	}
	for _, chat := range []string{"a", "b", "c", "d e"} {
		past, err := w.s.Runs().Past(ctx, chat, 5, 500)
		session, _ := w.s.Sessions().Get(ctx, "r", chat)
		add(past, err, session)
	}
	settings, revision, err := w.s.Settings().Load(ctx)
	changes, _, _ := w.s.Settings().Changes(ctx, 100, "")
	minutes, _ := w.s.Minutes().Load(ctx, aMinute)
	slices.SortStableFunc(minutes, func(a, b engine.Minute) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Part, b.Part)) })
	for i := range minutes {
		add(minutes[i].At.Equal(aMinute), minutes[i].Part, minutes[i].Accepted, minutes[i].Hooks["github"].Ended)
	}
	backlog, _ := w.s.Runs().Backlog(ctx)
	pending, dead, _ := w.s.Deliveries().Count(ctx)
	byChannel, _ := w.s.Deliveries().CountByChannel(ctx)
	add(settings, revision, err, changes, backlog, pending, dead, byChannel["log"], byChannel[""])
	return all
}

// actions are what is done by chance. Those that are here twice are done more often.
var actions = []action{
	{"add", func(w *world, chance *rand.Rand) any { return w.add(chance, w.newRun(chance)) }},
	{"add", func(w *world, chance *rand.Rand) any { return w.add(chance, w.newRun(chance)) }},
	{"add", func(w *world, chance *rand.Rand) any { return w.add(chance, w.newRun(chance)) }},
	{"add several", func(w *world, chance *rand.Rand) any {
		first, second := w.newRun(chance), w.newRun(chance)
		first.Together = []engine.Sibling{{}}
		second.Key, second.Replay, second.AgainOf = nil, nil, ""
		return w.add(chance, first, second)
	}},
	{"claim", func(w *world, chance *rand.Rand) any {
		batch := engine.Batch{Max: 1 + chance.IntN(3), Lease: modelLease}
		if chance.IntN(3) == 0 {
			batch.Bounds = []engine.Bound{{Hooks: []string{"agent"}, AtMost: chance.IntN(2)}, {Runners: []string{"other"}, AtMost: 1}}
		}
		return w.claim(batch)
	}},
	{"claim one", func(w *world, _ *rand.Rand) any { return w.claim(engine.Batch{Max: 1, Lease: modelLease}) }},
	{"complete", func(w *world, chance *rand.Rand) any { return w.end(chance, modelEnd(chance)) }},
	{"complete", func(w *world, chance *rand.Rand) any { return w.end(chance, modelEnd(chance)) }},
	{"end otherwise", func(w *world, chance *rand.Rand) any {
		status := oneOf(chance, engine.Failed, engine.TimedOut, engine.Cancelled, engine.Expired)
		end := endedAs(status, oneOf(chance, engine.RunnerFailed, engine.Interrupted))
		end.Unstarted = chance.IntN(3) == 0
		return w.end(chance, end)
	}},
	{"put back", func(w *world, chance *rand.Rand) any {
		end := engine.End{Requeue: true, Interrupted: chance.IntN(3) == 0, Pause: time.Hour, WaitingFor: oneOf(chance, "", "The agent is away.")}
		if chance.IntN(3) == 0 {
			end.Session = engine.Session{Runner: "r", ID: "put back"}
		}
		return w.end(chance, end)
	}},
	{"let time pass", (*world).pass},
	{"resume", func(w *world, chance *rand.Rand) any {
		if w.waiting() > 1 { // which of several comes first is not told
			return nil
		}
		return w.s.Runs().Resume(w.t.Context(), oneOf(chance, nil, []string{"other"})...)
	}},
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
	{"claim deliveries", func(w *world, chance *rand.Rand) any {
		batch := engine.DeliveryBatch{Max: 1000, Lease: modelLease} // of those that are due at the same moment, which comes first is not told
		if chance.IntN(5) == 0 {
			batch.Host, batch.DueFor = "channel/log", time.Hour
		}
		due, wait, err := w.s.Deliveries().Claim(w.t.Context(), batch)
		slices.SortFunc(due, func(a, b *engine.Delivery) int { return cmp.Or(w.compare(a.RunID, b.RunID), a.Index-b.Index) })
		w.held = append(w.held, due...)
		return []any{due, wait, err}
	}},
	{"settle", func(w *world, chance *rand.Rand) any {
		var d *engine.Delivery
		switch {
		case len(w.settled) > 0 && chance.IntN(6) == 0:
			d = oneOf(chance, w.settled...)
		case len(w.held) == 0:
			return nil
		default:
			i := chance.IntN(len(w.held))
			d = w.held[i]
			w.held = slices.Delete(w.held, i, i+1)
			w.settled = append(w.settled, d)
		}
		d.Attempt++
		d.Status = oneOf(chance, engine.Delivered, engine.Dead, engine.Pending)
		var throttles []engine.Throttle
		if chance.IntN(4) == 0 {
			pause := oneOf[time.Duration](chance, 0, time.Hour)
			throttles = append(throttles, engine.Throttle{To: d.Destination(), Pause: pause, AtOnce: chance.IntN(2)})
		}
		return w.s.Deliveries().Settle(w.t.Context(), d, oneOf[time.Duration](chance, 0, time.Hour), throttles...)
	}},
	{"retry or drop", func(w *world, chance *rand.Rand) any {
		if len(w.runs) == 0 {
			return nil
		}
		id := engine.DeliveryID(oneOf(chance, w.runs...).ID, chance.IntN(2))
		if chance.IntN(2) == 0 {
			return w.s.Deliveries().Drop(w.t.Context(), id)
		}
		d, err := w.s.Deliveries().Retry(w.t.Context(), id)
		return []any{d, err}
	}},
	{"waits of deliveries", func(w *world, _ *rand.Rand) any {
		page, _, _ := w.s.Deliveries().List(w.t.Context(), engine.DeliveryQuery{Limit: 100})
		waits, err := w.s.Deliveries().Waits(w.t.Context(), page)
		paused, pausedErr := w.s.Deliveries().Paused(w.t.Context(), 10)
		return []any{waits, err, paused, pausedErr}
	}},
	{"save settings", func(w *world, chance *rand.Rand) any {
		settings, description := []byte(fmt.Sprint(chance.IntN(100))), oneOf(chance, nil, []byte("a change"))
		revision, err := w.s.Settings().Save(w.t.Context(), settings, description, w.saved-int64(chance.IntN(8)/7))
		if err == nil {
			w.saved = revision
		}
		return []any{revision, err}
	}},
	{"save a minute", func(w *world, chance *rand.Rand) any {
		m := engine.Minute{At: aMinute.Add(time.Duration(chance.IntN(3)) * time.Minute), Part: chance.Uint64N(2), Accepted: chance.Int64N(9)}
		m.Hooks = map[string]engine.HookMinute{"github": {Accepted: 1, Ended: chance.Int64N(9)}}
		return w.s.Minutes().Save(w.t.Context(), m)
	}},
	{"prune", func(w *world, chance *rand.Rand) any {
		limits := engine.Limits{Retention: oneOf[time.Duration](chance, 0, time.Hour, 10*time.Hour),
			KeyAge: oneOf[time.Duration](chance, 0, 2*time.Hour), History: oneOf[time.Duration](chance, 0, time.Hour, engine.NoHistory)}
		for {
			if more, err := w.s.Prune(w.t.Context(), limits); err != nil || !more {
				return err
			}
		}
	}},
	{"list", func(w *world, chance *rand.Rand) any {
		query := engine.Query{Limit: 1 + chance.IntN(4), OldestFirst: chance.IntN(2) == 0,
			Told: chance.IntN(2) == 0, Replies: chance.IntN(2) == 0, Deliveries: chance.IntN(2) == 0}
		if chance.IntN(2) == 0 {
			query.Hooks = oneOf(chance, []string{"agent"}, []string{"github", "agent", "github"}, []string{"none"})
		}
		if chance.IntN(2) == 0 {
			query.Statuses = oneOf(chance, []engine.Status{engine.Queued}, []engine.Status{engine.Failed, engine.Cancelled},
				[]engine.Status{engine.Completed, engine.Failed},
				[]engine.Status{engine.Running, engine.TimedOut})
		}
		if chance.IntN(3) == 0 {
			query.ChatID = oneOf(chance, "a", "b", "none")
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
			}
		}
		return w.list(query)
	}},
	{"list deliveries", func(w *world, chance *rand.Rand) any {
		return w.listDeliveries(engine.DeliveryQuery{Limit: 1 + chance.IntN(4),
			Channel: oneOf(chance, "", "log"), Host: oneOf(chance, "", "", "x.example.com"),
			Statuses: oneOf(chance, nil, []engine.DeliveryStatus{engine.Dead}, []engine.DeliveryStatus{engine.Pending, engine.Delivered})})
	}},
	{"list chats", func(w *world, chance *rand.Rand) any {
		return w.listChats(engine.ChatQuery{Limit: 1 + chance.IntN(3), Text: oneOf(chance, "", "", "d")})
	}},
	{"look at all", func(w *world, _ *rand.Rand) any { return w.lookAtAll() }},
}

// modelEnd is the end of a run that gave an answer.
func modelEnd(chance *rand.Rand) engine.End {
	end := ended()
	end.Session = engine.Session{Runner: "r", ID: oneOf(chance, "", "s", "t")}
	for i := range chance.IntN(3) {
		d := &engine.Delivery{Index: i, RunStatus: engine.Completed, Status: engine.Pending, Body: "body"}
		d.Callback = oneOf(chance, "https://x.example.com/", "http://y.example.com:81/")
		if i == 1 {
			d.Callback, d.Channel, d.To = "", "log", oneOf(chance, "me", "you")
		}
		end.Deliveries = append(end.Deliveries, d)
	}
	return end
}
