package channels

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

func TestTextsAreSplitAtTheBestPlace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		limit      int
		want       []string
	}{
		{"what fits stays whole", "one two\n\nthree", 20, []string{"one two\n\nthree"}},
		{"what just fits stays whole", "12345", 5, []string{"12345"}},
		{"a paragraph", "one two three.\n\nfour five", 20, []string{"one two three.", "four five"}},
		{"a paragraph rather than a line", "one two thr.\n\nfour\nfive six seven", 22, []string{"one two thr.", "four\nfive six seven"}},
		{"a line if the paragraph ends too soon", "one\n\ntwo three four\nfive six", 22, []string{"one\n\ntwo three four", "five six"}},
		{"a line rather than a sentence", "one two three\nfour. five six", 22, []string{"one two three", "four. five six"}},
		{"a sentence rather than a word", "one two three. Four five six", 22, []string{"one two three.", "Four five six"}},
		{"a sentence in quotes", `say "one two." Four five six`, 22, []string{`say "one two."`, "Four five six"}},
		{"a sentence without a space after it", "一二三四五。六七八九十", 8, []string{"一二三四五。", "六七八九十"}},
		{"a word", "one two three four", 12, []string{"one two", "three four"}},
		{"a word that ends where the room does", "one two three", 7, []string{"one two", "three"}},
		{"a word, though it is short", "a 234567890123", 10, []string{"a", "2345678901", "23"}},
		{"a character", "123456789", 4, []string{"1234", "5678", "9"}},
		{"no surrogate halves", "😀😀😀", 5, []string{"😀😀", "😀"}},
		{"no combining mark alone", "abce\u0301fg", 4, []string{"abc", "e\u0301fg"}},
		{"no mark after the space", "abc de\u0301 \u0301fghij", 8, []string{"abc", "de\u0301 \u0301fgh", "ij"}},
		{"no family torn apart", "a👨‍👩‍👧b", 8, []string{"a", "👨‍👩‍👧", "b"}},
		{"no skin tone alone", "ab👍🏽", 5, []string{"ab", "👍🏽"}},
		{"no flag torn apart", "🇩🇪🇫🇷🇯🇵", 10, []string{"🇩🇪🇫🇷", "🇯🇵"}},
		{"no flag of a region torn apart", "a🏴󠁧󠁢󠁥󠁮󠁧󠁿", 14, []string{"a", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"}},
		{"no syllable torn apart", "ab\u1112\u1161\u11ab", 4, []string{"ab", "\u1112\u1161\u11ab"}},
		{"no conjunct torn apart", "ab\u0915\u094d\u0937", 4, []string{"ab", "\u0915\u094d\u0937"}},
		{"but what is longer than a part", "e\u0301\u0301\u0301\u0301", 3, []string{"e\u0301\u0301", "\u0301\u0301"}},
		{"no break where none is allowed", "one two\u00A0three", 10, []string{"one", "two\u00A0three"}},
		{"an indent stays", "one two three\n    four five", 16, []string{"one two three", "    four five"}},
		{"the first indent stays", "\n\n  one", 10, []string{"  one"}},
		{"white space is no part", "one" + strings.Repeat(" ", 50) + "two", 10, []string{"one", "two"}},
		{"nothing to see is no part", "one" + strings.Repeat("\u200b", 50) + "two", 10, []string{"one\u200b\u200b\u200b\u200b\u200b\u200b\u200b", "two"}},
		{"nothing to see before a word is no part", strings.Repeat("\u200b", 12) + "two", 10, []string{"\u200b\u200btwo"}},
		{"trailing white space", "one two \n\n \t", 9, []string{"one two"}},
		{"blank", " \n\t\u200b\u2800\u3164\ufe0f", 2, nil},
		{"empty", "", 2, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := splitter{limit: tc.limit, size: utf16Length}.split(tc.text, "run")
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestLimitHoldsForWhatIsSent(t *testing.T) {
	t.Parallel()
	limits := map[string]struct {
		field string
		limit int
	}{"telegram": {"text", 4096}, "slack": {"text", 4000}, "discord": {"content", 2000}, "matrix": {"body", 32 << 10}, "github": {"body", 65536},
		"gitlab": {"body", 65536}, "linear": {"", 65536}, "mattermost": {"message", 16383}}
	forEach(t, bots, func(t *testing.T, b bot) {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, 200, b.ok) })
		channel := loadChannel(t, b.config(s.URL, token, ""))
		for _, text := range []string{
			strings.Repeat("<&>", 20_000), strings.Repeat("*_`", 20_000), strings.Repeat("😀", 30_000), strings.Repeat("x\"\\\n\t", 20_000),
			strings.Repeat("https://example.org/a_b ", 3_000), strings.Repeat("- 1. x\n", 9_000), strings.Repeat("Some words. ", 6_000),
		} {
			if err := channel.Send(t.Context(), delivery(b.to, text)); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range s.seen() {
			sent := b.text(t, r)
			if field := limits[b.name].field; field != "" {
				sent = textMember(field)(t, r)
			}
			size := len(utf16.Encode([]rune(sent)))
			if b.name == "matrix" {
				size = len(r.body) - 100 // in JSON, and something around it
			}
			if size > limits[b.name].limit {
				t.Errorf("%.20q has the size %d", sent, size)
			}
		}
	})
}

func TestOverlongAnswerSaysWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	s := splitter{limit: 200, size: utf16Length}
	word := "word😀 "
	text := strings.Repeat(word, 10_000)
	parts := s.split(text, "0197-run")
	if len(parts) != maxParts {
		t.Fatalf("got %d parts", len(parts))
	}
	last := parts[maxParts-1]
	kept, note, _ := strings.Cut(last, "\n\n")
	var left int
	if _, err := fmt.Sscanf(note, "[%d more characters are left out here. Run 0197-run has all of them.]", &left); err != nil {
		t.Fatalf("the last part ends with %q: %v", note, err)
	}
	all := strings.Join(parts[:maxParts-1], " ") + " " + kept + " "
	if !strings.HasPrefix(text, all) {
		t.Error("the parts are not the beginning of the text")
	}
	if want := utf8.RuneCountInString(strings.TrimSpace(text[len(all):])); left != want {
		t.Errorf("%d characters are said to be left out, %d are", left, want)
	}
	if n := s.size(last); n > s.limit {
		t.Errorf("the last part has the size %d", n)
	}

	// Exactly as much as is allowed needs no note.
	text = strings.TrimSpace(strings.Repeat(strings.Repeat("x", 200)+" ", maxParts))
	if parts := s.split(text, "0197-run"); len(parts) != maxParts || strings.Contains(parts[maxParts-1], "left out") {
		t.Errorf("got %d parts, and at last %q", len(parts), parts[len(parts)-1])
	}
}

func TestCleanTextHoldsNoControlCharacters(t *testing.T) {
	t.Parallel()
	got := cleanText("a\r\nb\rc\x00\x1b[1m\x7f\u0085d\u2028e\u2029f\tg\xff\ufffe\U0001fffe\ufdd0h\u009f\u200d\u202eü")
	if want := "a\nb\nc[1m\nd\ne\nf\tg\ufffdh\u200d\u202eü"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzSplit checks that parts are fit to be sent, and that together they are the text.
func FuzzSplit(f *testing.F) {
	for _, text := range []string{
		"one two\n\nthree", "<a> & *b*", "👨‍👩‍👧🇩🇪🇫🇷", strings.Repeat("word. ", 200), "e\u0301\u0301\u0301", "\u200b\u200b x", "https://a.b/_c_ - 1. x\n# y",
		strings.Repeat("a", 3000), strings.Repeat("😀\n", 900), "\x00\xff\r\n", strings.Repeat("。", 300), "- https://x\\<@1>",
	} {
		for kind := range byte(4) {
			f.Add(text, uint16(150), kind)
			f.Add(text, uint16(1000), kind)
		}
	}
	f.Fuzz(func(t *testing.T, text string, limit uint16, kind byte) {
		s := []splitter{telegramSplitter, slackSplitter, discordSplitter, matrixSplitter}[kind%4]
		s.limit = max(int(limit), 150) // room for the note about what is left out
		text = cleanText(text)
		parts := s.split(text, "0197f5a0-0000-7000-8000-000000000000")
		if len(parts) > maxParts {
			t.Fatalf("got %d parts", len(parts))
		}
		if again := s.split(text, "0197f5a0-0000-7000-8000-000000000000"); !slices.Equal(parts, again) {
			t.Fatal("the same text is split differently")
		}
		rest := text
		for i, part := range parts {
			if !utf8.ValidString(part) || isBlank(part) {
				t.Fatalf("part %d is %q", i, part)
			}
			if n := s.size(part); n > s.limit {
				t.Fatalf("part %d has the size %d of %d", i, n, s.limit)
			}
			if i == maxParts-1 && strings.Contains(part, " more characters are left out here. Run ") {
				return
			}
			at := strings.Index(rest, part)
			if at < 0 || !isBlank(rest[:at]) {
				t.Fatalf("part %d, %q, is not what comes next", i, part)
			}
			rest = rest[at+len(part):]
		}
		if !isBlank(rest) {
			t.Fatalf("%q got lost", rest)
		}
		if len(parts) == 1 && strings.TrimFunc(text, unicode.IsSpace) != strings.TrimFunc(parts[0], unicode.IsSpace) && !isBlank(strings.Replace(text, parts[0], "", 1)) {
			t.Fatalf("%q became %q", text, parts[0])
		}
	})
}
