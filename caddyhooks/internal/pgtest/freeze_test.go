//go:build real && linux

package pgtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAFrozenServerStandsStillUntilItIsThawed(t *testing.T) {
	t.Parallel()
	s := New(t, Config{})
	for _, step := range []struct {
		do     func(testing.TB)
		frozen bool
	}{{s.Freeze, true}, {s.Thaw, false}} {
		step.do(t)
		deadline := time.Now().Add(time.Minute)
		for _, process := range append(childrenOf(s.process.Process.Pid), s.process.Process.Pid) {
			for isFrozen(process) != step.frozen {
				if time.Now().After(deadline) {
					t.Fatalf("process %d should be frozen: %v", process, step.frozen)
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
	if n := Ask[int](t, s, "postgres", "SELECT 1"); n != 1 {
		t.Errorf("a thawed server answers %d", n)
	}
}

func isFrozen(process int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "T")
}
