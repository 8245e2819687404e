package engine

import (
	"encoding/json"
	"unicode/utf8"
)

// Told is what a run was told, as far as it is kept after the end of the run. Headers, raw bodies and secrets are not part
// of it.
type Told struct {
	Message  string
	Metadata json.RawMessage
	Schema   json.RawMessage
	Cut      bool // there was more
}

// MaxTold is how many bytes are kept of what a run was told.
const MaxTold = 64 << 10

// Told is what is kept of the run after its end. If it is too much, the message comes first, and may be cut. Metadata and
// schema are kept whole or not at all: half an object would be none.
func (r *Run) Told() Told {
	told := Told{Message: r.Message, Metadata: r.Metadata, Schema: r.Schema}
	if told.Size() <= MaxTold {
		return told
	}
	told = Told{Message: beginning(r.Message, MaxTold), Cut: true}
	if told.Size()+len(r.Metadata) <= MaxTold {
		told.Metadata = r.Metadata
	}
	if told.Size()+len(r.Schema) <= MaxTold {
		told.Schema = r.Schema
	}
	return told
}

// Size is how many bytes it has.
func (t *Told) Size() int { return len(t.Message) + len(t.Metadata) + len(t.Schema) }

// Complete puts it into the record of a run that has ended.
func (t *Told) Complete(record *Record) {
	run := *record.Run
	run.Message, run.Metadata, run.Schema = t.Message, t.Metadata, t.Schema
	record.Run, record.Kept = &run, KeptWhole
	if t.Cut {
		record.Kept = KeptCut
	}
}

// beginning is as much of a text as fits, without half a character at its end.
func beginning(text string, size int) string {
	if len(text) <= size {
		return text
	}
	end := size
	for end > size-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Kept says how much of what a run was told is still there after its end.
type Kept string

const (
	KeptNothing Kept = ""
	KeptWhole   Kept = "whole"
	KeptCut     Kept = "cut" // only a part
)
