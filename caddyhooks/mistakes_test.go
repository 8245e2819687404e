package caddyhooks_test

import (
	"bytes"
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
	s := hookstest.StartSite(t, "hooks {\nenabled\ntoken "+hookstest.Token+"\nhook github {\naction agent\n}\n}")
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
	config := "hooks {\nenabled\ntoken " + hookstest.Token + "\n%\n}"
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
	const reason = "has an address that is not public; the operator can permit that with 'allow <address>' in the callbacks block"
	if d := s.Deliveries("status=dead")[0]; d.RunID != id || !strings.Contains(d.LastError, reason) {
		t.Errorf("the delivery is %+v", d)
	}
	if log := readLog(); !strings.Contains(log, reason) {
		t.Errorf("the log does not say %q:\n%s", reason, log)
	}

	s.Reload(strings.Replace(config, "%", "callbacks {\nallow 127.0.0.1\nports 80 443 8080 8443 9000\n}", 1))
	if resp := agent("http://127.0.0.1:9000/"); resp.Status != 202 {
		t.Errorf("with the lines that the error names: got %d %s", resp.Status, resp.Body)
	}
}
