package settings

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/gate"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// What overlap may be.
const (
	overlapQueue   = "queue"
	overlapSkip    = "skip"
	overlapReplace = "replace"
)

// Bounds of once.
const (
	defaultOnceTime = 24 * time.Hour
	maxOnceTime     = 31 * 24 * time.Hour
)

// maxGateValue bounds the values of once and rate by, in bytes.
const maxGateValue = 4096

// gates are what keeps runs of a hook from being accepted: once, overlap and rate by.
type gates struct {
	once     *template.Template // nil for none
	onceTime time.Duration
	rateBy   *template.Template // likewise
	rate     HookRate
}

// parseGates checks once, overlap and rate by.
func (h *Hook) parseGates() (err error) {
	if h.gates.once, err = gateTemplate("once", h.Once); err != nil {
		return err
	}
	if h.gates.rateBy, err = gateTemplate("rateBy", h.RateBy); err != nil {
		return err
	}
	h.gates.onceTime = cmp.Or(time.Duration(h.OnceSeconds)*time.Second, defaultOnceTime)
	switch {
	case h.OnceSeconds != 0 && h.Once == "":
		return FieldErrorf("onceSeconds", "needs once")
	case h.OnceSeconds < 0 || h.OnceSeconds > int(maxOnceTime/time.Second):
		return FieldErrorf("onceSeconds", "must be a time from 1s to 31d")
	case (h.RateBy == "") != (h.RateByLimit == ""):
		return FieldErrorf("rateBy", "needs rateByLimit, and the other way round")
	case h.Overlap != overlapQueue && h.Overlap != "" && h.FoldSeconds > 0:
		return FieldErrorf("overlap", "does not go with %s, which gathers the runs of a chat already", bothNames("foldSeconds"))
	}
	if h.RateByLimit != "" {
		if h.gates.rate, err = ParseRate(h.RateByLimit); err != nil {
			return FieldErrorf("rateByLimit", "%v", err)
		}
	}
	return oneOf("overlap", h.Overlap, []string{overlapQueue, overlapSkip, overlapReplace})
}

// gateTemplate reads a template whose values tell events, or senders, apart.
func gateTemplate(field, source string) (*template.Template, error) {
	if source == "" {
		return nil, nil
	}
	t, err := template.Parse(source)
	if err != nil {
		return nil, FieldErrorf(field, "is refused: %v", err)
	}
	if warnings := t.Warnings(); t.FirstPlaceholder() == "" && len(warnings) > 0 {
		return nil, FieldErrorf(field, "is refused: %s", warnings[0])
	}
	if t.FirstPlaceholder() == "" {
		return nil, FieldErrorf(field, "must have a placeholder such as {data.id}: %s is the same for all requests", text.Abridge(source))
	}
	for _, s := range t.Sources() {
		if slices.Contains([]string{"run", "time", "hook"}, s.Kind) {
			return nil, FieldErrorf(field, "must not have {@%s}, which tells no event from another", s.Kind)
		}
	}
	return t, nil
}

// selectIn selects the parts of a body that the templates read.
func (g *gates) selectIn(selected *strictjson.Selection) {
	for _, t := range []*template.Template{g.once, g.rateBy} {
		if t != nil {
			t.Select(selected)
		}
	}
}

// Gate gives a run the gates of the hook. A run without a value for once is not compared with others; those without a value for rate by
// count together.
func (h *Hook) Gate(run *engine.Run, input template.Input) {
	if h.gates.once != nil {
		if values, ok := gateValues(h.gates.once, h.Once, input); ok {
			run.Gates = append(run.Gates, gate.Gate{ID: gate.NewID(gate.Once, h.Name, values...), Kind: gate.Once, Per: h.gates.onceTime})
		}
	}
	if !run.NewChat { // in which there is no other run
		run.Replaces = h.Overlap == overlapReplace
		if h.Overlap == overlapSkip {
			run.Gates = append(run.Gates, gate.Gate{ID: gate.NewID(gate.Alone, h.Name, run.ChatID), Kind: gate.Alone})
		}
	}
	if h.gates.rateBy != nil {
		values, _ := gateValues(h.gates.rateBy, h.RateBy, input)
		run.Gates = append(run.Gates, gate.Gate{ID: gate.NewID(gate.Rate, h.Name, values...), Kind: gate.Rate, Most: h.gates.rate.Runs,
			Per: h.gates.rate.Per})
	}
}

