package strictjson

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// openKeys are the keys of all open objects. In a small object each key is compared with all others, by numbers that almost
// never agree for different keys. A large object has an index, which takes a few bytes for each key.
type openKeys struct {
	keys  []key      // of the small objects, the innermost object last
	spare [][]uint32 // indexes of the smallest size, for the next large objects
	other []byte     // for keys with escapes that are compared with another one
}

type key struct {
	number uint64 // its fingerprint
	start  int    // in the document
}

// An openObject knows its own keys.
type openObject struct {
	keys    int      // the place of its first key, while it is small
	index   []uint32 // a hash table with open addressing: 0, or where a key starts in the document
	indexed int      // how many keys the index has
}

const (
	shortKey = 8  // bytes that fit into a number
	fewKeys  = 32 // more get an index
	minIndex = 4 * fewKeys
)

func (o *openKeys) openObject() openObject { return openObject{keys: len(o.keys)} }

func (o *openKeys) closeObject(object *openObject) {
	o.keys = o.keys[:object.keys]
	if len(object.index) == minIndex {
		o.spare = append(o.spare, object.index)
	}
}

// addKey adds a key to the innermost object and reports whether it is new.
func (p *parser) addKey(object *openObject, t text) (isNew bool) {
	if object.index != nil {
		return p.addIndexed(object, t)
	}
	var number uint64
	if length := t.end - t.start; length <= shortKey && !t.escaped && len(p.data)-t.start >= shortKey {
		number = binary.LittleEndian.Uint64(p.data[t.start:]) & (1<<(8*length) - 1)
	} else {
		number = fingerprint(p.bytes(t))
	}
	own := p.keys[object.keys:]
	for i := range own {
		if own[i].number == number && p.isKey(own[i].start, t) {
			return false
		}
	}
	p.keys = append(p.keys, key{number, t.start})
	if len(own) == fewKeys {
		p.makeIndex(object)
	}
	return true
}

// addIndexed is addKey for a large object.
func (p *parser) addIndexed(object *openObject, t text) (isNew bool) {
	if object.indexed >= len(object.index)/4*3 {
		p.growIndex(object)
	}
	table := object.index
	at := place(table, hash(p.bytes(t)))
	for ; table[at] != 0; at = (at + 1) & (len(table) - 1) {
		if p.isKey(int(table[at]), t) {
			return false
		}
	}
	table[at] = uint32(t.start)
	object.indexed++
	return true
}

// makeIndex makes the innermost object a large one.
func (p *parser) makeIndex(object *openObject) {
	if last := len(p.spare) - 1; last >= 0 {
		object.index = p.spare[last]
		p.spare = p.spare[:last]
		clear(object.index)
	} else {
		object.index = make([]uint32, minIndex)
	}
	for _, k := range p.keys[object.keys:] {
		p.index(object, k.start)
	}
	p.keys = p.keys[:object.keys]
}

// growIndex doubles the index of an object.
func (p *parser) growIndex(object *openObject) {
	before := object.index
	object.index, object.indexed = make([]uint32, 2*len(before)), 0
	for _, start := range before {
		if start != 0 {
			p.index(object, int(start))
		}
	}
}

// index adds a key that is known to be new to the index of its object.
func (p *parser) index(object *openObject, start int) {
	table := object.index
	at := place(table, hash(p.keyBytes(start)))
	for table[at] != 0 {
		at = (at + 1) & (len(table) - 1)
	}
	table[at] = uint32(start)
	object.indexed++
}

// place is where the search for a hash starts. The size of a table is a power of two.
func place(table []uint32, hash uint64) int { return int(hash) & (len(table) - 1) }

// isKey compares the open key that starts at a place with another one.
func (p *parser) isKey(start int, t text) bool {
	if !t.escaped {
		name, open := p.data[t.start:t.end], p.data[start:t.start]
		same := 0
		for same < len(name) && open[same] == name[same] {
			same++
		}
		if open[same] != '\\' {
			return same == len(name) && open[same] == '"'
		}
	}
	return bytes.Equal(p.keyBytes(start), p.bytes(t))
}

// keyBytes finds an open key again. The bytes are good until the next call.
func (p *parser) keyBytes(start int) []byte {
	s := scanner{data: p.data, pos: start - 1}
	t, _ := s.text() // was checked before
	if !t.escaped {
		return p.data[t.start:t.end]
	}
	p.other = appendText(slices.Grow(p.other[:0], t.end-t.start), p.data, t)
	return p.other
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
