//go:build agents

// Package agents tries the runners for agents on this machine with the real programs: Claude Code, Codex and Gemini CLI, from
// npm. They ask a fake model, so that they need no network. site_test.go starts a Caddy whose turns go to one of them;
// programs_test.go installs them.
package agents

import (
	"os"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestMain(m *testing.M) {
	os.Exit(hookstest.RunTests(m, 4)) // each starts programs that compute
}
