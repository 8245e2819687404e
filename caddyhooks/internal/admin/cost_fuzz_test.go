package admin

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

func FuzzCostQuery(f *testing.F) {
	for _, seed := range []string{"", "since=7d&by=hook&hook=a,b", "since=31d&by=day", "since=2026-11-15T12:30:00Z", "since=32d", "by=", "by=x%00", "hook=,"} {
		f.Add(seed)
	}
	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, raw string) {
		if checkParameters(raw, []string{"since", "by", "hook"}) != nil { // such a request is refused before
			return
		}
		params, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatal(err)
		}
		query, err := parseCostQuery(params, now)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 1000 {
				t.Errorf("the error is %q", err)
			}
			return
		}
		if query.within < 0 || query.within > oldestCosts || !slices.Contains(api.CostsBy, query.by) || params.Has("hook") != (query.hooks != nil) {
			t.Errorf("%q becomes %+v", raw, query)
		}
	})
}
