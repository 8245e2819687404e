package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/models"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// newCommand is a runner whose program is a script for sh. The script is in a file, and $0 is its path.
func newCommand(t *testing.T, script string, change func(*Command)) *Command {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Command{Args: []string{"/bin/sh", file}}
	if change != nil {
		change(c)
	}
	if err := c.provision(zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	c.Place(filepath.Join(t.TempDir(), "place"))
	return c
}

func agentTurn(message string) engine.Turn {
	return engine.Turn{RunID: "run_1", ChatID: "chat:1", Action: engine.Agent, Message: message, MemoryPreset: engine.MemoryDisabled}
}

func wantReply(t *testing.T, c *Command, turn engine.Turn, want string) {
	t.Helper()
	reply, err := c.Run(t.Context(), turn)
	if err != nil || reply.Text != want {
		t.Errorf("got %q, %v, want %q", reply.Text, err, want)
	}
}

// wantFailure wants an error that the engine takes for the failure of the turn.
func wantFailure(t *testing.T, c *Command, turn engine.Turn, want string) {
	t.Helper()
	reply, err := c.Run(t.Context(), turn)
	var unavailable *engine.UnavailableError
	if err == nil || errors.As(err, &unavailable) || !strings.Contains(err.Error(), want) || reply.Text != "" {
		t.Errorf("got %q, %v, want the error %q", reply.Text, err, want)
	}
}

// wantUnavailable wants an error that lets the engine try the turn again.
func wantUnavailable(t *testing.T, c *Command, turn engine.Turn, busy bool, want string) {
	t.Helper()
	_, err := c.Run(t.Context(), turn)
	var unavailable *engine.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Busy != busy || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want it to be unreachable (busy: %t) with %q", err, busy, want)
	}
}

// A turn that is cut short says what its program said last: on its standard error, or by the way that a known program has for it.
func TestProgramThatIsCutShortTellsItsLastWords(t *testing.T) {
	t.Parallel()
	const message = `{"type":"item.completed","item":{"type":"agent_message","text":"begun"}}`
	const retry = `{"type":"system","subtype":"api_retry","attempt":1,"error_status":529,"error":"overloaded"}`
	for name, test := range map[string]struct{ preset, script, want string }{
		"any program": {"", `echo "loading the model with key $KEY" >&2; echo begun; exec sleep 1000`, "loading the model with key REDACTED"},
		"silent":      {"", `echo begun; exec sleep 1000`, ""},
		"codex":       {"codex", `echo noise >&2; echo '{"type":"error","message":"the model answered 500, asking again"}'; echo '` + message + `'; exec sleep 1000`, "the model answered 500, asking again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCommand(t, test.script, func(c *Command) {
				c.Preset, c.Env = test.preset, map[string]string{"KEY": "key-0123456789"}
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			turn := agentTurn("Hello")
			turn.Emit = func(engine.Progress) { cancel() }
			reply, err := c.Run(ctx, turn)
			var cut *engine.CutShortError
			if !errors.Is(err, context.Canceled) || errors.As(err, &cut) != (test.want != "") || reply.Text != "" {
				t.Fatalf("got %+v, %v", reply, err)
			}
			if test.want != "" && cut.LastWords != test.want {
				t.Errorf("the last words are %q, want %q", cut.LastWords, test.want)
			}
		})
	}
	for output, want := range map[string]string{
		claudeSays + retry + "\n": "the model failed (overloaded, status 529), and is asked again (attempt 1)", retry + "\n" + claudeSays: "",
	} {
		if said := readPreset("claude", memoryTurn(), output, exited(143, "")).said; said != want {
			t.Errorf("Claude Code said %q, want %q", said, want)
		}
	}
}

