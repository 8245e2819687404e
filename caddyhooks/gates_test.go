package caddyhooks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// runIDs are the runs of a request that became several.
func runIDs(t *testing.T, resp hookstest.Response) []any {
	t.Helper()
	runs, _ := resp.Field(t, "runs").([]any)
	return runs
}

// The same value starts no second run, whatever the request, also after a restart.
func TestOnce(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	config := hookstest.Hooks(rn, `
		hook plain {
			action agent
			template "{n}"
			once "{id}" 7d
		}
		hook sync {
			action agent
			sync
			template "{n}"
			once "{id}"
		}
		hook items {
			action agent
			each $.items[*]
			template "{n}"
			once "{id}"
			rate 5/1h
		}
		hook waking {
			template "{n}"
			once "{id}"
		}
		hook pair {
			action agent
			once "{repo}{id}"
		}`)
	s := hookstest.StartSite(t, config)
	post := func(hook, body string, headers ...string) hookstest.Response {
		t.Helper()
		return s.Post("/api/hooks/"+hook, body, headers...)
	}
	first := post("plain", `{"id":"a","n":1}`, hookstest.Key("one")...)
	first.WantNew(t, 202)
	repeated := func() {
		t.Helper()
		for _, key := range []string{"one", "two"} {
			body := `{"id":"a","n":2}`
			if key == "one" {
				body = `{"id":"a","n":1}`
			}
			post("plain", body, hookstest.Key(key)...).WantReplay(t, first)
		}
		post("plain", `{"id":"a","n":3}`).WantReplay(t, first)
	}
	repeated()
	s.Ended(acceptedRun(t, first))
	repeated()
	s.Restart(config)
	repeated()
	for range 2 { // events without the value are not compared, whatever is in its place
		for _, body := range []string{`{"n":1}`, `{"id":"","n":1}`, `{"id":null,"n":1}`, `{"id":{"a":"a"},"n":1}`, `{"id":["a"],"n":1}`} {
			post("plain", body).WantNew(t, 202)
		}
	}
	if resp := post("sync", `{"id":"a","n":1}`); resp.Status != 200 || resp.Body != "ok" {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	if resp := post("sync", `{"id":"a","n":2}`); resp.Status != 200 || resp.Body != "ok" || resp.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a value of before is answered %d %s", resp.Status, resp.Body)
	}
	wantRuns(t, s, "sync", 1)
	if a, b := post("waking", `{"id":7,"n":1}`), post("waking", `{"id":"7","n":2}`); b.Status != 200 || a.Body != b.Body {
		t.Errorf("wake answers %d %s", b.Status, b.Body)
	}
	wantRuns(t, s, "waking", 1)

	// Values are compared one by one: one text could be made of several in many ways.
	post("pair", `{"repo":"web1","id":2}`).WantNew(t, 202)
	post("pair", `{"repo":"web","id":12}`).WantNew(t, 202)
	post("pair", `{"repo":"a-b","id":"c"}`).WantNew(t, 202)
	post("pair", `{"repo":"a","id":"b-c"}`).WantNew(t, 202)
	wantRuns(t, s, "pair", 4)

	// Items that were there are left out, and do not count for the rate.
	if runs := runIDs(t, post("items", `{"items":[{"id":"a"},{"id":"b"},{"id":"a"}]}`)); len(runs) != 2 {
		t.Fatalf("three items, two of them alike, made %v", runs)
	}
	if runs := runIDs(t, post("items", `{"items":[{"id":"a"},{"id":"c"},{"id":"b"}]}`)); len(runs) != 1 {
		t.Errorf("three items, one of them new, made %v", runs)
	}
	again := post("items", `{"items":[{"id":"b"},{"id":"c"}]}`)
	if runs := runIDs(t, again); again.Status != 202 || len(runs) != 1 || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("items that were there are answered %d %s", again.Status, again.Body)
	}
	post("items", `{"items":[{"id":"d"},{"id":"x"}]}`).WantNew(t, 202)
	wantOverRate(t, post("items", `{"items":[{"id":"e"}]}`), 3600)
	if again := post("items", `{"items":[{"id":"d"}]}`); again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a repeated request over the rate is answered %d %s", again.Status, again.Body)
	}
	wantRuns(t, s, "items", 5)

	// Under another template, a value is another one.
	s.Restart(strings.Replace(config, `once "{id}" 7d`, `once "{n}" 7d`, 1))
	post("plain", `{"id":"new","n":"a"}`).WantNew(t, 202)
}

