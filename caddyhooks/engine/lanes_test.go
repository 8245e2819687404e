package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// What Lanes does is compared with lists that are searched from end to end.
func TestLanesKeepOrderUnderRandomUse(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		var lanes Lanes[string]
		queued := make(map[string][]string) // by chat
		places := make(map[string]*Place[string])
		claimed := make(map[string]string) // run by chat
		next := 0
		for range 300 {
			chat := fmt.Sprint("chat", rnd.IntN(4))
			switch rnd.IntN(5) {
			case 0, 1:
				id := fmt.Sprintf("%s/%d", chat, next)
				next++
				place, ready := lanes.Push(chat, id)
				if wantReady := len(queued[chat]) == 0 && claimed[chat] == ""; ready != wantReady {
					t.Fatalf("round %d: Push said ready=%v, want %v", round, ready, wantReady)
				}
				places[id] = place
				queued[chat] = append(queued[chat], id)
			case 2:
				place, ok := lanes.Pop()
				claimable := false
				for c, ids := range queued {
					claimable = claimable || len(ids) > 0 && claimed[c] == ""
				}
				if ok != claimable {
					t.Fatalf("round %d: Pop said %v, want %v", round, ok, claimable)
				}
				if !ok {
					continue
				}
				c := place.lane.chat
				if claimed[c] != "" || queued[c][0] != place.Item {
					t.Fatalf("round %d: popped %s, queued are %v, claimed is %q", round, place.Item, queued[c], claimed[c])
				}
				claimed[c] = place.Item
				queued[c] = queued[c][1:]
			case 3:
				if id := claimed[chat]; id != "" {
					delete(claimed, chat)
					if rnd.IntN(2) == 0 {
						lanes.Return(places[id])
						queued[chat] = append([]string{id}, queued[chat]...)
					} else {
						lanes.Done(places[id])
					}
				}
			case 4:
				if n := len(queued[chat]); n > 0 {
					i := rnd.IntN(n)
					lanes.Done(places[queued[chat][i]])
					queued[chat] = slices.Delete(queued[chat], i, i+1)
				}
			}
			total := 0
			for c, ids := range queued {
				total += len(ids)
				if lanes.QueuedIn(c) != len(ids) {
					t.Fatalf("round %d: %d queued in %s, want %d", round, lanes.QueuedIn(c), c, len(ids))
				}
				if len(ids) == 0 && claimed[c] == "" && lanes.lanes[c] != nil {
					t.Fatalf("round %d: the empty lane of %s is kept", round, c)
				}
			}
			if lanes.Queued() != total {
				t.Fatalf("round %d: %d queued, want %d", round, lanes.Queued(), total)
			}
		}
	}
}

func TestBusyChatDoesNotStarveOthers(t *testing.T) {
	var lanes Lanes[string]
	for i := range 100 {
		lanes.Push("busy", fmt.Sprint("busy", i))
	}
	lanes.Push("quiet", "quiet")
	first, _ := lanes.Pop()
	lanes.Done(first)
	if second, _ := lanes.Pop(); second.Item != "quiet" {
		t.Errorf("the second run is %s, want that of the quiet chat", second.Item)
	}
}
