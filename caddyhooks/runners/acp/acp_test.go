package acp

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

// newACP is a runner with the agent of this test binary.
func newACP(t *testing.T, change ...func(*ACP)) *ACP {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := &ACP{Args: []string{program}, Program: programs.Program{Env: map[string]string{agentVariable: "", "ACP_TEST_CAN": "resume close"}}}
	for _, c := range change {
		c(a)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	if err := a.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	a.Place(t.TempDir())
	t.Cleanup(func() {
		if err := a.Cleanup(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// testPatience is for a machine that is very busy.
const testPatience = 30 * time.Second

// eventually fails if something does not come true. The tests of this package cannot import hookstest.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testPatience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", testPatience, what)
		}
	}
}

func receive[T any](t *testing.T, what string, c <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(testPatience):
		t.Fatalf("not within %v: %s", testPatience, what)
	}
	return value
}

// testChat keeps the session of a chat, as the engine does.
type testChat struct {
	mu      sync.Mutex
	session string
}

func (c *testChat) Past(context.Context, int, int) ([]engine.PastTurn, error) { return nil, nil }

func (c *testChat) Session(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session, nil
}

// ask has the runner take a turn of the chat.
func (c *testChat) ask(ctx context.Context, a *ACP, message string) (engine.Reply, error) {
	reply, err := a.Run(ctx, engine.Turn{Message: message, Chat: c, MemoryPreset: "general_chat"})
	if reply.Session != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.session = reply.Session
	}
	return reply, err
}

func answerOf(t *testing.T, chat *testChat, a *ACP, message string) engine.Reply {
	t.Helper()
	reply, err := chat.ask(t.Context(), a, message)
	if err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	return reply
}

func TestACPChatGoesOnInItsSession(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	var chat, other testChat
	for _, turn := range []struct {
		chat *testChat
		want string
	}{{&chat, `turn 1: "hello"`}, {&chat, `turn 2: "hello"`}, {&other, `turn 1: "hello"`}, {&chat, `turn 3: "hello"`}} {
		if reply := answerOf(t, turn.chat, a, "hello"); reply.Text != turn.want || reply.SessionRenewed {
			t.Errorf("got %+v, want %s", reply, turn.want)
		}
	}
	if chat.session == other.session {
		t.Error("both chats have the same session")
	}
}

func TestACPAgentIsToldTheTraceParent(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	const span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for traceParent, want := range map[string]string{span: "map[traceparent:" + span + "]", "": "map[]"} {
		reply, err := a.Run(t.Context(), engine.Turn{Message: "trace", Chat: new(testChat), MemoryPreset: "general_chat", TraceParent: traceParent})
		if err != nil || reply.Text != want {
			t.Errorf("the agent got %q, %v; want %s", reply.Text, err, want)
		}
	}
}

// A session that an agent opens and then does not know is replaced, unless something was done already.
func TestACPSessionLostUnseenIsRenewed(t *testing.T) {
	t.Parallel()
	a := newACP(t, func(a *ACP) { a.Env["ACP_TEST_CAN"] = "resume close unseen" })
	chat := testChat{session: "long-gone"}
	sent, deltas := 0, ""
	turn := engine.Turn{Message: "hello", Chat: &chat, MemoryPreset: "general_chat",
		Sent: func() { sent++ }, Emit: func(p engine.Progress) { deltas += p.Text }}
	reply, err := a.Run(t.Context(), turn)
	if err != nil || reply.Text != `turn 1: "hello"` || deltas != reply.Text || !reply.SessionRenewed || reply.Session == "long-gone" || reply.Session == "" {
		t.Errorf("got %+v, %v, told %q", reply, err, deltas)
	}
	if sent != 1 {
		t.Errorf("the turn was sent %d times", sent)
	}
	chat.session = reply.Session
	if reply := answerOf(t, &chat, a, "hello"); reply.SessionRenewed || reply.Text != `turn 2: "hello"` {
		t.Errorf("got %+v", reply)
	}
	chat.session = "gone-too"
	if reply, err := chat.ask(t.Context(), a, "speak first"); err == nil || !strings.Contains(err.Error(), "no such session") || reply.SessionRenewed {
		t.Errorf("after some words, got %+v, %v", reply, err)
	}
}

func TestACPSessionGoesOnInAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, can := range []string{"resume", "load", "load late"} {
		t.Run(can, func(t *testing.T) {
			t.Parallel()
			a := newACP(t, func(a *ACP) { a.Env["ACP_TEST_CAN"] = can })
			if can == "load late" { // a busy machine may let the agent stand still for longer than the usual time
				a.replayQuiet = 10 * time.Second
			}
			var chat testChat
			answerOf(t, &chat, a, "hello")
			first := chat.session
			if _, err := chat.ask(t.Context(), a, "crash"); !isInterrupted(err) || !strings.Contains(err.Error(), "agent has ended") {
				t.Fatalf("a crash is told as %v", err)
			}
			var deltas strings.Builder
			reply, err := a.Run(t.Context(), engine.Turn{Message: "again", Chat: &chat, Emit: func(p engine.Progress) { deltas.WriteString(p.Text) }})
			if err != nil || reply.Text != `turn 3: "again"` || reply.Session != first || reply.SessionRenewed {
				t.Errorf("got %+v, %v", reply, err)
			}
			if deltas.String() != reply.Text {
				t.Errorf("deltas are %q", deltas.String())
			}
		})
	}
}

func isInterrupted(err error) bool {
	var interrupted *engine.InterruptedError
	return errors.As(err, &interrupted)
}

func TestACPLostSessionIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, can := range []string{"resume", "load", "nothing"} {
		t.Run(can, func(t *testing.T) {
			t.Parallel()
			a := newACP(t, func(a *ACP) { a.Env["ACP_TEST_CAN"] = can })
			chat := testChat{session: "long-gone"}
			reply := answerOf(t, &chat, a, "hello")
			if reply.Text != `turn 1: "hello"` || !reply.SessionRenewed || reply.Session == "long-gone" {
				t.Errorf("got %+v", reply)
			}
			if reply := answerOf(t, &chat, a, "hello"); reply.SessionRenewed || reply.Text != `turn 2: "hello"` {
				t.Errorf("then %+v", reply)
			}
		})
	}
}

// The names of an agent's sessions may be the same in each of its processes.
func TestACPChatsDoNotMeetInASession(t *testing.T) {
	t.Parallel()
	for _, can := range []string{"count", "count resume"} {
		t.Run(can, func(t *testing.T) {
			t.Parallel()
			a := newACP(t, func(a *ACP) { a.Env["ACP_TEST_CAN"] = can })
			ask := func(chat, session, message string) (engine.Reply, error) {
				return a.Run(t.Context(), engine.Turn{ChatID: chat, Message: message, Chat: &testChat{session: session}, MemoryPreset: "general_chat"})
			}
			if _, err := ask("a", "", "crash"); !isInterrupted(err) {
				t.Fatalf("got %v", err)
			}
			other, err := ask("b", "", "mine")
			if err != nil || other.Session != "1" {
				t.Fatalf("got %+v, %v", other, err)
			}
			reply, err := ask("a", "1", "hello")
			if err != nil || reply.Text != `turn 1: "hello"` || reply.Session == other.Session || !reply.SessionRenewed {
				t.Errorf("got %+v, %v", reply, err)
			}
			if reply, err := ask("b", "1", "again"); err != nil || reply.Text != `turn 2: "again"` || reply.SessionRenewed {
				t.Errorf("got %+v, %v", reply, err)
			}
		})
	}
}

func TestACPFailuresAreNoAnswers(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	a.maxBytes = 4 << 20
	for message, want := range map[string]string{
		"stop refusal":           "refusal",
		"stop max_tokens":        "max_tokens",
		"stop max_turn_requests": "max_turn_requests",
		"stop cancelled":         "cancelled",
		"fail badly":             "badly: the model is unreachable",
		"silent":                 "without an answer",
		"flood 100000":           "larger than",
		"think":                  "bytes in a turn",
		"ask read*1001":          "asked for permission",
	} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			var chat testChat
			reply, err := chat.ask(t.Context(), a, message)
			if err == nil || !strings.Contains(err.Error(), want) || reply.Text != "" {
				t.Errorf("got %+v, %v", reply, err)
			}
			if reply.Session == "" {
				t.Error("the session is not told")
			}
		})
	}
}

