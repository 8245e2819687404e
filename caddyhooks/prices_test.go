package caddyhooks_test

import (
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestTurnsCostWhatTheirModelsDo(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, tn hookstest.Turn) {
		usage, held := strings.CutPrefix(tn.Text("message"), "hold ")
		if held {
			<-release
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"text":"done","usage":`+usage+`}`)
	})
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "prices {\nm1 1 2\nm2* 10 20 0.5\nfree 0 0\n}"))
	want := 0.0
	costs := func(what string, more float64) {
		t.Helper()
		want += more
		hookstest.Eventually(t, what+" costs", func() bool {
			return math.Abs(scrape(t, s)[key("cost_usd_total", "hook", "agent")]-want) < 1e-9
		})
	}
	turn := func(usage string, cost float64) {
		t.Helper()
		s.Ended(s.Accept(`{"message":` + quoted(usage) + `}`))
		costs(usage, cost)
	}
	const million = `"inputTokens":1000000,"outputTokens":1000000`
	turn(`{"model":"m1",`+million+`}`, 3)
	turn(`{"model":"m1",`+million+`,"cachedTokens":500000}`, 3)
	turn(`{"model":"m2-large",`+million+`,"cachedTokens":500000}`, 25.25)
	turn(`[{"model":"m1",`+million+`},{"model":"m2",`+million+`}]`, 33)
	turn(`{"model":"m1",`+million+`,"costUsd":0.25}`, 0.25)
	turn(`{"model":"free",`+million+`}`, 0)
	turn(`{"model":"m3",`+million+`}`, 0)
	turn(`{`+million+`}`, 0)

	s.Accept(`{"message":` + quoted(`hold {"model":"m1",`+million+`}`) + `}`)
	for !strings.HasPrefix(rn.Next().Text("message"), "hold ") {
	}
	s.Reload(hookstest.Hooks(rn, "prices {\n* 100 200\n}"))
	close(release)
	costs("a turn that ended after the reload", 300)
	turn(`{`+million+`}`, 300)
	s.Reload(hookstest.Hooks(rn, ""))
	turn(`{"model":"m1",`+million+`}`, 0)
}
