package oneline

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                     "",
		"plain":                "plain",
		"ten bytes!":           "ten bytes!",
		"more than ten":        "more th…",
		"ééééé":                "ééééé",
		"éééééé":               "ééé…",
		"a\nb\r\tc":            `a\nb\r\tc`,
		"\x1b[31m":             `\x1b[31m`,
		"\u202e":               `\u202e`,
		"a\xffb":               "a\ufffdb",
		"\x1b\x1b\x1b\x1b\x1b": `\x1b…`,
	} {
		if got := Of(text, 10); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestFirst(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "",
		" \n\r\n\t":                  "",
		"one":                        "one",
		"\n\n  Traceback:\n  File 1": "Traceback:",
		"a\r\nb":                     "a",
	} {
		if got := First(text, 100); got != want {
			t.Errorf("the first line of %q is %q, want %q", text, got, want)
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add("hello\nworld", 7)
	f.Add("\x1b\xff\u2028", 20)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = 3 + most&0xff
		for _, line := range []string{Of(text, most), First(text, most)} {
			if len(line) > most || !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("%q in %d bytes is %q", text, most, line)
			}
		}
	})
}
