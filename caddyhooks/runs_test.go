package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// runView is all that the API shows of a run.
type runView struct {
	Status         string    `json:"status"`
	RunID          string    `json:"runId"`
	ChatID         string    `json:"chatId"`
	Hook           string    `json:"hook"`
	Action         string    `json:"action"`
	Name           string    `json:"name"`
	AcceptedAt     time.Time `json:"acceptedAt"`
	StartedAt      time.Time `json:"startedAt"`
	FinishedAt     time.Time `json:"finishedAt"`
	Attempts       int       `json:"attempts"`
	Reply          string    `json:"reply"`
	ErrorMessage   string    `json:"errorMessage"`
	RepairAttempts int       `json:"repairAttempts"`
	Deliveries     []struct {
		ID        string `json:"id"`
		Kind      string `json:"kind"`
		Target    string `json:"target"`
		Status    string `json:"status"`
		Attempts  int    `json:"attempts"`
		LastError string `json:"lastError"`
	} `json:"deliveries"`

	fields []string // the names of all that is there, sorted
	body   string
}

func runPath(id string) string { return "/api/hooks/runs/" + id }

// lookUp asks about a run, with a query such as "?wait=1s" or none.
func (s *server) lookUp(id, query string) response {
	s.t.Helper()
	return s.request("GET", runPath(id)+query, "", "Authorization", "Bearer "+token)
}

func (s *server) cancelRun(id string) response {
	s.t.Helper()
	return s.post(runPath(id)+"/cancel", "")
}

// shown reads an answer that shows a run.
func (r response) shown(t testing.TB) runView {
	t.Helper()
	if r.status != 200 || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %d %s %s, want 200 and a run", r.status, r.header.Get("Content-Type"), r.body)
	}
	run := runView{body: r.body}
	dec := json.NewDecoder(strings.NewReader(r.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&run); err != nil {
		t.Fatalf("the body shows no run: %v\n%s", err, r.body)
	}
	var all map[string]any
	if err := json.Unmarshal([]byte(r.body), &all); err != nil {
		t.Fatal(err)
	}
	run.fields = slices.Sorted(maps.Keys(all))
	return run
}

// run shows a run as it is now.
func (s *server) run(id string) runView {
	s.t.Helper()
	return s.lookUp(id, "").shown(s.t)
}

// ended waits for the end of a run.
func (s *server) ended(id string) runView {
	s.t.Helper()
	run := s.lookUp(id, "?wait=10s").shown(s.t)
	if run.Status == "queued" || run.Status == "running" {
		s.t.Fatalf("the run does not end: %s", run.body)
	}
	return run
}

// accept sends an asynchronous agent request, and returns the id of its run.
func (s *server) accept(body string, headers ...string) string {
	s.t.Helper()
	resp := s.post("/api/hooks/agent", body, headers...)
	id, _ := resp.field(s.t, "runId").(string)
	if resp.status != 202 || !runID.MatchString(id) {
		s.t.Fatalf("got %d %s", resp.status, resp.body)
	}
	return id
}

// wantFields checks that a run shows what every run does, and the given fields, and no others.
func (r runView) wantFields(t testing.TB, more ...string) {
	t.Helper()
	want := append([]string{"acceptedAt", "action", "attempts", "chatId", "hook", "runId", "status"}, more...)
	slices.Sort(want)
	if !slices.Equal(r.fields, want) {
		t.Errorf("a %s run has the fields %v, want %v", r.Status, r.fields, want)
	}
}

// heldRunner answers each turn as its message says: "fail", "hold", and otherwise with the message. Turns to be held are
// held until they are cancelled, and that is told, or until release is closed.
func heldRunner(t testing.TB) (rn *runner, gone chan string, release chan struct{}) {
	gone, release = make(chan string, 1000), make(chan struct{})
	rn = startRunner(t, func(w http.ResponseWriter, r *http.Request, tn turn) {
		message := tn.text("message")
		if strings.HasPrefix(message, "hold") {
			select {
			case <-r.Context().Done():
				gone <- tn.text("runId")
				return
			case <-release:
			}
		}
		if message == "fail" {
			w.WriteHeader(500)
		}
		_, _ = io.WriteString(w, message)
	})
	return rn, gone, release
}

