package caddyhooks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestLiveSettingsSurviveARestart(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	config := "hooks {\n runner http " + rn.URL + "\n}"
	s := hookstest.StartSite(t, config)
	s.PatchSettings(`{"enabled":true,"token":["` + hookstest.Token + `","second"],"memoryPreset":"ops_support","defaultTimeoutSeconds":7,"maxPayloadSize":1234}`)
	s.PutMapping("plain", `{"action":"agent","messageTemplate":"got {a}","metadata":{"k":"v"},"idempotencyHeader":"X-Delivery"}`)
	s.PutMapping("signed", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"secret"}`)
	before := s.AdminRequest("GET", "/hooks/settings", "")
	s.Restart(config)
	if after := s.AdminRequest("GET", "/hooks/settings", ""); after.Body != before.Body {
		t.Errorf("settings were\n%s\nand are\n%s", before.Body, after.Body)
	}
	if resp := s.Request("POST", "/api/hooks/plain", `{"a":1}`, "X-Service-Token", "second"); resp.Status != 202 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	tn := rn.Next()
	tn.WantMemory(t, "ops_support")
	if tn.Text("message") != "got 1" || fmt.Sprint(tn.Body["timeoutSeconds"]) != "7" {
		t.Errorf("the turn is %v", tn.Body)
	}
	if resp := s.Request("POST", "/api/hooks/signed", `{}`, "X-Sig", signature("secret", "{}")); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	s.Request("POST", "/api/hooks/signed", `{}`, "X-Sig", signature("••••", "{}")).WantError(t, 401)
	s.AdminRequest("DELETE", "/hooks/mappings/plain", "")
	s.Restart(config)
	s.Post("/api/hooks/plain", `{}`).WantError(t, 404)
}

// misfits are a configuration under which live settings were made, and another one under which some do not fit any more.
func misfits(t *testing.T) (s *hookstest.Server, fitting, unfitting string) {
	t.Helper()
	t.Setenv("CADDYHOOKS_TEST_SECRET", "from the environment")
	fitting = "hooks {\n enabled\n runner echo\n token " + hookstest.Token + "\n channel team log\n" + hookstest.WithCallbacks + "}"
	unfitting = "hooks {\n enabled\n runner echo\n token " + hookstest.Token + "\n max_timeout 60s\n}"
	s = hookstest.StartSite(t, fitting)
	s.PutMapping("fine", `{"action":"agent","syncResponse":true,"messageTemplate":"fine"}`)
	s.PutMapping("slow", `{"action":"agent","syncResponse":true,"timeoutSeconds":600,"messageTemplate":"slow"}`)
	s.PutMapping("signed", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"{env.CADDYHOOKS_TEST_SECRET}"}`)
	s.PutMapping("routed", `{"action":"agent","deliver":true,"channel":"team","to":"general"}`)
	s.PutMapping("calling", `{"action":"agent","callbackUrl":"http://127.0.0.1:9/"}`)
	s.PatchSettings(`{"defaultTimeoutSeconds":120,"memoryPreset":"general_chat"}`)
	if err := os.Unsetenv("CADDYHOOKS_TEST_SECRET"); err != nil { // Setenv puts it back
		t.Fatal(err)
	}
	return s, fitting, unfitting
}

var theMisfits = [][]string{
	{"defaultTimeoutSeconds", "60"},
	{"hook calling", "callbackUrl"},
	{"hook routed", "channel"},
	{"hook signed", "hmacSecret"},
	{"hook slow", "timeoutSeconds", "60"},
}

