package postgres

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

func TestDSNComesFromTheEnvironment(t *testing.T) {
	t.Setenv("HOOKS_DSN", "postgres://hooks:secret@127.0.0.1/hooks")
	p := &Postgres{DSN: "{env.HOOKS_DSN}"}
	if err := p.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	if key := p.StoreKey("default"); strings.Contains(key, "secret") || !strings.HasSuffix(key, ":hooks_default") || key == p.StoreKey("other") {
		t.Errorf("the key of the store is %s", key)
	}
	if p.DSN != "{env.HOOKS_DSN}" {
		t.Error("the secret is part of the configuration")
	}
	err := (&Postgres{DSN: "{env.HOOKS_DSN_THAT_IS_NOT_SET}"}).Provision(caddy.Context{})
	if err == nil || err.Error() != "the DSN of the store names the environment variable HOOKS_DSN_THAT_IS_NOT_SET, which is not set" {
		t.Errorf("got %v", err)
	}
	if err := p.CheckInstance(strings.Repeat("x", 64)); err == nil || !strings.Contains(err.Error(), "set schema") {
		t.Errorf("an instance with a long name: %v", err)
	}
}
