package caddyhooks_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// lookingVerbs are all that look and end, with arguments that find something.
func (look *lookedAt) lookingVerbs() [][]string {
	return [][]string{
		{"status"}, {"list"}, {"show", "issues"}, {"show", "wake"}, {"show", look.completed}, {"show", look.failed[:18]}, {"show", look.dead}, {"show", look.dead[:30]},
		{"runs"}, {"runs", "--limit", "0"}, {"runs", "--search", "hello"}, {"runs", "--chat", "greetings", "--since", "1h"}, {"chat"}, {"chat", "greetings"}, {"chat", "--since", "yesterday"}, {"runs", "--since", "yesterday"}, {"runs", "--sort", "duration"},
		{"deliveries"}, {"deliveries", "--host", look.receiver}, {"deliveries", "--since", "2026-01-31 15:04"}, {"changes"}, {"refused"}, {"runners"}, {"health"},
		{"export", "--of", "runs"}, {"export", "--of", "chat", "--chat", "greetings"}, {"export", "--of", "deliveries", "--status", "dead"},
	}
}

func TestVerbsThatLookOverTCPAndASocket(t *testing.T) {
	look := lookAt(t)
	printed := make(map[string]string)
	for _, place := range []string{"TCP", "a socket"} {
		if place == "a socket" {
			socket := "unix/" + filepath.Join(t.TempDir(), "admin.sock")
			look.Admin, look.address = socket, socket
			look.Load(look.config)
		}
		for _, args := range look.lookingVerbs() {
			name := strings.Join(args, " ")
			out, _ := look.command(t, args...)
			out = steady(out)
			switch {
			case out == "":
				t.Errorf("caddy hooks %s prints nothing over %s", name, place)
			case place == "TCP":
				printed[name] = out
			case args[0] != "status" && args[0] != "health" && out != printed[name]: // which may count another minute
				t.Errorf("caddy hooks %s prints, over %s,\n%s\nwant\n%s", name, place, out, printed[name])
			}
			if strings.Contains(out, "look-secret") {
				t.Errorf("caddy hooks %s shows a secret", name)
			}
			if args[0] == "export" {
				continue
			}
			var value any
			look.json(t, &value, args...)
		}
	}
}

func TestJSONOfVerbsThatLook(t *testing.T) {
	look := lookAt(t)
	type runs struct {
		Runs   []struct{ RunID string }
		Cursor string
	}
	var whole, paged, first runs
	look.json(t, &whole, "runs")
	look.json(t, &first, "runs", "--limit", "1")
	if len(whole.Runs) != 4 || len(first.Runs) != 1 || first.Cursor == "" || whole.Cursor != "" {
		t.Errorf("got %+v and %+v", whole, first)
	}
	look.json(t, &paged, "runs", "--search", "hello", "--limit", "0")
	if len(paged.Runs) != 1 || paged.Runs[0].RunID != look.completed {
		t.Errorf("got %+v", paged)
	}
	var status struct {
		Instances []struct {
			Instance string
			About    struct{ On bool }
			Overview struct {
				Figures struct{ Accepted int }
				Series  []any
				Hooks   []struct {
					Name   string
					Points []any
				}
			}
		}
	}
	look.json(t, &status, "status")
	if len(status.Instances) != 1 || !status.Instances[0].About.On || status.Instances[0].Overview.Figures.Accepted != 4 ||
		len(status.Instances[0].Overview.Hooks) == 0 || status.Instances[0].Overview.Series != nil || status.Instances[0].Overview.Hooks[0].Points != nil {
		t.Errorf("got %+v", status)
	}
	var run struct{ RunID, Reply string }
	look.json(t, &run, "show", look.completed[:18])
	if run.RunID != look.completed || run.Reply != "Say hello" {
		t.Errorf("got %+v", run)
	}
	var hooks []struct {
		Name     string
		Accepted int
	}
	look.json(t, &hooks, "list")
	if len(hooks) != 5 || hooks[1].Name != "agent" || hooks[1].Accepted != 3 {
		t.Errorf("got %+v", hooks)
	}
}

