package intake

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// A condition that takes too long does not hold, whatever it would be in the end, and the log says so once a minute.
func TestUndecidedConditionIsLoggedOnceAMinute(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	const slow = "$.a[?count($..*) == 1]"
	body := []byte(`{"a":[` + strings.Repeat("1,", 20_000) + `1]}`)
	for _, m := range []settings.Mapping{
		{Name: "only", Action: engine.Agent, MessageTemplate: "hello", Only: []string{slow}},
		{Name: "skip", Action: engine.Agent, MessageTemplate: "hello", Skip: []string{"not " + slow, "not $.a"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			active := &settings.Active{Rules: new(settings.Rules)}
			log := zap.New(core)
			h := &settings.Hook{Mapping: m}
			if err := h.ParseTemplates(); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				runs, err := Runs(active, m.Name, h, &Request{Body: body, Log: log})
				if ignored := err != nil; ignored != (m.Name == "only") {
					t.Errorf("%s: got the runs %v, %v", m.Name, runs, err)
				}
			}
			lines := logs.TakeAll()
			if len(lines) != 1 || lines[0].ContextMap()["hook"] != m.Name ||
				!strings.HasPrefix(lines[0].ContextMap()["condition"].(string), m.Name) {
				t.Errorf("%s: logged are %v", m.Name, lines)
			}
			time.Sleep(time.Minute)
			_, _ = Runs(active, m.Name, h, &Request{Body: body, Log: log})
			if logs.Len() != 1 {
				t.Errorf("%s: after a minute %d lines are logged", m.Name, logs.Len())
			}
		})
	}
}
