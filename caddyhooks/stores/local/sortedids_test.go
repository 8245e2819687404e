package local

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"
)

func TestSortedIDsAreThoseOfAPlainList(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	newID := func(n int) (id uuid.UUID) {
		binary.BigEndian.PutUint64(id[8:], uint64(n))
		return id
	}
	var sorted sortedIDs
	var model []uuid.UUID
	for step := range 40_000 {
		id := newID(random.IntN(4 * idChunk))
		if step%3 == 0 {
			id = newID(step) // in order, as most are
		}
		at, there := slices.BinarySearchFunc(model, id, compareIDs)
		switch {
		case step/8000%2 == 1 && random.IntN(4) > 0 && len(model) > 0: // it shrinks
			at = random.IntN(len(model))
			sorted.remove(model[at])
			model = slices.Delete(model, at, at+1)
		case random.IntN(3) == 0:
			sorted.remove(id)
			if there {
				model = slices.Delete(model, at, at+1)
			}
		default:
			sorted.add(id)
			if !there {
				model = slices.Insert(model, at, id)
			}
		}
		if step%500 > 0 {
			continue
		}
		for _, chunk := range sorted.chunks {
			if len(chunk) == 0 || len(chunk) > idChunk {
				t.Fatalf("step %d: a chunk has %d ids", step, len(chunk))
			}
		}
		within := IDRange{First: newID(random.IntN(3000)), Last: newID(random.IntN(50_000)), Descending: step%1000 == 0}
		var got, want []uuid.UUID
		sorted.in(&within, func(id uuid.UUID) bool {
			got = append(got, id)
			return len(got) < 1000
		})
		for _, id := range model {
			if within.Has(id[:]) {
				want = append(want, id)
			}
		}
		if within.Descending {
			slices.Reverse(want)
		}
		if want = want[:min(len(want), 1000)]; !slices.Equal(got, want) {
			t.Fatalf("step %d: got %d ids, want %d", step, len(got), len(want))
		}
	}
	if len(model) < 100 {
		t.Errorf("only %d ids were left", len(model))
	}
}