func TestProgramAnswersTheMessage(t *testing.T) {
	t.Parallel()
	wake := agentTurn("Hello")
	wake.Action, wake.System = engine.Wake, "As JSON."
	for name, test := range map[string]struct {
		script string
		turn   engine.Turn
		want   string
	}{
		"message":               {"cat", agentTurn("Hello\n\n/clear --help @/etc/hostname\x1b \x00"), "Hello\n\n/clear --help @/etc/hostname\x1b \x00"},
		"instructions first":    {"cat", wake, turns.ExternalNotice + "\n\nAs JSON.\n\nHello"},
		"last line break":       {`printf 'a\nb\n'`, agentTurn(""), "a\nb"},
		"two line breaks":       {`printf 'a\n\n'`, agentTurn(""), "a\n"},
		"line break of Windows": {`printf 'a\r\n'`, agentTurn(""), "a"},
		"no line break":         {`printf 'a\r'`, agentTurn(""), "a\r"},
		"message not read":      {"echo a", agentTurn(strings.Repeat("x", 1<<20)), "a"},
		"output closed early":   {"echo a; exec >&-; cat >/dev/null", agentTurn(strings.Repeat("x", 1<<20)), "a"},
		"900 KB":                {"cat", agentTurn(strings.Repeat("abcdefgh é", 80_000)), strings.Repeat("abcdefgh é", 80_000)},
		"a megabyte":            {"cat", agentTurn(strings.Repeat("x", answers.MaxReply-1) + "\n\n"), strings.Repeat("x", answers.MaxReply-1) + "\n"},
		"arguments as they are": {`printf '%s,' "$@"`, agentTurn(""), "$HOME;,a b,*,,"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCommand(t, test.script, func(c *Command) { c.Args = append(c.Args, "$HOME;", "a b", "*", "") })
			wantReply(t, c, test.turn, test.want)
		})
	}
}

func TestProgramReadsTheTurnAsJSON(t *testing.T) {
	t.Parallel()
	turn := agentTurn("Hello <b>")
	turn.Tier, turn.System, turn.Repair = "fast", "As JSON.", 1
	want, err := turns.Encode(&turn, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newCommand(t, "cat", func(c *Command) { c.Stdin = "json" })
	wantReply(t, c, turn, strings.TrimSuffix(string(want), "\n"))
}

func TestProgramHasACleanEnvironment(t *testing.T) {
	t.Setenv("HOOKS_TEST_PASSED", "from Caddy")
	t.Setenv("HOOKS_TEST_SECRET", "not for programs")
	t.Setenv("TEST_PASSED", "from Caddy")
	t.Setenv("PATH", os.Getenv("PATH"))
	t.Setenv("LANG", "")
	c := newCommand(t, "env", func(c *Command) {
		c.Env = map[string]string{"TEST_GIVEN": "a value", "TEST_REPLACED": "{env.TEST_PASSED}"}
		c.PassEnv = []string{"TEST_PASSED", "TEST_UNSET"}
		c.Args = []string{"env"}
	})
	turn := agentTurn("Hello")
	turn.Hook, turn.Tier, turn.Deadline, turn.TraceParent = "deploy", "fast", time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)), "00-a-b-01"
	turn.ChatID = "chat\x00 1"
	reply, err := c.Run(t.Context(), turn)
	if err != nil {
		t.Fatal(err)
	}
	place := c.PlaceDir()
	want := []string{
		"HOME=" + place + "/home", "HOOKS_ACTION=agent", "HOOKS_CHAT_ID=chat 1", "HOOKS_DEADLINE=2026-01-02T02:04:05Z", "HOOKS_HOOK=deploy",
		"HOOKS_MEMORY_PRESET=disabled", "HOOKS_PHASE=turn", "HOOKS_RUN_ID=run_1", "HOOKS_TIER=fast", "LANG=C.UTF-8", "PATH=" + os.Getenv("PATH"),
		"TEST_GIVEN=a value", "TEST_PASSED=from Caddy", "TEST_REPLACED=from Caddy", "TMPDIR=" + place + "/tmp", "TRACEPARENT=00-a-b-01",
	}
	got := slices.DeleteFunc(strings.Split(reply.Text, "\n"), func(line string) bool { return strings.HasPrefix(line, "HOOKS_TURN=") })
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestInstructionsAndSchemaAreInFilesForTheTurn(t *testing.T) {
	t.Parallel()
	c := newCommand(t, `stat -c %a "$HOOKS_SYSTEM_FILE" "$HOOKS_SCHEMA_FILE"; cat "$HOOKS_SYSTEM_FILE" "$HOOKS_SCHEMA_FILE"; echo; echo "$HOOKS_SYSTEM_FILE $HOOKS_PHASE $HOOKS_TIER"`, nil)
	turn := agentTurn("Hello")
	turn.System, turn.ResponseSchema, turn.Repair, turn.Tier = "As JSON.", []byte(`{"type":"object"}`), 2, "deep"
	reply, err := c.Run(t.Context(), turn)
	if err != nil {
		t.Fatal(err)
	}
	text, last, _ := strings.Cut(reply.Text, "\n/")
	if text != "600\n600\nAs JSON.{\"type\":\"object\"}" || !strings.HasSuffix(last, "/system.txt repair deep") {
		t.Errorf("got %q", reply.Text)
	}
	if left, err := os.ReadDir(filepath.Join(c.PlaceDir(), "tmp")); err != nil || len(left) > 0 {
		t.Errorf("%v are left after the turn, %v", left, err)
	}
}

