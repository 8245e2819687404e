package command

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

func TestCommandPresetsWaitAsAllRunnersDo(t *testing.T) {
	t.Parallel()
	claudeFailed := strings.Replace(claudeSucceeds, `"is_error":false`, `"is_error":true`, 1)
	claudeFails := func(status int) string { return strings.Replace(claudeFailed, "null", fmt.Sprint(status), 1) }
	codexFails := func(status int) string {
		return fmt.Sprintf(`{"type":"thread.started","thread_id":"%s"}`+"\n"+`{"type":"item.completed","item":{"type":"error","message":"Model metadata not found."}}`+"\n"+
			`{"type":"turn.failed","error":{"message":"unexpected status %d %s: the model says so"}}`+"\n", session, status, http.StatusText(status))
	}
	failure := func(preset, output string) error { return readPreset(preset, memoryTurn(), output, exited(1, "")).err }
	for preset, output := range map[string]func(status int) string{"claude": claudeFails, "codex": codexFails} {
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			runnertest.WantModelWaits(t, func(_ *testing.T, status int) error { return failure(preset, output(status)) })
		})
	}
	for status, want := range map[int]string{400: "ends", 429: "waits for time", 500: "waits a while", 503: "waits for time"} { // as its exit code has them
		end := readPreset("gemini", memoryTurn(), "", exited(status%256, "no"))
		runnertest.WantWait(t, want, map[string]error{fmt.Sprintf("gemini, %d", status): end.err})
	}
	// What a model said or an agent did is not undone.
	runnertest.WantWait(t, "ends", map[string]error{
		"claude":           failure("claude", claudeSays+claudeFails(529)),
		"codex":            failure("codex", codexSays+codexFails(529)),
		"codex, with tool": failure("codex", `{"type":"item.started","item":{"type":"command_execution"}}`+"\n"+codexFails(529)),
	})
	runnertest.WantWait(t, "waits for contact", map[string]error{
		"claude": failure("claude", strings.Replace(claudeFailed, `"result":"Hello"`, `"result":"API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)"`, 1)),
		"codex":  failure("codex", codexUnreachable),
	})
}

const codexUnreachable = `{"type":"error","message":"Reconnecting... waiting for network (Connection failed: error sending request)"}` + "\n"

// A turn that waits leaves no session behind that has its message in it already.
func TestTurnThatWaitsBeginsNoSession(t *testing.T) {
	t.Parallel()
	const begun = `echo '{"type":"thread.started","thread_id":"` + session + `"}'; `
	for script, want := range map[string]string{
		`echo '{"type":"turn.failed","error":{"message":"unexpected status 429 Too Many Requests"}}'; exit 1`: "waits for time",
		`echo '` + strings.TrimSpace(codexUnreachable) + `'; exec sleep 1000`:                                 "waits for contact",
	} {
		turn := agentTurn("Hello")
		turn.MemoryPreset, turn.Chat = "general_chat", new(runnertest.Chat)
		reply, err := newPreset(t, "codex", begun+script, nil).Run(t.Context(), turn)
		if runnertest.WaitOf(err) != want || reply.Session != "" {
			t.Errorf("got %+v, %v", reply, err)
		}
	}
}
