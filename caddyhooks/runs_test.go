package caddyhooks_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestRunIsShownInEveryState(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn, _, release := hookstest.HeldRunner(t)
			s := hookstest.StartSite(t, hookstest.Hooks(rn, "store "+store+"\n hook custom {\n action agent\n template \"{a}\"\n }"))
			begin := time.Now().Truncate(time.Millisecond)

			running := s.Accept(`{"message":"hold","chatId":"c","name":"nightly"}`)
			rn.Next()
			queued := s.Accept(`{"message":"hello <&>","chatId":"c"}`)
			cancelled := s.Accept(`{"message":"never","chatId":"c"}`)
			r := s.Run(queued)
			r.WantFields(t)
			if r.Status != "queued" || r.RunID != queued || r.ChatID != "c" || r.Hook != "agent" || r.Action != "agent" || r.Attempts != 0 || r.AcceptedAt.Before(begin) {
				t.Errorf("queued: %s", r.Body)
			}
			r = s.Run(running)
			r.WantFields(t, "name", "startedAt")
			if r.Status != "running" || r.Name != "nightly" || r.Attempts != 1 || r.StartedAt.Before(r.AcceptedAt) || !strings.Contains(r.Body, `Z"`) {
				t.Errorf("running: %s", r.Body)
			}

			s.CancelRun(cancelled)
			r = s.Run(cancelled)
			r.WantFields(t, "finishedAt", "errorMessage")
			if r.Status != "cancelled" || r.Attempts != 0 || r.FinishedAt.Before(r.AcceptedAt) || !strings.Contains(r.ErrorMessage, "cancelled") {
				t.Errorf("cancelled: %s", r.Body)
			}

			close(release)
			if r = s.Ended(running); r.Status != "completed" || r.Reply != "hold" || r.Name != "nightly" {
				t.Errorf("completed: %s", r.Body)
			}
			r = s.Ended(queued)
			r.WantFields(t, "startedAt", "finishedAt", "reply")
			if r.Status != "completed" || r.Reply != "hello <&>" || r.Attempts != 1 || r.StartedAt.Before(r.AcceptedAt) || r.FinishedAt.Before(r.StartedAt) {
				t.Errorf("completed: %s", r.Body)
			}

			r = s.Ended(s.Accept(`{"message":"fail","chatId":"f"}`))
			r.WantFields(t, "startedAt", "finishedAt", "errorMessage")
			if r.Status != "failed" || r.ErrorMessage != "The agent failed to answer." || r.Attempts != 1 {
				t.Errorf("failed: %s", r.Body)
			}

			custom := s.Post("/api/hooks/custom", `{"a":"from a hook"}`)
			r = s.Ended(custom.Field(t, "runId").(string))
			if r.Status != "completed" || r.Hook != "custom" || r.Reply != "from a hook" || !hookstest.FreshChatPattern.MatchString(r.ChatID) {
				t.Errorf("a custom hook's: %s", r.Body)
			}
		})
	}
	t.Run("timed out", func(t *testing.T) {
		rn, _, _ := hookstest.HeldRunner(t)
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		r := s.Ended(s.Accept(`{"message":"hold","timeoutSeconds":1}`))
		r.WantFields(t, "startedAt", "finishedAt", "errorMessage")
		if r.Status != "timed_out" || !strings.Contains(r.ErrorMessage, "1 second") || r.FinishedAt.Sub(r.StartedAt) < time.Second-time.Millisecond {
			t.Errorf("timed out: %s", r.Body)
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
			s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, replies(c.replies...)), ""))
			id := s.Post("/api/hooks/agent", c.body).Header.Get("X-Service-Run-Id")
			r := s.Run(id)
			want := []string{"startedAt", "finishedAt"}
			if c.repairs > 0 {
				want = append(want, "repairAttempts")
			}
			if c.status == "completed" {
				want = append(want, "reply")
			} else {
				want = append(want, "errorMessage")
			}
			r.WantFields(t, want...)
			if r.Status != c.status || r.Reply != c.reply || r.RepairAttempts != c.repairs {
				t.Errorf("got %s", r.Body)
			}
		})
	}
}

