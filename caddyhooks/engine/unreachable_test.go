package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// absent is a runner that is unreachable until it comes back, and then does as another one. It counts.
type absent struct {
	mu         sync.Mutex
	back       bool
	busy       bool // it is there, but has no time
	failing    bool // it is there, and fails
	retryAfter time.Duration
	takes      time.Duration // until a turn is refused; default: 10 ms
	then       engine.Runner

	refused []time.Time
	took    []engine.Turn
	atOnce  int
	most    int // that were refused at once
}

func (a *absent) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	a.mu.Lock()
	if a.back {
		a.took = append(a.took, turn)
		a.mu.Unlock()
		if turn.Sent != nil {
			turn.Sent()
		}
		return a.then.Run(ctx, turn)
	}
	a.refused = append(a.refused, time.Now())
	a.atOnce++
	a.most = max(a.most, a.atOnce)
	err := &engine.UnavailableError{Busy: a.busy || a.failing, Failing: a.failing, RetryAfter: a.retryAfter, Err: errors.New("connection refused at 10.1.2.3")}
	takes := max(a.takes, 10*time.Millisecond)
	a.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done(): // an engine that stops does not wait for a runner that goes on
	}
	a.mu.Lock()
	a.atOnce--
	a.mu.Unlock()
	return engine.Reply{}, err
}

func (a *absent) comeBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.back = true
}

// counts are how many turns were refused, how many of them at once, and how many were taken on.
func (a *absent) counts() (refused, atOnce, took int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.refused), a.most, len(a.took)
}

// turns are those that were taken on.
func (a *absent) turns() []engine.Turn {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.took)
}

// refusals are when turns were refused.
func (a *absent) refusals() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.refused)
}

// forget forgets how many were refused so far.
func (a *absent) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most, a.refused = 0, nil
}

func TestNothingIsWastedWhileTheRunnerIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: echo}
		c := config(runner)
		c.Workers = 16
		e := start(t, c)
		var runs []*engine.Run
		for i := range 1000 {
			run := newRun(fmt.Sprint("chat ", i%200), fmt.Sprint(i))
			if i%5 == 0 {
				run.Action, run.Hook = engine.Wake, "wake"
			}
			submit(t, e, run)
			runs = append(runs, run)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		runner.forget()
		time.Sleep(3 * time.Minute) // three times as long as the runs may take
		synctest.Wait()
		if refused, atOnce, _ := runner.counts(); refused > 12 || atOnce != 1 {
			t.Errorf("in three minutes the runner was tried %d times, %d at once, want every half a minute, one at a time", refused, atOnce)
		}
		for _, run := range runs {
			record := found(t, e, run)
			if record.Status != engine.Queued || record.Attempts != 0 || record.WaitingFor == "" || strings.Contains(record.WaitingFor, "10.1.2.3") {
				t.Fatalf("while the runner is unreachable a run is %+v", record)
			}
		}

		runner.comeBack()
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if _, _, took := runner.counts(); took != len(runs) {
			t.Errorf("%d turns were carried out, want %d", took, len(runs))
		}
		last := map[string]string{}
		for _, turn := range runner.turns() {
			if before := last[turn.ChatID]; len(before) > len(turn.Message) || len(before) == len(turn.Message) && before >= turn.Message {
				t.Errorf("in %s message %s came after %s", turn.ChatID, turn.Message, before)
			}
			last[turn.ChatID] = turn.Message
		}
		for _, run := range runs {
			if record := found(t, e, run); record.Status != engine.Completed || record.Attempts != 1 || record.WaitingFor != "" {
				t.Fatalf("when the runner is back a run is %+v", record)
			}
		}
	})
}

