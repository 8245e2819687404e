package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

var bulkRuns = flag.Int("bulk", 1500, "how many runs a bulk action is about")

// bulkWorld is a Caddy that is killed and started again while bulk actions go on.
type bulkWorld struct {
	*bulkRunner
	t      *testing.T
	d      *hookstest.Deployment
	p      *hookstest.Process
	peakKB int
}

// bulkRunner is a runner that fails until it is mended.
type bulkRunner struct {
	url    string
	more   string      // members of requests
	mended atomic.Bool // the runner answers
	hangs  atomic.Bool // the runner does not end a turn
	turns  sync.Map    // messages that it answered
}

func newBulkRunner(t *testing.T) *bulkRunner {
	w := new(bulkRunner)
	runner := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var turn struct{ Message string }
		_ = json.NewDecoder(r.Body).Decode(&turn)
		for w.hangs.Load() && r.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		switch {
		case !w.mended.Load():
			http.Error(rw, "not now", http.StatusBadRequest)
		default:
			w.turns.Store(turn.Message, true)
			_, _ = io.WriteString(rw, `{"text":"done"}`)
		}
	}))
	t.Cleanup(func() {
		runner.CloseClientConnections()
		runner.Close()
	})
	w.url = runner.URL
	return w
}

func newBulkWorld(t *testing.T, runner *bulkRunner, store string) *bulkWorld {
	w := &bulkWorld{bulkRunner: runner, t: t}
	w.d = hookstest.NewBinary(t).Deploy(t, "log {\n level ERROR\n }", fmt.Sprintf(`hooks {
		enabled
		token %s
		runner http %s
		store %s
		callbacks {
			allow 127.0.0.0/8
			ports *
		}
		workers 64
		queue_limit %d
		chat_limit 0
	}`, hookstest.Token, runner.url, store, *bulkRuns+500))
	w.p = w.d.Start(t)
	return w
}

// restart kills Caddy and starts it again.
func (w *bulkWorld) restart() {
	w.t.Helper()
	w.notePeak()
	w.p.Kill()
	<-w.p.Exited
	w.p = w.d.Start(w.t)
}

// notePeak notes the most memory that the process has had.
func (w *bulkWorld) notePeak() {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.p.Cmd.Process.Pid))
	for line := range strings.Lines(string(status)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
			w.peakKB = max(w.peakKB, kb)
		}
	}
}

// send has runs accepted, numbered from a number on.
func (w *bulkWorld) send(from, n, chats int) {
	w.t.Helper()
	var all sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				w.accept(fmt.Sprint(from+i), fmt.Sprint("chat ", i%chats))
			}
		})
	}
	all.Wait()
}

func (w *bulkWorld) accept(message, chat string) {
	body := fmt.Sprintf(`{"message":%q,"chatId":%q%s}`, message, chat, w.more)
	resp, err := hookstest.TryRequest("POST", w.d.URL+"/api/hooks/agent", body, "Authorization", "Bearer "+hookstest.Token, "Content-Type", "application/json")
	if err != nil || resp.Status != http.StatusAccepted {
		w.t.Errorf("a request was answered %d %s, %v", resp.Status, resp.Body, err)
	}
}

type bulkView struct {
	ID, State, Waiting, Error string
	Matching, Done            int
	Skipped                   map[string]int
}

// seen is how many runs or deliveries the action has come to.
func (v *bulkView) seen() int {
	seen := v.Done
	for _, skipped := range v.Skipped {
		seen += skipped
	}
	return seen
}

// admin asks the admin API, also while Caddy starts.
func (w *bulkWorld) admin(method, path string, into any) {
	w.t.Helper()
	hookstest.Within(w.t, time.Minute, method+" "+path, func() bool {
		resp, err := hookstest.TryRequest(method, w.d.Admin+"/hooks/"+path, "", "Origin", w.d.Admin)
		return err == nil && resp.Status/100 == 2 && json.Unmarshal([]byte(resp.Body), into) == nil
	})
}

func (w *bulkWorld) bulk(id string) (view bulkView) {
	w.t.Helper()
	w.admin("GET", "bulk/"+id, &view)
	return view
}

