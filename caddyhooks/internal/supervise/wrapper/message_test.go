package wrapper_test

import (
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

func TestOrdersArriveAsTheyWereGiven(t *testing.T) {
	t.Parallel()
	for _, order := range []wrapper.Order{
		{Path: "/bin/true", Args: []string{"true"}, Env: []string{}, Dir: "/"},
		{Path: "/bin/true", Args: []string{"", "", "a b", "\n"}, Env: []string{"A=", "B=1"}, Dir: "/", Turn: "t", AsUser: true, UID: 1, GID: 1<<32 - 1, Groups: []uint32{3, 4}},
		{Path: "p", Args: []string{"p"}, Env: []string{}, AsUser: true}, // root
	} {
		if got, err := wrapper.ReadOrder(order.Text()); err != nil || !reflect.DeepEqual(got, order) {
			t.Errorf("got %+v, %v, want %+v", got, err, order)
		}
	}
}

func FuzzReadOrder(f *testing.F) {
	f.Add(wrapper.Order{Path: "/bin/true", Args: []string{"a", "b"}, Env: []string{"A=1"}, AsUser: true, Groups: []uint32{1}}.Text())
	f.Add("")
	f.Add("a\x00b\x00c\x001\x00-1")
	f.Fuzz(func(t *testing.T, text string) {
		order, err := wrapper.ReadOrder(text)
		if err != nil {
			return
		}
		if again, err := wrapper.ReadOrder(order.Text()); err != nil || !reflect.DeepEqual(order, again) {
			t.Errorf("got %+v, then %+v, %v", order, again, err)
		}
	})
}

// Each package that is imported here starts before the wrapper does, and lets others start that have no other reason to wait.
func TestWrapperImportsLittle(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	// What these four import is not chosen here.
	allowed, err := exec.Command("go", "list", "-deps", "os", "os/signal", "strconv", "time").Output()
	if err != nil {
		t.Fatal(err)
	}
	few := strings.Fields(string(allowed))
	for _, name := range strings.Fields(string(out)) {
		if !slices.Contains(few, name) && !strings.Contains(name, "/internal/supervise/") {
			t.Errorf("it imports %s", name)
		}
	}
}
