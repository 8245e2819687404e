package caddyhooks_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// onScreen runs `caddy hooks` with its answer on a terminal that tells no size, and returns all that a person sees.
func onScreen(t *testing.T, args ...string) (seen string, err error) {
	t.Helper()
	person, terminal := openTerminal(t)
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{}); err != nil {
		t.Fatal(err)
	}
	var screen strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&screen, person) }) // ends with an error when the terminal is closed
	err = caddyhooks.RunCommand(terminal, terminal, terminal, args...)
	terminal.Close()
	reading.Wait()
	return strings.ReplaceAll(screen.String(), "\r\n", "\n"), err
}

func TestExportsDoNotControlATerminal(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	s.Ended(s.Accept(hookstest.AsJSON(t, map[string]any{"message": "\x1b]0;title\x07 \x1b[31m \u009b \u202e Grüße", "chatId": "odd"})))
	for _, format := range []string{"csv", "jsonl"} {
		seen, err := onScreen(t, "export", "--of", "chat", "--chat", "odd", "--format", format, "--address", strings.TrimPrefix(s.Admin, "http://"))
		if err != nil || !strings.Contains(seen, "Grüße") {
			t.Errorf("%s: %v %q", format, err, seen)
		}
		if strings.ContainsAny(seen, "\x1b\x07\u009b\u202e") {
			t.Errorf("%s: %q", format, seen)
		}
	}
}

func TestAnAnswerThatTheDiskCutShortIsAFailure(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"health"}, {"runners"}, {"schema"}} {
		err := caddyhooks.RunCommand(strings.NewReader(""), full, io.Discard, append(args, "--address", strings.TrimPrefix(s.Admin, "http://"))...)
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestABackupIsNotForATerminal(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nrunner echo\n}")
	seen, err := onScreen(t, "backup", "-", "--address", strings.TrimPrefix(s.Admin, "http://"))
	if err == nil || !strings.Contains(seen, "a backup is not for a terminal: name a file") || strings.Contains(seen, "\x00") {
		t.Errorf("%v %q", err, seen)
	}
}
