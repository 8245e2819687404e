package caddyhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

func init() {
	caddy.RegisterModule(tornStore{})
}

// tornStore is a store that fails to save settings and to list deliveries. Its name comes after those that a golden file lists.
type tornStore struct {
	How string `json:"how"`
}

const tornStack = "goroutine 1 [running]:\nbolt.(*committer).write(0xc0001)\n\t/src/committer.go:187"

var tornBy = map[string]error{
	"disk":  errors.New("writing to the store: no space left on device"),
	"panic": &panics.Error{Who: "the store", Value: "a torn page", Stack: []byte(tornStack)},
	"text":  errors.New("writing to the store: panic: a torn page\n" + tornStack),
}

func (tornStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "hooks.stores.torn", New: func() caddy.Module { return new(tornStore) }}
}

func (s *tornStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.AllArgs(&s.How) {
		return d.ArgErr()
	}
	return nil
}

func (s *tornStore) StoreKey(instance string) string { return "torn:" + s.How + ":" + instance }

func (s *tornStore) OpenStore(context.Context, string) (engine.Store, error) {
	return failingStore{memory.New().Store(), tornBy[s.How]}, nil
}

type failingStore struct {
	engine.Store
	err error
}

type failingSettings struct {
	engine.Settings
	err error
}

type failingDeliveries struct {
	engine.Deliveries
	err error
}

func (s failingStore) Settings() engine.Settings { return failingSettings{s.Store.Settings(), s.err} }
func (s failingStore) Deliveries() engine.Deliveries {
	return failingDeliveries{s.Store.Deliveries(), s.err}
}

func (s failingSettings) Save(context.Context, []byte, []byte, int64) (int64, error) { return 0, s.err }
func (d failingDeliveries) List(context.Context, engine.DeliveryQuery) ([]*engine.Delivery, string, error) {
	return nil, "", d.err
}

func TestAdminErrorsShowNoStack(t *testing.T) {
	for how, tc := range map[string]struct{ told, logged string }{
		"disk":  {"no space left on device", "no space left on device"},
		"panic": {"Caddy's log", `"stack":"goroutine 1 [running]`},
		"text":  {"Caddy's log", "committer.go:187"},
	} {
		t.Run(how, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "default.log")
			s := hookstest.NewServer(t)
			s.Globals = "log {\n output file " + log + "\n}"
			s.Load("hooks {\n\trunner echo\n\tstore torn " + how + "\n}")
			for _, resp := range []hookstest.Response{
				s.AdminRequest("PATCH", "/hooks/settings", `{"enabled":true}`),
				s.AdminRequest("PUT", "/hooks/mappings/a", `{}`),
				s.AdminRequest("GET", "/hooks/deliveries", ""),
				s.AdminRequest("GET", "/hooks/instances/default/deliveries", ""),
			} {
				resp.WantAdminError(t, 500, tc.told)
				for _, word := range []string{"goroutine", ".go:", "torn page", `\n`} {
					if strings.Contains(resp.Body, word) {
						t.Errorf("the answer speaks of %q: %s", word, resp.Body)
					}
				}
			}
			logged, err := os.ReadFile(log)
			if err != nil || !strings.Contains(string(logged), tc.logged) {
				t.Errorf("%q is not in the log: %v\n%s", tc.logged, err, logged)
			}
			for line := range strings.Lines(string(logged)) {
				var fields struct{ Error string }
				if err := json.Unmarshal([]byte(line), &fields); err != nil {
					t.Errorf("%v: %s", err, line)
				}
				if how == "panic" && strings.Contains(fields.Error, "goroutine") {
					t.Errorf("the stack is no field of its own: %s", line)
				}
			}
		})
	}
}
