package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// askingACP is a runner whose agent may read, while people are asked about edits and commands.
func askingACP(t *testing.T) *ACP {
	t.Helper()
	return newACP(t, func(a *ACP) {
		a.Permit = []string{"read"}
		a.Env["API_KEY"] = "use-told-in-parts-0123456789"
		a.Ask = []Asks{
			{Kinds: []string{"edit", "delete"}, AskPlace: caddyconf.AskPlace{Channel: "dev", To: "1", By: []string{"U1"}}},
			{Kinds: []string{"execute"}, AskPlace: caddyconf.AskPlace{Channel: "ops", To: "2", For: caddy.Duration(time.Minute)}},
		}
	})
}

// turnAsking is a turn of a chat of its own in which people can be asked.
func turnAsking(message string, ask askFunc) engine.Turn {
	return engine.Turn{Message: message, Chat: new(testChat), MemoryPreset: "general_chat", Ask: ask}
}

func TestACPAsksPeopleAboutTheKindsThatItIsToldTo(t *testing.T) {
	t.Parallel()
	a := askingACP(t)
	var asked []engine.Ask
	answers := []engine.Answer{
		{Text: "allow", By: "Ann (U1)", Via: engine.AnsweredByChannel}, {Text: "reject", Via: engine.AnsweredByLink}, {},
		{Text: "allow_always", By: "Ben", Via: engine.AnsweredByAPI}, {Text: "allow", Via: engine.AnsweredByDeadline},
	}
	reply, err := a.Run(t.Context(), turnAsking("ask read execute execute*2 delete fetch told-in-parts", func(_ context.Context, ask engine.Ask) (engine.Answer, error) {
		asked = append(asked, ask)
		answer := answers[0]
		answers = answers[1:]
		if answer.Text == "" {
			return engine.Answer{}, errors.New("the store is gone")
		}
		return answer, nil
	}))
	if want := "read=a execute=a execute=r execute=r delete=r fetch=r \n\ntold-in-parts=a "; err != nil || reply.Text != want {
		t.Errorf("got  %q, %v\nwant %q", reply.Text, err, want)
	}
	want := []engine.Permission{
		{Kind: "read", Title: "use read", Answer: "allowed"}, {Kind: "execute", Title: "use execute", Answer: "allowed by Ann (U1)"},
		{Kind: "execute", Title: "use execute", Answer: "rejected"}, {Kind: "execute", Title: "use execute", Answer: "rejected: nobody could be asked"},
		{Kind: "delete", Title: "use delete", Answer: "rejected by Ben"}, {Kind: "fetch", Title: "use fetch", Answer: "rejected"},
		{Kind: "edit", Title: "Edit a file", Answer: "allowed: nobody answered in time"},
	}
	if !slices.Equal(reply.Permissions, want) {
		t.Errorf("noted are\n%+v\nwant\n%+v", reply.Permissions, want)
	}
	if len(asked) != 5 {
		t.Fatalf("asked %+v", asked)
	}
	wantText := map[int]string{
		0: "execute: use execute\nCommand: make\\nrm -r /",
		3: "delete: use delete",
		4: "edit: Edit a file\nInput: {\"new\":\"text\"}\nFiles: /srv/a.go, /srv/b.go",
	}
	for i, text := range wantText {
		if asked[i].Text != text {
			t.Errorf("question %d is\n%s\nwant\n%s", i, asked[i].Text, text)
		}
	}
	for i, ask := range asked {
		place := engine.AskPlace{Channel: "ops", To: "2", For: time.Minute, Else: "reject"}
		if i > 2 {
			place = engine.AskPlace{Channel: "dev", To: "1", By: []string{"U1"}}
		}
		if fmt.Sprint(ask.Place) != fmt.Sprint(place) || !slices.Equal(ask.Choices, []string{"allow", "reject"}) {
			t.Errorf("question %d is %+v", i, ask)
		}
	}
	if places := a.AskPlaces(); len(places) != 2 || places[0].Channel != "dev" || places[1].Else != "reject" {
		t.Errorf("the places are %+v", places)
	}
}

