package caddyhooks_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// meteredSite has hooks for tests of series. more are further subdirectives.
func meteredSite(more string) string {
	return "hooks {\nenabled\nrunner echo\ntoken " + hookstest.Token + "\nstore memory\n" + more + "\n}"
}

func TestCallersDoNotMakeSeries(t *testing.T) {
	s := hookstest.StartSite(t, meteredSite("hook deploy"))
	attack := func(n int) {
		for i := range n {
			name := fmt.Sprint("name", i)
			s.Post("/api/hooks/"+name, `{}`)
			s.Post("/api/hooks/"+name+"/deeper", `{}`)
			s.Post("/api/hooks/runs/"+name, "")
			s.Post("/api/hooks/runs/"+name+"/cancel", "")
			s.Post("/api/hooks/wake", fmt.Sprintf(`{"text":"hello","chatId":%q}`, name), "Idempotency-Key", name)
			s.Post("/api/hooks/agent", fmt.Sprintf(`{"message":"hello","chatId":%q,"name":%q}`, name, name), "Traceparent", fmt.Sprintf("00-%032x-%016x-01", i+1, i+1))
			s.Post("/api/hooks/deploy", `{}`, "X-Name", name)
			s.Request("POST", "/api/hooks/deploy", `{}`, "Authorization", "Bearer "+name)
			s.Request(fmt.Sprint("METHOD", i), "/api/hooks/deploy", "")
			s.Request("GET", "/api/hooks/runs/"+name, "")
		}
	}
	attack(1)
	once := scrapeWhenIdle(t, s)
	attack(30) // until the address is throttled
	some := scrapeWhenIdle(t, s)
	attack(30)
	many := scrapeWhenIdle(t, s)
	if got, want := slices.Sorted(maps.Keys(many)), slices.Sorted(maps.Keys(some)); !slices.Equal(got, want) {
		t.Errorf("there are %d series, and were %d before", len(got), len(want))
	}
	// Besides, there are codes of a throttled address.
	if more := len(some) - len(once); more > 3 {
		t.Errorf("there are %d series more than after one request of each kind", more)
	}
	for series := range many {
		if strings.Contains(series, "name") || strings.Contains(series, "METHOD") {
			t.Errorf("a caller made the series %s", series)
		}
	}
}

// scrapeWhenIdle waits until no run is left.
func scrapeWhenIdle(t *testing.T, s *hookstest.Server) (m metrics) {
	t.Helper()
	hookstest.Eventually(t, "all runs are over", func() bool {
		m = scrape(t, s)
		return m[key("queue_depth")] == 0 && m[key("running")] == 0
	})
	return m
}

func TestCountersOutliveReloads(t *testing.T) {
	s := hookstest.StartSite(t, meteredSite("hook deploy\nhook other\nchannel team log\nchannel spare log"))
	for range 3 {
		s.Post("/api/hooks/deploy", `{}`)
	}
	answered := key("requests_total", "hook", "deploy", "code", "200")
	runs := key("runs_total", "hook", "deploy", "status", "completed")
	wait := func(want float64) metrics {
		t.Helper()
		var m metrics
		hookstest.Eventually(t, fmt.Sprint(want, " runs are counted"), func() bool {
			m = scrape(t, s)
			return m[answered] == want && m[runs] == want
		})
		return m
	}
	if m := wait(3); len(m.about("channel", "spare")) == 0 || len(m.about("hook", "other")) == 0 {
		t.Error("hooks and channels that nobody has used have no series")
	}

	s.Reload(meteredSite("hook deploy\nchannel team log\nworkers 3"))
	s.Post("/api/hooks/deploy", `{}`)
	m := wait(4)
	if gone := append(m.about("channel", "spare"), m.about("hook", "other")...); len(gone) > 0 {
		t.Errorf("what the configuration has no more has the series %q", gone)
	}
	if m[key("workers")] != 3 {
		t.Errorf("%v workers", m[key("workers")])
	}

	// A reload that fails when the next instance is started changes nothing, also for whoever asks the admin endpoint, which is that of
	// the failed configuration now.
	err := s.TryLoad(meteredSite("") + "\nhooks second {\npath /second\nstore bolt /dev/null/nothing.db\n}")
	if err == nil {
		t.Fatal("a store that cannot be opened is taken")
	}
	s.Settle()
	s.Post("/api/hooks/deploy", `{}`)
	if m := wait(5); len(m.about("channel", "team")) == 0 || m[key("workers")] != 3 || len(m.about("hooks_instance", "second")) > 0 {
		t.Errorf("after a reload that failed there are the series %q", slices.Sorted(maps.Keys(m)))
	}

	s.Reload("respond hello")
	if m := scrape(t, s); len(m) > 0 {
		t.Errorf("without hooks there are the series %q", slices.Sorted(maps.Keys(m)))
	}
}

