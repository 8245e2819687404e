package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestQueuedRunsAreCarriedOutAfterARestart(t *testing.T) {
	t.Parallel()
	rn, _, release := hookstest.HeldRunner(t)
	callbacks := hookstest.StartReceiver(t)
	config := hookstest.Hooks(rn, "workers 1\n drain_timeout 50ms\n"+hookstest.WithCallbacks+"hook custom {\n action agent\n template \"{a}\"\n }")
	s := hookstest.StartProcess(t, config)
	ended := s.Accept(`{"message":"before all"}`)
	before := s.Ended(ended)
	rn.Next()
	ids := []string{s.Accept(`{"message":"hold","chatId":"c"}`)}
	rn.Next()
	const queued = 20
	for i := range queued {
		switch i % 3 {
		case 0:
			ids = append(ids, s.Accept(fmt.Sprintf(`{"message":"%d","chatId":"c","callbackUrl":"%s"}`, i, callbacks.URL)))
		case 1:
			ids = append(ids, s.Post("/api/hooks/custom", fmt.Sprintf(`{"a":"%d"}`, i)).Field(t, "runId").(string))
		case 2:
			s.Post("/api/hooks/wake", fmt.Sprintf(`{"text":"%d","chatId":"c"}`, i))
		}
	}
	s.Stop()
	if len(rn.Turns) != 0 {
		t.Errorf("at the stop a turn began: %v", rn.Next().Body)
	}
	close(release)
	s.Load(config)
	s.Settle()

	var order []string // of the chat
	seen := make(map[string]int)
	for range 1 + queued {
		tn := rn.Next()
		seen[tn.Text("runId")]++
		if tn.Text("chatId") == "c" {
			text := tn.Text("message")
			if parts := hookstest.Markers.FindStringSubmatch(text); parts != nil {
				text = parts[2]
			}
			order = append(order, text)
		}
	}
	if want := []string{"hold", "0", "2", "3", "5", "6", "8", "9", "11", "12", "14", "15", "17", "18"}; !slices.Equal(order, want) {
		t.Errorf("the order in the chat is %v, want %v", order, want)
	}
	for _, id := range ids {
		if r := s.Ended(id); r.Status != "completed" || r.Attempts != 1 || seen[id] != 1 {
			t.Errorf("%d turns of %s", seen[id], r.Body)
		}
	}
	for i := 0; i < queued; i += 3 {
		if got := callbacks.Next(); got.Header.Get("X-Service-Run-Status") != "completed" {
			t.Errorf("the callback is %+v", got)
		}
	}
	if after := s.Run(ended); after.Body != before.Body {
		t.Errorf("what had ended was %s and is %s", before.Body, after.Body)
	}
	rn.WantNoTurn(s)
	if len(callbacks.Got) != 0 {
		t.Errorf("another callback came: %+v", callbacks.Next())
	}
}

func TestRunThatIsUnderWayAtAStopIsStartedAgain(t *testing.T) {
	t.Parallel()
	rn, gone, release := hookstest.HeldRunner(t)
	config := hookstest.Hooks(rn, "drain_timeout 50ms\n max_attempts 1")
	s := hookstest.StartProcess(t, config)
	id := s.Accept(`{"message":"hold","chatId":"c"}`)
	first := rn.Next()
	for range 3 {
		s.Restart(config)
		if got := hookstest.ReceiveWithin(t, "the runner sees its connection close", gone); got != id {
			t.Errorf("the turn of %s was ended, want %s", got, id)
		}
		again := rn.Next()
		for _, name := range []string{"Idempotency-Key", "X-Service-Run-Id", "X-Service-Chat-Id"} {
			if got, want := again.Header.Get(name), first.Header.Get(name); got != want {
				t.Errorf("%s is %q, and was %q", name, got, want)
			}
		}
		if got := again.Header.Get("Idempotency-Key"); got != id+":turn" {
			t.Errorf("Idempotency-Key is %q", got)
		}
		if hookstest.AsJSON(t, again.Body) != hookstest.AsJSON(t, first.Body) {
			t.Errorf("the turn is %v, and was %v", again.Body, first.Body)
		}
		// A stop is not the fault of the run.
		if r := s.Run(id); r.Status != "running" || r.Attempts != 1 {
			t.Errorf("got %s", r.Body)
		}
	}
	close(release)
	if r := s.Ended(id); r.Status != "completed" || r.Attempts != 1 {
		t.Errorf("got %s", r.Body)
	}
}

