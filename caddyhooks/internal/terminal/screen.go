// Package terminal is how a command talks to the person who runs it: lines, tables, colours, questions and progress. What it prints
// may come from outside, so control characters are shown escaped. Without a terminal there are no colours, no progress, and nobody
// is asked.
package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

// Screen is where a command reads and prints. Answers go to out, all else that a person wants to know goes to err, so that out can
// be given to another program.
type Screen struct {
	in       io.Reader
	out, err io.Writer

	colours  bool
	person   bool // out is a terminal
	width    int  // of that terminal, 0 if it has none
	asks     bool // somebody is there to answer
	progress bool // err is a terminal
}

// New makes a screen. Colours are for terminals alone, and neither for one that cannot show them nor for who does not want them.
func New(in io.Reader, out, err io.Writer) *Screen {
	s := &Screen{in: in, out: out, err: err, progress: isTerminal(err), asks: isTerminal(in) && isTerminal(err)}
	if isTerminal(out) {
		s.person = true
		s.colours = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		s.width, _, _ = term.GetSize(int(out.(descriptor).Fd()))
	}
	return s
}

// descriptor is a file, or what stands for one.
type descriptor interface{ Fd() uintptr }

func isTerminal(stream any) bool {
	file, ok := stream.(descriptor)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Out is where answers go that are printed as they are, such as JSON and files.
func (s *Screen) Out() io.Writer { return s.out }

// IsTerminal reports whether a person sees the answers.
func (s *Screen) IsTerminal() bool { return s.person }

// Line prints a line of the answer. Its parts stand beside each other.
func (s *Screen) Line(parts ...Text) {
	var line strings.Builder
	for _, part := range parts {
		line.WriteString(s.paint(part))
	}
	fmt.Fprintln(s.out, strings.TrimRight(line.String(), " "))
}

// Lines prints a text of several lines, each after a mark.
func (s *Screen) Lines(mark Text, text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		line = strings.TrimRight(line, "\r\n")
		s.Line(mark, Plain(strings.ReplaceAll(line, "\t", "    ")))
	}
}

// Note prints a line beside the answer.
func (s *Screen) Note(format string, args ...any) {
	fmt.Fprintln(s.err, Escaped(fmt.Sprintf(format, args...)))
}

// ErrNobody says that a question was asked where nobody can answer.
var ErrNobody = errors.New("there is no terminal to ask at: say --yes if you are sure")

// Confirm asks a question, and reports whether the answer is yes.
func (s *Screen) Confirm(question string) (bool, error) {
	if !s.asks {
		return false, ErrNobody
	}
	return s.ask(question)
}

func (s *Screen) ask(question string) (bool, error) {
	fmt.Fprintf(s.err, "%s [y/N] ", Escaped(question))
	answer, err := bufio.NewReader(s.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// Secret asks for a secret, which is not shown while it is typed.
func (s *Screen) Secret(question string) (string, error) {
	file, ok := s.in.(descriptor)
	if !ok || !s.asks {
		return "", errors.New("there is no terminal to ask at")
	}
	fmt.Fprintf(s.err, "%s: ", Escaped(question))
	secret, err := term.ReadPassword(int(file.Fd()))
	fmt.Fprintln(s.err)
	return string(secret), err
}

// Escaped is a text without control characters and other invisible ones, which could deceive a reader or control the terminal.
func Escaped(text string) string {
	const noLimit = int(^uint(0) >> 1)
	return oneline.Of(text, noLimit)
}
