package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// announced counts what the nodes of a test announce.
type announced struct {
	mu     sync.Mutex
	counts map[string]int // by what happened, and to which run
}

func (a *announced) note(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts == nil {
		a.counts = make(map[string]int)
	}
	a.counts[what]++
}

func (a *announced) RunEnded(run *engine.Run, outcome engine.Outcome, _ time.Duration) {
	a.note(string(outcome.Status) + " " + run.ID)
}

func (a *announced) DeliveryDead(d *engine.Delivery) { a.note("dead " + d.RunID) }

func (a *announced) BudgetReached(s *budget.State) {
	a.note(fmt.Sprint("budget ", s.Limit.String(), " ", s.Percent()))
}

// are reports whether this was announced, each once.
func (a *announced) are(want map[string]int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Equal(a.counts, want)
}

func TestEachEndIsAnnouncedByOneOfTwoNodes(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		announcer := new(announced)
		refusing := &attempts{send: func(context.Context, *engine.Delivery) error { return &engine.FinalError{Err: errors.New("410")} }}
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Message == "fails" {
				return engine.Reply{}, errors.New("no")
			}
			return echo(ctx, turn)
		}))
		c.Announcer, c.Callbacks = announcer, refusing
		nodes := []*engine.Engine{startOn(t, open(), c), startOn(t, open(), c)}
		want := map[string]int{}
		for i := range 60 {
			run, status := newRun(fmt.Sprint("chat ", i%7), "message"), "completed "
			if i%3 == 0 {
				run.Message, status = "fails", "failed "
			}
			if i%4 == 0 {
				run.CallbackURL = "https://a.example"
			}
			submit(t, nodes[i%2], run) // which gives it an id
			want[status+run.ID] = 1
			if run.CallbackURL != "" {
				want["dead "+run.ID] = 1
			}
		}
		eventually(t, "every end is announced, each once", func() bool { return announcer.are(want) })
		for _, node := range nodes {
			node.Stop()
		}
		if !announcer.are(want) {
			t.Errorf("announced %v, want %v", announcer.counts, want)
		}
	})
}

func TestANodeThatLostItsRunAnnouncesNoEndOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		release, begun := make(chan struct{}), make(chan struct{})
		still := new(gate)
		t.Cleanup(still.open)
		late, right := new(announced), new(announced)
		c := config(runnerFunc(func(context.Context, engine.Turn) (engine.Reply, error) {
			close(begun)
			<-release // it does not heed its context
			return engine.Reply{Text: "late"}, nil
		}))
		c.Announcer = late
		first := startOn(t, &tampered{Store: data.Store(), gate: still}, c)
		run := newRun("chat", "message")
		run.Timeout = time.Hour
		submit(t, first, run)
		<-begun
		still.close()
		c = config(echo)
		c.Announcer = right
		find(t, startOn(t, data.Store(), c), run.ID)
		close(release)
		synctest.Wait()
		still.open()
		synctest.Wait()
		if !right.are(map[string]int{"completed " + run.ID: 1}) || !late.are(nil) {
			t.Errorf("announced %v and, by the node that lost the run, %v", right.counts, late.counts)
		}
	})
}