func TestExitCodesOfAProgram(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		change func(*Command)
		busy   bool
		want   string // of the error; the answer otherwise
		fails  bool
	}{
		"success":             {script: "echo fine", want: "fine"},
		"failure":             {script: "echo no; echo why >&2; exit 3", fails: true, want: "the program ended with exit code 3: why"},
		"failure in silence":  {script: "exit 1", fails: true, want: "the program ended with exit code 1"},
		"signal":              {script: "echo half; kill -9 $$", fails: true, want: "the program was ended by a signal (killed)"},
		"busy":                {script: "echo later >&2; exit 75", change: func(c *Command) { c.BusyOn = []int{75} }, busy: true, want: "exit code 75, which busy_on has: later"},
		"not among fail_on":   {script: "echo fine; exit 1", change: func(c *Command) { c.FailOn = []int{2} }, want: "fine"},
		"among fail_on":       {script: "echo fine; exit 2", change: func(c *Command) { c.FailOn = []int{2} }, fails: true, want: "exit code 2"},
		"signal with fail_on": {script: "echo fine; kill -9 $$", change: func(c *Command) { c.FailOn = []int{2} }, fails: true, want: "signal"},
		"nothing":             {script: "echo why >&2", fails: true, want: "the program gave no answer: why"},
		"blank":               {script: "echo ' '", fails: true, want: "the program gave no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCommand(t, test.script, test.change)
			switch {
			case test.busy:
				wantUnavailable(t, c, agentTurn(""), true, test.want)
			case test.fails:
				wantFailure(t, c, agentTurn(""), test.want)
			default:
				wantReply(t, c, agentTurn(""), test.want)
			}
		})
	}
}

// The scripts write for ever: only a program that is stopped lets a test end.
func TestOutputIsBoundedWhileItIsRead(t *testing.T) {
	t.Parallel()
	const forever = "exec yes '%s'"
	long := "exec yes | tr -d '\\n'"
	for name, test := range map[string]struct {
		script, want string
		reply        ReplyFormat
	}{
		"answer":        {fmt.Sprintf(forever, "a"), "the answer is larger than 1048576 bytes", ReplyFormat{}},
		"document":      {fmt.Sprintf(forever, "a"), "more than max_output allows", ReplyFormat{Format: "json", Path: "$.a"}},
		"lines":         {fmt.Sprintf(forever, `{"a":1}`), "more than max_output allows", ReplyFormat{Format: "lines", Filter: "$.b", Path: "$.a"}},
		"line":          {long, "a line of more than 8388608 bytes", ReplyFormat{Format: "lines", Filter: "$.b", Path: "$.a"}},
		"text in lines": {fmt.Sprintf(forever, `{"a":"`+strings.Repeat("x", 4000)+`"}`), "the answer is larger", ReplyFormat{Format: "lines", Filter: "$.a", Path: "$.a"}},
		"no UTF-8":      {`printf 'a\377'; ` + fmt.Sprintf(forever, "a"), "not valid UTF-8", ReplyFormat{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCommand(t, test.script, func(c *Command) {
				c.Reply = test.reply
				if c.MaxOutput = 2 << 20; name == "line" {
					c.MaxOutput = 64 << 20
				}
			})
			wantFailure(t, c, agentTurn(""), test.want)
		})
	}
	wantFailure(t, newCommand(t, `printf 'a\303'`, nil), agentTurn(""), "not valid UTF-8")
}

