//go:build agents

package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
)

var agentPrograms = npmtest.Agents("agents/testdata/agents")

// agentPages are the examples with agent programs, and how such a program is told to ask a fake model: by what stands in the
// place of a line of the Caddyfile.
var agentPages = map[string]struct {
	key   string // the variable with the key of the model
	lines func(t *testing.T, model *modeltest.Model) string
}{
	"claude-code": {"ANTHROPIC_API_KEY", func(_ *testing.T, m *modeltest.Model) string { return "env ANTHROPIC_BASE_URL " + m.URL }},
	"codex": {"CODEX_API_KEY", func(t *testing.T, m *modeltest.Model) string {
		home := t.TempDir()
		if err := os.Mkdir(filepath.Join(home, ".codex"), 0o700); err != nil {
			t.Fatal(err)
		}
		config := "model = \"fake\"\nmodel_provider = \"fake\"\n[model_providers.fake]\nname = \"fake\"\nbase_url = \"" + m.URL +
			"/v1\"\nenv_key = \"CODEX_API_KEY\"\nwire_api = \"responses\"\n"
		if err := os.WriteFile(filepath.Join(home, ".codex/config.toml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return "home " + home
	}},
	"pull-request-review": {"ANTHROPIC_API_KEY", func(_ *testing.T, m *modeltest.Model) string { return "env ANTHROPIC_BASE_URL " + m.URL }},
	"gemini":              {"GEMINI_API_KEY", func(_ *testing.T, m *modeltest.Model) string { return "env GOOGLE_GEMINI_BASE_URL " + m.URL }},
}

// The commands on the pages of agent programs do what the pages say, with the real programs.
func TestAgentExamples(t *testing.T) {
	t.Parallel()
	dir := agentPrograms(t)
	for name, page := range agentPages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := modeltest.Start(t)
			model.Answer("Triage this issue", modeltest.Step{Text: "A bug in the limit for uploads, and urgent."})
			model.Answer("An alert fires", modeltest.Step{JSON: `{"page":true,"cause":"the logs were not rotated"}`})
			model.Answer("weekly report", modeltest.Step{Text: "This week brought runners for agents."})
			model.Answer("Review this change", modeltest.Step{JSON: `{"approve":false,"comments":[{"file":"upload.go","line":10,"text":"nothing bounds the body now"}]}`})
			line := "env " + page.key + " {env." + page.key + "}"
			env := []string{"PATH=" + dir + ":" + os.Getenv("PATH"), page.key + "=key-of-the-model-0123456789"}
			runPage(t, filepath.Join(root, "examples", name, "README.md"), env, line, line+"\n"+page.lines(t, model))
			calls := slices.DeleteFunc(model.Calls(), func(call *modeltest.Call) bool { return call.Beside })
			if len(calls) != 1 {
				t.Fatalf("the model was asked %d times", len(calls))
			}
			if name == "claude-code" {
				passwd, err := os.ReadFile("/etc/passwd")
				if err != nil {
					t.Fatal(err)
				}
				first, _, _ := strings.Cut(string(passwd), "\n")
				if calls[0].Holds(first) || !calls[0].Holds("@/etc/passwd") {
					t.Error("the issue has brought in a file, or has not arrived")
				}
			}
		})
	}
}
