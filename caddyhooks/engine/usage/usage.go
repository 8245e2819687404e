// Package usage is what turns of agents cost: tokens and money, as agents report them. It is a part of package engine, and imports nothing
// of the project.
//
// What an agent reports is text from outside. A Report takes any of it, and Read refuses what cannot be right.
package usage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Use is what was used of one model. What nobody knows is not 0: see HasTokens and HasCost.
type Use struct {
	Model     string `json:"model,omitempty"` // "" if the agent did not say
	HasTokens bool   `json:"hasTokens,omitempty"`
	Input     int64  `json:"input,omitempty"`  // tokens, Cached included
	Output    int64  `json:"output,omitempty"` // tokens, Reasoning included
	Cached    int64  `json:"cached,omitempty"`
	Reasoning int64  `json:"reasoning,omitempty"`
	HasCost   bool   `json:"hasCost,omitempty"`
	Cost      int64  `json:"cost,omitempty"` // in billionths of a US dollar
}

// Dollar is a US dollar as a cost.
const Dollar = 1_000_000_000

// What one turn of an agent may report. More is taken for a mistake.
const (
	MaxTokens = 1_000_000_000
	MaxCost   = 10_000 * Dollar
	maxModel  = 128 // bytes of the name of a model
	MaxModels = 16  // of a run

	maxReportBytes = 16 << 10 // bytes of JSON
)

// Number is a number that an agent reports. Any JSON is taken: whether it is one is known after Read.
type Number []byte

// UnmarshalJSON keeps the beginning of a value as it is.
func (n *Number) UnmarshalJSON(value []byte) error {
	*n = nil
	if !bytes.Equal(value, []byte("null")) {
		*n = bytes.Clone(value[:min(len(value), 40)])
	}
	return nil
}

// MarshalJSON writes a number as it was read. One that cannot be right is a text.
func (n Number) MarshalJSON() ([]byte, error) {
	switch {
	case n == nil:
		return []byte("null"), nil
	case json.Valid(n):
		return n, nil
	}
	return json.Marshal(string(n))
}

// NumberOf is a value of a JSON document as a number.
func NumberOf(value any) (n Number) {
	if data, err := json.Marshal(value); err == nil {
		_ = n.UnmarshalJSON(data) // which takes anything
	}
	return n
}

// Plus is a sum of tokens. What is not known of it is left out, and it is nil if nothing is known. If one part cannot be right, the sum
// cannot be either: it is that part.
func Plus(parts ...Number) (sum Number) {
	total := int64(0)
	for _, part := range parts {
		if part == nil {
			continue
		}
		n, ok := part.tokens()
		if !ok {
			return part
		}
		total += n
		sum = strconv.AppendInt(nil, total, 10)
	}
	return sum
}

// tokens is a number of tokens, if it can be right.
func (n Number) tokens() (int64, bool) {
	count, err := strconv.ParseInt(string(n), 10, 64)
	return count, err == nil && count >= 0 && count <= MaxTokens
}

// Report is what an agent reports of one model, before anybody has looked at it. Input has to include Cached, and Output Reasoning. It is
// also how runner http, A2A agents and answers to reply URLs write it. A number that is nil is not known.
type Report struct {
	Model     string `json:"model,omitempty"`
	Input     Number `json:"inputTokens,omitempty"`
	Output    Number `json:"outputTokens,omitempty"`
	Cached    Number `json:"cachedTokens,omitempty"`
	Reasoning Number `json:"reasoningTokens,omitempty"`
	Cost      Number `json:"costUsd,omitempty"`
}

// IsEmpty reports whether there is nothing to read.
func (r *Report) IsEmpty() bool {
	return r == nil || r.Input == nil && r.Output == nil && r.Cost == nil
}

// Reports are reports as an agent writes them itself: one, or several in an array. Any JSON is taken. What cannot be a report is one that
// Read refuses.
type Reports []Report

