package strictjson

// Object is what ParseObject finds in a document.
type Object struct {
	Members []Member // that are selected, in the order in which they were written
	Other   []string // the first keys that are not selected
}

// maxOther is how many keys are reported that are not selected.
const maxOther = 4

// Member is one member of an object: its value, and the bytes from which the value was parsed.
type Member struct {
	Key   string
	Value any
	Raw   []byte
}

// ParseObject is ParseSelected for a document that must be an object, for callers that pass some members on unchanged. If
// no part of a member is selected, an object or array in it is empty, and its Raw says what it holds. Raw is a piece of
// data; keys and values are not.
func ParseObject(data []byte, selected *Selection) (Object, error) {
	p, err := newParser(data)
	if err != nil {
		return Object{}, err
	}
	defer p.release()
	if p.peek() != '{' {
		start := p.pos
		if err := p.skip(); err != nil {
			return Object{}, err
		}
		if err := p.end(); err != nil {
			return Object{}, err
		}
		return Object{}, &Error{start, "it must be an object"}
	}
	if err := p.open(); err != nil {
		return Object{}, err
	}
	var found Object
	object := p.openObject()
	for first := true; ; first = false {
		key, ok, err := p.nextMember(&object, first)
		if err != nil {
			return Object{}, err
		}
		if !ok {
			return found, p.end()
		}
		member := selected.member(p.bytes(key))
		if member == nil {
			if len(found.Other) < maxOther {
				found.Other = append(found.Other, p.string(key))
			}
			if err := p.skip(); err != nil {
				return Object{}, err
			}
			continue
		}
		name := p.string(key)
		p.peek()
		start := p.pos
		v, err := p.value(member)
		if err != nil {
			return Object{}, err
		}
		if found.Members == nil {
			found.Members = make([]Member, 0, 8)
		}
		found.Members = append(found.Members, Member{name, v, data[start:p.pos:p.pos]})
	}
}