func TestWakeRunsCanBeLookedUpToo(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("noted"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "hook bell"))
	for _, c := range []struct{ hook, body string }{{"wake", `{"text":"a","chatId":"w"}`}, {"bell", `{"a":1}`}} {
		resp := s.Post("/api/hooks/"+c.hook, c.body)
		resp.WantBody(t, 200, "status", "chatId")
		r := s.Ended(rn.Next().Header.Get("X-Service-Run-Id"))
		if r.Status != "completed" || r.Hook != c.hook || r.Action != "wake" || r.ChatID != resp.Field(t, "chatId") || r.Reply != "noted" {
			t.Errorf("got %s", r.Body)
		}
	}
}

func TestDeliveriesOfARunAreShown(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	status := map[string]int{"/good": 204, "/later": 500, "/never": 410}
	callbacks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status[r.URL.Path])
		_, _ = io.WriteString(w, "secret words of the receiver")
	}))
	t.Cleanup(callbacks.Close)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks+"channel team log"))
	for _, c := range []struct{ path, status, lastError string }{
		{"/good", "delivered", ""},
		{"/later", "pending", "500"},
		{"/never", "dead", "410"},
	} {
		t.Run(c.status, func(t *testing.T) {
			id := s.Accept(`{"message":"a","deliver":true,"channel":"team","to":"general","callbackUrl":"` + callbacks.URL + c.path + `?token=secret&x=1#part"}`)
			var r hookstest.RunView
			hookstest.Eventually(t, "both deliveries were tried", func() bool {
				r = s.Run(id)
				return len(r.Deliveries) == 2 && r.Deliveries[0].Attempts == 1 && r.Deliveries[1].Attempts == 1
			})
			callback, channel := r.Deliveries[0], r.Deliveries[1]
			if callback.Kind != "callback" || callback.Target != callbacks.URL+"/…" || callback.Status != c.status ||
				(callback.LastError == "") != (c.lastError == "") || !strings.Contains(callback.LastError, c.lastError) {
				t.Errorf("the callback is %+v", callback)
			}
			if channel.Kind != "channel" || channel.Target != "team:general" || channel.Status != "delivered" || channel.LastError != "" {
				t.Errorf("the channel's delivery is %+v", channel)
			}
			if callback.ID == channel.ID || !strings.HasPrefix(callback.ID, "msg_") {
				t.Errorf("the ids are %s and %s", callback.ID, channel.ID)
			}
			if strings.Contains(r.Body, "secret") {
				t.Errorf("a secret is shown: %s", r.Body)
			}
			if c.lastError == "" && strings.Contains(r.Body, "lastError") {
				t.Errorf("there was no error: %s", r.Body)
			}
		})
	}
	t.Run("not before the end", func(t *testing.T) {
		id := s.Accept(`{"message":"hold","callbackUrl":"` + callbacks.URL + `/good"}`)
		if r := s.Run(id); slices.Contains(r.Fields, "deliveries") {
			t.Errorf("got %s", r.Body)
		}
		close(release)
		s.Ended(id)
	})
}

