package channels

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// startGitLab starts a server that answers as gitlab.com/api/v4 does, where acme/tools/widgets has issue 7 and merge request 8, which
// share a thread.
func startGitLab(t *testing.T, token string) (*service, *thread) {
	c := new(thread)
	return startService(t, func(w http.ResponseWriter, r request, _ int) {
		const project = "/projects/acme%2Ftools%2Fwidgets"
		var sent map[string]any
		_ = json.Unmarshal([]byte(r.body), &sent)
		text, _ := sent["body"].(string)
		notes, ok := project+"/issues/7/notes", true
		if strings.Contains(r.path, "merge_requests") {
			notes = project + "/merge_requests/8/notes"
		}
		answer := func(status, id int) {
			body, _ := json.Marshal(text)
			say(w, status, fmt.Sprintf(`{"id":%d,"type":null,"body":%s,"author":{"id":42,"username":"acme-bot","name":"Bot","state":"active"},"created_at":"2026-01-02T03:04:05.000Z",`+
				`"updated_at":"2026-01-02T03:04:05.000Z","system":false,"project_id":5,"resolvable":false,"confidential":false,"internal":false}`, id, body))
		}
		switch id := numberAt(r.path, notes+"/"); {
		case r.header.Get("Private-Token") != token || r.header.Get("Authorization") != "":
			say(w, 401, `{"message":"401 Unauthorized"}`)
		case r.body != "" && (len(sent) != 1 || text == "" || len([]rune(text)) > 1_000_000 || r.header.Get("Content-Type") != "application/json; charset=utf-8"):
			say(w, 400, `{"error":"body is missing"}`)
		case r.method == "GET" && r.path == "/user" && r.body == "":
			say(w, 200, `{"id":42,"username":"acme-bot","name":"Bot","state":"active","bot":true}`)
		case r.method == "POST" && r.path == notes && ok:
			answer(201, c.add(text))
		case r.method == "PUT" && id > 0 && c.change(id, text):
			answer(200, id)
		case r.method == "DELETE" && id > 0 && r.body == "" && c.remove(id):
			w.WriteHeader(204)
		default:
			say(w, 404, `{"message":"404 Not found"}`)
		}
	}), c
}

func TestGitLabNoteOnTheWire(t *testing.T) {
	t.Parallel()
	s, _ := startGitLab(t, "glpat-secret")
	d := delivery("acme/tools/widgets!8", "/close\n@root !5 <b>")
	if err := loadChannel(t, "gitlab glpat-secret {\n url "+s.URL+"\n}").Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	r := s.one()
	if r.method != "POST" || r.path != "/projects/acme%2Ftools%2Fwidgets/merge_requests/8/notes" || r.query != "" || d.LastStatus != 201 {
		t.Errorf("got %s %s?%s", r.method, r.path, r.query)
	}
	r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "Private-Token": "glpat-secret", "User-Agent": "caddy-hooks"})
	wantJSON(t, r.body, `{"body":"\u200b/close\n@\u200broot !\u200b5 <\u200bb>"}`)
}

func TestGitLabErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		header string
		body   string
		want   outcome
	}{
		{401, "", `{"message":"401 Unauthorized"}`, outcome{"final", 0, "GitLab answered 401: it does not take the token"}},
		{403, "", `{"error":"insufficient_scope","error_description":"The request requires higher privileges","scope":"api"}`, outcome{"final", 0, "scope api"}},
		{403, "", `{"message":"403 Forbidden"}`, outcome{"final", 0, "locked"}},
		{404, "", `{"message":"404 Project Not Found"}`, outcome{"final", 0, "GitLab answered 404: there is no such project, issue or merge request"}},
		{413, "", `{}`, outcome{"final", 0, "too long"}},
		{429, "Retry-After: 9", `Retry later`, outcome{"later", 9 * time.Second, "pause"}},
		{429, "RateLimit-Reset: 1", `{"message":{"error":"This endpoint has been requested too many times. Try again later."}}`, outcome{"later", time.Second, "pause"}},
		{500, "", `{"message":"500 Internal Server Error"}`, outcome{"again", 0, "GitLab answered 500"}},
		{202, "", `{"commands_changes":{"close":true},"summary":["Closed this issue."]}`, outcome{"again", 0, "not what GitLab would say"}},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			if name, value, ok := strings.Cut(tc.header, ": "); ok {
				w.Header().Set(name, value)
			}
			say(w, tc.status, tc.body)
		})
		d := delivery("acme/widgets#7", "x")
		tc.want.check(t, loadChannel(t, "gitlab hush-1 {\n url "+s.URL+"\n}").Send(t.Context(), d))
		if d.Sent != 0 || d.LastStatus != tc.status {
			t.Errorf("noted: %+v", d)
		}
	}
}

func TestGitLabChats(t *testing.T) {
	t.Parallel()
	channel := new(GitLab)
	for _, to := range []string{"acme/widgets#7", "acme/tools/a.b-c_d/widgets!12", "a/.hidden#1", "A/b#4294967295"} {
		if err := channel.ValidTo(to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, to := range []string{"", "acme#7", "acme/widgets", "acme/widgets#0", "acme/widgets#07", "acme/widgets!", "acme/../x#7", "acme/./x#7", "acme/..#7", "../x#7", "acme//x#7", "/acme/x#7",
		"acme/x/#7", "acme/x#7!8", "acme/x#7\n", "acme/x y#7", "acme/x%2Fy#7", "acme/ü#7", "-a/b#7", "acme/x?#7", "acme/x#7/notes", strings.Repeat("a/", 30) + "b#7"} {
		if err := channel.ValidTo(to); err == nil || !strings.Contains(err.Error(), "group/project#123") {
			t.Errorf("%q: %v", to, err)
		}
	}
}
