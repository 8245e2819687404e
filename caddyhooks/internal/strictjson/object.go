package strictjson

// Object is a JSON object with its members in the order in which they were written.
type Object []Member

// Member is one member of an object: its value, and the bytes from which the value was parsed.
type Member struct {
	Key   string
	Value any
	Raw   []byte
}

// ParseObject is Parse for a document that must be an object, for callers that pass some members on unchanged.
func ParseObject(data []byte) (Object, error) {
	p := newParser(data)
	defer p.release()
	if p.peek() != '{' {
		start := p.pos
		if err := p.skip(); err != nil {
			return nil, err
		}
		if err := p.end(); err != nil {
			return nil, err
		}
		return nil, &Error{start, "it must be an object"}
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	p.expectMany(everything)
	members := make(Object, 0, 8)
	object := p.openObject()
	for first := true; ; first = false {
		key, ok, err := p.nextMember(object, first)
		if err != nil {
			return nil, err
		}
		if !ok {
			return members, p.end()
		}
		name := p.string(key)
		p.peek()
		start := p.pos
		v, err := p.value(everything)
		if err != nil {
			return nil, err
		}
		members = append(members, Member{name, v, data[start:p.pos:p.pos]})
	}
}