// Turns that were under way when the runner was first left alone tell nothing new, so the first pause is a short one.
func TestTurnsThatAreRefusedTogetherCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: echo}
		c := config(runner)
		c.Workers = 64
		e := start(t, c)
		for i := range 64 {
			submit(t, e, newRun(fmt.Sprint("first ", i), ""))
		}
		time.Sleep(100 * time.Millisecond)
		for i := range 64 {
			submit(t, e, newRun(fmt.Sprint("second ", i), ""))
		}
		runner.forget()
		time.Sleep(1100 * time.Millisecond)
		if refused, _, _ := runner.counts(); refused != 1 {
			t.Errorf("after a second the runner was tried %d times, want once", refused)
		}
	})
}

// A probe that takes longer than the pause is still the only one.
func TestThereIsOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{takes: 45 * time.Second, then: echo}
		c := config(runner)
		c.Workers = 16
		e := start(t, c)
		for i := range 40 {
			submit(t, e, newRun(fmt.Sprint(i), ""))
		}
		time.Sleep(46 * time.Second)
		runner.forget()
		time.Sleep(10 * time.Minute)
		if refused, atOnce, _ := runner.counts(); refused < 7 || atOnce != 1 {
			t.Errorf("the runner was tried %d times, %d at once", refused, atOnce)
		}
	})
}

func TestARunnerThatIsBackEndsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{busy: true, retryAfter: time.Hour, then: echo}
		e := start(t, config(runner))
		var runs []*engine.Run
		add := func() {
			runs = append(runs, newRun(fmt.Sprint(len(runs)), ""))
			submit(t, e, runs[len(runs)-1])
		}
		for range 4 {
			add()
		}
		time.Sleep(time.Minute)
		runner.mu.Lock()
		runner.retryAfter = 0
		runner.mu.Unlock()
		add() // the fifth refusal, and so the runner is left alone for a second
		add()
		time.Sleep(500 * time.Millisecond)
		runner.comeBack()
		time.Sleep(time.Second)
		for _, run := range runs {
			if record := found(t, e, run); record.Status != engine.Completed {
				t.Errorf("when the runner is back a run is %+v", record)
			}
		}
	})
}

func TestARunWaitsLongerEachTimeAndCountsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: echo}
		c := config(runner)
		c.MaxAttempts = 2
		e := start(t, c)
		run := newRun("chat", "hello")
		submit(t, e, run)
		time.Sleep(10 * time.Minute)
		refused := runner.refusals()
		for i, at := range refused[:10] {
			want := min(time.Second<<i, 30*time.Second)
			if pause := refused[i+1].Sub(at); pause < want*3/4 || pause > want+time.Second {
				t.Errorf("pause %d took %s, want up to %s", i+1, pause, want)
			}
		}
		runner.comeBack()
		time.Sleep(time.Minute)
		if record := found(t, e, run); record.Status != engine.Completed || record.Attempts != 1 {
			t.Errorf("the run is %+v", record)
		}
	})
}

// A turn that fails again and again may be the reason itself. Others go on when it is given up.
func TestARunnerThatFailsIsTriedTenTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{failing: true, then: echo}
		e := start(t, config(runner))
		run := newRun("chat", "hello")
		submit(t, e, run)
		time.Sleep(time.Minute)
		if record := found(t, e, run); record.Status != engine.Queued || !strings.Contains(record.WaitingFor, "trouble") {
			t.Errorf("the run is %+v", record)
		}
		time.Sleep(10 * time.Minute)
		record := found(t, e, run)
		if refused, _, _ := runner.counts(); record.Status != engine.Failed || refused != 10 || !strings.Contains(record.Outcome.Account.Reason, "connection refused") {
			t.Errorf("after %d tries the run is %+v", refused, record)
		}
		runner.comeBack()
		next := newRun("chat", "hello")
		submit(t, e, next)
		time.Sleep(time.Minute)
		if record := found(t, e, next); record.Status != engine.Completed {
			t.Errorf("the next run is %+v", record)
		}
	})
}

