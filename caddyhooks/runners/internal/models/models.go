// Package models has the options that choose a model by the tier of a turn. It imports engine and caddyconf, and no other package of
// the runners.
package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
)

// ByTier are the models that a program is told to use.
type ByTier struct {
	// The model for turns whose tier has no model of its own. Placeholders are replaced. Default: the program's own.
	Model string `json:"model,omitempty"`

	// Models by tier.
	Tiers map[string]string `json:"tiers,omitempty"`

	model string
	tiers map[string]string
}

func (m *ByTier) Directives() []caddyconf.Directive {
	return []caddyconf.Directive{caddyconf.Set("model", &m.Model, caddyconf.Word), TierDirective(&m.Tiers)}
}

// CheckTiers finds mistakes in models by tier.
func CheckTiers(models map[string]string) error {
	for _, tier := range slices.Sorted(maps.Keys(models)) {
		if err := checkTier(tier); err != nil {
			return err
		}
		if models[tier] == "" {
			return fmt.Errorf("the model of tier %s is empty", tier)
		}
	}
	return nil
}

func (m *ByTier) Resolve() {
	known := func(text string) string { return caddy.NewReplacer().ReplaceKnown(text, "") }
	m.model, m.tiers = known(m.Model), make(map[string]string)
	for tier, model := range m.Tiers {
		m.tiers[tier] = known(model)
	}
}

// For returns the model for a turn, "" for the program's own.
func (m *ByTier) For(turn *engine.Turn) string {
	if model := m.tiers[turn.Tier]; model != "" {
		return model
	}
	return m.model
}

// TierDirective is the line `tier <tier> <model>`, of which there may be several.
func TierDirective(tiers *map[string]string) caddyconf.Directive {
	return caddyconf.Directive{Word: "tier", Repeatable: true, Read: func(d *caddyfile.Dispenser) error {
		words := d.RemainingArgs()
		if len(words) != 2 || words[1] == "" {
			return d.Err("tier takes a tier and a model" + caddyconf.Unset)
		}
		if err := checkTier(words[0]); err != nil {
			return d.WrapErr(err)
		}
		if _, ok := (*tiers)[words[0]]; ok {
			return d.Errf("tier %s is set already", words[0])
		}
		if *tiers == nil {
			*tiers = make(map[string]string)
		}
		(*tiers)[words[0]] = shorthand.Undo(words[1])
		return nil
	}}
}

func checkTier(tier string) error {
	if !slices.Contains(engine.Tiers, tier) {
		return fmt.Errorf("'%s' is not a tier; the tiers are %s", tier, strings.Join(engine.Tiers, ", "))
	}
	return nil
}
