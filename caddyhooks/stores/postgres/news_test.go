package postgres

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestWords(t *testing.T) {
	t.Parallel()
	ids := func(n int) (all []string) {
		for range n {
			all = append(all, uuid.NewString())
		}
		return all
	}
	for _, said := range []word{
		{node: "a"}, {node: "a", kinds: "rd"}, {node: "a", runs: ids(3)}, {node: "a", nodes: []string{"b", "c"}},
		{node: "a", kinds: "rdscfn", runs: ids(mostHints), nodes: []string{"b"}},
	} {
		if got, ok := parseWord(said.String()); !ok || !reflect.DeepEqual(got, said) {
			t.Errorf("%q was read as %+v", said, got)
		}
	}
	var nodes []string
	for i := range 100 {
		nodes = append(nodes, fmt.Sprint("node number ", i))
	}
	for _, n := range []int{mostHints, mostHints + 1, 10 * mostHints} {
		long := word{node: strings.Repeat("n", 12), kinds: "rdscfn", runs: ids(n), nodes: nodes[:mostHints/2]}.String()
		if len(long) >= 8000 {
			t.Errorf("a word with %d runs has %d bytes", n, len(long))
		}
		if said, ok := parseWord(long); !ok || n > mostHints && (!strings.Contains(said.kinds, "e") || len(said.runs) > 0) {
			t.Errorf("a word with %d runs was read as %+v", n, said)
		}
	}
}

func TestChannelHasTheNameOfTheSchema(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		"hooks_default": "hooks_default", strings.Repeat("x", 63): strings.Repeat("x", 63), strings.Repeat("x", 64): strings.Repeat("x", 63),
		strings.Repeat("é", 40): strings.Repeat("é", 31),
	} {
		w := &watch{store: &store{database: &database{schema: schema}}}
		if got := w.channel(); got != want {
			t.Errorf("the channel of %q is %q", schema, got)
		}
	}
}

// Anybody who can reach the database can say something.
func FuzzWord(f *testing.F) {
	f.Add("AbCdEfGhIjKl rd r01890a5d-ac96-774b-bcce-b302099a8057 nAbCdEfGhIjKl")
	f.Add("a  r n x")
	f.Add(" ")
	s := makeStore(&database{node: "own"})
	f.Fuzz(func(t *testing.T, text string) {
		said, ok := parseWord(text)
		if !ok {
			return
		}
		again, ok := parseWord(said.String())
		if !ok || again.node != said.node || !strings.HasPrefix(again.kinds, said.kinds) {
			t.Errorf("%q was read as %+v, and that as %+v", text, said, again)
		}
		s.watch.hear(said)
		s.watch.pulse.take()
	})
}
