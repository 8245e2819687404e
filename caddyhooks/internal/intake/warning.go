package intake

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// WarningHeader names what has no effect in a request. The request is accepted all the same: callers may send more than is known here.
const WarningHeader = "X-Service-Warning"

// noteUnknown notes the fields of a request that have no effect.
func (req *Request) noteUnknown(fields, known []string) {
	words := make([]settings.IgnoredWord, len(fields))
	for i, field := range fields {
		words[i].Written = field
		if meant := settings.MeantField(field, known); slices.Contains(known, meant) {
			words[i].Meant = meant
		}
	}
	req.warn("fields", words)
}

// noteMisspelt notes the keywords of a schema that have no effect.
func (req *Request) noteMisspelt(schema json.RawMessage) {
	req.warn("schema keywords", settings.MisspeltKeywords(schema))
}

// noteUndelivered notes the fields that have no effect in a request without deliver.
func (req *Request) noteUndelivered(agent *settings.AgentFields) {
	var words []settings.IgnoredWord
	if agent.Channel != "" {
		words = append(words, settings.IgnoredWord{Written: "channel"})
	}
	if agent.To != "" {
		words = append(words, settings.IgnoredWord{Written: "to"})
	}
	req.warn("without deliver", words)
}

// withWarning adds the warning to an error about a field: the field may be there, and misspelt.
func (req *Request) withWarning(err error) error {
	var field *settings.FieldError
	if req.Warning == "" || !errors.As(err, &field) {
		return err
	}
	return settings.FieldErrorf(field.Field, "%s; %s", field.Problem, req.Warning)
}

// warn adds to the warning about a request. Words come from the caller, so few are named, and of each the beginning.
func (req *Request) warn(of string, words []settings.IgnoredWord) {
	const most, longest = 3, 40
	if len(words) == 0 {
		return
	}
	var b strings.Builder
	if req.Warning != "" {
		b.WriteString(req.Warning + "; ")
	}
	b.WriteString("ignored " + of + ": ")
	for i, word := range words[:min(len(words), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		if len(word.Written) > longest {
			word.Written = word.Written[:longest] + "..."
		}
		b.WriteString(outbound.HeaderValue(word.Written))
		if word.Meant != "" {
			b.WriteString(" (did you mean " + word.Meant + "?)")
		}
	}
	if len(words) > most {
		b.WriteString(" and others")
	}
	req.Warning = b.String()
}
