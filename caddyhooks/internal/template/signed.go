package template

import (
	"errors"
	"fmt"
	"strings"
)

// ParseSigned reads a template for what a sender signs: {@body}, {@header.Name}, {@query.name} and {@time}, and text around them.
func ParseSigned(text string) (*Template, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("it is blank")
	}
	t, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if len(t.warnings) > 0 {
		return nil, errors.New(t.warnings[0])
	}
	for i := range t.parts {
		p := &t.parts[i]
		if p.text != "" {
			continue
		}
		if p.extra == nil || p.extra.source == nil || p.extra.pipes != nil || !p.extra.source.FromOutside() && p.extra.source.Kind != "time" {
			return nil, fmt.Errorf("%s: it takes {@body}, {@header.Name}, {@query.name} and {@time} alone", abridged(p.placeholder))
		}
	}
	return t, nil
}

// AppendRaw appends the text of a template of ParseSigned, with its sources byte for byte. If one of them is absent, it is returned
// as missing, and the bytes mean nothing.
func (t *Template) AppendRaw(dst []byte, in Input) (_ []byte, missing *Source) {
	for i := range t.parts {
		p := &t.parts[i]
		if p.text != "" {
			dst = append(dst, p.text...)
			continue
		}
		if p.extra == nil || p.extra.source == nil {
			continue // not of ParseSigned
		}
		text, ok := in.text(*p.extra.source)
		if !ok {
			return dst, p.extra.source
		}
		dst = append(dst, text...)
	}
	return dst, nil
}
