//go:build agents

package agents

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
)

var programs = npmtest.Agents("testdata/agents")

// path is a PATH with the programs.
func path(t testing.TB) string {
	t.Helper()
	dir := programs(t)
	return dir + ":" + os.Getenv("PATH")
}

// agent is a program, and how it is told to ask the fake model.
type agent struct {
	name  string
	acp   []string // the program that speaks ACP
	env   func(model string) map[string]string
	files func(model string) map[string]string // below HOME
	kept  []string                             // what it keeps of its sessions below HOME
}

const keyOfModel = "key-of-the-model-0123456789"

var claude = &agent{
	name: "claude", acp: []string{"claude-agent-acp"},
	env: func(model string) map[string]string {
		return map[string]string{"ANTHROPIC_API_KEY": keyOfModel, "ANTHROPIC_BASE_URL": model}
	},
	kept: []string{".claude"},
}

var codex = &agent{
	name: "codex", acp: []string{"codex-acp"},
	env: func(string) map[string]string { return map[string]string{"MODEL_KEY": keyOfModel} },
	files: func(model string) map[string]string {
		return map[string]string{".codex/config.toml": fmt.Sprintf(`
model = "fake"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "%s/v1"
env_key = "MODEL_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
`, model)}
	},
	kept: []string{".codex/sessions"},
}

var gemini = &agent{
	name: "gemini", acp: []string{"gemini", "--acp"},
	env: func(model string) map[string]string {
		return map[string]string{"GEMINI_API_KEY": keyOfModel, "GOOGLE_GEMINI_BASE_URL": model, "GEMINI_MODEL": "gemini-2.5-flash"}
	},
	files: func(string) map[string]string {
		return map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false},
			"telemetry":{"enabled":false},"general":{"enableAutoUpdate":false}}`}
	},
	kept: []string{".gemini/tmp"},
}

var agents = []*agent{claude, codex, gemini}

// settle writes the program's configuration into a home.
func (a *agent) settle(t testing.TB, home string, model *modeltest.Model) {
	t.Helper()
	if a.files == nil {
		return
	}
	for name, text := range a.files(model.URL) {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// environ is the program's environment outside of Caddy.
func (a *agent) environ(t testing.TB, home string, model *modeltest.Model) []string {
	env := []string{"PATH=" + path(t), "HOME=" + home, "TMPDIR=" + home, "LANG=C.UTF-8"}
	vars := a.env(model.URL)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

// lines are the lines of a runner's block for a Caddyfile.
func (a *agent) lines(model *modeltest.Model) string {
	var lines []string
	vars := a.env(model.URL)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		lines = append(lines, "env "+name+" "+vars[name])
	}
	return strings.Join(lines, "\n")
}
