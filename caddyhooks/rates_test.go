package caddyhooks_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// wantOverRate checks that a request is refused because of the rate of its hook, and told when to come back.
func wantOverRate(t *testing.T, resp hookstest.Response, most int) {
	t.Helper()
	resp.WantError(t, 429, "This hook accepts ", "and this request would be more", "Try again in")
	if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || after < 1 || after > most || after < most-300 {
		t.Errorf("Retry-After is %q, want up to %d", resp.Header.Get("Retry-After"), most)
	}
}

func wantRuns(t *testing.T, s *hookstest.Server, hook string, want int) {
	t.Helper()
	if ids, _ := s.Listed("?limit=100&hook=" + hook); len(ids) != want {
		t.Errorf("the hook %s has %d runs, want %d", hook, len(ids), want)
	}
}

func TestHookRefusesRunsOverItsRate(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, nil), "store "+store+`
				hook alerts {
					rate 3/1h
				}
				hook asking {
					action agent
					sync
					template "{a}"
					rate 1/1h
				}
				hook free`))
			first := s.Post("/api/hooks/alerts", `{"n":1}`, hookstest.Key("one")...)
			first.WantNew(t, 200)
			// A repeated request is no run, whether there is room or not.
			for range 5 {
				s.Post("/api/hooks/alerts", `{"n":1}`, hookstest.Key("one")...).WantReplay(t, first)
			}
			s.Post("/api/hooks/alerts", `{"n":2}`).WantNew(t, 200)
			s.Post("/api/hooks/alerts", `{"n":3}`, hookstest.Key("three")...).WantNew(t, 200)
			for range 3 {
				wantOverRate(t, s.Post("/api/hooks/alerts", `{"n":4}`), 3600)
				wantOverRate(t, s.Post("/api/hooks/alerts", `{"n":4}`, hookstest.Key("four")...), 3600)
				s.Post("/api/hooks/alerts", `{"n":1}`, hookstest.Key("one")...).WantReplay(t, first)
				s.Post("/api/hooks/alerts", `{"n":5}`, hookstest.Key("one")...).WantError(t, 409)
			}
			wantRuns(t, s, "alerts", 3)
			if resp := s.Post("/api/hooks/asking", `{"a":"x"}`, hookstest.Key("x")...); resp.Status != 200 {
				t.Errorf("got %d %s", resp.Status, resp.Body)
			}
			wantOverRate(t, s.Post("/api/hooks/asking", `{"a":"y"}`), 3600)
			if resp := s.Post("/api/hooks/asking", `{"a":"x"}`, hookstest.Key("x")...); resp.Status != 200 || resp.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("got %d %s", resp.Status, resp.Body)
			}
			wantRuns(t, s, "asking", 1)
			for range 5 {
				s.Post("/api/hooks/free", `{}`).WantNew(t, 200)
			}
			// An operator tries out as much as needed.
			for range 5 {
				if resp := s.AdminRequest("POST", "/hooks/mappings/alerts/test", `{}`); resp.Status != 202 {
					t.Errorf("got %d %s", resp.Status, resp.Body)
				}
			}
		})
	}
}

func TestRateSurvivesReloadsAndChanges(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	with := func(more string) string { return hookstest.Hooks(rn, "store memory\n"+more) }
	pinned := with("hook pinned {\n rate 2/1h\n}")
	s := hookstest.StartSite(t, pinned)
	s.PutMapping("live", `{"rate":"2/1h"}`)
	for _, hook := range []string{"pinned", "live"} {
		s.Post("/api/hooks/"+hook, `{}`).WantNew(t, 200)
		s.Post("/api/hooks/"+hook, `{}`).WantNew(t, 200)
	}
	want := func(most int) {
		t.Helper()
		for _, hook := range []string{"pinned", "live"} {
			wantOverRate(t, s.Post("/api/hooks/"+hook, `{}`), most)
		}
	}
	want(3600)
	s.Reload(pinned)
	want(3600)
	// Another rate counts the same runs.
	s.PutMapping("live", `{"rate":"1/2h"}`)
	s.Reload(with("hook pinned {\n rate 1/2h\n}"))
	want(7200)
	s.PutMapping("live", `{"rate":"3/1h"}`)
	s.Reload(with("hook pinned {\n rate 3/1h\n}"))
	for _, hook := range []string{"pinned", "live"} {
		s.Post("/api/hooks/"+hook, `{}`).WantNew(t, 200)
	}
	want(3600)
	// So does a hook that was gone for a moment.
	s.AdminRequest("DELETE", "/hooks/mappings/live", "")
	s.PutMapping("live", `{"rate":"3/1h"}`)
	s.Reload(with(""))
	s.Reload(with("hook pinned {\n rate 3/1h\n}"))
	want(3600)
	s.PutMapping("live", `{}`)
	s.Post("/api/hooks/live", `{}`).WantNew(t, 200)
}

func TestRunsThatAreNotStoredTakeNoRoomFromARate(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	defer close(release)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `
		store memory
		workers 1
		chat_limit 1
		hook a {
			action agent
			template "hold"
			chat_id "{chat}"
			rate 3/1h
		}`))
	post := func(chat string) hookstest.Response {
		return s.Post("/api/hooks/a", fmt.Sprintf(`{"chat":%q}`, chat))
	}
	post("x").WantNew(t, 202)
	rn.Next()
	post("x").WantNew(t, 202)
	for range 5 {
		post("x").WantError(t, 503, "chat")
	}
	post("y").WantNew(t, 202)
	wantOverRate(t, post("z"), 3600)
}

func TestRateCountsEachRunOfARequest(t *testing.T) {
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, nil), `
		store memory
		hook a {
			each $.alerts[*]
			template "{n}"
			rate 5/1h
		}`))
	post := func(n int, key ...string) hookstest.Response {
		alerts := slices.Repeat([]string{`{"n":1}`}, n)
		return s.Post("/api/hooks/a", `{"alerts":[`+strings.Join(alerts, ",")+`]}`, key...)
	}
	first := post(3, hookstest.Key("k")...)
	first.WantNew(t, 200)
	wantOverRate(t, post(3), 3600)
	wantRuns(t, s, "a", 3)
	post(3, hookstest.Key("k")...).WantReplay(t, first)
	post(2).WantNew(t, 200)
	wantOverRate(t, post(1), 3600)
	post(3, hookstest.Key("k")...).WantReplay(t, first)
	tooMany := post(6)
	tooMany.WantError(t, 413, "makes 6 runs", "no more than 5 in 1h")
	if after := tooMany.Header.Get("Retry-After"); after != "" {
		t.Errorf("it is told to come back after %s", after)
	}
	wantRuns(t, s, "a", 5)
}
