// Package example makes values that are valid under a JSON Schema, for the answers of the echo runner.
package example

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
)

// Of returns the smallest value that a bounded search finds to be valid under the schema, as compact JSON with sorted
// keys. It returns nil when the search finds none, which does not mean that there is none.
func Of(schema *contract.Schema) (found []byte) {
	_ = schema.Explore(maxWork, maxTime, func(e *contract.Explorer) {
		b := builder{e}
		for _, levels := range []int{1, 2, 3, 4, 6, 8, 12, 16} { // so that recursive schemas end early
			if v, ok := b.build([]*node{e.Root()}, 0, levels); ok {
				found = encode(v)
				return
			}
		}
	})
	return found
}

// The search for one example.
const (
	maxWork = 200 * time.Millisecond // by estimate, so that the result does not depend on how busy the machine is
	maxTime = 2 * time.Second        // on the clock, in case the estimate is wrong
)

func encode(v any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil // cannot be: the schema's own values and ours are JSON
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// A builder makes values that satisfy several subschemas at once. It goes through the choices that they leave in the
// order in which they stand, and takes the first value that is valid. The values of different
// variants differ.
type builder struct {
	*contract.Explorer
}

type node = contract.Node

const (
	maxStringLength = 100_000
	maxItems        = 10_000
	maxNumberBits   = 8_000
	matchWork       = 15 // of a regular expression, for each of its bytes and each byte of the text
)

func (b *builder) build(all []*node, variant, levels int) (v any, ok bool) {
	if levels == 0 {
		return nil, false
	}
	b.Spend(1_000)
	accept := func(candidate any) bool {
		for _, n := range all {
			if !b.IsValid(n, candidate) {
				return false
			}
		}
		v = candidate
		return true
	}
	ok = b.expand(all, nil, func(parts []*node) bool {
		return b.construct(parts, variant, levels, accept)
	})
	return v, ok
}

// expand adds to parts all the subschemas that apply to the same value, one alternative of a choice at a time, and
// calls done with them until it returns true.
func (b *builder) expand(todo, parts []*node, done func([]*node) bool) bool {
	b.Spend(200 + 20*(len(todo)+len(parts)))
	if len(todo) == 0 {
		return done(parts)
	}
	n, rest := todo[0], slices.Clip(todo[1:])
	if allowsNothing(n) {
		return false
	}
	if slices.Contains(parts, n) {
		return b.expand(rest, parts, done)
	}
	parts = append(slices.Clip(parts), n)
	for _, sub := range []*node{n.Ref, n.DynamicRef} {
		if sub != nil {
			rest = append(rest, sub)
		}
	}
	return b.choose(choices(n), append(rest, n.AllOf...), parts, done)
}

func allowsNothing(n *node) bool { return n.Always != nil && !*n.Always }

// choices returns the alternatives that n leaves, each of them a list of subschemas.
func choices(n *node) [][][]*node {
	var all [][][]*node
	for _, subs := range [][]*node{n.AnyOf, n.OneOf} {
		if subs == nil {
			continue
		}
		var options [][]*node
		for _, sub := range subs {
			options = append(options, []*node{sub})
		}
		all = append(all, options)
	}
	if n.If != nil {
		unmet, met := []*node{}, []*node{n.If}
		if n.Else != nil {
			unmet = append(unmet, n.Else)
		}
		if n.Then != nil {
			met = append(met, n.Then)
		}
		all = append(all, [][]*node{unmet, met})
	}
	return all
}

func (b *builder) choose(choices [][][]*node, todo, parts []*node, done func([]*node) bool) bool {
	if len(choices) == 0 {
		return b.expand(todo, parts, done)
	}
	for _, option := range choices[0] {
		if b.choose(choices[1:], append(slices.Clip(todo), option...), parts, done) {
			return true
		}
	}
	return false
}

// construct makes values from parts, which hold all keywords that apply, until accept takes one.
func (b *builder) construct(parts []*node, variant, levels int, accept func(any) bool) bool {
	for _, n := range parts {
		for _, values := range [][]any{n.Constant, n.Enum} {
			for i := range values {
				if accept(values[(i+variant)%len(values)]) {
					return true
				}
			}
			if values != nil {
				return false
			}
		}
	}
	for _, t := range b.likelyTypes(parts) {
		done := false
		switch t {
		case "object":
			done = b.object(parts, variant, levels, accept)
		case "array":
			done = b.array(parts, variant, levels, accept)
		case "string":
			done = b.string(parts, variant, accept)
		case "number":
			done = b.number(parts, variant, accept)
		case "boolean":
			done = accept(variant%2 == 1) || accept(variant%2 == 0)
		case "null":
			done = accept(nil)
		}
		if done {
			return true
		}
	}
	return false
}

// likelyTypes returns the types that parts allow. Types with keywords of their own come first; without a type keyword,
// there are no others.
func (b *builder) likelyTypes(parts []*node) []string {
	types := []string{"object", "array", "string", "number", "boolean", "null"}
	typed, spoken := false, make(map[string]bool)
	for _, n := range parts {
		if len(n.Types) > 0 {
			typed = true
			types = slices.DeleteFunc(types, func(t string) bool {
				return !slices.Contains(n.Types, t) && (t != "number" || !slices.Contains(n.Types, "integer"))
			})
		}
		for keyword := range b.Source(n) {
			switch keyword {
			case "properties", "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties",
				"required", "minProperties", "dependentRequired":
				spoken["object"] = true
			case "items", "prefixItems", "contains", "minItems":
				spoken["array"] = true
			case "pattern", "minLength", "maxLength", "format":
				spoken["string"] = true
			case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
				spoken["number"] = true
			}
		}
	}
	var first, later []string
	for _, t := range types {
		if spoken[t] {
			first = append(first, t)
		} else if typed || len(spoken) == 0 {
			later = append(later, t)
		}
	}
	if !typed {
		slices.Reverse(later) // null is the smallest of all
	}
	return append(first, later...)
}

func (b *builder) object(parts []*node, variant, levels int, accept func(any) bool) bool {
	var names []string
	add := func(wanted ...string) {
		for _, name := range wanted {
			b.Spend(100 + 10*len(names))
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	least := min(variant, 1)
	for _, n := range parts {
		add(n.Required...)
		least = max(least, n.MinProperties)
	}
	if least > maxItems {
		return false
	}
	for _, n := range parts {
		for _, name := range slices.Sorted(maps.Keys(n.Properties)) {
			if len(names) < least && !allowsNothing(n.Properties[name]) {
				add(name)
			}
		}
	}
	for i := 1; len(names) < least; i++ {
		name, ok := b.inventName(parts, i, levels)
		if !ok || i > 2*maxItems {
			return false
		}
		add(name)
	}
	var pulledIn []*node
	for i := 0; i < len(names); i++ {
		for _, n := range parts {
			add(n.DependentRequired[names[i]]...)
			if sub := n.DependentSchemas[names[i]]; sub != nil && !slices.Contains(parts, sub) {
				pulledIn = append(pulledIn, sub)
			}
		}
	}
	if pulledIn != nil {
		return b.expand(pulledIn, parts, func(parts []*node) bool {
			return b.object(parts, variant, levels, accept)
		})
	}
	object := make(map[string]any, len(names))
	for i, name := range names {
		own := 0
		if i == 0 {
			own = variant
		}
		member, ok := b.build(b.memberParts(parts, name), own, levels-1)
		if !ok {
			return false
		}
		object[name] = member
	}
	return accept(object)
}

// inventName makes up a property that the schema does not name.
func (b *builder) inventName(parts []*node, i, levels int) (string, bool) {
	for _, n := range parts {
		if n.PropertyNames != nil {
			v, ok := b.build([]*node{n.PropertyNames}, i, levels)
			name, isString := v.(string)
			return name, ok && isString
		}
		if patterns := sortedPatterns(n); len(patterns) > 0 {
			return b.matching(patterns[0], i)
		}
	}
	return fmt.Sprintf("property%d", i), true
}

func sortedPatterns(n *node) []*regexp.Regexp {
	return slices.SortedFunc(maps.Keys(n.PatternProperties), func(x, y *regexp.Regexp) int {
		return cmp.Compare(x.String(), y.String())
	})
}

// memberParts returns the subschemas that apply to a member.
func (b *builder) memberParts(parts []*node, name string) []*node {
	var all []*node
	for _, n := range parts {
		before := len(all)
		if sub := n.Properties[name]; sub != nil {
			all = append(all, sub)
		}
		for _, pattern := range sortedPatterns(n) {
			b.Spend(matchWork * len(pattern.String()) * (1 + len(name)))
			if pattern.MatchString(name) {
				all = append(all, n.PatternProperties[pattern])
			}
		}
		if sub, ok := n.AdditionalProperties.(*node); ok && len(all) == before {
			all = append(all, sub)
		}
	}
	for _, n := range parts {
		if len(all) == 0 && n.UnevaluatedProperties != nil {
			all = append(all, n.UnevaluatedProperties)
		}
	}
	return all
}

func (b *builder) array(parts []*node, variant, levels int, accept func(any) bool) bool {
	count, unique := min(variant, 1), false
	var contained []*node // by index, as far as contains demands them
	for _, n := range parts {
		count = max(count, n.MinItems)
		unique = unique || n.UniqueItems
		if n.Contains != nil {
			for range min(n.MinContains, maxItems+1) {
				b.Spend(10)
				contained = append(contained, n.Contains)
			}
		}
	}
	count = max(count, len(contained))
	if count > maxItems {
		return false
	}
	items := make([]any, 0, count)
	for i := range count {
		all := itemParts(parts, i)
		if i < len(contained) {
			all = append(all, contained[i])
		}
		own := 0
		switch {
		case unique:
			own = variant + i
		case i == 0:
			own = variant
		}
		item, ok := b.build(all, own, levels-1)
		if !ok {
			return false
		}
		items = append(items, item)
	}
	return accept(items)
}

// itemParts returns the subschemas that apply to an item.
func itemParts(parts []*node, index int) []*node {
	var all []*node
	for _, n := range parts {
		if index < len(n.PrefixItems) {
			all = append(all, n.PrefixItems[index])
		} else if n.Items2020 != nil {
			all = append(all, n.Items2020)
		}
	}
	for _, n := range parts {
		if len(all) == 0 && n.UnevaluatedItems != nil {
			all = append(all, n.UnevaluatedItems)
		}
	}
	return all
}

var formatExamples = map[any]string{
	"date-time":     "2000-01-01T00:00:00Z",
	"date":          "2000-01-01",
	"time":          "00:00:00Z",
	"duration":      "PT0S",
	"email":         "user@example.com",
	"idn-email":     "user@example.com",
	"hostname":      "example.com",
	"idn-hostname":  "example.com",
	"ipv4":          "192.0.2.1",
	"ipv6":          "2001:db8::1",
	"uri":           "https://example.com/",
	"uri-reference": "https://example.com/",
	"iri":           "https://example.com/",
	"iri-reference": "https://example.com/",
	"uuid":          "00000000-0000-4000-8000-000000000000",
	"regex":         "^$",
}

func (b *builder) string(parts []*node, variant int, accept func(any) bool) bool {
	least := 0
	for _, n := range parts {
		least = max(least, n.MinLength)
	}
	if least > maxStringLength {
		return false
	}
	for _, n := range parts {
		if example, known := formatExamples[b.Source(n)["format"]]; known && variant == 0 && accept(example) {
			return true
		}
	}
	for _, n := range parts {
		if n.Pattern == nil {
			continue
		}
		for repeats := variant; ; repeats = 2*repeats + 1 {
			if text, ok := b.matching(n.Pattern, repeats); ok && accept(text) {
				return true
			}
			if repeats > least {
				return false
			}
		}
	}
	text := ""
	if variant > 0 {
		text = strconv.Itoa(variant)
	}
	b.Spend(8 * least)
	return accept(text + strings.Repeat("a", max(0, least-len(text))))
}

// matching makes a string that a simple regular expression matches, with as many repeats as it allows up to repeats.
func (b *builder) matching(pattern *regexp.Regexp, repeats int) (string, bool) {
	b.Spend(1_000 * (1 + len(pattern.String())))
	tree, err := syntax.Parse(pattern.String(), syntax.Perl)
	if err != nil {
		return "", false
	}
	var out strings.Builder
	ok := b.writeMatch(&out, tree, repeats)
	return out.String(), ok
}

func (b *builder) writeMatch(out *strings.Builder, tree *syntax.Regexp, repeats int) bool {
	b.Spend(100 + 10*len(tree.Rune))
	if out.Len() > maxStringLength {
		return false
	}
	times := 1
	switch tree.Op {
	case syntax.OpNoMatch:
		return false
	case syntax.OpLiteral:
		out.WriteString(string(tree.Rune))
	case syntax.OpCharClass:
		r, ok := pickRune(tree.Rune)
		if !ok {
			return false
		}
		out.WriteRune(r)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		out.WriteByte('a')
	case syntax.OpAlternate:
		return b.writeMatch(out, tree.Sub[0], repeats)
	case syntax.OpStar:
		times = repeats
	case syntax.OpPlus:
		times = max(1, repeats)
	case syntax.OpQuest:
		times = min(1, repeats)
	case syntax.OpRepeat:
		times = max(tree.Min, repeats)
		if tree.Max >= 0 {
			times = min(times, tree.Max)
		}
	}
	for range times {
		for _, sub := range tree.Sub {
			if !b.writeMatch(out, sub, repeats) {
				return false
			}
		}
	}
	return true
}

// pickRune prefers a character that is easy to read.
func pickRune(ranges []rune) (rune, bool) {
	for _, r := range "a0A-_ ." {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= r && r <= ranges[i+1] {
				return r, true
			}
		}
	}
	if len(ranges) == 0 {
		return 0, false
	}
	return ranges[0], true
}

func (b *builder) number(parts []*node, variant int, accept func(any) bool) bool {
	var low, high, step *big.Rat
	var written []any // limits, which may be too long in any other form
	for _, n := range parts {
		for _, limit := range []*big.Rat{n.Minimum, n.ExclusiveMinimum} {
			if limit != nil && (low == nil || limit.Cmp(low) > 0) {
				low = limit
			}
		}
		for _, limit := range []*big.Rat{n.Maximum, n.ExclusiveMaximum} {
			if limit != nil && (high == nil || limit.Cmp(high) < 0) {
				high = limit
			}
		}
		if n.MultipleOf != nil {
			b.Spend(100_000)
			step = commonMultiple(step, n.MultipleOf)
			if step.Num().BitLen()+step.Denom().BitLen() > maxNumberBits {
				return false
			}
		}
		for _, keyword := range []string{"minimum", "maximum", "multipleOf"} {
			if limit, ok := b.Source(n)[keyword]; ok {
				written = append(written, limit)
			}
		}
		b.Spend(10_000)
	}
	if step == nil {
		step = big.NewRat(1, 1)
	}
	ahead := new(big.Rat).Mul(step, big.NewRat(int64(variant), 1))
	start := new(big.Rat)
	switch {
	case low != nil && low.Sign() >= 0:
		start = roundUp(low, step)
	case high != nil && high.Sign() <= 0:
		start = roundUp(high, step)
		ahead.Neg(ahead)
		step = new(big.Rat).Neg(step)
	}
	start.Add(start, ahead)
	tries := []any{writeRat(start), writeRat(new(big.Rat).Add(start, step))}
	if low != nil && high != nil {
		middle := new(big.Rat).Add(low, high)
		tries = append(tries, writeRat(middle.Mul(middle, big.NewRat(1, 2))))
	}
	return slices.ContainsFunc(append(tries, written...), accept)
}

// commonMultiple returns the least common multiple of two positive numbers, the first of which may be nil.
func commonMultiple(x, y *big.Rat) *big.Rat {
	if x == nil {
		return y
	}
	a := new(big.Int).Mul(x.Num(), y.Denom())
	c := new(big.Int).Mul(y.Num(), x.Denom())
	divisor := new(big.Int).GCD(nil, nil, a, c)
	a.Mul(a, c.Quo(c, divisor))
	return new(big.Rat).SetFrac(a, new(big.Int).Mul(x.Denom(), y.Denom()))
}

// roundUp returns the smallest multiple of step that is at least r.
func roundUp(r, step *big.Rat) *big.Rat {
	q := new(big.Rat).Quo(r, step)
	whole, rest := new(big.Int).DivMod(q.Num(), q.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return new(big.Rat).Mul(new(big.Rat).SetInt(whole), step)
}

// writeRat writes r as a JSON number, rounded if it has too many digits for one.
func writeRat(r *big.Rat) json.Number {
	if r.IsInt() {
		return json.Number(r.Num().String())
	}
	return json.Number(strings.TrimSuffix(strings.TrimRight(r.FloatString(40), "0"), "."))
}
