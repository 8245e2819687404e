package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

// spender is a runner whose turns take a while and cost a dollar each.
type spender struct {
	turns atomic.Int64
	takes time.Duration
}

func (s *spender) Run(_ context.Context, turn engine.Turn) (engine.Reply, error) {
	s.turns.Add(1)
	time.Sleep(s.takes)
	used := usage.Report{Model: "m", Cost: usage.NumberOf(1), Input: usage.NumberOf(900), Output: usage.NumberOf(100)}
	return engine.Reply{Text: turn.Message, Usage: []usage.Report{used}}, nil
}

func dollars(n int64, window time.Duration) budget.Limit {
	return budget.Limit{Cost: n * usage.Dollar, Window: window}
}

// However many runs there are at once on however many nodes, no more start than the budget has place for and workers are busy.
func TestRunsOfAllNodesKeepToABudget(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		const runs, affordable, nodes, workers = 64, 10, 3, 4
		runner := &spender{takes: 20 * time.Millisecond}
		c := config(runner)
		c.Workers = workers
		var engines []*engine.Engine
		var store engine.Store
		for range nodes {
			store = open()
			e := startOn(t, store, c)
			e.SetBudgets([]budget.Budget{{Limit: dollars(affordable, time.Hour), Else: budget.Hold}})
			engines = append(engines, e)
		}
		var ids []string
		for i := range runs {
			run := newRun(fmt.Sprint("chat ", i), "message")
			submit(t, engines[i%nodes], run)
			ids = append(ids, run.ID)
		}
		ended, held := 0, 0
		eventually(t, "all runs have ended or are held back", func() bool {
			ended, held = 0, 0
			for _, id := range ids {
				record := get(t, store, id)
				switch {
				case record.Status == engine.Completed:
					ended++
				case record.Status == engine.Queued && record.WaitingFor == "The budget is used up. The run starts when something of it is left again.":
					held++
				}
			}
			return ended+held == runs
		})
		if ended < affordable || ended > affordable+nodes*workers-1 || int64(ended) != runner.turns.Load() {
			t.Errorf("%d runs have ended, and %d turns were taken", ended, runner.turns.Load())
		}
		states, err := engines[1].Budgets(t.Context())
		if err != nil || len(states) != 1 || states[0].Used != int64(ended)*usage.Dollar || states[0].Runs != int64(ended) || !states[0].IsUsedUp() {
			t.Errorf("the budget is %+v, %v", states, err)
		}
		// A larger budget lets them go on at once.
		for _, e := range engines {
			e.SetBudgets([]budget.Budget{{Limit: dollars(1000, time.Hour), Else: budget.Hold}})
		}
		for _, id := range ids {
			eventually(t, "the run ends", func() bool { return get(t, store, id).Status == engine.Completed })
		}
		if n := runner.turns.Load(); n != runs {
			t.Errorf("%d turns were taken for %d runs", n, runs)
		}
	})
}

// Runs that are held back start when what was spent is old enough, and no sooner. Those of other hooks go on.
func TestHeldRunsStartWhenTheWindowMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &spender{takes: time.Second}
		announcer := new(announced)
		c := config(runner)
		c.Announcer = announcer
		e := start(t, c)
		limited := budget.Budget{Hook: "agent", Limit: dollars(2, 24*time.Hour), Else: budget.Refuse}
		e.SetBudgets([]budget.Budget{limited})
		var ids []string
		for i := range 5 {
			run := newRun("one chat", fmt.Sprint(i))
			submit(t, e, run)
			ids = append(ids, run.ID)
		}
		other := newRun("other", "message")
		other.Hook = "other"
		submit(t, e, other)
		ended := func() (n int) {
			for _, id := range ids {
				if find(t, e, id).Status == engine.Completed {
					n++
				}
			}
			return n
		}
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		if n := ended(); n != 2 || find(t, e, other.ID).Status != engine.Completed {
			t.Errorf("%d runs have ended after 23 hours", n)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := ended(); n != 4 {
			t.Errorf("%d runs have ended after 25 hours", n)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := ended(); n != 5 {
			t.Errorf("%d runs have ended after 49 hours", n)
		}
		if !announcer.are(map[string]int{"completed " + ids[0]: 1, "completed " + ids[1]: 1, "completed " + ids[2]: 1, "completed " + ids[3]: 1,
			"completed " + ids[4]: 1, "completed " + other.ID: 1, "budget $2/24h 100": 2}) {
			t.Errorf("announced %v", announcer.counts)
		}
		atRest(t, e)
	})
}

