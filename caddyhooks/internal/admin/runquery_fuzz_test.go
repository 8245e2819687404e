package admin

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

func TestIDsAreToldFromWords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]bool{
		"019a86f2": true, "019A86F2": true, "019a86f2-": true, "019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31": true, "019a86f2-4c1e-7": true,
		"019a86f": false, "019a86f24": false, "019a86f2-4c1e-7b02-9d55-1f0c6c0e7a311": false, "019a86g2": false, "20260131": false, "deadbeef": false,
		"00000000": false, "12345678": false, "{019a86f2": false, "": false, "ffffffff-ffff-7fff-8fff-ffffffffffff": true,
	} {
		if got := api.IsRunID(text, now); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func FuzzRunQuery(f *testing.F) {
	for _, seed := range []string{"status=failed,queued&hook=a,b&chatId=c&limit=7", "since=1h&until=2026-01-31T00:00:00Z&q=words", "q=019a86f2-4c1e", "since=2026-01-31T00:00:00+02:00"} {
		f.Add(seed)
	}
	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, raw string) {
		params, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		query, err := parseRunQuery(params, now)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 1000 {
				t.Errorf("the error is %q", err)
			}
			return
		}
		if query.Limit < 1 || query.Limit > api.MaxPage || query.Prefix != "" && query.Text != "" || len(query.Text) > maxSearch {
			t.Errorf("%q becomes %+v", raw, query)
		}
		if q := strings.TrimSpace(params.Get("q")); q != "" && !searches(&query) || !strings.EqualFold(query.Prefix+query.Text, q) {
			t.Errorf("%q looks for %q and %q", raw, query.Prefix, query.Text)
		}
		if !query.Until.IsZero() && query.Selects(&engine.Record{Run: &engine.Run{AcceptedAt: query.Until}}) {
			t.Errorf("%q selects its end", raw)
		}
		// A filter that was sent is never lost, or more would be selected than was meant.
		if params.Get("status") != "" && len(query.Statuses) == 0 || params.Get("hook") != "" && len(query.Hooks) == 0 ||
			params.Get("since") != "" && query.Since.IsZero() || params.Get("until") != "" && query.Until.IsZero() {
			t.Errorf("%q becomes %+v", raw, query)
		}
	})
}
