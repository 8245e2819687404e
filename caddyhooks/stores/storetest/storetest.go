// Package storetest checks that a store keeps to the contract of engine.Store.
//
// It looks at stores through that interface alone, and asks for nothing that only some of them can do: a store may be
// shared by several processes, may be told the time by another clock, and may round times to microseconds.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Options says what a store can do beyond what all stores can.
type Options struct {
	// Reopen closes a store and opens the same data again. It is nil for stores that do not outlive their process.
	Reopen func(t *testing.T, s engine.Store) engine.Store
}

// Run checks stores that open makes. It has to make a new and empty one every time. Run closes them.
func Run(t *testing.T, open func(t *testing.T) engine.Store, options Options) {
	concerns := []struct {
		name   string
		checks []check
	}{
		{"Order", orderChecks},
		{"Limits", limitChecks},
		{"Claims", claimChecks},
		{"Ends", endChecks},
		{"Records", recordChecks},
		{"List", listChecks},
		{"Deliveries", deliveryChecks},
		{"Keys", keyChecks},
		{"Pruning", pruneChecks},
		{"Settings", settingsChecks},
		{"Concurrency", concurrencyChecks},
	}
	if options.Reopen != nil {
		concerns = append(concerns, struct {
			name   string
			checks []check
		}{"Durability", durabilityChecks})
	}
	for _, concern := range concerns {
		t.Run(concern.name, func(t *testing.T) {
			for _, check := range concern.checks {
				t.Run(check.name, func(t *testing.T) {
					s := &store{Store: open(t), t: t, options: options}
					t.Cleanup(func() {
						if s.Store == nil {
							return
						}
						if err := s.Close(); err != nil {
							t.Errorf("closing the store: %v", err)
						}
					})
					check.run(t, s)
				})
			}
		})
	}
}

// check is one thing to look at, on a store of its own.
type check struct {
	name string
	run  func(t *testing.T, s *store)
}

// store is a store under test. Its own methods end the test if the store does not do what they say, so they are for the
// goroutine of the test alone.
type store struct {
	engine.Store
	t       *testing.T
	options Options
}

// in is the same store in a test inside the test.
func (s *store) in(t *testing.T) *store { return &store{Store: s.Store, t: t, options: s.options} }

// reopen closes the store and opens it again.
func (s *store) reopen() {
	s.t.Helper()
	s.Store = s.options.Reopen(s.t, s.Store)
}

// add stores runs that must be taken.
func (s *store) add(runs ...*engine.Run) {
	s.t.Helper()
	for _, run := range runs {
		if err := s.Add(s.t.Context(), run, engine.Limits{}); err != nil {
			s.t.Fatalf("adding a run of chat %.40q: %v", run.ChatID, err)
		}
	}
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
	if err := s.Add(s.t.Context(), run, limits); !errors.Is(err, want) {
		s.t.Errorf("adding a run of chat %q with limits %+v: got %v, want %v", run.ChatID, limits, err, want)
	}
}

// wanting claims for longer than any test takes.
func wanting(runs int) engine.Want { return engine.Want{Runs: runs, Lease: time.Hour} }

// claim takes up to n runs.
func (s *store) claim(n int) []*engine.Claim {
	s.t.Helper()
	return s.claimWith(wanting(n))
}

func (s *store) claimWith(want engine.Want) []*engine.Claim {
	s.t.Helper()
	claims, err := s.Claim(s.t.Context(), want)
	if err != nil {
		s.t.Fatalf("claiming: %v", err)
	}
	return claims
}

// claimAll takes all that can be had, and expects it to be these runs.
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
		s.finish(s.claimFirst(run), ended())
	}
	s.claimAll()
}

// sameRuns expects claims of these runs, in any order.
func (s *store) sameRuns(what string, claims []*engine.Claim, runs ...*engine.Run) {
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
		s.t.Fatalf("%s %v, want %v", what, got, want)
	}
}

// shortLease is over soon. What happens then is waited for.
const shortLease = time.Millisecond

// abandon claims a run, which must be the next one, and lets the claim run out.
func (s *store) abandon(run *engine.Run) (old *engine.Claim) {
	s.t.Helper()
	claims := s.claimWith(engine.Want{Runs: 1, Lease: shortLease})
	s.sameRuns("claimed", claims, run)
	return claims[0]
}

