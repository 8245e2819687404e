package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// splitPointer returns the keys of a JSON pointer as the library writes it.
func splitPointer(pointer string) []string {
	if pointer == "" {
		return nil
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, token := range tokens {
		if plain, err := url.PathUnescape(token); err == nil {
			token = plain
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return tokens
}

// escapeToken writes a key as the library does in JSON pointers.
func escapeToken(key string) string {
	return url.PathEscape(strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1"))
}

// showPointer writes a JSON pointer for people: without the escapes of URLs, and without its middle if it is long.
// Characters that could end a line or hide are escaped as in JSON.
func showPointer(pointer string) string {
	tokens := splitPointer(pointer)
	if len(tokens) == 0 {
		return "the top level"
	}
	var out strings.Builder
	for i, token := range tokens {
		if out.Len() > 120 && i < len(tokens)-1 {
			if i == len(tokens)-2 {
				out.WriteString("/…")
			}
			continue
		}
		token = shorten(token, 48)
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
		token = quote(token)
		out.WriteString("/" + token[1:len(token)-1])
	}
	return out.String()
}

// showList shows the values of a list, or the first of them if they are many.
func showList(list []any) string {
	var out strings.Builder
	for i, v := range list {
		if out.Len() > 160 {
			fmt.Fprintf(&out, " or another of %d", len(list))
			break
		}
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(show(v))
	}
	return out.String()
}

// show returns v as JSON, shortened if it is long.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case json.Number:
		return shorten(string(v), 40)
	default:
		return shorten(string(encodeJSON(v)), 120)
	}
}

// quote returns s as a JSON string on one line, shortened if it is long.
func quote(s string) string { return string(encodeJSON(shorten(s, 80))) }

// encodeJSON returns a parsed JSON value as compact JSON with sorted keys.
func encodeJSON(v any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return []byte("null") // cannot happen: all parsed values can be encoded
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// shorten cuts s to at most limit bytes and says so.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}
