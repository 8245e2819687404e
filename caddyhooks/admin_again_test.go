package caddyhooks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// brokenRunner answers every turn with 500 until it is mended, and then with its message.
func brokenRunner(t *testing.T) (rn *hookstest.Runner, mended *atomic.Bool) {
	mended = new(atomic.Bool)
	rn = hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if !mended.Load() {
			w.WriteHeader(500)
			return
		}
		_, _ = io.WriteString(w, turn.Text("message"))
	})
	return rn, mended
}

// again starts a run again, and returns the id of the new one.
func again(t *testing.T, s *hookstest.Server, id, body string) string {
	t.Helper()
	resp := s.AdminRequest("POST", "/hooks/runs/"+id+"/again", body)
	newID, _ := resp.Field(t, "runId").(string)
	if resp.Status != 202 || !hookstest.RunIDPattern.MatchString(newID) || newID == id {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	return newID
}

func TestARunThatFailedIsRunAgain(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn, mended := brokenRunner(t)
			receiver := hookstest.StartReceiver(t)
			s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks+"store "+store))
			id := s.Accept(`{"message":"{\"ok\":true}","chatId":"c","name":"label","model":"smart","metadata":{"a":1},"callbackUrl":"` + receiver.URL + `"}`)
			s.Ended(id)
			first := rn.Next()
			mended.Store(true)
			s.PatchSettings(`{"mappings":[]}`) // a new revision of the settings is of no account

			second := again(t, s, id, "")
			if run := s.Ended(second); run.Status != "completed" || run.ChatID != "c" || run.Name != "label" || len(run.Deliveries) != 0 {
				t.Errorf("the new run is %s", run.Body)
			}
			if run := lookUp(t, s, second); run.AgainOf != id || run.AgainAs != "" {
				t.Errorf("the new run is %q again", run.AgainOf)
			}
			if list := s.AdminRequest("GET", "/hooks/runs", "").Body; strings.Count(list, `"againOf"`) != 1 || !strings.Contains(list, `"againOf":"`+id+`"`) {
				t.Errorf("the list is %s", list)
			}
			if run := s.Run(second); strings.Contains(run.Body, "again") {
				t.Errorf("callers see %s", run.Body)
			}
			turn := rn.Next()
			for _, field := range []string{"runId"} {
				delete(first.Body, field)
				delete(turn.Body, field)
			}
			if got, want := hookstest.AsJSON(t, turn.Body), hookstest.AsJSON(t, first.Body); got != want {
				t.Errorf("the agent got %s, and at first %s", got, want)
			}
			if run := lookUp(t, s, id); run.AgainAs != second {
				t.Errorf("the first run was run again as %q, want %q", run.AgainAs, second)
			}

			third := again(t, s, id, `{"deliver":true,"chatId":"other"}`)
			if run := s.Ended(third); run.Status != "completed" || run.ChatID != "other" || len(run.Deliveries) != 1 {
				t.Errorf("the new run is %s", run.Body)
			}
			again(t, s, id, `{"deliver":false,"chatId":null}`)
			again(t, s, id, ` {} `)
			if run := s.Ended(again(t, s, id, `{"deliver":null,"chatId":""}`)); run.ChatID != "c" {
				t.Errorf("the new run is %s", run.Body)
			}
		})
	}
}

func TestASyncRunWithASchemaIsRunAgainInTheBackground(t *testing.T) {
	rn, mended := brokenRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	resp := s.Post("/api/hooks/agent", `{"message":"{\"fine\":true}","syncResponse":true,"responseJsonSchema":{"type":"object","required":["fine"]}}`)
	if resp.Status != 502 {
		t.Fatalf("got %+v", resp)
	}
	ids, _ := s.Listed("?status=failed")
	mended.Store(true)
	if run := s.Ended(again(t, s, ids[0], "")); run.Status != "completed" || run.Reply != `{"fine":true}` {
		t.Errorf("the new run is %s", run.Body)
	}
}

