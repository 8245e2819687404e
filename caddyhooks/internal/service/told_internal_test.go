package service

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// A secret that a sender told gives way to another one after a while, and is gone after a day.
func TestToldSecretsAreReplacedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &Instance{Service: &Service{Store: memory.New().Store()}}
		active := &settings.Active{Hooks: map[string]*settings.Hook{"pages": {Auth: settings.Authentication{Scheme: settings.FindScheme("notion")}}}}
		tell := func(hook, secret string, want bool) {
			t.Helper()
			if kept, err := in.KeepTold(t.Context(), hook, secret, time.Now()); kept != want || err != nil {
				t.Errorf("%s is kept: %v, %v", secret, kept, err)
			}
		}
		show := func(want string) {
			t.Helper()
			told, err := in.Told(t.Context(), active, time.Now())
			got := ""
			for _, secret := range told {
				got += secret.Title + " " + secret.Hook + " " + secret.Secret
			}
			if got != want || err != nil {
				t.Errorf("%q is shown, want %q, %v", got, want, err)
			}
		}
		show("")
		tell("pages", "first", true)
		tell("pages", "first", true)
		tell("pages", "second", false)
		tell("gone", "third", true) // whose hook is not there any more
		show("Notion pages first")
		time.Sleep(toldStays)
		tell("pages", "second", true)
		show("Notion pages second")
		time.Sleep(toldFor - time.Second)
		if err := in.Service.forgetTold(t.Context(), time.Now()); err != nil {
			t.Error(err)
		}
		show("Notion pages second")
		time.Sleep(time.Second)
		show("")
		if err := in.Service.forgetTold(t.Context(), time.Now()); err != nil {
			t.Error(err)
		}
		if left, err := in.Service.Store.Documents().Load(t.Context(), toldKind); len(left) > 0 || err != nil {
			t.Errorf("these are left: %v, %v", left, err)
		}
	})
}
