package usage_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

func TestReportsOfAgents(t *testing.T) {
	for _, tt := range []struct {
		report string
		want   usage.Use
		refuse string
	}{
		{report: `{"model":"gpt-5","inputTokens":1200,"outputTokens":34,"cachedTokens":1000,"reasoningTokens":4}`,
			want: usage.Use{Model: "gpt-5", HasTokens: true, Input: 1200, Output: 34, Cached: 1000, Reasoning: 4}},
		{report: `{"inputTokens":0}`, want: usage.Use{HasTokens: true}},
		{report: `{"costUsd":0.0123456789}`, want: usage.Use{HasCost: true, Cost: 12_345_679}},
		{report: `{"costUsd":1e-3,"model":"a b\u0000\u2028é/c"}`, want: usage.Use{Model: "ab/c", HasCost: true, Cost: 1_000_000}},
		{report: `{"inputTokens":null,"outputTokens":5}`, want: usage.Use{HasTokens: true, Output: 5}},
		{report: `{"inputTokens":1000000000,"costUsd":10000}`, want: usage.Use{HasTokens: true, Input: 1e9, HasCost: true, Cost: usage.MaxCost}},

		{report: `{"inputTokens":-1}`, refuse: `the agent reported "-1" input tokens`},
		{report: `{"outputTokens":1000000001}`, refuse: `the agent reported "1000000001" output tokens`},
		{report: `{"outputTokens":99999999999999999999999999}`, refuse: `"99999999999999999999999999" output tokens`},
		{report: `{"outputTokens":1.5}`, refuse: `"1.5" output tokens`},
		{report: `{"outputTokens":"7"}`, refuse: `output tokens`},
		{report: `{"outputTokens":{"a":[1]}}`, refuse: `output tokens`},
		{report: `{"cachedTokens":true,"inputTokens":1}`, refuse: `"true" cached tokens`},
		{report: `{"inputTokens":1,"cachedTokens":2}`, refuse: "more cached or reasoning tokens (2, 0) than input and output tokens (1, 0)"},
		{report: `{"costUsd":-0.01}`, refuse: `a cost of "-0.01" US dollars`},
		{report: `{"costUsd":10000.01}`, refuse: `a cost of "10000.01" US dollars`},
		{report: `{"costUsd":1e999}`, refuse: `a cost of "1e999" US dollars`},
		{report: `{"costUsd":"NaN"}`, refuse: "US dollars"},
		{report: `{"inputTokens":5,"costUsd":"` + strings.Repeat("9", 10_000) + `"}`, refuse: "US dollars"},
	} {
		var report usage.Report
		if err := json.Unmarshal([]byte(tt.report), &report); err != nil {
			t.Fatal(tt.report, err)
		}
		got, err := report.Read()
		switch {
		case tt.refuse == "" && (err != nil || got != tt.want):
			t.Errorf("%s is read as %+v, %v", tt.report, got, err)
		case tt.refuse != "" && (err == nil || got != (usage.Use{}) || !strings.Contains(err.Error(), tt.refuse) || len(err.Error()) > 200):
			t.Errorf("%s is read as %+v, refused with %v", tt.report, got, err)
		}
	}
	if none := (usage.Report{Model: "m"}); !none.IsEmpty() {
		t.Error("a model alone is a report")
	}
}

