package strictjson

import "math"

// A Selection names the parts of a value that a caller needs: the whole value, or members of an object, or items of an
// array. The zero value selects nothing of it. An object or array without a selected part is empty in the result.
type Selection struct {
	all     bool
	names   bool // all members, of which those in members have selected parts
	members map[string]*Selection
	items   *Selection
	first   int // items from the start of an array
	last    int // items before its end
}

var wholeDocument = &Selection{all: true}

// Whole selects the whole value.
func Whole() *Selection { return wholeDocument }

// Members selects members of an object, but no parts of objects and arrays in them.
func Members(names ...string) *Selection {
	s := new(Selection)
	for _, name := range names {
		s.Member(name)
	}
	return s
}

// Has reports whether the selection has a member of that name.
func (s *Selection) Has(name string) bool { return s.all || s.members[name] != nil }

// SelectAll selects the whole value.
func (s *Selection) SelectAll() { s.all = true }

// Member returns the selection of parts of a member, in case the value is an object.
func (s *Selection) Member(name string) *Selection {
	if s.members == nil {
		s.members = make(map[string]*Selection)
	}
	if s.members[name] == nil {
		s.members[name] = new(Selection)
	}
	return s.members[name]
}

// WithMembers returns a selection of all members of an object. Of objects and arrays in them it selects the same as before.
func (s *Selection) WithMembers() *Selection {
	if s == nil {
		return &Selection{names: true}
	}
	more := *s
	more.names = true
	return &more
}

// Of returns the selection of parts of a member, nil if the member is not selected.
func (s *Selection) Of(name string) *Selection { return s.member([]byte(name)) }

// Items returns a selection of the first items of an array, and of each item the parts that s selects.
func (s *Selection) Items(first int) *Selection { return &Selection{items: s, first: first} }

// Item returns the selection of parts of an item, in case the value is an array. A negative index counts from the end. The
// result may lack items that are not selected: indexes that are lead to the same items as before.
func (s *Selection) Item(index int) *Selection {
	if s.items == nil {
		s.items = new(Selection)
	}
	if index >= 0 {
		s.first = max(s.first, index+1)
	} else {
		s.last = max(s.last, -index)
	}
	return s.items
}

// member returns nil if the member is not selected.
func (s *Selection) member(name []byte) *Selection {
	switch {
	case s == nil:
		return nil
	case s.all:
		return s
	case s.names && s.members[string(name)] == nil:
		return noParts
	default:
		return s.members[string(name)]
	}
}

// noParts selects a text, a number, true, false or null, and of objects and arrays nothing.
var noParts = new(Selection)

// item returns nil if no part of the items is selected.
func (s *Selection) item() (items *Selection, first, last int) {
	if s.all {
		return s, math.MaxInt, 0
	}
	return s.items, s.first, s.last
}
