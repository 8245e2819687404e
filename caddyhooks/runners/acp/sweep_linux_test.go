package acp

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// running reports whether a process runs. One that has ended and was not asked for its exit code does not.
func running(t *testing.T, pid string) bool {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}

// A turn that ends while another one opens its session leaves alone what the agent starts for that.
func TestACPProcessesOfASessionThatIsBeingOpenedGoOn(t *testing.T) {
	t.Parallel()
	a := newACP(t, func(a *ACP) { a.Env["ACP_TEST_CAN"] = "resume helper held" })
	home := filepath.Join(a.PlaceDir(), "home")
	var chat, other testChat
	end := filepath.Join(t.TempDir(), "end")
	_, first := begun(t, a, &chat, "for "+end)
	if err := os.WriteFile(filepath.Join(home, "hold"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	type result struct {
		reply engine.Reply
		err   error
	}
	second := make(chan result, 1)
	go func() {
		reply, err := other.ask(t.Context(), a, "leave")
		second <- result{reply, err}
	}()
	eventually(t, "the other session has a process", func() bool {
		notes, _ := os.ReadFile(filepath.Join(home, "notes"))
		return strings.Count(string(notes), "helper ") == 2
	})
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := first(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(home, "hold")); err != nil {
		t.Fatal(err)
	}
	r := receive(t, "the other turn ends", second)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if _, helper, _ := strings.Cut(r.reply.Text, " "); !running(t, helper) {
		t.Error("the process of the other session was ended")
	}
}

func TestACPProcessesOfATurnEndWithIt(t *testing.T) {
	t.Parallel()
	a := newACP(t, func(a *ACP) { a.Env["ACP_TEST_CAN"] = "resume helper" })
	var chat testChat
	left, helper, _ := strings.Cut(answerOf(t, &chat, a, "leave").Text, " ")
	if running(t, left) {
		t.Error("what a turn left behind runs")
	}
	if !running(t, helper) {
		t.Error("a process of the agent's own was ended")
	}
	// With another turn under way it is not known which of them started a process.
	var other testChat
	cancel, result := begun(t, a, &other, "wait")
	left, _, _ = strings.Cut(answerOf(t, &chat, a, "leave").Text, " ")
	if !running(t, left) {
		t.Error("a process was ended that may be of another turn")
	}
	orphan := answerOf(t, &chat, a, "orphan").Text
	if !running(t, orphan) {
		t.Error("a process was ended that may be of another turn")
	}
	cancel()
	_, _ = result()
	if running(t, orphan) {
		t.Error("what no agent waits for is not ended when no turn is under way")
	}
	if err := a.Cleanup(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all processes have ended with the agent", func() bool { return !running(t, left) && !running(t, helper) })
}
