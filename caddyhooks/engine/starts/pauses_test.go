package starts_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
)

func TestPausedThingsGetNoRuns(t *testing.T) {
	t.Parallel()
	var p starts.Pauses
	if held := p.Hold(5); held.Max != 5 || len(held.Limits) != 0 || p.Wait() != -1 {
		t.Errorf("nothing is paused, and a claim has %+v", held)
	}
	p.Set([]starts.Pause{{What: starts.Hook, Name: "github"}, {What: starts.Chat, Name: "a"}})
	held := p.Hold(5)
	if held.Max != 5 || len(held.Limits) != 2 || held.Limits[0] != (starts.Limit{What: starts.Hook, Name: "github"}) {
		t.Errorf("a claim has %+v", held)
	}
	p.Set([]starts.Pause{{What: starts.All}})
	if held := p.Hold(5); held.Max != 0 || p.Wait() != -1 {
		t.Errorf("all is paused, and a claim has %+v", held)
	}
}

func TestPauseSaysWhy(t *testing.T) {
	t.Parallel()
	var p starts.Pauses
	p.Set([]starts.Pause{
		{What: starts.Runner, Name: "claude", By: "ann", Rate: starts.Rate{Runs: 1, Per: time.Second}},
		{What: starts.Hook, Name: "github", By: "bob", Reason: "deploy"}, {What: starts.Chat, Name: "c"},
	})
	for run, want := range map[starts.Started]string{
		{Hook: "github", Chat: "c", Runner: "claude"}: "paused by bob: deploy",
		{Hook: "agent", Chat: "c"}:                    "paused",
		{Hook: "agent", Runner: "claude"}:             "resumed at a pace by ann",
		{Hook: "c", Chat: "github", Runner: "c"}:      "",
	} {
		if got := p.Of(run); got != want {
			t.Errorf("%+v waits for %q, want %q", run, got, want)
		}
	}
}

// However often and by however many it is asked, a pace lets no more runs start than it says, and as many if there are enough.
func TestPaceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []starts.Rate{{Runs: 10, Per: time.Second}, {Runs: 1, Per: time.Hour}, {Runs: 5000, Per: time.Second}} {
			var p starts.Pauses
			pause := starts.Pause{What: starts.Hook, Name: "github", Rate: rate}
			p.Set([]starts.Pause{pause})
			started := 0
			claim := func(n, there int) {
				first, second := p.Hold(n), p.Hold(n) // which may come between
				most := n
				for _, limit := range first.Limits {
					most = limit.AtMost
				}
				runs := make([]starts.Started, min(most, there))
				for i := range runs {
					runs[i].Hook = "github"
				}
				started += len(runs)
				p.Settle(second, []starts.Started{{Hook: "other"}})
				p.Settle(first, runs)
			}
			begin := time.Now()
			for time.Since(begin) < 10*rate.Per {
				claim(8, 0)
				claim(1000, 1000)
				pause.Reason += "x" // another pause of the same pace does not begin anew
				p.Set([]starts.Pause{pause})
				wait := p.Wait()
				if wait < 0 {
					t.Fatalf("%v: it is not a question of time", rate)
				}
				time.Sleep(wait)
			}
			if most := 10*rate.Runs + max(1, rate.Runs/10); started > most || started < 10*rate.Runs*99/100-1 {
				t.Errorf("%v: %d runs were started in ten times the time", rate, started)
			}
		}
	})
}

// A claim that held the starts of a pace and had no use for them lets others know.
func TestUnusedStartsAreTold(t *testing.T) {
	t.Parallel()
	var p starts.Pauses
	p.Set([]starts.Pause{{What: starts.Chat, Name: "c", Rate: starts.Rate{Runs: 1, Per: time.Hour}}})
	first := p.Hold(1)
	second := p.Hold(1)
	if len(first.Limits) != 0 || len(second.Limits) != 1 {
		t.Fatalf("two claims have %+v and %+v", first, second)
	}
	if p.Settle(second, nil) {
		t.Error("a claim without starts gave some up")
	}
	if !p.Settle(first, nil) {
		t.Error("nobody hears that there is a start")
	}
	if third := p.Hold(1); len(third.Limits) != 0 {
		t.Errorf("a third claim has %+v", third)
	}
}
