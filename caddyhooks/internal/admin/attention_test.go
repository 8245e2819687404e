package admin

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
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
