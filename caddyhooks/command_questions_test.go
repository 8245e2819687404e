package caddyhooks_test

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestCommandsListAndAnswerQuestions(t *testing.T) {
	s := askingSite(t)
	hooks := func(args ...string) (out, errs string, err error) {
		return command(t, append(args, "--address", strings.TrimPrefix(s.Admin, "http://"))...)
	}
	out, errs, err := hooks("questions")
	wantExit(t, 0, errs, err, "Nobody has to answer anything.")
	if out != "" {
		t.Errorf("printed %q", out)
	}
	id, other := waits(s, `{"message":"deploy"}`), waits(s, `{"message":"free text"}`)
	question := engine.QuestionID(id, 0)
	out, errs, err = hooks("questions")
	wantExit(t, 0, errs, err)
	for _, want := range []string{"ASKED", "yes, no", "any text", question, "May this run start? de"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	out, errs, err = hooks("status")
	wantExit(t, 0, errs, err)
	if !strings.Contains(out, "waiting 2") || !strings.Contains(out, "! 2 questions wait for an answer") || !strings.Contains(out, " questions\n") {
		t.Errorf("the status is\n%s", out)
	}
	out, errs, err = hooks("show", id)
	wantExit(t, 0, errs, err)
	for _, want := range []string{"waiting", "Question " + question, "open", "answers: yes, no", "May this run start?"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, tc := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"answer"}, 2, "what to answer is missing"},
		{[]string{"answer", id}, 2, "the answer is missing"},
		{[]string{"answer", id, "yes", "please"}, 2, "one argument too many"},
		{[]string{"answer", id, "perhaps"}, 2, "one of: yes, no"},
		{[]string{"answer", "019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31", "yes"}, 1, "there is no run"},
		{[]string{"answer", "q_019a86f24c1e7b029d551f0c6c0e7a31_0", "yes"}, 1, "there is no question"},
		{[]string{"answer", "q_019a86f2", "yes"}, 1, "there is no run whose id begins with 019a86f2"},
		{[]string{"answer", "nonsense", "yes"}, 1, "there is no run"},
	} {
		_, errs, err = hooks(tc.args...)
		wantExit(t, tc.code, errs, err, tc.says)
	}
	out, errs, err = hooks("answer", question[:len(question)-6], "yes") // the run has one question, and its id is no other's
	wantExit(t, 0, errs, err)
	if !strings.HasPrefix(out, `answered  "yes" by `) || !strings.Contains(out, "(command)  run "+id) {
		t.Errorf("printed %q", out)
	}
	_, errs, err = hooks("answer", question, "no")
	wantExit(t, 1, errs, err, "answered already at ", `"yes" by `)
	_, errs, err = hooks("answer", id, "no")
	wantExit(t, 1, errs, err, "was answered already: ", `"yes" by `)
	out, errs, err = hooks("answer", other, "Go on.", "--json")
	wantExit(t, 0, errs, err)
	if !strings.Contains(out, `"via": "command"`) {
		t.Errorf("printed %s", out)
	}
	s.Ended(id)
	out, errs, err = hooks("show", id)
	wantExit(t, 0, errs, err)
	if !strings.Contains(out, "Question "+question+"  start  \"yes\" by ") {
		t.Errorf("the run is shown as\n%s", out)
	}
	plain := s.Accept(`{"message":"plain"}`)
	s.Ended(plain)
	_, errs, err = hooks("answer", plain, "yes")
	wantExit(t, 1, errs, err, "has no question for people")
}
