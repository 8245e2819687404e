package supervise_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
)

// commandLine is how a process was called, or "" if it is gone.
func commandLine(pid int) string {
	out, err := exec.Command("ps", "-o", "args=", "-p", itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func TestProgramsLeaveNoDescriptorsAndGoroutines(t *testing.T) {
	run(t, program("true"), "") // the first one makes what is kept
	files, routines := openFiles(t), goroutines()
	for range manyTurns {
		run(t, program("true"), "")
		if _, err := supervise.Start(program("no-such-program")); err == nil {
			t.Fatal("it was started")
		}
		noise := program("/dev/null")
		if _, err := supervise.Start(noise); err == nil {
			t.Fatal("it was started")
		}
	}
	eventually(t, "as many descriptors as before", func() bool { return openFiles(t) <= files })
	eventually(t, "as many goroutines as before", func() bool { return goroutines() <= routines })
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

const manyAtOnce = 50