// An event is ignored while a run of its hook and chat has not ended, and no longer.
func TestOverlapSkip(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	config := hookstest.Hooks(rn, `
		drain_timeout 100ms
		hook skipping {
			action agent
			template "hold {n}"
			chat_id "{chat}"
			overlap skip
		}
		hook other {
			action agent
			template "hold {n}"
			chat_id "{chat}"
		}`)
	s := hookstest.StartSite(t, config)
	post := func(hook, chat string) hookstest.Response {
		return s.Post("/api/hooks/"+hook, fmt.Sprintf(`{"n":1,"chat":%q}`, chat))
	}
	ignored := func() {
		t.Helper()
		if resp := post("skipping", "a"); resp.Status != 200 || resp.Field(t, "status") != "ignored" {
			t.Errorf("beside another run an event is answered %d %s", resp.Status, resp.Body)
		}
	}
	acceptedRun(t, post("other", "a")) // which keeps the chat, and does not count
	first := acceptedRun(t, post("skipping", "a"))
	ignored()
	s.Restart(config)
	ignored()
	post("skipping", "b").WantNew(t, 202)
	post("other", "a").WantNew(t, 202)
	close(release)
	s.Ended(first)
	hookstest.Eventually(t, "another event is accepted", func() bool { return post("skipping", "a").Status == 202 })
}

// A new event takes the place of the runs of its hook and chat, whether they are queued or carried out.
func TestOverlapReplace(t *testing.T) {
	rn, gone, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `
		hook replacing {
			action agent
			template "hold {n}"
			chat_id "{chat}"
			once "{n}"
			overlap replace
		}
		hook other {
			action agent
			template "hold {n}"
			chat_id "{chat}"
		}`))
	post := func(hook string, n int, chat string) hookstest.Response {
		return s.Post("/api/hooks/"+hook, fmt.Sprintf(`{"n":%d,"chat":%q}`, n, chat))
	}
	first := post("replacing", 1, "a")
	rn.Next()
	elsewhere := acceptedRun(t, post("replacing", 100, "b"))
	queued := acceptedRun(t, post("other", 1, "a"))
	second := acceptedRun(t, post("replacing", 2, "a"))
	third := acceptedRun(t, post("replacing", 3, "a"))
	if id := <-gone; id != acceptedRun(t, first) {
		t.Errorf("the turn of %s was cancelled", id)
	}
	for _, id := range []string{acceptedRun(t, first), second} {
		ended := s.Ended(id)
		if ended.Status != "cancelled" || !strings.Contains(ended.Body, "A newer run has taken the place of this one.") {
			t.Errorf("a run that was replaced is %s", ended.Body)
		}
	}
	s.AdminRequest("GET", "/hooks/runs/"+second, "").WantMembers(t, `{"status":"cancelled","cancelledBy":"the newer run `+third+`"}`)
	// An event that was replaced does not come back.
	if again := post("replacing", 1, "a"); again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("an event that was replaced is answered %d %s", again.Status, again.Body)
	}
	s.PutMapping("asking", `{"action":"agent","messageTemplate":"hold asking {n}","chatId":"c","overlap":"replace","syncResponse":true}`)
	replacedCaller := make(chan hookstest.Response, 1)
	go func() {
		resp, _ := hookstest.TryRequest("POST", s.URL+"/api/hooks/asking", `{"n":1}`, "Authorization", "Bearer "+hookstest.Token)
		replacedCaller <- resp
	}()
	for rn.Next().Text("message") != "hold asking 1" { // others are under way
	}
	go func() {
		_, _ = hookstest.TryRequest("POST", s.URL+"/api/hooks/asking", `{"n":2}`, "Authorization", "Bearer "+hookstest.Token)
	}()
	(<-replacedCaller).WantError(t, 409, "A newer run has taken the place of this one.")
	close(release)
	for _, id := range []string{elsewhere, queued, third} {
		if ended := s.Ended(id); ended.Status != "completed" {
			t.Errorf("a run that nothing replaced is %s", ended.Body)
		}
	}
	wantRuns(t, s, "replacing", 4)
}

