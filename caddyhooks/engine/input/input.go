// Package input is what is kept of a run's input after its end. It is a part of package engine, and imports internal/text alone.
package input

import (
	"encoding/json"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Input is the message, metadata and schema of a run, as far as they are kept after the end of the run. Headers, raw bodies and secrets are
// not part of it.
type Input struct {
	Message  string
	Metadata json.RawMessage
	Schema   json.RawMessage
	Cut      bool // there was more
}

// Max is how many bytes are kept of a run's input.
const Max = 64 << 10

// Size is how many bytes it has.
func (t *Input) Size() int { return len(t.Message) + len(t.Metadata) + len(t.Schema) }

// Kept is the part of it that is kept. If it is too much, the message comes first, and may be cut. Metadata and schema are kept whole or
// not at all: half an object would be none.
func (t Input) Kept() Input {
	if t.Size() <= Max {
		return t
	}
	kept := Input{Message: text.Beginning(t.Message, Max), Cut: true}
	if kept.Size()+len(t.Metadata) <= Max {
		kept.Metadata = t.Metadata
	}
	if kept.Size()+len(t.Schema) <= Max {
		kept.Schema = t.Schema
	}
	return kept
}
