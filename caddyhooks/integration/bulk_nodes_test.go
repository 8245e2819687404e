package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// Bulk actions of two nodes that are about the same runs or deliveries, while a node is killed and the database is down: nothing is done
// twice, what one has done the other has skipped, and nothing of them is left in the processes.
func TestBulkActionsAgainstEachOther(t *testing.T) {
	t.Parallel()
	n := *bulkRuns
	var mended atomic.Bool
	var arrived sync.Map
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !mended.Load() {
			http.Error(w, "gone", http.StatusGone)
			return
		}
		arrived.Store(r.Header.Get("Webhook-Id"), true)
	}))
	t.Cleanup(receiver.Close)
	runner := newBulkRunner(t)
	runner.more = fmt.Sprintf(`,"callbackUrl":%q`, receiver.URL)
	database := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	store := "postgres \"" + database.TCP("postgres", pgtest.Password, "postgres") + "\""
	a, b := newBulkWorld(t, runner, store), newBulkWorld(t, runner, store)
	outage := func() {
		database.Stop("immediate")
		for _, w := range []*bulkWorld{a, b} {
			hookstest.Eventually(t, "the node knows that the database is down", func() bool {
				resp, err := hookstest.TryRequest("GET", w.d.Admin+"/hooks/health", "")
				return err == nil && strings.Contains(resp.Body, "store_unreachable")
			})
		}
		if err := database.Start(); err != nil {
			t.Error(err)
		}
	}
	ended := func(id string) bulkView {
		t.Helper()
		view := a.await(id, 1<<30)
		// Deliveries that the other action was done with before this one came to them match no more.
		if view.State != "done" || view.Matching != n || view.seen() > n {
			t.Errorf("it ended as %+v", view)
		}
		return view
	}
	a.send(0, n, 200)
	dead := func() bool {
		var list struct{ Would int }
		a.admin("POST", "bulk?do=drop&status=dead&dry=1", &list)
		return list.Would == n
	}
	hookstest.Within(t, 5*time.Minute, "all have failed, and their answers too", dead)

	// One node sends all answers again, and the other drops them.
	mended.Store(true)
	var retry, drop bulkView
	a.admin("POST", "bulk?do=retry&status=dead", &retry)
	b.admin("POST", "bulk?do=drop&status=dead", &drop)
	a.await(retry.ID, 1)
	b.restart()
	outage()
	retry, drop = ended(retry.ID), ended(drop.ID)
	t.Logf("retry: %+v; drop: %+v", retry, drop)
	left := func() (pending int) {
		var list struct{ Would int }
		a.admin("POST", "bulk?do=drop&status=pending,dead&dry=1", &list)
		return list.Would
	}
	hookstest.Within(t, 2*time.Minute, "nothing is left to send", func() bool { return left() == 0 })
	var delivered struct{ Would int }
	a.admin("POST", "bulk?do=retry&status=delivered&dry=1", &delivered)
	if drop.Done != n-delivered.Would || retry.Done < delivered.Would {
		t.Errorf("%d were delivered, %d dropped and %d sent again", delivered.Would, drop.Done, retry.Done)
	}

	// Both nodes start all again at once, and a third action cancels what they have started. The queue gets half full in the middle.
	runner.hangs.Store(true)
	runner.mended.Store(true)
	var again, same, other bulkView
	a.admin("POST", "bulk?do=again&status=failed", &again)
	b.admin("POST", "bulk?do=again&status=failed", &same)
	b.await(same.ID, 1)
	a.admin("POST", "bulk/"+same.ID+"/stop", &same)
	b.admin("POST", "bulk/"+same.ID+"/resume", &same)
	outage()
	b.admin("POST", "bulk?do=cancel&status=queued,running", &other)
	a.restart()
	runner.hangs.Store(false)
	again, same = ended(again.ID), ended(same.ID)
	other = a.await(other.ID, 1<<30)
	t.Logf("again: %+v; the same: %+v; cancel: %+v", again, same, other)
	if again.Skipped["again"]+again.Done != n || same.Skipped["again"]+same.Done != n {
		t.Error("something else was skipped")
	}
	hookstest.Within(t, 5*time.Minute, "all are carried out", func() bool { f := a.figures(); return f.Queued+f.Running == 0 })
	var all struct {
		Would   int
		Skipped map[string]int
	}
	a.admin("POST", "bulk?do=again&dry=1&status=failed,completed,cancelled,timed_out,expired", &all)
	if all.Would != n || all.Skipped["again"] != n || again.Done+same.Done != n { // each was started once
		t.Errorf("there are %+v, and %d and %d were started", all, again.Done, same.Done)
	}
	if other.State != "done" || other.Matching < other.seen() {
		t.Errorf("it ended as %+v", other)
	}
	for _, w := range []*bulkWorld{a, b} {
		hookstest.Eventually(t, "nobody works on an action", func() bool {
			stacks, err := hookstest.TryRequest("GET", w.d.Admin+"/debug/pprof/goroutine?debug=2", "")
			return err == nil && stacks.Status == http.StatusOK && !strings.Contains(stacks.Body, "bulk.(*work)")
		})
		w.p.WantNoCrash(t)
		w.p.Terminate(t)
		w.p.WantCleanExit(t)
	}
}