func TestRunIsShownInEveryState(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn, _, release := heldRunner(t)
			s := startSite(t, hooks(rn, "store "+store+"\n hook custom {\n action agent\n template \"{a}\"\n }"))
			begin := time.Now().Truncate(time.Millisecond)

			running := s.accept(`{"message":"hold","chatId":"c","name":"nightly"}`)
			rn.next()
			queued := s.accept(`{"message":"hello <&>","chatId":"c"}`)
			cancelled := s.accept(`{"message":"never","chatId":"c"}`)
			r := s.run(queued)
			r.wantFields(t)
			if r.Status != "queued" || r.RunID != queued || r.ChatID != "c" || r.Hook != "agent" || r.Action != "agent" || r.Attempts != 0 || r.AcceptedAt.Before(begin) {
				t.Errorf("queued: %s", r.body)
			}
			r = s.run(running)
			r.wantFields(t, "name", "startedAt")
			if r.Status != "running" || r.Name != "nightly" || r.Attempts != 1 || r.StartedAt.Before(r.AcceptedAt) || !strings.Contains(r.body, `Z"`) {
				t.Errorf("running: %s", r.body)
			}

			s.cancelRun(cancelled)
			r = s.run(cancelled)
			r.wantFields(t, "finishedAt", "errorMessage")
			if r.Status != "cancelled" || r.Attempts != 0 || r.FinishedAt.Before(r.AcceptedAt) || !strings.Contains(r.ErrorMessage, "cancelled") {
				t.Errorf("cancelled: %s", r.body)
			}

			close(release)
			if r = s.ended(running); r.Status != "completed" || r.Reply != "hold" || r.Name != "nightly" {
				t.Errorf("completed: %s", r.body)
			}
			r = s.ended(queued)
			r.wantFields(t, "startedAt", "finishedAt", "reply")
			if r.Status != "completed" || r.Reply != "hello <&>" || r.Attempts != 1 || r.StartedAt.Before(r.AcceptedAt) || r.FinishedAt.Before(r.StartedAt) {
				t.Errorf("completed: %s", r.body)
			}

			r = s.ended(s.accept(`{"message":"fail","chatId":"f"}`))
			r.wantFields(t, "startedAt", "finishedAt", "errorMessage")
			if r.Status != "failed" || r.ErrorMessage != "The agent failed to answer." || r.Attempts != 1 {
				t.Errorf("failed: %s", r.body)
			}

			custom := s.post("/api/hooks/custom", `{"a":"from a hook"}`)
			r = s.ended(custom.field(t, "runId").(string))
			if r.Status != "completed" || r.Hook != "custom" || r.Reply != "from a hook" || !freshChat.MatchString(r.ChatID) {
				t.Errorf("a custom hook's: %s", r.body)
			}
		})
	}
	t.Run("timed out", func(t *testing.T) {
		rn, _, _ := heldRunner(t)
		s := startSite(t, hooks(rn, ""))
		r := s.ended(s.accept(`{"message":"hold","timeoutSeconds":1}`))
		r.wantFields(t, "startedAt", "finishedAt", "errorMessage")
		if r.Status != "timed_out" || !strings.Contains(r.ErrorMessage, "1 second") || r.FinishedAt.Sub(r.StartedAt) < time.Second-time.Millisecond {
			t.Errorf("timed out: %s", r.body)
		}
	})
}

func TestReplyOfARunIsShown(t *testing.T) {
	for _, c := range []struct {
		name, body string
		replies    []string
		status     string
		reply      string
		repairs    int
	}{
		{"text", `{"message":"a","syncResponse":true}`, []string{"<b>é</b>\n{}"}, "completed", "<b>é</b>\n{}", 0},
		{"empty text", `{"message":"a","syncResponse":true}`, []string{""}, "completed", "", 0},
		{"JSON", schemaRequest, []string{"Here: {\"n\": 1.0}!"}, "completed", `{"n": 1.0}`, 0},
		{"repaired JSON", schemaRequest, []string{"no", "no", `{"n":2}`}, "completed", `{"n":2}`, 2},
		{"nothing that fits", schemaRequest, []string{"no"}, "failed", "", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startSite(t, hooks(startRunner(t, replies(c.replies...)), ""))
			id := s.post("/api/hooks/agent", c.body).header.Get("X-Service-Run-Id")
			r := s.run(id)
			want := []string{"startedAt", "finishedAt"}
			if c.repairs > 0 {
				want = append(want, "repairAttempts")
			}
			if c.status == "completed" {
				want = append(want, "reply")
			} else {
				want = append(want, "errorMessage")
			}
			r.wantFields(t, want...)
			if r.Status != c.status || r.Reply != c.reply || r.RepairAttempts != c.repairs {
				t.Errorf("got %s", r.body)
			}
		})
	}
}

func TestWakeRunsCanBeLookedUpToo(t *testing.T) {
	rn := startRunner(t, replyText("noted"))
	s := startSite(t, hooks(rn, "hook bell"))
	for _, c := range []struct{ hook, body string }{{"wake", `{"text":"a","chatId":"w"}`}, {"bell", `{"a":1}`}} {
		resp := s.post("/api/hooks/"+c.hook, c.body)
		resp.wantBody(t, 200, "status", "chatId")
		r := s.ended(rn.next().header.Get("X-Service-Run-Id"))
		if r.Status != "completed" || r.Hook != c.hook || r.Action != "wake" || r.ChatID != resp.field(t, "chatId") || r.Reply != "noted" {
			t.Errorf("got %s", r.body)
		}
	}
}

