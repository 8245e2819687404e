package caddyhooks_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

// The file holds live settings as the version before rates, folds and schemes stored them.
func TestSettingsSavedByAnEarlierVersionAreInForce(t *testing.T) {
	saved, err := os.ReadFile("testdata/saved-before-senders.json")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "hooks.db")
	database, err := bolt.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	store := database.Store()
	if _, err := store.Settings().Save(t.Context(), saved, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	rn := hookstest.StartRunner(t, hookstest.ReplyText(`{}`))
	s := hookstest.StartSite(t, "hooks {\n store bolt "+file+"\n runner http "+rn.URL+"\n"+limitedTeam+hookstest.WithCallbacks+"}")
	s.WantProblems(t)
	s.Post("/api/hooks/plain", `{"a":1}`).WantNew(t, 200)
	if text := rn.Next().WakeText(t); text != "got 1" {
		t.Errorf("the message is %q", text)
	}
	if resp := s.Request("POST", "/api/hooks/signed", `{"a":1}`, "X-Sig", "sha256="+signature("a secret of before", `{"a":1}`)); resp.Status != 202 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	if turn := rn.Next(); turn.Text("chatId") != "signed:1" || turn.Body["folded"] != nil {
		t.Errorf("the turn is %v", turn.Body)
	}
	if resp := s.Post("/api/hooks/answering", `{}`); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	run, _ := s.Post("/api/hooks/routed", `{"a":1}`).Field(t, "runId").(string)
	wantDelivery(t, s, run, "delivered")
	// They take the new fields, and are saved with them.
	s.PutMapping("plain", `{"messageTemplate":"got {a}","rate":"1/1h","workers":2,"foldSeconds":5}`)
	s.PatchSettings(`{"wakeFold":{"seconds":5}}`)
	settings := s.AdminRequest("GET", "/hooks/settings", "").Body
	for _, part := range []string{`"rate":"1/1h"`, `"workers":2`, `"foldSeconds":5`, `"wakeFold":{"seconds":5}`} {
		if !strings.Contains(settings, part) {
			t.Errorf("the settings have no %s: %s", part, settings)
		}
	}
}