func TestPagesBecomeOneList(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 8\nstore memory"))
	const n = 1005 // more than a page has
	for range n {
		s.Post("/api/hooks/wake", `{"text":"again"}`)
	}
	look := &lookedAt{Server: s, address: strings.TrimPrefix(s.Admin, "http://")}
	var list struct {
		Runs   []struct{ RunID string }
		Cursor string
	}
	look.json(t, &list, "runs", "--limit", "0")
	ids := make(map[string]bool)
	for _, run := range list.Runs {
		ids[run.RunID] = true
	}
	if len(list.Runs) != n || len(ids) != n || list.Cursor != "" {
		t.Errorf("got %d runs, %d of them different, and the cursor %q", len(list.Runs), len(ids), list.Cursor)
	}
	if out, errs := look.command(t, "runs", "--limit", "1002"); strings.Count(out, "\n") != 1003 || strings.Count(out, "ACCEPTED") != 1 || !strings.Contains(errs, "There are more") {
		t.Errorf("got %d lines, %s", strings.Count(out, "\n"), errs)
	}
}

func TestVerbsThatLookWithoutAServer(t *testing.T) {
	t.Parallel()
	look := &lookedAt{address: "127.0.0.1:" + hookstest.FreePort(t), completed: "01a1e59e-593a-76be-9b83-dbae2c2df03a", failed: "01a1e59e-593a-76be-9b83-dbae2c2df03a", dead: "msg_01a1e59e593a76be9b83dbae2c2df03a_0"}
	for _, args := range append(look.lookingVerbs(), []string{"tail"}, []string{"runs", "--follow"}) {
		out, errs, err := command(t, append(args, "--address", look.address)...)
		if err == nil || !strings.Contains(err.Error(), "cannot be reached") || !strings.Contains(err.Error(), "is Caddy running?") || out != "" {
			t.Errorf("caddy hooks %s: got %v %s %s", strings.Join(args, " "), err, out, errs)
		}
	}
}

func TestWrongUsageOfVerbsThatLook(t *testing.T) {
	look := lookAt(t)
	for _, c := range []struct {
		args  string
		want  string
		usage bool
	}{
		{"show", "what to show is missing: caddy hooks show HOOK|RUN-ID|DELIVERY-ID", true},
		{"show a b", `"b" is one argument too many`, true},
		{"statu", `there is no verb "statu"; did you mean status?`, true},
		{"nonsense", `there is no verb "nonsense"; use `, true},
		{"token retir", "did you mean retire?", true},
		{"runs failed", "runs takes no argument: did you mean --status failed?", true},
		{"export runs", "export takes no argument: did you mean --of runs?", true},
		{"list 6h", "list takes no argument: did you mean --range 6h?", true},
		{"runs --stats failed", "there is no flag --stats; did you mean --status?", true},
		{"runs --nonsense", "unknown flag: --nonsense", true},
		{"retry --wait soon", `--wait must be a duration such as 10s, and not "soon"`, true},
		{"show nothing", `there is no hook "nothing"`, false},
		{"show 00000000-0000-7000-8000-000000000000", `there is no run "00000000-0000-7000-8000-000000000000"`, false},
		{"show " + look.completed[:8] + "-0000", "there is no run whose id begins with", false},
		{"show msg_", "there is no delivery whose id begins with msg_", false},
		{"runs --limit -1", "--limit must be a number of rows", true},
		{"runs --limit many", `--limit must be a number, and not "many"`, true},
		{"runs --status bad", "status must be one of queued", true},
		{"runs --since tomorrow", "--since must be a time: 2h or 7d back from now, 10:00, today, yesterday, 2026-01-31", true},
		{"deliveries --since 1h --until 1h", "since must be before until", true},
		{"runs --sort duration --follow", "--sort must be duration, and does not go with --follow", true},
		{"runs --sort hook", "--sort must be duration", true},
		{"chat greetings --since 1h", "list chats with --since", true},
		{"deliveries --status deaad", "status must be one of pending", true},
		{"runs --address " + strings.TrimPrefix(look.URL, "http://"), "this is the address of a site and not of the admin endpoint", false},
		{"export --of runs -o /no-such-folder/runs.jsonl", "there is no folder /no-such-folder", false},
		{"backup /no-such-folder/hooks.db", "there is no folder /no-such-folder", false},
		{"runs --address /run/admin.sock", `a socket is written unix//run/admin.sock`, true},
		{"runs --hook=", "--hook must not be empty", true},
		{"runs here", `runs takes no argument, and got "here"`, true},
		{"status --range 2h", "--range must be one of 1h, 6h, 24h and 7d", true},
		{"status --instance nope", `there is no hooks instance "nope"; there is default`, false},
		{"health --instance nope", `there is no hooks instance "nope"; there is default`, false},
		{"runs --instance nope", `there is no hooks instance "nope"; there is default`, false},
		{"export", "--of must be one of runs, chat and deliveries", true},
		{"export --of runs --format xml", "--format must be jsonl, or csv", true},
		{"export --of runs --host a", "--host does not go with --of runs", true},
		{"export --of chat", "say which chat by --chat", true},
		{"export --of runs --status dead", "status must be one of queued", true},
	} {
		out, errs, err := command(t, append([]string{"--address", look.address}, strings.Fields(c.args)...)...)
		text := errs
		if err != nil {
			text += err.Error()
		}
		if err == nil || !strings.Contains(text, c.want) || c.usage != strings.Contains(errs, "More: ") || out != "" {
			t.Errorf("caddy hooks %s: got %v %s %s, want %s", c.args, err, out, errs, c.want)
		}
	}
}

