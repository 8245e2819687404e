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

// Model is the data of a store whose behaviour is right. Each call of Store opens it as another node.
type Model interface {
	Store() engine.Store
	Advance(by time.Duration)
}

// RunAgainst does the same random operations with a store and with a model, and compares all that they answer. A sequence with a difference is
// shown with the operations alone that lead to it.
func RunAgainst(t *testing.T, model func() Model, open func(t *testing.T) engine.Store, options Options) {
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
	model   func() Model
	open    func(t *testing.T) engine.Store
	options Options
}

// difference says where the store and the model first differ, "" if they do not.
func (c *comparison) difference(operations []operation) string {
	model := c.model()
	want := newWorld(c, model.Store(), model.Advance)
	defer want.close()
	want.join = model.Store
	tested := c.open(c.t)
	got := newWorld(c, tested, func(d time.Duration) { c.options.Advance(c.t, tested, d) })
	defer got.close()
	if c.options.Join != nil {
		got.join = func() engine.Store { return c.options.Join(c.t, tested) }
	} else {
		want.join = nil
	}
	if c.options.Reopen != nil {
		want.reopen = func() engine.Store {
			_ = want.nodes[0].Close()
			return model.Store()
		}
		got.reopen = func() engine.Store {
			tested = c.options.Reopen(c.t, tested)
			return tested
		}
	}
	if !got.exact {
		got.model = want
	}
	var history strings.Builder
	step := func(name string, do func(w *world) any) bool {
		wanted, was := want.show(want.note(do)), got.show(got.note(do))
		fmt.Fprintf(&history, "%s: %.300s\n", name, wanted)
		if id := got.misses(want); id != "" {
			fmt.Fprintf(&history, "Watch.Ended of %s does not say the same\n", id)
			return false
		}
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
		if !step("open it again", (*world).openAgain) || !step("look at all", (*world).lookAtAll) || !step("claim the rest", (*world).drain) {
			return history.String()
		}
	}
	return ""
}

// world is a store, and what a caller of it knows. That of a store and that of a model are the same but for ids, tokens and the time.
type world struct {
	t       *testing.T
	s       engine.Store        // the node that does the next operation …
	nodes   []engine.Store      // … of all that are open
	join    func() engine.Store // nil if there is one node alone
	reopen  func() engine.Store // nil if nothing outlives the process
	advance func(time.Duration)
	exact   bool            // the store does all in the very order of the model
	ordered bool            // … also runs of different chats
	began   time.Time       // when the first run was accepted
	runs    []*engine.Run   // in their order
	names   []string        // pairs of an id and a name, for a strings.Replacer
	ends    []*engine.Claim // that were ended or put back
	claims  []*engine.Claim
	held    []*engine.Delivery
	settled []*engine.Delivery
	watched []watchedRun
	saved   int64 // the revision of the settings
	steps   int
	queued  int    // how many runs are queued
	model   *world // of a store that need not do as the model at once

	throttled bool
}

type watchedRun struct {
	id    string
	ended <-chan struct{}
}

func newWorld(c *comparison, first engine.Store, advance func(time.Duration)) *world {
	w := &world{t: c.t, advance: advance, exact: c.options.IDsAscend, ordered: c.options.IDsAscend}
	w.open(first)
	return w
}

func (w *world) open(node engine.Store) {
	w.nodes = append(w.nodes, node)
	w.names = append(w.names, node.Node(), fmt.Sprint("node ", len(w.names)))
}

// leave closes all nodes but the first.
func (w *world) leave() {
	for len(w.nodes) > 1 {
		last := len(w.nodes) - 1
		_ = w.nodes[last].Close()
		w.nodes = w.nodes[:last]
	}
	w.watched, w.s = nil, w.nodes[0]
}

// openAgain has the process end and start again. What is claimed is ended before: when it can be claimed again depends on the store.
func (w *world) openAgain() any {
	all := w.endAll()
	w.leave()
	w.nodes[0] = w.reopen()
	w.names = append(w.names, w.nodes[0].Node(), fmt.Sprint("node ", len(w.names)))
	w.s = w.nodes[0]
	w.ordered, w.ends = false, nil // neither which chat comes first is kept, nor whether an End that put a run back is repeated
	return all
}

func (w *world) close() {
	w.leave()
	_ = w.nodes[0].Close()
}

// misses returns a run whose end only one of two worlds heard of.
func (w *world) misses(model *world) string {
	isClosed := func(ended <-chan struct{}) bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	for i, want := range model.watched {
		if isClosed(want.ended) {
			hear(w.t, w.watched[i].ended, "the end of "+want.id)
		} else if isClosed(w.watched[i].ended) {
			return want.id
		}
	}
	return ""
}

