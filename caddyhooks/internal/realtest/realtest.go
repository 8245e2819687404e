// Package realtest is the switch between the two test commands. Tests need Go alone, unless the environment variable CADDYHOOKS_REAL
// is set: then those run too that start other programs, install packages, or need root. It imports nothing of this project.
package realtest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Switch is the environment variable that turns real programs on.
const Switch = "CADDYHOOKS_REAL"

// leftOut counts the tests of this package that were left out, by what they need.
var leftOut struct {
	mu      sync.Mutex
	counted bool // by Main, which prints them
	tests   int
	needs   map[string]bool
}

// Main runs the tests of a package and prints which ones were left out, in one line. Every package whose tests call Needs has a TestMain
// that calls it.
func Main(m *testing.M) int {
	leftOut.counted, leftOut.needs = true, make(map[string]bool)
	code := m.Run()
	if leftOut.tests > 0 {
		needs := strings.Join(slices.Sorted(maps.Keys(leftOut.needs)), ", ")
		fmt.Printf("left out: %d tests that need %s (%s=1 runs them)\n", leftOut.tests, needs, Switch)
	}
	return code
}

// Needs skips the test unless the switch is on. what is a program, or whatever else a machine with Go alone does not have.
func Needs(t testing.TB, what string) {
	t.Helper()
	if !leftOut.counted {
		t.Fatal("TestMain of this package must call realtest.Main")
	}
	if os.Getenv(Switch) != "" {
		return
	}
	leftOut.mu.Lock()
	leftOut.tests++
	leftOut.needs[what] = true
	leftOut.mu.Unlock()
	t.Skipf("needs %s: %s=1 runs it", what, Switch)
}

// Command is a call of a program that a machine with Go alone does not have. With the switch on, a missing program fails the test.
func Command(t testing.TB, program string, args ...string) *exec.Cmd {
	t.Helper()
	Needs(t, program)
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v: .ci/run installs it on Debian", err)
	}
	return exec.Command(path, args...)
}

// Root skips the test unless the switch is on and the tests run as root.
func Root(t testing.TB) {
	t.Helper()
	Needs(t, "root")
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}
