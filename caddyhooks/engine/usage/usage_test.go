package usage_test

import (
	"encoding/json"
	"fmt"
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
