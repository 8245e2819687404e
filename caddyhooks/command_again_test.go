package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestAgainRunsWhatFailed(t *testing.T) {
	rn, mended := brokenRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "hook issues {\n action agent\n}"))
	var ids []string
	for i := range 3 {
		ids = append(ids, s.Accept(fmt.Sprintf(`{"message":"%d","chatId":"chat of %d"}`, i, i)))
		s.Ended(ids[i])
	}
	s.Ended(s.Post("/api/hooks/issues", `{}`).Field(t, "runId").(string))
	mended.Store(true)

	out, errs, err := command(t, "again", ids[0], "--chat", "another chat", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	wantGolden(t, "again", out, " --address "+s.Admin, "")
	first := lookUp(t, s, ids[0]).AgainAs
	_, errs, err = command(t, "again", ids[0], "--deliver", "--address", s.Admin)
	wantExit(t, 2, errs, err, "The run was run again already, as "+first+", and will be run once more. But there is no terminal")
	_, seen, err := typed(t, "n\n", "again", ids[0], "--address", s.Admin)
	wantExit(t, 1, seen, err, "as "+first+", and will be run once more. Go on? [y/N]", "nothing was done")
	if now := lookUp(t, s, ids[0]).AgainAs; now != first {
		t.Errorf("it was run again as %s, though nobody said yes", now)
	}
	out, errs, err = command(t, "again", ids[0], "--json", "--deliver", "--yes", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	var run map[string]string
	if err := json.Unmarshal([]byte(out), &run); err != nil || run["chatId"] != "chat of 0" {
		t.Errorf("%v %s", err, out)
	}
	s.Ended(run["runId"])

	_, errs, err = command(t, "again", "--failed", "--timed-out", "--address", s.Admin)
	wantExit(t, 2, errs, err, "3 runs that failed and timed out will be run again, and nothing is sent out. But there is no terminal")
	out, seen, err = typed(t, "y\n", "again", "--failed", "--hook", "issues", "--deliver", "--address", s.Admin)
	wantExit(t, 0, seen, err, "1 run of issues that failed will be run again, and the answers are sent out. Go on? [y/N]")
	if out != "1 of 1 started\n" {
		t.Errorf("got %s", out)
	}
	out, errs, err = command(t, "again", "--failed", "--expired", "--yes", "--json", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if strings.Join(strings.Fields(out), "") != `{"started":2}` {
		t.Errorf("got %s", out)
	}
	out, errs, err = command(t, "again", "--failed", "--yes", "--address", s.Admin)
	wantExit(t, 0, errs, err, "There is nothing to run again.")
	if out != "" {
		t.Errorf("got %s", out)
	}
	_, errs, err = command(t, "again", "none", "--address", s.Admin)
	wantExit(t, 1, errs, err, `there is no run "none"`)
}

func TestAgainRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "what to run again is missing"},
		{[]string{"a", "--failed"}, 2, "name one run, or all"},
		{[]string{"a", "--hook", "b"}, 2, "name one run, or all"},
		{[]string{"--failed", "--chat", "b"}, 2, "--chat is for a single run"},
		{[]string{"a", "b"}, 2, "is one argument too many"},
		{[]string{"a"}, 1, "is Caddy running?"},
	} {
		_, errs, err := command(t, append([]string{"again", "--address", "127.0.0.1:1"}, c.args...)...)
		wantExit(t, c.code, errs, err, c.want)
	}
}

func TestCancelEndsARun(t *testing.T) {
	rn, gone, _ := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1"))
	running := s.Accept(`{"message":"hold","chatId":"it's held"}`)
	rn.Next()
	queued := s.Accept(`{"message":"hold","chatId":"waits"}`)
	out, errs, err := command(t, "cancel", queued, "--address", s.Admin)
	wantExit(t, 0, errs, err)
	wantGolden(t, "cancel", out, " --address "+s.Admin, "")
	out, errs, err = command(t, "cancel", running, "--json", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	var run map[string]any
	if err := json.Unmarshal([]byte(out), &run); err != nil || run["runId"] != running {
		t.Errorf("%v %s", err, out)
	}
	if id := hookstest.ReceiveWithin(t, "the runner is told", gone); id != running {
		t.Errorf("%s was cancelled, want %s", id, running)
	}
	s.Ended(running)
	_, errs, err = command(t, "cancel", running, "--address", s.Admin)
	wantExit(t, 0, errs, err)
	ended := s.Accept(`{"message":"hello"}`)
	s.Ended(ended)
	_, errs, err = command(t, "cancel", ended, "--address", s.Admin)
	wantExit(t, 1, errs, err, "the run has ended already: it is completed")
	_, errs, err = command(t, "cancel", "none", "--address", s.Admin)
	wantExit(t, 1, errs, err, `there is no run "none"`)
	_, errs, err = command(t, "cancel", "--address", s.Admin)
	wantExit(t, 2, errs, err, "the id of the run is missing: caddy hooks cancel RUN-ID")
}

func TestTrySendsNothingOut(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("hello\n\x1b[31mred"))
	rc := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks+`hook issues {
		action agent
		auth github geheim
		template "{@header.X-GitHub-Event} {@query.a} {issue.number}"
		callback_url `+rc.URL+`
		skip "$.issue.number == 1"
	}`))
	payload := writeInput(t, "issue.json", issuePayload)
	out, errs, err := command(t, "try", "issues", "--payload", payload, "--header", "X-GitHub-Event: issues", "--query", "a=b", "--address", s.Admin, "--wait")
	wantExit(t, 0, errs, err)
	wantGolden(t, "try", out, " --address "+s.Admin, "")
	if got := rn.Next().Text("message"); got != "issues b 1207" {
		t.Errorf("the message is %q", got)
	}
	out, errs, err = command(t, "try", "issues", "--payload", payload, "--address", s.Admin, "--json")
	wantExit(t, 0, errs, err)
	var run map[string]string
	if err := json.Unmarshal([]byte(out), &run); err != nil || run["chatId"] != "test:issues" {
		t.Errorf("%v %s", err, out)
	}
	s.Ended(run["runId"])
	if len(rc.Got) > 0 {
		t.Error("a callback was sent")
	}
	_, errs, err = command(t, "try", "issues", "--payload", writeInput(t, "one.json", `{"issue":{"number":1}}`), "--address", s.Admin)
	wantExit(t, 1, errs, err, "the hook ignores this payload")
	_, errs, err = command(t, "try", "wake", "--payload", payload, "--address", s.Admin)
	wantExit(t, 1, errs, err, "wake has no template to try: send it with caddy hooks --address "+s.Admin+" send wake --payload ")
	_, errs, err = command(t, "try", "none", "--payload", payload, "--address", s.Admin)
	wantExit(t, 1, errs, err, `there is no hook "none"`)
	_, errs, err = command(t, "try", "issues", "--address", "127.0.0.1:1")
	wantExit(t, 2, errs, err, "--payload is missing")
}
