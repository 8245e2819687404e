package contract

import (
	"encoding/json"
	"errors"
	"hash/maphash"
	"maps"
	"math/big"
	"reflect"
	"slices"
)

// An evaluation is the guard of one validation. The library calls enter before a subschema evaluates a value, but after
// its type, const and enum, and leave at the end. All costs are upper bounds. They are paid before the work is done.
// A subschema pays for its own subschemas as well: a subschema that fails by its type never calls enter.
type evaluation struct {
	*budget
	size   documentSize
	memory int // bytes left for frames, and for errors, which are all kept until the end
	frames []frame
}

// A frame is a subschema that has been entered and not left.
type frame struct {
	path int // length of the path through the schema
	held int // bytes
}

const (
	maxFrames   = 1_000
	maxMemory   = 32 << 20
	patternStep = 15 // work of one instruction of a regular expression on one byte
)

var errTooLarge = errors.New("it is too large to be checked")

func newEvaluation(size documentSize, b *budget) *evaluation {
	return &evaluation{budget: b, size: size, memory: maxMemory, frames: make([]frame, 0, 16)}
}

func (e *evaluation) reserve(bytes int) {
	e.memory -= bytes
	if e.memory < 0 || bytes < 0 { // too large for an int of 32 bits
		panic(errTooLarge)
	}
}

// callCost is the work of calling a subschema with any value.
func (e *evaluation) callCost() int { return 500 + 12*len(e.frames) + e.size.path/8 }

// loadCost is the work of a subschema on a value before the guard is called.
func (e *evaluation) loadCost(v any) int {
	if _, ok := v.(json.Number); ok {
		return e.size.numberCost
	}
	return 150 * childCount(v)
}

func (e *evaluation) enter(p *subschema, v any) {
	if len(e.frames) == maxFrames {
		panic(errTooLarge)
	}
	path := p.step
	if n := len(e.frames); n > 0 {
		path += e.frames[n-1].path
	}
	held := 1_000 + 100*childCount(v)
	e.reserve(held)
	e.frames = append(e.frames, frame{path, held})

	e.spend(60*p.values + 2*p.numbers*(e.size.numberCost+p.numberCost))
	calls := p.inPlace // of subschemas below
	load := p.inPlace * e.loadCost(v)
	names := 0 // bytes
	switch v := v.(type) {
	case map[string]any:
		if p.onMembers > 0 {
			for name, member := range v {
				names += len(name)
				load += p.onMembers * e.loadCost(member)
			}
		}
		calls += p.onMembers * len(v)
		e.spend(60*(p.lookups+(1+p.namePatterns)*len(v)) + patternStep*p.nameProgram*(names+len(v)))
	case []any:
		if p.onItems > 0 {
			for _, item := range v {
				load += p.onItems * e.loadCost(item)
			}
		}
		calls += p.onItems * len(v)
		if p.unique {
			e.payForUnique(v)
		}
	case string:
		e.spend(2*p.lengths*len(v) + patternStep*p.pattern*(len(v)+1))
	case json.Number:
		e.spend(4 * p.bounds * (e.size.numberCost + p.numberCost))
	}
	depth := len(e.frames)
	if p.dynamic {
		e.spend(3 * depth * maxDynamicAnchors)
	}
	errorCost := 600 + depth*(60+path/16)
	errorBytes := 280 + 2*path + len(p.at) + e.size.path
	e.spend(calls*(e.callCost()+errorCost) + load + p.errors*errorCost + 4*p.messages)
	e.reserve((calls+p.errors)*errorBytes + p.messages + 8*names)
}

func (e *evaluation) leave() {
	last := len(e.frames) - 1
	e.memory += e.frames[last].held
	e.frames = e.frames[:last]
}

// payForUnique pays for finding equal items. The library compares items whose hashes are equal, and hashes without
// marking where a value ends, so that many different items can be made to have the same one.
func (e *evaluation) payForUnique(items []any) {
	nodes, flat := 0, true
	for _, item := range items {
		flat = flat && childCount(item) == 0
		nodes += countNodes(item)
	}
	pairs := len(items) * nodes / 2 * (20 + 2*e.size.numberCost)
	if len(items) <= 20 { // the library compares them all
		e.spend(pairs)
		return
	}
	e.spend(nodes * (300 + 2*e.size.numberCost))
	if flat {
		return
	}
	var h maphash.Hash
	first := make(map[uint64]any, len(items))
	for _, item := range items {
		h.Reset()
		hashLikeLibrary(item, &h)
		sum := h.Sum64()
		if other, found := first[sum]; !found {
			first[sum] = item
		} else if reflect.DeepEqual(item, other) {
			return // the library goes no further
		} else {
			e.spend(pairs)
			return
		}
	}
}

func hashLikeLibrary(v any, h *maphash.Hash) {
	switch v := v.(type) {
	case nil:
		_ = h.WriteByte(0)
	case bool:
		_, _ = h.WriteString(map[bool]string{false: "\x01\x00", true: "\x01\x01"}[v])
	case json.Number:
		r, _ := new(big.Rat).SetString(string(v))
		_ = h.WriteByte(2)
		_, _ = h.Write(r.Num().Bytes())
		_, _ = h.Write(r.Denom().Bytes())
	case string:
		_ = h.WriteByte(3)
		_, _ = h.WriteString(v)
	case []any:
		_ = h.WriteByte(4)
		for _, item := range v {
			hashLikeLibrary(item, h)
		}
	case map[string]any:
		_ = h.WriteByte(5)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			hashLikeLibrary(key, h)
			hashLikeLibrary(v[key], h)
		}
	}
}

// countNodes counts a long string as several nodes.
func countNodes(v any) int {
	nodes := 1
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			nodes += 1 + len(key)/256 + countNodes(member)
		}
	case []any:
		for _, item := range v {
			nodes += countNodes(item)
		}
	case string:
		nodes += len(v) / 256
	}
	return nodes
}
