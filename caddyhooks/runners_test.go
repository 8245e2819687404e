package caddyhooks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// threeRunners are runners that answer with their names. The first one is the default.
const threeRunners = "enabled\n token " + hookstest.Token + "\n runner small echo {\n reply small\n }\n runner big echo {\n reply big\n }\n runner deep-one echo {\n reply deep-one\n }\n" +
	"runner_for smart special1 big\n runner_for deep deep-one\n"

func TestARunGoesToTheRunnerOfItsHookOrItsTier(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n"+threeRunners+`
		hook plain {
			action agent
			sync
		}
		hook smart {
			action agent
			sync
			model smart
		}
		hook named {
			action agent
			sync
			model smart
			runner deep-one
		}
		hook waking {
			runner big
		}
	}`)
	for _, tc := range []struct{ hook, body, want string }{
		{"agent", `{"message":"a","syncResponse":true}`, "small"},
		{"agent", `{"message":"a","syncResponse":true,"model":"balanced"}`, "small"},
		{"agent", `{"message":"a","syncResponse":true,"model":"smart"}`, "big"},
		{"agent", `{"message":"a","syncResponse":true,"model":"special1"}`, "big"},
		{"agent", `{"message":"a","syncResponse":true,"model":"deep"}`, "deep-one"},
		// The validation tier is that of the turn, if there is a schema, and counts for nothing if there is none.
		{"agent", `{"message":"a","syncResponse":true,"model":"smart","responseValidationModelTier":"deep","responseJsonSchema":{"const":"x"}}`, "deep-one"},
		{"agent", `{"message":"a","syncResponse":true,"model":"smart","responseValidationModelTier":"deep"}`, "big"},
		{"plain", `{}`, "small"},
		{"smart", `{}`, "big"},
		{"named", `{}`, "deep-one"},
	} {
		resp := s.Post("/api/hooks/"+tc.hook, tc.body)
		if !strings.Contains(tc.body, "Schema") && resp.Body != tc.want {
			t.Errorf("%s %s: got %d %q, want %s", tc.hook, tc.body, resp.Status, resp.Body, tc.want)
		}
		ids, _ := s.Listed("?limit=1")
		if run := s.Run(ids[0]); run.Runner != tc.want {
			t.Errorf("%s %s: the run shows the runner %q, want %s", tc.hook, tc.body, run.Runner, tc.want)
		}
	}
	s.Post("/api/hooks/waking", `{}`)
	ids, _ := s.Listed("?limit=1")
	if run := s.Ended(ids[0]); run.Runner != "big" || run.Reply != "big" {
		t.Errorf("a wake hook has the runner %q, which answered %q", run.Runner, run.Reply)
	}
}

func TestALiveMappingNamesItsRunner(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n"+threeRunners+"}")
	s.PutMapping("live", `{"action":"agent","syncResponse":true,"runner":"big"}`)
	if resp := s.Post("/api/hooks/live", `{}`); resp.Body != "big" {
		t.Errorf("got %d %q", resp.Status, resp.Body)
	}
	s.AdminRequest("GET", "/hooks/mappings/live", "").WantMembers(t, `{"runner":"big"}`)
	s.AdminRequest("PUT", "/hooks/mappings/other", `{"runner":"nobody"}`).
		WantAdminError(t, 400, "runner names no runner that is configured here; there are big, deep-one and small")
	// The caller of a request does not choose.
	if resp := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true,"runner":"big"}`); resp.Body != "small" {
		t.Errorf("a request chose the runner: %q", resp.Body)
	}
	if err := s.TryLoad("hooks {\n enabled\n runner echo\n token " + hookstest.Token + "\n}"); err == nil || !strings.Contains(err.Error(), "runner names no runner") {
		t.Errorf("a configuration without the runner of a live mapping: %v", err)
	}
}

func TestARunStaysWithItsRunnerOverAReload(t *testing.T) {
	first, _, release := hookstest.HeldRunner(t)
	second := hookstest.StartRunner(t, nil)
	hooks := func(runners string) string {
		return fmt.Sprintf("hooks {\n enabled\n token %s\n workers 1\n %s\n}", hookstest.Token, runners)
	}
	s := hookstest.StartSite(t, hooks("runner old http "+first.URL+"\n runner gone http "+second.URL+"\n runner_for deep gone"))
	held := s.Accept(`{"message":"hold this","chatId":"a"}`)
	first.Next()
	queued := s.Accept(`{"message":"then this","chatId":"a"}`)
	orphan := s.Accept(`{"message":"and this","chatId":"b","model":"deep"}`)
	s.Reload(hooks("runner new http " + second.URL + "\n runner old http " + first.URL))
	after := s.Accept(`{"message":"last of all","chatId":"c"}`)
	close(release)
	for id, want := range map[string]string{held: "old", queued: "old", after: "new"} {
		if run := s.Ended(id); run.Runner != want || run.Status != "completed" {
			t.Errorf("got %s on %q, want completed on %s", run.Status, run.Runner, want)
		}
	}
	run := s.Ended(orphan)
	if run.Status != "failed" || run.ErrorMessage != "The agent that the run was accepted for is not configured any more." || run.Runner != "gone" {
		t.Errorf("got %s on %q: %s", run.Status, run.Runner, run.ErrorMessage)
	}
	s.AdminRequest("GET", "/hooks/runs/"+orphan, "").WantMembers(t, `{"reason":"runner \"gone\" is not configured any more"}`)
	if got := second.Next().Text("message"); got != "last of all" {
		t.Errorf("the new runner was given %q", got)
	}
	again := s.AdminRequest("POST", "/hooks/runs/"+orphan+"/again", "{}").Field(t, "runId").(string)
	if run := s.Ended(again); run.Status != "completed" || run.Runner != "new" {
		t.Errorf("run again, it is %s on %q", run.Status, run.Runner)
	}
}

