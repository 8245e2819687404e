//go:build real

package postgres

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// An answer with hundreds of large messages does not arrive in the time of a call, however often it is asked for.
func TestClaimsOfLargeRunsComeInSeveralAnswers(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string][]engine.Bound{"all": nil, "of a hook": {{Hooks: []string{"agent"}, AtMost: 100}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestStore(t)
			message := strings.Repeat("x", 1<<20)
			const runs, most = 40, 17 // 16 MB, and the run that goes over them
			for i := range runs {
				run := &engine.Run{ChatID: fmt.Sprint(i), Hook: "agent", Action: engine.Agent, Message: message, Timeout: time.Minute}
				if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
					t.Fatal(err)
				}
			}
			for claimed := 0; claimed < runs; {
				for drained := false; !drained; {
					select {
					case <-s.Watch().Claimable():
					default:
						drained = true
					}
				}
				claims, _, err := s.Runs().Claim(t.Context(), engine.Batch{Max: 100, Lease: time.Minute, Bounds: bounds})
				if err != nil || len(claims) == 0 || len(claims) > most {
					t.Fatalf("claimed %d after %d, %v", len(claims), claimed, err)
				}
				if claimed += len(claims); claimed == runs {
					return
				}
				select {
				case <-s.Watch().Claimable():
				default:
					t.Fatal("nobody is told that there is more")
				}
			}
		})
	}
}