func TestAnswerIsFoundInJSON(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		output string
		reply  ReplyFormat
		want   string
		fails  bool
	}{
		"text":            {`{"a":{"b":"Hello\n"}}`, ReplyFormat{Format: "json", Path: "$.a.b"}, "Hello", false},
		"number":          {`{"a":1.50}`, ReplyFormat{Format: "json", Path: "$.a"}, "1.50", false},
		"object":          {`{"a":{"c":"<","b":[true]}}`, ReplyFormat{Format: "json", Path: "$.a"}, `{"b":[true],"c":"<"}`, false},
		"several":         {`{"a":[{"t":"Hel"},{"t":"lo"}]}`, ReplyFormat{Format: "json", Path: "$.a[*].t"}, "Hello", false},
		"null":            {`{"a":null}`, ReplyFormat{Format: "json", Path: "$.a"}, "the output has nothing at $.a", true},
		"nothing":         {`{}`, ReplyFormat{Format: "json", Path: "$.a"}, "the output has nothing at $.a: {}", true},
		"empty":           {`{"a":""}`, ReplyFormat{Format: "json", Path: "$.a"}, "no answer", true},
		"no JSON":         {"Error: no", ReplyFormat{Format: "json", Path: "$.a"}, "is not the JSON that reply json needs", true},
		"lines":           {"{\"t\":\"x\",\"a\":\"Hel\"}\nnoise\n\n{\"t\":\"y\",\"a\":\"no\"}\n{\"t\":\"x\",\"a\":\"lo\"}", ReplyFormat{Format: "lines", Filter: "$.t == 'x'", Path: "$.a"}, "Hello", false},
		"lines of others": {"{\"t\":\"y\",\"a\":\"no\"}\n", ReplyFormat{Format: "lines", Filter: "$.t == 'x'", Path: "$.a"}, "no answer", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCommand(t, "cat", func(c *Command) { c.Reply = test.reply })
			if test.fails {
				wantFailure(t, c, agentTurn(test.output), test.want)
			} else {
				wantReply(t, c, agentTurn(test.output), test.want)
			}
		})
	}
}

// The program goes on only when what it said so far has been told.
func TestAnswerIsToldWhileTheProgramWorks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, second string
		reply         ReplyFormat
	}{
		"text":  {`printf 'Hel\303'`, `printf '\251lo\n'`, ReplyFormat{}},
		"lines": {`echo '{"a":"Hel"}'`, `echo '{"a":"élo"}'`, ReplyFormat{Format: "lines", Filter: "$.a", Path: "$.a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heard := filepath.Join(t.TempDir(), "heard")
			c := newCommand(t, test.first+`; while ! [ -e "$1" ]; do sleep 0.01; done; `+test.second, func(c *Command) {
				c.Args, c.Reply = append(c.Args, heard), test.reply
			})
			var told strings.Builder
			turn := agentTurn("")
			turn.Emit = func(p engine.Progress) {
				told.WriteString(p.Text)
				if told.String() == "Hel" {
					if err := os.WriteFile(heard, nil, 0o600); err != nil {
						t.Error(err)
					}
				}
			}
			wantReply(t, c, turn, "Helélo")
			if told.String() != "Helélo" {
				t.Errorf("told %q", told.String())
			}
		})
	}
}