func TestRunnersInJSONAreChecked(t *testing.T) {
	const echo = `{"runner":"echo"}`
	for config, want := range map[string]string{
		`"runners":{"a":` + echo + `,"b":` + echo + `}`:                                  "one must be called default, or default_runner must name one",
		`"runners":{"a":` + echo + `},"default_runner":"b"`:                              "default_runner names no runner that is configured here; there is a",
		`"runners":{"a":` + echo + `},"runner_for":{"huge":"a"}`:                         "runner_for names an unknown tier",
		`"runners":{"a":` + echo + `},"runner_for":{"deep":"b"}`:                         "runner_for deep names no runner",
		`"runners":{"http":` + echo + `}`:                                                "a runner must not be called http, which is a kind of runner",
		`"runners":{"":` + echo + `}`:                                                    "the name of a runner must be 1 to 64 letters",
		`"runners":{"a":` + echo + `,"b":` + echo + `},"default_runner":"b"`:             "",
		`"runners":{"a":` + echo + `}`:                                                   "",
		`"runners":{"a":` + echo + `,"default":` + echo + `},"store":{"store":"memory"}`: "",
		`"runners":{"default":` + echo + `},"runner_for":{"deep":"default"}`:             "",
	} {
		err := validateHandler(`{"handler":"hooks",` + config + `}`)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", config, err, want)
		}
	}
}

// needsRunner are the words of the refusal to enable webhooks without a runner: the choices, a line each.
var needsRunner = []string{"enabled needs a runner, which calls your agent", "\n  runner echo ", "\n  runner acp <preset or program> ", "claude, codex", "\n  runner openai ", "ollama",
	"\n  runner http <url> ", `"runners": {"default": {"runner": "echo"}}`}

func TestWebhooksAreNotEnabledWithoutARunner(t *testing.T) {
	for config, want := range map[string]string{
		`"settings":{"enabled":true}`:                                         needsRunner[0],
		`"settings":{"enabled":true},"runners":{}`:                            needsRunner[0],
		`"settings":{"enabled":true},"runners":{"default":{"runner":"echo"}}`: "",
		`"settings":{"enabled":false,"token":"a"}`:                            "",
		`"name":"off"`:              "",
		`"default_runner":"a"`:      "default_runner names no runner that is configured here; there are none",
		`"runner_for":{"deep":"a"}`: "runner_for deep names no runner that is configured here; there are none",
		`"settings":{"mappings":[{"name":"a","action":"agent","runner":"big"}]}`: "names no runner that is configured here; there are none",
	} {
		if err := validateHandler(`{"handler":"hooks",` + config + `}`); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want %q", config, err, want)
		}
	}
	s := hookstest.StartSite(t, "hooks")
	s.PatchSettings(`{"token":"` + hookstest.Token + `"}`)
	s.PutMapping("custom", `{}`)
	s.AdminRequest("PATCH", "/hooks/settings", `{"enabled":true}`).WantAdminError(t, 400, needsRunner...)
	_, errs, err := command(t, "set", "enabled", "on", "--address", s.Admin)
	wantExit(t, 1, errs, err, needsRunner...)
	s.PatchSettings(`{"enabled":false}`)
	s.Post("/api/hooks/wake", `{"text":"a"}`).WantError(t, 404)
	s.AdminRequest("POST", "/hooks/mappings/custom/test", `{}`).WantAdminError(t, 409, "a test needs a runner")
	s.AdminRequest("POST", "/hooks/bulk?do=again&status=failed", ``).WantAdminError(t, 409, "a run needs a runner")
	if runners := s.AdminRequest("GET", "/hooks/runners", ""); strings.TrimSpace(runners.Body) != "[]" {
		t.Errorf("the runners are %s", runners.Body)
	}
	s.AdminRequest("GET", "/hooks/about", "").WantMembers(t, `{"runner":"","runners":[]}`)
}

// Webhooks that were enabled while Caddy ran stay off after a start without a runner. A reload is refused, and nothing changes.
func TestWebhooksThatWereEnabledLiveNeedARunnerToo(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo {\ndelay 1h\n}\ndrain_timeout 1ms\n}")
	s.PatchSettings(`{"enabled":true,"token":"` + hookstest.Token + `"}`)
	waiting := s.Accept(`{"message":"nobody did this"}`)
	if err := s.TryLoad("hooks"); err == nil || !strings.Contains(err.Error(), needsRunner[0]) {
		t.Errorf("a reload without a runner: %v", err)
	}
	s.Settle()
	s.Accept(`{"message":"still on"}`)

	s.Restart("hooks")
	s.WantProblems(t, needsRunner)
	s.Post("/api/hooks/wake", `{"text":"a"}`).WantError(t, 404)
	s.AdminRequest("GET", "/hooks/about", "").WantMembers(t, `{"on":false,"offBecause":"enabled was saved and is left out, since there is no runner"}`)
	hookstest.Eventually(t, "the run fails", func() bool {
		run := s.AdminRequest("GET", "/hooks/runs/"+waiting, "")
		return run.Field(t, "status") == "failed" && run.Field(t, "reason") == `runner "default" is not configured any more`
	})
	s.PatchSettings(`{"defaultTimeoutSeconds":9}`) // other settings can be changed

	s.Restart("hooks {\nrunner echo\n}")
	s.WantProblems(t)
	if run := s.Ended(s.Accept(`{"message":"on again"}`)); run.Status != "completed" {
		t.Errorf("got %s", run.Body)
	}
}
