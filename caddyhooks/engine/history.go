package engine

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

// MaxInput is how many bytes are kept of a run's input.
const MaxInput = 64 << 10

// Input is what is kept of the run after its end. If it is too much, the message comes first, and may be cut. Metadata and
// schema are kept whole or not at all: half an object would be none.
func (r *Run) Input() Input {
	input := Input{Message: r.Message, Metadata: r.Metadata, Schema: r.Schema}
	if input.Size() <= MaxInput {
		return input
	}
	input = Input{Message: text.Beginning(r.Message, MaxInput), Cut: true}
	if input.Size()+len(r.Metadata) <= MaxInput {
		input.Metadata = r.Metadata
	}
	if input.Size()+len(r.Schema) <= MaxInput {
		input.Schema = r.Schema
	}
	return input
}

// Size is how many bytes it has.
func (t *Input) Size() int { return len(t.Message) + len(t.Metadata) + len(t.Schema) }

// Complete puts it into the record of a run that has ended.
func (t *Input) Complete(record *Record) {
	run := *record.Run
	run.Message, run.Metadata, run.Schema = t.Message, t.Metadata, t.Schema
	record.Run, record.Kept = &run, KeptWhole
	if t.Cut {
		record.Kept = KeptCut
	}
}

// Kept says how much of a run's input is still there after its end.
type Kept string

const (
	KeptNothing Kept = ""
	KeptWhole   Kept = "whole"
	KeptCut     Kept = "cut" // only a part
)
