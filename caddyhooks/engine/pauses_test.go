package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
)

func TestPausedRunsWaitAndOthersGoOn(t *testing.T) {
	for name, pause := range map[string]starts.Pause{
		"hook":   {What: starts.Hook, Name: "github"},
		"chat":   {What: starts.Chat, Name: "paused chat"},
		"runner": {What: starts.Runner, Name: "first"},
		"all":    {What: starts.All},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runner := newCrowd()
				c := config(runner)
				c.Workers, c.DefaultRunner = 4, "first"
				c.Runners = map[string]engine.Runner{"first": runner, "second": runner}
				e := start(t, c)
				mayStart := func(hook, chat, uses string) *engine.Run {
					run := newRun(chat, time.Second.String())
					run.Hook, run.Runner = hook, uses
					submit(t, e, run)
					return run
				}
				under := mayStart("github", "paused chat", "") // which is under way when the pause comes
				if n := runner.now("github"); n != 1 {
					t.Fatalf("%d turns are under way", n)
				}
				pause.By, pause.Reason = "ann", "deploy"
				e.SetPauses([]starts.Pause{pause})
				paused := []*engine.Run{mayStart("github", "paused chat", ""), mayStart("github", "paused chat", "first")}
				free := mayStart("agent", "another chat", "second")
				time.Sleep(time.Minute)
				synctest.Wait()
				if status := find(t, e, under.ID).Status; status != engine.Completed {
					t.Errorf("the turn under way is %s", status)
				}
				if got, want := find(t, e, free.ID).Status.Ended(), pause.What != starts.All; got != want {
					t.Errorf("another run has ended: %v, want %v", got, want)
				}
				for _, run := range paused {
					record := find(t, e, run.ID)
					if record.Status != engine.Queued || record.Paused != "paused by ann: deploy" || record.WaitingFor == "" ||
						strings.Contains(record.WaitingFor, "ann") {
						t.Errorf("a paused run is %s, waits for %q and %q", record.Status, record.Paused, record.WaitingFor)
					}
				}
				e.SetPauses(nil)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				for _, run := range append(paused, free) {
					if record := find(t, e, run.ID); record.Status != engine.Completed || record.Paused != "" {
						t.Errorf("after the pause a run is %s, and waits for %q", record.Status, record.Paused)
					}
				}
				atRest(t, e)
			})
		})
	}
}

func TestResumedRunsStartAtAPace(t *testing.T) {
	for _, what := range []starts.What{starts.Hook, starts.Runner, starts.All, starts.Chat} {
		t.Run(string(what), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runner := newCrowd()
				c := config(runner)
				c.Workers = 20
				e := start(t, c)
				name := map[starts.What]string{starts.Hook: "storm", starts.Runner: c.DefaultRunner, starts.Chat: "one chat"}[what]
				pause := starts.Pause{What: what, Name: name}
				e.SetPauses([]starts.Pause{pause})
				for range 20 {
					come(t, e, "storm", 4, time.Millisecond)
					run := newRun("one chat", time.Millisecond.String())
					run.Hook = "chat"
					submit(t, e, run)
				}
				slow := "storm"
				if what == starts.Chat {
					slow = "chat"
				}
				time.Sleep(time.Second)
				if ended, _ := runner.counts(slow); ended != 0 {
					t.Fatalf("%d paused runs have ended", ended)
				}
				pause.Rate = starts.Rate{Runs: 10, Per: time.Second}
				e.SetPauses([]starts.Pause{pause})
				begin := time.Now()
				for before := 0; before < 20; {
					time.Sleep(100 * time.Millisecond)
					ended, _ := runner.counts(slow)
					other, _ := runner.counts("chat")
					if what == starts.All {
						ended += other
					}
					if most := int(time.Since(begin).Seconds()*10) + 1; ended > most {
						t.Fatalf("%d runs have ended after %v", ended, time.Since(begin))
					}
					if time.Since(begin) > 3*time.Second {
						t.Fatalf("%d runs have ended after %v: starts were not used", ended, time.Since(begin))
					}
					before = ended
				}
				e.SetPauses(nil)
				time.Sleep(time.Second)
				if ended, _ := runner.counts("storm"); ended != 80 {
					t.Errorf("%d runs have ended after a plain resume", ended)
				}
				atRest(t, e)
			})
		})
	}
}

// The queue time of a paused run goes on, and its caller waits as for any queue.
func TestPausedRunExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(newCrowd()))
		e.SetPauses([]starts.Pause{{What: starts.All, By: "ann"}})
		run := newRun("a", "1s")
		run.QueueTime = time.Minute
		submit(t, e, run)
		waiting := newRun("b", "1s")
		waiting.Sync, waiting.Timeout = true, 30*time.Second
		outcome := waitFor(t, e, waiting)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		select {
		case outcome := <-outcome:
			if outcome.Status != engine.TimedOut {
				t.Errorf("the caller hears %+v", outcome)
			}
		default:
			t.Error("the caller still waits")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		record := find(t, e, run.ID)
		if record.Status != engine.Expired || !strings.Contains(record.Outcome.Account.Reason, "paused by ann") {
			t.Errorf("the run is %s: %s", record.Status, record.Outcome.Account.Reason)
		}
	})
}
