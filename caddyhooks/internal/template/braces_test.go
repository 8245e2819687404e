package template

import "testing"

func TestDoubleBracesAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"New issue: {{issue.title}}": {"{{issue.title}}", "{issue.title}"},
		"{{ issue.title }} {{b}}":    {"{{ issue.title }}", "{issue.title}"},
		"{{ .Status }}":              {"{{ .Status }}", "{Status}"},
		"{{{raw}}}":                  {"{{raw}}", "{raw}"},
		"{{$.a[0]}}":                 {"{{$.a[0]}}", "{$.a[0]}"},
		"{{ $json.body }}":           {"{{ $json.body }}", ""},
		"{{#if a}}":                  {"{{#if a}}", ""},
		"{{range .Alerts}}":          {"{{range .Alerts}}", ""},
		"{issue.title}":              {},
		`{"a": {"b": 1}}`:            {},
		"{{":                         {},
		"{{}}":                       {},
		"{{a\n}}":                    {},
		"":                           {},
	} {
		if found, meant := DoubleBraces(text); found != want[0] || meant != want[1] {
			t.Errorf("%q: got %q, %q, want %q", text, found, meant, want)
		}
	}
}
