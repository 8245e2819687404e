package shorthand_test

import (
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
)

func TestSourcesAndPipesStayAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{@header.X-GitHub-Event}", "{@header.host}", "{@query.path}", "{@query['a b']}", "{@body}", "{@hook}", "{@run}", "{@time}", "{@root.path}", "{@root.header.X}",
		"{header.X | truncate 20}", "{query.x | json}", "{path | default 'none'}", "{host|json}", "{file.name | indent 2}",
		"{@header.X-Timestamp}.{@body}",
	} {
		expanded := caddyfile.Segment{{Text: text}}
		httpcaddyfile.NewShorthandReplacer().ApplyToSegment(&expanded)
		if expanded[0].Text != text {
			t.Errorf("Caddy makes %s of %s", expanded[0].Text, text)
		}
		if got := shorthand.Undo(expanded[0].Text); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
	// Beside the sources, Caddy's own are put back.
	for _, text := range []string{"{@header.X} {header.X} {path} {query.x}", "{path}{@query.path}{host | json}{host}"} {
		expanded := caddyfile.Segment{{Text: text}}
		httpcaddyfile.NewShorthandReplacer().ApplyToSegment(&expanded)
		if got := shorthand.Undo(expanded[0].Text); got != text || expanded[0].Text == text {
			t.Errorf("%s became %s, by way of %s", text, got, expanded[0].Text)
		}
	}
}