func TestWaitHoldsUntilTheEnd(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	id := s.Accept(`{"message":"hold","chatId":"c"}`)
	queued := s.Accept(`{"message":"after it","chatId":"c"}`)
	rn.Next()
	if r := s.LookUp(id, "?wait=20ms").Shown(t); r.Status != "running" {
		t.Errorf("when the time is up: %s", r.Body)
	}
	if r := s.LookUp(queued, "?wait=20ms").Shown(t); r.Status != "queued" {
		t.Errorf("when the time is up: %s", r.Body)
	}
	const waiters = 10
	answers := make(chan hookstest.Response, 2*waiters)
	for range waiters {
		for _, id := range []string{id, queued} {
			go func() {
				resp, err := hookstest.TryRequest("GET", s.URL+hookstest.RunPath(id)+"?wait=5m", "", "Authorization", "Bearer "+hookstest.Token)
				if err != nil {
					resp.Body = err.Error()
				}
				answers <- resp
			}()
		}
	}
	hookstest.Eventually(t, "all wait", func() bool { return hookstest.GoroutinesIn(s, "engine.(*records).Find(") == 2*waiters })
	if len(answers) != 0 {
		t.Fatalf("somebody did not wait: %+v", <-answers)
	}
	close(release)
	for range 2 * waiters {
		if r := hookstest.ReceiveWithin(t, "a waiter is answered", answers).Shown(t); r.Status != "completed" {
			t.Errorf("got %s", r.Body)
		}
	}
	// One that has ended is not waited for.
	if r := s.LookUp(id, "?wait=5m").Shown(t); r.Status != "completed" {
		t.Errorf("got %s", r.Body)
	}
	hookstest.Eventually(t, "nobody waits any more", func() bool { return hookstest.GoroutinesIn(s, "engine.(*records).Find(") == 0 })
}

func TestWaitIsADurationOfUpToFiveMinutes(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n}")
	id := s.Accept(`{"message":"a"}`)
	s.Ended(id)
	for _, good := range []string{"0", "0s", "30", "30s", "300", "5m", "1.5s", "1m30s", "10ms", ""} {
		if r := s.LookUp(id, "?wait="+good).Shown(t); r.Status != "completed" {
			t.Errorf("wait=%s: %s", good, r.Body)
		}
	}
	for _, bad := range []string{"x", "-1", "-1s", "301", "5m1s", "1h", "1e3", "1.5", "65536", "99999999999999999999", "9999999h", "30%20s", "NaN", "s"} {
		s.LookUp(id, "?wait="+bad).WantError(t, 400, "wait", "5m")
	}
}

func TestCancelOfAQueuedRun(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	callbacks := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n"+hookstest.WithCallbacks))
	first := s.Accept(`{"message":"hold"}`)
	rn.Next()
	id := s.Accept(`{"message":"never","callbackUrl":"` + callbacks.URL + `"}`)
	waits := make(chan hookstest.Response, 1)
	go func() {
		resp, _ := hookstest.TryRequest("GET", s.URL+hookstest.RunPath(id)+"?wait=5m", "", "Authorization", "Bearer "+hookstest.Token)
		waits <- resp
	}()
	hookstest.Eventually(t, "somebody waits", func() bool { return hookstest.GoroutinesIn(s, "engine.(*records).Find(") == 1 })

	r := s.CancelRun(id).Shown(t)
	if r.Status != "cancelled" || r.RunID != id || r.Attempts != 0 {
		t.Errorf("got %s", r.Body)
	}
	if woken := hookstest.ReceiveWithin(t, "who waits is told", waits).Shown(t); woken.Status != "cancelled" {
		t.Errorf("who waits got %s", woken.Body)
	}
	got := callbacks.Next()
	if got.Header.Get("X-Service-Run-Status") != "cancelled" || got.Header.Get("X-Service-Run-Id") != id {
		t.Errorf("the callback is %+v", got)
	}
	hookstest.Response{Status: 0, Header: got.Header, Body: got.Body}.WantError(t, 0, "cancelled")

	again := s.CancelRun(id).Shown(t)
	if again.Status != "cancelled" || !again.FinishedAt.Equal(r.FinishedAt) {
		t.Errorf("the second time: %s", again.Body)
	}
	close(release)
	s.Ended(first)
	rn.WantNoTurn(s)
}

