package dashboard

import "testing"

// The page stays small enough for a bad line. Pages that are opened later fetch their own module.
func TestThePageIsSmall(t *testing.T) {
	t.Parallel()
	size := func(names ...string) (n int) {
		for _, name := range names {
			file, ok := site().assets[name]
			if !ok {
				t.Fatalf("there is no %s", name)
			}
			if file.gzipped != nil {
				n += len(file.gzipped)
			} else {
				n += len(file.plain)
			}
		}
		return n
	}
	first := size("main.js", "api.js", "dom.js", "words.js", "times.js", "pauses.js", "questions.js", "plot.js", "overview.js", "dashboard.css", "icons.svg")
	all := 0
	for name := range site().assets {
		all += size(name)
	}
	t.Logf("compressed, a first visit of the overview fetches %d bytes, and all pages together have %d", first, all)
	if first > 35<<10 {
		t.Errorf("a first visit fetches %d bytes, more than 35 KB", first)
	}
	if all > 80<<10 {
		t.Errorf("all pages together have %d bytes, more than 80 KB", all)
	}
}
