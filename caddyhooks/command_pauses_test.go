package caddyhooks_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestOperatorsPauseAndResumeByTheCommandLine(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("done"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "hook github {\n action agent\n}\nrunner claude echo\n"))
	s.Ended(s.Accept(`{"message":"x","chatId":"team deploys"}`))
	hooks := func(args ...string) (out, errs string, err error) {
		t.Helper()
		return command(t, append(args, "--address", s.Admin)...)
	}
	out, errs, err := hooks("pauses")
	wantExit(t, 0, errs, err, "Nothing is paused.")
	if out != "" {
		t.Errorf("printed %q", out)
	}
	for _, args := range []string{"hook github --reason deploy", "chat 'team deploys'", "runner claude", "all"} {
		out, errs, err = hooks(append([]string{"pause"}, shellWords(args)...)...)
		wantExit(t, 0, errs, err)
		if !strings.HasPrefix(out, "paused  ") || !strings.Contains(out, "  0 waiting") || !strings.Contains(out, " resume ") {
			t.Errorf("%s: printed %q", args, out)
		}
	}
	s.Post("/api/hooks/github", `{}`)
	_, errs, err = hooks("resume", "claude", "--rate", "10/s") // there is no such hook
	wantExit(t, 1, errs, err, `there is no hook "claude"`)
	out, errs, err = hooks("resume", "runner", "claude", "--rate", "10/s")
	wantExit(t, 0, errs, err)
	if !strings.HasPrefix(out, "resumed at 10/1s  runner claude") {
		t.Errorf("printed %q", out)
	}
	if got := pausesOf(t, s); len(got) != 4 || got[0].Waiting != 1 || got[1].Name != "team deploys" || got[2].Rate != "10/1s" || got[3].What != "all" || got[0].By == "" {
		t.Errorf("paused is %+v", got)
	}
	out, errs, err = hooks("pauses")
	wantExit(t, 0, errs, err)
	for _, want := range []string{"SINCE", "hook github", "deploy", "at 10/1s", "chat team deploys"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	out, errs, err = hooks("status")
	wantExit(t, 0, errs, err)
	if !strings.Contains(out, "! hook github is paused by ") || !strings.Contains(out, " pauses\n") || !strings.Contains(out, "runner claude is resumed at 10/1s on each node by ") {
		t.Errorf("the status is\n%s", out)
	}
	out, errs, err = hooks("health")
	wantExit(t, 0, errs, err)
	if !strings.Contains(out, "everything is paused by ") {
		t.Errorf("the health is\n%s", out)
	}
	for _, thing := range []string{"github", "chat 'team deploys'", "runner claude", "all"} {
		out, errs, err = hooks(append([]string{"resume"}, shellWords(thing)...)...)
		wantExit(t, 0, errs, err)
		if !strings.HasPrefix(out, "resumed  ") {
			t.Errorf("%s: printed %q", thing, out)
		}
	}
	hookstest.Eventually(t, "the run ends", func() bool {
		ids, _ := s.Listed("?status=completed&hook=github")
		return len(ids) == 1
	})
	if out, _, _ = hooks("pauses", "--json"); strings.Join(strings.Fields(out), "") != `{"pauses":[]}` {
		t.Errorf("printed %s", out)
	}
}

// shellWords splits a line, in which one text may stand in quotes.
func shellWords(line string) (words []string) {
	for _, word := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(word, "'"))
	}
	return words
}

func TestPauseTellsWhatIsWrong(t *testing.T) {
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, nil), "hook github\n"))
	for args, want := range map[string]string{
		"pause":                        "what to pause is missing: hook NAME, chat CHAT, runner NAME or all",
		"resume":                       "what to resume is missing",
		"pause hook":                   "the name of the hook is missing",
		"pause all github":             "all has no name",
		"pause hooks github":           `"hooks" is none of hook, chat, runner and all`,
		"pause hook github now":        `"now" is one argument too many`,
		"resume hook github --rate 10": "--rate must have a time after its slash, as in 10/s",
		"resume hook github --rate ''": "--rate must be a number of runs and a time, as in 10/s",
	} {
		_, errs, err := command(t, append(shellWords(args), "--address", s.Admin)...)
		wantExit(t, 2, errs, err, want)
	}
	for args, want := range map[string]string{
		"pause guthub":       `there is no hook "guthub"; did you mean "github"?`,
		"pause runner claud": `there is no runner "claud"`,
		"resume hook github": `the hook "github" is not paused`,
		"resume all":         "all is not paused",
	} {
		_, errs, err := command(t, append(shellWords(args), "--address", s.Admin)...)
		wantExit(t, 1, errs, err, want)
	}
}
