package settings

import (
	"cmp"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// words are those of one of the two ways to configure. A setting and a field of a mapping have a name in each.
type words int

const (
	JSONWords words = iota
	CaddyfileWords
)

// Of returns the name of a setting, or of a field of a mapping, that has the given name in JSON.
func (w words) Of(jsonName string) string {
	if w == CaddyfileWords {
		return cmp.Or(CaddyfileNames()[jsonName], jsonName)
	}
	return jsonName
}

// CaddyfileNames are the directives that set something, by its name in JSON. They are those that the parser of a Caddyfile
// has.
var CaddyfileNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{"name": "hook", "mappings": "hook"}
	add := func(jsonName, directive string) {
		if names[jsonName] == "" {
			names[jsonName] = directive
		}
	}
	for _, e := range AllSettings {
		add(e.JSONName(), e.CaddyfileDirective(new(Settings)).Word)
	}
	for _, directive := range new(HookBlock).Directives() {
		for _, field := range directive.fields {
			add(field, directive.Word)
		}
	}
	return names
})

// problem says what is wrong with a value. It follows the name of a setting or field, and is told in the words of the one who
// set it.
type problem struct {
	format string
	args   []any
}

func problemf(format string, args ...any) *problem { return &problem{format, args} }

func (p *problem) Error() string { return p.in(JSONWords) }

func (p *problem) in(w words) string {
	args := make([]any, len(p.args))
	for i, arg := range p.args {
		if worded, ok := arg.(interface{ in(w words) string }); ok {
			arg = worded.in(w)
		}
		args[i] = arg
	}
	return fmt.Sprintf(p.format, args...)
}

// byWords is a piece of a problem that differs between the words.
type byWords struct{ json, caddyfile string }

func (b byWords) in(w words) string {
	if w == CaddyfileWords {
		return b.caddyfile
	}
	return b.json
}

// seconds is a number of seconds, which is a duration in a Caddyfile.
func seconds(n int) byWords {
	return byWords{strconv.Itoa(n), text.ShortDuration(time.Duration(n) * time.Second)}
}