// await waits until the action has come to so many, or has ended.
func (w *bulkWorld) await(id string, done int) bulkView {
	w.t.Helper()
	var view bulkView
	hookstest.Within(w.t, 10*time.Minute, "the bulk action goes on", func() bool {
		view = w.bulk(id)
		return view.State != "running" || view.seen() >= done
	})
	return view
}

// figures is how many runs wait.
func (w *bulkWorld) figures() (figures struct{ Queued, Running int }) {
	w.t.Helper()
	var overview struct {
		Figures struct{ Queued, Running int }
	}
	w.admin("GET", "overview", &overview)
	return overview.Figures
}

// All runs that match are started again, and then cancelled, each by one request, while others send. In the middle Caddy is killed, and
// the action is stopped and resumed. The counts are exact, and senders get in all the time.
func TestBulkActionsSurviveKills(t *testing.T) {
	t.Parallel()
	w, n := newBulkWorld(t, newBulkRunner(t), "bolt "+filepath.Join(t.TempDir(), "hooks.db")), *bulkRuns
	began := time.Now()
	w.send(0, n, 300)
	hookstest.Within(t, 10*time.Minute, "all have failed", func() bool { f := w.figures(); return f.Queued+f.Running == 0 })
	t.Logf("%d runs have failed after %v", n, time.Since(began).Round(time.Second))

	var plan struct{ Would int }
	began = time.Now()
	w.admin("POST", "bulk?do=again&status=failed&hook=agent&dry=1", &plan)
	if plan.Would != n {
		t.Errorf("%d would be run again", plan.Would)
	}
	t.Logf("the plan took %v", time.Since(began).Round(time.Millisecond))
	w.mended.Store(true)
	w.hangs.Store(true) // so that the queue is half full before all are started
	began = time.Now()
	var action bulkView
	w.admin("POST", "bulk?do=again&status=failed", &action)
	others := 0
	load := func() { // beside it
		for range 50 {
			others++
			w.accept(fmt.Sprint("other ", others), fmt.Sprint("other ", others))
		}
	}
	for _, part := range []int{5, 4, 3} {
		load()
		w.await(action.ID, n/part)
		w.restart()
	}
	w.admin("POST", "bulk/"+action.ID+"/stop", &action)
	w.restart()
	if view := w.bulk(action.ID); view.State != "stopped" || view.Done < n/3 || view.Done >= n {
		t.Errorf("it was stopped as %+v", view)
	}
	load()
	w.hangs.Store(false)
	w.admin("POST", "bulk/"+action.ID+"/resume", &action)
	view := w.await(action.ID, n+1)
	if view.State != "done" || view.Matching != n || view.Done != n || len(view.Skipped) != 0 {
		t.Errorf("it ended as %+v", view)
	}
	hookstest.Within(t, 10*time.Minute, "all are carried out", func() bool { f := w.figures(); return f.Queued+f.Running == 0 })
	for i := range n {
		if _, ok := w.turns.Load(fmt.Sprint(i)); !ok {
			t.Fatalf("run %d was not carried out", i)
		}
	}
	w.admin("POST", "bulk?do=again&status=completed&dry=1", &plan)
	if plan.Would != n+others { // each was started once
		t.Errorf("%d are completed, want %d", plan.Would, n+others)
	}
	w.notePeak()
	t.Logf("%d were started again in %v with 4 kills; at most %d MB of memory", n, time.Since(began).Round(time.Second), w.peakKB>>10)

	w.hangs.Store(true)
	w.send(n, n, 300)
	began = time.Now()
	w.admin("POST", "bulk?do=cancel&status=queued,running", &action)
	w.await(action.ID, n/3)
	w.restart()
	load()
	view = w.await(action.ID, n+1)
	if view.State != "done" || view.Matching != n || view.Done != n || len(view.Skipped) != 0 {
		t.Errorf("it ended as %+v", view)
	}
	if f := w.figures(); f.Queued+f.Running != 50 { // those that came later
		t.Errorf("%+v are left", f)
	}
	w.notePeak()
	t.Logf("%d were cancelled in %v with a kill; at most %d MB of memory", n, time.Since(began).Round(time.Second), w.peakKB>>10)
	w.hangs.Store(false)
}
