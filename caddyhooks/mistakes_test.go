package caddyhooks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// The tests in this file make mistakes that newcomers make, and read what those would read.

// logFile lets a server log to a file, and returns a function that reads it.
func logFile(t *testing.T, s *hookstest.Server) (read func() string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "caddy.log")
	s.Globals = "log {\n output file " + file + "\n format json\n }"
	return func() string {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
}

// GitHub sends a form unless its "Content type" is set to application/json.
func TestFormIsToldToBecomeJSON(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nenabled\nrunner echo\ntoken "+hookstest.Token+"\nhook github {\naction agent\n}\n}")
	const event = `{"text":"a","message":"a","issue":{"title":"It broke"}}`
	var parts bytes.Buffer
	multi := multipart.NewWriter(&parts)
	if err := multi.WriteField("payload", event); err != nil {
		t.Fatal(err)
	}
	multi.Close()
	const form = "application/x-www-form-urlencoded"
	for _, hook := range []string{"wake", "agent", "github"} {
		for _, sent := range [][2]string{
			{form, "payload=" + url.QueryEscape(event)},
			{form, "issue%5Btitle%5D=It+broke&a=b"},
			{"text/plain", "text=a"},
			{multi.FormDataContentType(), parts.String()},
		} {
			resp := s.Post("/api/hooks/"+hook, sent[1], "Content-Type", sent[0])
			resp.WantError(t, 400, "not the JSON", "a form", "choose application/json as the content type in the settings of the sender")
		}
		// curl -d sends the content type of a form with whatever it is given.
		if resp := s.Post("/api/hooks/"+hook, event, "Content-Type", form); resp.Status/100 != 2 {
			t.Errorf("%s: JSON with the content type of a form: got %d %s", hook, resp.Status, resp.Body)
		}
		for _, broken := range []string{`{"text":"a=b"`, `"a=b`, `=`, `--a`, ``} {
			resp := s.Post("/api/hooks/"+hook, broken, "Content-Type", form)
			if resp.WantError(t, 400, "not the JSON"); strings.Contains(resp.Body, "a form") {
				t.Errorf("%s: %s is taken for a form: %s", hook, broken, resp.Body)
			}
		}
	}
}

func TestCallbackThatMustNotBeSentNamesTheLineThatPermitsIt(t *testing.T) {
	s := hookstest.NewServer(t)
	readLog := logFile(t, s)
	config := "hooks {\nenabled\nrunner echo\ntoken " + hookstest.Token + "\n%\n}"
	s.Load(strings.Replace(config, "%", "", 1))
	agent := func(callback string) hookstest.Response {
		return s.Post("/api/hooks/agent", hookstest.AsJSON(t, map[string]string{"message": "a", "callbackUrl": callback}))
	}
	agent("http://127.0.0.1/").WantError(t, 400, "127.0.0.1, which is not a public address", "'allow 127.0.0.1' in the callbacks block")
	agent("http://example.com:9000/").WantError(t, 400, "port 9000", "'ports 80 443 8080 8443 9000' in the callbacks block")
	agent("http://127.0.0.1:9000/").WantError(t, 400, "'allow 127.0.0.1' and 'ports 80 443 8080 8443 9000' in the callbacks block")

	// Where a name leads is known when the callback is sent.
	id := s.CallBack("named", "http://localhost/")
	hookstest.Eventually(t, "the callback is given up", func() bool { return len(s.Deliveries("status=dead")) == 1 })
	const reason = "has an address that is not public; the operator can permit that with 'allow 127.0.0.1 ::1' in the callbacks block"
	if d := s.Deliveries("status=dead")[0]; d.RunID != id || !strings.Contains(d.LastError, reason) {
		t.Errorf("the delivery is %+v", d)
	}
	if log := readLog(); !strings.Contains(log, reason) {
		t.Errorf("the log does not say %q:\n%s", reason, log)
	}

	s.Reload(strings.Replace(config, "%", "callbacks {\nallow 127.0.0.1 ::1\nports 80 443 8080 8443 9000\n}", 1))
	if resp := agent("http://127.0.0.1:9000/"); resp.Status != 202 {
		t.Errorf("with the lines that the error names: got %d %s", resp.Status, resp.Body)
	}
}

const (
	noToken    = "there is no token, so webhooks stay off and answer 404"
	shortToken = "has fewer than 16 characters and can be guessed"
)

// mistaken is a piece of a Caddyfile with mistakes that are allowed.
const mistaken = `
	hook issues {
		model smart
		sync
		template "New: {{issue.title}}"
	}
	hook signed {
		auth hmac X-Hub-Signature a-secret-of-the-hook sha1=
	}`

