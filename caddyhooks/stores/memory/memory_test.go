package memory

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func newMemory(t *testing.T) engine.Store {
	t.Helper()
	store, err := Memory{}.OpenStore(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestMemoryTakesNoMoreThanItsShare(t *testing.T) {
	store := newMemory(t)
	message := strings.Repeat("x", 64<<20) // one string, counted for every run that has it
	added := 0
	add := func() error {
		added++
		return store.Runs().Add(t.Context(), &engine.Run{ChatID: fmt.Sprint(added), Message: message}, engine.Terms{})
	}
	taken := 0
	for add() == nil {
		taken++
	}
	if taken != 7 {
		t.Fatalf("%d runs of 64 MB were taken, want 7", taken)
	}
	claims, _, err := store.Runs().Claim(t.Context(), engine.Batch{Max: taken, Lease: time.Hour})
	if err != nil || len(claims) != taken {
		t.Fatalf("claimed %d runs: %v", len(claims), err)
	}
	finish := func(claim *engine.Claim, deliveries ...*engine.Delivery) {
		t.Helper()
		end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}, Deliveries: deliveries}
		if _, err := store.Runs().End(t.Context(), claim, end, engine.Batch{}); err != nil {
			t.Fatal(err)
		}
	}

	// A run that has ended makes room, unless its answer has to be delivered.
	delivery := &engine.Delivery{ID: "d", RunID: claims[0].Run.ID, Status: engine.Pending, Body: message}
	finish(claims[0], delivery)
	if err := add(); !errors.Is(err, engine.ErrQueueFull) {
		t.Errorf("got %v, want ErrQueueFull", err)
	}
	due, _, err := store.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 1, Lease: time.Minute})
	if err != nil || len(due) != 1 {
		t.Fatalf("got %v, %v", due, err)
	}
	due[0].Status = engine.Delivered
	if err := store.Deliveries().Settle(t.Context(), due[0], 0); err != nil {
		t.Fatal(err)
	}
	if err := add(); err != nil {
		t.Errorf("there is room again, but: %v", err)
	}
	if err := add(); !errors.Is(err, engine.ErrQueueFull) {
		t.Errorf("got %v, want ErrQueueFull", err)
	}
}

func TestMemoryIsGivenBack(t *testing.T) {
	s := newMemory(t).(*store)
	limits := engine.Limits{Retention: time.Hour, KeyAge: time.Hour}
	for i := range 3000 {
		run := &engine.Run{ChatID: fmt.Sprint(i % 7), Message: "message", Key: &engine.Key{ID: [32]byte{byte(i), byte(i >> 8)}}}
		if err := s.Runs().Add(t.Context(), run, engine.Terms{Limits: limits}); err != nil {
			t.Fatal(err)
		}
		end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: "text", JSON: []byte("1")}}
		if i%2 == 0 {
			end.Outcome.Status = engine.Cancelled
		}
		end.Deliveries = []*engine.Delivery{{RunID: run.ID, Status: engine.Pending, Body: "body"}}
		claim := func(runs int, lease time.Duration) []*engine.Claim {
			claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: runs, Lease: lease})
			if err != nil || len(claims) != runs {
				t.Fatalf("claimed %v: %v", claims, err)
			}
			return claims
		}
		if i%3 > 0 {
			claim(1, 0) // which is over at once
		}
		if i%3 > 1 {
			claim(0, 0) // notices that
			if _, err := s.Runs().End(t.Context(), &engine.Claim{Run: run}, end, engine.Batch{}); err != nil {
				t.Fatal(err)
			}
		} else if _, err := s.Runs().End(t.Context(), claim(1, time.Hour)[0], end, engine.Batch{}); err != nil {
			t.Fatal(err)
		}
	}
	settled := 0
	for {
		due, _, err := s.Deliveries().Claim(t.Context(), engine.DeliveryBatch{Max: 5000, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(due) == 0 {
			break
		}
		for _, d := range due {
			d.Status = []engine.DeliveryStatus{engine.Delivered, engine.Dead}[settled%2]
			if err := s.Deliveries().Settle(t.Context(), d, 0); err != nil {
				t.Fatal(err)
			}
			settled++
		}
	}
	if settled != 3000 {
		t.Fatalf("%d deliveries were due", settled)
	}
	for _, first := range s.keys {
		if first.Message != "" {
			t.Fatal("a key keeps the message of a run that has ended")
		}
	}
	s.clock.Advance(2 * time.Hour)
	for more := true; more; {
		var err error
		if more, err = s.Prune(t.Context(), limits); err != nil {
			t.Fatal(err)
		}
	}
	for what, n := range map[string]int{
		"runs": len(s.runs), "ended runs": len(s.over.entries), "keys": len(s.keys), "runs with keys": len(s.keyOrder),
		"bytes": s.bytes, "ids": len(s.order), "hooks": len(s.indexes.hooks),
		"statuses": len(s.indexes.notable), "chats": len(s.indexes.chats), "active chats": s.indexes.active.Len(),
	} {
		if n != 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
	if size := s.queue.Size(); size != (local.QueueSize{}) {
		t.Errorf("left in the queue: %+v", size)
	}
	if size := s.outbox.Size(); size != (local.OutboxSize{}) {
		t.Errorf("left in the outbox: %+v", size)
	}
}

func TestMemoryListsWhatIsFarBehindOthers(t *testing.T) {
	store := newMemory(t)
	for i := range 2*local.ListLooksAt + 5 {
		run := &engine.Run{ChatID: "a", Hook: "busy", Message: "common"}
		if i == 0 {
			run.Message = "rare"
		}
		if err := store.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	query := engine.Query{Text: "rare", Limit: 10}
	found, pages := 0, 0
	for more := true; more; pages++ {
		page, next, err := store.Runs().List(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		found += len(page)
		query.Cursor, more = next, next != ""
	}
	if found != 1 || pages != 3 {
		t.Errorf("found %d runs on %d pages, want one on the third", found, pages)
	}
}