func TestNamesThatNobodyHas(t *testing.T) {
	look := lookAt(t)
	for args, want := range map[string]string{
		"runs --hook isues":           "There is no hook isues now; did you mean issues?",
		"runs --hook ring,nonsense":   "", // there are runs of ring
		"runs --hook wake":            "",
		"runs --runner defalut":       "There is no runner defalut now; did you mean default?",
		"refused --hook nonsense":     "There is no hook nonsense now; there is wake, agent, issues, ring and saved",
		"deliveries --channel nobody": "There is no channel nobody now; there is none",
	} {
		_, errs := look.command(t, strings.Fields(args)...)
		if strings.Contains(errs, "There is no ") != (want != "") || !strings.Contains(errs, want) {
			t.Errorf("caddy hooks %s says %q, want %q", args, errs, want)
		}
	}
	for _, verb := range []string{"tail", "runs --follow"} {
		f := follow(t, append(strings.Fields(verb), "--hook", "isues", "--address", look.address)...)
		hookstest.Eventually(t, "the name is told", func() bool { return strings.Contains(f.errs.All(), "There is no hook isues now; did you mean issues?") })
		f.end()
	}
}

func TestBeginningsOfIDs(t *testing.T) {
	look := lookAt(t)
	if out, _ := look.command(t, "again", look.failed[:18]); !strings.HasPrefix(out, "started  run ") {
		t.Errorf("again prints %s", out)
	}
	if _, _, err := command(t, "cancel", look.completed[:18], "--address", look.address); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("cancel: %v", err)
	}
	if out, _ := look.command(t, "retry", look.dead[:30], "--wait", "0s"); !strings.HasPrefix(out, "1 of 1 put back") {
		t.Errorf("retry prints %s", out)
	}
	hookstest.Eventually(t, "it is given up again", func() bool { return len(look.Deliveries("status=dead")) == 1 })
	if out, _ := look.command(t, "drop", look.dead[:30], "--yes"); !strings.HasPrefix(out, "1 of 1 dropped") {
		t.Errorf("drop prints %s", out)
	}
	for _, verb := range []string{"again", "cancel"} {
		if _, _, err := command(t, verb, look.completed[:8]+"-0000", "--address", look.address); err == nil || !strings.Contains(err.Error(), "there is no run whose id begins with") {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

func TestARunnerThatIsUnreachableIsToldOnce(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nenabled\ntoken "+hookstest.Token+"\nrunner http http://127.0.0.1:"+hookstest.FreePort(t)+"\n}")
	look := &lookedAt{Server: s, address: strings.TrimPrefix(s.Admin, "http://")}
	s.Accept(`{"message":"hello"}`)
	hookstest.Eventually(t, "the runner is found to be unreachable", func() bool {
		_, _, err := command(t, "health", "--address", look.address)
		return err != nil
	})
	hookstest.Eventually(t, "status tells it once", func() bool {
		out, _ := look.command(t, "status")
		return strings.Count(out, "\n! ") == 1 && strings.Contains(out, "out of reach") && strings.Contains(out, "caddy hooks --address "+look.address+" runners")
	})
}

func TestSeveralInstances(t *testing.T) {
	s := hookstest.StartSite(t, "hooks ops {\npath /ops\nrunner echo\n}\nhooks night {\npath /night\nstore memory\nrunner echo\n}")
	look := &lookedAt{Server: s, address: strings.TrimPrefix(s.Admin, "http://")}
	look.golden(t, "status-instances", "status")
	look.golden(t, "status-instance", "status", "--instance", "ops")
	look.golden(t, "list-none", "list", "--instance", "ops")
	look.golden(t, "chat-nobody", "chat", "--instance", "ops")
	look.golden(t, "runs-nothing", "runs", "--instance", "ops")
	look.golden(t, "changes-none", "changes", "--instance", "ops")
	look.golden(t, "health-instances", "health")
	if _, errs, err := command(t, "runs", "--address", look.address); err == nil || !strings.Contains(errs, "choose one of them by --instance: night and ops") {
		t.Errorf("got %v %s", err, errs)
	}
}

func TestAnInstanceThatWaitsForItsStore(t *testing.T) {
	t.Setenv("HOOKS_TEST_DSN", "host=127.0.0.1 port="+hookstest.FreePort(t)+" user=hooks password=geheimnis sslmode=disable")
	s := hookstest.NewServer(t)
	s.Load("hooks {\nstore postgres {env.HOOKS_TEST_DSN}\n}\nhooks ops {\npath /ops\nstore memory\n}")
	address := strings.TrimPrefix(s.Admin, "http://")
	out, errs, err := command(t, "health", "--address", address)
	if err == nil || err.Error() != "not ready: default" || !strings.Contains(out, "default  not ready                the store cannot be reached: ") || !strings.Contains(out, "ops      ready, webhooks are off\n") {
		t.Errorf("health: %v %s %s", err, out, errs)
	}
	if out, _, err := command(t, "health", "--instance", "ops", "--address", address); err != nil || out != "ops  ready, webhooks are off\n" {
		t.Errorf("health of ops: %v %s", err, out)
	}
	if out, _, err := command(t, "health", "--live", "--address", address); err != nil || !strings.HasPrefix(out, "default  live  the store cannot be reached: ") {
		t.Errorf("health --live: %v %s", err, out)
	}
	out, _, err = command(t, "status", "--address", address)
	if err != nil || !strings.HasPrefix(out, "default   not ready\n! the store cannot be reached: ") || !strings.Contains(out, "\n\nops       off   ") {
		t.Errorf("status: %v %s", err, out)
	}
	if out, _, err := command(t, "status", "--json", "--address", address); err != nil || !json.Valid([]byte(out)) || strings.Contains(out, "geheimnis") {
		t.Errorf("status --json: %v %s", err, out)
	}
	if _, _, err := command(t, "runs", "--instance", "default", "--address", address); err == nil || !strings.Contains(err.Error(), `the hooks instance "default" is not ready: the store cannot be reached`) {
		t.Errorf("runs: %v", err)
	}
}

func TestHostileTextsInATerminal(t *testing.T) {
	const hostile = "\x1b[31mred \u202egnp.exe\u202c \x07bell\r\nsecond\tline \u009b2J"
	rn := hookstest.StartRunner(t, hookstest.ReplyText(hostile+strings.Repeat(" long", 10_000)))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	look := &lookedAt{Server: s, address: strings.TrimPrefix(s.Admin, "http://")}
	tail := follow(t, "tail", "--address", look.address)
	streams(s, 1)
	id := s.Accept(hookstest.AsJSON(t, map[string]any{"message": hostile, "chatId": "chat \u202e" + strings.Repeat("x", 100), "metadata": map[string]string{"a": hostile}}))
	s.Ended(id)
	tail.want(1, "completed")
	tail.end()
	printed := tail.out.All() + tail.errs.All()
	for _, args := range [][]string{{"runs"}, {"chat"}, {"chat", s.Run(id).ChatID}, {"chat", "\x1b[2J"}, {"show", id}, {"show", "\x1b[2J"}, {"list"}, {"status"}, {"export", "--of", "runs", "--hook", "\x1b[2J"},
		{"runs", "--hook", "\x1b[2J"}, {"runs", "--status", "\x1b[2J"}, {"status", "--instance", "\x1b[2J"}} {
		out, errs, err := command(t, append(args, "--address", look.address)...)
		printed += out + errs
		if err != nil {
			printed += err.Error()
		}
		if args[0] == "runs" && len(out) > 1000 {
			t.Errorf("a list has a line of %d bytes", len(out))
		}
	}
	for _, bad := range []string{"\x1b", "\u202e", "\x07", "\r", "\u009b"} {
		if at := strings.Index(printed, bad); at >= 0 {
			t.Errorf("%q is printed: %q", bad, printed[max(0, at-40):at+20])
		}
	}
	if strings.Count(printed, " long") < 10_000 {
		t.Error("the reply is not shown whole")
	}
}

func TestExportsAreWholeOrNotThere(t *testing.T) {
	look := lookAt(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "runs.jsonl")
	if _, errs := look.command(t, "export", "--of", "runs", "-o", file); !strings.HasPrefix(errs, "4 rows were written to "+file) {
		t.Errorf("said %s", errs)
	}
	data, err := os.ReadFile(file)
	if err != nil || strings.Count(string(data), "\n") != 4 {
		t.Errorf("%v %s", err, data)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if _, _, err := command(t, "export", "--of", "runs", "-o", file, "--address", look.address); err == nil || !strings.Contains(err.Error(), "is there already: choose another name, or say --force") {
		t.Errorf("a second time: %v", err)
	}
	if _, errs := look.command(t, "export", "--of", "runs", "--status", "failed", "--format", "csv", "-o", file, "--force"); !strings.HasPrefix(errs, "1 row was written to ") {
		t.Errorf("said %s", errs)
	}
	if data, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(data), "status,runId,") {
		t.Errorf("%v %s", err, data)
	}
	for _, path := range []string{dir, os.DevNull} {
		if _, _, err := command(t, "export", "--of", "runs", "-o", path, "--force", "--address", look.address); err == nil || !strings.Contains(err.Error(), "is not a file") {
			t.Errorf("to %s: %v", path, err)
		}
	}
	if _, _, err := command(t, "export", "--of", "runs", "--status", "dead", "-o", filepath.Join(dir, "none"), "--address", look.address); err == nil {
		t.Error("a refused export is fine")
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("there are %d files", len(files))
	}
}

func TestWordsAreCompletedFromTheRunningCaddy(t *testing.T) {
	look := lookAt(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"show", ""}, []string{"wake", "agent", "issues\tagent", "ring\twake", look.completed + "\tcompleted agent Say hello", look.dead + "\tdead http://" + look.receiver + "/…"}},
		{[]string{"show", "iss"}, []string{"issues\tagent"}},
		{[]string{"show", look.failed}, []string{look.failed + "\tfailed agent fail"}},
		{[]string{"chat", "gr"}, []string{"greetings\tfail"}},
		{[]string{"runs", "--status", "failed,ti"}, []string{"failed,timed_out"}},
		{[]string{"runs", "--hook", "ri"}, []string{"ring\twake"}},
		{[]string{"runs", "--runner", "def"}, []string{"default\thttp"}},
		{[]string{"again", "--runner", "other,"}, []string{"other,default\thttp"}},
		{[]string{"deliveries", "--status", "d"}, []string{"delivered", "dead"}},
		{[]string{"export", "--of", "c"}, []string{"chat"}},
		{[]string{"status", "--instance", ""}, []string{"default"}},
		{[]string{"status", "--range", ""}, []string{"1h", "6h", "24h", "7d"}},
		{[]string{"st"}, []string{"status\tShows the state of the hooks, and what needs attention"}},
	} {
		out, _, err := caddyhooks.CompleteCommand(append([]string{"--address", look.address}, c.args...)...)
		lines := strings.Split(out, "\n")
		for _, want := range c.want {
			if !strings.Contains("\n"+out, "\n"+want+"\n") {
				t.Errorf("completing %q, %v: got %q, want %q", c.args, err, lines, want)
			}
		}
	}
	look.Stop()
	out, errs, err := caddyhooks.CompleteCommand("--address", look.address, "show", "iss")
	if err != nil || !strings.HasPrefix(out, ":") || strings.Contains(errs, "cannot be reached") {
		t.Errorf("without a Caddy: %v %q %q", err, out, errs)
	}
}
