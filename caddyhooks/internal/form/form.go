// Package form reads the bodies of HTML forms, application/x-www-form-urlencoded.
package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// MaxFields bounds the fields of a form, repeated ones included.
const MaxFields = 1000

// copies is how often the bytes of a form are copied: as a text, without escapes, and as a payload.
const copies = 3

// Decode reads a form: an object of strings, with an array of strings for a name that stands more than once.
//
// If the form is a single field named payload that holds a JSON object, that object stands for the body: it is the value, and
// payload is its text. Otherwise payload is nil. reserve is as in strictjson.ParseWithin.
func Decode(body []byte, reserve func(bytes int) bool) (value any, payload []byte, err error) {
	if reserve != nil && !reserve(copies*len(body)) {
		return nil, nil, strictjson.ErrNoMemory
	}
	fields, err := Fields(body)
	if err != nil {
		return nil, nil, err
	}
	text, single := fields["payload"].(string)
	if payload = []byte(text); !single || len(fields) > 1 || !isObject(payload) {
		return fields, nil, nil
	}
	if value, err = strictjson.ParseWithin(payload, strictjson.Whole(), reserve); err != nil {
		return nil, nil, fmt.Errorf("the field payload: %w", err)
	}
	return value, payload, nil
}

// isObject reports whether a text is a JSON object, though maybe one that strictjson refuses.
func isObject(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) && json.Valid(text)
}

// Fields reads a form as Decode does, whatever its fields hold.
func Fields(body []byte) (map[string]any, error) {
	fields := make(map[string]any)
	count := 0
	for field := range strings.SplitSeq(string(body), "&") {
		if field == "" {
			continue
		}
		if count++; count > MaxFields {
			return nil, fmt.Errorf("the form has more than %d fields", MaxFields)
		}
		name, text, _ := strings.Cut(field, "=")
		var err error
		if name, err = unescape(name); err != nil {
			return nil, fmt.Errorf("the name of field %d: %w", count, err)
		}
		if text, err = unescape(text); err != nil {
			return nil, fmt.Errorf("the value of field %d: %w", count, err)
		}
		switch before := fields[name].(type) {
		case nil:
			fields[name] = text
		case string:
			fields[name] = []any{before, text}
		case []any:
			fields[name] = append(before, text)
		}
	}
	if count == 0 {
		return nil, errors.New("the form has no fields")
	}
	return fields, nil
}

func unescape(text string) (string, error) {
	text, err := url.QueryUnescape(text)
	switch {
	case err != nil:
		return "", errors.New("a % is followed by no two hexadecimal digits")
	case !utf8.ValidString(text):
		return "", errors.New("it is not UTF-8")
	}
	return text, nil
}
