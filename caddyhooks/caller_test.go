package caddyhooks

import (
	"net/http/httptest"
	"testing"
)

func TestOnlyTheCommandIsItsDoor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ operator, door, by, via, says string }{
		{"", "", "admin", "admin API", "the admin API, from 192.0.2.1"},
		{"mira", "", "mira", "admin API", "mira, from 192.0.2.1"},
		{"mira", "some door", "mira", "admin API", "mira, from 192.0.2.1"},
		{"mira", "caddy hooks dashboard", "mira", "caddy hooks dashboard", "mira, from 192.0.2.1"},
	} {
		r := httptest.NewRequest("GET", "/hooks/settings", nil)
		r.Header.Set("Hooks-Operator", c.operator)
		r.Header.Set("Hooks-Door", c.door)
		if got := callerFrom(r); got.by != c.by || got.via != c.via || got.String() != c.says {
			t.Errorf("%+v: got %+v, %s", c, got, got)
		}
	}
}
