package caddyhooks_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// dollarFor is the body of a webhook whose turn costs a dollar, for a hook of budgetHooks.
func dollarFor(team string) string {
	return fmt.Sprintf(`{"usage":"[{\"model\":\"m\",\"inputTokens\":900,\"outputTokens\":100,\"costUsd\":1}]","team":%s}`, team)
}

// budgetHook is a hook whose messages tell what its turns cost.
func budgetHook(name, budget string) string {
	return fmt.Sprintf("hook %s {\naction agent\ntemplate \"{usage}\"\n%s\n}\n", name, budget)
}

// refuse waits until a hook refuses a request since its budget is used up: what a run has spent may count for requests a moment later.
func refuse(t *testing.T, s *hookstest.Server, hook, body string) (resp hookstest.Response) {
	t.Helper()
	hookstest.Eventually(t, hook+" refuses", func() bool {
		resp = s.Post("/api/hooks/"+hook, body)
		return resp.Status == 429
	})
	resp.WantError(t, 429, "The budget is used up. Try again in ")
	return resp
}

// What becomes of a request when a budget is used up is what the budget says. Until then nothing is different.
func TestBudgetsThatAreUsedUp(t *testing.T) {
	rn := spendingRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn,
		budgetHook("holding", "budget $2/24h")+budgetHook("refusing", "budget 2k tokens/24h else refuse")+
			budgetHook("ignoring", "budget $2/24h else ignore")+budgetHook("sync", "budget $2/24h\nsync")))
	first := make(map[string]hookstest.Response)
	for _, hook := range []string{"holding", "refusing", "ignoring", "sync"} {
		for i := range 2 {
			resp := s.Post("/api/hooks/"+hook, dollarFor(`"a"`), hookstest.Key(fmt.Sprint(hook, i))...)
			if first[hook] = resp; hook == "sync" {
				if resp.Status != 200 || resp.Body != "done" {
					t.Fatalf("%s answers %d %s", hook, resp.Status, resp.Body)
				}
				continue
			}
			if ended := s.Ended(acceptedRun(t, resp)); ended.Status != "completed" {
				t.Fatalf("%s: a run is %s", hook, ended.Body)
			}
		}
	}
	held := acceptedRun(t, s.Post("/api/hooks/holding", dollarFor(`"a"`)))
	isHeld := func() bool {
		run := s.Run(held)
		return run.Status == "queued" && run.WaitingFor == "The budget is used up. The run starts when something of it is left again."
	}
	hookstest.Eventually(t, "the run is held back", isHeld)
	for _, hook := range []string{"refusing", "sync"} {
		resp := refuse(t, s, hook, dollarFor(`"a"`))
		if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || after < 23*3600 || after > 25*3600 {
			t.Errorf("%s is to be tried again after %s seconds", hook, resp.Header.Get("Retry-After"))
		}
		if again := s.Post("/api/hooks/"+hook, dollarFor(`"a"`), hookstest.Key(hook+"1")...); again.Status != first[hook].Status || again.Body != first[hook].Body {
			t.Errorf("a repeated request is answered %d %s, want %d %s", again.Status, again.Body, first[hook].Status, first[hook].Body)
		}
	}
	hookstest.Eventually(t, "a request is ignored", func() bool {
		resp := s.Post("/api/hooks/ignoring", dollarFor(`"a"`))
		return resp.Status == 200 && resp.Field(t, "status") == "ignored"
	})

	// A hook that is saved with another budget is in force for the next request.
	s.PutMapping("live", `{"action":"agent","messageTemplate":"{usage}","budgets":[{"limit":"$1/24h","else":"refuse"}]}`)
	s.Ended(acceptedRun(t, s.Post("/api/hooks/live", dollarFor(`"a"`))))
	refuse(t, s, "live", dollarFor(`"a"`))
	s.PutMapping("live", `{"action":"agent","messageTemplate":"{usage}","budgets":[{"limit":"$2/24h","else":"refuse"}]}`)
	s.Ended(acceptedRun(t, s.Post("/api/hooks/live", dollarFor(`"a"`))))
	refuse(t, s, "live", dollarFor(`"a"`))

	// What was spent outlives a restart, and a larger budget lets what was held back start.
	more := func(amount string) string {
		return hookstest.Hooks(rn, budgetHook("holding", "budget "+amount+"/24h")+budgetHook("refusing", "budget 2k tokens/24h else refuse"))
	}
	s.Restart(more("$2"))
	refuse(t, s, "refusing", dollarFor(`"a"`))
	hookstest.Eventually(t, "the run is held back after a restart", isHeld)
	s.Reload(more("$3"))
	if ended := s.Ended(held); ended.Status != "completed" {
		t.Errorf("with a larger budget the run is %s", ended.Body)
	}
}

// Each value has a budget of its own, and items of a body that are ignored leave others alone.
func TestBudgetsByValue(t *testing.T) {
	rn := spendingRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "budget $100/24h else refuse\n"+
		budgetHook("teams", "each $.alerts[*]\nbudget $1/24h by \"{team}\" else ignore")+budgetHook("plain", "budget $1/24h by {team} else refuse")))
	post := func(teams ...string) hookstest.Response {
		body := ""
		for _, team := range teams {
			body += "," + dollarFor(team)
		}
		return s.Post("/api/hooks/teams", `{"alerts":[`+body[1:]+`]}`)
	}
	post(`"a"`)
	hookstest.Eventually(t, "the budget of a is used up", func() bool { return post(`"a"`).Field(t, "status") == "ignored" })
	resp := post(`"a"`, `"b"`, `"a"`, `"c"`)
	if runs, ok := resp.Field(t, "runs").([]any); !ok || len(runs) != 2 {
		t.Fatalf("four items, two of which are ignored, are answered %d %s", resp.Status, resp.Body)
	}
	hookstest.Eventually(t, "the budgets of b and c are used up", func() bool {
		return post(`"b"`, `"c"`).Field(t, "status") == "ignored"
	})
	s.Ended(acceptedRun(t, s.Post("/api/hooks/plain", dollarFor(`null`))))
	for _, nobody := range []string{`[1]`, `{}`} { // which share a budget with null
		refuse(t, s, "plain", dollarFor(nobody))
	}
	s.Ended(acceptedRun(t, s.Post("/api/hooks/plain", dollarFor(`7`))))
	refuse(t, s, "plain", dollarFor(`"7"`))

	for mapping, words := range map[string][]string{
		`{"budgets":[{"limit":"$0/24h"}]}`:                    {"budgets", "must not be 0"},
		`{"budgets":[{"limit":"$1/24h","by":"x"}]}`:           {"budgets", "placeholder"},
		`{"budgets":[{"limit":"$1/24h","else":"stop"}]}`:      {"budgets", "hold, refuse or ignore"},
		`{"budgets":[{"limit":"$1/24h","els":"hold"}]}`:       {"budgets", "limit, by and else"},
		`{"budgets":[{"limit":"$1/24h"},{"limit":"$2/24h"}]}`: {"budgets", "twice"},
		`{"budgets":"$1/24h"}`:                                {"budgets", "must be"},
		`{"budgets":[7]}`:                                     {"mapping"}, `{"ask":[7]}`: {"mapping"}, `{"ask":[{"x":7}]}`: {"ask"},
		`{"budgets":[{"limit":7}]}`:                {"limit"},
		`{"budgets":[{},{},{},{},{},{},{},{},{}]}`: {"budgets", "more than 8"},
	} {
		s.AdminRequest("PUT", "/hooks/mappings/bad", mapping).WantAdminError(t, 400, words...)
	}
}
