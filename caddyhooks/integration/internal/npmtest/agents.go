package npmtest

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Agents installs agent programs from a folder with a lock file. The result is a folder for a PATH, with the programs under the
// names that they have where people install them, and with a Node for them.
func Agents(from string) func(testing.TB) (dir string) {
	installed := install(from)
	return forTests(sync.OnceValues(func() (string, error) {
		packages, err := installed()
		if err != nil {
			return "", err
		}
		shared, err := hookstest.SharedDir()
		if err != nil {
			return "", err
		}
		dir, err := os.MkdirTemp(shared, "programs-")
		if err != nil {
			return "", err
		}
		if err := os.Chmod(dir, 0o755); err != nil { // other users start them too
			return "", err
		}
		machine := "linux-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
		for name, target := range map[string]string{
			"node":             "node-" + machine + "/bin/node",
			"claude":           "@anthropic-ai/claude-code-" + machine + "/claude", // which a script of the package would put in place
			"claude-agent-acp": ".bin/claude-agent-acp",
			"codex":            ".bin/codex",
			"codex-acp":        ".bin/codex-acp",
			"gemini":           ".bin/gemini",
		} {
			target = filepath.Join(packages, "node_modules", target)
			if _, err := os.Stat(target); err != nil {
				return "", err
			}
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				return "", err
			}
		}
		return dir, nil
	}))
}