func TestACPAsksNobodyWhereNobodyCanBeAsked(t *testing.T) {
	t.Parallel()
	a := askingACP(t)
	reply, err := a.Run(t.Context(), turnAsking("ask read execute", nil))
	if err != nil || reply.Text != "read=a execute=r " || reply.Permissions[1].Answer != "rejected: nobody could be asked" {
		t.Errorf("got %+v, %v", reply, err)
	}
	ask := func(context.Context, engine.Ask) (engine.Answer, error) {
		t.Error("somebody was asked in a repair")
		return engine.Answer{Text: "allow"}, nil
	}
	repair := engine.Turn{Message: "ask read execute", Repair: 1, MemoryPreset: engine.MemoryDisabled, Ask: ask}
	if reply, err := a.Run(t.Context(), repair); err != nil || reply.Text != "read=r execute=r " {
		t.Errorf("a repair got %+v, %v", reply, err)
	}
	apart := turnAsking("ask execute", func(context.Context, engine.Ask) (engine.Answer, error) { return engine.Answer{Text: "allow"}, nil })
	apart.MemoryPreset = engine.MemoryDisabled
	if reply, err := a.Run(t.Context(), apart); err != nil || reply.Text != "execute=a " {
		t.Errorf("a turn without memory got %+v, %v", reply, err)
	}
}

// What happens in other chats of the same process does not wait for a person.
func TestACPGoesOnWithOthersWhileAPersonIsAsked(t *testing.T) {
	t.Parallel()
	a := askingACP(t)
	asked, decided := make(chan struct{}), make(chan struct{})
	ended := make(chan string, 1)
	go func() {
		reply, err := a.Run(t.Context(), turnAsking("ask execute", func(ctx context.Context, _ engine.Ask) (engine.Answer, error) {
			close(asked)
			select {
			case <-decided:
				return engine.Answer{Text: "allow"}, nil
			case <-ctx.Done():
				return engine.Answer{}, ctx.Err()
			}
		}))
		ended <- fmt.Sprint(reply.Text, err)
	}()
	receive(t, "the question", asked)
	at := func(_ context.Context, ask engine.Ask) (engine.Answer, error) {
		return engine.Answer{Text: "reject"}, nil
	}
	if reply, err := a.Run(t.Context(), turnAsking("ask read execute fetch", at)); err != nil || reply.Text != "read=a execute=r fetch=r " {
		t.Errorf("another chat got %+v, %v", reply, err)
	}
	if reply, err := a.Run(t.Context(), turnAsking("burst 2000", at)); err != nil || len(reply.Text) != 2000 {
		t.Errorf("another chat got %d pieces, %v", len(reply.Text), err)
	}
	close(decided)
	if got := receive(t, "the end of the turn", ended); got != "execute=a <nil>" {
		t.Errorf("got %s", got)
	}
}