// gateValues are the source of a template and what its placeholders stand for: under another template, the same values are others. It
// reports whether there is a value.
func gateValues(t *template.Template, source string, input template.Input) (values []string, ok bool) {
	values, err := t.StrictValues(input, maxGateValue)
	ok = err == nil && slices.ContainsFunc(values, func(value string) bool { return value != "" })
	if !ok {
		values = nil
	}
	return append([]string{source}, values...), ok
}

// WithoutValue says what becomes of a request that has no value for what tells chats, events or senders apart.
func (h *Hook) WithoutValue(input template.Input) (found []string) {
	if parts := h.ChatTemplate.Segments(input, nil); slices.ContainsFunc(parts, func(s template.Segment) bool { return s.Missing }) {
		found = append(found, bothNames("chatId")+" has no value in this request: all such requests share one chat")
	}
	lacks := func(t *template.Template) bool {
		if t == nil {
			return false
		}
		_, ok := gateValues(t, "", input)
		return !ok
	}
	if lacks(h.gates.once) {
		found = append(found, "once has no value in this request: it starts a run, whatever came before")
	}
	if lacks(h.gates.rateBy) {
		found = append(found, bothNames("rateBy")+" has no value in this request: all such requests count together")
	}
	return found
}

// warningsAboutOverlap looks for an overlap that never is.
func (m *Mapping) warningsAboutOverlap() (found []string) {
	if m.Overlap != "" && m.Overlap != overlapQueue && m.Action == engine.Agent && m.ChatID == "" {
		found = append(found, "overlap has no effect without "+bothNames("chatId")+": every run has a chat of its own")
	}
	return found
}

func (h *HookBlock) unmarshalOnce(d *caddyfile.Dispenser) error {
	place := *d
	args, err := caddyconf.List(d)
	if err != nil {
		return err
	}
	if len(args) > 2 {
		return place.Errf("once takes a template, in quotes if it has spaces, and, if need be, a time, as in: once \"{data.id}\" 24h")
	}
	h.Once = args[0]
	if len(args) == 2 {
		per, err := caddy.ParseDuration(args[1])
		if err != nil || per < time.Second || per%time.Second != 0 {
			return place.Errf("once takes a template, in quotes if it has spaces, and then a time from 1s to 31d, not '%s'", args[1])
		}
		h.OnceSeconds = int(per / time.Second)
	}
	return nil
}

const rateTwice = "rate is set already: a hook has one, and one with by"

// unmarshalRate parses:
//
//	rate <n>/<duration> [by <template>]
func (h *HookBlock) unmarshalRate(d *caddyfile.Dispenser) error {
	place := *d
	args, err := caddyconf.List(d)
	if err != nil {
		return err
	}
	limit := &h.Rate
	switch {
	case len(args) == 3 && args[1] == "by":
		if h.RateBy != "" {
			return place.Err(rateTwice)
		}
		limit, h.RateBy = &h.RateByLimit, args[2]
	case len(args) != 1:
		return place.Errf("rate takes a number of runs and a time, and after that nothing, or by with a template, as in: "+
			"rate 3/1h by {sender.login}; it has '%s' there", text.Abridge(strings.Join(args[1:], " ")))
	case h.Rate != "":
		return place.Err(rateTwice)
	}
	if _, err := ParseRate(args[0]); err != nil {
		return place.Errf("rate %v", err)
	}
	*limit = args[0]
	return nil
}
