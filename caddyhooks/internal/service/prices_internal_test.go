package service

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

func TestPricesOfModels(t *testing.T) {
	t.Parallel()
	cached := 0.125
	priced := priceOf([]ModelPrice{{Model: "gpt-5", Input: 1.25, Output: 10, Cached: &cached}, {Model: "llama*"},
		{Model: "claude-*-4", Input: 3, Output: 15}})
	for model, want := range map[string]*usage.Price{
		"gpt-5":           {Input: 1.25, Output: 10, Cached: 0.125},
		"gpt-5-mini":      nil,
		"GPT-5":           nil,
		"llama":           {},
		"llama3.2":        {},
		"claude-sonnet-4": {Input: 3, Output: 15, Cached: 3},
		"claude-4":        nil,
		"*":               nil,
		"":                nil,
	} {
		if got := priced(model); (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("the price of %q is %+v, want %+v", model, got, want)
		}
	}
	any := priceOf([]ModelPrice{{Model: "*", Input: 1}})
	if any("") == nil || any("gpt-5") == nil {
		t.Error("* is not the price of every model")
	}
	if priceOf(nil)("gpt-5") != nil {
		t.Error("a model has a price without prices")
	}
}

func TestPricesThatAreRefusedInJSON(t *testing.T) {
	t.Parallel()
	nan, most := math.NaN(), 100_000.0
	several := func(n int) (prices []ModelPrice) {
		for i := range n {
			prices = append(prices, ModelPrice{Model: fmt.Sprintf("%0128d", i), Input: most, Output: most, Cached: &most})
		}
		return prices
	}
	for _, tt := range []struct {
		prices []ModelPrice
		want   string // "" if they are taken
	}{
		{several(200), ""},
		{several(201), "prices has more than 200 models"},
		{[]ModelPrice{{Input: 1}}, "prices has the model '', which no agent reports"},
		{[]ModelPrice{{Model: "a b"}}, "prices has the model 'a b', which no agent reports"},
		{[]ModelPrice{{Model: "modèle"}}, "prices has the model 'modèle', which no agent reports"},
		{[]ModelPrice{{Model: strings.Repeat("*", 129)}}, "which no agent reports: write up to 128"},
		{[]ModelPrice{{Model: "a", Input: -1}}, "prices has '-1' for a: write US dollars"},
		{[]ModelPrice{{Model: "a", Output: 100_001}}, "prices has '100001' for a: write US dollars"},
		{[]ModelPrice{{Model: "a", Cached: &nan}}, "prices has 'NaN' for a: write US dollars"},
		{[]ModelPrice{{Model: "a*"}, {Model: "b"}, {Model: "*c"}}, "prices has 'a*' and '*c', and some model has both"},
		{[]ModelPrice{{Model: "a"}, {Model: "a"}}, "prices has 'a' and 'a', and some model has both"},
	} {
		err := (&Options{Prices: tt.prices}).FillIn()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.100v: %v, want %s", tt.prices, err, tt.want)
		}
	}
}