func TestACPBurstAndGarbageDoNoHarm(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	var chat testChat
	if reply := answerOf(t, &chat, a, "burst 20000"); len(reply.Text) != 20000 {
		t.Errorf("%d of 20000 pieces", len(reply.Text))
	}
	if reply := answerOf(t, &chat, a, "garbage"); reply.Text != `turn 2: "garbage"` {
		t.Errorf("got %+v", reply)
	}
}

func TestACPAnswersPermissionsByTheirKind(t *testing.T) {
	t.Parallel()
	a := newACP(t, func(a *ACP) { a.Permit = []string{"read", "fetch"} })
	var chat testChat
	reply := answerOf(t, &chat, a, "ask read execute no-kind told-before strange nothing-fits fetch")
	if want := "read=a execute=r no-kind=r \n\ntold-before=a strange=r nothing-fits=cancelled fetch=a "; reply.Text != want {
		t.Errorf("got  %q\nwant %q", reply.Text, want)
	}
	want := []engine.Permission{
		{Kind: "read", Title: "use read", Answer: "allowed"}, {Kind: "execute", Title: "use execute", Answer: "rejected"},
		{Kind: "other", Title: "use no-kind", Answer: "rejected"}, {Kind: "read", Title: "use told-before", Answer: "allowed"},
		{Kind: "other", Title: "use strange", Answer: "rejected"}, {Kind: "other", Title: "use nothing-fits", Answer: "rejected"},
		{Kind: "fetch", Title: "use fetch", Answer: "allowed"},
	}
	if !slices.Equal(reply.Permissions, want) {
		t.Errorf("noted are %+v", reply.Permissions)
	}
	repair := engine.Turn{Message: "ask read", Repair: 1, MemoryPreset: engine.MemoryDisabled}
	if reply, err := a.Run(t.Context(), repair); err != nil || reply.Text != "read=r " {
		t.Errorf("a repair got %+v, %v", reply, err)
	}
}

func TestACPNotesSomeOfManyPermissions(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	var chat testChat
	reply := answerOf(t, &chat, a, "ask read*1000")
	if len(reply.Permissions) != maxPermissionNotes || strings.Count(reply.Text, "read=r") != 1000 {
		t.Errorf("%d noted, %d answered", len(reply.Permissions), strings.Count(reply.Text, "read=r"))
	}
}