func TestSyncRunIsRepeatedAfterAStopOnlyIfItHasACallback(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"running", "queued"} {
		for _, callback := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, callback %v", where, callback), func(t *testing.T) {
				t.Parallel()
				rn, _, release := hookstest.HeldRunner(t)
				callbacks := hookstest.StartReceiver(t)
				config := hookstest.Hooks(rn, "workers 1\n drain_timeout 50ms\n"+hookstest.WithCallbacks)
				s := hookstest.StartProcess(t, config)
				if where == "queued" {
					s.Accept(`{"message":"hold first"}`)
					rn.Next()
				}
				body := `{"message":"hold","syncResponse":true}`
				if callback {
					body = `{"message":"hold","syncResponse":true,"callbackUrl":"` + callbacks.URL + `"}`
				}
				held := s.Hold(t.Context(), body, hookstest.Key("k")...)
				if where == "running" {
					rn.Next()
				}
				hookstest.Eventually(t, "the caller waits", func() bool { return hookstest.GoroutinesIn(s, "engine.(*Engine).Do(") == 1 })
				s.Stop()
				resp := hookstest.ReceiveWithin(t, "the caller is answered", held)
				resp.WantError(t, 503)
				id := resp.Header.Get("X-Service-Run-Id")
				if resp.Header.Get("Retry-After") == "" || id == "" {
					t.Errorf("got the headers %v", resp.Header)
				}
				close(release)
				s.Load(config)
				s.Settle()
				if where == "queued" {
					rn.Next() // the one before it
				}
				if !callback {
					if r := s.Ended(id); r.Status != "failed" || r.Reply != "" {
						t.Errorf("got %s", r.Body)
					}
					rn.WantNoTurn(s)
					// Nothing came of it, so the key is free.
					s.Post("/api/hooks/agent", body, hookstest.Key("k")...).WantNew(t, 200)
					return
				}
				if got := rn.Next(); got.Text("runId") != id || got.Header.Get("Idempotency-Key") != id+":turn" {
					t.Errorf("the turn is %v", got.Body)
				}
				if got := callbacks.Next(); got.Body != "hold" || got.Header.Get("X-Service-Run-Id") != id {
					t.Errorf("the callback is %+v", got)
				}
				if r := s.Ended(id); r.Status != "completed" || r.Attempts != 1 {
					t.Errorf("got %s", r.Body)
				}
				// Who repeats the request, as the 503 asked for, is told what came of it.
				if again := s.Post("/api/hooks/agent", body, hookstest.Key("k")...); again.Status != 200 || again.Body != "hold" || again.Header.Get("X-Service-Run-Id") != id {
					t.Errorf("the repeated request is answered %d %s", again.Status, again.Body)
				}
				rn.WantNoTurn(s)
			})
		}
	}
}