func TestDeliveriesOfARunAreShown(t *testing.T) {
	rn, _, release := heldRunner(t)
	status := map[string]int{"/good": 204, "/later": 500, "/never": 410}
	callbacks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status[r.URL.Path])
		_, _ = io.WriteString(w, "secret words of the receiver")
	}))
	t.Cleanup(callbacks.Close)
	s := startSite(t, hooks(rn, withCallbacks+"channel team log"))
	for _, c := range []struct{ path, status, lastError string }{
		{"/good", "delivered", ""},
		{"/later", "pending", "500"},
		{"/never", "dead", "410"},
	} {
		t.Run(c.status, func(t *testing.T) {
			id := s.accept(`{"message":"a","deliver":true,"channel":"team","to":"general","callbackUrl":"` + callbacks.URL + c.path + `?token=secret&x=1#part"}`)
			var r runView
			eventually(t, "both deliveries were tried", func() bool {
				r = s.run(id)
				return len(r.Deliveries) == 2 && r.Deliveries[0].Attempts == 1 && r.Deliveries[1].Attempts == 1
			})
			callback, channel := r.Deliveries[0], r.Deliveries[1]
			if callback.Kind != "callback" || callback.Target != callbacks.URL+c.path || callback.Status != c.status ||
				(callback.LastError == "") != (c.lastError == "") || !strings.Contains(callback.LastError, c.lastError) {
				t.Errorf("the callback is %+v", callback)
			}
			if channel.Kind != "channel" || channel.Target != "team:general" || channel.Status != "delivered" || channel.LastError != "" {
				t.Errorf("the channel's delivery is %+v", channel)
			}
			if callback.ID == channel.ID || !strings.HasPrefix(callback.ID, "msg_") {
				t.Errorf("the ids are %s and %s", callback.ID, channel.ID)
			}
			if strings.Contains(r.body, "secret") {
				t.Errorf("a secret is shown: %s", r.body)
			}
			if c.lastError == "" && strings.Contains(r.body, "lastError") {
				t.Errorf("there was no error: %s", r.body)
			}
		})
	}
	t.Run("not before the end", func(t *testing.T) {
		id := s.accept(`{"message":"hold","callbackUrl":"` + callbacks.URL + `/good"}`)
		if r := s.run(id); slices.Contains(r.fields, "deliveries") {
			t.Errorf("got %s", r.body)
		}
		close(release)
		s.ended(id)
	})
}

func TestWaitHoldsUntilTheEnd(t *testing.T) {
	rn, _, release := heldRunner(t)
	s := startSite(t, hooks(rn, ""))
	id := s.accept(`{"message":"hold","chatId":"c"}`)
	queued := s.accept(`{"message":"after it","chatId":"c"}`)
	rn.next()
	if r := s.lookUp(id, "?wait=20ms").shown(t); r.Status != "running" {
		t.Errorf("when the time is up: %s", r.body)
	}
	if r := s.lookUp(queued, "?wait=20ms").shown(t); r.Status != "queued" {
		t.Errorf("when the time is up: %s", r.body)
	}
	const waiters = 10
	answers := make(chan response, 2*waiters)
	for range waiters {
		for _, id := range []string{id, queued} {
			go func() {
				resp, err := tryRequest("GET", s.url+runPath(id)+"?wait=5m", "", "Authorization", "Bearer "+token)
				if err != nil {
					resp.body = err.Error()
				}
				answers <- resp
			}()
		}
	}
	eventually(t, "all wait", func() bool { return goroutinesIn(s, "engine.(*Engine).Find(") == 2*waiters })
	if len(answers) != 0 {
		t.Fatalf("somebody did not wait: %+v", <-answers)
	}
	close(release)
	for range 2 * waiters {
		if r := receiveWithin(t, "a waiter is answered", answers).shown(t); r.Status != "completed" {
			t.Errorf("got %s", r.body)
		}
	}
	// One that has ended is not waited for.
	if r := s.lookUp(id, "?wait=5m").shown(t); r.Status != "completed" {
		t.Errorf("got %s", r.body)
	}
	eventually(t, "nobody waits any more", func() bool { return goroutinesIn(s, "engine.(*Engine).Find(") == 0 })
}

// goroutinesIn is how many goroutines are in a function.
func goroutinesIn(s *server, function string) int {
	stacks, err := tryRequest("GET", s.admin+"/debug/pprof/goroutine?debug=2", "")
	if err != nil {
		return -1
	}
	return strings.Count(stacks.body, function)
}

func TestWaitIsADurationOfUpToFiveMinutes(t *testing.T) {
	s := startSite(t, "hooks {\n enabled\n token "+token+"\n}")
	id := s.accept(`{"message":"a"}`)
	s.ended(id)
	for _, good := range []string{"0", "0s", "30", "30s", "300", "5m", "1.5s", "1m30s", "10ms", ""} {
		if r := s.lookUp(id, "?wait="+good).shown(t); r.Status != "completed" {
			t.Errorf("wait=%s: %s", good, r.body)
		}
	}
	for _, bad := range []string{"x", "-1", "-1s", "301", "5m1s", "1h", "1e3", "1.5", "65536", "99999999999999999999", "9999999h", "30%20s", "NaN", "s"} {
		s.lookUp(id, "?wait="+bad).wantError(t, 400, "wait", "5m")
	}
}