// wantInLog checks that the log has each text a number of times.
func wantInLog(t *testing.T, log string, times int, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if got := strings.Count(log, text); got != times {
			t.Errorf("the log says %q %d times, want %d:\n%s", text, got, times, log)
		}
	}
}

func TestMistakesInACaddyfileAreToldWhenItIsValidatedAndLoaded(t *testing.T) {
	s := hookstest.NewServer(t)
	warned := []string{
		`"level":"warn"`, `"instance":"default"`, `"setting":"hook issues"`, `"setting":"hook signed"`,
		"model and syncResponse (sync in a Caddyfile) are for agent hooks alone, and this is a wake hook, because it sets no action: set action to agent, or leave them out",
		"messageTemplate (template in a Caddyfile) has {{issue.title}}, which is not replaced: write {issue.title}",
		"hmacPrefix (auth in a Caddyfile) is sha1=, which is that of another algorithm",
	}
	for _, c := range []struct{ settings, warning string }{
		{"enabled\nrunner echo", noToken + ": write 'token <secret>'"},
		{"enabled\nrunner echo\ntoken " + hookstest.Token + " gu3ss-me", shortToken},
		{"enabled\nrunner echo\ntoken {env.HOOKS_TEST_SHORT}", shortToken},
		{"enabled\nrunner echo\ntoken " + hookstest.Token, ""},
	} {
		t.Setenv("HOOKS_TEST_SHORT", "gu3ss-me")
		readLog := logFile(t, s)
		site := "hooks {\n" + c.settings + mistaken + "\n}"
		if err := validate(t, "{\n"+s.Globals+"\n}\n"+s.Site+" {\n"+site+"\n}"); err != nil {
			t.Fatal(err)
		}
		validated := readLog()
		s.Load(site)
		loaded := strings.TrimPrefix(readLog(), validated)
		for when, log := range map[string]string{"validated": validated, "loaded": loaded} {
			// A token may be among the live settings, which only a start knows.
			told := c.warning
			if when == "validated" && strings.HasPrefix(c.warning, noToken) {
				told = "unless a token was saved while Caddy ran, " + told
			}
			for _, text := range append(warned, told) {
				if !strings.Contains(log, text) {
					t.Errorf("%s: the log does not say %s:\n%s", c.settings, text, log)
				}
			}
			want := 3
			if told != "" {
				want = 4
			}
			wantInLog(t, log, want, "a setting is probably a mistake")
			wantInLog(t, log, 0, "gu3ss-me")
		}
		shown := s.AdminRequest("GET", "/hooks/settings", "").Field(t, "warnings").([]any)
		if len(shown) < 3 || c.warning != "" && !strings.Contains(shown[0].(string), c.warning) {
			t.Errorf("%s: the warnings are %q", c.settings, shown)
		}
		s.Stop()
	}
}

func TestATokenThatIsSavedIsNoReasonForAWarning(t *testing.T) {
	s := hookstest.NewServer(t)
	readLog := logFile(t, s)
	s.Load("hooks {\nenabled\nrunner echo\n}")
	wantInLog(t, readLog(), 1, noToken)
	s.PatchSettings(`{"token":"` + hookstest.Token + `"}`)
	s.Restart("hooks {\nenabled\nrunner echo\n}")
	s.Reload("hooks {\nenabled\nrunner echo\nworkers 3\n}")
	wantInLog(t, readLog(), 1, noToken)
}