func TestACPThatIsCancelledDoesNotWaitForPeople(t *testing.T) {
	t.Parallel()
	a := askingACP(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var left atomic.Bool
	reply, err := a.Run(ctx, turnAsking("ask execute", func(ctx context.Context, _ engine.Ask) (engine.Answer, error) {
		cancel()
		<-ctx.Done()
		left.Store(true)
		return engine.Answer{}, ctx.Err()
	}))
	if !errors.Is(err, context.Canceled) || !left.Load() {
		t.Errorf("got %+v, %v; the question was left: %t", reply, err, left.Load())
	}
	if len(reply.Permissions) != 1 || reply.Permissions[0].Answer != "rejected: broken off before an answer" {
		t.Errorf("noted are %+v", reply.Permissions)
	}
	if reply, err := a.Run(t.Context(), turnAsking("hello", nil)); err != nil || reply.Text != `turn 1: "hello"` {
		t.Errorf("then it got %+v, %v", reply, err)
	}
}

// An agent that has ended, or takes its request back, waits for no person either.
func TestACPQuestionsEndWithTheirRequests(t *testing.T) {
	t.Parallel()
	a := askingACP(t)
	for _, test := range []struct{ message, text string }{{"ask-and-leave", "failed"}, {"ask-and-crash", ""}} {
		file := filepath.Join(t.TempDir(), "now")
		reply, err := a.Run(t.Context(), turnAsking(test.message+" "+file, func(ctx context.Context, _ engine.Ask) (engine.Answer, error) {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return engine.Answer{}, ctx.Err()
		}))
		var interrupted *engine.InterruptedError
		if reply.Text != test.text || errors.As(err, &interrupted) != (test.text == "") {
			t.Errorf("%s: got %+v, %v", test.message, reply, err)
		}
		if len(reply.Permissions) != 1 || reply.Permissions[0].Answer != "rejected: broken off before an answer" {
			t.Errorf("%s: noted are %+v", test.message, reply.Permissions)
		}
	}
}

func TestACPAsksOneQuestionAtATime(t *testing.T) {
	t.Parallel()
	a := askingACP(t)
	var now, most, all atomic.Int32
	reply, err := a.Run(t.Context(), turnAsking(fmt.Sprint("parallel ", maxWaitingAsks), func(context.Context, engine.Ask) (engine.Answer, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		all.Add(1)
		return engine.Answer{Text: "allow"}, nil
	}))
	if err != nil || reply.Text != strings.Repeat("a", maxWaitingAsks) || most.Load() != 1 || all.Load() != maxWaitingAsks {
		t.Errorf("got %+v, %v; %d at once, %d in all", reply, err, most.Load(), all.Load())
	}
}

func TestACPLetsFewRequestsWait(t *testing.T) {
	t.Parallel()
	a := askingACP(t)
	const requests = 3 * maxWaitingAsks
	others := make(chan struct{})
	turn := turnAsking(fmt.Sprint("parallel ", requests), func(ctx context.Context, _ engine.Ask) (engine.Answer, error) {
		select {
		case <-others:
			return engine.Answer{Text: "allow"}, nil
		case <-ctx.Done():
			return engine.Answer{}, ctx.Err()
		}
	})
	rejected := 0
	turn.Emit = func(said engine.Progress) {
		if rejected += strings.Count(said.Text, "r"); rejected == requests-maxWaitingAsks && strings.Contains(said.Text, "r") {
			close(others) // only then are those decided that people are asked about
		}
	}
	reply, err := a.Run(t.Context(), turn)
	if err != nil || strings.Count(reply.Text, "a") != maxWaitingAsks || strings.Count(reply.Text, "r") != requests-maxWaitingAsks {
		t.Errorf("got %+v, %v", reply, err)
	}
	if n := strings.Count(fmt.Sprint(reply.Permissions), rejectedTooMany); n != requests-maxWaitingAsks {
		t.Errorf("%d are noted: %+v", n, reply.Permissions)
	}
}

func TestACPQuestionsShowWhatTheAgentWants(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	redact := func(text string) string { return strings.ReplaceAll(text, "s3cret", "[redacted]") }
	for use, want := range map[string]string{
		`{}`: "execute: it does not say what for",
		`{"title":"ls\nCommand: true","rawInput":{"command":["rm","-r","s3cret"]}}`:        ": ls\\nCommand: true\nCommand: rm -r [redacted]",
		`{"title":"\u202egpj.exe","rawInput":{"command":7,"x":"a\u0007"}}`:                 ": \\u202egpj.exe\nInput: {\"command\":7,\"x\":\"a\\u0007\"}",
		`{"title":"Edit","locations":[{"path":"/a\n/b"},{"path":""},{"path":"/c"}]}`:       ": Edit\nFiles: /a\\n/b, /c",
		`{"title":"touch x\nls","rawInput":{"command":"touch x\nls\n"}}`:                   "execute: touch x\\nls\\n",
		`{"title":"Edit","locations":7,"rawInput":"text"}`:                                 ": Edit\nInput: \"text\"",
		`{"title":"Run","rawInput":{"command":"` + long + `"}}`:                            "xxx… (the rest of its 10000 bytes is left out)",
		`{"title":"Run","rawInput":{"command":"` + long + `…"}}`:                           "xxx… (the rest of its 10003 bytes is left out)",
		`{"title":"Run","rawInput":{"command":"` + strings.Repeat(`\t`, 500) + `…"}}`:      `\t\t… (the rest of its 503 bytes is left out)`,
		`{"title":"Run","rawInput":{"command":"true…"}}`:                                   "Command: true…",
		`{"title":"` + long + `"}`:                                                         "xxx… (the rest of its 10000 bytes is left out)",
		`{"title":"Run","rawInput":{"command":"true"},"locations":null,"content":[1,2,3]}`: ": Run\nCommand: true",
	} {
		var told acpclient.ToolUse
		if err := json.Unmarshal([]byte(use), &told); err != nil {
			t.Fatal(err)
		}
		if got := askedText("execute", &told, redact); !strings.HasSuffix(got, want) {
			t.Errorf("%.200s is asked as\n%s\nwant\n…%s", use, got, want)
		}
	}
}

func FuzzAskedText(f *testing.F) {
	f.Add([]byte(`{"sessionId":"s","toolCall":{"toolCallId":"1","title":"Run","kind":"execute","rawInput":{"command":["a","b"]},"locations":[{"path":"/a","line":1}]}}`))
	f.Add([]byte(`{"toolCall":{"rawInput":{"command":"\u0000\n"},"locations":{}}}`))
	f.Add([]byte(`{"toolCall":{"rawInput":[1, 2],"title":"\ud800"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var request acpclient.PermissionRequest
		if json.Unmarshal(data, &request) != nil {
			return
		}
		text := askedText("other", &request.ToolCall, func(text string) string { return text })
		const lines, mostShown = 3, 1200
		if len(text) > mostShown || strings.Count(text, "\n") >= lines || !utf8.ValidString(text) ||
			strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' }) {
			t.Errorf("%q is asked as %q", data, text)
		}
	})
}

func TestACPRefusesToAskAboutWhatItCannot(t *testing.T) {
	t.Parallel()
	place := caddyconf.AskPlace{Channel: "ops", To: "1"}
	for want, a := range map[string]ACP{
		"'edit' is in permit and in ask":          {Permit: []string{"edit"}, Ask: []Asks{{Kinds: []string{"execute", "edit"}, AskPlace: place}}},
		"'edit' is in two lines of ask":           {Ask: []Asks{{Kinds: []string{"edit"}, AskPlace: place}, {Kinds: []string{"edit"}, AskPlace: place}}},
		"ask has 'edit' twice":                    {Ask: []Asks{{Kinds: []string{"edit", "edit"}, AskPlace: place}}},
		"ask has no kinds of tools":               {Ask: []Asks{{AskPlace: place}}},
		"'write' is not a kind of tool":           {Ask: []Asks{{Kinds: []string{"write"}, AskPlace: place}}},
		"ask needs a channel and a chat":          {Ask: []Asks{{Kinds: []string{"edit"}}}},
		"allow or reject after else, and not 'x'": {Ask: []Asks{{Kinds: []string{"edit"}, AskPlace: caddyconf.AskPlace{Channel: "ops", To: "1", For: 1, Else: "x"}}}},
		"a duration before else, after which":     {Ask: []Asks{{Kinds: []string{"edit"}, AskPlace: caddyconf.AskPlace{Channel: "ops", To: "1", Else: "allow"}}}},
		"cannot have 'execute' with the preset":   {Preset: "gemini", Ask: []Asks{{Kinds: []string{"execute"}, AskPlace: place}}},
		"cannot have 'read' with the preset":      {Preset: "qwen", Ask: []Asks{{Kinds: []string{"read"}, AskPlace: place}}},
	} {
		if a.Preset == "" {
			a.Preset = "claude"
		}
		if err := a.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