func TestCancelOfARunningRun(t *testing.T) {
	rn, gone, _ := hookstest.HeldRunner(t)
	callbacks := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks))
	id := s.Accept(`{"message":"hold","chatId":"c","callbackUrl":"` + callbacks.URL + `"}`)
	rn.Next()
	if r := s.CancelRun(id).Shown(t); r.Status != "cancelled" || r.Attempts != 1 || r.StartedAt.IsZero() {
		t.Errorf("got %s", r.Body)
	}
	if got := hookstest.ReceiveWithin(t, "the runner sees its connection close", gone); got != id {
		t.Errorf("the turn of %s was cancelled, want %s", got, id)
	}
	if got := callbacks.Next(); got.Header.Get("X-Service-Run-Status") != "cancelled" {
		t.Errorf("the callback is %+v", got)
	}
	// The chat goes on.
	if r := s.Ended(s.Accept(`{"message":"next","chatId":"c"}`)); r.Status != "completed" {
		t.Errorf("the next run of the chat: %s", r.Body)
	}
}

func TestCallerWhoseRunIsCancelledIsAnswered(t *testing.T) {
	rn, _, _ := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	answer := make(chan hookstest.Response, 1)
	go func() {
		resp, err := hookstest.TryRequest("POST", s.URL+"/api/hooks/agent", `{"message":"hold","syncResponse":true}`, "Authorization", "Bearer "+hookstest.Token)
		if err != nil {
			resp.Body = err.Error()
		}
		answer <- resp
	}()
	id := rn.Next().Header.Get("X-Service-Run-Id")
	s.CancelRun(id).Shown(t)
	resp := hookstest.ReceiveWithin(t, "the caller is answered", answer)
	if resp.Status < 400 || resp.Header.Get("X-Service-Run-Id") != id {
		t.Errorf("got %d %v", resp.Status, resp.Header)
	}
	resp.WantError(t, resp.Status, "cancelled")
}

func TestCancelOfARunThatHasEndedChangesNothing(t *testing.T) {
	rn, _, _ := hookstest.HeldRunner(t)
	callbacks := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks))
	for message, status := range map[string]string{"hello": "completed", "fail": "failed"} {
		id := s.Accept(`{"message":"` + message + `","callbackUrl":"` + callbacks.URL + `"}`)
		s.Ended(id)
		callbacks.Next()
		var before hookstest.RunView
		hookstest.Eventually(t, "the callback is recorded", func() bool {
			before = s.Run(id)
			return before.Deliveries[0].Status == "delivered"
		})
		for range 2 {
			s.CancelRun(id).WantError(t, 409, "ended", status)
		}
		if after := s.Run(id); after.Status != status || after.Body != before.Body {
			t.Errorf("%s became %s", before.Body, after.Body)
		}
	}
	if len(callbacks.Got) != 0 {
		t.Errorf("another callback came: %+v", callbacks.Next())
	}
}

func TestCancelledRunsEndOnce(t *testing.T) {
	// How long turns take is left to chance, and so is when they are cancelled.
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		select {
		case <-time.After(rand.N(4 * time.Millisecond)):
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	})
	callbacks := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks))
	const runs = 100
	var ids [runs]string
	var cancels [runs]hookstest.Response
	var group sync.WaitGroup
	for i := range runs {
		ids[i] = s.Accept(fmt.Sprintf(`{"message":"a","chatId":"%d","callbackUrl":"%s"}`, i%40, callbacks.URL))
		group.Go(func() {
			time.Sleep(rand.N(4 * time.Millisecond))
			resp, err := hookstest.TryRequest("POST", s.URL+hookstest.RunPath(ids[i])+"/cancel", "", "Authorization", "Bearer "+hookstest.Token)
			if err != nil {
				t.Errorf("cancelling: %v", err)
			}
			cancels[i] = resp
		})
	}
	group.Wait()
	ends := make(map[string]hookstest.RunView)
	count := make(map[string]int)
	for i, id := range ids {
		r := s.Ended(id)
		ends[id] = r
		count[r.Status]++
		switch {
		case cancels[i].Status == 200 && r.Status == "cancelled":
		case cancels[i].Status == 409 && r.Status == "completed":
			cancels[i].WantError(t, 409, "completed")
		default:
			t.Errorf("cancelling was answered %d %s, and the run is %s", cancels[i].Status, cancels[i].Body, r.Status)
		}
	}
	t.Logf("%v", count)
	seen := make(map[string]bool)
	for range runs {
		got := callbacks.Next()
		id, status := got.Header.Get("X-Service-Run-Id"), got.Header.Get("X-Service-Run-Status")
		if seen[id] || status != ends[id].Status || (status == "completed") != (got.Body == "done") {
			t.Errorf("the callback of %s: %+v, seen before: %v", ends[id].Status, got, seen[id])
		}
		seen[id] = true
	}
	for id, before := range ends {
		var after hookstest.RunView
		hookstest.Eventually(t, "the callback is recorded", func() bool {
			after = s.Run(id)
			return after.Deliveries[0].Status == "delivered"
		})
		if after.Status != before.Status || !after.FinishedAt.Equal(before.FinishedAt) || after.Reply != before.Reply || after.Attempts != before.Attempts {
			t.Errorf("%s became %s", before.Body, after.Body)
		}
	}
	if len(callbacks.Got) != 0 {
		t.Errorf("another callback came: %+v", callbacks.Next())
	}
}