// reclaim waits until a run whose claim runs out is handed out again.
func (s *store) reclaim(run *engine.Run) *engine.Claim {
	s.t.Helper()
	var claims []*engine.Claim
	eventually(s.t, "the run is handed out again", func() bool {
		claims = s.claim(1)
		return len(claims) > 0
	})
	s.sameRuns("claimed", claims, run)
	return claims[0]
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited for this in vain: %s", what)
		}
	}
}

// patience is how long something may take that should not take long.
const patience = 30 * time.Second

// finish ends a claimed run.
func (s *store) finish(claim *engine.Claim, end engine.End) {
	s.t.Helper()
	if next := s.finishAnd(claim, end, engine.Want{}); len(next) > 0 {
		s.t.Fatalf("finishing run %s claimed %d runs that nobody wanted", claim.Run.ID, len(next))
	}
}

func (s *store) finishAnd(claim *engine.Claim, end engine.End, want engine.Want) []*engine.Claim {
	s.t.Helper()
	next, err := s.Finish(s.t.Context(), claim, end, want)
	if err != nil {
		s.t.Fatalf("finishing run %s: %v", claim.Run.ID, err)
	}
	return next
}

// carryOut adds a run to a chat that has none, claims it and ends it.
func (s *store) carryOut(run *engine.Run, end engine.End) {
	s.t.Helper()
	s.add(run)
	s.finish(s.claimFirst(run), end)
}

func (s *store) release(claim *engine.Claim) {
	s.t.Helper()
	if err := s.Release(s.t.Context(), claim); err != nil {
		s.t.Fatalf("releasing run %s: %v", claim.Run.ID, err)
	}
}

func (s *store) withdraw(run *engine.Run, end engine.End) {
	s.t.Helper()
	if err := s.Withdraw(s.t.Context(), run.ID, end); err != nil {
		s.t.Fatalf("withdrawing run %s: %v", run.ID, err)
	}
}

// isLost expects that a claim does not hold any more, whatever is done with it, and that nothing comes of that.
func (s *store) isLost(claim *engine.Claim) {
	s.t.Helper()
	ctx, id := s.t.Context(), claim.Run.ID
	before := s.get(id)
	late := ended()
	late.Outcome.Text = "too late"
	late.Deliveries = []*engine.Delivery{newDelivery(claim.Run, 0, time.Now())}
	next, err := s.Finish(ctx, claim, late, wanting(10))
	if !errors.Is(err, engine.ErrClaimLost) {
		s.t.Errorf("Finish: got %v, want ErrClaimLost", err)
	}
	s.sameRuns("a Finish that did nothing claimed", next)
	if err := s.Release(ctx, claim); !errors.Is(err, engine.ErrClaimLost) {
		s.t.Errorf("Release: got %v, want ErrClaimLost", err)
	}
	lost, err := s.Renew(ctx, []*engine.Claim{claim}, time.Hour)
	if err != nil || len(lost) != 1 || lost[0] != claim {
		s.t.Errorf("Renew: got %v and %v, want the claim back", lost, err)
	}
	same(s.t, "the run of a lost claim", s.get(id), before)
	s.noneDue()
}

func (s *store) get(id string) *engine.Record {
	s.t.Helper()
	record, err := s.Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatalf("getting run %s: %v", id, err)
	}
	return record
}

// gone expects that a run is not known.
func (s *store) gone(id string) {
	s.t.Helper()
	if record, err := s.Get(s.t.Context(), id); !errors.Is(err, engine.ErrNotFound) {
		s.t.Errorf("getting run %q: got %+v and %v, want ErrNotFound", id, record, err)
	}
}

// status expects that a run is where it should be.
func (s *store) status(run *engine.Run, status engine.Status, attempts int) {
	s.t.Helper()
	if record := s.get(run.ID); record.Status != status || record.Attempts != attempts {
		s.t.Errorf("run %s is %s after %d attempts, want %s after %d", run.ID, record.Status, record.Attempts, status, attempts)
	}
}

