// Package storetest checks that a store keeps to the contract of engine.Store.
//
// It looks at stores through that interface alone, and asks for nothing that only some of them can do: a store may be
// shared by several processes, may have a clock of its own that goes on or stands still, and may round times to
// microseconds.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Options describes a store to the suite. Only Advance is needed for all stores.
type Options struct {
	// Advance lets the store's clock go forward. The clock is that of the store's data: all nodes share it, Reopen does not
	// set it back, and the clocks of other stores stay as they are.
	Advance func(t *testing.T, s engine.Store, d time.Duration)

	// Reopen closes a store and opens the same data again. It is nil for stores that do not outlive their process.
	Reopen func(t *testing.T, s engine.Store) engine.Store

	// Join opens the data of an open store as another node. It is nil for stores that one node has to itself.
	Join func(t *testing.T, s engine.Store) engine.Store

	// IDsAscend says that ids are in the order in which runs were added. Stores need not promise it.
	IDsAscend bool
}

// Run checks stores that open makes. It has to make a new and empty one every time. Run closes them. The checks run in
// parallel, and go on when Run has returned; whatever they need is released with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) engine.Store, options Options) {
	if options.Advance == nil {
		t.Fatal("the options have no Advance")
	}
	type concern struct {
		name   string
		checks []check
	}
	concerns := []concern{
		{"Order", orderChecks},
		{"Limits", limitChecks},
		{"Claims", claimChecks},
		{"Leases", leaseChecks},
		{"Ends", endChecks},
		{"Cancel", cancelChecks},
		{"Records", recordChecks},
		{"List", listChecks},
		{"Deliveries", deliveryChecks},
		{"DeliveryLeases", deliveryLeaseChecks},
		{"Throttles", throttleChecks},
		{"Keys", keyChecks},
		{"Pruning", pruneChecks},
		{"Settings", settingsChecks},
		{"Watch", watchChecks},
		{"Concurrency", concurrencyChecks},
	}
	if options.Reopen != nil {
		concerns = append(concerns, concern{"Durability", durabilityChecks})
	}
	if options.IDsAscend {
		concerns = append(concerns, concern{"IDs", ascendingIDChecks})
		if options.Reopen != nil {
			concerns = append(concerns, concern{"DurableIDs", durableIDChecks})
		}
	}
	if options.Join != nil {
		concerns = append(concerns,
			concern{"Nodes", nodeChecks},
			concern{"NodeDeliveries", nodeDeliveryChecks},
			concern{"NodeWatch", nodeWatchChecks},
			concern{"NodeConcurrency", nodeConcurrencyChecks},
		)
	}
	for _, concern := range concerns {
		t.Run(concern.name, func(t *testing.T) {
			t.Parallel()
			for _, check := range concern.checks {
				t.Run(check.name, func(t *testing.T) {
					t.Parallel()
					s := &store{Store: open(t), t: t, options: options, clock: new(clock), tokens: new(tokens)}
					s.closeAtEnd()
					check.run(t, s)
				})
			}
		})
	}
}

// check is one property to look at, on a store of its own.
type check struct {
	name string
	run  func(t *testing.T, s *store)
}

// store is one node's store under test. Its own methods end the test if the store does not do as they say, so they are for
// the goroutine of the test alone.
type store struct {
	engine.Store
	t       *testing.T
	options Options
	clock   *clock  // shared by all nodes of a check
	tokens  *tokens // likewise
}

func (s *store) closeAtEnd() {
	s.t.Cleanup(func() {
		if s.Store != nil {
			s.close()
		}
	})
}

func (s *store) close() {
	s.t.Helper()
	if err := s.Close(); err != nil {
		s.t.Errorf("closing the store: %v", err)
	}
	s.Store = nil
}

// in is the same store in a test inside the test.
func (s *store) in(t *testing.T) *store {
	inner := *s
	inner.t = t
	return &inner
}

// reopen closes the store and opens it again.
func (s *store) reopen() {
	s.t.Helper()
	s.Store = s.options.Reopen(s.t, s.Store)
}