func TestCallersThatWaitAreAnsweredAtShutdown(t *testing.T) {
	rn, _, _ := heldRunner(t)
	s := startSite(t, hooks(rn, "drain_timeout 1s"))
	id := s.accept(`{"message":"hold","chatId":"c"}`)
	queued := s.accept(`{"message":"hold","chatId":"c"}`)
	rn.next()
	answers := map[string]chan response{"running": make(chan response, 1), "queued": make(chan response, 1)}
	for status, id := range map[string]string{"running": id, "queued": queued} {
		go func() {
			resp, err := tryRequest("GET", s.url+runPath(id)+"?wait=5m", "", "Authorization", "Bearer "+token)
			if err != nil {
				resp.body = err.Error()
			}
			answers[status] <- resp
		}()
	}
	eventually(t, "both wait", func() bool { return goroutinesIn(s, "engine.(*Engine).Find(") == 2 })
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	for status, answer := range answers {
		if r := receiveWithin(t, "the waiter is answered", answer).shown(t); r.Status != status {
			t.Errorf("got %s, want %s", r.body, status)
		}
	}
}

func TestCancelOfAQueuedRun(t *testing.T) {
	rn, _, release := heldRunner(t)
	callbacks := startReceiver(t)
	s := startSite(t, hooks(rn, "workers 1\n"+withCallbacks))
	first := s.accept(`{"message":"hold"}`)
	rn.next()
	id := s.accept(`{"message":"never","callbackUrl":"` + callbacks.URL + `"}`)
	waits := make(chan response, 1)
	go func() {
		resp, _ := tryRequest("GET", s.url+runPath(id)+"?wait=5m", "", "Authorization", "Bearer "+token)
		waits <- resp
	}()
	eventually(t, "somebody waits", func() bool { return goroutinesIn(s, "engine.(*Engine).Find(") == 1 })

	r := s.cancelRun(id).shown(t)
	if r.Status != "cancelled" || r.RunID != id || r.Attempts != 0 {
		t.Errorf("got %s", r.body)
	}
	if woken := receiveWithin(t, "who waits is told", waits).shown(t); woken.Status != "cancelled" {
		t.Errorf("who waits got %s", woken.body)
	}
	got := callbacks.next()
	if got.header.Get("X-Service-Run-Status") != "cancelled" || got.header.Get("X-Service-Run-Id") != id {
		t.Errorf("the callback is %+v", got)
	}
	response{status: 0, header: got.header, body: got.body}.wantError(t, 0, "cancelled")

	again := s.cancelRun(id).shown(t)
	if again.Status != "cancelled" || !again.FinishedAt.Equal(r.FinishedAt) {
		t.Errorf("the second time: %s", again.body)
	}
	close(release)
	s.ended(first)
	rn.wantNoTurn(s)
}

func TestCancelOfARunningRun(t *testing.T) {
	rn, gone, _ := heldRunner(t)
	callbacks := startReceiver(t)
	s := startSite(t, hooks(rn, withCallbacks))
	id := s.accept(`{"message":"hold","chatId":"c","callbackUrl":"` + callbacks.URL + `"}`)
	rn.next()
	if r := s.cancelRun(id).shown(t); r.Status != "cancelled" || r.Attempts != 1 || r.StartedAt.IsZero() {
		t.Errorf("got %s", r.body)
	}
	if got := receiveWithin(t, "the runner sees its connection close", gone); got != id {
		t.Errorf("the turn of %s was cancelled, want %s", got, id)
	}
	if got := callbacks.next(); got.header.Get("X-Service-Run-Status") != "cancelled" {
		t.Errorf("the callback is %+v", got)
	}
	// The chat goes on.
	if r := s.ended(s.accept(`{"message":"next","chatId":"c"}`)); r.Status != "completed" {
		t.Errorf("the next run of the chat: %s", r.body)
	}
}

func TestCallerWhoseRunIsCancelledIsAnswered(t *testing.T) {
	rn, _, _ := heldRunner(t)
	s := startSite(t, hooks(rn, ""))
	answer := make(chan response, 1)
	go func() {
		resp, err := tryRequest("POST", s.url+"/api/hooks/agent", `{"message":"hold","syncResponse":true}`, "Authorization", "Bearer "+token)
		if err != nil {
			resp.body = err.Error()
		}
		answer <- resp
	}()
	id := rn.next().header.Get("X-Service-Run-Id")
	s.cancelRun(id).shown(t)
	resp := receiveWithin(t, "the caller is answered", answer)
	if resp.status < 400 || resp.header.Get("X-Service-Run-Id") != id {
		t.Errorf("got %d %v", resp.status, resp.header)
	}
	resp.wantError(t, resp.status, "cancelled")
}

func TestCancelOfARunThatHasEndedChangesNothing(t *testing.T) {
	rn, _, _ := heldRunner(t)
	callbacks := startReceiver(t)
	s := startSite(t, hooks(rn, withCallbacks))
	for message, status := range map[string]string{"hello": "completed", "fail": "failed"} {
		id := s.accept(`{"message":"` + message + `","callbackUrl":"` + callbacks.URL + `"}`)
		s.ended(id)
		callbacks.next()
		var before runView
		eventually(t, "the callback is recorded", func() bool {
			before = s.run(id)
			return before.Deliveries[0].Status == "delivered"
		})
		for range 2 {
			s.cancelRun(id).wantError(t, 409, "ended", status)
		}
		if after := s.run(id); after.Status != status || after.body != before.body {
			t.Errorf("%s became %s", before.body, after.body)
		}
	}
	if len(callbacks.got) != 0 {
		t.Errorf("another callback came: %+v", callbacks.next())
	}
}

