package admin

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
		r.Header.Set("Hooks-Via", c.door)
		if got := callerFrom(r); got.By != c.by || got.Via != c.via || got.String() != c.says {
			t.Errorf("%+v: got %+v, %s", c, got, got)
		}
	}
}

func TestAccountsTellUsersApart(t *testing.T) {
	t.Parallel()
	alice := Caller{By: "alice", Via: "dashboard", Address: "192.0.2.1"}
	operator := Caller{By: "operator", Via: "dashboard", Address: "2001:db8::1", Anybody: true}
	for _, c := range []struct {
		name             string
		one              Caller
		by, via, address string
		same             bool
	}{
		{"another address", alice, "alice", "dashboard", "192.0.2.2", true},
		{"another case", alice, "Alice", "dashboard", "192.0.2.1", true},
		{"another name", alice, "bob", "dashboard", "192.0.2.1", false},
		{"another door", alice, "alice", "admin API", "192.0.2.1", false},
		{"no name, same network", operator, "operator", "dashboard", "2001:db8::2", true},
		{"no name, another network", operator, "operator", "dashboard", "2001:db8:0:1::1", false},
		{"no name, no address", operator, "operator", "dashboard", "unix socket", false},
	} {
		other := c.one
		other.By, other.Via, other.Address = c.by, c.via, c.address
		if (other.account() == c.one.account()) != c.same {
			t.Errorf("%s: the accounts are %q and %q", c.name, other.account(), c.one.account())
		}
	}
}
