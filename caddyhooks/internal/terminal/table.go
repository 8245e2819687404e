package terminal

import (
	"strings"
	"unicode/utf8"
)

// Text is a text and how it looks.
type Text struct {
	text string
	look look
}

type look string

// Looks, as the numbers of terminals' colours.
const (
	plain look = ""
	bold  look = "1"
	faint look = "2"
	red   look = "31"
	green look = "32"
	amber look = "33"
)

// Plain is a text without a colour. The others have one: Good and Bad for how something ended, Warn for what needs a look, Faint
// for what is there for completeness, Bold for what to look at first.
func Plain(text string) Text { return Text{text, plain} }
func Bold(text string) Text  { return Text{text, bold} }  // see Plain
func Faint(text string) Text { return Text{text, faint} } // see Plain
func Good(text string) Text  { return Text{text, green} } // see Plain
func Bad(text string) Text   { return Text{text, red} }   // see Plain
func Warn(text string) Text  { return Text{text, amber} } // see Plain

// Padded is the text with as many spaces behind it as make it so wide.
func (t Text) Padded(width int) Text {
	t.text += strings.Repeat(" ", max(0, width-utf8.RuneCountInString(Escaped(t.text))))
	return t
}

func (s *Screen) paint(t Text) string {
	text := Escaped(t.text)
	if !s.colours || t.look == plain || text == "" {
		return text
	}
	return "\x1b[" + string(t.look) + "m" + text + "\x1b[0m"
}

// Table prints rows below a header, in columns. On a terminal, the last column is cut where the line ends.
func (s *Screen) Table(header []string, rows [][]Text) {
	s.Rows(header...).Print(rows...)
}

// Rows prints the rows of a table as they come. Columns get wider where they must, and never narrower again.
type Rows struct {
	screen *Screen
	header []string
	widths []int
}

// Rows begins a table, which may have no header.
func (s *Screen) Rows(header ...string) *Rows { return &Rows{screen: s, header: header} }

// AtLeast gives the first columns a least width, for tables whose rows come one by one.
func (r *Rows) AtLeast(widths ...int) *Rows {
	r.widths = widths
	return r
}

// Print prints rows, below the header if they are the first.
func (r *Rows) Print(rows ...[]Text) {
	if r.header != nil {
		titles := make([]Text, len(r.header))
		for i, title := range r.header {
			titles[i] = Bold(title)
		}
		rows = append([][]Text{titles}, rows...)
		r.header = nil
	}
	for _, row := range rows {
		for i, cell := range row {
			if i == len(r.widths) {
				r.widths = append(r.widths, 0)
			}
			r.widths[i] = max(r.widths[i], utf8.RuneCountInString(Escaped(cell.text)))
		}
	}
	for _, row := range rows {
		r.print(row)
	}
}

func (r *Rows) print(row []Text) {
	const gap = 2
	line := make([]Text, 0, 2*len(row))
	at := 0
	for i, cell := range row {
		if i == len(row)-1 {
			cell.text = r.screen.cut(Escaped(cell.text), at)
			line = append(line, cell)
			break
		}
		space := r.widths[i] + gap - utf8.RuneCountInString(Escaped(cell.text))
		line = append(line, cell, Plain(strings.Repeat(" ", space)))
		at += r.widths[i] + gap
	}
	r.screen.Line(line...)
}

// cut shortens a text that begins at a column so that it ends where the terminal does.
func (s *Screen) cut(text string, at int) string {
	space := s.width - at
	if s.width == 0 || utf8.RuneCountInString(text) <= space {
		return text
	}
	if space < 2 { // there is nothing to see but the next line
		return text
	}
	return string([]rune(text)[:space-1]) + "…"
}
