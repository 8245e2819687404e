//go:build agents

package agents

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// The runners that start programs.
const (
	commandRunner = "command"
	acpRunner     = "acp"
)

// site is a Caddy whose turns go to an agent.
type site struct {
	*hookstest.Server
	agent  *agent
	runner string
	model  *modeltest.Model
	home   string // of the agent
	work   string // its working directory
	config string // the directives, to restart with
}

// start starts a Caddy whose turns go to the agent.
func (a *agent) start(t *testing.T, runner string, lines ...string) *site {
	t.Helper()
	return a.startAs(t, runner, a.name, lines...)
}

// startAs is start with other words after the name of the runner.
func (a *agent) startAs(t *testing.T, runner, words string, lines ...string) *site {
	t.Helper()
	return a.startWith(t, modeltest.Start(t), runner, words, lines...)
}

// startWith is startAs with a model that is there already. When the test is over, Caddy is killed, and nothing of the agent may be
// left.
func (a *agent) startWith(t testing.TB, model *modeltest.Model, runner, words string, lines ...string) *site {
	t.Helper()
	return a.startBeside(t, "", model, runner, words, lines...)
}

// startBeside is startWith with more lines in the hooks block.
func (a *agent) startBeside(t testing.TB, beside string, model *modeltest.Model, runner, words string, lines ...string) *site {
	t.Helper()
	s := &site{agent: a, runner: runner, model: model, home: t.TempDir(), work: t.TempDir()}
	a.settle(t, s.home, model)
	s.config = fmt.Sprintf("hooks {\n enabled\n workers 4\n token %s\n runner %s %s {\n %s\n home %s\n dir %s\n %s\n }\n %s\n }",
		hookstest.Token, runner, words, a.lines(model), s.home, s.work, strings.Join(lines, "\n"), beside)
	t.Cleanup(func() { s.wantNothingLeft(t, "Caddy was killed") })
	s.Server = hookstest.StartProcess(t, s.config, "PATH="+path(t))
	return s
}

// wantNothingLeft waits until no process has the agent's home or works in its directory.
func (s *site) wantNothingLeft(t testing.TB, since string) {
	t.Helper()
	hookstest.Eventually(t, "nothing of the agent runs after "+since, func() bool {
		return len(hookstest.ProcessesAtHome(s.home)) == 0 && len(hookstest.ProcessesAtHome(s.work)) == 0
	})
}

// request is an agent request.
type request map[string]any

// remember has a chat go on from run to run.
func (r request) remember(chat string) request {
	r["chatId"], r["memoryPreset"] = chat, "general_chat"
	return r
}

// say is a request with a message.
func say(message string) request { return request{"message": message} }

// ask sends a request and waits for the end of its run.
func (s *site) ask(r request) hookstest.RunView {
	s.T.Helper()
	return s.EndedWithin(modeltest.Patience, s.accept(r))
}

// accept sends a request and returns the id of its run.
func (s *site) accept(r request) string {
	s.T.Helper()
	return s.Accept(hookstest.AsJSON(s.T, r))
}

// wantReply asks, and checks the answer.
func (s *site) wantReply(t *testing.T, r request, want string) hookstest.RunView {
	t.Helper()
	run := s.ask(r)
	if run.Status != "completed" || run.Reply != want {
		t.Errorf("%.200q: got %.2000s, because %s", r["message"], run.Body, s.ReasonOf(run.RunID))
	}
	return run
}

// asked is the last call of the model with some words, after a turn that must have made it.
func (s *site) asked(t *testing.T, words string) *modeltest.Call {
	t.Helper()
	calls := s.model.CallsFor(words)
	if len(calls) == 0 {
		t.Fatalf("the model was not asked %q", words)
	}
	return calls[len(calls)-1]
}

// write writes a file and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// forEach runs a test for each agent and each runner.
func forEach(t *testing.T, try func(t *testing.T, a *agent, runner string)) {
	t.Parallel()
	for _, a := range agents {
		for _, runner := range []string{commandRunner, acpRunner} {
			t.Run(a.name+" "+runner, func(t *testing.T) {
				t.Parallel()
				try(t, a, runner)
			})
		}
	}
}