// A run goes from queued to running to its end. Who looks often must not see anything else.
func TestRunIsNeverShownInAStateThatItHasLeft(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
				time.Sleep(rand.N(3 * time.Millisecond))
			})
			s := hookstest.StartSite(t, hookstest.Hooks(rn, "store "+store))
			order := map[string]int{"queued": 0, "running": 1, "completed": 2}
			var group sync.WaitGroup
			var backward atomic.Int32
			for range 2 {
				group.Go(func() {
					for range 30 {
						id := s.Accept(`{"message":"a"}`)
						for before := (hookstest.RunView{Status: "queued"}); before.Status != "completed"; {
							now := s.Run(id)
							if order[now.Status] < order[before.Status] || now.Attempts < before.Attempts {
								if backward.Add(1) == 1 {
									t.Errorf("after %s came %s", before.Body, now.Body)
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
	s := hookstest.StartSite(t, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n}")
	for _, id := range []string{
		"0198f6a0-0000-7000-8000-000000000000", "x", "cancel", "0", "..", "%2e%2e", "%00", "*",
		"0198f6a0-0000-7000-8000-00000000000", "0198f6a0-0000-7000-8000-0000000000000", "0198f6a0-0000-7000-8000-00000000000g",
		strings.Repeat("a", 5000),
	} {
		s.LookUp(id, "").WantError(t, 404)
		s.LookUp(id, "?wait=5m").WantError(t, 404)
		s.CancelRun(id).WantError(t, 404)
	}
	for _, path := range []string{"/api/hooks/runs", "/api/hooks/runs/", "/api/hooks/runs//", "/api/hooks/runs//cancel", "/api/hooks/runs/a/b"} {
		s.Request("GET", path, "", "Authorization", "Bearer "+hookstest.Token).WantError(t, 404)
		s.Post(path, "{}").WantError(t, 404)
	}
}

func TestOneRunHasOnePath(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n}")
	id := s.Accept(`{"message":"a"}`)
	s.Ended(id)
	for _, path := range []string{
		hookstest.RunPath(id) + "/", hookstest.RunPath("/" + id), "/api/hooks//runs/" + id, hookstest.RunPath(id) + "//cancel", hookstest.RunPath(id) + "/cancel/", hookstest.RunPath(id) + "/other",
	} {
		s.Request("GET", path, "", "Authorization", "Bearer "+hookstest.Token).WantError(t, 404)
		s.Post(path, "").WantError(t, 404)
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
			rn, _, release := hookstest.HeldRunner(t)
			s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
			id := s.Accept(`{"message":"hold"}`)
			rn.Next()
			if resp := s.LookUp(write.as(id), ""); resp.Status == 404 {
				s.CancelRun(write.as(id)).WantError(t, 404)
				close(release)
				s.Ended(id)
				return
			}
			answer := make(chan hookstest.Response, 1)
			go func() {
				resp, err := hookstest.TryRequest("GET", s.URL+hookstest.RunPath(write.as(id))+"?wait=5m", "", "Authorization", "Bearer "+hookstest.Token)
				if err != nil {
					resp.Body = err.Error()
				}
				answer <- resp
			}()
			hookstest.Eventually(t, "somebody waits", func() bool { return hookstest.GoroutinesIn(s, "engine.(*records).Find(") == 1 })
			close(release)
			s.Ended(id)
			select {
			case resp := <-answer:
				if r := resp.Shown(t); r.Status != "completed" {
					t.Errorf("got %s", r.Body)
				}
			case <-time.After(2 * time.Second):
				t.Error("the run has ended, and who waits for it is not told")
			}
		})
	}
}

func TestRunsAreShownToHoldersOfTheTokenAlone(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "hook signed {\n action agent\n auth hmac X-Sig secret\n template \"hold\"\n }"))
	defer close(release)
	signed := s.Request("POST", "/api/hooks/signed", "{}", "X-Sig", signature("secret", "{}"))
	if signed.Status != 202 {
		t.Fatalf("got %d %s", signed.Status, signed.Body)
	}
	id := signed.Field(t, "runId").(string)
	for name, headers := range map[string][]string{
		"nothing":                     {},
		"a wrong token":               {"Authorization", "Bearer wrong"},
		"the secret of a hook":        {"Authorization", "Bearer secret"},
		"the secret of a hook, alone": {"X-Service-Token", "secret"},
		"a signature":                 {"X-Sig", signature("secret", "")},
		"the token as a user":         {"Authorization", "Basic " + hookstest.Token},
	} {
		for _, try := range []struct{ method, path string }{
			{"GET", hookstest.RunPath(id) + "?wait=1s"}, {"GET", hookstest.RunPath("unknown")}, {"POST", hookstest.RunPath(id) + "/cancel"},
		} {
			resp := s.Request(try.method, try.path, "", headers...)
			resp.WantError(t, 401, "token")
			if resp.Header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(resp.Body, id) {
				t.Errorf("%s: got %v %s", name, resp.Header, resp.Body)
			}
		}
	}
	for range 20 - 3*6 {
		s.Request("GET", hookstest.RunPath(id), "").WantError(t, 401)
	}
	// Now the address is over the limit, and a good token passes all the same.
	s.Request("GET", hookstest.RunPath(id), "").WantError(t, 429)
	s.Request("POST", hookstest.RunPath(id)+"/cancel", "").WantError(t, 429)
	if r := s.Run(id); r.Status != "running" && r.Status != "queued" {
		t.Errorf("it was cancelled: %s", r.Body)
	}
	if r := s.Request("GET", hookstest.RunPath(id), "", "X-Service-Token", hookstest.Token).Shown(t); r.Hook != "signed" {
		t.Errorf("got %s", r.Body)
	}
}

func TestRunsAreNotThereWhileWebhooksAreOff(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n runner echo\n token "+hookstest.Token+"\n}")
	s.PatchSettings(`{"enabled":true}`)
	id := s.Accept(`{"message":"a"}`)
	s.Ended(id)
	s.PatchSettings(`{"enabled":false}`)
	want := s.Post("/api/hooks/wake", `{"text":"a"}`)
	want.WantError(t, 404)
	want.Header.Del("Date")
	for _, try := range []struct{ method, path string }{
		{"GET", hookstest.RunPath(id)}, {"GET", hookstest.RunPath(id) + "?wait=bad"}, {"GET", hookstest.RunPath("unknown")}, {"POST", hookstest.RunPath(id) + "/cancel"}, {"DELETE", hookstest.RunPath(id)},
	} {
		for _, headers := range [][]string{{"Authorization", "Bearer " + hookstest.Token}, nil} {
			got := s.Request(try.method, try.path, "", headers...)
			got.Header.Del("Date")
			if got.Status != 404 || got.Body != want.Body || fmt.Sprint(got.Header) != fmt.Sprint(want.Header) {
				t.Errorf("%s %s: got %d %v %s, want %v %s", try.method, try.path, got.Status, got.Header, got.Body, want.Header, want.Body)
			}
		}
	}
	s.PatchSettings(`{"enabled":true}`)
	if r := s.Run(id); r.Status != "completed" {
		t.Errorf("got %s", r.Body)
	}
}

