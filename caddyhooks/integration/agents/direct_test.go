//go:build agents

package agents

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// direct is an agent that is talked to by ACP without Caddy.
type direct struct {
	t     testing.TB
	stdin io.Writer
	lines *bufio.Scanner
	dir   string
	asked int
}

// startDirect starts the agent.
func startDirect(t testing.TB, a *agent, model *modeltest.Model) *direct {
	t.Helper()
	home := t.TempDir()
	a.settle(t, home, model)
	cmd := exec.Command("/usr/bin/env", a.acp...)
	cmd.Env, cmd.Dir = a.environ(t, home, model), t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		hookstest.Eventually(t, "the agent is gone", func() bool { return len(hookstest.ProcessesAtHome(home)) == 0 })
	})
	d := &direct{t: t, stdin: stdin, lines: bufio.NewScanner(stdout), dir: cmd.Dir}
	d.lines.Buffer(nil, 4<<20)
	if _, _, err := d.call("initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{}}); err != nil {
		t.Fatal(err)
	}
	return d
}

// call calls a method and waits for its result. said is what the agent says meanwhile.
func (d *direct) call(method string, params any) (result json.RawMessage, said string, err error) {
	d.asked++
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": d.asked, "method": method, "params": params})
	if err != nil {
		return nil, "", err
	}
	if _, err := fmt.Fprintf(d.stdin, "%s\n", request); err != nil {
		return nil, "", err
	}
	for d.lines.Scan() {
		var message struct {
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
			Params struct {
				Update struct {
					Kind    string `json:"sessionUpdate"`
					Content struct {
						Text string `json:"text"`
					} `json:"content"`
				} `json:"update"`
			} `json:"params"`
		}
		if json.Unmarshal(d.lines.Bytes(), &message) != nil {
			continue // a content may be a list
		}
		switch {
		case message.Method == "" && message.ID == d.asked && message.Error != nil:
			return nil, said, errors.New(string(message.Error))
		case message.Method == "" && message.ID == d.asked:
			return message.Result, said, nil
		case message.Params.Update.Kind == "agent_message_chunk":
			said += message.Params.Update.Content.Text
		}
	}
	return nil, said, errors.Join(io.ErrUnexpectedEOF, d.lines.Err())
}

// session begins a session.
func (d *direct) session() string {
	d.t.Helper()
	result, _, err := d.call("session/new", map[string]any{"cwd": d.dir, "mcpServers": []any{}})
	var session struct {
		ID string `json:"sessionId"`
	}
	if err != nil || json.Unmarshal(result, &session) != nil || session.ID == "" {
		d.t.Fatalf("beginning a session: %v %s", err, result)
	}
	return session.ID
}

// ask has the agent carry out a turn.
func (d *direct) ask(session, message string) (answer string, err error) {
	_, answer, err = d.call("session/prompt", map[string]any{"sessionId": session, "prompt": []any{map[string]string{"type": "text", "text": message}}})
	return answer, err
}

// TestAgentsAskTheModel tries the programs and the model without Caddy: if this fails, so does all else.
func TestAgentsAskTheModel(t *testing.T) {
	t.Parallel()
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			model := modeltest.Start(t)
			d := startDirect(t, a, model)
			session := d.session()
			for _, message := range []string{"Good morning.", "Good evening."} {
				// Codex warns of a model that it does not know.
				if answer, err := d.ask(session, message); err != nil || !strings.HasSuffix(answer, "You said: "+message) {
					t.Errorf("got %q, %v", answer, err)
				}
			}
			want := []modeltest.Message{modeltest.User("Good morning."), modeltest.Assistant("You said: Good morning."), modeltest.User("Good evening.")}
			call := model.WaitFor(t, "Good evening.")
			if fmt.Sprint(call.Messages) != fmt.Sprint(want) {
				t.Errorf("the model was sent %q", call.Messages)
			}
			if len(call.Tools) == 0 || call.System == "" {
				t.Errorf("the tools are %v, and the system text %q", call.Tools, call.System)
			}
		})
	}
}
