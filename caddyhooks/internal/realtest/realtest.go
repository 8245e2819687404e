// Package realtest is for tests that start programs which a machine with Go alone does not have. Such tests are in the module
// caddyhooks/integration or, if they look into a package, in its files with the build tag real: `go test ./...` does without them, and
// .ci/real runs them. It imports nothing of this project.
package realtest

import (
	"os"
	"os/exec"
	"testing"
)

// Command is a call of a program. A missing program fails the test.
func Command(t testing.TB, program string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v: .ci/run installs it on Debian", err)
	}
	return exec.Command(path, args...)
}

// Root skips the test unless it is run as root. CI fails if a test is skipped.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}
