package acp

import (
	"bytes"
	"encoding/json"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
)

// used is what the turn used, as far as the agent told. It is called when the turn has ended.
func (t *turnListener) used(session *openSession, model string) []usage.Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	reports := tokensOf(&t.end, model)
	if t.cost == nil {
		return reports
	}
	cost := usage.RestOfCost(t.cost, session.cost)
	session.cost = t.cost
	switch {
	case cost == nil:
	case len(reports) == 0:
		reports = []usage.Report{{Model: model, Cost: cost}}
	default: // nobody tells what it was for each model
		for i := range reports {
			reports[i].Cost = usage.Number("0")
		}
		reports[0].Cost = cost
	}
	return reports
}

// maxMeta bounds the metadata that is looked at.
const maxMeta = 64 << 10

// tokensOf are the tokens of a turn. Claude Code, Codex and Gemini CLI tell those of each model in the metadata. The protocol has one
// place for all models.
func tokensOf(end *acpclient.TurnEnd, model string) (reports []usage.Report) {
	var meta struct {
		Quota struct {
			Models []struct {
				Model  string     `json:"model"`
				Tokens quotaCount `json:"token_count"`
			} `json:"model_usage"`
		} `json:"quota"`
	}
	if len(end.Meta) <= maxMeta {
		_ = json.Unmarshal(end.Meta, &meta) // of a value of another kind nothing is known
	}
	for _, use := range meta.Quota.Models[:min(len(meta.Quota.Models), usage.MaxModels)] {
		if report := use.Tokens.counts().report(use.Model); !report.IsEmpty() {
			reports = append(reports, report)
		}
	}
	if reports != nil {
		return reports
	}
	var tokens tokenCounts
	_ = json.Unmarshal(end.Usage, &tokens)
	if report := tokens.report(model); !report.IsEmpty() {
		reports = []usage.Report{report}
	}
	return reports
}

// tokenCounts are the tokens of a turn, as the protocol has them.
type tokenCounts struct {
	Input    usage.Number `json:"inputTokens"`
	Read     usage.Number `json:"cachedReadTokens"`
	Written  usage.Number `json:"cachedWriteTokens"`
	Output   usage.Number `json:"outputTokens"`
	Thoughts usage.Number `json:"thoughtTokens"`
	Total    usage.Number `json:"totalTokens"`
}

// report says what the counts mean. Agents differ in whether Input has those of the cache in it, and Output the thoughts. The total tells;
// without one, it is as with Claude Code and Codex: the cache is counted apart, and thoughts are not.
func (c *tokenCounts) report(model string) usage.Report {
	input, output := usage.Plus(c.Input, c.Read, c.Written), c.Output
	thoughtsApart := usage.Plus(c.Output, c.Thoughts)
	for _, sum := range [][2]usage.Number{{input, output}, {c.Input, output}, {input, thoughtsApart}, {c.Input, thoughtsApart}} {
		if c.Total != nil && bytes.Equal(usage.Plus(sum[0], sum[1]), c.Total) {
			input, output = sum[0], sum[1]
			break
		}
	}
	return usage.Report{Model: model, Input: input, Cached: c.Read, Output: output, Reasoning: c.Thoughts}
}

// quotaCount are the tokens of one model in metadata. Gemini CLI has names of its own, without those of the cache.
type quotaCount struct {
	Input        usage.Number `json:"inputTokens"`
	Read         usage.Number `json:"cachedInputTokens"`
	Written      usage.Number `json:"cachedWriteTokens"`
	CodexWritten usage.Number `json:"cacheWriteInputTokens"`
	Output       usage.Number `json:"outputTokens"`
	Reasoning    usage.Number `json:"reasoningOutputTokens"`
	Total        usage.Number `json:"totalTokens"`
	GeminiInput  usage.Number `json:"input_tokens"`
	GeminiOutput usage.Number `json:"output_tokens"`
}

func (q *quotaCount) counts() *tokenCounts {
	or := func(n, other usage.Number) usage.Number {
		if n == nil {
			return other
		}
		return n
	}
	return &tokenCounts{
		Input: or(q.Input, q.GeminiInput), Read: q.Read, Written: or(q.Written, q.CodexWritten), Output: or(q.Output, q.GeminiOutput),
		Thoughts: q.Reasoning, Total: q.Total,
	}
}