func TestCancelledRunsEndOnce(t *testing.T) {
	// How long turns take is left to chance, and so is when they are cancelled.
	rn := startRunner(t, func(w http.ResponseWriter, r *http.Request, _ turn) {
		select {
		case <-time.After(rand.N(4 * time.Millisecond)):
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	})
	callbacks := startReceiver(t)
	s := startSite(t, hooks(rn, withCallbacks))
	const runs = 100
	var ids [runs]string
	var cancels [runs]response
	var group sync.WaitGroup
	for i := range runs {
		ids[i] = s.accept(fmt.Sprintf(`{"message":"a","chatId":"%d","callbackUrl":"%s"}`, i%40, callbacks.URL))
		group.Go(func() {
			time.Sleep(rand.N(4 * time.Millisecond))
			resp, err := tryRequest("POST", s.url+runPath(ids[i])+"/cancel", "", "Authorization", "Bearer "+token)
			if err != nil {
				t.Errorf("cancelling: %v", err)
			}
			cancels[i] = resp
		})
	}
	group.Wait()
	ends := make(map[string]runView)
	count := make(map[string]int)
	for i, id := range ids {
		r := s.ended(id)
		ends[id] = r
		count[r.Status]++
		switch {
		case cancels[i].status == 200 && r.Status == "cancelled":
		case cancels[i].status == 409 && r.Status == "completed":
			cancels[i].wantError(t, 409, "completed")
		default:
			t.Errorf("cancelling was answered %d %s, and the run is %s", cancels[i].status, cancels[i].body, r.Status)
		}
	}
	t.Logf("%v", count)
	seen := make(map[string]bool)
	for range runs {
		got := callbacks.next()
		id, status := got.header.Get("X-Service-Run-Id"), got.header.Get("X-Service-Run-Status")
		if seen[id] || status != ends[id].Status || (status == "completed") != (got.body == "done") {
			t.Errorf("the callback of %s: %+v, seen before: %v", ends[id].Status, got, seen[id])
		}
		seen[id] = true
	}
	for id, before := range ends {
		var after runView
		eventually(t, "the callback is recorded", func() bool {
			after = s.run(id)
			return after.Deliveries[0].Status == "delivered"
		})
		if after.Status != before.Status || !after.FinishedAt.Equal(before.FinishedAt) || after.Reply != before.Reply || after.Attempts != before.Attempts {
			t.Errorf("%s became %s", before.body, after.body)
		}
	}
	if len(callbacks.got) != 0 {
		t.Errorf("another callback came: %+v", callbacks.next())
	}
}

// A run goes from queued to running to its end. Who looks often must not see anything else.
func TestRunIsNeverShownInAStateThatItHasLeft(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn := startRunner(t, func(w http.ResponseWriter, _ *http.Request, _ turn) {
				time.Sleep(rand.N(3 * time.Millisecond))
			})
			s := startSite(t, hooks(rn, "store "+store))
			order := map[string]int{"queued": 0, "running": 1, "completed": 2}
			var group sync.WaitGroup
			var backward atomic.Int32
			for range 2 {
				group.Go(func() {
					for range 60 {
						id := s.accept(`{"message":"a"}`)
						for before := (runView{Status: "queued"}); before.Status != "completed"; {
							now := s.run(id)
							if order[now.Status] < order[before.Status] || now.Attempts < before.Attempts {
								if backward.Add(1) == 1 {
									t.Errorf("after %s came %s", before.body, now.body)
								}
							}
							before = now
						}
					}
				})
			}
			group.Wait()
			if n := backward.Load(); n != 0 {
				t.Errorf("%d times a run went back to a state that it had left", n)
			}
		})
	}
}

func TestUnknownRunsAre404(t *testing.T) {
	s := startSite(t, "hooks {\n enabled\n token "+token+"\n}")
	for _, id := range []string{
		"0198f6a0-0000-7000-8000-000000000000", "x", "cancel", "0", "..", "%2e%2e", "%00", "*",
		"0198f6a0-0000-7000-8000-00000000000", "0198f6a0-0000-7000-8000-0000000000000", "0198f6a0-0000-7000-8000-00000000000g",
		strings.Repeat("a", 5000),
	} {
		s.lookUp(id, "").wantError(t, 404)
		s.lookUp(id, "?wait=5m").wantError(t, 404)
		s.cancelRun(id).wantError(t, 404)
	}
	for _, path := range []string{"/api/hooks/runs", "/api/hooks/runs/", "/api/hooks/runs//", "/api/hooks/runs//cancel", "/api/hooks/runs/a/b"} {
		s.request("GET", path, "", "Authorization", "Bearer "+token).wantError(t, 404)
		s.post(path, "{}").wantError(t, 404)
	}
}

