package caddyhooks_test

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestHookAnswersInItsOwnWords(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("the reply"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `
	hook text {
		action agent
		respond 200 ok
		skip $.no
	}
	hook json {
		respond 201 `+"`{\"ok\": true}`"+`
		each $.all[*]
	}
	hook empty {
		respond 204
	}
	hook sync {
		action agent
		sync
		respond 299 never
		skip $.no
	}`))
	for _, c := range []struct {
		hook, body  string
		status      int
		contentType string
		answer      string
	}{
		{"text", `{}`, 200, "text/plain; charset=utf-8", "ok"},
		{"text", `{"no":1}`, 200, "text/plain; charset=utf-8", "ok"},
		{"json", `{"all":[1,2]}`, 201, "application/json", `{"ok": true}`},
		{"json", `{"all":[]}`, 201, "application/json", `{"ok": true}`},
		{"empty", `{}`, 204, "", ""},
		{"sync", `{}`, 200, "text/plain; charset=utf-8", "the reply"},
		{"sync", `{"no":1}`, 200, "application/json", `{"status":"ignored"}`},
	} {
		resp := s.Post("/api/hooks/"+c.hook, c.body)
		if resp.Status != c.status || resp.Header.Get("Content-Type") != c.contentType || resp.Body != c.answer || resp.Header["Location"] != nil {
			t.Errorf("%s %s: got %d %v %q", c.hook, c.body, resp.Status, resp.Header, resp.Body)
		}
	}
	t.Run("also when a request is repeated", func(t *testing.T) {
		key := hookstest.Key("k")
		first := s.Post("/api/hooks/text", `{}`, key...)
		s.Post("/api/hooks/text", `{}`, key...).WantReplay(t, first)
	})
	t.Run("and not when one is refused", func(t *testing.T) {
		s.Post("/api/hooks/text", `{`).WantError(t, 400)
		s.Post("/api/hooks/text", `{"a":1}`, hookstest.Key("k")...).WantError(t, 409)
		s.Request("POST", "/api/hooks/text", `{}`).WantError(t, 401)
	})
}

func TestHookHasItsOwnLimitOfBodies(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "max_payload 1KB\n max_memory 8MB\n hook small {\n max_payload 10\n }\n hook large {\n max_payload 2KB\n }\n hook usual"))
	body := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	for _, c := range []struct {
		hook         string
		most, status int
	}{{"small", 10, 200}, {"usual", 1024, 200}, {"large", 2048, 200}} {
		s.Post("/api/hooks/"+c.hook, body(c.most)).WantNew(t, c.status)
		s.Post("/api/hooks/"+c.hook, body(c.most+1)).WantError(t, 413)
		s.PostChunked("/api/hooks/"+c.hook, body(c.most+1)).WantError(t, 413)
	}
	s.PutMapping("live", `{"maxPayloadSize":"2KB"}`)
	s.Post("/api/hooks/live", body(2048)).WantNew(t, 200)
	s.AdminRequest("PUT", "/hooks/mappings/live", `{"maxPayloadSize":"2MB"}`).WantAdminError(t, 400, "maxPayloadSize", "max_memory", "8.0 MiB")
	s.AdminRequest("PUT", "/hooks/mappings/live", `{"maxPayloadSize":0}`).WantAdminError(t, 400, "maxPayloadSize", "1 byte")
}

func TestFieldsOfIntakeAreCheckedWhenAMappingIsSaved(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	for body, words := range map[string][]string{
		`{"body":"xml"}`:                           {"body", "json, form, auto"},
		`{"only":["$.a =="]}`:                      {"only", "refused"},
		`{"skip":["header"]}`:                      {"skip", "refused"},
		`{"only":[""]}`:                            {"only", "refused"},
		`{"each":"alerts"}`:                        {"each", "refused"},
		`{"respondStatus":199}`:                    {"respondStatus", "200 to 299"},
		`{"respondStatus":301}`:                    {"respondStatus", "200 to 299"},
		`{"respondBody":"ok"}`:                     {"respondBody", "respondStatus"},
		`{"respondStatus":204,"respondBody":"ok"}`: {"respondBody", "204"},
		`{"maxPayloadSize":"65MB"}`:                {"maxPayloadSize", "64 MiB"},
		`{"only":` + manyConditions(60) + `,"skip":` + manyConditions(41) + `}`: {"only", "100"},
	} {
		s.AdminRequest("PUT", "/hooks/mappings/a", body).WantAdminError(t, 400, words...)
	}
}

// manyConditions is a list of conditions in JSON.
func manyConditions(n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(`"$.a",`, n), ",") + "]"
}