// join opens the same data as another node.
func (s *store) join() *store {
	s.t.Helper()
	other := *s
	other.Store = s.options.Join(s.t, s.Store)
	other.closeAtEnd()
	return &other
}

// clock is what the suite knows about the clock of a store: it has gone on since it was first seen by as much as the test
// let it, and by as much time as has passed, unless it stands still.
type clock struct {
	mu        sync.Mutex
	firstSeen time.Time // as the store's clock said …
	seenAt    time.Time // … and by our own
	advanced  time.Duration
}

// advance lets the store's clock go forward.
func (s *store) advance(d time.Duration) {
	s.t.Helper()
	s.options.Advance(s.t, s.Store, d)
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.advanced += d
}

// slack is how much two clocks may drift apart during a test.
const slack = time.Second

// isNow expects a time that the store has set in the call that was just made.
func (s *store) isNow(name string, at time.Time) {
	s.t.Helper()
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	if at.IsZero() {
		s.t.Errorf("%s is not set", name)
		return
	}
	if s.clock.firstSeen.IsZero() {
		s.clock.firstSeen, s.clock.seenAt, s.clock.advanced = at, time.Now(), 0
		return
	}
	earliest := s.clock.firstSeen.Add(s.clock.advanced - slack)
	latest := earliest.Add(time.Since(s.clock.seenAt) + 2*slack)
	if at.Before(earliest) || at.After(latest) {
		s.t.Errorf("%s is %v, want now, which is between %v and %v", name, at, earliest, latest)
	}
}

// lasted expects a duration by the store's clock that began when the clock had been advanced by so much less.
func (s *store) lasted(name string, got, want time.Duration) {
	s.t.Helper()
	if got < want-slack || got > want+patience {
		s.t.Errorf("%s is %v, want %v", name, got, want)
	}
}

// tokens are the tokens of all claims of runs and deliveries that were handed out in a check.
type tokens struct {
	mu   sync.Mutex
	used map[string]bool
}

// isNew reports whether a token was never handed out before.
func (k *tokens) isNew(token string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if token == "" || k.used[token] {
		return false
	}
	if k.used == nil {
		k.used = map[string]bool{}
	}
	k.used[token] = true
	return true
}

// add stores runs that must be taken.
func (s *store) add(runs ...*engine.Run) {
	s.t.Helper()
	for _, run := range runs {
		s.addWithin(engine.Limits{}, run)
	}
}

// addWithin stores a run that must be taken under these limits.
func (s *store) addWithin(limits engine.Limits, run *engine.Run) {
	s.t.Helper()
	if err := s.tryAdd(run, limits); err != nil {
		s.t.Fatalf("adding a run of chat %.40q with limits %+v: %v", run.ChatID, limits, err)
	}
	s.isNow("AcceptedAt", run.AcceptedAt)
}

// tryAdd adds a run under the settings that are in force if none were saved.
func (s *store) tryAdd(run *engine.Run, limits engine.Limits) error {
	return s.Runs().Add(s.t.Context(), run, engine.Terms{Limits: limits})
}

// addTo stores a run for every chat named, in that order.
func (s *store) addTo(chats ...string) []*engine.Run {
	s.t.Helper()
	var runs []*engine.Run
	for _, chat := range chats {
		runs = append(runs, newRun(chat))
	}
	s.add(runs...)
	return runs
}

// refuse tries to add a run, and expects that a limit is in the way.
func (s *store) refuse(run *engine.Run, limits engine.Limits, want error) {
	s.t.Helper()
	if err := s.tryAdd(run, limits); !errors.Is(err, want) {
		s.t.Errorf("adding a run of chat %q with limits %+v: got %v, want %v", run.ChatID, limits, err, want)
	}
}

const (
	longLease  = 100_000 * time.Hour // is over in no check
	shortLease = time.Minute
)

// upTo is a batch of runs that stay claimed for longer than any check lasts.
func upTo(runs int) engine.Batch { return engine.Batch{Max: runs, Lease: longLease} }

// claim takes up to n runs.
func (s *store) claim(n int) []*engine.Claim {
	s.t.Helper()
	return s.claimFor(longLease, n)
}