func TestCallbackThatAStopBreaksOffIsSentAfterTheNextStart(t *testing.T) {
	t.Parallel()
	rn := hookstest.StartRunner(t, nil)
	arrived, hangs := make(chan string, 10), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- r.Header.Get("X-Service-Attempt") + " " + r.Header.Get("webhook-id")
		select {
		case <-hangs:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(receiver.Close)
	config := hookstest.Hooks(rn, "drain_timeout 50ms\n callbacks {\n allow 127.0.0.1\n ports *\n secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n }")
	s := hookstest.StartProcess(t, config)
	id := s.Accept(`{"message":"a","callbackUrl":"` + receiver.URL + `"}`)
	first := hookstest.ReceiveWithin(t, "the callback comes", arrived)
	s.Stop()
	close(hangs)
	s.Load(config)
	s.Settle()
	if again := hookstest.ReceiveWithin(t, "the callback comes again", arrived); again != first || !strings.HasPrefix(again, "1 msg_") {
		t.Errorf("it came as %q, and before as %q", again, first)
	}
	hookstest.Eventually(t, "it is recorded", func() bool { return s.Run(id).Deliveries[0].Status == "delivered" })
	if d := s.Run(id).Deliveries[0]; d.Attempts != 1 || d.LastError != "" {
		t.Errorf("got %+v", d)
	}
	if len(rn.Turns) != 1 {
		t.Errorf("there were %d turns", len(rn.Turns))
	}
}

func TestKilledProcessStartsRunsAgain(t *testing.T) {
	t.Parallel()
	for _, maxAttempts := range []int{1, 2} {
		t.Run(fmt.Sprintf("max_attempts %d", maxAttempts), func(t *testing.T) {
			t.Parallel()
			rn, _, release := hookstest.HeldRunner(t)
			callbacks := hookstest.StartReceiver(t)
			d := hookstest.NewBinary(t).Deploy(t, "", hookstest.Hooks(rn, fmt.Sprintf("max_attempts %d\n", maxAttempts)+hookstest.WithCallbacks))
			p := d.Start(t)
			s := &hookstest.Server{T: t, URL: p.URL, Admin: p.Admin}
			async := s.Accept(`{"message":"hold","callbackUrl":"` + callbacks.URL + `"}`)
			rn.Next()
			s.Hold(t.Context(), `{"message":"hold","syncResponse":true}`)
			lost := rn.Next().Text("runId")
			s.Hold(t.Context(), `{"message":"hold","syncResponse":true,"callbackUrl":"`+callbacks.URL+`"}`)
			told := rn.Next().Text("runId")
			queued := s.Accept(`{"message":"last","chatId":"` + s.Run(async).ChatID + `"}`)
			p.Kill()
			http.DefaultClient.CloseIdleConnections()
			close(release)
			d.Start(t)
			if r := s.Ended(lost); r.Status != "failed" || !strings.Contains(r.ErrorMessage, "restarted") {
				t.Errorf("a run whose caller is gone: %s", r.Body)
			}
			for _, id := range []string{async, told} {
				r := s.Ended(id)
				switch {
				case maxAttempts == 1 && (r.Status != "failed" || !strings.Contains(r.ErrorMessage, "went down")):
					t.Errorf("a run that must not be started again: %s", r.Body)
				case maxAttempts == 2 && (r.Status != "completed" || r.Attempts != 2 || r.Reply != "hold"):
					t.Errorf("a run that is started again: %s", r.Body)
				}
			}
			if r := s.Ended(queued); r.Status != "completed" || r.Attempts != 1 {
				t.Errorf("a run that was queued: %s", r.Body)
			}
			interrupted := map[int]int{1: 3, 2: 1}[maxAttempts]
			series := fmt.Sprintf(`hooks_run_failures_total{hook="agent",hooks_instance="default",reason="interrupted"} %d`, interrupted)
			if scraped := s.AdminRequest("GET", "/metrics", "").Body; !strings.Contains(scraped, series) {
				t.Errorf("the metrics lack %s:\n%s", series, scraped)
			}
			for range 2 {
				got := callbacks.Next()
				id := got.Header.Get("X-Service-Run-Id")
				if (id != async && id != told) || got.Header.Get("X-Service-Run-Status") != s.Run(id).Status {
					t.Errorf("the callback is %+v", got)
				}
			}
			var turns []string
			for len(rn.Turns) > 0 {
				turns = append(turns, rn.Next().Text("runId"))
			}
			slices.Sort(turns)
			want := []string{queued}
			if maxAttempts == 2 {
				want = []string{async, told, queued}
			}
			slices.Sort(want)
			if !slices.Equal(turns, want) {
				t.Errorf("after the kill there were turns of %v, want %v", turns, want)
			}
		})
	}
}

func TestTerminatedProcessAnswersWhoWaits(t *testing.T) {
	t.Parallel()
	rn, _, _ := hookstest.HeldRunner(t)
	d := hookstest.NewBinary(t).Deploy(t, "", hookstest.Hooks(rn, "drain_timeout 1s"))
	p := d.Start(t)
	s := &hookstest.Server{T: t, URL: p.URL, Admin: p.Admin}
	id := s.Accept(`{"message":"hold","chatId":"c"}`)
	queued := s.Accept(`{"message":"hold","chatId":"c"}`)
	rn.Next()
	answers := map[string]chan hookstest.Response{"running": make(chan hookstest.Response, 1), "queued": make(chan hookstest.Response, 1)}
	for status, id := range map[string]string{"running": id, "queued": queued} {
		go func() {
			resp, err := hookstest.TryRequest("GET", s.URL+hookstest.RunPath(id)+"?wait=5m", "", "Authorization", "Bearer "+hookstest.Token)
			if err != nil {
				resp.Body = err.Error()
			}
			answers[status] <- resp
		}()
	}
	hookstest.Eventually(t, "both wait", func() bool { return hookstest.GoroutinesIn(s, "engine.(*records).Find(") == 2 })
	p.Terminate(t)
	for status, answer := range answers {
		if r := hookstest.ReceiveWithin(t, "who waits is answered", answer).Shown(t); r.Status != status {
			t.Errorf("got %s, want %s", r.Body, status)
		}
	}
	p.WantCleanExit(t)
	p.WantQuietLog(t)
}

// Counts of refused requests are in the store, so that a kill takes no more than the last second of them.
func TestKilledProcessRemembersRefusedRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "hooks.db")
	d := hookstest.NewBinary(t).Deploy(t, "", hookstest.Hooks(hookstest.StartRunner(t, nil), "keep_refused 1h\nstore bolt "+file+"\nhook signed {\nauth hmac X-Signature a-secret\n}"))
	p := d.Start(t)
	s := &hookstest.Server{T: t, URL: p.URL, Admin: p.Admin}
	for range 3 {
		s.Request("POST", "/api/hooks/signed", `{"a":"of the body"}`, "X-Signature", "00").WantError(t, 401)
	}
	var kept struct {
		Requests []struct {
			ID string `json:"id"`
		} `json:"requests"`
	}
	hookstest.Eventually(t, "the counts and the requests are in the file", func() bool {
		listed := s.AdminRequest("GET", "/hooks/refused/requests?hook=signed", "").Body
		data, err := os.ReadFile(file)
		inFile := err == nil && json.Unmarshal([]byte(listed), &kept) == nil && len(kept.Requests) == 3 && strings.Contains(string(data), `"count":3`)
		for _, request := range kept.Requests {
			inFile = inFile && strings.Contains(string(data), request.ID)
		}
		return inFile
	})
	s.Accept(`{"message":"a"}`) // its commit comes after the one that was seen, which may not have ended
	p.Kill()
	http.DefaultClient.CloseIdleConnections()
	p = d.Start(t)
	s.Request("POST", "/api/hooks/signed", `{}`, "X-Signature", "00").WantError(t, 401)
	if list := s.AdminRequest("GET", "/hooks/refused?hook=signed", "").Body; !strings.Contains(list, `"count":4`) {
		t.Errorf("after the kill there are %s", list)
	}
	if list := s.AdminRequest("GET", "/hooks/refused/requests?hook=signed", "").Body; strings.Count(list, `"id"`) != 4 {
		t.Errorf("after the kill there are %s", list)
	}
	// At a stop nothing is lost at all.
	p.Terminate(t)
	p.WantCleanExit(t)
	http.DefaultClient.CloseIdleConnections()
	d.Start(t)
	if list := s.AdminRequest("GET", "/hooks/refused?hook=signed", "").Body; !strings.Contains(list, `"count":4`) {
		t.Errorf("after the stop there are %s", list)
	}
}
