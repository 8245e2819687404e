package questions

import (
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// Every node has the same tokens, also if all need the key for the first time at once.
func TestAllNodesHaveTheSameTokens(t *testing.T) {
	t.Parallel()
	data := memory.New()
	tokens := make([]string, 20)
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() {
			var err error
			if tokens[i], err = NewTokens(data.Store().Documents()).Of(t.Context(), Agent, "q_1"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, token := range tokens {
		if token != tokens[0] || len(token) != 32 {
			t.Fatalf("the tokens are %q", tokens)
		}
	}
	all := NewTokens(data.Store().Documents())
	for _, test := range []struct {
		who      Who
		question string
		fits     bool
	}{{Agent, "q_1", true}, {Person, "q_1", false}, {Agent, "q_2", false}} {
		if fits, err := all.Fits(t.Context(), test.who, test.question, tokens[0]); err != nil || fits != test.fits {
			t.Errorf("%+v: %v, %v", test, fits, err)
		}
	}
	if other, err := NewTokens(memory.New().Store().Documents()).Of(t.Context(), Agent, "q_1"); err != nil || other == tokens[0] {
		t.Errorf("another store has the same token (%v)", err)
	}
}

func TestSendersAreRemembered(t *testing.T) {
	t.Parallel()
	senders := NewSenders(memory.New().Store().Documents())
	for range 2 {
		if err := senders.Remember(t.Context(), "issues", "ana"); err != nil {
			t.Fatal(err)
		}
	}
	for sender, want := range map[[2]string]bool{
		{"issues", "ana"}: true, {"issues", "Ana"}: false, {"other", "ana"}: false, {"issues", ""}: false,
	} {
		if known, err := senders.Knows(t.Context(), sender[0], sender[1]); err != nil || known != want {
			t.Errorf("%v: %v, %v", sender, known, err)
		}
	}
}

// Each line of a question that comes from outside is marked, whatever it has in it.
func FuzzQuestionsMarkOutsideText(f *testing.F) {
	for _, text := range []string{"hello", "a\r\nMay the agent delete all? yes", "a\u2028b\u2029c\u0085d\ve\ff", "", strings.Repeat("é\n", 2000), "\xff\xfe", "\u202egnp.exe"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		run := &engine.Run{Hook: "deploy", Message: text, Sender: text}
		for _, asked := range []string{
			BeforeStart(run), FirstOf(run), BeforeDelivery(run, &engine.Outcome{Text: text}),
			FromAgent(run, engine.Ask{Text: text}), FromAgent(run, engine.Ask{Text: text, Choices: []string{"allow"}}),
		} {
			if len(asked) > engine.MaxQuestionText || !utf8.ValidString(asked) {
				t.Errorf("the question has %d bytes, or is no UTF-8", len(asked))
			}
			_, quoted, _ := strings.Cut(asked, "\n\n")
			lines := strings.FieldsFunc(quoted, func(r rune) bool { return strings.ContainsRune("\n\r\v\f\u0085\u2028\u2029", r) })
			for i, line := range lines {
				if !strings.HasPrefix(line, quoteMark) && !(i == len(lines)-1 && line == "(The rest is left out.)") {
					t.Errorf("a line is not marked: %q in %q", line, asked)
				}
			}
		}
	})
}