// begun is a context for a turn, and a function that waits until the agent has said something.
func begun(t *testing.T, a *ACP, chat *testChat, message string) (cancel context.CancelFunc, result func() (engine.Reply, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	type ended struct {
		reply engine.Reply
		err   error
	}
	said, done := make(chan struct{}, 1), make(chan ended, 1)
	go func() {
		reply, err := a.Run(ctx, engine.Turn{Message: message, Chat: chat, Emit: func(engine.Progress) {
			select {
			case said <- struct{}{}:
			default:
			}
		}})
		done <- ended{reply, err}
	}()
	receive(t, "the agent to say something", said)
	return cancel, func() (engine.Reply, error) {
		r := receive(t, "the end of the turn", done)
		return r.reply, r.err
	}
}

func TestACPCancelEndsTheTurnAlone(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	var chat testChat
	before := answerOf(t, &chat, a, "pid").Text
	cancel, result := begun(t, a, &chat, "wait")
	cancel()
	reply, err := result()
	if !errors.Is(err, context.Canceled) || reply.Session != chat.session {
		t.Errorf("got %+v, %v", reply, err)
	}
	if after := answerOf(t, &chat, a, "pid").Text; after != before {
		t.Error("the process is another one")
	}
}

// What an agent wrote in earlier turns says nothing about this one.
func TestACPTurnThatIsCutShortTellsTheLastWords(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	var chat testChat
	for _, test := range [][2]string{{"complain the model does not answer", "the model does not answer"}, {"wait", ""}} {
		message, want := test[0], test[1]
		cancel, result := begun(t, a, &chat, message)
		eventually(t, "the words are read", func() bool {
			a.pool.mu.Lock()
			defer a.pool.mu.Unlock()
			return strings.Contains(a.pool.agents[0].process.Stderr(), want)
		})
		cancel()
		_, err := result()
		var cut *engine.CutShortError
		if !errors.Is(err, context.Canceled) || errors.As(err, &cut) != (want != "") || want != "" && cut.LastWords != want {
			t.Errorf("%s: got %v", message, err)
		}
	}
}

func TestACPEndsAnAgentThatIgnoresACancel(t *testing.T) {
	before := cancelPatience
	cancelPatience = 200 * time.Millisecond // no other test runs meanwhile
	t.Cleanup(func() { cancelPatience = before })
	a := newACP(t)
	var chat, other testChat
	cancel, result := begun(t, a, &chat, "deaf")
	_, otherResult := begun(t, a, &other, "wait")
	pid := answerOf(t, new(testChat), a, "pid").Text
	cancel()
	if _, err := result(); !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled turn: %v", err)
	}
	if _, err := otherResult(); !isInterrupted(err) {
		t.Errorf("the other turn: %v", err)
	}
	eventually(t, "the process is gone", func() bool { return !alive(t, pid) })
	answerOf(t, &chat, a, "hello")
}

func alive(t *testing.T, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	return runnertest.Alive(n)
}

func TestACPCrashInterruptsAllTurns(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	var chat, other testChat
	_, result := begun(t, a, &other, "wait")
	if _, err := chat.ask(t.Context(), a, "crash"); !isInterrupted(err) || !strings.Contains(err.Error(), "it wrote: out of memory") {
		t.Errorf("the crashed turn: %v", err)
	}
	reply, err := result()
	if !isInterrupted(err) || reply.Session == "" {
		t.Errorf("the other turn: %+v, %v", reply, err)
	}
	answerOf(t, &chat, a, "hello")
}

func TestACPAgentThatDoesNotStart(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"dies at once":                 "starting the agent: the program ended with exit code 3, without a message of the Agent Client Protocol; it wrote: no key was given",
		"says something else":          "starting the agent: the program does not speak the Agent Client Protocol; it wrote: Hello! How can I help?",
		"says something else and ends": "starting the agent: the program does not speak the Agent Client Protocol; it wrote: usage: agent",
		"writes garbage":               "starting the agent: the program does not speak the Agent Client Protocol; it wrote: garbage garbage",
		"writes a long line":           "line of more than",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a := newACP(t, func(a *ACP) { a.Env[agentVariable] = how })
			var chat testChat
			_, err := chat.ask(t.Context(), a, "hello")
			var unavailable *engine.UnavailableError
			if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v", err)
			}
			eventually(t, "a pause before the next start", func() bool {
				_, err = chat.ask(t.Context(), a, "hello")
				return errors.As(err, &unavailable) && unavailable.RetryAfter > 0
			})
		})
	}
	t.Run("is not there", func(t *testing.T) {
		t.Parallel()
		a := newACP(t, func(a *ACP) { a.Args = []string{"/nowhere/agent"} })
		_, err := new(testChat).ask(t.Context(), a, "hello")
		var unavailable *engine.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.RetryAfter <= 0 || !strings.Contains(err.Error(), "/nowhere/agent") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("says nothing", func(t *testing.T) {
		t.Parallel()
		a := newACP(t, func(a *ACP) { a.Env[agentVariable] = "says nothing" })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := new(testChat).ask(ctx, a, "hello")
		var cut *engine.CutShortError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &cut) || cut.LastWords != "the program has not answered the first message of the Agent Client Protocol" {
			t.Errorf("got %v", err)
		}
	})
}