// A run that is held back for longer than its queue time expires, and its reason says why it did not start.
func TestHeldRunsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(&spender{}))
		e.SetBudgets([]budget.Budget{{Hook: "agent", Limit: dollars(1, 24*time.Hour), Else: budget.Hold}})
		submit(t, e, newRun("a", "message"))
		synctest.Wait()
		run := newRun("b", "message")
		run.QueueTime = 5 * time.Hour
		submit(t, e, run)
		time.Sleep(5*time.Hour + time.Minute)
		synctest.Wait()
		record := find(t, e, run.ID)
		if want := "no runner took the run on within its queue time of 5h0m0s: the budget of $1/24h is used up"; record.Status != engine.Expired ||
			record.Outcome.Account.Reason != want {
			t.Errorf("the run is %s: %s", record.Status, record.Outcome.Account.Reason)
		}
		atRest(t, e)
	})
}

// A caller that waits is told at once.
func TestCallersDoNotWaitForABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(&spender{}))
		e.SetBudgets([]budget.Budget{{Limit: dollars(1, time.Hour), Else: budget.Hold}})
		if outcome, err := e.Do(t.Context(), syncRun("a", "message"), 0); err != nil || outcome.Status != engine.Completed {
			t.Fatal(outcome, err)
		}
		synctest.Wait()
		usedUp, err := e.UsedUpBudget(t.Context(), syncRun("a", "message"))
		if err != nil || usedUp == nil || usedUp.Wait < 59*time.Minute {
			t.Errorf("the budget is not used up: %+v, %v", usedUp, err)
		}
		if usedUp, err := e.UsedUpBudget(t.Context(), newRun("a", "message")); err != nil || usedUp != nil {
			t.Errorf("a run that nobody waits for is refused: %+v, %v", usedUp, err)
		}
		began := time.Now()
		outcome, err := e.Do(t.Context(), syncRun("b", "message"), 0)
		if err != nil || outcome.Failure != engine.RunnerUnavailable || outcome.RetryAfter < 59*time.Minute || time.Since(began) > time.Second ||
			outcome.Account.Reason != "the budget of $1/1h is used up" {
			t.Errorf("a caller is told %+v, %v after %v", outcome, err, time.Since(began))
		}
		atRest(t, e)
	})
}

// A turn that the agent has taken on goes on, and counts when it is answered.
func TestTurnsThatWereTakenOnGoOverABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(&later{limit: 100 * time.Hour})
		c.Questions = new(questioner)
		e := start(t, c)
		e.SetBudgets([]budget.Budget{{Limit: dollars(1, time.Hour), Else: budget.Hold}})
		var ids []string
		for i := range 2 {
			run := newRun(fmt.Sprint("chat ", i), "message")
			submit(t, e, run)
			ids = append(ids, run.ID)
		}
		synctest.Wait()
		late := newRun("late", "message")
		for i, id := range ids {
			answer := engine.Answer{Via: engine.AnsweredByAgent, Text: "done", Usage: []byte(`{"inputTokens":1,"costUsd":1}`)}
			if _, err := e.AnswerForAgent(t.Context(), engine.QuestionID(id, 0), answer); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if record := find(t, e, id); record.Status != engine.Completed {
				t.Errorf("run %d is %s: %s", i, record.Status, record.WaitingFor)
			}
			if i == 0 {
				submit(t, e, late)
				synctest.Wait()
			}
		}
		states, err := e.Budgets(t.Context())
		if err != nil || states[0].Used != 2*usage.Dollar || find(t, e, late.ID).Status != engine.Queued {
			t.Errorf("the budget is %+v, %v, and the next run %s", states, err, find(t, e, late.ID).Status)
		}
	})
}

