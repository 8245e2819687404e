package settings

import (
	"fmt"
	"testing"
	"time"
)

// Dismissals are bounded, and those of warnings that are gone make place for others.
func TestDismissalsAreBounded(t *testing.T) {
	t.Parallel()
	var s Settings
	var current []Warning
	dismiss := func(w Warning) error {
		d, err := NewDismissal(w, "known", "ann", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return s.Dismiss(d, current)
	}
	for i := range MaxDismissals {
		current = append(current, Warning{Part{Mapping: "a"}, fmt.Sprint("warning ", i)})
		if err := dismiss(current[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := dismiss(current[0]); err != nil || len(s.Dismissals) != MaxDismissals {
		t.Errorf("one that is dismissed already: %d, %v", len(s.Dismissals), err)
	}
	another := Warning{Part{Mapping: "a"}, "another one"}
	if err := dismiss(another); err == nil {
		t.Errorf("%d are dismissed", len(s.Dismissals))
	}
	current = append(current[:3:3], another)
	if err := dismiss(another); err != nil || len(s.Dismissals) != 4 || s.FindDismissal(another.Code()) == nil || s.FindDismissal(current[2].Code()) == nil {
		t.Errorf("%d are dismissed, %v", len(s.Dismissals), err)
	}
}

func TestAWarningIsSplitIntoProblemAndAdvice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"":     {"", ""},
		"a: b": {"a: b", ""},
		"the token has fewer than 16 characters: use a long one: really": {"the token has fewer than 16 characters", "use a long one: really"},
		`hmacHeader is ignored with "authMode": "token": leave it out`:   {`hmacHeader is ignored with "authMode": "token"`, "leave it out"},
		"messageTemplate: {a} is taken twice":                            {"messageTemplate: {a} is taken twice", ""},
		"a text without any advice, which is longer than the beginning:": {"a text without any advice, which is longer than the beginning:", ""},
	} {
		if problem, advice := (Warning{Text: text}).Split(); problem != want[0] || advice != want[1] {
			t.Errorf("%q: got %q and %q", text, problem, advice)
		}
	}
}
