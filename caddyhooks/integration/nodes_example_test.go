package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

const postgresPage = root + "/examples/postgres/README.md"

// The example with containers, with processes in their place: the files are the same but for addresses, and the commands but for those of
// docker.
func TestPostgresExample(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	database.Exec(t, "postgres", "CREATE DATABASE hooks")
	addresses := []string{hookstest.FreePort(t), hookstest.FreePort(t), hookstest.FreePort(t)}
	for i, port := range addresses {
		addresses[i] = "127.0.0.1:" + port
	}
	start := func(file string, edits ...string) *hookstest.Process {
		text, err := os.ReadFile(filepath.Join(root, "examples", "postgres", file))
		if err != nil {
			t.Fatal(err)
		}
		edited := strings.NewReplacer(edits...).Replace(string(text))
		if !strings.Contains(edited, "{\n\tservers") { // it has no global options
			edited = "{\n\tadmin off\n}\n" + edited
		} else {
			edited = strings.Replace(edited, "{\n\tservers", "{\n\tadmin off\n\tservers", 1)
		}
		d := &hookstest.Deployment{
			Binary: hookstest.NewBinary(t), URL: "http://" + strings.TrimPrefix(edits[1], "http://"), Config: filepath.Join(t.TempDir(), "Caddyfile"),
			Env: []string{"HOOKS_TOKEN=only-for-trying-it-out", "HOOKS_DSN=" + database.TCP("postgres", pgtest.Password, "hooks")},
		}
		if err := os.WriteFile(d.Config, []byte(edited), 0o600); err != nil {
			t.Fatal(err)
		}
		return d.Start(t)
	}
	nodes := []*hookstest.Process{start("Caddyfile", "http://:8080", "http://"+addresses[0]), start("Caddyfile", "http://:8080", "http://"+addresses[1])}
	start("Caddyfile.balancer", "http://:8080", "http://"+addresses[2], "node-1:8080", addresses[0], "node-2:8080", addresses[1])

	blocks := fences(t, postgresPage)
	commands := 0
	for i, block := range blocks {
		switch {
		case block.language != "sh" || strings.Contains(block.text, "docker compose up"):
		case strings.TrimSpace(block.text) == "docker compose kill node-1":
			nodes[0].Kill()
			nodes[0].Over = true
		default:
			commands++
			wantOutput(t, blocks, i, strings.ReplaceAll(block.text, "127.0.0.1:8080", addresses[2]))
		}
	}
	if commands != 2 {
		t.Errorf("the page has %d commands", commands)
	}
}