// claimFor takes up to n runs for a lease.
func (s *store) claimFor(lease time.Duration, n int) []*engine.Claim {
	s.t.Helper()
	claims, err := s.Runs().Claim(s.t.Context(), engine.Batch{Max: n, Lease: lease})
	if err != nil {
		s.t.Fatalf("claiming: %v", err)
	}
	s.areNew(claims)
	return claims
}

// areNew expects claims that were just made.
func (s *store) areNew(claims []*engine.Claim) {
	s.t.Helper()
	for _, claim := range claims {
		if !s.tokens.isNew(claim.Token) {
			s.t.Errorf("run %s was claimed with token %q, which is none or was used before", claim.Run.ID, claim.Token)
		}
		s.isNow("StartedAt", claim.StartedAt)
		s.lasted("Waited", claim.Waited, claim.StartedAt.Sub(claim.Run.AcceptedAt))
	}
}

// claimAll takes all runs that can be had, and expects them to be these.
func (s *store) claimAll(runs ...*engine.Run) []*engine.Claim {
	s.t.Helper()
	claims := s.claim(len(runs) + 10)
	s.sameRuns("claimed", claims, runs...)
	return claims
}

// claimFirst takes one run, and expects it to be this one.
func (s *store) claimFirst(run *engine.Run) *engine.Claim {
	s.t.Helper()
	claims := s.claim(1)
	s.sameRuns("claimed", claims, run)
	return claims[0]
}

// claimThrough takes the runs of one chat, one after the other, and expects them to be these, and no more.
func (s *store) claimThrough(runs ...*engine.Run) {
	s.t.Helper()
	for _, run := range runs {
		s.end(s.claimFirst(run), ended())
	}
	s.claimAll()
}

// sameRuns expects claims of these runs, in any order.
func (s *store) sameRuns(verb string, claims []*engine.Claim, runs ...*engine.Run) {
	s.t.Helper()
	got, want := make([]string, 0, len(claims)), make([]string, 0, len(runs))
	for _, claim := range claims {
		got = append(got, claim.Run.ID)
	}
	for _, run := range runs {
		want = append(want, run.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Fatalf("%s %v, want %v", verb, got, want)
	}
}

// abandon claims a run, which must be the next one, and lets the lease pass.
func (s *store) abandon(run *engine.Run) (old *engine.Claim) {
	s.t.Helper()
	claims := s.claimFor(shortLease, 1)
	s.sameRuns("claimed", claims, run)
	s.advance(shortLease + slack)
	return claims[0]
}

// reclaim waits until a run whose lease is over is handed out again.
func (s *store) reclaim(run *engine.Run) *engine.Claim {
	s.t.Helper()
	return s.reclaimFor(longLease, run)
}

func (s *store) reclaimFor(lease time.Duration, run *engine.Run) *engine.Claim {
	s.t.Helper()
	var claims []*engine.Claim
	eventually(s.t, "the run is handed out again", func() bool {
		claims = s.claimFor(lease, 1)
		return len(claims) > 0
	})
	s.sameRuns("claimed", claims, run)
	return claims[0]
}

// eventually waits until a condition holds.
func eventually(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited for this in vain: %s", condition)
		}
	}
}

// patience is how long a step may take that should not take long.
const patience = 30 * time.Second

// end ends a claimed run.
func (s *store) end(claim *engine.Claim, end engine.End) {
	s.t.Helper()
	if next := s.endAnd(claim, end, engine.Batch{}); len(next) > 0 {
		s.t.Fatalf("ending run %s claimed %d runs that nobody asked for", claim.Run.ID, len(next))
	}
}

// endAnd ends a claimed run and claims others.
func (s *store) endAnd(claim *engine.Claim, end engine.End, next engine.Batch) []*engine.Claim {
	s.t.Helper()
	claims, err := s.Runs().End(s.t.Context(), claim, end, next)
	if err != nil {
		s.t.Fatalf("ending run %s: %v", claim.Run.ID, err)
	}
	s.areNew(claims)
	return claims
}

