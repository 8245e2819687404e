package caddyhooks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestRunsOfAHookAreFoldedIntoOneTurn(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn := hookstest.StartRunner(t, hookstest.ReplyText("all three"))
			s := hookstest.StartSite(t, hookstest.Hooks(rn, "store "+store+`
				hook alerts {
					action agent
					template "alert {n}"
					chat_id ops
					fold 1h 3
				}`))
			var ids []string
			for n := range 3 {
				id, _ := s.Post("/api/hooks/alerts", fmt.Sprintf(`{"n":%d}`, n+1)).Field(t, "runId").(string)
				ids = append(ids, id)
				if n < 2 && s.Run(id).Status != "queued" {
					t.Errorf("run %d is %s", n, s.Run(id).Status)
				}
			}
			turn := rn.Next()
			folded, _ := turn.Body["folded"].([]any)
			if turn.Text("runId") != ids[0] || len(folded) != 3 {
				t.Errorf("the turn is %v", turn.Body)
			}
			for n := range 3 {
				if !strings.Contains(turn.Text("message"), fmt.Sprintf("alert %d", n+1)) {
					t.Errorf("the message has no alert %d: %s", n+1, turn.Text("message"))
				}
			}
			lead := s.Ended(ids[0])
			if lead.Status != "completed" || lead.Folded != 3 || lead.FoldedInto != "" || lead.Reply != "all three" {
				t.Errorf("the first run is %s", lead.Body)
			}
			for _, id := range ids[1:] {
				run := s.Ended(id)
				if run.Status != "completed" || run.Folded != 0 || run.FoldedInto != ids[0] || run.Reply != "all three" {
					t.Errorf("another run is %s", run.Body)
				}
				shown := s.AdminRequest("GET", "/hooks/runs/"+id, "")
				if shown.Field(t, "foldedInto") != ids[0] {
					t.Errorf("an operator is shown %s", shown.Body)
				}
			}
			for accept, line := range map[string]string{"text/csv": "," + ids[0] + ",,", "application/x-ndjson": `"foldedInto":"` + ids[0] + `"`} {
				resp, err := hookstest.TryRequest("GET", s.Admin+"/hooks/export?of=runs", "", "Accept", accept)
				if err != nil || strings.Count(resp.Body, line) != 2 || accept == "text/csv" && !strings.Contains(resp.Body, ",repairAttempts,foldedInto,folded,client,") {
					t.Errorf("the export has no two runs with %s: %v\n%s", line, err, resp.Body)
				}
			}
			if list := s.AdminRequest("GET", "/hooks/runs", ""); strings.Count(list.Body, `"folded":3`) != 1 || strings.Count(list.Body, `"foldedInto":"`+ids[0]) != 2 {
				t.Errorf("the list is %s", list.Body)
			}
			out, _, err := command(t, "chat", "ops", "--address", s.Admin)
			if err != nil || strings.Count(out, "\n> ") != 3 || strings.Count(out, "all three") != 1 || !strings.HasSuffix(out, "> alert 3\n< all three\n") ||
				strings.Count(out, "one turn with "+ids[2]) != 2 {
				t.Errorf("the chat is shown as %v\n%s", err, out)
			}
			// A test of an operator waits for nobody.
			if resp := s.AdminRequest("POST", "/hooks/mappings/alerts/test", `{"n":4}`); resp.Status != 202 {
				t.Errorf("got %d %s", resp.Status, resp.Body)
			}
			if message := rn.Next().Text("message"); message != "alert 4" {
				t.Errorf("the message of a test is %q", message)
			}
		})
	}
}

