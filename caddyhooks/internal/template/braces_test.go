package template

import (
	"strings"
	"testing"
)

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

func TestABraceWithoutItsEndIsFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"New issue: {issue.title":             "{issue.title",
		"{issue.title by {user.login}":        "{issue.title",
		"{user.login}: {tags[0]\nand more":    "{tags[0]",
		"{issue.title}":                       "",
		"{ issue.title }":                     "",
		"{not a path}":                        "",
		"{a:b":                                "",
		"{":                                   "",
		"{ ":                                  "",
		"{{issue.title":                       "",
		"{1 of 2":                             "",
		"a smile :{ here":                     "",
		`{"a": {"b": 1`:                       "",
		"func f() {\n\treturn x\n}":           "",
		"if a {return b;\n}":                  "",
		"{" + strings.Repeat("a", 101) + " b": "",
		"":                                    "",
	} {
		if got := UnclosedBrace(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