func TestSeriesOfAHookGoWithIt(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	s.PutMapping("first", `{"action":"agent","messageTemplate":"hold"}`)
	if series := scrape(t, s).about("hook", "first"); len(series) == 0 {
		t.Error("a new hook has no series")
	}
	s.Post("/api/hooks/first", `{}`)
	rn.Next()
	s.AdminRequest("DELETE", "/hooks/mappings/first", "")
	s.PutMapping("second", `{}`) // which is what renaming is
	s.Post("/api/hooks/first", `{}`).WantError(t, 404)
	close(release)
	hookstest.Eventually(t, "the run of the deleted hook is counted", func() bool {
		return scrape(t, s)[key("runs_total", "hook", "", "status", "completed")] == 1
	})
	m := scrape(t, s)
	if gone := m.about("hook", "first"); len(gone) > 0 {
		t.Errorf("a hook that was deleted has the series %q", gone)
	}
	if m[key("requests_total", "hook", "", "code", "404")] != 1 || len(m.about("hook", "second")) == 0 {
		t.Errorf("the series are %q", slices.Sorted(maps.Keys(m)))
	}
	// One of the same name begins anew.
	s.PutMapping("first", `{}`)
	if got, ok := scrape(t, s)[key("replays_total", "hook", "first")]; !ok || got != 0 {
		t.Errorf("a hook that is back has the count %v, %t", got, ok)
	}
}

// With many hooks a scrape has those that were called.
func TestManyHooksHaveNoSeriesUntilTheyAreCalled(t *testing.T) {
	s := hookstest.StartSite(t, meteredSite(""))
	var mappings []string
	for i := range 300 {
		mappings = append(mappings, fmt.Sprintf(`{"name":"h%d"}`, i))
	}
	s.PatchSettings(`{"mappings":[` + strings.Join(mappings, ",") + `]}`)
	s.Post("/api/hooks/h7", `{}`)
	m := scrapeWhenIdle(t, s)
	hook := regexp.MustCompile(`hook="(h\d+)"`)
	for series := range m {
		if called := hook.FindStringSubmatch(series); called != nil && called[1] != "h7" {
			t.Errorf("a hook that nobody called has the series %s", series)
		}
	}
	if m[key("requests_total", "hook", "h7", "code", "200")] != 1 {
		t.Error("the hook that was called has no count")
	}
}

func TestInstancesAreCountedApart(t *testing.T) {
	site := func(names ...string) (text string) {
		for _, name := range names {
			text += "hooks " + name + " {\npath /" + name + "\nenabled\nrunner echo\ntoken " + hookstest.Token + "\nstore memory\nhook deploy\n}\n"
		}
		return text
	}
	s := hookstest.StartSite(t, site("one", "two"))
	s.Post("/one/deploy", `{}`)
	s.Post("/two/deploy", `{}`)
	s.Post("/two/deploy", `{}`)
	m := scrape(t, s)
	deploys := func(instance string) string {
		return keyOf(instance, "requests_total", "hook", "deploy", "code", "200")
	}
	if m[deploys("one")] != 1 || m[deploys("two")] != 2 {
		t.Errorf("counted %v and %v requests, want 1 and 2", m[deploys("one")], m[deploys("two")])
	}
	s.Reload(site("two", "three"))
	m = scrape(t, s)
	if gone := m.about("hooks_instance", "one"); len(gone) > 0 || m[deploys("two")] != 2 || len(m.about("hooks_instance", "three")) == 0 {
		t.Errorf("after a reload the series are %q", slices.Sorted(maps.Keys(m)))
	}
}

// Traces are told with OpenMetrics, which the directive metrics answers with and the admin endpoint does not.
func TestDurationsHaveTracesAsExemplars(t *testing.T) {
	receiver := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, meteredSite(hookstest.WithCallbacks)+"\nmetrics /metrics")
	const sampled, notSampled = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319d"
	for trace, flags := range map[string]string{sampled: "01", notSampled: "00"} {
		s.Post("/api/hooks/agent", `{"message":"hello","callbackUrl":"`+receiver.URL+`"}`, "Traceparent", "00-"+trace+"-b7ad6b7169203331-"+flags)
		receiver.Next()
	}
	var text string
	for _, histogram := range []string{"accept_duration", "run_duration", "delivery_duration"} {
		line := regexp.MustCompile(`(?m)^caddy_hooks_` + histogram + `_seconds_bucket\{.*\} \d+ # \{trace_id="` + sampled + `"\} [0-9.e-]+ [0-9.e+]+$`)
		hookstest.Eventually(t, histogram+" has an exemplar", func() bool {
			resp := s.Request("GET", "/metrics", "", "Accept", "application/openmetrics-text; version=1.0.0")
			if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/openmetrics-text") {
				t.Fatalf("the answer is %s", resp.Header.Get("Content-Type"))
			}
			text = resp.Body
			return line.MatchString(text)
		})
	}
	if strings.Contains(text, notSampled) {
		t.Error("a trace that nobody records is an exemplar")
	}
	if resp := s.Request("GET", "/metrics", ""); strings.Contains(resp.Body, sampled) {
		t.Error("an exemplar is in a format that has none")
	}
}
