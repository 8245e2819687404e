package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// lowerMaxHooks lowers the number of hooks that an instance may have: all of them are checked at every change of one.
func lowerMaxHooks(t *testing.T) (maxHooks int) {
	t.Helper()
	if *caddyhooks.MaxHooks != 10_000 {
		t.Errorf("an instance may have %d hooks", *caddyhooks.MaxHooks)
	}
	caddyhooks.Shorten(t, caddyhooks.MaxHooks, 300)
	return 300
}

// manyHooks are mappings in JSON, each with a header and a secret of its own.
func manyHooks(n int, secret string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"name":"h%d","authMode":"hmac","hmacHeader":"X-Sig-%d","hmacSecret":"%s","messageTemplate":"%d {a.b}"}`, i, i, strings.ReplaceAll(secret, "#", fmt.Sprint(i)), i)
	}
	return b.String()[1:]
}

func wantHooks(t *testing.T, s *hookstest.Server, want int) {
	t.Helper()
	var mappings []map[string]any
	if err := json.Unmarshal([]byte(s.AdminRequest("GET", "/hooks/mappings", "").Body), &mappings); err != nil {
		t.Fatal(err)
	}
	if len(mappings) != want {
		t.Errorf("there are %d hooks, want %d", len(mappings), want)
	}
}

func TestSoManyHooksAndNoMore(t *testing.T) {
	maxHooks := lowerMaxHooks(t)
	const site = "hooks {\n enabled\n runner echo\n token " + hookstest.Token + "\n store memory\n hook pinned {\n auth hmac X-Pinned s3cret\n }\n}"
	s := hookstest.StartSite(t, site)
	pinned := `{"name":"pinned","authMode":"hmac","hmacHeader":"X-Pinned","hmacSecret":"••••"},`
	s.AdminRequest("PATCH", "/hooks/settings", `{"mappings":[`+pinned+manyHooks(maxHooks, "s#")+`]}`).
		WantAdminError(t, 400, "mappings must not have more than 300 hooks")
	wantHooks(t, s, 1)
	shown := s.PatchSettings(`{"mappings":[` + pinned + manyHooks(maxHooks-1, "s#") + `]}`).Body
	wantHooks(t, s, maxHooks)
	signed := func(hook int) {
		t.Helper()
		got := s.Request("POST", fmt.Sprintf("/api/hooks/h%d", hook), `{"a":1}`, fmt.Sprintf("X-Sig-%d", hook), signature(fmt.Sprintf("s%d", hook), `{"a":1}`))
		if got.Status != 200 {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	}
	signed(0)
	signed(maxHooks - 2)

	s.AdminRequest("PUT", "/hooks/mappings/more", `{}`).WantAdminError(t, 400, "mappings must not have more than 300 hooks")
	s.PutMapping("h7", `{"authMode":"hmac","hmacHeader":"X-Sig-7","hmacSecret":"••••"}`)
	signed(7)
	s.PatchSettings(shown) // with masks in the places of all secrets
	signed(7)
	signed(maxHooks - 2)
	if got := s.AdminRequest("DELETE", "/hooks/mappings/h7", ""); got.Status != 204 {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	s.PutMapping("more", `{}`)
	s.AdminRequest("PATCH", "/hooks/settings", `{"mappings":[`+pinned+manyHooks(maxHooks-2, "s#")+`,{"name":"h5"}]}`).
		WantAdminError(t, 400, "two hooks of the name h5")
	wantHooks(t, s, maxHooks)

	// There is no room for two pinned ones beside the live ones.
	err := s.TryLoad(strings.Replace(site, "hook pinned", "hook second\n hook pinned", 1))
	if err == nil || !strings.Contains(err.Error(), "mappings must not have more than 300 hooks") {
		t.Errorf("got %v", err)
	}
}

func TestManyHooksThatDoNotFitAreLeftOutAtAStart(t *testing.T) {
	maxHooks := lowerMaxHooks(t)
	t.Setenv("HOOK_SECRET", "s3cret")
	const site = "hooks {\n enabled\n runner echo\n token " + hookstest.Token + "\n}"
	s := hookstest.StartSite(t, site)
	s.PatchSettings(`{"mappings":[` + manyHooks(maxHooks-1, "{env.HOOK_SECRET}") + `,{"name":"last"}]}`)
	t.Setenv("HOOK_SECRET", "")
	s.Restart(site)
	wantHooks(t, s, 1)
	problems := s.Problems()
	if len(problems) != maxHooks-1 || !strings.HasPrefix(problems[0], "hook h0 is left out: ") {
		t.Errorf("there are %d problems, %.100q…", len(problems), problems)
	}
	s.PutMapping("last", `{"messageTemplate":"{a}"}`) // they do not prevent changes of others
	if got := s.Post("/api/hooks/last", `{"a":1}`); got.Status != 200 {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	s.AdminRequest("PUT", "/hooks/mappings/h0", `{"authMode":"hmac","hmacHeader":"X-Other","hmacSecret":"{env.HOOK_SECRET}"}`).WantAdminError(t, 400, "hmacSecret")
}

func TestTooManyHooksInAConfigurationAreRefused(t *testing.T) {
	maxHooks := lowerMaxHooks(t)
	adapt := func(n int) error {
		var file strings.Builder
		file.WriteString("http://localhost {\nhooks {\n")
		for i := range n {
			fmt.Fprintf(&file, "hook h%d\n", i)
		}
		file.WriteString("}\n}\n")
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file.String()), map[string]any{"filename": "Caddyfile"})
		return err
	}
	if err := adapt(maxHooks); err != nil {
		t.Error(err)
	}
	if err := adapt(maxHooks + 1); err == nil || !strings.HasSuffix(err.Error(), "hook h300 is one too many: there can be 300, at Caddyfile:303") {
		t.Errorf("got %v", err)
	}
	err := validateHandler(`{"handler":"hooks","settings":{"mappings":[` + manyHooks(maxHooks+1, "s#") + `]}}`)
	if err == nil || !strings.HasSuffix(err.Error(), ": mappings must not have more than 300 hooks") {
		t.Errorf("got %v", err)
	}
}

// BenchmarkManyHooks measures changes of settings with ten thousand hooks.
func BenchmarkManyHooks(b *testing.B) {
	s := hookstest.StartSite(b, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n}")
	all := `{"mappings":[` + manyHooks(9_999, "s#") + `]}`
	shown := s.PatchSettings(all).Body
	for name, change := range map[string]func(){
		"patch":        func() { s.PatchSettings(all) },
		"patch-masked": func() { s.PatchSettings(shown) },
		"put":          func() { s.PutMapping("one", `{}`) },
		"get":          func() { s.AdminRequest("GET", "/hooks/settings", "") },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				change()
			}
		})
	}
}
