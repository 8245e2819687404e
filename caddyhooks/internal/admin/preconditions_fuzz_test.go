package admin

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestPreconditionsOfRFC9110(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		match, noneMatch, current string // "" is no header, and nothing there
		want                      bool
	}{
		{"", "", `"a"`, true}, {"", "", "", true},
		{`"a"`, "", `"a"`, true}, {`"b"`, "", `"a"`, false}, {`"a"`, "", "", false},
		{`*`, "", `"a"`, true}, {` * `, "", `"a"`, true}, {`*`, "", "", false},
		{`"b", "a"`, "", `"a"`, true}, {`,"b" ,, "a",`, "", `"a"`, true}, {`"b,a"`, "", `"a"`, false},
		{`W/"a"`, "", `"a"`, false}, {`W/"a", "a"`, "", `"a"`, true},
		{"", "*", `"a"`, false}, {"", "*", "", true},
		{"", `"a"`, `"a"`, false}, {"", `W/"a"`, `"a"`, false}, {"", `"b"`, `"a"`, true}, {"", `"a"`, "", true},
		{`"a"`, `"b"`, `"a"`, true}, {`"a"`, `*`, `"a"`, false},
	} {
		header := make(http.Header)
		if c.match != "" {
			header.Set("If-Match", c.match)
		}
		if c.noneMatch != "" {
			header.Set("If-None-Match", c.noneMatch)
		}
		p, err := parsePreconditions(header)
		if err != nil || p.hold(c.current) != c.want {
			t.Errorf("%+v: %v, want %v", c, err, c.want)
		}
	}
	for _, bad := range []string{"", " ", ",", "a", `"a`, `a"`, `"a" "b"`, `"a""b"`, `*, "a"`, `w/"a"`, `W/ "a"`, `"a b"`, "\"a\tb\"", `"` + strings.Repeat("a", maxTagList) + `"`} {
		if p, err := parsePreconditions(http.Header{"If-Match": {bad}}); err == nil {
			t.Errorf("%.40q is taken for %+v", bad, p.match)
		}
	}
	two, err := parsePreconditions(http.Header{"If-Match": {`"a"`, `"b"`}})
	if err != nil || !two.hold(`"b"`) {
		t.Errorf("two headers: %+v, %v", two.match, err)
	}
}

// What is parsed can be written again, and then means the same.
func FuzzParseTagList(f *testing.F) {
	for _, seed := range []string{`*`, `"a", W/"b"`, `,"",`, `"a" "b"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseTagList(http.Header{"If-Match": {text}}, "If-Match")
		if err != nil || list.any {
			return
		}
		var all []string
		for _, tag := range list.tags {
			written := tag.text
			if tag.weak {
				written = "W/" + written
			}
			if len(tag.text) < 2 || strings.Count(tag.text, `"`) != 2 || !strings.Contains(text, written) {
				t.Fatalf("%q has no tag %q", text, written)
			}
			all = append(all, written)
		}
		again, err := parseTagList(http.Header{"If-Match": {strings.Join(all, ", ")}}, "If-Match")
		if err != nil || !slices.Equal(again.tags, list.tags) {
			t.Fatalf("%q becomes %+v and then %+v, %v", text, list, again, err)
		}
	})
}
