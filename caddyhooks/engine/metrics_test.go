package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
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

// counted are the calls of a Metrics, each as a line.
type counted struct {
	mu    sync.Mutex
	lines []string
}

func (c *counted) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

func (c *counted) RunAccepted(run *engine.Run) { c.add("accepted %s", run.Message) }
func (c *counted) RunEnded(run *engine.Run, outcome engine.Outcome, took time.Duration) {
	c.add("ended %s: %s after %s", run.Message, outcome.Status, took)
}
func (c *counted) RunTakenOn(run *engine.Run, waited time.Duration) {
	c.add("taken on %s after %s", run.Message, waited)
}
func (c *counted) TurnEnded(run *engine.Run, runner string, repair int, took time.Duration, _ []engine.Use, err error) {
	c.add("turn of %s by %s, repair %d, after %s, failed %t", run.Message, runner, repair, took, err != nil)
}
func (c *counted) DeliveryAttempted(d *engine.Delivery, took time.Duration, err error) {
	c.add("attempt %d at %s after %s, failed %t, now %s", d.Attempt, d.Callback, took, err != nil, d.Status)
}

func (c *counted) RequestIgnored(hook string)    { c.add("ignored by %s", hook) }
func (c *counted) ChallengeAnswered(hook string) { c.add("challenge of %s", hook) }

func (c *counted) StoreCommitted(changes int, _ time.Duration) { c.add("commit of %d", changes) }

// take returns what was counted since the last time.
func (c *counted) take() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.lines
	c.lines = nil
	return lines
}

func TestMetricsCountWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got counted
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			switch {
			case turn.Repair > 0:
				return engine.Reply{Text: "{}"}, nil
			case turn.Message == "fail":
				return engine.Reply{}, errors.New("status 500")
			case turn.Message == "panic":
				panic("out of range")
			case turn.Message == "hang":
				return hang(ctx, turn)
			}
			time.Sleep(time.Second)
			return echo(ctx, turn)
		}))
		attempts := 0
		c.Callbacks = senderFunc(func(context.Context, *engine.Delivery) error {
			time.Sleep(2 * time.Second)
			if attempts++; attempts == 1 {
				return errors.New("status 500")
			}
			return nil
		})
		c.Metrics = &got
		c.Limits.Chat = 1
		e := start(t, c)
		expect := func(what string, want ...string) {
			t.Helper()
			lines := got.take()
			// A worker may be quicker than the one who accepted the run.
			slices.SortStableFunc(lines, func(a, b string) int {
				return cmp.Compare(strings.Index(a, "accepted "), strings.Index(b, "accepted ")) * -1
			})
			if !slices.Equal(lines, want) {
				t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(lines, "\n"), strings.Join(want, "\n"))
			}
		}

		run := newRun("chat", "hello")
		run.CallbackURL = "https://example.com"
		submit(t, e, run)
		time.Sleep(time.Minute)
		expect("a run with a callback", "accepted hello", "turn of hello by default, repair 0, after 1s, failed false", "taken on hello after 0s", "ended hello: completed after 1s",
			"attempt 1 at https://example.com after 2s, failed true, now pending", "attempt 2 at https://example.com after 2s, failed false, now delivered")

		run = syncRun("chat", "words")
		run.Schema = json.RawMessage(`{"type":"object"}`)
		if _, err := e.Do(t.Context(), run, 0); err != nil {
			t.Error(err)
		}
		lines := got.take()
		if len(lines) != 5 || !strings.Contains(lines[3], "repair 1, after 0s, failed false") || lines[4] != "ended words: completed after 1s" {
			t.Errorf("a run with a repair: %q", lines)
		}

		for _, message := range []string{"fail", "panic"} {
			if _, err := e.Do(t.Context(), syncRun("chat", message), 0); err != nil {
				t.Error(err)
			}
			expect("a run that fails", "accepted "+message, "turn of "+message+" by default, repair 0, after 0s, failed true", "taken on "+message+" after 0s", "ended "+message+": failed after 0s")
		}

		submit(t, e, newRun("chat", "hang"))
		synctest.Wait()
		queued := newRun("chat", "queued")
		submit(t, e, queued)
		if err := e.Submit(t.Context(), newRun("chat", "one too many"), 0); !errors.Is(err, engine.ErrChatFull) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Second)
		if _, err := e.Cancel(t.Context(), queued.ID, "somebody"); err != nil {
			t.Error(err)
		}
		expect("a run that is not accepted, and one that is cancelled before it began", "accepted hang", "accepted queued", "ended queued: cancelled after 0s")
	})
}

// A run that is given up without being started took no time.
func TestMetricsOfARunThatIsNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		run := syncRun("chat", "hello")
		run.Owner = "a node that is gone"
		add(t, data.Store(), run)
		var got counted
		c := config(echo)
		c.Metrics = &got
		fails := 2
		startOn(t, &tampered{Store: data.Store(), end: func(*engine.Claim, engine.End) error {
			if fails--; fails >= 0 {
				return errNoRoom
			}
			return nil
		}}, c)
		time.Sleep(time.Minute)
		if lines := got.take(); !slices.Equal(lines, []string{"ended hello: failed after 0s"}) {
			t.Errorf("got %q", lines)
		}
	})
}
