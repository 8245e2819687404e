package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestAReloadIsAmongTheChanges(t *testing.T) {
	config := func(more string) string {
		return "hooks {\nenabled\ntoken first-token-1234567\nrunner echo\n" + more + "}"
	}
	s := hookstest.StartSite(t, config("hook old {\nauth token hush-hush-1234567\n}\nworkers 2\n"))
	changes := func() (page api.ChangesPage) {
		t.Helper()
		resp := s.AdminRequest("GET", "/hooks/changes", "")
		if err := json.Unmarshal([]byte(resp.Body), &page); err != nil || resp.Status != 200 {
			t.Fatalf("%v: %d %s", err, resp.Status, resp.Body)
		}
		if strings.Contains(resp.Body, "1234567") {
			t.Errorf("a secret is told: %s", resp.Body)
		}
		return page
	}
	wait := func(n int) api.Change {
		t.Helper()
		hookstest.Eventually(t, fmt.Sprintf("there are %d changes", n), func() bool { return len(changes().Changes) == n })
		return changes().Changes[0]
	}
	s.Reload(config("hook old {\nauth token hush-hush-1234567\n}\nworkers 2\n\n")) // in the same way
	s.PatchSettings(`{"memoryPreset":"general_chat"}`)
	wait(1)

	s.Reload(config("max_payload 1MB\nhook new {\nauth token other-hush-1234567\n}\nworkers 3\n"))
	change, told := wait(2), ""
	for _, part := range change.Changes {
		told += fmt.Sprintf("%s %s→%s; ", part.What, part.Before, part.After)
	}
	const want = `maxPayloadSize null→1048576; mappings/new null→{"authMode":"token","authSecret":"set"}; ` +
		`mappings/old {"authMode":"token","authSecret":"set"}→null; workers →; `
	if change.By != "Caddy" || change.Via != "reload" || told != want {
		t.Errorf("by %s via %s: %s\nwant %s", change.By, change.Via, told, want)
	}
	out, errs, err := command(t, "changes", "--limit", "1", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	for _, words := range []string{"Caddy", "reload", "maxPayloadSize", "hook new", "hook old", "workers", "changed"} {
		if !strings.Contains(out, words) {
			t.Errorf("%s is not in %s", words, out)
		}
	}
	s.PatchSettings(`{"memoryPreset":null}`) // settings can be changed as before
	wait(3)
}