func TestCancelledTurnLeavesNoProcess(t *testing.T) {
	before := programs.StopGrace
	programs.StopGrace = 200 * time.Millisecond // no other test runs meanwhile
	t.Cleanup(func() { programs.StopGrace = before })
	pids := filepath.Join(t.TempDir(), "pids")
	c := newCommand(t, `trap '' TERM INT HUP
(trap '' TERM; exec sleep 3600) & echo $! >>"$1"
echo $$ >>"$1"; echo ready
while :; do sleep 3600; done`, func(c *Command) { c.Args = append(c.Args, pids) })
	ctx, cancel := context.WithCancel(t.Context())
	turn := agentTurn("")
	var sent atomic.Int32
	turn.Sent = func() { sent.Add(1) }
	turn.Emit = func(engine.Progress) { cancel() }
	reply, err := c.Run(ctx, turn)
	if !errors.Is(err, context.Canceled) || reply.Text != "" {
		t.Errorf("got %q, %v", reply.Text, err)
	}
	if sent.Load() != 1 {
		t.Errorf("the turn was sent %d times", sent.Load())
	}
	data, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		if runnertest.Alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

func TestCancelledBeforeItBeginsATurnStartsNothing(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), "made")
	c := newCommand(t, `echo >"$1"`, func(c *Command) { c.Args = append(c.Args, made) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	turn := agentTurn("")
	turn.Sent = func() { t.Error("the turn was sent") }
	if _, err := c.Run(ctx, turn); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("the program was started")
	}
}

func TestProgramThatCannotBeStartedIsUnreachable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		change func(*Command)
		want   string // in the error
		warned string
	}{
		"program not in PATH": {func(c *Command) { c.Args = []string{"no-such-program"} }, "no-such-program", "there is no program no-such-program in the PATH"},
		"program not there":   {func(c *Command) { c.Args = []string{missing} }, missing, "there is no program " + missing},
		"program is a folder": {func(c *Command) { c.Args = []string{filepath.Dir(missing)} }, "folder", "is a folder, and no program"},
		"not executable":      {func(c *Command) { c.Args = []string{file} }, file, file + " is not executable"},
		"no dir":              {func(c *Command) { c.Dir = missing }, "dir " + missing + " is not there", "dir " + missing + " is not there"},
		"dir is a file":       {func(c *Command) { c.Dir = file }, "dir " + file + " is not a folder", "is not a folder"},
		"home is a file":      {func(c *Command) { c.Home = file }, "home " + file + " is not a folder", "is not a folder"},
		"unknown user":        {func(c *Command) { c.User = "no-such-user" }, "there is no user no-such-user", "there is no user no-such-user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCommand(t, "cat", test.change)
			turn := agentTurn("Hello")
			turn.Sent = func() { t.Error("the turn was sent") }
			wantUnavailable(t, c, turn, false, test.want)
			if warnings := strings.Join(c.Warnings(c.args[0], nil), "\n"); !strings.Contains(warnings, test.warned) {
				t.Errorf("warned %q, want %q", warnings, test.warned)
			}
		})
	}
}

func TestNothingIsWarnedAboutAProgramThatIsThere(t *testing.T) {
	t.Setenv("TEST_PASSED", "a")
	c := newCommand(t, "cat", func(c *Command) {
		c.Dir, c.Home, c.PassEnv = t.TempDir(), t.TempDir(), []string{"TEST_PASSED"}
	})
	if warnings := c.Warnings(c.args[0], nil); len(warnings) > 0 {
		t.Errorf("warned %q", warnings)
	}
	c = newCommand(t, "cat", func(c *Command) { c.PassEnv = []string{"TEST_NEVER_SET"} })
	if warnings := c.Warnings(c.args[0], nil); len(warnings) != 1 || !strings.Contains(warnings[0], "TEST_NEVER_SET") {
		t.Errorf("warned %q", warnings)
	}
}