func TestOtherMethodsOnRunsAre405(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n}")
	id := s.Accept(`{"message":"a"}`)
	for path, allowed := range map[string]string{hookstest.RunPath(id): "GET", hookstest.RunPath(id) + "/cancel": "POST", hookstest.RunPath("unknown"): "GET"} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"} {
			if method == allowed {
				continue
			}
			resp := s.Request(method, path, "")
			resp.WantError(t, 405, allowed)
			if got := resp.Header.Get("Allow"); got != allowed {
				t.Errorf("%s %s: Allow is %q", method, path, got)
			}
		}
	}
	if r := s.Ended(id); r.Status != "completed" {
		t.Errorf("got %s", r.Body)
	}
}

func TestRunsOfAnotherInstanceAreNotFound(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n}\n hooks other {\n enabled\n runner echo\n token "+hookstest.Token+"\n path /other\n}")
	id := s.Accept(`{"message":"a"}`)
	s.Ended(id)
	s.Request("GET", "/other/runs/"+id, "", "Authorization", "Bearer "+hookstest.Token).WantError(t, 404)
	s.Post("/other/runs/"+id+"/cancel", "").WantError(t, 404)
}

func TestLocationLeadsToTheRun(t *testing.T) {
	const on = "enabled\n runner echo\n token " + hookstest.Token + "\n hook full {\n action agent\n }\n hook bell\n"
	for _, c := range []struct{ name, directives, base, location string }{
		{"as usual", "hooks {\n " + on + "}", "/api/hooks/", "/api/hooks/"},
		{"another path", "hooks {\n " + on + "path /in\n}", "/in/", "/in/"},
		{"a path of several parts", "hooks {\n " + on + "path /a/b.c/d\n}", "/a/b.c/d/", "/a/b.c/d/"},
		{"below handle_path", "handle_path /prefix/* {\n hooks {\n " + on + "}\n}", "/prefix/api/hooks/", "/prefix/api/hooks/"},
		{"below two", "handle_path /a/* {\n handle_path /b/* {\n hooks {\n " + on + "path /c\n}\n}\n}", "/a/b/c/", "/a/b/c/"},
		{"below route with uri strip_prefix", "route {\n uri strip_prefix /v1\n hooks {\n " + on + "}\n}", "/v1/api/hooks/", "/v1/api/hooks/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := hookstest.StartSite(t, c.directives)
			for _, hook := range []string{"agent", "full", "agent?x=1"} {
				resp := s.Post(c.base+hook, `{"message":"a"}`)
				id, _ := resp.Field(t, "runId").(string)
				if got, want := resp.Header.Get("Location"), c.location+"runs/"+id; resp.Status != 202 || got != want {
					t.Fatalf("got %d with the location %q, want %q", resp.Status, got, want)
				}
				if r := s.Request("GET", resp.Header.Get("Location")+"?wait=10s", "", "Authorization", "Bearer "+hookstest.Token).Shown(t); r.RunID != id || r.Status != "completed" {
					t.Errorf("there is %s", r.Body)
				}
				s.Post(resp.Header.Get("Location")+"/cancel", "").WantError(t, 409)
			}
			for _, other := range []struct{ hook, body string }{
				{"wake", `{"text":"a"}`}, {"bell", `{}`}, {"agent", `{"message":"a","syncResponse":true}`}, {"agent", `{}`},
			} {
				if resp := s.Post(c.base+other.hook, other.body); resp.Header["Location"] != nil {
					t.Errorf("%s %s has the location %v", other.hook, other.body, resp.Header["Location"])
				}
			}
		})
	}
}

