package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// keptRequest is a refused request in the admin API.
type keptRequest struct {
	ID, Hook, Reason, Message, Method, Path, Client, ContentType, Query, Payload string
	Status, Size                                                                 int
	Ignored, Cut, Unread                                                         bool
	Headers                                                                      http.Header
}

func keptRequests(t *testing.T, s *hookstest.Server, query string) (all []keptRequest, seconds int) {
	t.Helper()
	resp := s.AdminRequest("GET", "/hooks/refused/requests"+query, "")
	var page struct {
		Requests    []keptRequest
		KeptSeconds int
	}
	if err := json.Unmarshal([]byte(resp.Body), &page); err != nil || resp.Status != 200 || page.Requests == nil {
		t.Fatalf("got %d %s (%v)", resp.Status, resp.Body, err)
	}
	return page.Requests, page.KeptSeconds
}

func keptRequestOf(t *testing.T, s *hookstest.Server, id string) (request keptRequest) {
	t.Helper()
	resp := s.AdminRequest("GET", "/hooks/refused/requests/"+id, "")
	if err := json.Unmarshal([]byte(resp.Body), &request); err != nil || resp.Status != 200 {
		t.Fatalf("got %d %s (%v)", resp.Status, resp.Body, err)
	}
	for _, secret := range []string{loudToken, loudSecret} {
		if strings.Contains(resp.Body, secret) {
			t.Errorf("there is a secret in %s", resp.Body)
		}
	}
	return request
}

// Whoever mistyped a secret sees what the sender sent, after a restart, too.
func TestRefusedRequestsAreKeptWithoutSecrets(t *testing.T) {
	s, _ := refusedSite(t, loudHooks("echo", "hook some {\n only $.event == 'push'\n template {$.event} {query.event}\n}\nhook silent {\n only $.event == 'push'\n history off\n}"))
	s.Request("POST", "/api/hooks/signed", `{"a":1}`).WantError(t, 401)
	if all, seconds := keptRequests(t, s, ""); len(all) != 0 || seconds != 0 {
		t.Errorf("without the setting %+v are kept", all)
	}
	s.AdminRequest("GET", "/hooks/refused/requests/none", "").WantAdminError(t, 404, "keep_refused")
	s.PatchSettings(`{"keepRefusedSeconds":3600}`)
	body := `{"secret":"` + loudToken + `","text":"` + strings.Repeat("é", 4<<10) + `"}`
	s.Request("POST", "/api/hooks/signed?token=other&event=push", body, "X-Loud-Signature", "sha256="+signature("another", body), "X-Event", "push "+loudSecret,
		"Cookie", "a=b", "Content-Type", "application/json").WantError(t, 401)
	loudPost(s, "some", `{"event":"star"}`)
	loudPost(s, "silent", `{"event":"star"}`)
	s.Request("POST", "/api/hooks/wake", `{"text":"x"}`, "X-Service-Token", "wrong").WantError(t, 401)
	check := func(when string) {
		t.Helper()
		all, seconds := keptRequests(t, s, "")
		all = slices.DeleteFunc(all, func(r keptRequest) bool { return r.Hook == "" }) // which the harness asks for
		if len(all) != 4 || seconds != 3600 {
			t.Fatalf("%s %d requests are kept: %+v", when, len(all), all)
		}
		if shown := fmt.Sprint(all[3].Hook, all[2].Hook, all[1].Hook, all[0].Hook); shown != "signedsomesilentwake" {
			t.Errorf("%s the order is %s", when, shown)
		}
		signed := keptRequestOf(t, s, all[3].ID)
		if signed.Reason != "the signature does not match the body and the secret" || signed.Status != 401 || signed.Method != "POST" || signed.Path != "/api/hooks/signed" ||
			signed.Client != "127.0.0.1" || signed.Size != len(body) || !signed.Cut || signed.ContentType != "application/json" {
			t.Errorf("%s the request is %+v", when, signed)
		}
		if !strings.HasPrefix(signed.Payload, `{"secret":"••••","text":"é`) || len(signed.Payload) > 4<<10 {
			t.Errorf("%s the body is %.100q, %d bytes", when, signed.Payload, len(signed.Payload))
		}
		for name, want := range map[string]string{"X-Loud-Signature": "••••", "Cookie": "••••", "X-Event": "push ••••"} {
			if got := signed.Headers.Get(name); got != want {
				t.Errorf("%s the header %s is %q", when, name, got)
			}
		}
		if signed.Query != "event=push&token=%E2%80%A2%E2%80%A2%E2%80%A2%E2%80%A2" {
			t.Errorf("%s the query is %q", when, signed.Query)
		}
		if some := keptRequestOf(t, s, all[2].ID); !some.Ignored || some.Payload != `{"event":"star"}` || some.Headers.Get("Authorization") != "••••" || some.Unread {
			t.Errorf("%s the ignored request is %+v", when, some)
		}
		if silent := keptRequestOf(t, s, all[1].ID); silent.Payload != "" || !silent.Unread {
			t.Errorf("%s the request to the hook without history is %+v", when, silent)
		}
		if wake := keptRequestOf(t, s, all[0].ID); wake.Payload != "" || !wake.Unread || wake.Headers.Get("X-Service-Token") != "••••" {
			t.Errorf("%s the request with a wrong token is %+v", when, wake)
		}
	}
	check("at once")
	s.Restart(loudHooks("echo", "hook some {\n only $.event == 'push'\n template {$.event} {query.event}\n}\nhook silent {\n only $.event == 'push'\n history off\n}"))
	check("after a restart")
	if of, _ := keptRequests(t, s, "?hook=some&limit=5&since=1h"); len(of) != 1 || of[0].Hook != "some" {
		t.Errorf("of one hook are %+v", of)
	}
	s.AdminRequest("GET", "/hooks/refused/requests?limit=no", "").WantAdminError(t, 400, "limit")
	s.AdminRequest("GET", "/hooks/refused/requests/none", "").WantAdminError(t, 404, "kept for 1h")
	s.AdminRequest("PATCH", "/hooks/settings", `{"keepRefusedSeconds":86401}`).WantAdminError(t, 400, "keepRefusedSeconds", "a day")
	s.PatchSettings(`{"keepRefusedSeconds":null}`)
	if all, _ := keptRequests(t, s, ""); len(all) != 0 {
		t.Errorf("%d are shown although none are to be kept", len(all))
	}
}
