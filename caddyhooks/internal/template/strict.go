package template

import (
	"encoding/json"
	"fmt"
)

// Strict returns the text of a template that names something, such as a chat: each placeholder must have a value that is a text or a
// number, and the whole has at most so many bytes. Values are inserted as they are. The error is a *StrictError.
func (t *Template) Strict(in Input, most int) (string, error) {
	values, err := t.StrictValues(in, most)
	if err != nil {
		return "", err
	}
	out := make([]byte, 0, 64)
	for i := range t.parts {
		if text := t.parts[i].text; text != "" {
			out = append(out, text...)
			continue
		}
		out, values = append(out, values[0]...), values[1:]
	}
	return string(out), nil
}

// StrictValues returns the values of the placeholders, each by itself: in one text, nobody can tell where a value ends.
func (t *Template) StrictValues(in Input, most int) (values []string, err error) {
	search := search{body: in.Body, steps: messageLimits.steps}
	size := 0
	for i := range t.parts {
		p := t.parts[i]
		if p.text != "" {
			size += len(p.text)
			continue
		}
		if p.extra == nil {
			p.extra = new(extra)
		}
		v, result := search.pipedValue(&in, &p, &bound{limit: most})
		text, isText := v.value.(string)
		if number, ok := v.value.(json.Number); ok {
			text, isText = string(number), true
		}
		problem := ""
		switch {
		case result == unfinished:
			problem = "takes too long to find"
		case result == oversized || len(text) > most:
			problem = "is too long"
		case v.absent:
			problem = "is missing"
		case !isText:
			problem = "is " + kindOf(v.value) + ", and must be a text or a number"
		}
		if problem != "" {
			return nil, &StrictError{abridged(p.placeholder), problem}
		}
		size += len(text)
		values = append(values, text)
	}
	if size > most {
		return nil, &StrictError{abridged(t.source), fmt.Sprintf("is longer than %d bytes", most)}
	}
	return values, nil
}

// StrictError says which placeholder of a template cannot be used, and why.
type StrictError struct{ Placeholder, Problem string }

func (e *StrictError) Error() string { return e.Placeholder + " " + e.Problem }

// kindOf names the kind of a value in JSON.
func kindOf(value any) string {
	switch value.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	case bool:
		return "true or false"
	}
	return "null"
}