// note does something, and has the store notice which waits and windows are over. Otherwise it may notice later, and another chat comes first.
func (w *world) note(do func(w *world) any) any {
	w.steps++
	w.s = w.nodes[w.steps%len(w.nodes)]
	_, _ = w.s.Runs().Backlog(w.t.Context())
	result := do(w)
	backlog, err := w.s.Runs().Backlog(w.t.Context())
	for began := time.Now(); w.model != nil && backlog.Queued < w.model.queued && time.Since(began) < patience/5; time.Sleep(10 * time.Millisecond) {
		_, _, _ = w.s.Runs().Claim(w.t.Context(), engine.Batch{}) // a store may take a while to notice that a lease is over
		backlog, err = w.s.Runs().Backlog(w.t.Context())
	}
	w.queued = backlog.Queued
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
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		w.write(b, v.Elem())
	case reflect.Struct:
		b.WriteByte('{')
		for i := range v.NumField() {
			name, field := v.Type().Field(i).Name, v.Field(i)
			isEmpty := field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0
			if isEmpty || name == "Token" || !w.exact && slices.Contains(varyingFields, name) {
				continue
			}
			b.WriteString(name + ":")
			w.write(b, field)
			b.WriteByte(' ')
		}
		b.WriteByte('}')
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			fmt.Fprintf(b, "%t %q", v.IsNil(), v.Bytes())
			return
		}
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

// varyingFields are those that some stores set when a delivery is claimed, or forget no sooner than a run that waited is claimed.
var varyingFields = []string{"TriedAt", "WaitingFor"}

func oneOf[T any](chance *rand.Rand, values ...T) T { return values[chance.IntN(len(values))] }

