package caddyhooks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestSignWithoutAServer(t *testing.T) {
	const secret = "geheim-geheim"
	t.Setenv("HOOKS_SECRET", "")
	payload := writeInput(t, "issue.json", issuePayload)
	file := writeInput(t, "secret", secret+"\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--auth", "github"}, "X-Hub-Signature-256: sha256=" + hexHMAC(secret, issuePayload) + "\n"},
		{[]string{"--header", "x-signature", "--prefix", "v="}, "X-Signature: v=" + hexHMAC(secret, issuePayload) + "\n"},
		{[]string{"--header", "X-Signature", "--signed", "a.{@body}"}, "X-Signature: " + hexHMAC(secret, "a."+issuePayload) + "\n"},
	} {
		out, errs, err := command(t, append([]string{"sign", "--payload", payload, "--secret-file", file}, c.args...)...)
		wantExit(t, 0, errs, err)
		if out != c.want || errs != "" {
			t.Errorf("%q: got %q and %q, want %q", c.args, out, errs, c.want)
		}
	}

	t.Setenv("HOOKS_SECRET", secret)
	out, errs, err := command(t, "sign", "--payload", payload, "--auth", "slack", "--json")
	wantExit(t, 0, errs, err)
	var signed struct {
		Headers       []struct{ Name, Value string }
		Header, Value string
	}
	if err := json.Unmarshal([]byte(out), &signed); err != nil || len(signed.Headers) != 2 || signed.Header != "X-Slack-Signature" ||
		signed.Value != "v0="+hexHMAC(secret, "v0:"+signed.Headers[0].Value+":"+issuePayload) {
		t.Errorf("%v %s", err, out)
	}
	out, errs, err = command(t, "sign", "--payload", payload, "--auth", "twilio", "--url", "https://example.com/api/hooks/sms")
	wantExit(t, 0, errs, err, "Call https://example.com/api/hooks/sms?bodySHA256=")
	if !strings.HasPrefix(out, "X-Twilio-Signature: ") {
		t.Errorf("got %q", out)
	}
}

func TestSignRefuses(t *testing.T) {
	const secret = "geheim-geheim"
	t.Setenv("HOOKS_SECRET", "")
	payload := writeInput(t, "issue.json", issuePayload)
	file := writeInput(t, "secret", secret)
	empty := writeInput(t, "empty", "\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "whose signature is missing"},
		{[]string{"issues", "--auth", "github"}, 2, "a hook has a scheme already"},
		{[]string{"--auth", "github"}, 2, "--payload is missing"},
		{[]string{"--auth", "github", "--payload", payload}, 2, "the secret of the hook is missing: name a file with it by --secret-file, or set HOOKS_SECRET"},
		{[]string{"--auth", "github", "--payload", payload, "--secret", secret}, 2, "can read the arguments of a command: put the secret of the hook in a file and name that by --secret-file"},
		{[]string{"--auth", "github", "--payload", payload, "--secret-file", empty}, 1, "is empty"},
		{[]string{"--auth", "github", "--payload", payload, "--secret-file", "not-there"}, 1, "open not-there"},
		{[]string{"--auth", "githup", "--payload", payload, "--secret-file", file}, 2, `there is no scheme "githup"; there are bearer, bitbucket`},
		{[]string{"--auth", "hmac", "--payload", payload, "--secret-file", file}, 2, "--header is missing"},
		{[]string{"--auth", "github", "--prefix", "a", "--payload", payload, "--secret-file", file}, 2, "describe an HMAC signature"},
		{[]string{"--auth", "bearer", "--payload", payload, "--secret-file", file}, 2, "requests with auth bearer are not signed"},
		{[]string{"--auth", "telegram", "--payload", payload, "--secret-file", file}, 1, "are not signed: they carry the secret as it is, in the header X-Telegram-Bot-Api-Secret-Token"},
		{[]string{"--auth", "standard", "--payload", payload, "--secret-file", file}, 1, "auth standard: authSecret has a secret that is not base64 after whsec_"},
		{[]string{"--auth", "twilio", "--payload", payload, "--secret-file", file}, 1, "the URL is signed, too, so name it by --url"},
		{[]string{"--header", "X-Sig", "--algorithm", "md5", "--payload", payload, "--secret-file", file}, 1, "sha512"},
		{[]string{"agent", "--payload", payload}, 1, "requests to agent are not signed"},
		{[]string{"issues", "--payload", payload, "--address", "127.0.0.1:1"}, 1, "is Caddy running?"},
	} {
		out, errs, err := command(t, append([]string{"sign"}, c.args...)...)
		wantExit(t, c.code, errs, err, c.want)
		if strings.Contains(out+errs, secret) {
			t.Errorf("%q shows the secret: %s%s", c.args, out, errs)
		}
	}
}

func TestSignForAHookKeepsTheSecretInTheServer(t *testing.T) {
	const secret = "geheim-im-server"
	t.Setenv("HOOKS_SECRET", "")
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "hook issues {\n auth github "+secret+"\n}\nhook open\nhook bot {\n auth telegram "+secret+"\n}"))
	payload := writeInput(t, "issue.json", issuePayload)
	sign := func(args ...string) (out, errs string, err error) {
		return command(t, append([]string{"sign", "--address", s.Admin, "--payload", payload}, args...)...)
	}
	out, errs, err := sign("issues")
	wantExit(t, 0, errs, err)
	name, value, _ := strings.Cut(strings.TrimSpace(out), ": ")
	if resp := s.Request("POST", "/api/hooks/issues", issuePayload, name, value); resp.Status != 200 {
		t.Errorf("the hook answers %d %s to %s", resp.Status, resp.Body, out)
	}
	out, errs, err = sign("issues", "--secret-file", writeInput(t, "secret", "another"))
	wantExit(t, 0, errs, err)
	if out != "X-Hub-Signature-256: sha256="+hexHMAC("another", issuePayload)+"\n" {
		t.Errorf("got %s", out)
	}
	_, errs, err = sign("open")
	wantExit(t, 1, errs, err, "requests to the hook open are not signed: its authMode is bearer")
	_, errs, err = sign("bot")
	wantExit(t, 1, errs, err, "requests to the hook bot are not signed")
	_, errs, err = sign("none")
	wantExit(t, 1, errs, err, `there is no hook "none"`)
	_, errs, err = sign("issues", "--instance", "other")
	wantExit(t, 1, errs, err, `there is no hooks instance "other"; there is default`)
}