// A run that somebody has to approve is not asked about while it could not start, and is not asked about twice if the budget is used up
// when the answer comes.
func TestApprovedRunsWaitForABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &spender{}
		c := config(runner)
		asking := &questioner{beforeStart: &engine.Question{Text: "May it?", Choices: []string{engine.Yes, engine.No}}}
		e := start(t, c)
		e.SetBudgets([]budget.Budget{{Limit: dollars(1, time.Hour), Else: budget.Hold}})
		submit(t, e, newRun("first", "message"))
		synctest.Wait()
		c.Questions = asking
		defer e.Attach(c)()
		run := newRun("a", "message")
		submit(t, e, run)
		synctest.Wait()
		if record := find(t, e, run.ID); record.Status != engine.Queued || len(record.Questions) != 0 {
			t.Fatalf("the run is %s, with %d questions", record.Status, len(record.Questions))
		}
		time.Sleep(65 * time.Minute)
		synctest.Wait()
		if record := find(t, e, run.ID); record.Status != engine.Waiting {
			t.Fatalf("the run is %s after an hour", record.Status)
		}
		approve := func(id string) {
			t.Helper()
			if _, err := e.AnswerQuestion(t.Context(), engine.QuestionID(id, 0), engine.Answer{Text: engine.Yes, Via: engine.AnsweredByAPI}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		other := newRun("b", "message")
		submit(t, e, other)
		synctest.Wait()
		approve(other.ID)
		approve(run.ID)
		if record := find(t, e, run.ID); record.Status != engine.Queued || runner.turns.Load() != 2 {
			t.Errorf("the approved run is %s, and %d turns were taken", record.Status, runner.turns.Load())
		}
		time.Sleep(65 * time.Minute)
		synctest.Wait()
		if record := find(t, e, run.ID); record.Status != engine.Completed || len(record.Questions) != 1 {
			t.Errorf("the approved run is %s, with %d questions", record.Status, len(record.Questions))
		}
		atRest(t, e)
	})
}

// BenchmarkBudgets accepts runs and carries them out, in turn without budgets and with three that a run spends on, and tells how much longer
// the latter takes: accepted is until all are accepted, ended until all have ended.
func BenchmarkBudgets(b *testing.B) {
	const together = 64
	limited := budget.Budget{Hook: "agent", Limit: budget.Limit{Tokens: 1e12, Window: 24 * time.Hour}, By: "{team}", Else: budget.Refuse}
	budgets := []budget.Budget{{Limit: dollars(1e6, 24*time.Hour), Else: budget.Hold}, {Hook: "agent", Limit: dollars(1e6, time.Hour), Else: budget.Hold}, limited}
	var ended sync.WaitGroup
	c := config(&spender{})
	c.Announcer, c.Workers = endCounter{&ended}, 16
	var engines [2]*engine.Engine
	for i := range engines {
		database, err := bolt.Open(filepath.Join(b.TempDir(), "hooks.db"))
		if err != nil {
			b.Fatal(err)
		}
		engines[i] = engine.New(database.Store())
		defer engines[i].Attach(c)()
		defer engines[i].Stop()
	}
	engines[1].SetBudgets(budgets)
	var accepting, all [2]time.Duration
	for first := 0; b.Loop(); first = 1 - first {
		for _, i := range []int{first, 1 - first} {
			began := time.Now()
			ended.Add(together)
			var senders sync.WaitGroup
			for n := range together {
				senders.Go(func() {
					run := newRun(fmt.Sprint("chat ", n), "message")
					if i == 1 {
						run.Budgets = []string{limited.Account(fmt.Sprint(n % 8))}
						if usedUp, err := engines[i].UsedUpBudget(b.Context(), run); usedUp != nil || err != nil {
							b.Error(usedUp, err)
						}
					}
					if err := engines[i].Submit(b.Context(), run, 0); err != nil {
						b.Error(err)
					}
				})
			}
			senders.Wait()
			accepting[i] += time.Since(began)
			ended.Wait()
			all[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(accepting[1])/float64(accepting[0]), "accepted-ratio")
	b.ReportMetric(float64(all[1])/float64(all[0]), "ended-ratio")
	b.ReportMetric(0, "ns/op")
}

// endCounter counts runs that have ended.
type endCounter struct{ left *sync.WaitGroup }

func (c endCounter) RunEnded(*engine.Run, engine.Outcome, time.Duration) { c.left.Done() }
func (endCounter) DeliveryDead(*engine.Delivery)                         {}
func (endCounter) BudgetReached(*budget.State)                           {}
