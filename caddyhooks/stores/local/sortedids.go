package local

import (
	"slices"
	"sort"

	"github.com/google/uuid"
)

// sortedIDs are ids, the smallest first, in chunks, so that none is far to be moved when another one comes or goes. Most come in order.
type sortedIDs struct{ chunks [][]uuid.UUID } // none is empty

// idChunk is how many ids a chunk has at most.
const idChunk = 512

// chunkOf is the chunk that an id belongs to.
func (s *sortedIDs) chunkOf(id uuid.UUID) int {
	after := sort.Search(len(s.chunks), func(n int) bool { return compareIDs(s.chunks[n][0], id) > 0 })
	return max(after-1, 0)
}

func (s *sortedIDs) add(id uuid.UUID) {
	if len(s.chunks) == 0 {
		s.chunks = [][]uuid.UUID{{id}}
		return
	}
	n := s.chunkOf(id)
	chunk := s.chunks[n]
	at, there := slices.BinarySearchFunc(chunk, id, compareIDs)
	switch {
	case there:
	case len(chunk) < idChunk:
		s.chunks[n] = slices.Insert(chunk, at, id)
	case at == len(chunk):
		s.chunks = slices.Insert(s.chunks, n+1, []uuid.UUID{id})
	default:
		s.chunks[n] = chunk[:idChunk/2]
		s.chunks = slices.Insert(s.chunks, n+1, slices.Clone(chunk[idChunk/2:]))
		s.add(id)
	}
}

func (s *sortedIDs) remove(id uuid.UUID) {
	if len(s.chunks) == 0 {
		return
	}
	n := s.chunkOf(id)
	at, there := slices.BinarySearchFunc(s.chunks[n], id, compareIDs)
	if !there {
		return
	}
	chunk := slices.Delete(s.chunks[n], at, at+1)
	switch {
	case len(chunk) == 0:
		s.chunks = slices.Delete(s.chunks, n, n+1)
	case n+1 < len(s.chunks) && len(chunk)+len(s.chunks[n+1]) <= idChunk/2:
		s.chunks[n] = append(chunk, s.chunks[n+1]...)
		s.chunks = slices.Delete(s.chunks, n+1, n+2)
	default:
		s.chunks[n] = chunk
	}
}

// in goes over the ids in a range, in its order.
func (s *sortedIDs) in(within *IDRange, yield func(uuid.UUID) bool) {
	begin, step := within.Begin(), 1
	if within.Descending {
		step = -1
	}
	for n := s.chunkOf(begin); n >= 0 && n < len(s.chunks); n += step {
		chunk := s.chunks[n]
		i := 0
		if within.Descending {
			i = len(chunk) - 1
		}
		for ; i >= 0 && i < len(chunk); i += step {
			id := chunk[i]
			if within.IsBefore(id[:], begin[:]) {
				continue
			}
			if !within.Has(id[:]) || !yield(id) {
				return
			}
		}
	}
}