// carryOut adds a run to a chat that has none, claims it and ends it.
func (s *store) carryOut(run *engine.Run, end engine.End) {
	s.t.Helper()
	s.add(run)
	s.end(s.claimFirst(run), end)
}

// requeue puts a claimed run back.
func (s *store) requeue(claim *engine.Claim) {
	s.t.Helper()
	s.end(claim, engine.End{Requeue: true})
}

// queued is the claim by which a run is ended that nobody has claimed.
func queued(run *engine.Run) *engine.Claim { return &engine.Claim{Run: run} }

// endQueued ends a run that nobody has claimed.
func (s *store) endQueued(run *engine.Run, end engine.End) {
	s.t.Helper()
	s.end(queued(run), end)
}

// isLost expects that a claim does not hold any more, whatever is done with it, and that this changes nothing.
func (s *store) isLost(claim *engine.Claim) {
	s.t.Helper()
	id := claim.Run.ID
	before := s.get(id)
	late := ended()
	late.Outcome.Text = "too late"
	late.Deliveries = []*engine.Delivery{newDelivery(claim.Run, 0)}
	s.endsNothing(claim, late)
	s.endsNothing(claim, engine.End{Requeue: true})
	s.notRenewed(claim)
	same(s.t, "the run of a lost claim", s.get(id), before)
	s.noneDue()
}

// endsNothing expects End to say that a claim is lost.
func (s *store) endsNothing(claim *engine.Claim, end engine.End) {
	s.t.Helper()
	next, err := s.Runs().End(s.t.Context(), claim, end, upTo(10))
	if !errors.Is(err, engine.ErrClaimLost) {
		s.t.Errorf("ending with a claim that does not hold (requeue: %v): got %v, want ErrClaimLost", end.Requeue, err)
	}
	s.sameRuns("an End that did nothing claimed", next)
}

// notRenewed expects Renew to say that a claim is lost.
func (s *store) notRenewed(claim *engine.Claim) {
	s.t.Helper()
	lost, cancelled := s.renew(longLease, claim)
	if len(lost) != 1 || lost[0] != claim || len(cancelled) > 0 {
		s.t.Errorf("renewing a claim that does not hold: got %v lost and %v cancelled, want the claim lost", lost, cancelled)
	}
}

// renew lets claims hold for another lease.
func (s *store) renew(lease time.Duration, claims ...*engine.Claim) (lost, cancelled []*engine.Claim) {
	s.t.Helper()
	lost, cancelled, err := s.Runs().Renew(s.t.Context(), claims, lease)
	if err != nil {
		s.t.Fatalf("renewing %d claims: %v", len(claims), err)
	}
	return lost, cancelled
}

// holds expects that claims are renewed, and that nobody wants their runs to be cancelled.
func (s *store) holds(lease time.Duration, claims ...*engine.Claim) {
	s.t.Helper()
	if lost, cancelled := s.renew(lease, claims...); len(lost) > 0 || len(cancelled) > 0 {
		s.t.Errorf("renewing %d claims: %d are lost and %d cancelled, want none", len(claims), len(lost), len(cancelled))
	}
}

func (s *store) get(id string) *engine.Record {
	s.t.Helper()
	record, err := s.Runs().Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatalf("getting run %s: %v", id, err)
	}
	return record
}

// gone expects that a run is not known.
func (s *store) gone(id string) {
	s.t.Helper()
	if record, err := s.Runs().Get(s.t.Context(), id); !errors.Is(err, engine.ErrNotFound) {
		s.t.Errorf("getting run %.80q: got %+v and %v, want ErrNotFound", id, record, err)
	}
}

// status expects a run to have a status and a number of attempts.
func (s *store) status(run *engine.Run, status engine.Status, attempts int) {
	s.t.Helper()
	if record := s.get(run.ID); record.Status != status || record.Attempts != attempts {
		s.t.Errorf("run %s is %s after %d attempts, want %s after %d", run.ID, record.Status, record.Attempts, status, attempts)
	}
}