// Each value has a rate of its own, which survives a restart.
func TestRateByValue(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	config := hookstest.Hooks(rn, `
		hook people {
			action agent
			each $.items[*]
			template "{n}"
			rate 2/1h by "{login}"
			rate 100/1h
		}`)
	s := hookstest.StartSite(t, config)
	post := func(logins ...string) hookstest.Response {
		items := ""
		for _, login := range logins {
			items += fmt.Sprintf(`,{"n":1,"login":%s}`, login)
		}
		return s.Post("/api/hooks/people", `{"items":[`+items[1:]+`]}`)
	}
	post(`"ann"`, `"bob"`).WantNew(t, 202)
	post(`"ann"`, `"joe"`).WantNew(t, 202)
	refused := func() {
		t.Helper()
		resp := post(`"bob"`, `"ann"`)
		resp.WantError(t, 429, "This hook accepts 2 runs in 1h from each sender", "Try again in")
	}
	refused()
	s.Restart(config)
	refused()
	post(`"bob"`, `"joe"`).WantNew(t, 202) // what was refused has not counted
	post(`"bob"`).WantError(t, 429)
	post(`null`, `{}`).WantNew(t, 202) // those without the value count together
	post(`[1]`).WantError(t, 429)
	post(`7`, `7`, `7`).WantError(t, 413, "more runs for one sender than the 2 in 1h")
	wantRuns(t, s, "people", 8)

	for mapping, words := range map[string][]string{
		`{"once":"x"}`:                              {"once", "placeholder"},
		`{"once":"{@time}"}`:                        {"once", "tells no event from another"},
		`{"onceSeconds":5}`:                         {"onceSeconds", "needs once"},
		`{"once":"{a}","onceSeconds":-1}`:           {"onceSeconds", "31d"},
		`{"overlap":"stop"}`:                        {"overlap", "queue"},
		`{"overlap":"skip","foldSeconds":5}`:        {"overlap", "fold"},
		`{"foldLatest":true}`:                       {"foldLatest", "needs foldSeconds"},
		`{"rateBy":"{a}"}`:                          {"rateBy", "rateByLimit"},
		`{"rateByLimit":"1/1h"}`:                    {"rateBy", "rateByLimit"},
		`{"rateByLimit":"x","rateBy":"{a}"}`:        {"rateByLimit", "60/1h"},
		`{"rateByLimit":"1/1h","rateBy":"a"}`:       {"rateBy", "placeholder"},
		`{"rateByLimit":"1/1h","rateBy":"{ $.[ }"}`: {"rateBy", "refused"},
		`{"once":"{a}","onceSeconds":"a day"}`:      {"onceSeconds"},
	} {
		s.AdminRequest("PUT", "/hooks/mappings/bad", mapping).WantAdminError(t, 400, words...)
	}
}

// A turn of a fold is told the newest message alone, and all runs get its answer.
func TestFoldLatest(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `
		hook states {
			action agent
			template "state {n}"
			chat_id "a"
			fold 1h 3 latest
		}`))
	var runs []string
	for n := range 3 {
		runs = append(runs, acceptedRun(t, s.Post("/api/hooks/states", fmt.Sprintf(`{"n":%d}`, n))))
	}
	if got := rn.Next().Text("message"); got != "state 2" {
		t.Errorf("the turn was told %q", got)
	}
	for _, id := range runs {
		if ended := s.Ended(id); ended.Status != "completed" {
			t.Errorf("a run of the turn is %s", ended.Body)
		}
	}
}
