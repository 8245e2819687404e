package terminal

import (
	"errors"
	"strings"
	"testing"
)

func TestTableWithoutATerminal(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	s := New(strings.NewReader("y\n"), &out, &errs)
	s.Table([]string{"STATUS", "REASON"}, [][]Text{
		{Good("completed"), Plain("")},
		{Bad("föhn"), Plain(strings.Repeat("long ", 60) + "\x1b[31m\nnext")},
	})
	want := "STATUS     REASON\ncompleted\nföhn       " + strings.Repeat("long ", 60) + `\x1b[31m\nnext` + "\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if _, err := s.Confirm("Go on?"); !errors.Is(err, ErrNobody) {
		t.Errorf("asked nobody: %v", err)
	}
	if _, err := s.Secret("Token"); err == nil {
		t.Error("asked nobody for a secret")
	}
	p := s.Progress()
	p.Show("half")
	p.Close()
	if errs.Len() > 0 {
		t.Errorf("printed %q beside the answer", errs.String())
	}
}

func TestTableOnATerminal(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	s := &Screen{in: strings.NewReader("yes\n"), out: &out, err: &errs, colours: true, width: 20, progress: true}
	s.Table([]string{"A", "B"}, [][]Text{{Bad("failed"), Plain("a reason that is too long")}})
	want := "\x1b[1mA\x1b[0m       \x1b[1mB\x1b[0m\n\x1b[31mfailed\x1b[0m  a reason th…\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if yes, err := s.ask("Go on?"); !yes || err != nil || errs.String() != "Go on? [y/N] " {
		t.Errorf("got %v %v %q", yes, err, errs.String())
	}
	errs.Reset()
	p := s.Progress()
	p.Show("%d runs", 10)
	p.replace("1 run")
	p.Close()
	if want := "\r10 runs\r1 run  \r     \r"; errs.String() != want {
		t.Errorf("got %q, want %q", errs.String(), want)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "y": true, "\n": false, "": false, "no\n": false, "yo\n": false} {
		s := &Screen{in: strings.NewReader(answer), out: new(strings.Builder), err: new(strings.Builder)}
		if got, err := s.ask("Go on?"); got != want || err != nil {
			t.Errorf("%q: got %v, %v", answer, got, err)
		}
	}
}

func TestRowsThatCome(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	rows := New(strings.NewReader(""), &out, &out).Rows("A", "B")
	rows.Print([]Text{Plain("long word"), Plain("1")})
	rows.Print([]Text{Plain("a"), Plain("2")})
	rows.Print([]Text{Plain("a longer word"), Plain("3")}, []Text{Plain("b"), Plain("4")})
	New(strings.NewReader(""), &out, &out).Rows().AtLeast(3).Print([]Text{Plain("c"), Plain("5")})
	if want := "A          B\nlong word  1\na          2\na longer word  3\nb              4\nc    5\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
