package caddyhooks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

const (
	openTeam    = "channel team log\n"
	limitedTeam = "channel team log {\n allow_to general \"on call\"\n}\n"
	notAllowed  = "is not among the chats"
)

func delivered(to string) string {
	return fmt.Sprintf(`{"action":"agent","message":"a","deliver":true,"channel":"team","to":%q}`, to)
}

// wantDelivery checks how the delivery of a run ends, and returns its id.
func wantDelivery(t *testing.T, s *hookstest.Server, run, status string) (id string) {
	t.Helper()
	hookstest.Eventually(t, "the delivery is "+status, func() bool {
		d := s.Ended(run).Deliveries
		if len(d) == 1 {
			id = d[0].ID
		}
		return len(d) == 1 && d[0].Status == status && (status != "dead" || strings.Contains(d[0].LastError, "allow_to"))
	})
	return id
}

func TestRequestsAndLiveHooksNameAllowedChatsOnly(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("x"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, limitedTeam+`
		channel open log
		hook pinned {
			action agent
			deliver team secret-room
		}`))
	for _, to := range []string{"general", "on call"} {
		wantDelivery(t, s, s.Accept(delivered(to)), "delivered")
		s.PutMapping("live", delivered(to))
	}
	for _, to := range []string{"secret-room", "General", "general ", "on"} {
		for _, resp := range []hookstest.Response{
			s.Post("/api/hooks/agent", delivered(to)),
			s.AdminRequest("PUT", "/hooks/mappings/other", delivered(to)),
			s.AdminRequest("PUT", "/hooks/mappings/live", delivered(to)),
		} {
			if resp.Status != 400 || !strings.Contains(resp.Body, notAllowed) || strings.Contains(resp.Body, "on call") {
				t.Errorf("to %q: got %d %s", to, resp.Status, resp.Body)
			}
		}
	}
	s.AdminRequest("PATCH", "/hooks/settings", `{"mappings":[`+
		`{"name":"pinned","action":"agent","deliver":true,"channel":"team","to":"secret-room"},{"name":"x","action":"agent","deliver":true,"channel":"team","to":"x"}]}`).
		WantAdminError(t, 400, `hook "x"`, notAllowed)
	s.Accept(strings.Replace(delivered("anybody"), "team", "open", 1))
	// A hook of the Caddyfile is the operator's own word.
	run, _ := s.Post("/api/hooks/pinned", `{}`).Field(t, "runId").(string)
	wantDelivery(t, s, run, "delivered")
}

// Chats may be taken from a channel when there are hooks and runs that name them. These stay, and nothing is sent.
func TestChatsThatAreNoLongerAllowedGetNothing(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("x"))
	open, limited := hookstest.Hooks(rn, openTeam), hookstest.Hooks(rn, limitedTeam)
	s := hookstest.StartSite(t, open)
	s.PutMapping("live", delivered("secret-room"))
	s.PutMapping("allowed", delivered("general"))
	start := func(hook string) string {
		t.Helper()
		run, _ := s.Post("/api/hooks/"+hook, `{}`).Field(t, "runId").(string)
		return run
	}
	wantDelivery(t, s, start("live"), "delivered")
	for range 2 {
		s.Restart(limited)
		s.WantProblems(t)
		warnings := fmt.Sprint(s.AdminRequest("GET", "/hooks/settings", "").Field(t, "warnings"))
		if !strings.Contains(warnings, "hook live: its answers are not delivered, because allow_to of channel team") || strings.Contains(warnings, "hook allowed: its") {
			t.Errorf("the warnings are %s", warnings)
		}
		dead := wantDelivery(t, s, start("live"), "dead")
		wantDelivery(t, s, start("allowed"), "delivered")
		// Other hooks and settings can be changed, and so can this one be mended.
		s.PutMapping("allowed", delivered("on call"))
		s.PutMapping("live", delivered("secret-room")) // as it is
		s.Reload(limited)
		s.Reload(open)
		if resp := s.AdminRequest("POST", "/hooks/deliveries/"+dead+"/retry", ""); resp.Status/100 != 2 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		hookstest.Eventually(t, "it is delivered", func() bool { return s.Delivery(dead).Status == "delivered" })
	}
	s.Reload(limited)
	s.PutMapping("live", delivered("general"))
	wantDelivery(t, s, start("live"), "delivered")
}
