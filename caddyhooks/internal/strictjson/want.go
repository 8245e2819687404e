package strictjson

// A Want says which parts of a value are wanted: all of it, or members of an object, or the items of an array. A value
// of which nothing is wanted, or only what it does not have, may be nil in the result.
type Want struct {
	all     bool
	members map[string]*Want
	items   *Want
}

var everything = &Want{all: true}

// All says that the whole value is wanted.
func (w *Want) All() { w.all = true }

// Member says that the member of this name is wanted in case the value is an object, and returns what is wanted of it.
func (w *Want) Member(name string) *Want {
	if w.members == nil {
		w.members = make(map[string]*Want)
	}
	if w.members[name] == nil {
		w.members[name] = new(Want)
	}
	return w.members[name]
}

// Items says that items are wanted in case the value is an array, and returns what is wanted of each.
func (w *Want) Items() *Want {
	if w.items == nil {
		w.items = new(Want)
	}
	return w.items
}

func (w *Want) member(name []byte) *Want {
	if w.all {
		return w
	}
	return w.members[string(name)]
}

func (w *Want) item() *Want {
	if w.all {
		return w
	}
	return w.items
}
