package caddyhooks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestRefusedRequestsOnTheCommandLine(t *testing.T) {
	s := hookstest.StartSite(t, loudHooks("echo", "hook some {\n only $.event == 'push'\n}"))
	address := strings.TrimPrefix(s.Admin, "http://")
	run := func(args ...string) (out, errs string) {
		t.Helper()
		out, errs, err := command(t, append([]string{"--address", address, "refused"}, args...)...)
		if err != nil {
			t.Errorf("%v: %v %s", args, err, errs)
		}
		return out, errs
	}
	want := func(printed string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(printed, part) {
				t.Errorf("%q is missing in\n%s", part, printed)
			}
		}
	}
	s.Request("POST", "/api/hooks/signed", "{}").WantError(t, 401)
	_, errs := run("--requests")
	want(errs, "caddy hooks set keep_refused 1h")
	if _, errs, err := command(t, "--address", address, "set", "keep_refused", "1h"); err != nil {
		t.Fatal(err, errs)
	}
	s.Request("POST", "/api/hooks/signed", "{\"a\":\"\u202egnp.exe \x1b[31mred\"}", "X-Loud-Signature", "sha256=00", "X-Odd", "\u202eodd").WantError(t, 401)
	loudPost(s, "some", `{"event":"star"}`)
	out, _ := run("--hook", "signed", "--since", "1h")
	want(out, "401", "signed", "127.0.0.1")
	if _, errs := run("--until", "1h"); !strings.Contains(errs, "No such request") {
		t.Errorf("an hour ago: %s", errs)
	}
	out, _ = run("--requests")
	want(out, "ignored: only $.event == 'push'", "the signature has the wrong length or encoding")
	var page struct{ Requests []keptRequest }
	out, _ = run("--requests", "--json", "--hook", "signed")
	if err := json.Unmarshal([]byte(out), &page); err != nil || len(page.Requests) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	out, _ = run(page.Requests[0].ID)
	want(out, "POST /api/hooks/signed", "X-Loud-Signature: ••••", "Headers", "Body")
	if strings.ContainsAny(out, "\u202e\x1b") || !strings.Contains(out, "gnp.exe") {
		t.Errorf("control characters are printed as they are: %q", out)
	}
	if _, errs, err := command(t, "--address", address, "refused", "x", "--requests"); err == nil || !strings.Contains(errs+err.Error(), "not both") {
		t.Errorf("got %v %s", err, errs)
	}
	if _, errs, err := command(t, "--address", address, "refused", "none"); err == nil || !strings.Contains(errs+err.Error(), "there is no refused request") {
		t.Errorf("got %v %s", err, errs)
	}
}

func TestTailShowsRefusedRequests(t *testing.T) {
	s := hookstest.StartSite(t, loudHooks("echo", "hook some {\n only $.event == 'push'\n}"))
	address := strings.TrimPrefix(s.Admin, "http://")
	all := follow(t, "tail", "--address", address)
	some := follow(t, "tail", "--address", address, "--hook", "some", "--json")
	streams(s, 2)
	s.Request("POST", "/api/hooks/signed", "{}").WantError(t, 401)
	all.want(1, "401 the header X-Loud-Signature is missing or empty, from 127.0.0.1")
	loudPost(s, "some", `{"event":"star"}`)
	all.want(1, "200 ignored: only $.event == 'push'")
	some.want(1, `"refused":{"hook":"some","status":200,"ignored":true`)
	s.Request("POST", "/api/hooks/signed", "{}").WantError(t, 401)
	all.want(1, "(2 in all)")
	if printed := some.out.All(); strings.Contains(printed, "signed") {
		t.Errorf("of one hook it shows %s", printed)
	}
	all.end()
	some.end()
}