func TestMistakesThatAreSavedAreToldToWhoeverSavesThem(t *testing.T) {
	s := hookstest.NewServer(t)
	readLog := logFile(t, s)
	s.Load("hooks {\nrunner echo\n}\n")
	wantWarnings := func(resp hookstest.Response, texts ...string) {
		t.Helper()
		if resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		shown, _ := resp.Field(t, "warnings").([]any)
		if len(shown) != len(texts) {
			t.Errorf("the warnings are %q, want %q", shown, texts)
			return
		}
		for i, text := range texts {
			if !strings.Contains(shown[i].(string), text) {
				t.Errorf("the warning %q does not say %q", shown[i], text)
			}
		}
	}
	wantWarnings(s.AdminRequest("GET", "/hooks/settings", ""))
	wantWarnings(s.PatchSettings(`{"enabled":true}`), "enabled: "+noToken+": write 'token <secret>' in the Caddyfile, or set the token with the admin API")
	wantWarnings(s.PatchSettings(`{"token":"gu3ss-me"}`), "token: the token "+shortToken)
	wantWarnings(s.AdminRequest("GET", "/hooks/settings", ""), "token: the token "+shortToken)
	wantWarnings(s.PatchSettings(`{"token":"` + hookstest.Token + `"}`))

	put := func(mapping string) hookstest.Response { return s.AdminRequest("PUT", "/hooks/mappings/a", mapping) }
	wake := put(`{"syncResponse":true,"callbackUrl":"https://example.com"}`)
	wantWarnings(wake, "hook a: syncResponse (sync in a Caddyfile) and callbackUrl (callback_url in a Caddyfile) are for agent hooks alone, and this is a wake hook, because it sets no action: set action to agent")
	wantWarnings(put(wake.Body), "syncResponse (sync in a Caddyfile) and callbackUrl") // what is answered may be sent back
	wantWarnings(put(`{"action":"agent","channel":"ops"}`), "hook a: channel is ignored without deliver: set deliver to true, or leave it out")
	braces := put(`{"messageTemplate":"{{ a }}","authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"s3cret-of-a-hook","hmacPrefix":"md5="}`)
	wantWarnings(braces, "hook a: messageTemplate (template in a Caddyfile) has {{ a }}, which is not replaced: write {a}", "hook a: hmacPrefix (auth in a Caddyfile) is md5=")
	wantWarnings(s.AdminRequest("GET", "/hooks/settings", ""), "messageTemplate (template in a Caddyfile) has {{ a }}", "hmacPrefix (auth in a Caddyfile) is md5=")
	wantWarnings(s.PatchSettings(`{"mappings":[{"name":"b","model":"smart"}]}`), "hook b: model is for agent hooks alone")
	wantWarnings(s.AdminRequest("PUT", "/hooks/mappings/c", `{"action":"agent","model":"smart"}`))

	log := readLog()
	wantInLog(t, log, 1, noToken, shortToken, "syncResponse (sync in a Caddyfile) and callbackUrl", "channel is ignored without deliver", "{{ a }}", "md5=", `"setting":"hook b"`)
	wantInLog(t, log, 0, "gu3ss-me", hookstest.Token, "s3cret-of-a-hook")

	// At the next start the log says it again. A live token is known then, and at a reload.
	s.Restart("hooks {\nrunner echo\n}\n")
	wantInLog(t, strings.TrimPrefix(readLog(), log), 1, "hook b", "a setting is probably a mistake")
	log = readLog()
	s.Reload("hooks {\nenabled\nrunner echo\n}")
	wantInLog(t, strings.TrimPrefix(readLog(), log), 1, "hook b", "a setting is probably a mistake")
}

func TestSavedHookThatTheCaddyfileHidesIsWarnedAbout(t *testing.T) {
	s := hookstest.NewServer(t)
	readLog := logFile(t, s)
	s.Load("hooks {\nrunner echo\n}\n")
	for _, name := range []string{"changed", "copied", "other"} {
		s.AdminRequest("PUT", "/hooks/mappings/"+name, `{"messageTemplate":"saved"}`)
	}
	const site = "hooks {\nhook changed {\ntemplate new\n}\nhook copied {\ntemplate saved\n}\n}"
	const hidden = "hook changed: the saved hook of this name is not used: the Caddyfile has one, too"
	for _, load := range []func(string){s.Reload, s.Restart} {
		log := readLog()
		load(site)
		wantInLog(t, strings.TrimPrefix(readLog(), log), 1, "a setting is probably a mistake", "the saved hook of this name is not used")
		if got := fmt.Sprint(s.AdminRequest("GET", "/hooks/settings", "").Field(t, "warnings")); got != "["+hidden+"]" {
			t.Errorf("got the warnings %s", got)
		}
	}
	// What is sent back has the hook of the Caddyfile, and drops the saved one.
	mappings, err := json.Marshal(s.AdminRequest("GET", "/hooks/settings", "").Field(t, "mappings"))
	if err != nil {
		t.Fatal(err)
	}
	if resp := s.PatchSettings(`{"mappings":` + string(mappings) + `}`); resp.Status != 200 || strings.Contains(resp.Body, "warnings") {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
}

func TestLogIsNotFloodedByWarnings(t *testing.T) {
	s := hookstest.NewServer(t)
	readLog := logFile(t, s)
	var hooks strings.Builder
	for i := range 100 {
		fmt.Fprintf(&hooks, "hook h%d {\nmodel smart\n}\n", i)
	}
	s.Load("hooks {\n" + hooks.String() + "}")
	wantInLog(t, readLog(), 20, "a setting is probably a mistake")
	wantInLog(t, readLog(), 1, `"more":80`)
	if shown := s.AdminRequest("GET", "/hooks/settings", "").Field(t, "warnings").([]any); len(shown) != 100 {
		t.Errorf("%d warnings are shown", len(shown))
	}
}
