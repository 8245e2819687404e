package terminal

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Progress tells, on one line of a terminal, how far long work has got.
type Progress struct {
	screen *Screen
	shown  int // characters of the line
	last   time.Time
}

// Progress starts to report on long work. Without a terminal it prints nothing.
func (s *Screen) Progress() *Progress { return &Progress{screen: s} }

// IsShown reports whether somebody sees it.
func (p *Progress) IsShown() bool { return p.screen.progress }

// Show replaces the line, some times a second at most.
func (p *Progress) Show(format string, args ...any) {
	const pause = 100 * time.Millisecond
	if !p.screen.progress || time.Since(p.last) < pause {
		return
	}
	p.last = time.Now()
	p.replace(Escaped(fmt.Sprintf(format, args...)))
}

// Close takes the line away.
func (p *Progress) Close() {
	if p.shown > 0 {
		p.replace("")
		fmt.Fprint(p.screen.err, "\r")
	}
}

func (p *Progress) replace(line string) {
	length := utf8.RuneCountInString(line)
	fmt.Fprint(p.screen.err, "\r"+line+strings.Repeat(" ", max(0, p.shown-length)))
	p.shown = length
}
