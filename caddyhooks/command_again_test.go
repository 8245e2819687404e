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

	out, errs, err := command(t, "again", ids[0], "--to-chat", "another chat", "--address", s.Admin)
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
	if !strings.Contains(strings.Join(strings.Fields(out), ""), `"done":2,"skipped":{"again":2}`) {
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
		{[]string{"--failed", "--to-chat", "b"}, 2, "--to-chat is for a single run"},
		{[]string{"--failed", "--status", "expired"}, 2, "name statuses by"},
		{[]string{"--hook", ""}, 2, "must not be empty"},
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
	wantExit(t, 2, errs, err, "what to cancel is missing")
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

// A chat that floods is cancelled by one command, and what failed in a time is run again by another.
func TestManyRunsAreCancelledAndRunAgain(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\nhook flood {\n action agent\n chat_id flood\n}"))
	held := s.Accept(`{"message":"hold","chatId":"other"}`)
	hookstest.Eventually(t, "the worker is busy", func() bool { return s.Run(held).Status == "running" })
	for range 20 {
		s.Post("/api/hooks/flood", `{"message":"fail"}`)
	}
	_, errs, err := command(t, "cancel", "--chat", "flood", "--address", s.Admin)
	wantExit(t, 2, errs, err, "20 runs in the chat flood that are queued, running and waiting will be cancelled. But there is no terminal")
	out, seen, err := typed(t, "y\n", "cancel", "--chat", "flood", "--status", "queued", "--since", "1h", "--address", s.Admin)
	wantExit(t, 0, seen, err, "20 runs in the chat flood since", "that are queued will be cancelled. Go on? [y/N]")
	if out != "20 of 20 cancelled\n" {
		t.Errorf("got %s", out)
	}
	if run := s.Run(held); run.Status != "running" {
		t.Errorf("the other run is %s", run.Body)
	}
	close(release)
	s.Ended(held)
	out, errs, err = command(t, "again", "--status", "cancelled", "--hook", "flood", "--yes", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if out != "20 of 20 started\n" {
		t.Errorf("got %s", out)
	}
	_, errs, err = command(t, "again", "--until", "1h", "--address", s.Admin)
	wantExit(t, 0, errs, err, "There is nothing to run again.")
	_, errs, err = command(t, "again", "--status", "queued", "--yes", "--address", s.Admin)
	wantExit(t, 2, errs, err, "again is for completed, failed, timed_out, cancelled and expired")

	out, errs, err = command(t, "bulk", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "again") || !strings.Contains(lines[1], "20 of 20") || !strings.Contains(lines[2], "status=queued") {
		t.Fatalf("got %s", out)
	}
	var list struct{ Bulk []struct{ ID string } }
	out, errs, err = command(t, "bulk", "--json", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Bulk) != 2 {
		t.Fatalf("%v %s", err, out)
	}
	for _, verb := range []string{"stop", "resume"} {
		_, errs, err = command(t, "bulk", verb, list.Bulk[0].ID, "--address", s.Admin)
		wantExit(t, 1, errs, err, "the bulk action has ended")
		_, errs, err = command(t, "bulk", verb, "none", "--address", s.Admin)
		wantExit(t, 1, errs, err, "there is no bulk action")
	}
}
