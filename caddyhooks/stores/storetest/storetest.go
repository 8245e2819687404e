// Package storetest checks that a store keeps to the contract of engine.Store.
//
// It looks at stores through that interface alone, and asks for nothing that only some of them can do: a store may be
// shared by several processes, may have a clock of its own that goes on or stands still, and may round times to
// microseconds.
package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Options describes a store to the suite. Only Advance is needed for all stores.
type Options struct {
	// Advance lets the store's clock go forward. The clock is that of the store's data: all nodes share it, Reopen does not
	// set it back, and the clocks of other stores stay as they are.
	Advance func(t *testing.T, s engine.Store, d time.Duration)

	// SetClock sets the clock of the store's data forward or back, as somebody may set that of a machine, though no time
	// passes. It is nil for stores whose clock nobody sets.
	SetClock func(t *testing.T, s engine.Store, d time.Duration)

	// Reopen closes a store and opens the same data again. It is nil for stores that do not outlive their process.
	Reopen func(t *testing.T, s engine.Store) engine.Store

	// Join opens the data of an open store as another node. It is nil for stores that one node has to itself.
	Join func(t *testing.T, s engine.Store) engine.Store

	// IDsAscend says that ids are in the order in which runs were added. Stores need not promise it.
	IDsAscend bool

	// ClaimsAtOnce says that the store can accept runs and claim some in one step.
	ClaimsAtOnce bool

	// Only names the concerns to check. If there are none, all are checked.
	Only []string
}

// Run checks stores that open makes. It has to make a new and empty one every time. Run closes them. The checks run in
// parallel, and go on when Run has returned; whatever they need is released with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) engine.Store, options Options) {
	if options.Advance == nil {
		t.Fatal("the options have no Advance")
	}
	concerns := []struct {
		name    string
		checks  []check
		applies bool
	}{
		{"Order", orderChecks, true},
		{"Limits", limitChecks, true},
		{"Claims", claimChecks, true},
		{"Leases", leaseChecks, true},
		{"Waits", waitChecks, true},
		{"Ends", endChecks, true},
		{"Folds", foldChecks, true},
		{"Several", severalChecks, true},
		{"Cancel", cancelChecks, true},
		{"Records", recordChecks, true},
		{"List", listChecks, true},
		{"Chats", chatChecks, true},
		{"Deliveries", deliveryChecks, true},
		{"Throttles", throttleChecks, true},
		{"Keys", keyChecks, true},
		{"AddAndClaim", addAndClaimChecks, options.ClaimsAtOnce},
		{"Beside", besideChecks, true},
		{"AddAndClaimOfNodes", addAndClaimNodeChecks, options.ClaimsAtOnce && options.Join != nil},
		{"DurableAddAndClaim", durableAddAndClaimChecks, options.ClaimsAtOnce && options.Reopen != nil},
		{"Gates", gateChecks, true},
		{"GatesOfNodes", gateNodeChecks, options.Join != nil},
		{"DurableGates", durableGateChecks, options.Reopen != nil},
		{"Pruning", pruneChecks, true},
		{"History", historyChecks, true},
		{"Again", againChecks, true},
		{"Past", pastChecks, true},
		{"Sessions", sessionChecks, true},
		{"Settings", settingsChecks, true},
		{"Documents", documentChecks, true},
		{"Minutes", minuteChecks, true},
		{"Ledger", ledgerChecks, true},
		{"DurableLedger", durableLedgerChecks, options.Reopen != nil},
		{"LedgerOfNodes", ledgerNodeChecks, options.Join != nil},
		{"Backlog", backlogChecks, true},
		{"Watch", watchChecks, true},
		{"Streams", streamChecks, true},
		{"Concurrency", concurrencyChecks, true},
		{"Durability", durabilityChecks, options.Reopen != nil},
		{"SetClock", setClockChecks, options.SetClock != nil},
		{"DurableSetClock", durableSetClockChecks, options.SetClock != nil && options.Reopen != nil},
		{"Nodes", nodeChecks, options.Join != nil},
		{"Questions", questionChecks, true},
		{"QuestionsOfNodes", questionNodeChecks, options.Join != nil},
		{"DurableQuestions", durableQuestionChecks, options.Reopen != nil},
		{"SetClockQuestions", setClockQuestionChecks, options.SetClock != nil},
		{"DurableSetClockQuestions", durableSetClockQuestionChecks, options.SetClock != nil && options.Reopen != nil},
	}
	for _, concern := range concerns {
		if !concern.applies || len(options.Only) > 0 && !slices.Contains(options.Only, concern.name) {
			continue
		}
		t.Run(concern.name, func(t *testing.T) {
			t.Parallel()
			for _, check := range concern.checks {
				t.Run(check.name, func(t *testing.T) {
					t.Parallel()
					s := &store{Store: open(t), t: t, options: options, clock: &clock{began: time.Now()}, tokens: new(tokens)}
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
