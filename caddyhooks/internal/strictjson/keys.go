package strictjson

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// openKeys are the keys of all objects that are open, those of the innermost object last. Duplicates are found by their
// hashes. The hashes of a small object are compared one by one; a large object has an index of them.
type openKeys struct {
	keys  []key
	index []uint32 // hash tables with open addressing, one after the other: 0, or 1 + the number of a key in its object
}

type key struct {
	hash  uint64
	start int // in the document
}

// An openObject says which of the open keys are its own.
type openObject struct {
	keys  int // its first key
	index int // its first place in the index
}

const (
	fewKeys  = 32 // more get an index
	minIndex = 4 * fewKeys
)

// hashSeed is secret, so that nobody can send many keys with the same hash.
var hashSeed = maphash.MakeSeed()

func (o *openKeys) openObject() openObject { return openObject{len(o.keys), len(o.index)} }

func (o *openKeys) closeObject(object openObject) {
	o.keys = o.keys[:object.keys]
	o.index = o.index[:object.index]
}

// addKey adds a key to the innermost object and reports whether it is new.
func (p *parser) addKey(object openObject, t text) (isNew bool) {
	hash := maphash.Bytes(hashSeed, p.bytes(t))
	own := p.keys[object.keys:]
	if len(own) < fewKeys {
		for i := range own {
			if own[i].hash == hash && p.sameKey(own[i], t) {
				return false
			}
		}
		p.keys = append(p.keys, key{hash, t.start})
		return true
	}
	if 2*len(own) >= len(p.index)-object.index {
		p.growIndex(object)
	}
	table := p.index[object.index:]
	at := place(table, hash)
	for ; table[at] != 0; at = (at + 1) & (len(table) - 1) {
		if other := own[table[at]-1]; other.hash == hash && p.sameKey(other, t) {
			return false
		}
	}
	p.keys = append(p.keys, key{hash, t.start})
	table[at] = uint32(len(own) + 1)
	return true
}

// sameKey compares keys that have the same hash, which different keys almost never have.
func (p *parser) sameKey(k key, t text) bool {
	other := scanner{data: p.data, pos: k.start - 1}
	o, _ := other.text() // was checked before
	return bytes.Equal(appendText(nil, p.data, o), p.bytes(t))
}

// growIndex makes an index of the innermost object, or doubles it.
func (o *openKeys) growIndex(object openObject) {
	size := max(minIndex, 2*(len(o.index)-object.index))
	o.index = slices.Grow(o.index[:object.index], size)[:object.index+size]
	table := o.index[object.index:]
	clear(table)
	for i, k := range o.keys[object.keys:] {
		at := place(table, k.hash)
		for table[at] != 0 {
			at = (at + 1) & (len(table) - 1)
		}
		table[at] = uint32(i + 1)
	}
}

// place is where the search for a hash starts. The size of a table is a power of two.
func place(table []uint32, hash uint64) int { return int(hash & uint64(len(table)-1)) }