func TestOneRunHasOnePath(t *testing.T) {
	s := startSite(t, "hooks {\n enabled\n token "+token+"\n}")
	id := s.accept(`{"message":"a"}`)
	s.ended(id)
	for _, path := range []string{
		runPath(id) + "/", runPath("/" + id), "/api/hooks//runs/" + id, runPath(id) + "//cancel", runPath(id) + "/cancel/", runPath(id) + "/other",
	} {
		s.request("GET", path, "", "Authorization", "Bearer "+token).wantError(t, 404)
		s.post(path, "").wantError(t, 404)
	}
}

// An id that is found however it is written must be known as that of the run, or who waits for it waits in vain.
func TestRunsWithAnIDWrittenInAnotherWay(t *testing.T) {
	for _, write := range []struct {
		name string
		as   func(id string) string
	}{
		{"in capitals", strings.ToUpper},
		{"without dashes", func(id string) string { return strings.ReplaceAll(id, "-", "") }},
		{"in braces", func(id string) string { return "%7B" + id + "%7D" }},
		{"as a URN", func(id string) string { return "urn:uuid:" + id }},
	} {
		t.Run(write.name, func(t *testing.T) {
			rn, _, release := heldRunner(t)
			s := startSite(t, hooks(rn, ""))
			id := s.accept(`{"message":"hold"}`)
			rn.next()
			if resp := s.lookUp(write.as(id), ""); resp.status == 404 {
				s.cancelRun(write.as(id)).wantError(t, 404)
				close(release)
				s.ended(id)
				return
			}
			answer := make(chan response, 1)
			go func() {
				resp, err := tryRequest("GET", s.url+runPath(write.as(id))+"?wait=5m", "", "Authorization", "Bearer "+token)
				if err != nil {
					resp.body = err.Error()
				}
				answer <- resp
			}()
			eventually(t, "somebody waits", func() bool { return goroutinesIn(s, "engine.(*Engine).Find(") == 1 })
			close(release)
			s.ended(id)
			select {
			case resp := <-answer:
				if r := resp.shown(t); r.Status != "completed" {
					t.Errorf("got %s", r.body)
				}
			case <-time.After(2 * time.Second):
				t.Error("the run has ended, and who waits for it is not told")
			}
		})
	}
}

func TestRunsAreShownToHoldersOfTheTokenAlone(t *testing.T) {
	rn, _, release := heldRunner(t)
	s := startSite(t, hooks(rn, "hook signed {\n action agent\n auth hmac X-Sig secret\n template \"hold\"\n }"))
	defer close(release)
	signed := s.request("POST", "/api/hooks/signed", "{}", "X-Sig", signature("secret", "{}"))
	if signed.status != 202 {
		t.Fatalf("got %d %s", signed.status, signed.body)
	}
	id := signed.field(t, "runId").(string)
	for name, headers := range map[string][]string{
		"nothing":                     {},
		"a wrong token":               {"Authorization", "Bearer wrong"},
		"the secret of a hook":        {"Authorization", "Bearer secret"},
		"the secret of a hook, alone": {"X-Service-Token", "secret"},
		"a signature":                 {"X-Sig", signature("secret", "")},
		"the token as a user":         {"Authorization", "Basic " + token},
	} {
		for _, try := range []struct{ method, path string }{
			{"GET", runPath(id) + "?wait=1s"}, {"GET", runPath("unknown")}, {"POST", runPath(id) + "/cancel"},
		} {
			resp := s.request(try.method, try.path, "", headers...)
			resp.wantError(t, 401, "token")
			if resp.header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(resp.body, id) {
				t.Errorf("%s: got %v %s", name, resp.header, resp.body)
			}
		}
	}
	for range 20 - 3*6 {
		s.request("GET", runPath(id), "").wantError(t, 401)
	}
	// Now the address is over the limit, and a good token passes all the same.
	s.request("GET", runPath(id), "").wantError(t, 429)
	s.request("POST", runPath(id)+"/cancel", "").wantError(t, 429)
	if r := s.run(id); r.Status != "running" && r.Status != "queued" {
		t.Errorf("it was cancelled: %s", r.body)
	}
	if r := s.request("GET", runPath(id), "", "X-Service-Token", token).shown(t); r.Hook != "signed" {
		t.Errorf("got %s", r.body)
	}
}

func TestRunsAreNotThereWhileWebhooksAreOff(t *testing.T) {
	s := startSite(t, "hooks {\n token "+token+"\n}")
	s.patchSettings(`{"enabled":true}`)
	id := s.accept(`{"message":"a"}`)
	s.ended(id)
	s.patchSettings(`{"enabled":false}`)
	want := s.post("/api/hooks/wake", `{"text":"a"}`)
	want.wantError(t, 404)
	want.header.Del("Date")
	for _, try := range []struct{ method, path string }{
		{"GET", runPath(id)}, {"GET", runPath(id) + "?wait=bad"}, {"GET", runPath("unknown")}, {"POST", runPath(id) + "/cancel"}, {"DELETE", runPath(id)},
	} {
		for _, headers := range [][]string{{"Authorization", "Bearer " + token}, nil} {
			got := s.request(try.method, try.path, "", headers...)
			got.header.Del("Date")
			if got.status != 404 || got.body != want.body || fmt.Sprint(got.header) != fmt.Sprint(want.header) {
				t.Errorf("%s %s: got %d %v %s, want %v %s", try.method, try.path, got.status, got.header, got.body, want.header, want.body)
			}
		}
	}
	s.patchSettings(`{"enabled":true}`)
	if r := s.run(id); r.Status != "completed" {
		t.Errorf("got %s", r.body)
	}
}

