package caddyhooks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestHookIsPutEditedAndDeleted(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nhook pinned {\n action agent\n}\n}")
	hook := func(args ...string) (out, errs string, err error) {
		t.Helper()
		return command(t, append([]string{"hook", "--address", s.Admin}, args...)...)
	}
	file := writeInput(t, "issues.json", `{"action":"agent","authMode":"github","authSecret":"geheim-von-github","messageTemplate":"{issue.title}"}`)
	out, errs, err := hook("put", "issues", "-f", file, "--create")
	wantExit(t, 0, errs, err)
	wantGolden(t, "hook-put", out+"--- stderr\n"+errs, " --address "+s.Admin, "", s.URL, "https://example.com")
	_, errs, err = hook("put", "issues", "-f", file, "--create")
	wantExit(t, 1, errs, err, "there is a hook issues already: leave --create out to change it")

	// One operator edits while another one does, too.
	mine, errs, err := hook("get", "issues")
	wantExit(t, 0, errs, err)
	var shown map[string]string
	if err := json.Unmarshal([]byte(mine), &shown); err != nil || !strings.HasPrefix(shown["etag"], `"`) || shown["authSecret"] != "••••" {
		t.Fatalf("%v %s", err, mine)
	}
	theirs := strings.Replace(mine, "{issue.title}", "theirs {issue.title}", 1)
	mine = strings.Replace(mine, "{issue.title}", "mine {issue.title}", 1)
	_, errs, err = hook("put", "issues", "-f", writeInput(t, "theirs.json", theirs))
	wantExit(t, 0, errs, err)
	_, errs, err = hook("put", "issues", "-f", writeInput(t, "mine.json", mine))
	wantExit(t, 1, errs, err, "the hook issues was changed by ", "nothing was saved", "caddy hooks --address "+s.Admin+" hook get issues")
	s.AdminRequest("GET", "/hooks/mappings/issues", "").WantMembers(t, `{"messageTemplate":"theirs {issue.title}"}`)
	if resp := s.AdminRequest("POST", "/hooks/mappings/issues/sign", "a"); resp.Field(t, "value") != "sha256="+signature("geheim-von-github", "a") {
		t.Errorf("the secret was not kept: %s", resp.Body)
	}

	// What is put back as it was changes nothing, also if the Caddyfile sets it.
	for _, name := range []string{"issues", "pinned"} {
		same, errs, err := hook("get", name)
		wantExit(t, 0, errs, err)
		out, errs, err := hook("put", name, "-f", writeInput(t, "same.json", same))
		wantExit(t, 0, errs, err)
		if !strings.HasPrefix(out, "unchanged  hook "+name+"  ") {
			t.Errorf("said %s", out)
		}
	}

	for _, c := range []struct {
		text string
		code int
		want string
	}{
		{`{"messageTemplate":"{$.a[}","only":["nonsense"]}`, 1, "messageTemplate is refused"},
		{`{"messageTemplate":"{$.a[}","only":["nonsense"]}`, 1, "Problem: only is refused"},
		{`{"actoin":"agent"}`, 1, "did you mean action?"},
		{`{"action":"agent","action":"wake"}`, 1, "is not the JSON of a hook"},
		{`{"etag":1}`, 1, "etag must be a string"},
		{`[]`, 1, "is not the JSON of a hook"},
		{`{"etag":"no tag"}`, 1, "If-Match must be"},
		{`{"name":"other"}`, 1, "name must be issues"},
		{`{"authMode":"github","authSecret":["geheim-1","geheim-2",7]}`, 1, "authSecret must be a string or an array of strings"},
	} {
		_, errs, err = hook("put", "issues", "-f", writeInput(t, "bad.json", c.text))
		wantExit(t, c.code, errs, err, c.want)
		if strings.Contains(errs, "geheim") {
			t.Errorf("a secret is shown: %s", errs)
		}
	}
	for _, name := range []string{"", `"name":"issues",`} { // what is wrong is said once, and no more than that
		_, errs, err = hook("put", "issues", "-f", writeInput(t, "bad.json", "{"+name+`"action":"agent","rate":"5 per hour"}`))
		if wantExit(t, 1, errs, err, "rate must be"); strings.Contains(errs, "Problem: ") {
			t.Errorf("said %s", errs)
		}
	}
	_, errs, err = hook("put", "issues")
	wantExit(t, 2, errs, err, "-f is missing")
	_, errs, err = hook("put", "issues", "-f", "not-there.json")
	wantExit(t, 1, errs, err, "reading the hook: open not-there.json")
	_, errs, err = hook("put", "pinned", "-f", writeInput(t, "a.json", `{"action":"wake"}`))
	wantExit(t, 1, errs, err, "the hook pinned is set by Caddy's configuration")

	_, errs, err = hook("rm", "pinned", "--yes")
	wantExit(t, 1, errs, err, "the hook pinned is set by Caddy's configuration, and can only be changed there")
	_, errs, err = hook("rm", "issues")
	wantExit(t, 2, errs, err, "The hook issues will be deleted, and requests to it answered 404. But there is no terminal")
	_, seen, err := typed(t, "y\n", "hook", "rm", "issues", "--address", s.Admin)
	wantExit(t, 0, seen, err, "Go on? [y/N] ", "The hook issues is deleted.")
	for _, verb := range []string{"get", "rm"} {
		_, errs, err = hook(verb, "issues")
		wantExit(t, 1, errs, err, `there is no hook "issues"`)
	}
	_, errs, err = hook("put", "two", "-f", "-")
	wantExit(t, 1, errs, err, "- is not the JSON of a hook")
	_, errs, err = hook("put", "three", "-f", writeInput(t, "three.json", `{}`), "--json")
	wantExit(t, 0, errs, err)
	out, errs, err = hook("rm", "three", "--yes", "--json")
	wantExit(t, 0, errs, err)
	if strings.Join(strings.Fields(out), "") != `{"deleted":"three"}` {
		t.Errorf("got %s", out)
	}
}
