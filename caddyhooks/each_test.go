package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// acceptedRuns reads the answer to a request that became several runs.
func acceptedRuns(t *testing.T, resp hookstest.Response) (ids, chats []string) {
	t.Helper()
	var answer struct {
		Status string
		Runs   []struct{ RunID, ChatID string }
	}
	if err := json.Unmarshal([]byte(resp.Body), &answer); err != nil || resp.Status != 202 || answer.Status != "accepted" {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	for _, run := range answer.Runs {
		ids, chats = append(ids, run.RunID), append(chats, run.ChatID)
	}
	return ids, chats
}

// alerts is a body with so many alerts that fire, and one that does not.
func alerts(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"status":"firing","name":"alert %d"}`, i))
	}
	all = append(all, `{"status":"resolved","name":"old"}`)
	return `{"receiver":"team","alerts":[` + strings.Join(all, ",") + `]}`
}

const eachAlert = "each `$.alerts[?@.status == 'firing']`\n"

func TestEachMatchBecomesARun(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `workers 1
	hook agent-alerts {
		action agent
		chat_id "alerts"
		template "{name} for {@root.receiver}: { $.status }, run {@run}"
		`+eachAlert+`
	}
	hook own-chats {
		action agent
		`+eachAlert+`
	}
	hook wake-alerts {
		chat_id "alert:{name}"
		template "{name}"
		`+eachAlert+`
	}`))

	t.Run("of an agent hook", func(t *testing.T) {
		resp := s.Post("/api/hooks/agent-alerts", alerts(3))
		ids, chats := acceptedRuns(t, resp)
		if len(ids) != 3 || !slices.Equal(chats, []string{"alerts", "alerts", "alerts"}) || resp.Header["Location"] != nil {
			t.Fatalf("got %s", resp.Body)
		}
		for i, id := range ids {
			turn := rn.Next()
			if got, want := turn.Text("message"), fmt.Sprintf("alert %d for team: firing, run %s", i, id); got != want || turn.Text("runId") != id {
				t.Errorf("the turn of run %s has the message %q, want %q", turn.Text("runId"), got, want)
			}
		}
	})
	t.Run("of one match", func(t *testing.T) {
		ids, _ := acceptedRuns(t, s.Post("/api/hooks/agent-alerts", alerts(1)))
		if turn := rn.Next(); len(ids) != 1 || turn.Text("runId") != ids[0] {
			t.Errorf("got the runs %v", ids)
		}
	})
	t.Run("of as many as there may be", func(t *testing.T) {
		ids, chats := acceptedRuns(t, s.Post("/api/hooks/own-chats", alerts(100)))
		slices.Sort(chats)
		if len(ids) != 100 || len(slices.Compact(chats)) != 100 {
			t.Fatalf("got the runs %v in %v", ids, chats)
		}
		for range 100 {
			if got := rn.Next().Text("message"); !strings.HasPrefix(got, `{"name":"alert `) || !strings.HasSuffix(got, `","status":"firing"}`) {
				t.Errorf("without a template the message is %q", got)
			}
		}
	})
	t.Run("of too many", func(t *testing.T) {
		s.Post("/api/hooks/own-chats", alerts(101)).WantError(t, 413, "100")
		s.Post("/api/hooks/wake-alerts", `{"alerts":[{"status":"firing","name":"a"},{"status":"firing","name":" "}]}`).WantError(t, 400, "item 2 of this body is blank")
	})
	t.Run("of none", func(t *testing.T) {
		wantIgnored(t, s.Post("/api/hooks/agent-alerts", alerts(0)))
		wantIgnored(t, s.Post("/api/hooks/agent-alerts", `7`))
	})
	t.Run("of a wake hook", func(t *testing.T) {
		resp := s.Post("/api/hooks/wake-alerts", alerts(2))
		if resp.Status != 200 || resp.Body != `{"status":"accepted","chatIds":["alert:alert 0","alert:alert 1"]}` {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
		texts := []string{rn.Next().WakeText(t), rn.Next().WakeText(t)}
		slices.Sort(texts)
		if !slices.Equal(texts, []string{"alert 0", "alert 1"}) {
			t.Errorf("the turns have %q", texts)
		}
	})
	rn.WantNoTurn(s)
}

func TestRequestOfSeveralRunsIsRepeatedAsAWhole(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `workers 1
	hook a {
		action agent
		chat_id "c {name}"
		template "{name}"
		`+eachAlert+`
	}
	hook w {
		chat_id "c {name}"
		`+eachAlert+`
	}`))
	for _, hook := range []string{"a", "w"} {
		for _, n := range []int{1, 3} {
			key := hookstest.Key(fmt.Sprint(hook, n))
			first := s.Post("/api/hooks/"+hook, alerts(n), key...)
			for range n {
				rn.Next()
			}
			s.Post("/api/hooks/"+hook, alerts(n), key...).WantReplay(t, first)
			s.Post("/api/hooks/"+hook, alerts(n+1), key...).WantError(t, 409)
		}
	}
	rn.WantNoTurn(s)
}

func TestAllRunsOfARequestAreAcceptedOrNone(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	defer close(release)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `workers 1
	queue_limit 5
	chat_limit 3
	hook a {
		action agent
		chat_id "{ $.name }"
		template "{name}"
		`+eachAlert+`
	}
	hook one {
		action agent
		chat_id one
		template "{name}"
		`+eachAlert+`
	}`))
	s.Accept(`{"message":"hold"}`)
	rn.Next()
	s.Post("/api/hooks/a", alerts(6)).WantError(t, 413, "queue can hold") // it would not fit later either
	s.Post("/api/hooks/one", alerts(4)).WantError(t, 413, "queue can hold")
	if ids, _ := s.Listed("?status=queued"); len(ids) != 0 {
		t.Errorf("the runs %v are queued", ids)
	}
	key := hookstest.Key("k")
	first := s.Post("/api/hooks/one", alerts(3), key...)
	if ids, _ := acceptedRuns(t, first); len(ids) != 3 {
		t.Errorf("got %s", first.Body)
	}
	s.Post("/api/hooks/one", alerts(3), key...).WantReplay(t, first)
	s.Post("/api/hooks/one", alerts(2)).WantError(t, 503, "chat")
	s.Post("/api/hooks/a", alerts(3)).WantError(t, 503, "waiting")
}

func TestEachIsRefusedWithSync(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	s.AdminRequest("PUT", "/hooks/mappings/a", `{"action":"agent","each":"$.a","syncResponse":true}`).WantAdminError(t, 400, "each", "syncResponse")
}
