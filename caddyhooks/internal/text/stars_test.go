package text_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// wordsUpTo are all words of some letters, up to a length.
func wordsUpTo(length int, letters string) []string {
	words := []string{""}
	for from := 0; length > 0; length-- {
		end := len(words)
		for _, word := range words[from:end] {
			for _, letter := range letters {
				words = append(words, word+string(letter))
			}
		}
		from = end
	}
	return words
}

// All short patterns are compared with all texts that could match two of them: a shortest one has no more letters than both together.
func TestShortPatternsWithStars(t *testing.T) {
	t.Parallel()
	patterns, texts := wordsUpTo(4, "ab*"), wordsUpTo(8, "ab")
	matches := make([][]bool, len(patterns))
	for i, pattern := range patterns {
		same := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "*", ".*") + "$")
		for _, word := range texts {
			got := text.MatchesStars(pattern, word)
			if want := same.MatchString(word); got != want {
				t.Errorf("%q matches %q: %t", word, pattern, got)
			}
			matches[i] = append(matches[i], got)
		}
	}
	for i, a := range patterns {
		for j, b := range patterns {
			want := false
			for k := range texts {
				want = want || matches[i][k] && matches[j][k]
			}
			if got := text.StarsOverlap(a, b); got != want {
				t.Errorf("%q and %q overlap: %t", a, b, got)
			}
		}
	}
}

func TestPatternsThatOverlap(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a*", 64)
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"gpt-5*", "gpt-5-mini", true},
		{"gpt-5", "gpt-5-*", false},
		{"*-mini", "gpt-*", true},
		{"*-mini", "*-nano", false},
		{"*", "", true},
		{"*mini*", "gpt*5", true}, // gptmini5
		{"é*", "*é", true},
		{long, long + "b", true},
		{long + "b", long + "c", false},
	} {
		if got := text.StarsOverlap(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q overlap: %t", tt.a, tt.b, got)
		}
	}
}
