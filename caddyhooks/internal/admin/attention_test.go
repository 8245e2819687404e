package admin

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/refused"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

func TestAQueueThatStandsStillNeedsAnOperator(t *testing.T) {
	t.Parallel()
	in := &service.Instance{EngineConfig: engine.Config{Workers: 1}}
	if items := queueItems(in, attentionQuestion{backlog: engine.Backlog{Queued: 100, Oldest: longQueued}}); items != nil {
		t.Errorf("a queue that moves needs %+v", items)
	}
	items := queueItems(in, attentionQuestion{backlog: engine.Backlog{Queued: 2, Running: 1, Oldest: 90*time.Second + 400*time.Millisecond}})
	want := api.AttentionItem{Kind: "oldest_queued", Severity: api.SeverityLate, Link: "#/runs?status=queued", Text: "the oldest queued run has waited for 1m30s",
		Detail: "2 runs are queued, 1 running, 1 worker"}
	if len(items) != 1 || items[0] != want {
		t.Errorf("got %+v", items)
	}
}

func TestAnAgentThatIsUnreachableNeedsAnOperator(t *testing.T) {
	t.Parallel()
	in := &service.Instance{EngineConfig: engine.Config{Runners: map[string]engine.Runner{"default": nil}}}
	now := time.Now()
	q := attentionQuestion{now: now, backlog: engine.Backlog{Queued: 1},
		down: []engine.RunnerState{{Name: "default", State: engine.RunnerUnreachable, Since: now.Add(-3 * time.Second), Cause: "reaching the runner: refused\nat once"}}}
	want := api.AttentionItem{Kind: "runner_unreachable", Severity: api.SeverityBad, Link: "#/runs?status=queued", Text: "the agent has been out of reach for 3s, and 1 run is queued",
		Detail: `reaching the runner: refused\nat once`}
	if items := unreachableItems(in, q); len(items) != 1 || items[0] != want {
		t.Errorf("got %+v", items)
	}
	in.EngineConfig.Runners["fast"] = nil
	q.down[0].Name, q.down[0].State = "fast", engine.RunnerBusy
	want.Severity, want.Text = api.SeverityLate, "the agent fast has been busy for 3s, and 1 run is queued"
	if items := unreachableItems(in, q); len(items) != 1 || items[0] != want {
		t.Errorf("got %+v", items)
	}
	q.down = nil
	if items := unreachableItems(in, q); items != nil {
		t.Errorf("of runners that take on turns there is %+v", items)
	}
}

func TestFailingHooksAreNamedWithoutTextsThatAreHidden(t *testing.T) {
	t.Parallel()
	in := new(service.Instance) // without an engine: no run is looked at
	sum := &engine.Minute{Hooks: map[string]engine.HookMinute{
		"failing": {Accepted: 40, Ended: 10, Failed: 1}, "fine": {Accepted: 10, Ended: 20, Failed: 1}, "rare": {Accepted: 40, Ended: 9, Failed: 9}, "": {Ended: 100, Failed: 100},
	}}
	items, err := failingItems(context.Background(), in, attentionQuestion{sum: sum, rangeName: "7d", hideTexts: true})
	want := api.AttentionItem{Kind: "failing_hook", Severity: api.SeverityBad, Text: "1 of 10 runs of failing did not complete",
		Link: "#/runs?hook=failing&since=168h&status=failed%2Ctimed_out%2Cexpired"}
	if err != nil || len(items) != 1 || items[0] != want {
		t.Errorf("got %+v, %v", items, err)
	}
}

func TestBudgetsThatAreUsedUpNeedAnOperator(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 18, 14, 0, 0, 0, time.UTC)
	state := func(hook string, used int64, then budget.Else, wait time.Duration) budget.State {
		return budget.State{Budget: budget.Budget{Hook: hook, Limit: budget.Limit{Tokens: 1000, Window: time.Hour}, Else: then},
			Used: used, Runs: 1, Wait: wait}
	}
	byTeam := state("alerts", 800, budget.Refuse, 0)
	byTeam.By, byTeam.Value = "{labels.team}", "sre\n\u202e"
	missing := byTeam
	missing.Value = ""
	q := attentionQuestion{now: now, budgets: []budget.State{
		state("", 1000, budget.Hold, 4*time.Minute+59*time.Second), state("fine", 799, budget.Hold, 0),
		state("alerts", 5000, budget.Refuse, 24*time.Hour), state("alerts", 1000, budget.Ignore, time.Millisecond), byTeam, missing,
	}}
	want := []api.AttentionItem{
		{Severity: api.SeverityBad, Text: "the budget of 1k tokens/1h of all hooks is used up: runs wait until 14:05 UTC"},
		{Severity: api.SeverityBad, Text: "the budget of 1k tokens/1h of hook alerts is used up: requests are refused until 2026-11-19 14:00 UTC"},
		{Severity: api.SeverityBad, Text: "the budget of 1k tokens/1h of hook alerts is used up: requests are ignored until 14:00 UTC"},
		{Severity: api.SeverityLate, Text: "80 % of the budget of 1k tokens/1h of hook alerts are used", Detail: `{labels.team} is sre\n\u202e`},
		{Severity: api.SeverityLate, Text: "80 % of the budget of 1k tokens/1h of hook alerts are used", Detail: `{labels.team} is missing`},
	}
	for i := range want {
		want[i].Kind, want[i].Link = "budget", "#/cost"
	}
	if items := budgetItems(q); !slices.Equal(items, want) {
		t.Errorf("got %+v", items)
	}
	q.hideTexts = true
	if items := budgetItems(q); len(items) != len(want) || items[3].Detail != "" {
		t.Errorf("without texts there is %+v", items)
	}
}

func TestNeedsOfAKindAreFew(t *testing.T) {
	t.Parallel()
	active := &settings.Active{On: true, Problems: make(map[string]string)}
	for i := range 3 * maxAttentionItems {
		active.Problems[fmt.Sprintf("hook h%03d", i)] = "its channel is gone"
	}
	in := &service.Instance{Refused: refused.NewRecorder()}
	items, _, err := attentionItems(context.Background(), in, attentionQuestion{active: active, sum: new(engine.Minute)})
	if err != nil || len(items) != maxAttentionItems || items[0].Link != "#/settings/hooks/h000" || items[0].Detail != "its channel is gone" {
		t.Errorf("there are %d needs, %v", len(items), err)
	}
}
