package caddyhooks_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
)

// openTerminal opens a pseudo terminal: what a person has before them, and what a command gets.
func openTerminal(t *testing.T) (person, command *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if command, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(command.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 250}); err != nil {
		t.Fatal(err)
	}
	return person, command
}

// typed runs `caddy hooks` on a terminal at which somebody types, and returns what they see. The answers alone go elsewhere, as with
// a redirection.
func typed(t *testing.T, keys string, args ...string) (out, seen string, err error) {
	t.Helper()
	person, terminal := openTerminal(t)
	if _, err := io.WriteString(person, keys); err != nil {
		t.Fatal(err)
	}
	var screen strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&screen, person) }) // ends with an error when the terminal is closed
	var stdout strings.Builder
	err = caddyhooks.RunCommand(terminal, &stdout, terminal, args...)
	terminal.Close()
	reading.Wait()
	return stdout.String(), strings.ReplaceAll(screen.String(), "\r\n", "\n"), err
}
