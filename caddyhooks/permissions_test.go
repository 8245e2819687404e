package caddyhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func init() { caddy.RegisterModule(asker{}) }

// asker is a runner whose agent has lost its session, and asks for permissions. Told to fail, it fails.
type asker struct{}

func (asker) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "hooks.runners.test_asker", New: func() caddy.Module { return new(asker) }}
}

func (*asker) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return nil
}

func (*asker) Run(_ context.Context, turn engine.Turn) (engine.Reply, error) {
	if turn.Message == "plain" {
		return engine.Reply{Text: "an answer"}, nil
	}
	reply := engine.Reply{Text: "an answer", SessionRenewed: true}
	for range 33 {
		reply.Permissions = append(reply.Permissions, engine.Permission{Kind: "execute", Title: "make inner things", Answer: "rejected"})
	}
	if turn.Message == "fail" {
		return reply, errors.New("no")
	}
	return reply, nil
}

func TestPermissionsAreShownToOperatorsAloneAndALostSessionToAll(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			s := hookstest.StartSite(t, "hooks {\nenabled\ntoken "+hookstest.Token+"\nrunner test_asker\nstore "+store+"\n"+hookstest.WithCallbacks+"}")
			callbacks := hookstest.StartReceiver(t)
			for _, message := range []string{"do", "fail"} {
				id := s.Accept(fmt.Sprintf(`{"message":%q,"callbackUrl":%q}`, message, callbacks.URL))
				public := s.Ended(id)
				if !public.SessionRenewed {
					t.Errorf("a caller is not told of the lost session: %s", public.Body)
				}
				events := followRun(t, s, id)
				events.until("the result is there", func() bool { return events.result != "" })
				if !strings.Contains(events.result, `"sessionRenewed":true`) {
					t.Errorf("the last event is %s", events.result)
				}
				got := callbacks.Next()
				list := s.AdminRequest("GET", "/hooks/runs", "").Body
				if !strings.Contains(list, `"sessionRenewed":true`) {
					t.Errorf("a list does not show the lost session: %s", list)
				}
				for _, text := range []string{public.Body, events.result, got.Body, fmt.Sprint(got.Header), list, s.AdminRequest("GET", "/hooks/export?of=runs", "").Body} {
					if strings.Contains(text, "inner things") || strings.Contains(text, "ermissions") {
						t.Errorf("the permissions are shown in %s", text)
					}
				}
				var shown struct {
					SessionRenewed  bool
					Permissions     []map[string]string
					MorePermissions int
				}
				details := s.AdminRequest("GET", "/hooks/runs/"+id, "").Body
				if err := json.Unmarshal([]byte(details), &shown); err != nil {
					t.Fatal(err)
				}
				want := `{"answer":"rejected","kind":"execute","title":"make inner things"}`
				if len(shown.Permissions) != 32 || shown.MorePermissions != 1 || !shown.SessionRenewed || hookstest.AsJSON(t, shown.Permissions[0]) != want {
					t.Errorf("an operator is shown %s", details)
				}
			}
			answer := s.Post("/api/hooks/agent", `{"message":"do","syncResponse":true}`)
			if answer.Status != 200 || answer.Body != "an answer" || strings.Contains(fmt.Sprint(answer.Header), "inner things") {
				t.Errorf("a caller who waits gets %d %v %s", answer.Status, answer.Header, answer.Body)
			}
			id := s.Accept(`{"message":"plain"}`)
			s.Ended(id)
			if details := s.AdminRequest("GET", "/hooks/runs/"+id, "").Body; strings.Contains(details, "ermissions") || strings.Contains(details, "sessionRenewed") {
				t.Errorf("without any an operator is shown %s", details)
			}
		})
	}
}

// Interface guards
var (
	_ engine.Runner         = (*asker)(nil)
	_ caddyfile.Unmarshaler = (*asker)(nil)
)