func TestReportsAsAgentsWriteThem(t *testing.T) {
	for written, want := range map[string]string{
		`{"model":"m","inputTokens":1,"outputTokens":2}`:          `[{m true 1 2 0 0 false 0}]`,
		`[{"model":"a","inputTokens":1},null,{},{"costUsd":0.5}]`: `[{a true 1 0 0 0 false 0} { false 0 0 0 0 true 500000000}]`,
		`{"model":5,"inputTokens":1,"else":[]}`:                   `[{ true 1 0 0 0 false 0}]`,
		`null`:                                                    `[]`,
		`[]`:                                                      `[]`,
		`{}`:                                                      `[]`,
		`{"model":"m","cachedTokens":5}`:                          `[]`,
		`{"inputTokens":1,"more":"` + strings.Repeat("x", 20_000) + `"}`: `[refused]`,
		`7`:            `[refused]`,
		`"free"`:       `[refused]`,
		`{"model":{}}`: `[refused]`,
		`[[{"inputTokens":1}],{"inputTokens":-1},{"inputTokens":1}]`:       `[refused refused { true 1 0 0 0 false 0}]`,
		`[` + strings.Repeat(`{"inputTokens":1},`, usage.MaxModels) + `1]`: `[refused]`,
	} {
		var answer struct{ Usage usage.Reports }
		if err := json.Unmarshal([]byte(`{"usage":`+written+`}`), &answer); err != nil {
			t.Fatal(written, err)
		}
		got := make([]any, 0)
		for _, report := range answer.Usage {
			if use, err := report.Read(); err == nil {
				got = append(got, use)
			} else {
				got = append(got, "refused")
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s is read as %v", written, got)
		}
	}
}

func TestTokensThatAreTogether(t *testing.T) {
	for _, tt := range []struct {
		parts []any
		want  string
	}{
		{nil, "null"},
		{[]any{nil, nil}, "null"},
		{[]any{nil, 0}, "0"},
		{[]any{5, nil, json.Number("1000"), 2.0}, "1007"},
		{[]any{5, -1, 7}, "-1"},
		{[]any{5, "7"}, `"7"`},
		{[]any{5, 1e99}, "1e+99"},
		{[]any{json.Number("1e2")}, "1e2"},
		{[]any{5, map[string]any{"a": 1}}, `{"a":1}`},
		{[]any{usage.MaxTokens, usage.MaxTokens}, "2000000000"}, // which Read refuses
		{[]any{5, math.NaN()}, "5"},                             // which no document has
	} {
		var parts []usage.Number
		for _, part := range tt.parts {
			parts = append(parts, usage.NumberOf(part))
		}
		if got, err := usage.Plus(parts...).MarshalJSON(); err != nil || string(got) != tt.want {
			t.Errorf("%v are %s, %v", tt.parts, got, err)
		}
	}
}

func TestUsesOfAModelAreSummedUp(t *testing.T) {
	one := usage.Use{Model: "b", HasTokens: true, Input: 1, Output: 2, Cached: 1, Reasoning: 1}
	list := usage.Add(nil, one, usage.Use{Model: "a", HasCost: true, Cost: 5}, one)
	if len(list) != 2 || list[0].Model != "a" || list[0].HasTokens || list[1] != (usage.Use{Model: "b", HasTokens: true, Input: 2, Output: 4, Cached: 2, Reasoning: 2}) {
		t.Errorf("the list is %+v", list)
	}
	if sum := usage.Sum(list); sum != (usage.Use{HasTokens: true, Input: 2, Output: 4, Cached: 2, Reasoning: 2, HasCost: true, Cost: 5}) || sum.Tokens() != 6 {
		t.Errorf("the sum is %+v", sum)
	}
	before := list[1]
	if usage.Add(list, one); list[1] != before {
		t.Error("the list that was added to has changed")
	}
	for i := range 100 {
		list = usage.Add(list, usage.Use{Model: fmt.Sprint("m", i), Input: 1})
	}
	if len(list) > usage.MaxModels+1 || usage.Sum(list).Input != 102 || list[0].Model != "" {
		t.Errorf("there are %d models, and %d tokens", len(list), usage.Sum(list).Input)
	}
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"model":"m","inputTokens":1,"outputTokens":2,"cachedTokens":1,"reasoningTokens":1,"costUsd":0.5}`))
	f.Add([]byte(`{"inputTokens":[[1]],"costUsd":"\u0000"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var reports usage.Reports
		if err := reports.UnmarshalJSON(data); err != nil || len(reports) > usage.MaxModels {
			t.Errorf("%s is read as %d reports, %v", data, len(reports), err)
		}
		var report usage.Report
		if json.Unmarshal(data, &report) != nil {
			return
		}
		use, err := report.Read()
		if err != nil {
			return
		}
		if use.Input < 0 || use.Output < 0 || use.Cached > use.Input || use.Reasoning > use.Output || use.Tokens() > 2*usage.MaxTokens ||
			use.Cost < 0 || use.Cost > usage.MaxCost || len(use.Model) > 128 {
			t.Errorf("%s is read as %+v", data, use)
		}
		written, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		var again usage.Report
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatal(err)
		}
		if same, err := again.Read(); err != nil || same != use {
			t.Errorf("%s is written as %s, and read as %+v %v", data, written, same, err)
		}
	})
}

// Sums of costs have room for as many turns as sums of reported costs do.
func TestACostByPriceIsBounded(t *testing.T) {
	t.Parallel()
	spending := usage.NewSpending(func(string) *usage.Price { return &usage.Price{Input: 100_000} })
	uses := spending.AddJSON([]byte(`[{"model":"a","inputTokens":1000000000},{"model":"b","inputTokens":1000}]`))
	if len(uses) != 2 || uses[0].Cost != usage.MaxCost || uses[1].Cost != 100*usage.Dollar {
		t.Errorf("got %+v", uses)
	}
}
