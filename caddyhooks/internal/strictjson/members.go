package strictjson

// FindMembers checks a whole document, and calls found with the place of the value of each member, however deep, whose key is wanted.
// Values of such members are not searched for more. The key that isWanted gets is good until it returns, and has no escapes.
func FindMembers(data []byte, isWanted func(key []byte) bool, found func(start, end int)) error {
	p, err := newParser(data)
	if err != nil {
		return err
	}
	defer p.release()
	if err := p.findMembers(isWanted, found); err != nil {
		return err
	}
	return p.end()
}

func (p *parser) findMembers(isWanted func(key []byte) bool, found func(start, end int)) error {
	switch p.peek() {
	case '{':
		if err := p.open(); err != nil {
			return err
		}
		object := p.openObject()
		for first := true; ; first = false {
			key, ok, err := p.nextMember(&object, first)
			if err != nil || !ok {
				return err
			}
			if !isWanted(p.bytes(key)) {
				err = p.findMembers(isWanted, found)
			} else {
				p.peek()
				start := p.pos
				if err = p.skip(); err == nil {
					found(start, p.pos)
				}
			}
			if err != nil {
				return err
			}
		}
	case '[':
		if err := p.open(); err != nil {
			return err
		}
		for first := true; ; first = false {
			ok, err := p.nextItem(first)
			if err != nil || !ok {
				return err
			}
			if err := p.findMembers(isWanted, found); err != nil {
				return err
			}
		}
	default:
		return p.skip()
	}
}
