package openai

import (
	"bytes"
	"cmp"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// usageNames are the members of usage with the tokens in both directions.
type usageNames struct{ input, output string }

var (
	chatUsage     = usageNames{"prompt_tokens", "completion_tokens"}
	responseUsage = usageNames{"input_tokens", "output_tokens"}
)

// The other members are named alike in both APIs.
func (n usageNames) cached() string    { return n.input + "_details.cached_tokens" }
func (n usageNames) reasoning() string { return n.output + "_details.reasoning_tokens" }

const totalTokens, usageCost = "total_tokens", "cost"

// selectFrom selects what read needs.
func (n usageNames) selectFrom(document *strictjson.Selection) {
	document.Member("model")
	document.Member("usage").Paths(n.input, n.output, n.cached(), n.reasoning(), totalTokens, usageCost)
}

// read takes in what a document says of what was used. A later document of a stream counts for all of it.
func (n usageNames) read(document map[string]any, report *usage.Report) {
	if model, ok := document["model"].(string); ok && model != "" {
		report.Model = model
	}
	at := func(path string) usage.Number { return usage.NumberOf(strictjson.ValueAt(document["usage"], path)) }
	now := usage.Report{
		Model: report.Model, Input: at(n.input), Output: at(n.output), Cached: at(n.cached()), Reasoning: at(n.reasoning()), Cost: at(usageCost),
	}
	if now.IsEmpty() {
		return
	}
	// xAI counts reasoning beside the other tokens that come out. The total tells.
	if all := usage.Plus(now.Input, now.Output, now.Reasoning); now.Reasoning != nil && bytes.Equal(all, at(totalTokens)) {
		now.Output = usage.Plus(now.Output, now.Reasoning)
	}
	*report = now
}

// used is what a turn used, as far as the server told.
func (o *OpenAI) used(turn *engine.Turn, report usage.Report) []usage.Report {
	if !serverPresets[o.PresetName()].dollars {
		report.Cost = nil
	}
	if report.IsEmpty() {
		return nil
	}
	report.Model = cmp.Or(report.Model, o.modelFor(turn))
	return []usage.Report{report}
}