// A caller who waits gets its answer if the runner recovers in time, and is not held longer than ten tries take.
func TestACallerWaitsForARunnerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{failing: true, then: echo}
		e := start(t, config(runner))
		run := newRun("chat", "hello")
		run.Sync, run.Timeout = true, 10*time.Minute
		outcome, err := e.Do(t.Context(), run, 0)
		if refused, _, _ := runner.counts(); err != nil || outcome.Failure != engine.RunnerUnavailable || refused != 10 {
			t.Errorf("got %+v, %v after %d tries", outcome, err, refused)
		}
		time.AfterFunc(5*time.Second, runner.comeBack)
		run = newRun("chat", "hello")
		run.Sync, run.Timeout = true, time.Minute
		if outcome, err := e.Do(t.Context(), run, 0); err != nil || outcome.Status != engine.Completed {
			t.Errorf("got %+v, %v", outcome, err)
		}
	})
}

func TestRetryAfterOfARunnerIsKeptUpToAnHour(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{10 * time.Minute: 10 * time.Minute, 30 * time.Hour: time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			runner := &absent{busy: true, retryAfter: asked, then: echo}
			e := start(t, config(runner))
			run := newRun("chat", "")
			submit(t, e, run)
			time.Sleep(2*want + time.Minute)
			if refused := runner.refusals(); len(refused) != 3 || refused[1].Sub(refused[0]) < want {
				t.Errorf("asked to come back after %s, came at %v", asked, refused)
			}
			if record := found(t, e, run); record.WaitingFor == "" || !strings.Contains(record.WaitingFor, "busy") {
				t.Errorf("it waits for %q", record.WaitingFor)
			}
		})
	}
}

func TestAReloadTriesAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{retryAfter: time.Hour, then: echo}
		e := start(t, config(runner))
		var runs []*engine.Run
		for i := range 20 {
			runs = append(runs, newRun(fmt.Sprint(i), ""))
			submit(t, e, runs[i])
		}
		time.Sleep(time.Minute)
		detach := e.Attach(config(echo))
		defer detach()
		time.Sleep(time.Second)
		for _, run := range runs {
			if record := found(t, e, run); record.Status != engine.Completed {
				t.Errorf("after the reload it is %s", record.Status)
			}
		}
	})
}

// While the first turn that is taken on goes on for long, the others need not wait for its end.
func TestAProbeThatIsTakenOnLetsTheOthersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			time.Sleep(50 * time.Second)
			return engine.Reply{Text: "done"}, nil
		})}
		c := config(runner)
		c.Workers = 16
		e := start(t, c)
		for i := range 10 {
			submit(t, e, newRun(fmt.Sprint(i), ""))
		}
		time.Sleep(5 * time.Minute)
		runner.comeBack()
		time.Sleep(40 * time.Second) // less than a turn takes
		if _, _, took := runner.counts(); took != 10 {
			t.Errorf("%d turns are under way", took)
		}
		time.Sleep(time.Minute)
		atRest(t, e)
	})
}

func TestARunnerThatIsUnreachableIsNotInTheWayOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: echo}
		c := config(runner)
		c.Runners["other"] = echo
		c.Workers = 2
		e := start(t, c)
		for i := range 50 {
			submit(t, e, newRun(fmt.Sprint(i), ""))
		}
		time.Sleep(time.Minute)
		others := newRun("0", "behind") // a run of a chat whose first run waits
		free := newRun("free", "")
		others.Runner, free.Runner = "other", "other"
		submit(t, e, others)
		submit(t, e, free)
		synctest.Wait()
		if record := found(t, e, free); record.Status != engine.Completed {
			t.Errorf("the run of the other runner is %+v", record)
		}
		if record := found(t, e, others); record.Status != engine.Queued || record.WaitingFor != "" {
			t.Errorf("the run behind is %+v", record)
		}
		runner.comeBack()
		time.Sleep(31 * time.Second)
		if record := found(t, e, others); record.Status != engine.Completed {
			t.Errorf("the run behind is %+v", record)
		}
	})
}

