package channels

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func linearUUID(n int) string { return fmt.Sprintf("2174add1-f7c8-44e3-bbf3-%012x", n) }

func linearText(t *testing.T, r request) string {
	t.Helper()
	var sent struct {
		Variables struct{ Input struct{ Body string } }
	}
	if err := json.Unmarshal([]byte(r.body), &sent); err != nil || sent.Variables.Input.Body == "" {
		t.Fatalf("the request has no text: %v", err)
	}
	return strings.ReplaceAll(sent.Variables.Input.Body, zeroWidthSpace, "")
}

// startLinear starts a server that answers as api.linear.app/graphql does, where ENG-123 exists.
func startLinear(t *testing.T, token string) (*service, *thread) {
	c := new(thread)
	authorization := "Bearer " + token
	if strings.HasPrefix(token, "lin_api_") {
		authorization = token
	}
	return startService(t, func(w http.ResponseWriter, r request, _ int) {
		var sent struct {
			Query     string
			Variables struct {
				ID    string
				Input map[string]string
			}
		}
		err := json.Unmarshal([]byte(r.body), &sent)
		v := sent.Variables
		fail := func(status int, kind, code, message string) {
			say(w, status, fmt.Sprintf(`{"errors":[{"message":%q,"path":["x"],"locations":[{"line":1,"column":2}],"extensions":{"type":%q,"code":%q,"userError":true,"userPresentableMessage":%q}}],"data":null}`,
				message, kind, code, message))
		}
		done := func(mutation string, id int) {
			say(w, 200, fmt.Sprintf(`{"data":{%q:{"success":true,"comment":{"id":%q}}}}`, mutation, linearUUID(id)))
		}
		id := 0
		_, _ = fmt.Sscanf(strings.TrimPrefix(v.ID, "2174add1-f7c8-44e3-bbf3-"), "%x", &id)
		body, issue := v.Input["body"], v.Input["issueId"]
		switch {
		case r.header.Get("Authorization") != authorization:
			fail(401, "authentication error", "AUTHENTICATION_ERROR", "Authentication required, not authenticated")
		case r.method != "POST" || r.path != "/" || err != nil || r.header.Get("Content-Type") != "application/json; charset=utf-8":
			fail(400, "graphql error", "BAD_USER_INPUT", "There was no query")
		case sent.Query == linearViewer:
			say(w, 200, `{"data":{"viewer":{"id":"`+linearUUID(99)+`"}}}`)
		case sent.Query == linearCreate && issue == "ENG-123" && body != "" && len(v.Input) == 2:
			done("commentCreate", c.add(body))
		case sent.Query == linearUpdate && body != "" && len(v.Input) == 1 && c.change(id, body):
			done("commentUpdate", id)
		case sent.Query == linearDelete && v.Input == nil && c.remove(id):
			say(w, 200, `{"data":{"commentDelete":{"success":true}}}`)
		default:
			fail(200, "invalid input", "INPUT_ERROR", "Entity not found: Issue")
		}
	}), c
}

func TestLinearCommentOnTheWire(t *testing.T) {
	t.Parallel()
	for token, authorization := range map[string]string{"lin_api_secret": "lin_api_secret", "lin_oauth_secret": "Bearer lin_oauth_secret"} {
		s, _ := startLinear(t, token)
		d := delivery("ENG-123", "**Hello** https://linear.app/acme/profiles/ann")
		if err := loadChannel(t, "linear "+token+" {\n url "+s.URL+"\n}").Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		r := s.one()
		r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "Authorization": authorization, "User-Agent": "caddy-hooks"})
		wantJSON(t, r.body, `{"query":"mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id } } }",`+
			`"variables":{"input":{"issueId":"ENG-123","body":"**Hello** https:\u200b//linear.app/acme/profiles/ann"}}}`)
	}
}

func TestLinearErrors(t *testing.T) {
	t.Parallel()
	failure := func(kind, code, message string) string {
		return fmt.Sprintf(`{"errors":[{"message":%q,"extensions":{"type":%q,"code":%q}}]}`, message, kind, code)
	}
	for _, tc := range []struct {
		status int
		header string
		body   string
		want   outcome
	}{
		{200, "", failure("invalid input", "INPUT_ERROR", "Entity not found: Issue"), outcome{"final", 0, "Linear answered invalid input: there is no such issue"}},
		{200, "", failure("authentication error", "AUTHENTICATION_ERROR", "x"), outcome{"final", 0, "does not know the token"}},
		{401, "", failure("authentication error", "AUTHENTICATION_ERROR", "x"), outcome{"final", 0, "does not know the token"}},
		{403, "", failure("forbidden", "FORBIDDEN", "x"), outcome{"final", 0, "comments:create"}},
		{400, "", failure("ratelimited", "RATELIMITED", "Rate limit exceeded"), outcome{"later", time.Minute, "pause"}},
		{400, "", failure("", "RATELIMITED", "Rate limit exceeded"), outcome{"later", time.Minute, "pause"}},
		{400, "Retry-After: 5", failure("ratelimited", "RATELIMITED", "x"), outcome{"later", 5 * time.Second, "pause"}},
		{400, "X-RateLimit-Requests-Reset: 1000", failure("ratelimited", "RATELIMITED", "x"), outcome{"later", time.Second, "pause"}},
		{200, "", failure("internal error", "INTERNAL_SERVER_ERROR", "x"), outcome{"again", 0, "problem of its own"}},
		{200, "", failure("Something New", "X", "loud words"), outcome{"again", 0, "Linear answered unknown"}},
		{200, "", `{"errors":[7],"data":{}}`, outcome{"again", 0, "unknown"}},
		{200, "", `{"errors":[],"data":{"commentCreate":{"success":false}}}`, outcome{"again", 0, "not what Linear would say"}},
		{400, "", failure("graphql error", "GRAPHQL_VALIDATION_FAILED", "x"), outcome{"final", 0, "url of this channel"}},
		{502, "", `<html>`, outcome{"again", 0, "Linear answered 502"}},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			if name, value, ok := strings.Cut(tc.header, ": "); ok {
				w.Header().Set(name, value)
			}
			say(w, tc.status, tc.body)
		})
		d := delivery("ENG-123", "x")
		tc.want.check(t, loadChannel(t, "linear hush-1 {\n url "+s.URL+"\n}").Send(t.Context(), d))
		if d.Sent != 0 || d.LastStatus != tc.status {
			t.Errorf("noted: %+v", d)
		}
	}
}

func TestLinearChats(t *testing.T) {
	t.Parallel()
	channel := new(Linear)
	for _, to := range []string{"ENG-123", "A-1", "E2E-999999999", linearUUID(1)} {
		if err := channel.ValidTo(to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, to := range []string{"", "ENG", "ENG-", "ENG-0", "ENG-01", "eng-1", "ENG-1\n", "ENG-1 ", "2NG-1", "ENG-1/x", "ABCDEFGHIJK-1", "ÄNG-1", strings.ToUpper(linearUUID(10)), linearUUID(1) + "0"} {
		if err := channel.ValidTo(to); err == nil || !strings.Contains(err.Error(), "ENG-123") {
			t.Errorf("%q: %v", to, err)
		}
	}
}