// Caddy takes paths that are written in an unusual way for the same.
func TestLocationOfARequestWithAnUnusualPath(t *testing.T) {
	s := hookstest.StartSite(t, "handle_path /prefix/* {\n hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n }\n}")
	for _, path := range []string{"/prefix/api/hooks/%61gent", "/%70refix/api/hooks/agent", "//prefix/api/hooks/agent", "/prefix//api/hooks/agent"} {
		t.Run(path, func(t *testing.T) {
			resp := s.Post(path, `{"message":"a"}`)
			if resp.Status != 202 {
				resp.WantError(t, resp.Status)
				return
			}
			location := resp.Header.Get("Location")
			if strings.HasPrefix(location, "//") {
				t.Fatalf("the location %q is on another host", location)
			}
			if r := s.Request("GET", location, "", "Authorization", "Bearer "+hookstest.Token); r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("at %s is no run: %d %q", location, r.Status, r.Body)
			}
		})
	}
}

func TestRunsAreListedByTheAdminAPI(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn, _, release := hookstest.HeldRunner(t)
			s := hookstest.StartSite(t, hookstest.Hooks(rn, "store "+store+"\n hook custom {\n action agent\n template \"very private words\"\n }"))
			if ids, cursor := s.Listed(""); len(ids) != 0 || cursor != "" {
				t.Errorf("before all there are %v, %q", ids, cursor)
			}
			completed := s.Accept(`{"message":"very private words","chatId":"a b&c"}`)
			s.Ended(completed)
			failed := s.Accept(`{"message":"fail","chatId":"a b&c"}`)
			s.Ended(failed)
			custom := s.Post("/api/hooks/custom", `{}`).Field(t, "runId").(string)
			s.Ended(custom)
			running := s.Accept(`{"message":"hold very private words","chatId":"c"}`)
			for range 4 {
				rn.Next()
			}
			queued := s.Accept(`{"message":"very private words","chatId":"c"}`)
			cancelled := s.Accept(`{"message":"very private words","chatId":"c"}`)
			if r := s.AdminRequest("POST", "/hooks/runs/"+cancelled+"/cancel", "").Field(t, "status"); r != "cancelled" {
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
				if ids, cursor := s.Listed(query); !slices.Equal(ids, want) || cursor != "" {
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
					if ids, cursor = s.Listed(query); len(ids) > limit {
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
				s.AdminRequest("GET", "/hooks/runs"+query, "").WantAdminError(t, 400, word)
			}

			// One of them is shown as to callers, with where it came from, and with its input.
			for _, id := range all {
				got, want := s.AdminRequest("GET", "/hooks/runs/"+id, "").Body, s.Run(id).Body
				shared, more, ok := strings.Cut(strings.TrimSpace(got), `,"client":"127.0.0.1",`)
				if !ok || shared+"}" != want || !strings.Contains(more, `"message":"`) || !strings.Contains(more, `,"timeoutSeconds":300,`) {
					t.Errorf("the admin API shows %s, and callers see %s", got, want)
				}
			}
			s.AdminRequest("POST", "/hooks/runs/"+completed+"/cancel", "").WantAdminError(t, 409, "completed")
			s.AdminRequest("GET", "/hooks/runs/unknown", "").WantAdminError(t, 404, "unknown")
			s.AdminRequest("POST", "/hooks/runs/unknown/cancel", "").WantAdminError(t, 404, "unknown")
			for path, allowed := range map[string]string{"/hooks/runs": "GET", "/hooks/runs/" + queued: "GET", "/hooks/runs/" + queued + "/cancel": "POST"} {
				if resp := s.AdminRequest("DELETE", path, ""); resp.Status != 405 || resp.Header.Get("Allow") != allowed {
					t.Errorf("DELETE %s is answered %d, Allow is %q", path, resp.Status, resp.Header.Get("Allow"))
				}
			}
			close(release)
			s.Ended(queued)
		})
	}
}