// UnmarshalJSON returns no error.
func (r *Reports) UnmarshalJSON(data []byte) error {
	*r = nil
	var items []json.RawMessage
	if len(data) > maxReportBytes || json.Unmarshal(data, &items) != nil || len(items) > MaxModels {
		items = []json.RawMessage{data[:min(len(data), maxReportBytes)]}
	}
	for _, item := range items {
		var report Report
		err := json.Unmarshal(item, &report)
		switch {
		case !report.IsEmpty(): // whatever else there is
			*r = append(*r, report)
		case err != nil:
			*r = append(*r, Report{Input: NumberOf(string(item[:min(len(item), maxModel)]))})
		}
	}
	return nil
}

// Read returns what was used. The error is for operators, and says what cannot be right; nothing of the report counts then.
func (r *Report) Read() (use Use, err error) {
	use.Model = modelName(r.Model)
	for _, part := range []struct {
		of   Number
		name string
		to   *int64
	}{
		{r.Input, "input", &use.Input}, {r.Output, "output", &use.Output}, {r.Cached, "cached", &use.Cached},
		{r.Reasoning, "reasoning", &use.Reasoning},
	} {
		if part.of == nil {
			continue
		}
		n, ok := part.of.tokens()
		if !ok {
			return Use{}, fmt.Errorf("the agent reported %.40q %s tokens", part.of, part.name)
		}
		*part.to = n
	}
	use.HasTokens = r.Input != nil || r.Output != nil
	if use.Cached > use.Input || use.Reasoning > use.Output {
		return Use{}, fmt.Errorf("the agent reported more cached or reasoning tokens (%d, %d) than input and output tokens (%d, %d)",
			use.Cached, use.Reasoning, use.Input, use.Output)
	}
	if r.Cost != nil {
		dollars, err := strconv.ParseFloat(string(r.Cost), 64)
		if err != nil || !(dollars >= 0 && dollars <= MaxCost/Dollar) {
			return Use{}, fmt.Errorf("the agent reported a cost of %.40q US dollars", []byte(r.Cost))
		}
		use.Cost, use.HasCost = int64(math.Round(dollars*Dollar)), true
	}
	return use, nil
}

// modelName is the name of a model as it is kept: one short line of printable characters.
func modelName(name string) string {
	clean := make([]byte, 0, min(len(name), maxModel))
	for _, c := range []byte(name) {
		if c > ' ' && c < 0x7f && len(clean) < maxModel {
			clean = append(clean, c)
		}
	}
	return string(clean)
}

// Add adds what was used to a list that has each model once, and is sorted by their names. A model too many is one without a name.
func Add(list []Use, uses ...Use) []Use {
	for _, use := range uses {
		at, found := slices.BinarySearchFunc(list, use.Model, func(u Use, model string) int { return cmp.Compare(u.Model, model) })
		switch {
		case found:
			list = slices.Clone(list)
			list[at].add(use)
		case len(list) >= MaxModels && use.Model != "":
			use.Model = ""
			list = Add(list, use)
		default:
			list = slices.Insert(slices.Clone(list), at, use)
		}
	}
	return list
}

// add sums up. A sum of which a part is unknown has what is known of it.
func (u *Use) add(other Use) {
	u.HasTokens = u.HasTokens || other.HasTokens
	u.HasCost = u.HasCost || other.HasCost
	u.Input += other.Input
	u.Output += other.Output
	u.Cached += other.Cached
	u.Reasoning += other.Reasoning
	u.Cost += other.Cost
}

// Sum is all of a list together, without a model.
func Sum(list []Use) (sum Use) {
	for _, use := range list {
		sum.add(use)
	}
	return sum
}

// Tokens are those in both directions.
func (u Use) Tokens() int64 { return u.Input + u.Output }

// Dollars is the cost in US dollars, for those who show it.
func (u Use) Dollars() float64 { return float64(u.Cost) / Dollar }
