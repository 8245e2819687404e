package caddyhooks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Mailgun signs a time and a token, and no body. So the signature of a request that became no run is good for its body alone, and nobody
// who may see the request gets to know it.
func TestASignatureOfMailgunIsForOneBody(t *testing.T) {
	s := hookstest.StartSite(t, basicAuth+"hooks_dashboard {\n read_only alice\n}\n"+hookstest.Hooks(hookstest.StartRunner(t, nil), `
	keep_refused 1h
	hook mail {
		action agent
		auth mailgun `+loudSecret+`
		only "$.deploy == 'yes'"
		once "{id}"
	}`))
	at := fmt.Sprint(time.Now().Unix())
	post := func(token, more string) hookstest.Response {
		body := fmt.Sprintf(`{"signature":{"timestamp":%q,"token":%q,"signature":%q},%s}`, at, token, hexSum(loudSecret, at+token), more)
		return s.Request("POST", "/api/hooks/mail", body, pageOf(t, s).as("ops").headers...)
	}
	for range 2 { // the sender may send the same again
		if resp := post("first-token", `"deploy":"no"`); resp.Status != 200 || !strings.Contains(resp.Body, "ignored") {
			t.Errorf("answered %d %s", resp.Status, resp.Body)
		}
	}
	post("first-token", `"deploy":"yes"`).WantError(t, 401, "The signature is wrong.")
	if listed := s.AdminRequest("GET", "/hooks/refused", "").Body; !strings.Contains(listed, "was used with another one") {
		t.Errorf("the list is %s", listed)
	}
	post("second-token", `"deploy":"yes","id":"1"`).WantNew(t, 200)
	post("third-token", `"deploy":"yes","id":"1"`) // is left out by once
	post("third-token", `"deploy":"yes","id":"2"`).WantError(t, 401)
	post("fourth-token", `"deploy":"yes","id":"2"`).WantNew(t, 200)
	if ids, _ := s.Listed("?hook=mail"); len(ids) != 2 {
		t.Errorf("there are the runs %v", ids)
	}
	kept, _ := keptRequests(t, s, "")
	if len(kept) == 0 {
		t.Error("no request is kept")
	}
	for _, request := range kept {
		shown := pageOf(t, s).as("alice").api("GET", "refused/requests/"+request.ID, "").Body
		wantNoSecrets(t, "a kept request", shown, "first-token", "third-token", hexSum(loudSecret, at+"first-token"))
		if !strings.Contains(shown, `{\"signature\":\"••••\",\"deploy\"`) {
			t.Errorf("kept is %s", shown)
		}
	}
}
