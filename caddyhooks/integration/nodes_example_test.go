package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

const postgresPage = root + "/examples/postgres/README.md"

// postgresExample is the example with containers, with processes in their place: the files are the same but for addresses.
type postgresExample struct {
	nodes    []*hookstest.Process
	balancer string // its address
}

// startPostgresExample starts a node for each DSN, and the balancer.
func startPostgresExample(t *testing.T, dsns ...string) *postgresExample {
	t.Helper()
	start := func(file, dsn string, edits ...string) *hookstest.Process {
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
			Binary: hookstest.NewBinary(t), URL: edits[1], Config: filepath.Join(t.TempDir(), "Caddyfile"),
			Env: []string{"HOOKS_TOKEN=only-for-trying-it-out", "HOOKS_DSN=" + dsn},
		}
		if err := os.WriteFile(d.Config, []byte(edited), 0o600); err != nil {
			t.Fatal(err)
		}
		return d.Start(t)
	}
	example := &postgresExample{balancer: "127.0.0.1:" + hookstest.FreePort(t)}
	edits := []string{"http://:8080", "http://" + example.balancer}
	for i, dsn := range dsns {
		address := "127.0.0.1:" + hookstest.FreePort(t)
		example.nodes = append(example.nodes, start("Caddyfile", dsn, "http://:8080", "http://"+address))
		edits = append(edits, fmt.Sprintf("node-%d:8080", i+1), address)
	}
	start("Caddyfile.balancer", "", edits...)
	return example
}

// The commands of the page are run but for those of docker.
func TestPostgresExample(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	database.Exec(t, "postgres", "CREATE DATABASE hooks")
	dsn := database.TCP("postgres", pgtest.Password, "hooks")
	example := startPostgresExample(t, dsn, dsn)
	nodes := example.nodes

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
			wantOutput(t, blocks, i, strings.ReplaceAll(block.text, "127.0.0.1:8080", example.balancer))
		}
	}
	if commands != 2 {
		t.Errorf("the page has %d commands", commands)
	}
}

// A node that runs and cannot reach the database is passed over, and used again when it can.
func TestPostgresExamplePassesOverANodeThatIsCutOff(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	database.Exec(t, "postgres", "CREATE DATABASE hooks")
	database.Exec(t, "postgres", "CREATE ROLE another LOGIN SUPERUSER PASSWORD '"+pgtest.Password+"'")
	example := startPostgresExample(t, database.TCP("another", pgtest.Password, "hooks"), database.TCP("postgres", pgtest.Password, "hooks"))
	healthOf := func(node *hookstest.Process) int {
		resp, err := hookstest.TryRequest("GET", node.URL+"/healthz", "")
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status
	}
	accepts := func() bool {
		resp, err := hookstest.TryRequest("POST", "http://"+example.balancer+"/api/hooks/agent", `{"message":"a"}`, "Authorization", "Bearer only-for-trying-it-out")
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status == 202
	}
	acceptsAll := func(when string) {
		t.Helper()
		hookstest.Eventually(t, "twenty requests in a row are accepted, "+when, func() bool {
			for range 20 {
				if !accepts() {
					return false
				}
			}
			return true
		})
		for range 50 {
			if !accepts() {
				t.Fatalf("a request is refused, %s, although the balancer knew which node is well", when)
			}
		}
	}
	acceptsAll("while both nodes are well")

	database.Exec(t, "postgres", "ALTER ROLE another NOLOGIN; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'another'")
	hookstest.Eventually(t, "the node is not ready", func() bool { return healthOf(example.nodes[0]) == 503 })
	acceptsAll("while one node is cut off")

	database.Exec(t, "postgres", "ALTER ROLE another LOGIN")
	hookstest.Eventually(t, "the node is ready again", func() bool { return healthOf(example.nodes[0]) == 200 })
	example.nodes[1].Kill()
	example.nodes[1].Over = true
	acceptsAll("while only that node is there")
}
