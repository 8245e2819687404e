// Package integration tries the program that people build: it is killed, stopped, reloaded under load and cut off from power,
// disk and network, and must lose nothing. witness_test.go is what Caddy talks to meanwhile and what has to be true in the end;
// load_test.go generates the requests.
package integration

import (
	"os"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/browsertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestMain(m *testing.M) {
	code := hookstest.RunTests(m, 8)
	browsertest.Close()
	os.Exit(code)
}
