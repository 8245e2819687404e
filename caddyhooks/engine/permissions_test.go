package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// asking is a runner whose agent asks for permissions, has lost its session, and then does as the message says.
var asking = runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	reply := engine.Reply{Text: turn.Message, SessionRenewed: true, Permissions: []engine.Permission{
		{Kind: "read", Title: "Read a file", Answer: "allowed"},
		{Kind: "execute", Title: fmt.Sprint("make ", turn.Repair), Answer: "rejected"},
	}, Usage: []usage.Report{
		{Model: "small", Input: usage.Number("100"), Output: usage.Number("10")},
		{Model: "large", Input: usage.Number("-1"), Cost: usage.Number("5")},
		{Cost: usage.Number("0.25")},
	}}
	switch turn.Message {
	case "fail":
		return reply, errors.New("no")
	case "hang":
		<-ctx.Done()
		return reply, ctx.Err()
	}
	if turn.Repair > 0 {
		reply.Text = map[int]string{1: "no", 2: "{}"}[turn.Repair]
	}
	return reply, nil
})

func TestWhatAnAgentAskedForAndUsedIsKeptHoweverTheRunEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		message string
		change  func(*engine.Run)
		then    func(t *testing.T, e *engine.Engine, run *engine.Run)
		status  engine.Status
		repairs int
	}{
		"completed": {message: "hello", status: engine.Completed},
		"repaired": {message: "hello", change: func(run *engine.Run) { run.Schema = json.RawMessage(`{"type":"object"}`) },
			status: engine.Completed, repairs: 2},
		"failed": {message: "fail", status: engine.Failed},
		"timed out": {message: "hang", then: func(*testing.T, *engine.Engine, *engine.Run) { time.Sleep(time.Hour) },
			status: engine.TimedOut},
		"cancelled": {message: "hang", then: func(t *testing.T, e *engine.Engine, run *engine.Run) {
			if _, err := e.Cancel(t.Context(), run.ID, "somebody"); err != nil {
				t.Error(err)
			}
		}, status: engine.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.InfoLevel)
				c := config(asking)
				c.Log = zap.New(core)
				c.Price = func(model string) *usage.Price {
					if model == "small" {
						return &usage.Price{Input: 1, Output: 2}
					}
					return nil
				}
				e := start(t, c)
				run := newRun("chat", tc.message)
				if tc.change != nil {
					tc.change(run)
				}
				submit(t, e, run)
				synctest.Wait()
				if tc.then != nil {
					tc.then(t, e, run)
				}
				synctest.Wait()
				outcome := find(t, e, run.ID).Outcome
				if outcome.Status != tc.status || !outcome.SessionRenewed || outcome.Repairs != tc.repairs {
					t.Errorf("the run is %s, another session: %t, %d repairs", outcome.Status, outcome.SessionRenewed, outcome.Repairs)
				}
				var want []engine.Permission
				for i := range tc.repairs + 1 {
					want = append(want, engine.Permission{Kind: "read", Title: "Read a file", Answer: "allowed"},
						engine.Permission{Kind: "execute", Title: fmt.Sprint("make ", i), Answer: "rejected"})
				}
				if got := outcome.Account.Permissions; !slices.Equal(got, want) {
					t.Errorf("the permissions are\n%v\nwant\n%v", got, want)
				}
				turns := int64(tc.repairs + 1)
				used := []engine.Use{{HasCost: true, Cost: turns * usage.Dollar / 4},
					{Model: "small", HasTokens: true, Input: turns * 100, Output: turns * 10, HasCost: true, Cost: turns * 120_000}}
				if !slices.Equal(outcome.Usage, used) || outcome.Account.UsageRefused != `the agent reported "-1" input tokens` {
					t.Errorf("the usage is %+v, refused: %s", outcome.Usage, outcome.Account.UsageRefused)
				}
				costs, err := e.Costs(t.Context(), time.Hour)
				if err != nil || len(costs) != 2 || costs[0].Use != used[0] || costs[0].Runs != 1 || costs[1].Model != "small" || costs[1].Use.Input != used[1].Input ||
					costs[1].Hook != run.Hook || costs[1].Runner != "default" || costs[1].Runs != 0 {
					t.Errorf("the costs are %+v, %v", costs, err)
				}
				if lines := logs.FilterMessage("run finished").FilterField(zap.Bool("session_renewed", true)); lines.Len() != 1 {
					t.Errorf("the log has %v", logs.All())
				}
			})
		})
	}
}

// A repair is a conversation of its own, so a new one is no news.
func TestARepairRenewsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Repair > 0 {
				return engine.Reply{Text: "{}", SessionRenewed: true}, nil
			}
			return engine.Reply{Text: "no"}, nil
		})))
		run := newRun("chat", "hello")
		run.Schema = json.RawMessage(`{"type":"object"}`)
		submit(t, e, run)
		synctest.Wait()
		if outcome := find(t, e, run.ID).Outcome; outcome.Repairs != 1 || outcome.SessionRenewed {
			t.Errorf("the outcome is %+v", outcome)
		}
	})
}

// A runner that is busy after it began another session finds that one when it is asked again.
func TestASessionThatWasRenewedBeforeTheRunnerWasBusyIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		e := start(t, config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			if tries++; tries == 1 {
				return engine.Reply{Session: "two", SessionRenewed: true}, &engine.UnavailableError{Busy: true, Err: errors.New("busy")}
			}
			return engine.Reply{Text: "hello"}, nil
		})))
		if outcome := <-waitFor(t, e, syncRun("chat", "hello")); tries != 2 || !outcome.SessionRenewed {
			t.Errorf("after %d tries the outcome is %+v", tries, outcome)
		}
	})
}

// talkative asks for a lot, with its secret in all texts.
type talkative struct{ secretive }

func (talkative) Run(context.Context, engine.Turn) (engine.Reply, error) {
	reply := engine.Reply{Text: "hello"}
	for range 40 {
		reply.Permissions = append(reply.Permissions, engine.Permission{
			Kind: "s3cret " + strings.Repeat("\x1bé", 50), Title: strings.Repeat("é", 120) + " s3cret\n" + strings.Repeat("é", 1000), Answer: "allowed"})
	}
	return reply, nil
}

func TestPermissionsAreBoundedAndHaveNoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(talkative{}))
		run := newRun("chat", "hello")
		submit(t, e, run)
		synctest.Wait()
		account := find(t, e, run.ID).Outcome.Account
		if len(account.Permissions) != 32 || account.MorePermissions != 8 {
			t.Errorf("%d permissions are kept, and %d are not", len(account.Permissions), account.MorePermissions)
		}
		for _, p := range account.Permissions {
			if len(p.Kind) > 64 || len(p.Kind) < 50 || len(p.Title) > 256 || len(p.Title) < 240 || p.Answer != "allowed" {
				t.Errorf("kept is %+v", p)
			}
			for _, text := range []string{p.Kind, p.Title} {
				if !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n") || strings.Contains(text, "s3c") || !strings.Contains(text, "[reda") {
					t.Errorf("kept is %q", text)
				}
			}
		}
	})
}
