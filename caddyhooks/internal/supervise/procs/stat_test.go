package procs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/procs"
)

// statText is /proc/<pid>/stat of a process of this name.
func statText(name string) string {
	return "4711 (" + name + ") S 42 4711 4711 0 -1 4194560 109 0 0 0 0 0 0 0 20 0 3 0 987654 8192 0 18446744073709551615\n"
}

var statWanted = procs.Stat{PID: 4711, State: 'S', Parent: 42, Threads: 3, Start: 987654}

func TestStatOfAnyName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sleep", "", "a b", "a) R 1 (", ")", "(", "a\nb", ") Z 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "\xff\x00"} {
		if got, ok := procs.ParseStat([]byte(statText(name))); !ok || got != statWanted {
			t.Errorf("%q: got %+v, %v", name, got, ok)
		}
	}
	for _, text := range []string{
		"", "(", ")(", "1 (a)", "1 (a) S", "x (a) S 1", "1(a) S 1", strings.Replace(statText("a"), "987654", "-1", 1),
		strings.Replace(statText("a"), " 42 ", " 99999999999999999999 ", 1), strings.Replace(statText("a"), " S ", " SS ", 1),
	} {
		if got, ok := procs.ParseStat([]byte(text)); ok {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

func TestProcessWithoutItsFirstThreadIsNotDead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"S1": false, "Z1": true, "X0": true, "Z2": false, "D1": false} {
		s := procs.Stat{State: text[0], Threads: int(text[1] - '0')}
		if s.Dead() != want {
			t.Errorf("%s: got %v", text, s.Dead())
		}
	}
}

func FuzzParseStat(f *testing.F) {
	for _, name := range []string{"sleep", "a b", ") R 1 (", "a\nb", ""} {
		f.Add(name, statText(name))
	}
	if own, err := os.ReadFile("/proc/self/stat"); err == nil {
		f.Add("self", string(own))
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		if got, ok := procs.ParseStat([]byte(statText(name))); !ok || got != statWanted {
			t.Errorf("the name %q changes the rest: %+v, %v", name, got, ok)
		}
		got, ok := procs.ParseStat([]byte(text))
		if !ok {
			return
		}
		var flags int
		if got.Kernel {
			flags = 0x00200000
		}
		again, ok := procs.ParseStat(fmt.Appendf(nil, "%d (x) %s %d 0 0 0 0 %d 0 0 0 0 0 0 0 0 0 0 %d 0 %d", got.PID, []byte{got.State}, got.Parent, flags, got.Threads, got.Start))
		if !ok || again != got {
			t.Errorf("%q: got %+v, then %+v", text, got, again)
		}
	})
}