// recordOf is the record that is expected of a run that has just ended under a claim. CreatedAt and Due of the deliveries
// that are passed in are set to the moment of the end.
func (s *store) recordOf(run *engine.Run, claim *engine.Claim, end engine.End) *engine.Record {
	s.t.Helper()
	now := s.get(run.ID).FinishedAt
	s.isNow("FinishedAt", now)
	kept := *run
	kept.Message, kept.Metadata, kept.Schema = "", nil, nil
	record := &engine.Record{Run: &kept, Status: end.Outcome.Status, FinishedAt: now, Outcome: end.Outcome}
	if claim.Token != "" {
		record.Attempts, record.StartedAt = claim.Attempt, claim.StartedAt
	}
	for _, d := range end.Deliveries {
		d.CreatedAt, d.Due = now, now
		listed := *d
		listed.Body = ""
		record.Deliveries = append(record.Deliveries, &listed)
	}
	return record
}

// list collects all pages of a query. Cursor and Limit may be left out.
func (s *store) list(query engine.Query) []*engine.Record {
	s.t.Helper()
	if query.Limit == 0 {
		query.Limit = 1000
	}
	var all []*engine.Record
	for range 100_000 {
		page, next, err := s.Runs().List(s.t.Context(), query)
		if err != nil {
			s.t.Fatalf("listing %+v: %v", query, err)
		}
		if len(page) > query.Limit {
			s.t.Fatalf("listing %+v: got %d runs", query, len(page))
		}
		all = append(all, page...)
		if next == "" {
			return all
		}
		query.Cursor = next
	}
	s.t.Fatalf("listing %+v does not come to an end", query)
	return nil
}

// lists expects a query to find these runs, which are given the oldest first.
func (s *store) lists(query engine.Query, runs ...*engine.Run) {
	s.t.Helper()
	got, want := []string{}, []string{}
	for _, record := range s.list(query) {
		got = append(got, record.Run.ID)
	}
	for _, run := range slices.Backward(runs) {
		want = append(want, run.ID)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("listing %+v: got %v, want %v", query, got, want)
	}
}

// prune forgets everything that can be forgotten, and expects that this comes to an end.
func (s *store) prune(limits engine.Limits) {
	s.t.Helper()
	for range 10_000 {
		more, err := s.Prune(s.t.Context(), limits)
		if err != nil {
			s.t.Fatalf("pruning: %v", err)
		}
		if !more {
			return
		}
	}
	s.t.Fatal("pruning does not come to an end")
}

// newRun makes a run that has no more than it needs.
func newRun(chat string) *engine.Run {
	return &engine.Run{ChatID: chat, Hook: "agent", Action: engine.Agent, Message: "a message to " + chat, MemoryPreset: "disabled",
		Timeout: time.Minute}
}

// fullRun makes a run in which every field is set, also those that the store sets.
func fullRun(t *testing.T, chat string) *engine.Run {
	t.Helper()
	run := &engine.Run{
		ID:     "not the store's",
		ChatID: chat, Hook: "github", Action: engine.Agent, Name: "a label",
		Message: "line one\nline two", Metadata: []byte(`{ "b": 1.10,  "a": [null, "\u0000"], "a": 12345678901234567890 }`),
		Tier: "smart", ValidationTier: "deep", MemoryPreset: "general_chat", Schema: []byte("{\"type\":\t\"object\"}"),
		Sync: true, CallbackURL: "https://example.com/callback?a=b", Channel: "log", To: "somebody",
		Timeout: 90*time.Second + 7*time.Millisecond, AcceptedAt: time.Now().Add(-1000 * time.Hour),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Runner:      "a runner", Key: newKey(), Owner: "a node",
	}
	allSet(t, run)
	return run
}

// newKey makes a key that nobody has used.
func newKey() *engine.Key {
	var key engine.Key
	for _, half := range [][]byte{key.ID[:16], key.ID[16:], key.Body[:16], key.Body[16:]} {
		id := uuid.New()
		copy(half, id[:])
	}
	return &key
}

// ended is how most runs end.
func ended() engine.End {
	return engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "an answer", HasText: true}}
}

