package stores

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
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
	add := func(id string) error {
		return store.Add(t.Context(), &engine.Run{ID: id, ChatID: id, Message: message}, engine.Limits{})
	}
	taken := 0
	for add(fmt.Sprint(taken)) == nil {
		taken++
	}
	if taken != 7 {
		t.Fatalf("%d runs of 64 MB were taken, want 7", taken)
	}
	if _, err := store.Claim(t.Context(), taken); err != nil {
		t.Fatal(err)
	}

	// A run that has ended makes room, unless its answer has to be delivered.
	delivery := &engine.Delivery{ID: "d", Body: message}
	if err := store.Finish(t.Context(), "0", engine.Outcome{}, []*engine.Delivery{delivery}); err != nil {
		t.Fatal(err)
	}
	if err := add("more"); !errors.Is(err, engine.ErrQueueFull) {
		t.Errorf("got %v, want ErrQueueFull", err)
	}
	due, _, err := store.ClaimDeliveries(t.Context(), time.Now(), 1)
	if err != nil || len(due) != 1 {
		t.Fatalf("got %v, %v", due, err)
	}
	if err := store.SettleDelivery(t.Context(), delivery, true); err != nil {
		t.Fatal(err)
	}
	if err := add("more"); err != nil {
		t.Errorf("there is room again, but: %v", err)
	}
}

func TestMemoryHandsOutDeliveriesAsTheyBecomeDue(t *testing.T) {
	store := newMemory(t)
	run := &engine.Run{ID: "r", ChatID: "c"}
	if err := store.Add(t.Context(), run, engine.Limits{}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Claim(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var all []*engine.Delivery
	for i, minutes := range []int{3, 1, 2} {
		all = append(all, &engine.Delivery{ID: fmt.Sprint(i), Due: start.Add(time.Duration(minutes) * time.Minute)})
	}
	if err := store.Finish(t.Context(), "r", engine.Outcome{}, all); err != nil {
		t.Fatal(err)
	}
	due, next, err := store.ClaimDeliveries(t.Context(), start, 10)
	if err != nil || len(due) != 0 || !next.Equal(start.Add(time.Minute)) {
		t.Errorf("at the start: %v, next %v, %v", due, next, err)
	}
	due, next, err = store.ClaimDeliveries(t.Context(), start.Add(2*time.Minute), 10)
	if err != nil || len(due) != 2 || due[0].ID != "1" || due[1].ID != "2" || !next.Equal(start.Add(3*time.Minute)) {
		t.Errorf("after two minutes: %v, next %v, %v", due, next, err)
	}
	due[0].Due = start.Add(10 * time.Minute)
	if err := store.SettleDelivery(t.Context(), due[0], false); err != nil {
		t.Fatal(err)
	}
	if due, _, err := store.ClaimDeliveries(t.Context(), start.Add(10*time.Minute), 1); err != nil || len(due) != 1 || due[0].ID != "0" {
		t.Errorf("the one that is due first is %v, %v", due, err)
	}
}

func TestMemoryKnowsWhichRunsWait(t *testing.T) {
	store := newMemory(t)
	for _, id := range []string{"1", "2"} {
		if err := store.Add(t.Context(), &engine.Run{ID: id, ChatID: "c"}, engine.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	if runs, err := store.Claim(t.Context(), 5); err != nil || len(runs) != 1 || runs[0].ID != "1" {
		t.Fatalf("claimed %v, %v", runs, err)
	}
	if err := store.Withdraw(t.Context(), "1", engine.Outcome{}, nil); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a claimed run was withdrawn: %v", err)
	}
	if err := store.Finish(t.Context(), "2", engine.Outcome{}, nil); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a queued run was finished: %v", err)
	}
	if err := store.Release(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if runs, err := store.Claim(t.Context(), 5); err != nil || len(runs) != 1 || runs[0].ID != "1" {
		t.Errorf("after the release %v, %v is claimed, want the same run again", runs, err)
	}
	if err := store.Withdraw(t.Context(), "2", engine.Outcome{}, nil); err != nil {
		t.Error(err)
	}
	if err := store.Finish(t.Context(), "1", engine.Outcome{}, nil); err != nil {
		t.Error(err)
	}
	if err := store.Finish(t.Context(), "1", engine.Outcome{}, nil); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a run was finished twice: %v", err)
	}
	if runs, err := store.Claim(t.Context(), 5); err != nil || len(runs) != 0 {
		t.Errorf("there is still %v, %v", runs, err)
	}
}
