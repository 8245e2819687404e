package caddyhooks_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

// largeStore makes the file of a store that is larger than what sockets hold back for a client that does not read.
func largeStore(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "store.db")
	database, err := bolt.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	store := database.Store()
	for range 16 {
		run := &engine.Run{ChatID: "c", Hook: "agent", Message: "talk", Timeout: time.Minute}
		if err := store.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Text: strings.Repeat("m", 1<<20), HasText: true}}
		if _, err := store.Runs().End(t.Context(), &engine.Claim{Run: run}, end, engine.Batch{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// stallBackup asks for a backup, and reads no more than its headers.
func stallBackup(t *testing.T, s *hookstest.Server) (conn net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.Admin, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil { // the kernel takes no more than that for it
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /hooks/backup HTTP/1.1\r\nHost: "+strings.TrimPrefix(s.Admin, "http://")+"\r\nHooks-Operator: ops\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, head); err != nil || string(head) != "HTTP/1.1 200" {
		t.Fatalf("got %q, %v", head, err)
	}
	return conn
}

// heldHooks is a hooks directive whose runs are never over, with a file as its store.
func heldHooks(t *testing.T, file string) string {
	rn, _, _ := hookstest.HeldRunner(t)
	return hookstest.Hooks(rn, "workers 1\ndrain_timeout 1ms\nstore bolt "+file)
}

func TestAClientThatDoesNotReadItsBackupIsCutOff(t *testing.T) {
	caddyhooks.Shorten(t, caddyhooks.BackupPatience, 200*time.Millisecond)
	file := largeStore(t)
	s := hookstest.StartSite(t, heldHooks(t, file))
	conn := stallBackup(t, s)
	hookstest.Eventually(t, "another backup begins", func() bool {
		resp, err := hookstest.TryRequest("GET", s.Admin+"/hooks/backup", "", "Hooks-Operator", "ops")
		return err == nil && resp.Status == 200
	})
	got, _ := io.Copy(io.Discard, conn)
	if info, err := os.Stat(file); err != nil || got >= info.Size() {
		t.Errorf("the client got %d bytes of %d, %v", got, info.Size(), err)
	}
}

func TestAReloadEndsABackup(t *testing.T) {
	s := hookstest.StartSite(t, heldHooks(t, largeStore(t)))
	stallBackup(t, s)
	s.AdminRequest("GET", "/hooks/backup", "", "Hooks-Operator", "ops").WantAdminError(t, 409, "another backup")
	s.Accept(`{"message":"meanwhile"}`)
	// To another store: the one that is backed up is closed.
	s.Reload(heldHooks(t, filepath.Join(t.TempDir(), "other.db")))
	if resp := s.AdminRequest("GET", "/hooks/backup", "", "Hooks-Operator", "ops"); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
}

func TestABackupIsNotForDashboards(t *testing.T) {
	const secret = "a-secret-of-the-live-settings"
	s := hookstest.StartSite(t, basicAuth+"hooks {\nrunner echo\n}\nhooks ops {\npath /ops\n}\nhooks_dashboard {\nread_only alice\n}")
	s.PatchSettings(`{"token":["` + secret + `"]}`)
	local, _ := localPage(t, s)
	for name, page := range map[string]dashboardPage{"dashboard": pageOf(t, s).as("ops"), "read-only": pageOf(t, s).as("alice"), "local": local} {
		for _, path := range []string{"backup", "instances/default/backup", "instances/ops/backup"} {
			resp := page.api("GET", path, "")
			if strings.Contains(resp.Body, secret) {
				t.Errorf("%s: %s gives out secrets", name, path)
			}
			resp.WantAdminError(t, 404, "secrets")
		}
	}
	s.AdminRequest("GET", "/hooks/backup", "").WantAdminError(t, 403, "Hooks-Operator")
	resp := s.AdminRequest("GET", "/hooks/backup", "", "Hooks-Operator", "ops")
	if resp.Status != 200 || !strings.Contains(resp.Body, secret) || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the admin endpoint answers %d %v", resp.Status, resp.Header)
	}
	if other := s.AdminRequest("GET", "/hooks/instances/ops/backup", "", "Hooks-Operator", "ops"); other.Status != 200 || strings.Contains(other.Body, secret) {
		t.Errorf("the other instance answers %d", other.Status)
	}
}

func TestAStoreInMemoryHasNoBackup(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nstore memory\n}")
	s.AdminRequest("GET", "/hooks/backup", "", "Hooks-Operator", "ops").WantAdminError(t, 501, "in memory")
}
