package supervise_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// Without a wrapper, as on other systems, the group of the program ends with it.
func TestProgramsWithoutAWrapper(t *testing.T) {
	supervise.WithoutWrapper(t)
	t.Run("to its end", func(t *testing.T) {
		p := program("/bin/sh", "-c", "cat; sleep 3600 & echo problem >&2; exit 7")
		out, process := run(t, p, "message")
		if !process.Alone() {
			t.Error("it has a wrapper")
		}
		if out != "message" || process.Stderr() != "problem\n" || process.Exit() != (supervise.Exit{Code: 7}) {
			t.Errorf("got %q, %q, %+v", out, process.Stderr(), process.Exit())
		}
		eventually(t, "nothing is left", func() bool { return len(ofTurn(t, p.Turn)) == 0 })
	})
	for name, grace := range map[string]time.Duration{"at once": 0, "with grace": 20 * time.Millisecond} {
		t.Run("stopped "+name, func(t *testing.T) {
			p := role("stubborn")
			process := start(t, p)
			waitReady(t, process)
			process.Stop(grace)
			if got, want := process.Exit(), (supervise.Exit{Code: -1, Signal: syscall.SIGKILL}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			eventually(t, "nothing is left", func() bool { return len(ofTurn(t, p.Turn)) == 0 })
			process.Stop(0)
		})
	}
	t.Run("asked to end", func(t *testing.T) {
		process := start(t, program("/bin/sh", "-c", `trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done`))
		waitReady(t, process)
		process.Stop(patience)
		if got := process.Exit(); got != (supervise.Exit{Code: 3}) {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("not started", func(t *testing.T) {
		var notStarted *supervise.NotStartedError
		if _, err := supervise.Start(program("/dev/null")); !errors.As(err, &notStarted) {
			t.Errorf("got %v", err)
		}
	})
}
