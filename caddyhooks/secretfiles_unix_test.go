//go:build unix

package caddyhooks_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

const (
	liveTokenHooks = "hooks {\n enabled\n runner echo\n}"
	olderToken     = "0123456789abcdef-older"
)

// secretFile is a file with a secret, and a hook that names it.
func secretFile(t *testing.T) (file, hook string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("s3cret-s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, `{"action":"wake","authMode":"gitlab","authSecret":"{file.` + file + `}"}`
}

// wantRevoked revokes the older of two tokens.
func wantRevoked(t *testing.T, s *hookstest.Server) {
	t.Helper()
	if got := s.AdminRequest("PATCH", "/hooks/settings", `{"token":["`+hookstest.Token+`"]}`); got.Status != 200 {
		t.Fatalf("revoking a token: got %d %s", got.Status, got.Body)
	}
	s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+olderToken).WantError(t, 401)
}

func giveTokens(t *testing.T, s *hookstest.Server) {
	t.Helper()
	if got := s.AdminRequest("PATCH", "/hooks/settings", `{"token":["`+hookstest.Token+`","`+olderToken+`"]}`); got.Status != 200 {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
}

// A secret may name a pipe that nobody writes to.
func TestASecretFromAPipeHoldsUpNoChange(t *testing.T) {
	s := hookstest.StartSite(t, liveTokenHooks)
	giveTokens(t, s)
	file, hook := secretFile(t)
	if got := s.AdminRequest("PUT", "/hooks/mappings/saved", hook); got.Status != 200 {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	asPipe := func() {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asPipe()
	if got := s.Post("/api/hooks/saved", `{}`, "X-Gitlab-Token", "s3cret-s3cret"); got.Status != 200 {
		t.Errorf("a secret that was read before: got %d %s", got.Status, got.Body)
	}

	t.Run("that is saved", func(t *testing.T) {
		_, other := secretFile(t)
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		s.AdminRequest("PUT", "/hooks/mappings/piped", `{"action":"wake","authMode":"gitlab","authSecret":"{file.`+pipe+`}"}`).
			WantAdminError(t, 400, "authSecret names the file "+pipe+", which cannot be read: it is not a regular file")
		s.AdminRequest("PATCH", "/hooks/settings", `{"token":["{file.`+pipe+`}"]}`).WantAdminError(t, 400, "not a regular file")
		if got := s.AdminRequest("PUT", "/hooks/mappings/other", other); got.Status != 200 {
			t.Errorf("another hook: got %d %s", got.Status, got.Body)
		}
		wantRevoked(t, s)
	})
	t.Run("that was saved before", func(t *testing.T) {
		giveTokens(t, s)
		s.Restart(liveTokenHooks)
		got := s.AdminRequest("GET", "/hooks/settings", "").Body
		if !strings.Contains(got, "is left out: hook") || !strings.Contains(got, "which cannot be read: it is not a regular file") {
			t.Errorf("got %s", got)
		}
		wantRevoked(t, s)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("an0ther-s3cret"), 0o600); err != nil {
			t.Fatal(err)
		}
		giveTokens(t, s)
		if got := s.Post("/api/hooks/saved", `{}`, "X-Gitlab-Token", "an0ther-s3cret"); got.Status != 200 {
			t.Errorf("when it is a file again: got %d %s", got.Status, got.Body)
		}
	})
}

// A file of a network may take its time.
func TestASlowFileHoldsUpNoOtherChange(t *testing.T) {
	release := make(chan struct{})
	begun, restore := caddyhooks.HoldSecrets(release)
	t.Cleanup(restore) // after the site has stopped
	s := hookstest.StartSite(t, liveTokenHooks)
	giveTokens(t, s)
	_, hook := secretFile(t)
	answers := make(chan int, 1)
	go func() {
		got, _ := hookstest.TryRequest("PUT", s.Admin+"/hooks/mappings/slow", hook, "Content-Type", "application/json")
		answers <- got.Status
	}()
	hookstest.ReceiveWithin(t, "the file is being read", begun)
	wantRevoked(t, s)
	close(release)
	if got := hookstest.ReceiveWithin(t, "the hook is saved", answers); got != 200 {
		t.Errorf("got %d", got)
	}
	s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+olderToken).WantError(t, 401)
	if got := s.Post("/api/hooks/slow", `{}`, "X-Gitlab-Token", "s3cret-s3cret"); got.Status != 200 {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}
