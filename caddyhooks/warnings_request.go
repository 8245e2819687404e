package caddyhooks

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

// warningHeader names what has no effect in a request. The request is accepted all the same: callers may send more than is known here.
const warningHeader = "X-Service-Warning"

// ignoredWord is a word without an effect, and the one that was probably meant, "" if none is near.
type ignoredWord struct{ written, meant string }

// noteUnknown notes the fields of a request that have no effect.
func (req *incoming) noteUnknown(fields, known []string) {
	words := make([]ignoredWord, len(fields))
	for i, field := range fields {
		words[i].written = field
		if meant := meantField(field, known); slices.Contains(known, meant) {
			words[i].meant = meant
		}
	}
	req.warn("fields", words)
}

// noteMisspelt notes the keywords of a schema that have no effect.
func (req *incoming) noteMisspelt(schema json.RawMessage) {
	req.warn("schema keywords", misspeltKeywords(schema))
}

// warn adds to the warning about a request. Words come from the caller, so few are named, and of each the beginning.
func (req *incoming) warn(of string, words []ignoredWord) {
	const most, longest = 3, 40
	if len(words) == 0 {
		return
	}
	var b strings.Builder
	if req.warning != "" {
		b.WriteString(req.warning + "; ")
	}
	b.WriteString("ignored " + of + ": ")
	for i, word := range words[:min(len(words), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		if len(word.written) > longest {
			word.written = word.written[:longest] + "..."
		}
		b.WriteString(outbound.HeaderValue(word.written))
		if word.meant != "" {
			b.WriteString(" (did you mean " + word.meant + "?)")
		}
	}
	if len(words) > most {
		b.WriteString(" and others")
	}
	req.warning = b.String()
}