// endedWith is the end of a run with deliveries.
func endedWith(deliveries ...*engine.Delivery) engine.End {
	end := ended()
	end.Deliveries = deliveries
	return end
}

// endedAs is the end of a run that gave no answer.
func endedAs(status engine.Status, failure engine.Failure) engine.End {
	return engine.End{Outcome: engine.Outcome{Status: status, Failure: failure, Message: "why"}}
}

// newDelivery makes a delivery in which every field is set but Attempt, LastError and Token, and Channel and To or Callback.
// It shares its destination with no other. CreatedAt and Due are wrong: the store has to set them.
func newDelivery(run *engine.Run, index int) *engine.Delivery {
	d := &engine.Delivery{
		ID: engine.DeliveryID(run.ID, index), RunID: run.ID, Index: index, ChatID: run.ChatID, RunStatus: engine.Completed,
		Callback:    fmt.Sprintf("https://%s.example.com/callback", run.ID),
		ContentType: "text/plain; charset=utf-8", Body: fmt.Sprintf("body %d of run %s", index, run.ID),
		Sent: 2, Status: engine.Pending, Restart: 3,
		CreatedAt: time.Now().Add(-1000 * time.Hour), TriedAt: time.Now().Add(-2000 * time.Hour), Due: time.Now().Add(5000 * time.Hour),
		LastStatus: 503, LastAnswer: "not \xff now",
	}
	if index > 0 {
		d.Callback, d.Channel, d.To = "", "log", fmt.Sprintf("somebody %d of %s", index, run.ID)
	}
	return d
}

// allSet expects that no field of a struct was forgotten, so that a new one is not either.
func allSet(t *testing.T, pointer any) {
	t.Helper()
	value := reflect.ValueOf(pointer).Elem()
	for i := range value.NumField() {
		if value.Field(i).IsZero() {
			t.Fatalf("%s.%s is not set by the tests of stores", value.Type(), value.Type().Field(i).Name)
		}
	}
}

// same expects that two values are equal, as far as stores promise it.
func same[T any](t *testing.T, name string, got, want T) {
	t.Helper()
	if where := difference(name, reflect.ValueOf(&got).Elem(), reflect.ValueOf(&want).Elem()); where != "" {
		t.Error(where)
	}
}

// difference says where two values differ. Times are equal if they are so to the microsecond. A byte slice that is nil is
// not the same as an empty one, since that can tell absent from empty. The token of a delivery is the store's own affair.
func difference(where string, got, want reflect.Value) string {
	unequal := func() string {
		return fmt.Sprintf("%s is %.100q, want %.100q", where, fmt.Sprint(got), fmt.Sprint(want))
	}
	if gotTime, ok := got.Interface().(time.Time); ok {
		if d := gotTime.Sub(want.Interface().(time.Time)); d <= -time.Microsecond || d >= time.Microsecond {
			return unequal()
		}
		return ""
	}
	switch got.Kind() {
	case reflect.Pointer:
		if got.IsNil() != want.IsNil() {
			return unequal()
		}
		if !got.IsNil() {
			return difference(where, got.Elem(), want.Elem())
		}
	case reflect.Struct:
		for i := range got.NumField() {
			name := got.Type().Field(i).Name
			if name == "Token" && got.Type() == reflect.TypeFor[engine.Delivery]() {
				continue
			}
			if d := difference(where+"."+name, got.Field(i), want.Field(i)); d != "" {
				return d
			}
		}
	case reflect.Slice:
		if got.Type().Elem().Kind() == reflect.Uint8 {
			if got.IsNil() != want.IsNil() || string(got.Bytes()) != string(want.Bytes()) {
				return unequal()
			}
			return ""
		}
		if got.Len() != want.Len() {
			return fmt.Sprintf("%s has %d elements, want %d", where, got.Len(), want.Len())
		}
		for i := range got.Len() {
			if d := difference(fmt.Sprintf("%s[%d]", where, i), got.Index(i), want.Index(i)); d != "" {
				return d
			}
		}
	default:
		if !got.Equal(want) {
			return unequal()
		}
	}
	return ""
}