// Only root can do that; for others there is an error that says so.
func TestProgramRunsAsAnotherUser(t *testing.T) {
	t.Parallel()
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	const script = `id -u; pwd; stat -c %u:%a "$HOME" "$TMPDIR" . "$HOOKS_SYSTEM_FILE"; cat "$HOOKS_SYSTEM_FILE"; echo >"$HOME/a" && echo >"$TMPDIR/a" && echo >a && echo written`
	c := newCommand(t, script, func(c *Command) {
		c.Args = []string{"/bin/sh", "-c", script}
		c.User = "nobody"
	})
	turn := agentTurn("Hello")
	turn.System, turn.MemoryPreset = "Be brief.", "general_chat"
	if os.Geteuid() != 0 {
		wantUnavailable(t, c, turn, false, "only root can run programs as another user")
		return
	}
	if err := os.Chmod(filepath.Dir(filepath.Dir(c.PlaceDir())), 0o700); err != nil {
		t.Fatal(err)
	}
	wantUnavailable(t, c, turn, false, "user nobody may not enter ")
	if err := os.Chmod(filepath.Dir(filepath.Dir(c.PlaceDir())), 0o711); err != nil {
		t.Fatal(err)
	}
	id := nobody.Uid
	wantReply(t, c, turn, fmt.Sprintf("%s\n%s/work\n%[1]s:700\n%[1]s:700\n%[1]s:700\n%[1]s:600\nBe brief.written", id, c.PlaceDir()))
	for i := range 2 { // links in the place of folders are not followed
		victim := filepath.Join(t.TempDir(), "victim")
		if err := os.Mkdir(victim, 0o700); err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(c.PlaceDir(), []string{"work", "home"}[i])
		if err := errors.Join(os.RemoveAll(folder), os.Symlink(victim, folder)); err != nil {
			t.Fatal(err)
		}
		wantUnavailable(t, c, turn, false, "is not a folder")
		if err := os.Remove(folder); err != nil {
			t.Fatal(err)
		}
	}
}

