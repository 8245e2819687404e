package channels

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

func teamsTextOf(t *testing.T, r request) string {
	t.Helper()
	var sent teamsMessage
	if err := json.Unmarshal([]byte(r.body), &sent); err != nil || len(sent.Attachments) != 1 || len(sent.Attachments[0].Content.Body) != 1 {
		t.Fatalf("the request has no text: %v", err)
	}
	return sent.Attachments[0].Content.Body[0].Text
}

// startTeams starts a server that answers as a workflow does.
func startTeams(t *testing.T, sig string) *service {
	return startService(t, func(w http.ResponseWriter, r request, _ int) {
		switch {
		case r.method != "POST" || r.path != "/workflows/1/triggers/manual/paths/invoke":
			say(w, 404, `{"error":{"code":"WorkflowNotFound","message":"The workflow '1' could not be found."}}`)
		case r.query != "api-version=1&sp=%2Ftriggers&sig="+sig:
			say(w, 401, `{"error":{"code":"DirectApiAuthorizationRequired","message":"The request must be authenticated only by Shared Access scheme."}}`)
		case len(r.body) > 28_000:
			say(w, 413, `{"error":{"code":"RequestEntityTooLarge","message":"too large"}}`)
		default:
			w.WriteHeader(202)
		}
	})
}

func TestTeamsCardOnTheWire(t *testing.T) {
	t.Parallel()
	s := startTeams(t, "a-secret")
	d := delivery("anybody", "**Hello** <at>Ann</at>\n- x")
	if err := loadChannel(t, "teams "+s.URL+"/workflows/1/triggers/manual/paths/invoke?api-version=1&sp=%2Ftriggers&sig=a-secret").Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	r := s.one()
	r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "User-Agent": "caddy-hooks"})
	wantJSON(t, r.body, `{"type":"message","attachments":[{"contentType":"application/vnd.microsoft.card.adaptive","content":{
		"$schema":"http://adaptivecards.io/schemas/adaptive-card.json","type":"AdaptiveCard","version":"1.4","msteams":{"width":"Full"},
		"body":[{"type":"TextBlock","text":"**Hello** <at>Ann</at>\n- x","wrap":true}]}}]}`)
}

func TestTeamsMessagesAreSmall(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("word \"\\\n", 10_000), strings.Repeat("ä😀 ", 10_000), manyWords(9000)} {
		s := startTeams(t, "x")
		d := delivery("anybody", text)
		if err := loadChannel(t, "teams "+s.URL+"/workflows/1/triggers/manual/paths/invoke?api-version=1&sp=%2Ftriggers&sig=x").Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		all := ""
		for _, r := range s.seen() {
			all += teamsTextOf(t, r) + " "
		}
		if d.Sent < 3 || len(strings.Fields(all)) != len(strings.Fields(text)) {
			t.Errorf("%d words arrived in %d messages", len(strings.Fields(all)), d.Sent)
		}
	}
}

func TestTeamsErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		body   string
		want   outcome
	}{
		{404, `{"error":{"code":"WorkflowNotFound"}}`, outcome{"final", 0, "Teams answered 404: there is no such workflow"}},
		{400, `{"error":{"code":"WorkflowTriggerIsNotEnabled"}}`, outcome{"final", 0, "switched off"}},
		{400, `{"error":{"code":"TriggerInputSchemaMismatch"}}`, outcome{"final", 0, "template"}},
		{401, `{"error":{"code":"DirectApiAuthorizationRequired"}}`, outcome{"final", 0, "signature"}},
		{401, `{}`, outcome{"final", 0, "anyone"}},
		{413, ``, outcome{"final", 0, "too long"}},
		{429, `{}`, outcome{"again", 0, "pause"}},
		{502, `{"error":{"code":"NoResponse"}}`, outcome{"again", 0, "Teams answered 502"}},
		{204, ``, outcome{"again", 0, "not what Teams would say"}},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			if tc.body == "" {
				w.WriteHeader(tc.status)
				return
			}
			say(w, tc.status, tc.body)
		})
		tc.want.check(t, loadChannel(t, "teams "+s.URL+"/hush?sig=hush").Send(t.Context(), delivery("anybody", "x")))
	}
	s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
		w.Header().Set("Retry-After", "4")
		say(w, 429, ``)
	})
	outcome{"later", 4 * time.Second, "pause"}.check(t, loadChannel(t, "teams "+s.URL).Send(t.Context(), delivery("anybody", "x")))
	outcome{kind: "final", words: "blank"}.check(t, loadChannel(t, "teams "+s.URL).Send(t.Context(), delivery("anybody", " ")))
	outcome{kind: "final", words: "256 bytes"}.check(t, loadChannel(t, "teams "+s.URL).Send(t.Context(), delivery("a\nb", "x")))
}
