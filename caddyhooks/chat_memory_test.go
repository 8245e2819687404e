package caddyhooks_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func init() { caddy.RegisterModule(rememberer{}) }

// rememberer is a runner that answers with what it knows of the chat, and names the message as its session.
type rememberer struct{}

func (rememberer) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "hooks.runners.test_rememberer", New: func() caddy.Module { return new(rememberer) }}
}

func (*rememberer) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return nil
}

func (*rememberer) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	if turn.Chat == nil {
		return engine.Reply{Text: "nothing", Session: turn.Message}, nil
	}
	past, err := turn.Chat.Past(ctx, 20, 64<<10)
	if err != nil {
		return engine.Reply{}, err
	}
	session, err := turn.Chat.Session(ctx)
	text := session + ":"
	for _, one := range past {
		text += " " + one.Message
	}
	return engine.Reply{Text: text, Session: turn.Message}, err
}

func TestAChatIsRememberedOverARestartUnlessItsMemoryIsDisabled(t *testing.T) {
	site := "hooks {\nenabled\ntoken " + hookstest.Token + "\nrunner test_rememberer\nstore bolt " + filepath.Join(t.TempDir(), "hooks.db") + "\n"
	s := hookstest.StartSite(t, site+"}")
	says := func(message, preset, want string) {
		t.Helper()
		body := fmt.Sprintf(`{"message":%q,"chatId":"c","memoryPreset":%q,"syncResponse":true}`, message, preset)
		if got := s.Post("/api/hooks/agent", body); got.Status != 200 || got.Body != want {
			t.Errorf("%q is answered %d %q, want %q", message, got.Status, got.Body, want)
		}
	}
	says("one", "general_chat", ":")
	says("secret", "disabled", "nothing")
	says("two", "general_chat", "one: one")
	s.Restart(site + "}")
	says("three", "coding_deep", "two: one two")
	s.Restart(site + "history off\n}")
	says("four", "general_chat", "three:")
}

// Interface guards
var (
	_ engine.Runner         = (*rememberer)(nil)
	_ caddyfile.Unmarshaler = (*rememberer)(nil)
)