func TestLiveSettingsThatDoNotFitAreLeftOutAtAStart(t *testing.T) {
	s, fitting, unfitting := misfits(t)
	s.WantProblems(t)
	s.Restart(unfitting)
	s.WantProblems(t, theMisfits...)
	if resp := s.Post("/api/hooks/fine", `{}`); resp.Status != 200 || resp.Body != "fine" {
		t.Errorf("what fits is answered %d %s", resp.Status, resp.Body)
	}
	settings := s.AdminRequest("GET", "/hooks/settings", "")
	if settings.Field(t, "defaultTimeoutSeconds") != 60.0 || settings.Field(t, "memoryPreset") != "general_chat" {
		t.Errorf("the settings are %s", settings.Body)
	}
	for _, name := range []string{"slow", "signed", "routed", "calling"} {
		s.Request("POST", "/api/hooks/"+name, `{}`, "Authorization", "Bearer "+hookstest.Token, "X-Sig", signature("from the environment", "{}")).WantError(t, 404)
	}

	t.Run("and are no hindrance for other changes", func(t *testing.T) {
		s.PutMapping("another", `{"action":"agent","syncResponse":true,"messageTemplate":"another"}`)
		s.PatchSettings(`{"memoryPreset":"ops_support"}`)
		s.AdminRequest("PUT", "/hooks/mappings/bad", `{"action":"agent","timeoutSeconds":600}`).WantAdminError(t, 400, "timeoutSeconds")
		if resp := s.Post("/api/hooks/another", `{}`); resp.Body != "another" {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		s.WantProblems(t, theMisfits...)
	})
	t.Run("and not for a reload", func(t *testing.T) {
		s.Reload(unfitting + "\nrespond /version new")
		s.WantProblems(t, theMisfits...)
		if resp := s.Post("/api/hooks/fine", `{}`); resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	})
	t.Run("and are kept", func(t *testing.T) {
		s.Restart(unfitting)
		s.WantProblems(t, theMisfits...)
	})
	t.Run("and can be put right", func(t *testing.T) {
		s.PutMapping("slow", `{"action":"agent","syncResponse":true,"timeoutSeconds":60,"messageTemplate":"faster"}`)
		s.PatchSettings(`{"defaultTimeoutSeconds":30}`)
		s.WantProblems(t, theMisfits[1:4]...)
		if resp := s.Post("/api/hooks/slow", `{}`); resp.Body != "faster" {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	})
	t.Run("and can be deleted", func(t *testing.T) {
		if resp := s.AdminRequest("DELETE", "/hooks/mappings/calling", ""); resp.Status != 204 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		s.WantProblems(t, theMisfits[2:4]...)
		s.AdminRequest("DELETE", "/hooks/mappings/calling", "").WantAdminError(t, 404, "calling")
	})
	t.Run("and come back with what they need", func(t *testing.T) {
		t.Setenv("CADDYHOOKS_TEST_SECRET", "from the environment")
		s.Restart(fitting)
		s.WantProblems(t)
		if resp := s.Request("POST", "/api/hooks/signed", `{}`, "X-Sig", signature("from the environment", "{}")); resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	})
}

// Only what nobody has touched since is excused.
func TestChangeThatDoesNotFitIsRefusedAlthoughWhatItReplacesDoesNotFitEither(t *testing.T) {
	s, _, unfitting := misfits(t)
	s.Restart(unfitting)
	s.AdminRequest("PUT", "/hooks/mappings/slow", `{"action":"agent","timeoutSeconds":700}`).WantAdminError(t, 400, "timeoutSeconds")
	s.AdminRequest("PUT", "/hooks/mappings/signed", `{"authMode":"hmac","hmacHeader":"X-Other","hmacSecret":"{env.CADDYHOOKS_TEST_NONE}"}`).WantAdminError(t, 400, "hmacSecret")
	s.AdminRequest("PATCH", "/hooks/settings", `{"defaultTimeoutSeconds":61}`).WantAdminError(t, 400, "defaultTimeoutSeconds")
	s.WantProblems(t, theMisfits...)
}

func TestTokenThatIsNotThereLeavesWebhooksOff(t *testing.T) {
	t.Setenv("CADDYHOOKS_TEST_TOKEN", hookstest.Token)
	s := hookstest.StartSite(t, "hooks {\n enabled\nrunner echo\n}")
	s.PatchSettings(`{"token":"{env.CADDYHOOKS_TEST_TOKEN}"}`)
	s.PutMapping("fine", `{}`)
	if resp := s.Post("/api/hooks/fine", `{}`); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	if err := os.Unsetenv("CADDYHOOKS_TEST_TOKEN"); err != nil {
		t.Fatal(err)
	}
	s.Restart("hooks {\n enabled\nrunner echo\n}")
	s.WantProblems(t, []string{"token"})
	s.Post("/api/hooks/fine", `{}`).WantError(t, 404)
	s.Request("POST", "/api/hooks/fine", `{}`, "Authorization", "Bearer {env.CADDYHOOKS_TEST_TOKEN}").WantError(t, 404)
	s.Request("POST", "/api/hooks/fine", `{}`, "Authorization", "Bearer ").WantError(t, 404)
	s.PatchSettings(`{"token":"` + hookstest.Token + `"}`)
	s.WantProblems(t)
	if resp := s.Post("/api/hooks/fine", `{}`); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
}

func TestLiveSettingsThatDoNotFitRefuseAReload(t *testing.T) {
	s, fitting, unfitting := misfits(t)
	for name, directives := range map[string]string{
		"all": unfitting,
		"one": strings.Replace(fitting, "channel team log", "", 1),
	} {
		if err := s.TryLoad(directives); err == nil || !strings.Contains(err.Error(), "live settings") {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
	s.Settle()
	s.WantProblems(t)
	if resp := s.Post("/api/hooks/slow", `{}`); resp.Status != 200 || resp.Body != "slow" {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	if resp := s.Request("POST", "/api/hooks/signed", `{}`, "X-Sig", signature("from the environment", "{}")); resp.Status != 200 {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
}

func TestLogsHoldNothingOfLiveSettings(t *testing.T) {
	log := filepath.Join(t.TempDir(), "default.log")
	s := hookstest.NewServer(t)
	s.Globals = "log {\n output file " + log + "\n level DEBUG\n}"
	t.Setenv("CADDYHOOKS_TEST_SECRET", loudSecret)
	const fitting, unfitting = "hooks {\n enabled\nrunner echo\n}", "hooks {\n enabled\n runner echo\n max_timeout 60s\n}"
	s.Load(fitting)
	s.PatchSettings(`{"token":"` + loudToken + `"}`)
	s.PutMapping("slow", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"`+loudSecret+`","timeoutSeconds":600,"messageTemplate":"very private words {a}"}`)
	s.PutMapping("gone", `{"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"{env.CADDYHOOKS_TEST_SECRET}","chatId":"very private words"}`)
	if err := s.TryLoad(unfitting); err == nil {
		t.Error("a configuration that does not fit was loaded")
	}
	if err := os.Unsetenv("CADDYHOOKS_TEST_SECRET"); err != nil {
		t.Fatal(err)
	}
	s.Restart(unfitting)
	s.WantProblems(t, []string{"hook gone"}, []string{"hook slow"})
	for _, problem := range s.Problems() {
		wantNoSecrets(t, "a problem", problem, "very private words")
	}
	s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer "+loudToken)
	s.Stop()
	data, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(data), "; left out") {
		t.Fatalf("the log does not speak of what was left out: %v\n%s", err, data)
	}
	wantNoSecrets(t, "the log", string(data), "very private words")
}
