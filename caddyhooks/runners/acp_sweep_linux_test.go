package runners

import (
	"bytes"
	"os"
	"strings"
	"testing"
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
	cancel()
	_, _ = result()
	if err := a.Cleanup(); err != nil {
		t.Fatal(err)
	}
	acpEventually(t, "all processes have ended with the agent", func() bool { return !running(t, left) && !running(t, helper) })
}
