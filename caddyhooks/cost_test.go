package caddyhooks_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// spendingRunner reports the usage that the message of a turn is. It reports none if the message is no JSON.
func spendingRunner(t testing.TB) *hookstest.Runner {
	return hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, tn hookstest.Turn) {
		w.Header().Set("Content-Type", "application/json")
		if usage := tn.Text("message"); strings.HasPrefix(usage, "[") {
			_, _ = fmt.Fprintf(w, `{"text":"done","usage":%s}`, usage)
			return
		}
		_, _ = fmt.Fprint(w, `{"text":"done"}`)
	})
}

const spendingHooks = "runner small http %s\nhook review {\naction agent\nrunner small\ntemplate \"{usage}\"\n}\n"

// Operators see what runs used, callers do not, and a restart of Caddy loses no token of it.
func TestWhatRunsUsedIsSummedUpForOperators(t *testing.T) {
	rn := spendingRunner(t)
	config := hookstest.Hooks(rn, fmt.Sprintf(spendingHooks, rn.URL))
	s := hookstest.StartSite(t, config)
	run := func(path, body string) (id string) {
		t.Helper()
		id = acceptedRun(t, s.Post("/api/hooks/"+path, body))
		if ended := s.Ended(id); ended.Status != "completed" || strings.Contains(ended.Body, "usage") || strings.Contains(ended.Body, "okens") {
			t.Fatalf("a caller is shown %s", ended.Body)
		}
		return id
	}
	const (
		large   = `{"model":"large","inputTokens":1000,"outputTokens":10,"cachedTokens":800,"costUsd":0.5}`
		helper  = `{"model":"helper","inputTokens":100,"outputTokens":0,"costUsd":0.000000001}`
		unnamed = `{"inputTokens":7,"outputTokens":3}`
	)
	asked := func(usage string) string { return fmt.Sprintf(`{"message":%q}`, usage) }
	first := run("agent", asked("["+helper+","+large+"]"))
	second := run("review", fmt.Sprintf(`{"usage":%q}`, "["+unnamed+"]"))
	silent := run("agent", asked("hello"))
	refused := run("agent", asked(`[{"inputTokens":-5}]`))

	for id, want := range map[string]string{
		first:  `{"usage":[` + helper + "," + large + `]}`,
		second: `{"usage":[` + unnamed + `]}`, silent: `{}`,
		refused: `{"usageRefused":"the agent reported \"-5\" input tokens"}`,
	} {
		shown := s.AdminRequest("GET", "/hooks/runs/"+id, "")
		shown.WantMembers(t, want)
		if want == "{}" && strings.Contains(shown.Body, "usage") {
			t.Errorf("nothing is known of it, and it is shown as %s", shown.Body)
		}
		listed := s.AdminRequest("GET", "/hooks/runs?limit=1&q="+id, "").Body
		if want := strings.Trim(want, "{}"); !strings.Contains(strings.ReplaceAll(listed, "1e-9", "0.000000001"), want) {
			t.Errorf("the list has %s, want %s", listed, want)
		}
	}
	m := scrape(t, s)
	for series, want := range map[string]float64{
		key("tokens_total", "hook", "agent", "direction", "input"): 1100, key("tokens_total", "hook", "agent", "direction", "output"): 10,
		key("tokens_total", "hook", "review", "direction", "input"): 7, key("cost_usd_total", "hook", "agent"): 0.500000001,
		key("cost_usd_total", "hook", "review"): 0,
	} {
		if got, ok := m[series]; !ok || got != want {
			t.Errorf("%s is %v", series, got)
		}
	}

	const (
		ofAgent  = `"runs":1,"inputTokens":1100,"outputTokens":10,"cachedTokens":800,"costUsd":0.500000001`
		ofReview = `"runs":1,"inputTokens":7,"outputTokens":3`
		all      = `"runs":2,"inputTokens":1107,"outputTokens":13,"cachedTokens":800,"costUsd":0.500000001`
	)
	sums := map[string]string{
		"?since=1h":         `[{"key":"agent",` + ofAgent + `},{"key":"review",` + ofReview + `}]`,
		"?by=runner":        `[{"key":"default",` + ofAgent + `},{"key":"small",` + ofReview + `}]`,
		"?by=model":         `[{"key":"large","runs":1,` + large[len(`{"model":"large",`):] + `,{"key":"helper","runs":0,` + helper[len(`{"model":"helper",`):] + `,{"key":"",` + ofReview + `}]`,
		"?hook=review,none": `[{"key":"review",` + ofReview + `}]`,
		"?hook=none":        `[]`,
	}
	check := func() {
		t.Helper()
		for query, rows := range sums {
			total := all
			switch query {
			case "?hook=review,none":
				total = ofReview
			case "?hook=none":
				total = `"runs":0`
			}
			s.AdminRequest("GET", "/hooks/cost"+query, "").WantMembers(t, `{"rows":`+rows+`,"total":{`+total+`}}`)
		}
	}
	check()
	s.Restart(config)
	check()
	for _, by := range []string{"hour", "day"} { // another one may have begun
		resp := s.AdminRequest("GET", "/hooks/cost?by="+by+"&since=31d", "")
		resp.WantMembers(t, `{"by":"`+by+`","total":{`+all+`}}`)
		if !strings.Contains(resp.Body, `"rows":[{"key":"20`) || by == "hour" && !strings.Contains(resp.Body, `:00:00Z","runs"`) {
			t.Errorf("by %s: %s", by, resp.Body)
		}
	}
	for query, want := range map[string]string{
		"?by=chat":               "by must be one of hook, runner, model, hour and day",
		"?by=hook,model":         "by must be one of",
		"?by=":                   "by must not be empty",
		"?since=32d":             "since must be within the last 31d",
		"?since=2999-01-01":      "since must be within the last 31d",
		"?since=-1h":             "since must be a time",
		"?hook=":                 "hook must not be empty",
		"?hook=a,,b":             "hook must be one value",
		"?until=1h":              `there is no parameter "until"; use since, by and hook`,
		"?by=model&by=hook":      "by must be given once",
		"?by=%00%1b[31m&since=%": "the query cannot be read",
	} {
		s.AdminRequest("GET", "/hooks/cost"+query, "").WantAdminError(t, 400, want)
	}
}

