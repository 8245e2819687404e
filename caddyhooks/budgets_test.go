package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
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

// Operators see how far budgets are used up: in sums of costs, among what needs them, and in a terminal.
func TestBudgetsAreShownToOperators(t *testing.T) {
	rn := spendingRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "budget $100/24h\n"+budgetHook("refusing", "budget 2k tokens/24h else refuse")+
		budgetHook("near", "budget $1.25/24h")+budgetHook("teams", "budget $1/24h by \"{team}\"")+
		budgetHook("quiet", "budget $1/24h by {team} else ignore"))+
		"\nhooks_dashboard {\nuser operator\nhide_texts\n}")
	hooks := func(args ...string) (out, errs string) {
		t.Helper()
		out, errs, err := command(t, append(args, "--address", s.Admin)...)
		wantExit(t, 0, errs, err)
		return out, errs
	}
	const (
		quiet  = `{"budget":"$1/24h","hook":"quiet","by":"{team}","else":"ignore","limit":{"costUsd":1},"used":{"costUsd":0},"percent":0,"runs":0}`
		unused = `{"budget":"$100/24h","else":"hold","limit":{"costUsd":100},"used":{"costUsd":0},"percent":0,"runs":0}`
	)
	s.AdminRequest("GET", "/hooks/cost?hook=quiet", "").WantMembers(t, `{"rows":[],"budgets":[`+unused+`,`+quiet+`]}`)
	out, errs := hooks("cost", "--hook", "quiet")
	if !strings.Contains(errs, "No agent has told what a run used since") {
		t.Errorf("beside the budgets is %s", errs)
	}
	wantGolden(t, "cost-budgets-unused", "$ caddy hooks cost --hook quiet\n"+out)
	if out, _ := hooks("status"); strings.Contains(out, "budget") {
		t.Errorf("a budget that is not used needs somebody: %s", out)
	}

	for _, to := range [][2]string{{"refusing", `"a"`}, {"refusing", `"a"`}, {"near", `"a"`}, {"teams", `"a\u202eb"`}, {"teams", `null`}} {
		s.Ended(acceptedRun(t, s.Post("/api/hooks/"+to[0], dollarFor(to[1]))))
	}
	type view struct {
		Budgets []struct {
			Budget, Hook, By, Else string
			Value                  *string
			Limit, Used            map[string]float64
			Percent, Runs          int
			LeftAt                 time.Time
		}
	}
	var seen view
	hookstest.Eventually(t, "all that was spent is known", func() bool {
		seen = view{}
		if err := json.Unmarshal([]byte(s.AdminRequest("GET", "/hooks/cost", "").Body), &seen); err != nil {
			t.Fatal(err)
		}
		return len(seen.Budgets) == 6
	})
	now := time.Now()
	for i, want := range []string{
		`"$100/24h" "" "" "hold" map[costUsd:100] map[costUsd:5] 5 % 5 runs false <none>`,
		`"$1.25/24h" "near" "" "hold" map[costUsd:1.25] map[costUsd:1] 80 % 1 runs false <none>`,
		`"$1/24h" "quiet" "{team}" "ignore" map[costUsd:1] map[costUsd:0] 0 % 0 runs false <none>`,
		`"2k tokens/24h" "refusing" "" "refuse" map[tokens:2000] map[tokens:2000] 100 % 2 runs true <none>`,
		`"$1/24h" "teams" "{team}" "hold" map[costUsd:1] map[costUsd:1] 100 % 1 runs true `,
		`"$1/24h" "teams" "{team}" "hold" map[costUsd:1] map[costUsd:1] 100 % 1 runs true a\u202eb`,
	} {
		b, value := seen.Budgets[i], "<none>"
		if b.Value != nil {
			value = *b.Value
		}
		left := b.LeftAt.After(now.Add(23*time.Hour)) && b.LeftAt.Before(now.Add(25*time.Hour))
		got := fmt.Sprintf("%q %q %q %q %v %v %d %% %d runs %v %s", b.Budget, b.Hook, b.By, b.Else, b.Limit, b.Used, b.Percent, b.Runs, left, value)
		if got != want {
			t.Errorf("budget %d is %s, want %s", i, got, want)
		}
	}
	if resp := s.AdminRequest("GET", "/hooks/cost?hook=near,none", ""); strings.Count(resp.Body, `"budget":`) != 2 {
		t.Errorf("for one hook the budgets are %s", resp.Body)
	}
	resp := pageOf(t, s).api("GET", "cost", "")
	if resp.Status != 200 || strings.Contains(resp.Body, `"value":`) || !strings.Contains(resp.Body, `"by":"{team}"`) {
		t.Errorf("somebody who sees no texts is shown %d %s", resp.Status, resp.Body)
	}

	out, _ = hooks("cost")
	shown := regexp.MustCompile(`, in \w+`).ReplaceAllLiteralString(out, ", in 24h")
	wantGolden(t, "cost-budgets", "$ caddy hooks cost\n"+shown)
	out, _ = hooks("status")
	shown = regexp.MustCompile(`\d\d:\d\d UTC`).ReplaceAllLiteralString(out, "14:05 UTC")
	_, needs, _ := strings.Cut(shown, "dead\n")
	wantGolden(t, "status-budgets", "$ caddy hooks status\n…\n"+needs, " --address "+s.Admin, "")
}