func TestWakeFoldIsALiveSetting(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	config := hookstest.Hooks(rn, "")
	s := hookstest.StartSite(t, config)
	settings := func() hookstest.Response { return s.AdminRequest("GET", "/hooks/settings", "") }
	if strings.Contains(settings().Body, "wakeFold") {
		t.Errorf("it is on at the start: %s", settings().Body)
	}
	wake := func(text string) { s.Post("/api/hooks/wake", fmt.Sprintf(`{"text":%q}`, text)).WantNew(t, 200) }
	wake("alone")
	if text := rn.Next().WakeText(t); text != "alone" {
		t.Errorf("the message is %q", text)
	}
	s.PatchSettings(`{"wakeFold":{"seconds":3600,"max":2}}`)
	want := func() {
		t.Helper()
		if !strings.Contains(settings().Body, `"wakeFold":{"seconds":3600,"max":2}`) {
			t.Errorf("the settings are %s", settings().Body)
		}
		wake("first")
		wake("second")
		turn := rn.Next()
		if folded, _ := turn.Body["folded"].([]any); len(folded) != 2 || !strings.Contains(turn.Text("message"), "first") || !strings.Contains(turn.Text("message"), "second") {
			t.Errorf("the turn is %v", turn.Body)
		}
	}
	want()
	s.Restart(config)
	want()
	for body, words := range map[string][]string{
		`{"wakeFold":{"seconds":0}}`:                    {"wakeFold", "seconds", "from 1 to 3600"},
		`{"wakeFold":{"seconds":3601}}`:                 {"wakeFold", "seconds", "from 1 to 3600"},
		`{"wakeFold":{"seconds":5,"max":1001}}`:         {"wakeFold", "max", "from 1 to 1000"},
		`{"wakeFold":{"seconds":5,"max":-1}}`:           {"wakeFold", "max", "from 1 to 1000"},
		`{"wakeFold":{"seconds":5,"most":1}}`:           {"wakeFold", "an object as in"},
		`{"wakeFold":{"seconds":"5"}}`:                  {"wakeFold", "an object as in"},
		`{"wakeFold":5}`:                                {"wakeFold", "an object as in"},
		`{"wakeFold":{"seconds":1.5}}`:                  {"wakeFold", "an object as in"},
		`{"wakeFold":[{"seconds":5}]}`:                  {"wakeFold", "an object as in"},
		`{"wakeFold":{"seconds":1},"wakeFold":{"a":1}}`: {},
	} {
		s.AdminRequest("PATCH", "/hooks/settings", body).WantAdminError(t, 400, words...)
	}
	want()
	s.PatchSettings(`{"wakeFold":null}`)
	wake("alone again")
	if text := rn.Next().WakeText(t); text != "alone again" {
		t.Errorf("the message is %q", text)
	}
	s.Reload(hookstest.Hooks(rn, "wake_fold 1h 2"))
	s.AdminRequest("PATCH", "/hooks/settings", `{"wakeFold":{"seconds":5}}`).WantAdminError(t, 409, "wakeFold")
	s.PatchSettings(`{"wakeFold":{"seconds":3600,"max":2}}`) // as it is
	want()
	if pinned := fmt.Sprint(settings().Field(t, "pinned")); !strings.Contains(pinned, "wakeFold") {
		t.Errorf("pinned are %s", pinned)
	}
}