func TestWhatCommandsPrintAboutCosts(t *testing.T) {
	rn := spendingRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, fmt.Sprintf(spendingHooks, rn.URL)))
	hooks := func(args ...string) (out, errs string, err error) {
		return command(t, append(args, "--address", s.Admin)...)
	}
	golden := func(name string, args ...string) {
		t.Helper()
		out, errs, err := hooks(args...)
		wantExit(t, 0, errs, err)
		wantGolden(t, name, "$ caddy hooks "+strings.Join(args, " ")+"\n"+steady(out)+errs)
	}
	_, errs, err := hooks("cost", "--hook", "reviews")
	wantExit(t, 0, errs, err, "No agent has told what a run used since", "There is no hook reviews now; did you mean review?")

	large := s.Accept(fmt.Sprintf(`{"message":%q}`, `[{"model":"large","inputTokens":1234567,"cachedTokens":1200000,"outputTokens":890,"reasoningTokens":300,"costUsd":123.4},`+
		`{"model":"helper","inputTokens":20,"outputTokens":0,"costUsd":0.00001}]`))
	unnamed := acceptedRun(t, s.Post("/api/hooks/review", `{"usage":"[{\"inputTokens\":70,\"outputTokens\":5}]"}`))
	refused := s.Accept(`{"message":"[{\"costUsd\":\"much\"}]"}`)
	for _, id := range []string{large, unnamed, refused} {
		s.Ended(id)
	}
	golden("cost", "cost")
	golden("cost-model", "cost", "--since", "24h", "--by", "model")
	golden("cost-day", "cost", "--by", "day", "--hook", "agent")
	for id, want := range map[string]string{
		large: "used        20 input tokens, 0 output tokens and < $0.0001 (helper)\n" +
			"used        1,234,567 input tokens, 1,200,000 of them cached, 890 output tokens, 300 of them reasoning and $123.40 (large)\n",
		unnamed: "used        70 input tokens and 5 output tokens\n",
		refused: "used        not known: the agent reported a cost of \"\\\"much\\\"\" US dollars\n",
	} {
		if out, errs, err := hooks("show", id); err != nil || !strings.Contains(out, want) {
			t.Errorf("%v %s: printed\n%s\nwant\n%s", err, errs, out, want)
		}
	}
	out, errs, err := hooks("export", "--of", "runs", "--format", "csv")
	wantExit(t, 0, errs, err)
	for _, want := range []string{",1234587,890,1200000,300,123.40001\n", ",70,5,,,\n", `"" US dollars",,,,,` + "\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	out, errs, err = hooks("cost", "--by", "runner", "--json")
	if wantExit(t, 0, errs, err); !strings.Contains(out, `"costUsd": 123.40001`) || !strings.Contains(out, `"key": "small"`) {
		t.Errorf("printed %s", out)
	}
	_, errs, err = hooks("cost", "--by", "chat")
	wantExit(t, 2, errs, err, "by must be one of hook, runner, model, hour and day")
	_, errs, err = hooks("cost", "--since", "40d")
	wantExit(t, 2, errs, err, "since must be within the last 31d")
}