func TestACPStartsAsManyProcessesAsItMay(t *testing.T) {
	t.Parallel()
	a := newACP(t, func(a *ACP) { a.Processes = 2 })
	var first, second, third testChat
	one := answerOf(t, &first, a, "pid").Text
	if again := answerOf(t, &second, a, "pid").Text; again != one {
		t.Error("a second process was started while the first had nothing to do")
	}
	_, _ = begun(t, a, &first, "wait")
	two := answerOf(t, &third, a, "pid").Text
	if two == one {
		t.Error("no second process was started while the first was busy")
	}
	if back := answerOf(t, &second, a, "pid").Text; back != one {
		t.Error("a chat left the process that has its session")
	}
	_, _ = begun(t, a, &third, "wait")
	if more := answerOf(t, new(testChat), a, "pid").Text; more != one && more != two {
		t.Error("a third process was started")
	}
}

func TestACPEndsAProcessThatIsNotUsed(t *testing.T) {
	t.Parallel()
	a := newACP(t, func(a *ACP) { a.Idle = caddy.Duration(50 * time.Millisecond) })
	var chat testChat
	pid := answerOf(t, &chat, a, "pid").Text
	eventually(t, "the process is gone", func() bool { return !alive(t, pid) })
	if reply := answerOf(t, &chat, a, "hello"); reply.Text != `turn 2: "hello"` {
		t.Errorf("then %+v", reply)
	}
}

func TestACPClosesTheSessionThatWasNotUsedForLongest(t *testing.T) {
	t.Parallel()
	a := newACP(t, func(a *ACP) { a.Sessions = 2 })
	chats := make([]testChat, 3)
	for i := range chats {
		answerOf(t, &chats[i], a, "hello")
	}
	_, home, _, err := a.Folders()
	if err != nil {
		t.Fatal(err)
	}
	noted := func(what, session string) bool {
		data, _ := os.ReadFile(filepath.Join(home, "notes"))
		return strings.Contains(string(data), what+" "+session)
	}
	eventually(t, "the first session is closed", func() bool { return noted("close", chats[0].session) })
	if reply := answerOf(t, &chats[0], a, "hello"); reply.Text != `turn 2: "hello"` || !noted("resume", chats[0].session) {
		t.Errorf("then %+v", reply)
	}
}

// replace gives a runner another folder.
func replace(t *testing.T, a *ACP, dir string) {
	t.Helper()
	if err := a.Cleanup(); err != nil {
		t.Fatal(err)
	}
	a.Place(dir)
}

func TestACPProcessSurvivesAReloadOfTheSameRunner(t *testing.T) {
	t.Parallel()
	var chat testChat
	a := newACP(t)
	before := answerOf(t, &chat, a, "pid").Text
	same := newACP(t)
	replace(t, same, a.PlaceDir())
	if err := a.Cleanup(); err != nil {
		t.Fatal(err)
	}
	if after := answerOf(t, &chat, same, "pid").Text; after != before {
		t.Error("the same runner has another process")
	}
	changed := newACP(t, func(a *ACP) { a.Env["MORE"] = "1" })
	replace(t, changed, a.PlaceDir())
	cancel, result := begun(t, same, &chat, "wait")
	if err := same.Cleanup(); err != nil {
		t.Fatal(err)
	}
	if after := answerOf(t, new(testChat), changed, "pid").Text; after == before {
		t.Error("the changed runner has the same process")
	}
	if !alive(t, before) {
		t.Error("the process was ended in the middle of a turn")
	}
	cancel()
	_, _ = result()
	eventually(t, "the old process is gone", func() bool { return !alive(t, before) })
}