func TestOtherMethodsOnRunsAre405(t *testing.T) {
	s := startSite(t, "hooks {\n enabled\n token "+token+"\n}")
	id := s.accept(`{"message":"a"}`)
	for path, allowed := range map[string]string{runPath(id): "GET", runPath(id) + "/cancel": "POST", runPath("unknown"): "GET"} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"} {
			if method == allowed {
				continue
			}
			resp := s.request(method, path, "")
			resp.wantError(t, 405, allowed)
			if got := resp.header.Get("Allow"); got != allowed {
				t.Errorf("%s %s: Allow is %q", method, path, got)
			}
		}
	}
	if r := s.ended(id); r.Status != "completed" {
		t.Errorf("got %s", r.body)
	}
}

func TestRunsOfAnotherInstanceAreNotFound(t *testing.T) {
	s := startSite(t, "hooks {\n enabled\n token "+token+"\n}\n hooks other {\n enabled\n token "+token+"\n path /other\n}")
	id := s.accept(`{"message":"a"}`)
	s.ended(id)
	s.request("GET", "/other/runs/"+id, "", "Authorization", "Bearer "+token).wantError(t, 404)
	s.post("/other/runs/"+id+"/cancel", "").wantError(t, 404)
}

func TestLocationLeadsToTheRun(t *testing.T) {
	const on = "enabled\n token " + token + "\n hook full {\n action agent\n }\n hook bell\n"
	for _, c := range []struct{ name, directives, base, location string }{
		{"as usual", "hooks {\n " + on + "}", "/api/hooks/", "/api/hooks/"},
		{"another path", "hooks {\n " + on + "path /in\n}", "/in/", "/in/"},
		{"a path of several parts", "hooks {\n " + on + "path /a/b.c/d\n}", "/a/b.c/d/", "/a/b.c/d/"},
		{"below handle_path", "handle_path /prefix/* {\n hooks {\n " + on + "}\n}", "/prefix/api/hooks/", "/prefix/api/hooks/"},
		{"below two", "handle_path /a/* {\n handle_path /b/* {\n hooks {\n " + on + "path /c\n}\n}\n}", "/a/b/c/", "/a/b/c/"},
		{"below route with uri strip_prefix", "route {\n uri strip_prefix /v1\n hooks {\n " + on + "}\n}", "/v1/api/hooks/", "/v1/api/hooks/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startSite(t, c.directives)
			for _, hook := range []string{"agent", "full", "agent?x=1"} {
				resp := s.post(c.base+hook, `{"message":"a"}`)
				id, _ := resp.field(t, "runId").(string)
				if got, want := resp.header.Get("Location"), c.location+"runs/"+id; resp.status != 202 || got != want {
					t.Fatalf("got %d with the location %q, want %q", resp.status, got, want)
				}
				if r := s.request("GET", resp.header.Get("Location")+"?wait=10s", "", "Authorization", "Bearer "+token).shown(t); r.RunID != id || r.Status != "completed" {
					t.Errorf("there is %s", r.body)
				}
				s.post(resp.header.Get("Location")+"/cancel", "").wantError(t, 409)
			}
			for _, other := range []struct{ hook, body string }{
				{"wake", `{"text":"a"}`}, {"bell", `{}`}, {"agent", `{"message":"a","syncResponse":true}`}, {"agent", `{}`},
			} {
				if resp := s.post(c.base+other.hook, other.body); resp.header["Location"] != nil {
					t.Errorf("%s %s has the location %v", other.hook, other.body, resp.header["Location"])
				}
			}
		})
	}
}

// Caddy takes paths that are written in an unusual way for the same.
func TestLocationOfARequestWithAnUnusualPath(t *testing.T) {
	s := startSite(t, "handle_path /prefix/* {\n hooks {\n enabled\n token "+token+"\n }\n}")
	for _, path := range []string{"/prefix/api/hooks/%61gent", "/%70refix/api/hooks/agent", "//prefix/api/hooks/agent", "/prefix//api/hooks/agent"} {
		t.Run(path, func(t *testing.T) {
			resp := s.post(path, `{"message":"a"}`)
			if resp.status != 202 {
				resp.wantError(t, resp.status)
				return
			}
			location := resp.header.Get("Location")
			if strings.HasPrefix(location, "//") {
				t.Fatalf("the location %q is on another host", location)
			}
			if r := s.request("GET", location, "", "Authorization", "Bearer "+token); r.header.Get("Content-Type") != "application/json" {
				t.Errorf("at %s is no run: %d %q", location, r.status, r.body)
			}
		})
	}
}

