package strictjson

import "slices"

// Object is a JSON object with its members in the order in which they were written.
type Object []Member

// Member is one member of an object: its value parsed, and the very bytes it was parsed from.
type Member struct {
	Key   string
	Value any
	Raw   []byte
}

// ParseObject is Parse for a document that has to be an object, for callers that want to pass some members on as they
// were written.
func ParseObject(data []byte) (Object, error) {
	p := parser{data: string(data)}
	p.skipSpace()
	if p.pos == len(data) || data[p.pos] != '{' {
		if _, err := Parse(data); err != nil {
			return nil, err
		}
		return nil, p.fail("it must be an object")
	}
	obj := make(Object, 0, 8)
	var seen keySet
	if err := p.open(); err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		key, ok, err := p.nextMember(first)
		if err != nil {
			return nil, err
		}
		if !ok {
			return obj, p.end()
		}
		if !seen.add(key) {
			return nil, p.fail(duplicate)
		}
		start := p.pos
		v, err := p.value(everything)
		if err != nil {
			return nil, err
		}
		obj = append(obj, Member{key, v, data[start:p.pos:p.pos]})
	}
}

// keySet finds keys that were there before. A few are looked through, which is quickest; many are looked up.
type keySet struct {
	few  [16]string
	n    int
	many map[string]bool
}

func (k *keySet) add(key string) (isNew bool) {
	if k.many == nil {
		if slices.Contains(k.few[:k.n], key) {
			return false
		}
		if k.n < len(k.few) {
			k.few[k.n] = key
			k.n++
			return true
		}
		k.many = make(map[string]bool)
		for _, few := range k.few {
			k.many[few] = true
		}
	}
	if k.many[key] {
		return false
	}
	k.many[key] = true
	return true
}

const duplicate = "a key stands twice in one object"