func TestRunsThatCannotBeRunAgain(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "max_timeout 1h\n hook forgetful {\n action agent\n history off\n template fail\n }"))
	completed, failed := s.Accept(`{"message":"a"}`), s.Accept(`{"message":"fail"}`)
	forgetful, _ := s.Post("/api/hooks/forgetful", `{}`).Field(t, "runId").(string)
	cancelled := s.Accept(`{"message":"hold"}`)
	s.CancelRun(cancelled)
	late := s.Accept(`{"message":"hold","timeoutSeconds":1}`)
	cut := s.Accept(`{"message":"hold` + strings.Repeat("x", engine.MaxInput) + `","timeoutSeconds":1}`)
	for _, id := range []string{completed, failed, forgetful, cancelled, late, cut} {
		s.Ended(id)
	}
	running := s.Accept(`{"message":"hold","chatId":"c"}`)
	hookstest.Eventually(t, "the run is under way", func() bool { return s.Run(running).Status == "running" })
	queued := s.Accept(`{"message":"a","chatId":"c"}`)
	path := func(id string) string { return "/hooks/runs/" + id + "/again" }
	for id, word := range map[string]string{
		running: "running", queued: "queued", forgetful: "not kept", cut: "64 KB",
	} {
		s.AdminRequest("POST", path(id), "").WantAdminError(t, 409, word)
	}
	s.AdminRequest("POST", path("unknown"), "").WantAdminError(t, 404, "unknown")
	for body, word := range map[string]string{
		`{`: "JSON", `[]`: "object", `{"deliver":"yes"}`: "deliver", `{"chatId":1}`: "chatId", `{"chatId":"a\u0001"}`: "chatId",
		`{"chatId":"` + strings.Repeat("x", 257) + `"}`: "256", `{"message":"x"}`: "message", `{"deliver":true,"deliver":true}`: "twice",
	} {
		s.AdminRequest("POST", path(failed), body).WantAdminError(t, 400, word)
	}
	if resp := s.AdminRequest("GET", path(failed), ""); resp.Status != 405 || resp.Header.Get("Allow") != "POST" {
		t.Errorf("GET is answered %d, Allow is %q", resp.Status, resp.Header.Get("Allow"))
	}
	if ids, _ := s.Listed("?chatId=c"); len(ids) != 2 {
		t.Errorf("a run was started after all: %v", ids)
	}
	for _, id := range []string{late, completed, cancelled} {
		if second := s.Run(again(t, s, id, "")); second.ChatID != s.Run(id).ChatID {
			t.Errorf("run %s is run again as %s", id, second.Body)
		}
	}
	if chats := s.AdminRequest("GET", "/hooks/chats", "").Field(t, "chats").([]any); len(chats) != 1 {
		t.Errorf("got the chats %v, want c alone", chats)
	}
	s.PatchSettings(`{"historySeconds":0}`)
	hookstest.Eventually(t, "the runs' input is forgotten", func() bool {
		return s.AdminRequest("POST", path(failed), "").Status == 409
	})
	close(release)
}

func TestRunsAreRunAgainWhileWebhooksAreOffAndUpToTheLimit(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	site := "hooks {\n\ttoken " + hookstest.Token + "\n\trunner http " + rn.URL + "\n\tworkers 1\n\tqueue_limit 2\n chat_limit 0\n}"
	s := hookstest.StartSite(t, site)
	s.PatchSettings(`{"enabled":true}`)
	id := s.Accept(`{"message":"fail"}`)
	s.Ended(id)
	held := s.Accept(`{"message":"hold"}`)
	hookstest.Eventually(t, "the worker is busy", func() bool { return s.Run(held).Status == "running" })
	s.PatchSettings(`{"enabled":false}`)
	s.Post("/api/hooks/agent", `{"message":"a"}`).WantError(t, 404)
	again(t, s, id, "")
	again(t, s, id, "")
	full := s.AdminRequest("POST", "/hooks/runs/"+id+"/again", "")
	full.WantAdminError(t, 503, "full")
	if full.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	close(release)
}

