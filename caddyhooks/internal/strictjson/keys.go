package strictjson

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// openKeys are the keys of all open objects, the innermost object last. Keys are compared by numbers that almost never
// agree for different keys. In a small object each key is compared with all others; a large object has an index.
type openKeys struct {
	keys  []key
	index []uint32 // hash tables with open addressing, one after the other: 0, or 1 + the number of a key in its object
}

type key struct {
	number uint64 // its fingerprint in a small object, its hash in a large one
	start  int    // in the document
}

// An openObject says which of the open keys are its own.
type openObject struct {
	keys  int // its first key
	index int // its first place in the index
}

const (
	shortKey = 8  // bytes that fit into a number
	fewKeys  = 32 // more get an index
	minIndex = 4 * fewKeys
)

func (o *openKeys) openObject() openObject { return openObject{len(o.keys), len(o.index)} }

func (o *openKeys) closeObject(object openObject) {
	o.keys = o.keys[:object.keys]
	o.index = o.index[:object.index]
}

// addKey adds a key to the innermost object and reports whether it is new.
func (p *parser) addKey(object openObject, t text) (isNew bool) {
	own := p.keys[object.keys:]
	if len(own) >= fewKeys {
		return p.addIndexed(object, t)
	}
	var number uint64
	if length := t.end - t.start; length <= shortKey && !t.escaped && len(p.data)-t.start >= shortKey {
		number = binary.LittleEndian.Uint64(p.data[t.start:]) & (1<<(8*length) - 1)
	} else {
		number = fingerprint(p.bytes(t))
	}
	for i := range own {
		if own[i].number == number && p.isKey(own[i], t) {
			return false
		}
	}
	p.keys = append(p.keys, key{number, t.start})
	return true
}

// addIndexed is addKey for a large object.
func (p *parser) addIndexed(object openObject, t text) (isNew bool) {
	own := p.keys[object.keys:]
	if len(own) == fewKeys {
		for i := range own {
			own[i].number = hash(appendText(nil, p.data, p.keyText(own[i])))
		}
	}
	if 2*len(own) >= len(p.index)-object.index {
		p.growIndex(object)
	}
	number := hash(p.bytes(t))
	table := p.index[object.index:]
	at := place(table, number)
	for ; table[at] != 0; at = (at + 1) & (len(table) - 1) {
		if other := own[table[at]-1]; other.number == number && p.isKey(other, t) {
			return false
		}
	}
	table[at] = uint32(len(own) + 1)
	p.keys = append(p.keys, key{number, t.start})
	return true
}

// growIndex makes an index of the innermost object, or doubles it.
func (o *openKeys) growIndex(object openObject) {
	size := max(minIndex, 2*(len(o.index)-object.index))
	o.index = slices.Grow(o.index[:object.index], size)[:object.index+size]
	table := o.index[object.index:]
	clear(table)
	for i, k := range o.keys[object.keys:] {
		at := place(table, k.number)
		for table[at] != 0 {
			at = (at + 1) & (len(table) - 1)
		}
		table[at] = uint32(i + 1)
	}
}

// place is where the search for a hash starts. The size of a table is a power of two.
func place(table []uint32, hash uint64) int { return int(hash) & (len(table) - 1) }

// isKey compares keys that have the same number.
func (p *parser) isKey(k key, t text) bool {
	return bytes.Equal(appendText(nil, p.data, p.keyText(k)), p.bytes(t))
}

// keyText finds the text of an open key again.
func (p *parser) keyText(k key) text {
	s := scanner{data: p.data, pos: k.start - 1}
	t, _ := s.text() // was checked before
	return t
}

// fingerprint is the text of a short key as a number, and the hash of a long one.
func fingerprint(name []byte) uint64 {
	if len(name) > shortKey {
		return hash(name)
	}
	var padded [shortKey]byte
	copy(padded[:], name)
	return binary.LittleEndian.Uint64(padded[:])
}

func hash(name []byte) uint64 { return maphash.Bytes(hashSeed, name) }

// hashSeed is secret, so that nobody can send many keys with the same hash.
var hashSeed = maphash.MakeSeed()