// list collects all pages of a query. Cursor and Limit may be left out.
func (s *store) list(query engine.Query) []*engine.Record {
	s.t.Helper()
	if query.Limit == 0 {
		query.Limit = 1000
	}
	var all []*engine.Record
	for range 100_000 {
		page, next, err := s.List(s.t.Context(), query)
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

// due claims deliveries.
func (s *store) due(now time.Time, n int) (due []*engine.Delivery, next time.Time) {
	s.t.Helper()
	due, next, err := s.ClaimDeliveries(s.t.Context(), now, n)
	if err != nil {
		s.t.Fatalf("claiming deliveries: %v", err)
	}
	return due, next
}

// noneDue expects that no delivery waits, however long.
func (s *store) noneDue() {
	s.t.Helper()
	due, next := s.due(time.Now().Add(1000*time.Hour), 1)
	if len(due) > 0 || !next.IsZero() {
		s.t.Errorf("%d deliveries are due and the next one at %v, want none", len(due), next)
	}
}

// settle records the end of an attempt.
func (s *store) settle(d *engine.Delivery, status engine.DeliveryStatus, due time.Time, lastError string) {
	s.t.Helper()
	d.Status, d.Due, d.LastError = status, due, lastError
	d.Attempt++
	if err := s.SettleDelivery(s.t.Context(), d); err != nil {
		s.t.Fatalf("settling delivery %s: %v", d.ID, err)
	}
}

// prune forgets all that can be forgotten, and expects that this comes to an end.
func (s *store) prune(now time.Time, limits engine.Limits) {
	s.t.Helper()
	for range 10_000 {
		more, err := s.Prune(s.t.Context(), now, limits)
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
		Timeout: time.Minute, AcceptedAt: time.Now()}
}

// fullRun makes a run in which every field is set.
func fullRun(t *testing.T, chat string) *engine.Run {
	t.Helper()
	run := &engine.Run{
		ChatID: chat, Hook: "github", Action: engine.Agent, Name: "a label",
		Message: "line one\nline two", Metadata: []byte(`{ "b": 1.10,  "a": [null, "\u0000"], "a": 12345678901234567890 }`),
		Tier: "smart", ValidationTier: "deep", MemoryPreset: "general_chat", Schema: []byte("{\"type\":\t\"object\"}"),
		Sync: true, CallbackURL: "https://example.com/callback?a=b", Channel: "log", To: "somebody",
		Timeout: 90*time.Second + 7*time.Millisecond, AcceptedAt: time.Now(),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Key:         newKey(), Owner: "an engine",
	}
	run.ID = "not yet"
	allSet(t, run)
	run.ID = ""
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
	return engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "an answer", HasText: true}, At: time.Now()}
}

// endedAs is the end of a run that gave no answer.
func endedAs(status engine.Status, failure engine.Failure) engine.End {
	return engine.End{Outcome: engine.Outcome{Status: status, Failure: failure, Message: "why"}, At: time.Now()}
}

// newDelivery makes a delivery in which every field is set but LastError, and Channel and To or Callback. It shares its
// destination with no other.
func newDelivery(run *engine.Run, index int, due time.Time) *engine.Delivery {
	d := &engine.Delivery{
		ID: engine.DeliveryID(run.ID, index), RunID: run.ID, Index: index, ChatID: run.ChatID, RunStatus: engine.Completed,
		Callback:    fmt.Sprintf("https://%s.example.com/callback", run.ID),
		ContentType: "text/plain; charset=utf-8", Body: fmt.Sprintf("body %d of run %s", index, run.ID),
		Sent: 2, Status: engine.Pending, Restart: 3, CreatedAt: time.Now(), TriedAt: time.Now().Add(-time.Hour), Due: due,
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
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if where := difference(what, reflect.ValueOf(&got).Elem(), reflect.ValueOf(&want).Elem()); where != "" {
		t.Error(where)
	}
}

// difference says where two values differ. Times are equal if they are so to the microsecond. A byte slice that is nil is
// not the same as an empty one, since that can tell what is absent from what is empty.
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
			if d := difference(where+"."+got.Type().Field(i).Name, got.Field(i), want.Field(i)); d != "" {
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