// listed are the ids of the runs that the admin API lists, and the cursor for more.
func (s *server) listed(query string) (ids []string, cursor string) {
	s.t.Helper()
	resp := s.adminRequest("GET", "/hooks/runs"+query, "")
	var page struct {
		Runs   []runView `json:"runs"`
		Cursor string    `json:"cursor"`
	}
	dec := json.NewDecoder(strings.NewReader(resp.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&page); err != nil || resp.status != 200 || page.Runs == nil {
		s.t.Fatalf("got %d %s, %v", resp.status, resp.body, err)
	}
	for _, run := range page.Runs {
		ids = append(ids, run.RunID)
	}
	return ids, page.Cursor
}

func TestRunsAreListedByTheAdminAPI(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn, _, release := heldRunner(t)
			s := startSite(t, hooks(rn, "store "+store+"\n hook custom {\n action agent\n template \"very private words\"\n }"))
			if ids, cursor := s.listed(""); len(ids) != 0 || cursor != "" {
				t.Errorf("before all there are %v, %q", ids, cursor)
			}
			completed := s.accept(`{"message":"very private words","chatId":"a b&c"}`)
			s.ended(completed)
			failed := s.accept(`{"message":"fail","chatId":"a b&c"}`)
			s.ended(failed)
			custom := s.post("/api/hooks/custom", `{}`).field(t, "runId").(string)
			s.ended(custom)
			running := s.accept(`{"message":"hold very private words","chatId":"c"}`)
			for range 4 {
				rn.next()
			}
			queued := s.accept(`{"message":"very private words","chatId":"c"}`)
			cancelled := s.accept(`{"message":"very private words","chatId":"c"}`)
			if r := s.adminRequest("POST", "/hooks/runs/"+cancelled+"/cancel", "").field(t, "status"); r != "cancelled" {
				t.Errorf("cancelling gave %v", r)
			}
			all := []string{cancelled, queued, running, custom, failed, completed}
			for query, want := range map[string][]string{
				"":                          all,
				"?limit=1000":               all,
				"?hook=custom":              {custom},
				"?hook=agent":               {cancelled, queued, running, failed, completed},
				"?hook=none":                nil,
				"?chatId=a+b%26c":           {failed, completed},
				"?chatId=a":                 nil,
				"?status=queued":            {queued},
				"?status=running":           {running},
				"?status=completed":         {custom, completed},
				"?status=failed":            {failed},
				"?status=timed_out":         nil,
				"?status=cancelled":         {cancelled},
				"?status=failed&chatId=c":   nil,
				"?hook=agent&status=queued": {queued},
			} {
				if ids, cursor := s.listed(query); !slices.Equal(ids, want) || cursor != "" {
					t.Errorf("%s: got %v and the cursor %q, want %v", query, ids, cursor, want)
				}
			}
			for limit := 1; limit <= 6; limit++ {
				var paged []string
				for cursor := "start"; cursor != ""; {
					query := fmt.Sprintf("?limit=%d", limit)
					if cursor != "start" {
						query += "&cursor=" + cursor
					}
					var ids []string
					if ids, cursor = s.listed(query); len(ids) > limit {
						t.Errorf("a page of %d has %d runs", limit, len(ids))
					}
					paged = append(paged, ids...)
				}
				if !slices.Equal(paged, all) {
					t.Errorf("in pages of %d there are %v, want %v", limit, paged, all)
				}
			}
			for query, word := range map[string]string{
				"?limit=0": "limit", "?limit=1001": "limit", "?limit=x": "limit", "?limit=-1": "limit",
				"?status=done": "status", "?cursor=x": "cursor", "?cursor=" + strings.ToUpper(queued) + "0": "cursor",
			} {
				s.adminRequest("GET", "/hooks/runs"+query, "").wantAdminError(t, 400, word)
			}
			if resp := s.adminRequest("GET", "/hooks/runs", ""); strings.Contains(resp.body, "private") {
				t.Errorf("a list shows what was said: %s", resp.body)
			}

			// One of them is shown as to callers.
			for _, id := range all {
				if got, want := s.adminRequest("GET", "/hooks/runs/"+id, "").body, s.run(id).body; strings.TrimSpace(got) != want {
					t.Errorf("the admin API shows %s, and callers see %s", got, want)
				}
			}
			s.adminRequest("POST", "/hooks/runs/"+completed+"/cancel", "").wantAdminError(t, 409, "completed")
			s.adminRequest("GET", "/hooks/runs/unknown", "").wantAdminError(t, 404, "unknown")
			s.adminRequest("POST", "/hooks/runs/unknown/cancel", "").wantAdminError(t, 404, "unknown")
			for path, allowed := range map[string]string{"/hooks/runs": "GET", "/hooks/runs/" + queued: "GET", "/hooks/runs/" + queued + "/cancel": "POST"} {
				if resp := s.adminRequest("DELETE", path, ""); resp.status != 405 || resp.header.Get("Allow") != allowed {
					t.Errorf("DELETE %s is answered %d, Allow is %q", path, resp.status, resp.header.Get("Allow"))
				}
			}
			close(release)
			s.ended(queued)
		})
	}
}
