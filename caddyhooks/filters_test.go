package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// wantIgnored checks that a request was left out.
func wantIgnored(t *testing.T, resp hookstest.Response) {
	t.Helper()
	if resp.Status != 200 || resp.Body != `{"status":"ignored"}` || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s %s, want it to be ignored", resp.Status, resp.Header.Get("Content-Type"), resp.Body)
	}
}

func TestConditionsDecideWhichRequestsBecomeRuns(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `workers 1
	hook issues {
		action agent
		chat_id issues
		template "{action} {n}"
		only header X-Event issues issue_comment
		only `+"`$.action == 'opened' || $.action == 'edited'`"+`
		skip `+"`$.issue.labels[?@.name == 'wontfix']`"+`
		skip header User-Agent ~ ^Bot/
		skip query dry
	}`))
	for i, c := range []struct {
		event, agent, path, body string
		becomesRun               bool
	}{
		{"issues", "x", "", `{"action":"opened","n":0}`, true},
		{"issue_comment", "x", "?dryer=1", `{"action":"edited","n":1,"issue":{"labels":[{"name":"bug"}]}}`, true},
		{"issues", "x", "", `{"action":"closed","n":2}`, false},
		{"push", "x", "", `{"action":"opened","n":3}`, false},
		{"Issues", "x", "", `{"action":"opened","n":4}`, false},
		{"issues", "Bot/1.0", "", `{"action":"opened","n":5}`, false},
		{"issues", "x", "?dry=1", `{"action":"opened","n":6}`, false},
		{"issues", "x", "", `{"action":"opened","n":7,"issue":{"labels":[{"name":"bug"},{"name":"wontfix"}]}}`, false},
		{"issues", "x", "", `[]`, false},
		{"issues", "x", "", `{"action":"opened","n":9}`, true},
	} {
		resp := s.Post("/api/hooks/issues"+c.path, c.body, "X-Event", c.event, "User-Agent", c.agent)
		if !c.becomesRun {
			wantIgnored(t, resp)
			continue
		}
		if resp.Status != 202 {
			t.Errorf("%d: got %d %s", i, resp.Status, resp.Body)
			continue
		}
		if got, want := rn.Next().Text("message"), fmt.Sprint(" ", i); !strings.HasSuffix(got, want) {
			t.Errorf("the run after %d is %q", i, got)
		}
	}
	rn.WantNoTurn(s)
}

func TestMalformedBodyIsRefusedEvenIfAHeaderWouldLeaveItOut(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "hook a {\n only header X-Event issues\n }"))
	s.Post("/api/hooks/a", `{"a":`).WantError(t, 400, "JSON")
	s.Request("POST", "/api/hooks/a", `{}`).WantError(t, 401)
	wantIgnored(t, s.Post("/api/hooks/a", `{"a":1}`))
}

// An ignored request leaves nothing behind but a count.
func TestIgnoredRequestTakesNoKeyAndNoPlace(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	defer close(release)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `workers 1
	queue_limit 1
	hook a {
		action agent
		template {n}
		only $.ok
	}`))
	key := hookstest.Key("one")
	wantIgnored(t, s.Post("/api/hooks/a", `{"n":"hold"}`, key...))
	wantIgnored(t, s.Post("/api/hooks/a", `{"n":"other"}`, key...))
	first := s.Post("/api/hooks/a", `{"n":"hold","ok":1}`, key...)
	first.WantNew(t, 202)
	rn.Next()
	s.Post("/api/hooks/a", `{"n":"queued","ok":1}`).WantNew(t, 202)
	s.Post("/api/hooks/a", `{"n":"too many","ok":1}`).WantError(t, 503)
	wantIgnored(t, s.Post("/api/hooks/a", `{"n":"too many"}`))
	s.Post("/api/hooks/a", `{"n":"hold","ok":1}`, key...).WantReplay(t, first)
}

func TestIgnoredRequestsAreListedWithTheirConditionBesideTheRefused(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `hook a {
		only `+"`$.action == 'opened'`"+`
		skip header X-Test
		respond 204
	}
	hook b {
		each $.items[*]
	}`))
	for range 25 {
		if resp := s.Post("/api/hooks/a", `{"action":"closed"}`); resp.Status != 204 || resp.Body != "" {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
	}
	s.Post("/api/hooks/a", `{"action":"opened"}`, "X-Test", "1")
	s.Post("/api/hooks/a", `{`).WantError(t, 400)
	wantIgnored(t, s.Post("/api/hooks/b", `{"items":[]}`))

	var page struct {
		Refused []struct {
			Hook, Reason, Condition, Message, Client string
			Status                                   int
			Ignored                                  bool
			Count, Size                              int64
		}
	}
	if err := json.Unmarshal([]byte(s.AdminRequest("GET", "/hooks/refused", "").Body), &page); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range page.Refused {
		if r.Ignored != (r.Condition != "") || r.Client != "127.0.0.1" || r.Size == 0 {
			t.Errorf("listed is %+v", r)
		}
		if r.Ignored {
			got = append(got, fmt.Sprintf("%s %d %d %s", r.Hook, r.Status, r.Count, r.Condition))
		} else {
			got = append(got, fmt.Sprintf("%s %d refused", r.Hook, r.Status))
		}
	}
	want := []string{"b 200 1 each $.items[*]", "a 400 refused", "a 204 1 skip header X-Test", "a 204 25 only $.action == 'opened'"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("listed are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	overview := overviewOf(t, s, "")
	if ignored := overview.sum(t, "requests.ignored"); ignored != 27 {
		t.Errorf("%v ignored requests are counted", ignored)
	}
	for _, need := range overview.Attention {
		if need.Kind == "refused_burst" {
			t.Errorf("somebody should look at %+v", need)
		}
	}
}

// A mapping is live on the next request, on whatever node it was saved.
func TestRequestIsIgnoredByTheConditionsOfNow(t *testing.T) {
	onNodeStores(t, func(t *testing.T, store nodeStore) {
		rn := hookstest.StartRunner(t, nil)
		s := nodeBeside(t, store, "", rn)
		put := func(condition string) {
			t.Helper()
			resp := s.AdminRequest("PUT", "/hooks/instances/a/mappings/x", `{"action":"agent","messageTemplate":"{n}","only":["`+condition+`"]}`)
			if resp.Status != 200 && resp.Status != 201 {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
		}
		for i := range 5 {
			put("$.never")
			wantIgnored(t, s.Post("/b/x", fmt.Sprintf(`{"n":"%d"}`, i)))
			put("$.n")
			if resp := s.Post("/b/x", fmt.Sprintf(`{"n":"%d"}`, i)); resp.Status != 202 {
				t.Fatalf("got %d %s", resp.Status, resp.Body)
			}
		}
	})
}

func TestConditionThatCannotBeDecidedDoesNotHold(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `max_payload 1MB
	hook only {
		only `+"`$..a[?@..b]`"+`
	}
	hook skip {
		action agent
		template hello
		skip `+"`$..a[?@..b]`"+`
	}`))
	deep := strings.Repeat(`{"a":[1,`, 40) + "1" + strings.Repeat(`]}`, 40)
	body := "[" + strings.Repeat(deep+",", 2000) + "1]"
	wantIgnored(t, s.Post("/api/hooks/only", body))
	if resp := s.Post("/api/hooks/skip", body); resp.Status != 202 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
}
