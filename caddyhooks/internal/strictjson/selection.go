package strictjson

// A Selection names the parts of a value that a caller needs: the whole value, or members of an object, or the items of
// an array. The zero value selects nothing. A value without a selected part may be nil in the result.
type Selection struct {
	all     bool
	members map[string]*Selection
	items   *Selection
}

var everything = &Selection{all: true}

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

// Items returns the selection of parts of every item, in case the value is an array.
func (s *Selection) Items() *Selection {
	if s.items == nil {
		s.items = new(Selection)
	}
	return s.items
}

// member returns nil if no part of the member is selected.
func (s *Selection) member(name []byte) *Selection {
	if s.all {
		return s
	}
	return s.members[string(name)]
}

// item returns nil if no part of the items is selected.
func (s *Selection) item() *Selection {
	if s.all {
		return s
	}
	return s.items
}
