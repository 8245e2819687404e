package settings

import (
	"fmt"
	"sync"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// bothNames is the name of a setting, or of a field of a mapping, in JSON and in a Caddyfile.
func bothNames(jsonName string) string {
	if directive := CaddyfileNames()[jsonName]; directive != "" && directive != jsonName {
		return jsonName + " (" + directive + " in a Caddyfile)"
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

// inSeconds is a number of seconds, as in "3600 seconds (1h)".
func inSeconds(n int) string {
	if n < 60 {
		return fmt.Sprintf("%d seconds", n)
	}
	return fmt.Sprintf("%d seconds (%s)", n, text.ShortDuration(time.Duration(n)*time.Second))
}
