package codec

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzTexts(f *testing.F) {
	for _, text := range []string{"", "chat", `a\b`, "\x00", "\xff\xfe", `\00`, "é\\\x00", "\uFFFD"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		stored := Escape(text)
		if !utf8.ValidString(stored) || strings.Contains(stored, "\x00") {
			t.Fatalf("%q cannot be stored", stored)
		}
		if got := Unescape(stored); got != text {
			t.Fatalf("%q was stored as %q and came back as %q", text, stored, got)
		}
	})
}
