package engine

import "github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/input"

// Input is what is kept of a run's input after its end.
type Input = input.Input

// MaxInput is how many bytes are kept of a run's input.
const MaxInput = input.Max

// Input is what is kept of the run after its end.
func (r *Run) Input() Input {
	return Input{Message: r.Message, Metadata: r.Metadata, Schema: r.Schema}.Kept()
}

// SetInput puts what is kept into the record of a run that has ended.
func (r *Record) SetInput(kept *Input) {
	run := *r.Run
	run.Message, run.Metadata, run.Schema = kept.Message, kept.Metadata, kept.Schema
	r.Run, r.Kept = &run, KeptWhole
	if kept.Cut {
		r.Kept = KeptCut
	}
}

// Kept says how much of a run's input is still there after its end.
type Kept string

const (
	KeptNothing Kept = ""
	KeptWhole   Kept = "whole"
	KeptCut     Kept = "cut" // only a part
)