func TestCallersAreToldAtOnceThatTheRunnerIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: echo}
		c := config(runner)
		c.Workers = 1
		e := start(t, c)
		for range 5 {
			begin := time.Now()
			outcome, err := e.Do(t.Context(), syncRun("a", ""), 0)
			if err != nil || outcome.Failure != engine.RunnerUnavailable || time.Since(begin) > time.Second {
				t.Errorf("got %+v, %v after %s", outcome, err, time.Since(begin))
			}
		}
		// Now nobody asks it any more.
		runner.forget()
		var unreachable *engine.RunnerUnreachableError
		if _, err := e.Do(t.Context(), syncRun("b", ""), 0); !errors.As(err, &unreachable) || unreachable.RetryAfter <= 0 || unreachable.RetryAfter > time.Second {
			t.Errorf("got %v", err)
		}
		if refused, _, _ := runner.counts(); refused != 0 {
			t.Errorf("the runner was tried %d times", refused)
		}
		// A caller may be the probe.
		time.Sleep(2 * time.Second)
		if outcome, err := e.Do(t.Context(), syncRun("c", ""), 0); err != nil || outcome.Failure != engine.RunnerUnavailable {
			t.Errorf("got %+v, %v", outcome, err)
		}
		runner.comeBack()
		time.Sleep(3 * time.Second)
		if outcome, err := e.Do(t.Context(), syncRun("c", "hello"), 0); err != nil || outcome.Text != "hello" {
			t.Errorf("got %+v, %v", outcome, err)
		}
		if _, err := e.Do(t.Context(), syncRun("c", "hello"), 0); err != nil {
			t.Error(err)
		}
	})
}

// A caller who waits for a worker when the runner goes away need not wait for nothing.
func TestCallersInTheQueueAreToldThatTheRunnerIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: echo}
		c := config(runner)
		c.Workers = 1
		e := start(t, c)
		for i := range 4 {
			submit(t, e, newRun(fmt.Sprint(i), ""))
		}
		begin := time.Now()
		var callers []<-chan engine.Outcome
		for range 10 {
			callers = append(callers, waitFor(t, e, syncRun("chat", "")))
		}
		for _, outcomes := range callers {
			if outcome := <-outcomes; outcome.Failure != engine.RunnerUnavailable || time.Since(begin) > time.Second {
				t.Errorf("got %+v after %s", outcome, time.Since(begin))
			}
		}
	})
}

func TestACallerIsToldWhetherItsRunWasEverStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(takes)
		c.Workers = 1
		e := start(t, c)
		busy := waitFor(t, e, syncRun("a", "2m"))
		synctest.Wait()
		waits := waitFor(t, e, syncRun("b", "0s"))
		if outcome := <-busy; outcome.Status != engine.TimedOut || outcome.Message != "The agent did not finish within 60 seconds." {
			t.Errorf("got %+v", outcome)
		}
		if outcome := <-waits; outcome.Status != engine.TimedOut || !strings.HasPrefix(outcome.Message, "The run waited its whole time of 60 seconds for a free worker") {
			t.Errorf("got %+v", outcome)
		}
	})
}

func TestTheTimeOfARunCountsFromWhenItWasTakenOn(t *testing.T) {
	connects := func(length time.Duration) engine.Runner {
		return runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			select {
			case <-time.After(length):
			case <-ctx.Done():
				return engine.Reply{}, &engine.UnavailableError{Err: ctx.Err()}
			}
			turn.Sent()
			return takes.Run(ctx, turn)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(connects(50*time.Second)))
		run, slow, caller := newRun("a", "50s"), newRun("b", "70s"), syncRun("c", "50s")
		submit(t, e, run)
		submit(t, e, slow)
		if outcome := <-waitFor(t, e, caller); outcome.Status != engine.TimedOut {
			t.Errorf("a caller who waits got %+v", outcome)
		}
		time.Sleep(time.Minute)
		if record := found(t, e, run); record.Status != engine.Completed {
			t.Errorf("the run is %+v", record)
		}
		if record := found(t, e, slow); record.Status != engine.TimedOut {
			t.Errorf("the slow run is %+v", record)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(connects(time.Hour)))
		run := newRun("a", "0s")
		submit(t, e, run)
		time.Sleep(time.Minute + 500*time.Millisecond)
		if record := found(t, e, run); record.Status != engine.Queued || record.WaitingFor == "" {
			t.Errorf("a run that could not be sent within its time is %+v", record)
		}
	})
}

func TestRunsExpireThatNobodyTookOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: takes}
		c := config(runner)
		c.Workers = 1
		var statuses sync.Map
		c.Callbacks = senderFunc(func(_ context.Context, d *engine.Delivery) error {
			statuses.Store(d.RunID, string(d.RunStatus)+" "+d.Body)
			return nil
		})
		e := start(t, c)
		queueTime := func(chat string, length time.Duration) *engine.Run {
			run := newRun(chat, "1h")
			run.QueueTime, run.Timeout, run.CallbackURL = length, 2*time.Hour, "https://example.com/"
			submit(t, e, run)
			return run
		}
		time.Sleep(5 * time.Second) // nobody looks for runs that waited too long at this moment
		long, short, behind := queueTime("a", 24*time.Hour), queueTime("b", 90*time.Second), queueTime("b", 30*time.Second)
		time.Sleep(31 * time.Second)
		if record := found(t, e, behind); record.Status != engine.Expired || record.Outcome.Message != "No agent took the run on within its queue time of 30 seconds." {
			t.Errorf("the run with the shortest time is %+v", record)
		}
		want := "expired " + errorBody("No agent took the run on within its queue time of 30 seconds.")
		if got, _ := statuses.Load(behind.ID); got != want {
			t.Errorf("its callback is %q, want %q", got, want)
		}
		want = "no runner took the run on within its queue time of 30s: connection refused at 10.1.2.3"
		if got := found(t, e, behind).Outcome.Account.Reason; got != want {
			t.Errorf("operators are told %q, want %q", got, want)
		}
		time.Sleep(time.Minute)
		if record := found(t, e, short); record.Status != engine.Expired {
			t.Errorf("the run with a short time is %+v", record)
		}
		runner.comeBack()
		time.Sleep(time.Minute)
		// It is being carried out, for longer than the next one may wait.
		waits := queueTime("c", time.Minute)
		time.Sleep(61 * time.Second)
		if record := found(t, e, waits); record.Status != engine.Expired {
			t.Errorf("the run that waited for a worker is %+v", record)
		} else if got := record.Outcome.Account.Reason; got != "no runner took the run on within its queue time of 1m0s" {
			t.Errorf("operators are told %q, though the runner was back", got)
		}
		time.Sleep(time.Hour)
		if record := found(t, e, long); record.Status != engine.Completed {
			t.Errorf("the run that was taken on is %+v", record)
		}
		if page, _, err := e.List(t.Context(), engine.Query{Statuses: []engine.Status{engine.Expired}, Limit: 10}); err != nil || len(page) != 3 {
			t.Errorf("%d runs are listed as expired, %v", len(page), err)
		}
	})
}

// After a long time without the service, runs that are too old are not started.
func TestRunsExpireWhileTheServiceIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		run, fresh := newRun("a", ""), newRun("b", "")
		run.QueueTime, fresh.QueueTime = time.Hour, 3*time.Hour
		add(t, data.Store(), run)
		add(t, data.Store(), fresh)
		time.Sleep(2 * time.Hour)
		runner := &absent{back: true, then: echo}
		e := startOn(t, data.Store(), config(runner))
		synctest.Wait()
		if record := found(t, e, run); record.Status != engine.Expired || record.Attempts != 0 {
			t.Errorf("the old run is %+v", record)
		}
		if record := found(t, e, fresh); record.Status != engine.Completed {
			t.Errorf("the other run is %+v", record)
		}
		if _, _, took := runner.counts(); took != 1 {
			t.Errorf("%d turns were taken on", took)
		}
	})
}

func TestARunThatWaitsCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{then: echo}
		e := start(t, config(runner))
		run, next := newRun("chat", ""), newRun("chat", "next")
		submit(t, e, run)
		submit(t, e, next)
		time.Sleep(10 * time.Second)
		if record, err := e.Cancel(t.Context(), run.ID, "somebody"); err != nil || record.Status != engine.Cancelled {
			t.Errorf("got %+v, %v", record, err)
		}
		runner.comeBack()
		time.Sleep(time.Minute)
		if record := found(t, e, next); record.Status != engine.Completed {
			t.Errorf("the next run is %+v", record)
		}
		if _, _, took := runner.counts(); took != 1 {
			t.Errorf("%d turns were taken on", took)
		}
	})
}

// Runs of a runner with little room are refused again and again, and are carried out all the same, without a storm.
func TestARunnerWithLittleRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var inside, refused, took int
		c := config(runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
			mu.Lock()
			defer mu.Unlock()
			if inside >= 2 {
				refused++
				return engine.Reply{}, &engine.UnavailableError{Busy: true, Err: errors.New("busy")}
			}
			inside++
			took++
			mu.Unlock()
			turn.Sent()
			time.Sleep(10 * time.Second)
			mu.Lock()
			inside--
			return engine.Reply{}, nil
		}))
		c.Workers = 16
		e := start(t, c)
		for i := range 100 {
			submit(t, e, newRun(fmt.Sprint(i), ""))
		}
		time.Sleep(20 * time.Minute)
		atRest(t, e)
		if took != 100 || refused > 1500 {
			t.Errorf("%d turns were taken on, %d refused", took, refused)
		}
	})
}

// Two nodes find the runner unreachable. When one of them finds it back, all runs go on.
func TestARunnerThatIsBackIsBackForAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		runner := &absent{retryAfter: 10 * time.Minute, then: echo}
		a, b := startOn(t, data.Store(), config(runner)), startOn(t, data.Store(), config(runner))
		var runs []*engine.Run
		for i := range 100 {
			runs = append(runs, newRun(fmt.Sprint(i), ""))
			submit(t, a, runs[i])
		}
		time.Sleep(time.Minute)
		runner.comeBack()
		time.Sleep(11 * time.Minute)
		for _, run := range runs {
			if record := found(t, b, run); record.Status != engine.Completed || record.Attempts != 1 {
				t.Errorf("a run is %+v", record)
			}
		}
	})
}

// A caller whose run is tried again and again counts as one refusal, or a busy runner would soon be left alone.
func TestACallerOfABusyRunnerCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &absent{busy: true, then: echo}
		e := start(t, config(runner))
		outcomes := waitFor(t, e, syncRun("a", "hello"))
		time.Sleep(16500 * time.Millisecond) // seven tries
		other := waitFor(t, e, syncRun("b", "hello"))
		time.Sleep(time.Second)
		runner.comeBack()
		if outcome := <-other; outcome.Text != "hello" {
			t.Errorf("got %+v", outcome)
		}
		if outcome := <-outcomes; outcome.Text != "hello" {
			t.Errorf("got %+v", outcome)
		}
	})
}

// A turn that is broken off before it could reach the runner says nothing about the runner, unless that took long.
func TestTurnsThatAreBrokenOffDoNotCountAgainstARunner(t *testing.T) {
	for _, test := range []struct {
		after time.Duration
		state string
	}{{50 * time.Millisecond, engine.RunnerUnknown}, {10 * time.Second, engine.RunnerUnreachable}} {
		synctest.Test(t, func(t *testing.T) {
			runner := &absent{takes: time.Hour, then: echo} // as one whose connection takes long
			e := start(t, config(runner))
			for range 5 {
				caller, hangUp := context.WithTimeout(t.Context(), test.after)
				_, _ = e.Do(caller, syncRun("a", "hello"), 0)
				hangUp()
			}
			for range 5 {
				run := syncRun("b", "hello")
				run.Timeout = test.after
				_, _ = e.Do(t.Context(), run, 0)
			}
			synctest.Wait()
			if states := e.RunnerStates(); states[0].State != test.state {
				t.Errorf("after turns of %v the runner is %s, want %s", test.after, states[0].State, test.state)
			}
		})
	}
}
