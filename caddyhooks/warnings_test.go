package caddyhooks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func warningsOf(t *testing.T, s *hookstest.Server) (list []api.Warning) {
	t.Helper()
	resp := s.AdminRequest("GET", "/hooks/warnings", "")
	var shown api.WarningList
	if err := json.Unmarshal([]byte(resp.Body), &shown); err != nil || resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	return shown.Warnings
}

func TestWarningsAreDismissedUntilTheyChange(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	s.PutMapping("issues", `{"action":"wake","model":"smart","messageTemplate":"{a}"}`)
	list := warningsOf(t, s)
	if len(list) != 1 || list[0].Setting != "hook issues" || list[0].Dismissal != nil || list[0].Link != "#/settings/hooks/issues" {
		t.Fatalf("the warnings are %+v", list)
	}
	path := "/hooks/warnings/" + list[0].Code + "/dismissal"
	for body, want := range map[string]string{
		`{}`: "reason must say why", `{"reason":" "}`: "reason must say why", `{"reason":"a\nb"}`: "one line", `{"why":"x"}`: "use reason",
		`{"reason":"` + strings.Repeat("x", 201) + `"}`: "200 bytes", `x`: "not the JSON",
	} {
		s.AdminRequest("PUT", path, body).WantAdminError(t, 400, want)
	}
	s.AdminRequest("PUT", "/hooks/warnings/none/dismissal", `{"reason":"x"}`).WantAdminError(t, 404, `there is no warning "none" now`)
	s.AdminRequest("DELETE", path, "").WantAdminError(t, 404, "is dismissed")

	attention := func() (items int, dismissed string) {
		t.Helper()
		resp := s.AdminRequest("GET", "/hooks/overview", "")
		var o api.Overview
		_ = json.Unmarshal([]byte(strings.ReplaceAll(resp.Body, `"points"`, `"ignored"`)), &o)
		for _, item := range o.Attention {
			if item.Kind == "warning" {
				items++
			}
		}
		for _, w := range o.Dismissed {
			dismissed += w.Setting + " by " + w.Dismissal.By + ": " + w.Dismissal.Reason
		}
		return items, dismissed
	}
	if items, dismissed := attention(); items != 1 || dismissed != "" {
		t.Errorf("%d warnings need attention, dismissed: %q", items, dismissed)
	}
	if resp := s.AdminRequest("PUT", path, `{"reason":" kept for the new agent "}`, "Hooks-Operator", "ann"); resp.Status != 200 || !strings.Contains(resp.Body, `"reason":"kept for the new agent"`) {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	isDismissed := func() {
		t.Helper()
		if items, dismissed := attention(); items != 0 || dismissed != "hook issues by ann: kept for the new agent" {
			t.Errorf("%d warnings need attention, dismissed: %q", items, dismissed)
		}
		shown := s.AdminRequest("GET", "/hooks/settings", "").Body
		if strings.Contains(shown, `"warnings"`) || !strings.Contains(shown, `"dismissed":["hook issues: model is for agent hooks alone`) {
			t.Errorf("the settings are %s", shown)
		}
	}
	isDismissed()
	s.Restart(hookstest.Hooks(rn, ""))
	isDismissed()
	if changes := s.AdminRequest("GET", "/hooks/changes", "").Body; !strings.Contains(changes, `"what":"warnings/`+list[0].Code) || !strings.Contains(changes, "kept for the new agent") {
		t.Errorf("the changes are %s", changes)
	}

	out, errs, err := command(t, "status", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if !strings.Contains(out, "1 warning is dismissed") {
		t.Errorf("status prints\n%s", out)
	}
	out, errs, err = command(t, "warnings", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if !strings.Contains(out, list[0].Code+"  dismissed by ann ") || !strings.Contains(out, "(kept for the new agent)") {
		t.Errorf("warnings prints\n%s", out)
	}
	_, errs, err = command(t, "dismiss", list[0].Code, "--address", s.Admin)
	wantExit(t, 2, errs, err, "either --reason")
	_, errs, err = command(t, "dismiss", list[0].Code, "--undo", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if items, dismissed := attention(); items != 1 || dismissed != "" {
		t.Errorf("after it was brought back %d warnings need attention, dismissed: %q", items, dismissed)
	}
	_, errs, err = command(t, "dismiss", list[0].Code, "--reason", "still known", "--address", s.Admin)
	wantExit(t, 0, errs, err)

	// Another text is another warning.
	s.PutMapping("issues", `{"action":"wake","model":"smart","syncResponse":true,"messageTemplate":"{a}"}`)
	if items, dismissed := attention(); items != 1 || dismissed != "" {
		t.Errorf("after a change %d warnings need attention, dismissed: %q", items, dismissed)
	}
}
