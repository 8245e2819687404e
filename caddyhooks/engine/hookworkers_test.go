package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// crowd is a runner that counts the turns of each hook. A turn takes as long as its message says.
type crowd struct {
	mu     sync.Mutex
	atOnce map[string]int
	most   map[string]int
	ended  map[string]int
}

func newCrowd() *crowd {
	return &crowd{atOnce: make(map[string]int), most: make(map[string]int), ended: make(map[string]int)}
}

func (c *crowd) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	c.mu.Lock()
	c.atOnce[turn.Hook]++
	c.most[turn.Hook] = max(c.most[turn.Hook], c.atOnce[turn.Hook])
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.atOnce[turn.Hook]--
		c.ended[turn.Hook]++
	}()
	return takes(ctx, turn)
}

// now is how many turns of a hook are under way.
func (c *crowd) now(hook string) int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.atOnce[hook]
}

// counts are how many turns of a hook have ended, and how many there were at once.
func (c *crowd) counts(hook string) (ended, most int) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[hook], c.most[hook]
}

// come submits runs of a hook, each in a chat of its own.
func come(t *testing.T, e *engine.Engine, hook string, n int, takes time.Duration) {
	t.Helper()
	for i := range n {
		run := newRun(fmt.Sprint(hook, " ", i, " ", rand.Uint64()), takes.String())
		run.Hook = hook
		submit(t, e, run)
	}
}

func TestHookWithALimitLeavesWorkersToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := newCrowd()
		c := config(runner)
		c.Workers = 4
		e := start(t, c)
		e.LimitHooks(map[string]int{"storm": 2, "calm": 0})
		come(t, e, "storm", 100, 10*time.Second)
		if n := runner.now("storm"); n != 2 {
			t.Fatalf("%d turns of the storm, want 2", n)
		}
		begin := time.Now()
		come(t, e, "calm", 20, time.Second)
		time.Sleep(10 * time.Second)
		if ended, most := runner.counts("calm"); ended != 20 || most != 2 {
			t.Errorf("%d turns of the other hook have ended, %d at once", ended, most)
		}
		for {
			if ended, most := runner.counts("storm"); most != 2 {
				t.Fatalf("%d turns of the storm at once", most)
			} else if ended == 100 {
				break
			}
			time.Sleep(time.Second)
		}
		if took := time.Since(begin); took > 501*time.Second {
			t.Errorf("the storm took %v: its workers were idle", took)
		}
		atRest(t, e)
	})
}

func TestLimitsOfHooksChangeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := newCrowd()
		c := config(runner)
		c.Workers = 8
		e := start(t, c)
		come(t, e, "storm", 1000, 10*time.Second)
		for _, step := range []struct{ limit, atOnce, later int }{
			{0, 8, 8}, {3, 8, 3}, {5, 5, 5}, {1, 5, 1}, {0, 8, 8}, {20, 8, 8},
		} {
			e.LimitHooks(map[string]int{"storm": step.limit})
			if n := runner.now("storm"); n != step.atOnce {
				t.Errorf("%d turns at once under a new limit of %d, want %d", n, step.limit, step.atOnce)
			}
			time.Sleep(25 * time.Second)
			if n := runner.now("storm"); n != step.later {
				t.Errorf("%d turns at once some time after a limit of %d, want %d", n, step.limit, step.later)
			}
		}
	})
}

// A worker that ends a turn of a full hook takes on what else there is. Then nobody may forget that the hook has room.
func TestRoomOfAHookIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := newCrowd()
		c := config(runner)
		c.Workers = 8
		e := start(t, c)
		limits := map[string]int{"one": 1, "two": 2, "three": 3}
		e.LimitHooks(limits)
		begin := time.Now()
		come(t, e, "one", 60, time.Second)
		come(t, e, "two", 120, time.Second)
		come(t, e, "three", 180, time.Second)
		var others sync.WaitGroup
		for range 4 { // of short turns of hooks without a limit: workers ask for more all the time
			others.Go(func() {
				for range 600 {
					come(t, e, "free", 1, 7*time.Millisecond)
					time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
				}
			})
		}
		for hook, limit := range limits {
			for {
				ended, most := runner.counts(hook)
				if most > limit {
					t.Fatalf("%d turns of %s at once", most, hook)
				}
				if ended == 60*limit {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		// With eight workers for six turns there is nearly always one for each.
		if took := time.Since(begin); took > 63*time.Second {
			t.Errorf("the hooks took %v, want about a minute", took)
		}
		others.Wait()
		time.Sleep(time.Minute)
		atRest(t, e)
	})
}

func TestLimitOfAHookCountsTurnsOfFoldsAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := newCrowd()
		c := config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			turn.Message = "10s"
			return runner.Run(ctx, turn)
		}))
		c.Workers = 8
		e := start(t, c)
		e.LimitHooks(map[string]int{"alerts": 2})
		for i := range 60 {
			submit(t, e, foldRun(fmt.Sprint("chat ", i%6), "message"))
		}
		time.Sleep(5 * time.Second)
		if n := runner.now("alerts"); n != 2 {
			t.Errorf("%d turns at once, want 2", n)
		}
		time.Sleep(30 * time.Second)
		if ended, most := runner.counts("alerts"); ended != 6 || most != 2 {
			t.Errorf("%d turns have ended, %d at once", ended, most)
		}
		atRest(t, e)
	})
}
