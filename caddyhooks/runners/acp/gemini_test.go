package acp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestSessionsOfGeminiAreNotOpenedInTheMinuteTheyBegan(t *testing.T) {
	t.Parallel()
	const id = "7d31160a-3872-492e-b79c-1215dc5982a0"
	now := time.Date(2026, 11, 16, 17, 25, 40, 7, time.FixedZone("", 3600))
	for name, test := range map[string]struct {
		id    string
		files []string
		wait  time.Duration
	}{
		"it began in this minute":             {id, []string{"session-2026-11-16T16-25-7d31160a.jsonl"}, 20*time.Second - 7},
		"it began before":                     {id, []string{"session-2026-11-16T16-24-7d31160a.jsonl"}, 0},
		"it began before, and was opened now": {id, []string{"session-2026-11-16T16-25-7d31160a.jsonl", "session-2026-11-16T16-24-7d31160a.jsonl"}, 0},
		"another one began":                   {id, []string{"session-2026-11-16T16-25-8d31160a.jsonl"}, 0},
		"there is none":                       {id, nil, 0},
		"its name is none of Gemini CLI":      {"*", []string{"session-2026-11-16T16-25-7d31160a.jsonl"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := filepath.Join(t.TempDir(), "[a*]?")
			chats := filepath.Join(home, ".gemini", "tmp", "work", "chats")
			if err := os.MkdirAll(chats, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, file := range test.files {
				if err := os.WriteFile(filepath.Join(chats, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if wait := geminiReadyAt(home, test.id, now).Sub(now); wait != test.wait {
				t.Errorf("waits %v", wait)
			}
		})
	}
}

func TestFilesThatGeminiLeavesAreRemoved(t *testing.T) {
	t.Parallel()
	const id, answer = "7d31160a-3872-492e-b79c-1215dc5982a0", `{"id":"1","type":"gemini","content":"hello"}`
	home := t.TempDir()
	chats := filepath.Join(home, ".gemini", "tmp", "work", "chats")
	if err := os.MkdirAll(chats, 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "session-2026-11-16T16-27-7d31160a.jsonl")
	for file, text := range map[string]string{
		filepath.Join(chats, "session-2026-11-16T16-25-7d31160a.jsonl"): answer,
		filepath.Join(chats, "session-2026-11-16T16-26-7d31160a.jsonl"): `{"sessionId":"…"}`,
		filepath.Join(chats, "session-2026-11-16T16-28-7d31160a.jsonl"): answer, // nobody knows why
		filepath.Join(chats, "session-2026-11-16T16-26-8d31160a.jsonl"): `{"sessionId":"another"}`,
		outside: "not Gemini CLI's",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := geminiOpened(home, id); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(chats, "*"))
	if want := []string{"session-2026-11-16T16-25-7d31160a.jsonl", "session-2026-11-16T16-26-8d31160a.jsonl", "session-2026-11-16T16-28-7d31160a.jsonl"}; err != nil ||
		!slices.EqualFunc(left, want, func(path, name string) bool { return filepath.Base(path) == name }) {
		t.Errorf("there is left %q, %v", left, err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(home, ".gemini", "tmp", "other")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(filepath.Dir(outside), "chats")); err != nil {
		t.Fatal(err)
	}
	if err := geminiOpened(home, id); err == nil {
		t.Error("a link was followed out of the home")
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

func TestACPWaitsUntilASessionMayBeOpened(t *testing.T) {
	t.Parallel()
	a := newACP(t)
	asked := make(chan string, 10)
	chat := testChat{session: "long-gone"}
	ctx, cancel := context.WithCancel(t.Context())
	a.preset.readyAt = func(_, id string, now time.Time) time.Time {
		asked <- id
		cancel()
		return now.Add(time.Hour)
	}
	if _, err := chat.ask(ctx, a, "hello"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	a.preset.readyAt = func(_, id string, now time.Time) time.Time {
		asked <- id
		if len(asked) == 2 {
			return now.Add(time.Millisecond)
		}
		return now
	}
	if reply := answerOf(t, &chat, a, "hello"); !reply.SessionRenewed {
		t.Errorf("got %+v", reply)
	}
	answerOf(t, &chat, a, "hello") // its session is open
	if len(asked) != 3 {
		t.Errorf("asked %d times", len(asked))
	}
}