// Each budget has one series, whatever values there are, and each part that is reached is announced. Values come from outside, and are
// in neither.
func TestBudgetsInMetricsAndEvents(t *testing.T) {
	caddyhooks.Shorten(t, caddyhooks.FreshFor, 0)
	rn, all := spendingRunner(t), recordEvents(t, "budgets")
	s := hookstest.NewServer(t)
	s.Globals = "events {\n on hooks.budget.reached hooks_recorder budgets\n}\n"
	s.Load(hookstest.Hooks(rn, "budget $10/24h\n"+
		budgetHook("teams", "budget $5/24h\nbudget $5/24h by {team}\nbudget $5/24h by \"of {team}\"\nbudget 1250 tokens/1h by {team} else refuse")))
	// spend has a run, and waits until there are so many events.
	spend := func(team string, events int) {
		t.Helper()
		if ended := s.Ended(acceptedRun(t, s.Post("/api/hooks/teams", dollarFor(team)))); ended.Status != "completed" {
			t.Fatalf("a run is %s", ended.Body)
		}
		all.wait(t, events)
	}
	want := func(overAll, hook, tokens float64) {
		t.Helper()
		wanted := metrics{
			key("budget_used_ratio", "hook", "", "budget", "$10/24h", "by", ""):                   overAll,
			key("budget_used_ratio", "hook", "teams", "budget", "$5/24h", "by", ""):               hook,
			key("budget_used_ratio", "hook", "teams", "budget", "$5/24h", "by", "{team}"):         0,
			key("budget_used_ratio", "hook", "teams", "budget", "$5/24h", "by", "of {team}"):      0,
			key("budget_used_ratio", "hook", "teams", "budget", "1250 tokens/1h", "by", "{team}"): tokens,
		}
		var got metrics
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("last seen: %v", got)
			}
		})
		hookstest.Eventually(t, fmt.Sprint("the metrics are ", wanted), func() bool {
			got = scrape(t, s)
			maps.DeleteFunc(got, func(series string, _ float64) bool { return !strings.Contains(series, "budget") })
			return maps.Equal(got, wanted)
		})
	}
	want(0, 0, 0)
	spend(`"secret one"`, 1)
	spend(`"secret two"`, 2)
	spend(`"secret one"`, 3)
	want(.3, .6, 1.6) // one team has used up its tokens, and another nearly
	spend(`"secret three"`, 5)
	want(.4, .8, 1.6)
	spend(`"secret three"`, 7)
	want(.5, 1, 1.6)

	// Each part is told once, for each team.
	const (
		nearly  = `{"budget":"1250 tokens/1h","by_value":true,"hook":"teams","instance":"default","percent":80,"used":"1000 tokens"}`
		usedUp  = `{"budget":"1250 tokens/1h","by_value":true,"hook":"teams","instance":"default","percent":160,"used":"2000 tokens"}`
		dollars = `{"budget":"$5/24h","by_value":false,"hook":"teams","instance":"default","percent":%d,"used":"$%d.00"}`
	)
	events := all.all()
	for i, data := range []string{nearly, nearly, usedUp, fmt.Sprintf(dollars, 80, 4), nearly, fmt.Sprintf(dollars, 100, 5), usedUp} {
		wantEvent(t, events[i], "hooks.budget.reached", data)
	}
	s.Stop() // which emits what is left
	if n := len(all.all()); n != 7 {
		t.Errorf("%d events were emitted: %v", n, all.all())
	}
}