// A program of another user cannot put a link where Caddy writes the files of this turn or of another one.
func TestFilesOfATurnCannotBeReplacedByAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // there is no other user then, see above
	}
	const script = `folder=$(dirname "$HOOKS_SYSTEM_FILE")
ln -s /nowhere "$folder/link" || mv "$folder" "$folder-away" || ln -sf /nowhere "$HOOKS_SCHEMA_FILE" || rm "$HOOKS_SCHEMA_FILE" || cat "$HOOKS_SCHEMA_FILE"`
	c := newCommand(t, script, func(c *Command) {
		c.Args = []string{"/bin/sh", "-c", script}
		c.User = "nobody"
	})
	if err := os.Chmod(filepath.Dir(filepath.Dir(c.PlaceDir())), 0o711); err != nil {
		t.Fatal(err)
	}
	turn := agentTurn("Hello")
	turn.System, turn.ResponseSchema = "Be brief.", []byte(`{"type": "string"}`)
	wantReply(t, c, turn, `{"type": "string"}`)
	if left, err := filepath.Glob(filepath.Join(c.PlaceDir(), "turn-*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestSecretsOfAProgramAreNotTold(t *testing.T) {
	t.Setenv("TEST_SECRET", "secret-in-argument")
	c := newCommand(t, `echo "$TEST_KEY $1" >&2; exit 1`, func(c *Command) {
		c.Env = map[string]string{"TEST_KEY": "secret-in-env", "TEST_HOME": "/srv/agents/home"}
		c.Args = append(c.Args, "{env.TEST_SECRET}")
	})
	wantFailure(t, c, agentTurn(""), "the program ended with exit code 1: REDACTED REDACTED")
	if got := c.Redact("a secret-in-env /srv/agents/home"); got != "a REDACTED /srv/agents/home" {
		t.Errorf("got %q", got)
	}
}

func TestMistakesOfTheCommandRunnerAreRefused(t *testing.T) {
	t.Setenv("TEST_EMPTY", "")
	for want, c := range map[string]Command{
		"a program is missing":                         {},
		"there is no preset 'cluade'":                  {Preset: "cluade"},
		"stdin must be":                                {Args: []string{"a"}, Stdin: "xml"},
		"stdin goes without the preset claude":         {Preset: "claude", Stdin: "json"},
		"reply goes without the preset codex":          {Preset: "codex", Reply: ReplyFormat{Format: "text"}},
		"fail_on goes without the preset codex":        {Preset: "codex", FailOn: []int{1}},
		"model and tier need a preset":                 {Args: []string{"a"}, ByTier: models.ByTier{Model: "a"}},
		"'x' is not a tier":                            {Preset: "claude", ByTier: models.ByTier{Tiers: map[string]string{"x": "a"}}},
		"exit code of failure":                         {Args: []string{"a"}, BusyOn: []int{0}},
		"exit code 2 is in both":                       {Args: []string{"a"}, BusyOn: []int{2}, FailOn: []int{2}},
		"max_output must not be":                       {Args: []string{"a"}, MaxOutput: -1},
		"reply must be":                                {Args: []string{"a"}, Reply: ReplyFormat{Format: "xml"}},
		"reply text takes no expression":               {Args: []string{"a"}, Reply: ReplyFormat{Path: "$.a"}},
		"reply json takes no condition":                {Args: []string{"a"}, Reply: ReplyFormat{Format: "json", Path: "$.a", Filter: "$.b"}},
		"must begin with $":                            {Args: []string{"a"}, Reply: ReplyFormat{Format: "json", Path: "a"}},
		"must not ask for a header or a query":         {Args: []string{"a"}, Reply: ReplyFormat{Format: "lines", Path: "$.a", Filter: "header A"}},
		"the condition of reply lines":                 {Args: []string{"a"}, Reply: ReplyFormat{Format: "lines", Path: "$.a"}},
		"env and pass_env both set A":                  {Args: []string{"a"}, Program: programs.Program{Env: map[string]string{"A": "b"}, PassEnv: []string{"A"}}},
		"names that begin with HOOKS_":                 {Args: []string{"a"}, Program: programs.Program{Env: map[string]string{"HOOKS_A": "b"}}},
		"pass_env needs the name of a variable":        {Args: []string{"a"}, Program: programs.Program{PassEnv: []string{"A=b"}}},
		"~ is not expanded here":                       {Args: []string{"a"}, Program: programs.Program{Dir: "~/a"}},
		"variable TEST_NOT_SET, which is not set":      {Args: []string{"a"}, Program: programs.Program{Env: map[string]string{"A": "{env.TEST_NOT_SET}"}}},
		"the value of env A has a NUL":                 {Args: []string{"a"}, Program: programs.Program{Env: map[string]string{"A": "a\x00"}}},
		"an argument has a NUL":                        {Args: []string{"a", "a\x00"}},
		"the name of the program is empty":             {Args: []string{"{env.TEST_EMPTY}"}},
		"dir: {env.TEST_EMPTY} is empty":               {Args: []string{"a"}, Program: programs.Program{Dir: "{env.TEST_EMPTY}"}},
		"the model of tier deep is empty":              {Preset: "claude", ByTier: models.ByTier{Tiers: map[string]string{"deep": ""}}},
		"an exit code of failure is a number from 1 t": {Args: []string{"a"}, FailOn: []int{256}},
	} {
		if err := c.provision(zap.NewNop()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestSizesAndPathsOfTheCommandRunner(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	c := &Command{Args: []string{"./relative/program"}, Program: programs.Program{Dir: "."}}
	if err := c.provision(zap.New(core)); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if c.args[0] != filepath.Join(here, "relative/program") || c.Address() != c.args[0] || logs.Len() != 0 {
		t.Errorf("got %q", c.args)
	}
	if c.usualOutput() != 8<<20 {
		t.Errorf("a program may write %d bytes", c.usualOutput())
	}
}

// What a turn without memory writes into the folder that it works in is for no other turn.
func TestCommandWithoutMemoryWorksInAFolderOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newCommand(t, "ls | wc -l; echo >note", nil)
	for _, memory := range []string{engine.MemoryDisabled, engine.MemoryDisabled, "general_chat"} {
		turn := agentTurn("Hello")
		turn.MemoryPreset = memory
		wantReply(t, c, turn, "0")
	}
}