// A Caddy that was killed could not remove the home of a turn without memory. Another Caddy may have turns under way.
func TestACPRemovesWhatAKilledCaddyLeft(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	left, used, other := filepath.Join(a.PlaceDir(), "once-1"), filepath.Join(a.PlaceDir(), "once-2"), filepath.Join(a.PlaceDir(), "home")
	for _, folder := range []string{left, used, other} {
		if err := os.MkdirAll(filepath.Join(folder, "home"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	release, ok := programs.LockFolder(used)
	if !ok {
		t.Fatal("the folder could not be locked")
	}
	defer release()
	if _, err := a.Run(t.Context(), engine.Turn{Message: "hello", MemoryPreset: "disabled"}); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]bool{left: false, used: true, other: true} {
		if _, err := os.Stat(folder); (err == nil) != want {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

func TestACPTurnWithoutMemoryLeavesNothing(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	var chat testChat
	answerOf(t, &chat, a, "hello")
	for _, repair := range []int{0, 1} {
		reply, err := a.Run(t.Context(), engine.Turn{Message: "a secret word", MemoryPreset: engine.MemoryDisabled, Repair: repair})
		if err != nil || reply.Text != `turn 1: "a secret word"` || reply.Session != "" {
			t.Errorf("got %+v, %v", reply, err)
		}
	}
	err := filepath.WalkDir(a.PlaceDir(), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), "a secret word") {
			t.Errorf("%s has the message", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestACPTurnWithoutMemoryHasTheSettingsOfTheAgent(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	a.preset.config = []string{".agent/settings.json", ".agent/not-there"}
	_, home, _, err := a.Folders()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(home, ".agent"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".agent/settings.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	once, err := a.FoldersForOnce(home, a.preset.config)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(once.Home, ".agent/settings.json")); err != nil || string(data) != "{}" {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestACPMessageIsText(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	for _, message := range []string{"/clear", " \n/init", "@/etc/hostname", "--yolo", "tab\there", strings.Repeat("long ", 1<<17)} {
		reply := answerOf(t, new(testChat), a, message)
		var got string
		if err := json.Unmarshal([]byte(strings.TrimPrefix(reply.Text, "turn 1: ")), &got); err != nil || !strings.HasSuffix(got, message) || strings.HasPrefix(strings.TrimSpace(got), "/") {
			t.Errorf("%.20q arrived as %.60q, %v", message, got, err)
		}
	}
}

func TestACPErrorsHideTheEnvironment(t *testing.T) {
	t.Parallel()
	const key = "sk-very-secret-key"
	a := newACP(t, func(a *ACP) { a.Env["KEY"] = key })
	_, err := new(testChat).ask(t.Context(), a, "fail with "+key)
	if err == nil || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "model is unreachable") {
		t.Errorf("got %v", err)
	}
}

func TestACPErrorsHideArgumentsFromTheEnvironment(t *testing.T) {
	const key = "sk-very-secret-key"
	t.Setenv("ACP_TEST_KEY", key)
	a := newACP(t, func(a *ACP) { a.Args = append(a.Args, "{env.ACP_TEST_KEY}") })
	_, err := new(testChat).ask(t.Context(), a, "fail with "+key)
	if err == nil || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "model is unreachable") {
		t.Errorf("got %v", err)
	}
	if got := a.pool.redactor.Redact("a " + key); got != "a REDACTED" {
		t.Errorf("the log has %q", got)
	}
}

func TestACPProgramWithAPathIsSeenFromTheFolderOfCaddy(t *testing.T) {
	t.Parallel()
	want, err := filepath.Abs("agent")
	if err != nil {
		t.Fatal(err)
	}
	a := &ACP{Args: []string{"./agent"}}
	if err := a.provision(); err != nil || a.command[0] != want {
		t.Errorf("got %v, %v", a.command, err)
	}
	if err := (&ACP{Args: []string{"{env.ACP_TEST_NEVER_SET}"}}).provision(); err == nil || err.Error() != "the name of the program is empty" {
		t.Errorf("got %v", err)
	}
}

// What an agent wrote before it went down may be a secret, and the turn is still one to be started again.
func TestACPCrashThatTellsASecretInterruptsTheTurn(t *testing.T) {
	t.Parallel()
	a := newACP(t, func(a *ACP) { a.Env["KEY"] = "out of memory" })
	_, err := new(testChat).ask(t.Context(), a, "crash")
	if !isInterrupted(err) || !strings.Contains(err.Error(), "it wrote: REDACTED") {
		t.Errorf("got %v", err)
	}
}