func TestLiveHooksCheckTheirLimits(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("x"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 4\n queue_time 2h"))
	for body, words := range map[string][]string{
		`{"foldSeconds":-1}`:                                     {"foldSeconds", "from 1 to 3600"},
		`{"foldSeconds":3601}`:                                   {"foldSeconds", "from 1 to 3600"},
		`{"foldSeconds":"30s"}`:                                  {"foldSeconds", "a whole number"},
		`{"foldMax":5}`:                                          {"foldMax", "needs foldSeconds"},
		`{"foldSeconds":5,"foldMax":1001}`:                       {"foldMax", "from 1 to 1000"},
		`{"foldSeconds":5,"foldMax":-1}`:                         {"foldMax", "from 1 to 1000"},
		`{"foldSeconds":600,"queueTimeSeconds":600}`:             {"foldSeconds", "shorter than queueTimeSeconds", "600"},
		`{"action":"agent","foldSeconds":5,"syncResponse":true}`: {"foldSeconds", "syncResponse"},
		`{"rate":"60"}`:                                          {"rate", "as in 60/1h"},
		`{"rate":"x/1h"}`:                                        {"rate", "as in 60/1h"},
		`{"rate":"0/1h"}`:                                        {"rate", "1 to 100000 runs"},
		`{"rate":"60/25h"}`:                                      {"rate", "from 1s to 24h"},
		`{"rate":60}`:                                            {"rate", "a string"},
		`{"workers":-1}`:                                         {"workers", "at least 1"},
		`{"workers":"2"}`:                                        {"workers", "a whole number"},
	} {
		s.AdminRequest("PUT", "/hooks/mappings/a", body).WantAdminError(t, 400, words...)
	}
	for body, words := range map[string][]string{
		`{"workers":4}`:                                {"workers is 4", "limits nothing", "4 workers"},
		`{"foldSeconds":5,"foldMax":1}`:                {"foldSeconds", "(foldMax) of 1"},
		`{"action":"agent","foldSeconds":5}`:           {"foldSeconds", "without chatId"},
		`{"workers":3,"foldSeconds":5,"rate":"60/1h"}`: {},
	} {
		resp := s.AdminRequest("PUT", "/hooks/mappings/a", body)
		warnings := fmt.Sprint(resp.Field(t, "warnings"))
		if resp.Status != 200 || (warnings == "<nil>") != (len(words) == 0) {
			t.Errorf("%s: got %d %s", body, resp.Status, resp.Body)
		}
		for _, word := range words {
			if !strings.Contains(warnings, word) {
				t.Errorf("%s: the warnings %s do not speak of %q", body, warnings, word)
			}
		}
	}
	// They are in force for the next request.
	s.PutMapping("a", `{"action":"agent","messageTemplate":"{n}","chatId":"c","foldSeconds":3600,"foldMax":2,"rate":"4/1h"}`)
	for range 4 {
		s.Post("/api/hooks/a", `{"n":1}`).WantNew(t, 202)
	}
	wantOverRate(t, s.Post("/api/hooks/a", `{"n":1}`), 3600)
	for range 2 {
		if folded, _ := rn.Next().Body["folded"].([]any); len(folded) != 2 {
			t.Errorf("%d runs are folded", len(folded))
		}
	}
}

func TestWorkersOfAHookLeaveTheOthersFree(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 4\n hook free {\n action agent\n template \"free {n}\"\n}"))
	s.PutMapping("storm", `{"action":"agent","messageTemplate":"hold {n}","workers":1}`)
	for n := range 10 {
		s.Post("/api/hooks/storm", fmt.Sprintf(`{"n":%d}`, n)).WantNew(t, 202)
	}
	if message := rn.Next().Text("message"); message != "hold 0" {
		t.Errorf("the first turn is %q", message)
	}
	for n := range 5 {
		s.Post("/api/hooks/free", fmt.Sprintf(`{"n":%d}`, n)).WantNew(t, 202)
		if message := rn.Next().Text("message"); message != fmt.Sprintf("free %d", n) {
			t.Errorf("the next turn is %q", message)
		}
	}
	s.PutMapping("storm", `{"action":"agent","messageTemplate":"hold {n}","workers":2}`)
	if message := rn.Next().Text("message"); message != "hold 1" {
		t.Errorf("with two workers the next turn is %q", message)
	}
	close(release)
	for range 8 {
		rn.Next()
	}
}

func TestLimitsThatCannotBeReachedAreToldOf(t *testing.T) {
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, nil), `workers 2
	chat_limit 10
	hook many {
		action agent
		chat_id one
		template "{name}"
		fold 5s 50
		workers 2
	}
	hook few {
		action agent
		chat_id one
		template "{name}"
		fold 5s 10
		workers 1
	}`))
	got := s.AdminRequest("GET", "/hooks/settings", "").Body
	for _, want := range []string{"a turn is to have up to 50 runs, but a chat holds 10 at most (chat_limit)", "workers is 2 and limits nothing"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("there is no warning %q in %s", want, got)
		}
	}
	if strings.Contains(got, "up to 10 runs") || strings.Contains(got, "workers is 1") {
		t.Errorf("a warning has no cause: %s", got)
	}
}