// newRun makes a run by chance.
func (w *world) newRun(chance *rand.Rand) *engine.Run {
	run := &engine.Run{TraceParent: "00-1"}
	if chance.IntN(3) == 0 {
		run = fullRun(w.t, "a")
		run.Message, run.Metadata = "for <the id> ", oneOf(chance, run.Metadata, nil)
	}
	run.ChatID, run.Hook, run.Action = oneOf(chance, "a", "b", "c", "d e"), oneOf(chance, "agent", "github", "grafana"), engine.Agent
	run.Message += strings.Repeat("a message ", 1+chance.IntN(4)) + oneOf(chance, "Red", "green", "BLUE")
	run.MemoryPreset, run.Timeout = oneOf(chance, "disabled", "general_chat"), time.Minute
	run.Runner, run.History = oneOf(chance, "", "other"), oneOf[time.Duration](chance, 0, time.Hour, 5*time.Hour)
	run.QueueTime = oneOf[time.Duration](chance, 0, 0, time.Hour)
	run.Sync, run.Owner, run.AgainOf, run.NewChat, run.Fold, run.Key, run.Replay, run.Together = false, "", "", false, engine.Fold{}, nil, nil, nil
	if chance.IntN(5) == 0 {
		run.Message += strings.Repeat("long ", oneOf(chance, 2000, 2000, engine.MaxInput/4))
	}
	if chance.IntN(6) == 0 {
		run.ChatID, run.NewChat, run.IDPlaceholder = "of <the id>", true, "<the id>"
	}
	if chance.IntN(4) == 0 {
		run.Fold = engine.Fold{Window: oneOf(chance, time.Minute, time.Hour), Max: 2 + chance.IntN(3), Alike: chance.Uint32N(2)}
	}
	if chance.IntN(4) == 0 {
		run.Sync, run.Owner = true, oneOf(chance, "another node", w.nodes[0].Node(), w.s.Node())
	}
	if chance.IntN(3) == 0 {
		run.Key = &engine.Key{ID: [32]byte{byte(chance.IntN(4))}, Body: [32]byte{byte(chance.IntN(2))}, AnyBody: chance.IntN(8) == 0}
	}
	if chance.IntN(6) == 0 {
		run.Replay = &engine.Key{ID: [32]byte{byte(chance.IntN(4)), 1}, AnyBody: true}
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
	if !w.ordered {
		batch.Max, batch.Bounds = 1000, nil
	}
	claims, wait, err := w.s.Runs().Claim(w.t.Context(), batch)
	isLate := func() bool { return w.model != nil && len(w.claims)+len(claims) < len(w.model.claims) }
	for began := time.Now(); isLate() && time.Since(began) < patience/5; time.Sleep(10 * time.Millisecond) {
		var more []*engine.Claim // whose leases were over
		more, wait, err = w.s.Runs().Claim(w.t.Context(), batch)
		claims = append(claims, more...)
	}
	if !w.ordered {
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
	if !w.ordered {
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
	end := engine.End{Requeue: true, Interrupted: chance.IntN(3) == 0, Pause: time.Hour, WaitingFor: oneOf(chance, "", "The agent is unreachable.")}
	if chance.IntN(3) == 0 {
		end.Session = engine.Session{Runner: "r", ID: "put back"}
	}
	return w.end(chance, end)
}

// resume ends waits, and sometimes looks whether they stay so.
func (w *world) resume(chance *rand.Rand) any {
	waiting := w.waiting()
	if w.ordered && waiting > 1 { // which of several comes first is not said
		return nil
	}
	err := w.s.Runs().Resume(w.t.Context(), oneOf(chance, nil, []string{"other"})...)
	if waiting == 0 || w.reopen == nil || w.throttled {
		return err
	}
	return []any{err, w.openAgain(), w.list(engine.Query{Limit: 7}), w.claim(engine.Batch{Lease: modelLease})}
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

func (w *world) list(query engine.Query) any {
	return allPages(w.t, query.Limit, func(cursor string) ([]*engine.Record, string, error) {
		query.Cursor = cmp.Or(cursor, query.Cursor)
		return w.s.Runs().List(w.t.Context(), query)
	})
}

func (w *world) listDeliveries(query engine.DeliveryQuery) any {
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
	all := []any{w.list(engine.Query{Limit: 7, Input: true, Replies: true, Deliveries: true}),
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
	slices.SortStableFunc(minutes, func(a, b engine.Minute) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Part, b.Part),
			cmp.Compare(a.Accepted, b.Accepted), cmp.Compare(a.Hooks["github"].Ended, b.Hooks["github"].Ended))
	})
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
	{"complete", func(w *world, chance *rand.Rand) any { return w.end(chance, w.modelEnd(chance)) }},
	{"complete", func(w *world, chance *rand.Rand) any { return w.end(chance, w.modelEnd(chance)) }},
	{"end otherwise", func(w *world, chance *rand.Rand) any {
		status := oneOf(chance, engine.Failed, engine.TimedOut, engine.Cancelled, engine.Expired)
		end := endedAs(status, oneOf(chance, engine.RunnerFailed, engine.Interrupted))
		end.Unstarted = chance.IntN(3) == 0
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
	{"claim deliveries", func(w *world, chance *rand.Rand) any {
		batch := engine.DeliveryBatch{Max: 1000, Lease: modelLease} // of those that are due at the same moment, which comes first is not said
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
			w.throttled = true
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
	{"join or leave", func(w *world, chance *rand.Rand) any {
		if w.join != nil && len(w.nodes) < 3 {
			w.open(w.join())
			return nil
		}
		if chance.IntN(3) > 0 {
			return nil
		}
		all := w.endAll() // a node that leaves may keep its claims until their leases are over
		w.leave()
		return all
	}},
	{"open it again", func(w *world, chance *rand.Rand) any {
		if w.reopen == nil || w.throttled || chance.IntN(2) == 0 { // throttles need not outlive the process
			return nil
		}
		return w.openAgain()
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
	{"read settings", func(w *world, chance *rand.Rand) any {
		revision, err := w.s.Settings().Revision(w.t.Context())
		page, next, changesErr := w.s.Settings().Changes(w.t.Context(), 1+chance.IntN(3), "")
		rest, _, restErr := w.s.Settings().Changes(w.t.Context(), 2, next)
		return []any{revision, err, page, changesErr, rest, restErr}
	}},
	{"past", func(w *world, chance *rand.Rand) any {
		past, err := w.s.Runs().Past(w.t.Context(), oneOf(chance, "a", "b", "c", "d e"), 1+chance.IntN(4), oneOf(chance, 1, 60, 20_000))
		return []any{past, err}
	}},
	{"prune", func(w *world, chance *rand.Rand) any {
		limits := engine.Limits{Retention: oneOf[time.Duration](chance, 0, time.Hour, 10*time.Hour), HistoryBytes: oneOf[int64](chance, 0, 0, 500, 20_000),
			KeyAge: oneOf[time.Duration](chance, 0, 2*time.Hour), History: oneOf[time.Duration](chance, 0, time.Hour, engine.NoHistory)}
		for {
			if more, err := w.s.Prune(w.t.Context(), limits); err != nil || !more {
				return err
			}
		}
	}},
	{"list", func(w *world, chance *rand.Rand) any {
		query := engine.Query{Limit: 1 + chance.IntN(4), OldestFirst: chance.IntN(2) == 0,
			Input: chance.IntN(2) == 0, Replies: chance.IntN(2) == 0, Deliveries: chance.IntN(2) == 0}
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

// modelEnd is the end of a run, mostly one that gave an answer.
func (w *world) modelEnd(chance *rand.Rand) engine.End {
	end := ended()
	if chance.IntN(3) == 0 {
		end.Outcome = fullOutcome(w.t)
		end.Outcome.Status = oneOf(chance, engine.Completed, engine.Failed)
		end.Steps = twoSteps(w.t, &engine.Run{AcceptedAt: w.began})
	}
	end.Session = engine.Session{Runner: "r", ID: oneOf(chance, "", "s", "t")}
	for i := range chance.IntN(3) {
		d := newDelivery(&engine.Run{}, i)
		d.Callback = oneOf(chance, "https://x.example.com/", "http://y.example.com:81/")
		if i == 1 {
			d.Callback, d.To = "", oneOf(chance, "me", "you")
		}
		end.Deliveries = append(end.Deliveries, d)
	}
	return end
}
