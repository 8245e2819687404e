package service

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// ModelPrice is what models cost, in US dollars for a million tokens.
type ModelPrice struct {
	// The name of the model, as agents report it. In it, * stands for any characters. A name may match one price only.
	Model string `json:"model"`

	// The price of input tokens.
	Input float64 `json:"input"`

	// The price of output tokens.
	Output float64 `json:"output"`

	// The price of input tokens that the provider had in its cache. Default: that of input tokens.
	Cached *float64 `json:"cached,omitempty"`
}

const (
	maxPrices     = 200
	maxPrice      = 100_000
	maxPriceModel = 128 // bytes, as in the name of a model that an agent reports
)

// ReadPrice reads the words
//
//	<model> <input> <output> [<cached>]
func ReadPrice(words []string) (p ModelPrice, err error) {
	if len(words) < 3 || len(words) > 4 {
		return p, errors.New("prices takes lines with a model and its prices for input, for output and, if you like, for cached input, " +
			"such as: gpt-5 1.25 10 0.125" + caddyconf.Unset)
	}
	p.Model = words[0]
	var numbers [3]float64
	for i, word := range words[1:] {
		if numbers[i], err = strconv.ParseFloat(word, 64); err != nil {
			return p, badPrice(p.Model, word)
		}
	}
	p.Input, p.Output = numbers[0], numbers[1]
	if len(words) == 4 {
		p.Cached = &numbers[2]
	}
	return p, nil
}

func badPrice(model, price string) error {
	return fmt.Errorf("prices has '%s' for %s: write US dollars for a million tokens, from 0 to %d, such as 1.25", text.Abridge(price),
		text.Abridge(model), maxPrice)
}

// Check checks a price, and that no model has it and one of those before.
func (p *ModelPrice) Check(before []ModelPrice) error {
	if len(before) >= maxPrices {
		return fmt.Errorf("prices has more than %d models: write * for what differs between models of the same price", maxPrices)
	}
	unusual := func(c rune) bool { return c <= ' ' || c >= 0x7f }
	if p.Model == "" || len(p.Model) > maxPriceModel || strings.ContainsFunc(p.Model, unusual) {
		return fmt.Errorf("prices has the model '%s', which no agent reports: write up to %d letters, digits and signs of ASCII, without spaces",
			text.Abridge(p.Model), maxPriceModel)
	}
	numbers := []float64{p.Input, p.Output}
	if p.Cached != nil {
		numbers = append(numbers, *p.Cached)
	}
	for _, number := range numbers {
		if !(number >= 0 && number <= maxPrice) { // as for NaN
			return badPrice(p.Model, strconv.FormatFloat(number, 'g', -1, 64))
		}
	}
	for _, other := range before {
		if text.StarsOverlap(other.Model, p.Model) {
			return fmt.Errorf("prices has '%s' and '%s', and some model has both: write patterns that match no name together, "+
				"such as gpt-5 and gpt-5-*", text.Abridge(other.Model), text.Abridge(p.Model))
		}
	}
	return nil
}

// priceOf returns a function that finds the price of a model. An agent may report its tokens without a model: "" matches * alone.
func priceOf(prices []ModelPrice) func(model string) *usage.Price {
	return func(model string) *usage.Price {
		for _, p := range prices {
			if !text.MatchesStars(p.Model, model) {
				continue
			}
			price := &usage.Price{Input: p.Input, Output: p.Output, Cached: p.Input}
			if p.Cached != nil {
				price.Cached = *p.Cached
			}
			return price
		}
		return nil
	}
}