func TestAllRunsThatFailedAreRunAgain(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn, mended := brokenRunner(t)
			receiver := hookstest.StartReceiver(t)
			config := hookstest.WithCallbacks + "store " + store + "\nhook payroll {\n action agent\n history off\n callback_url " + receiver.URL + "\n }\nhook other {\n action agent\n chat_id o\n callback_url " + receiver.URL + "\n }"
			s := hookstest.StartSite(t, hookstest.Hooks(rn, config))
			const runs = 30
			for i := range runs {
				s.Accept(fmt.Sprintf(`{"message":"%d","chatId":"chat %d"}`, i, i%4))
			}
			for range 3 {
				s.Post("/api/hooks/other", `{"message":"x"}`)
			}
			s.Post("/api/hooks/payroll", `{"message":"x"}`)
			hookstest.Eventually(t, "all have failed", func() bool {
				ids, _ := s.Listed("?status=failed&limit=1000")
				return len(ids) == runs+4
			})
			all := func(query, body string) hookstest.Response {
				return s.AdminRequest("POST", "/hooks/bulk?do=again&"+query, body)
			}
			all("status=failed&dry=1", "").WantJSON(t, `{"would":33,"skipped":{"gone":1}}`)
			all("status=failed&hook=other&dry=1", "{}").WantJSON(t, `{"would":3}`)
			all("status=failed&hook=none&dry=1", "").WantJSON(t, `{"would":0}`)
			all("status=failed&chatId=chat%201&since=1h&dry=1", "").WantJSON(t, `{"would":8}`)
			all("status=failed&until=1h&dry=1", "").WantJSON(t, `{"would":0}`)
			all("status=timed_out,expired&dry=1", "").WantJSON(t, `{"would":0}`)
			s.Bulk("do=again&status=expired", "").WantMembers(t, `{"do":"again","filter":{"status":"expired"},"state":"done","matching":0,"done":0}`)
			for query, word := range map[string]string{
				"": "status", "status=queued": "status", "status=": "status", "hook=other": "status", "status=failed&hok=other": "hok", "status=failed&hook=": "hook",
				"status=failed&dry=0": "dry", "status=failed&dry=true": "dry", "status=failed&status=expired": "status", "status=failed&limit=3": "limit", "status=failed&host=a": "host", "status=failed&%zz": "query",
			} {
				all(query, "").WantAdminError(t, 400, word)
			}
			all("status=failed", `{"chatId":"x"}`).WantAdminError(t, 400, "chatId")
			all("status=failed", `{"deliver":1}`).WantAdminError(t, 400, "deliver")

			mended.Store(true)
			s.Bulk("do=again&status=failed&hook=other", `{"deliver":true}`).WantMembers(t, `{"state":"done","deliver":true,"matching":3,"done":3}`)
			// Two at once start each run once.
			var started atomic.Int64
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					n, _ := s.Bulk("do=again&status=failed", "").Field(t, "done").(float64)
					started.Add(int64(n))
				})
			}
			both.Wait()
			if started.Load() != runs {
				t.Errorf("%d runs were started again, want %d", started.Load(), runs)
			}
			s.Bulk("do=again&status=failed", "").WantMembers(t, `{"done":0,"matching":34,"skipped":{"gone":1,"again":33}}`)
			hookstest.Eventually(t, "all are completed", func() bool {
				ids, _ := s.Listed("?status=completed&limit=1000")
				return len(ids) == runs+3
			})
			for range runs + 4 {
				rn.Next() // that failed
			}
			last := map[string]int{}
			for range runs + 3 {
				turn := rn.Next()
				var n int
				if _, err := fmt.Sscan(turn.Text("message"), &n); err != nil {
					continue
				}
				if before, ok := last[turn.Text("chatId")]; ok && before > n {
					t.Errorf("%d came after %d in %s", n, before, turn.Text("chatId"))
				}
				last[turn.Text("chatId")] = n
			}
			ids, _ := s.Listed("?status=completed&hook=other")
			if run := s.Run(ids[0]); len(run.Deliveries) != 1 {
				t.Errorf("with deliver it has the deliveries %+v", run.Deliveries)
			}
			ids, _ = s.Listed("?status=completed&hook=agent")
			if run := s.Run(ids[0]); len(run.Deliveries) != 0 {
				t.Errorf("it has the deliveries %+v", run.Deliveries)
			}
		})
	}
}

// A bulk action waits for the queue, and can be stopped, seen and resumed.
func TestABulkActionIsStoppedAndResumed(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\nqueue_limit 10\n chat_limit 0"))
	for range 20 {
		id := s.Accept(`{"message":"fail","chatId":"c"}`)
		s.Ended(id)
	}
	held := s.Hold(context.Background(), `{"message":"hold","syncResponse":true}`)
	hookstest.Eventually(t, "the worker is busy", func() bool {
		ids, _ := s.Listed("?status=running")
		return len(ids) == 1
	})
	id, _ := s.AdminRequest("POST", "/hooks/bulk?do=again&status=failed", "").Field(t, "id").(string)
	path := "/hooks/bulk/" + id
	hookstest.Eventually(t, "the queue is full", func() bool { return strings.Contains(s.AdminRequest("GET", path, "").Body, "full") })
	s.AdminRequest("POST", path+"/resume", "").WantAdminError(t, 409, "going on")
	s.AdminRequest("POST", path+"/stop", "").WantMembers(t, `{"state":"stopped","matching":20,"stoppedBy":"the admin API, from 127.0.0.1"}`)
	s.AdminRequest("POST", path+"/stop", "").WantAdminError(t, 409, "ended")
	hookstest.Eventually(t, "it has stopped", func() bool { return strings.Contains(s.AdminRequest("GET", path, "").Body, "endedAt") })
	s.AdminRequest("GET", path, "").WantMembers(t, `{"state":"stopped","done":10}`)
	if list := s.AdminRequest("GET", "/hooks/bulk", ""); !strings.Contains(list.Body, id) {
		t.Errorf("the list is %s", list.Body)
	}
	for _, path := range []string{"/hooks/bulk/none", "/hooks/bulk/none/stop", "/hooks/bulk/none/resume"} {
		s.AdminRequest(map[bool]string{true: "GET", false: "POST"}[path == "/hooks/bulk/none"], path, "").WantAdminError(t, 404, `no bulk action "none"`)
	}
	close(release)
	hookstest.ReceiveWithin(t, "the caller is answered", held)
	s.AdminRequest("POST", path+"/resume", "").WantMembers(t, `{"state":"running"}`)
	hookstest.Eventually(t, "it is done", func() bool {
		return strings.Contains(s.AdminRequest("GET", path, "").Body, `"done","matching":20,"done":20`)
	})
	s.AdminRequest("POST", path+"/resume", "").WantAdminError(t, 409, "ended")
}
