package template

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func TestPipesChangeAValue(t *testing.T) {
	t.Parallel()
	const body = `{"title":"Größe 😀 matters","n":12345,"null":null,"empty":"","blank":" \n\t","zero":0,"no":false,"list":["a","b \"q\"",3,null,{"x":1}],
		"none":[],"lines":"one\ntwo\r\n\nthree\n","user":{"login":"ann","id":7},"commits":[{"m":"fix"},{"m":"test"}],"one":[{"m":"only"}],"pipe|key":"p"}`
	runRenderTests(t, []renderTest{
		// truncate: at most so many characters, the … among them
		{"{title | truncate 100}", body, "Größe 😀 matters"},
		{"{title | truncate 15}", body, "Größe 😀 matters"},
		{"{title | truncate 14}", body, "Größe 😀 matte…"},
		{"{title | truncate 7}", body, "Größe …"},
		{"{title | truncate 4}", body, "Grö…"},
		{"{title | truncate 1}", body, "…"},
		{"{empty | truncate 1}|{n | truncate 3}|{user | truncate 8}", body, `|12…|{"id":7…`},
		{"{nope | truncate 3}", body, "<missing>"},
		{"{null | truncate 10}", body, "null"},
		// default: for missing, null and blank
		{`{nope | default "none"} {null | default "none"} {empty | default "none"} {blank | default "none"}`, body, "none none none none"},
		{`{title | default "none"} {zero | default "none"} {no | default "none"} {none | default "none"}`, body, "Größe 😀 matters 0 false []"},
		{"{nope | default title | truncate 4} {null | default user.login} {blank | default list[2]} {empty|default user}", body, `Grö… ann 3 {"id":7,"login":"ann"}`},
		{"{title | default n} {nope | default nope} {nope | default null} {nope | default ['pipe|key']}", body, "Größe 😀 matters <missing> null p"},
		{`{nope | default empty | default blank | default "none"} {$.nope | default $.n}`, body, "none {$.nope | default $.n}"},
		{`{nope | default ""}{nope | default 'it''s'}`, body, "{nope | default 'it''s'}"},
		{`{nope | default 'say "x"'} {nope | default "a\tb\\\"'"} {nope | default "{x} }"}`, body, "say \"x\" a\tb\\\"' {x} }"},
		// join: of an array or several matches
		{`{list | join ", "}`, body, `a, b "q", 3, null, {"x":1}`},
		{`{list | join "\n"}`, body, "a\nb \"q\"\n3\nnull\n{\"x\":1}"},
		{`{$.commits[*].m | join " + "}`, body, "fix + test"},
		{`{$.one[*].m | join " + "}`, body, "only"},
		{`{$.nope[*].m | join " + "}`, body, "<missing>"},
		{`{none | join ","}{title | join ","}{user | join ","}`, body, `Größe 😀 matters{"id":7,"login":"ann"}`},
		// json
		{`{title | json} {n | json} {list | json} {null | json} {nope | json}`, body, `"Größe 😀 matters" 12345 ["a","b \"q\"",3,null,{"x":1}] null <missing>`},
		{`{$.commits[*] | json} {$.one[*].m | json}`, body, `[{"m":"fix"},{"m":"test"}] "only"`},
		{`{lines | json}`, body, `"one\ntwo\r\n\nthree\n"`},
		// indent: so many spaces before every line
		{"{lines | indent 2}", body, "  one\n  two\r\n  \n  three\n"},
		{"{title | indent 1}{empty | indent 4}{n|indent 3}", body, " Größe 😀 matters   12345"},
		{"{nope | indent 2}", body, "<missing>"},
		// several in a row
		{`{$.commits[*].m | join "\n" | indent 2 | json}`, body, `"  fix\n  test"`},
		{`{nope | default "a very long text" | truncate 7}`, body, "a very…"},
		{`{nope | truncate 3 | default "none"}`, body, "none"},
		{`{null | json | default "none"}`, body, "null"},
		{`{title|json|truncate 4}`, body, `"Gr…`},
		{"{ title\t|\n truncate 4 }", body, "Grö…"},
		{`{['pipe|key'] | json} {$['pipe|key'] | json} { $.n | truncate 2 }`, body, `"p" "p" 1…`},
		{`{$.commits[?@.m == 'a|b' || @.m == 'fix'].m | json}`, body, `"fix"`},
		{`{$ | json | truncate 5}`, `"x y z"`, `"x y…`},
	})
}

func TestPipeThatIsNoneLeavesTheBracesWithAWarning(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{a | upper}":                            "{a | upper} is not replaced: there is no pipe upper; there are truncate, default, join, json and indent",
		"x {$.a | upper} y":                      "{$.a | upper} is not replaced: there is no pipe upper",
		"{@hook | upper}":                        "there is no pipe upper",
		"{a | json | upper}":                     "there is no pipe upper",
		"{a | JSON}":                             "there is no pipe JSON",
		"{a | truncate}":                         "truncate takes a number",
		"{a | truncate 0}":                       "truncate takes a number",
		"{a | truncate -1}":                      "truncate takes a number",
		"{a | truncate 99999999999}":             "truncate takes a number",
		"{a | truncate 5 6}":                     "after truncate comes a brace or another pipe",
		"{a | indent 101}":                       "indent takes a number from 1 to 100",
		"{a | default}":                          "default takes a text in quotes",
		"{a | default 5}":                        `default takes a text in quotes or a path, as in | default "none" or | default user.name`,
		"{a | default $.b}":                      "default takes a text in quotes or a path",
		"{a | default @header}":                  "default takes a text in quotes or a path",
		"{a | default b c}":                      "after default comes a brace or another pipe",
		"{a | default @run | truncate 3}":        "the id of a run is not known yet",
		`{a | default "x}`:                       "default takes a text in quotes",
		`{a | default "\x"}`:                     "default takes a text in quotes",
		"{a | join ,}":                           "join takes a text in quotes",
		"{a | json 1}":                           "after json comes a brace or another pipe",
		"{a" + strings.Repeat("|json", 11) + "}": "more than 10 pipes",
		"{@header}":                              "header needs a name",
		"{@header.}":                             "header needs a name",
		"{@header[0]}":                           "header needs a name",
		"{@header['a b']}":                       "a b is not a header name",
		"{@run | json | truncate 8}":             "cannot be truncated",
		"{@query}":                               "query needs a name",
		"{@body.x}":                              "@body has no parts",
		"{@time[0]}":                             "@time has no parts",
	} {
		parsed, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := parsed.Render(Input{Body: decoded(t, `{"a":"VALUE"}`), Source: someSources}); got != text {
			t.Errorf("%s became %s", text, got)
		}
		if got := parsed.Warnings(); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"{@Header.X-Name}":            "{@Header.X-Name} is read from the body: write {@header.X-Name} for the source, or begin with $['@Header'] for the key",
		"{ @headers.x | default 'a'}": "write {@header.x | default 'a'} for the source",
		"{@Body}":                     "write {@body} for the source",
		"{@Root.a}":                   "write {@root.a} for the source",
	} {
		parsed, err := Parse(text)
		if err != nil || len(parsed.Warnings()) != 1 || !strings.Contains(parsed.Warnings()[0], want) {
			t.Errorf("%s: %v, warnings %q, want %q", text, err, parsed.Warnings(), want)
		}
	}
	for _, text := range []string{"{$['@Header'].x}", "{headers.x}", "{@timestamp}", "{a.@Body}", "{a}", "{a | json}", "{a || b}", "{|}", "{a |}", `{"a": 1}`, "{{a | upper}}", "{not a path | x}", "{@type}", "{@context.y}", "{@root}", ""} {
		parsed, err := Parse(text)
		if err != nil || len(parsed.Warnings()) > 0 {
			t.Errorf("%s: %v, warnings %q", text, err, parsed.Warnings())
		}
	}
	parsed, _ := Parse(strings.Repeat("{a | b}", 3) + "{a|c}{a|d}{a|e}{a|f}{a|g}{a|h}")
	if got := parsed.Warnings(); len(got) != maxWarnings {
		t.Errorf("%d warnings: %q", len(got), got)
	}
	if got := rendered(t, "{a | upper {a}}", `{"a":"VALUE"}`); got != "{a | upper VALUE}" {
		t.Errorf("got %s", got)
	}
	// What was a bad expression still is.
	for _, text := range []string{"{$.a || $.b}", "{$.a | json", "{$.a | upper", "{$.a |}", "{$.x-y | json}"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%s parsed", text)
		}
	}
}

// Every pass through a pipe takes steps, and what comes out has to fit into the message.
func TestPipesAreBounded(t *testing.T) {
	t.Parallel()
	eighth := limits{messageLimits.values / 8, messageLimits.steps / 8}
	big := strings.Repeat("x\n", 1<<17)
	body := map[string]any{"big": big, "list": []any{big, big, big}, "small": "s"}
	for text, want := range map[string]string{
		"{big | indent 100}":              tooLarge,
		"{big | indent 100 | truncate 5}": tooLarge,
		"{list | json | json | json}":     tooLarge,
		`{list | join ""}`:                tooLarge,
		"{big | truncate 3}{small}":       "x\n…s",
		"{big | json | truncate 4}":       `"x\…`,
		"{big | indent 100}{small}":       tooLarge + tooLarge,
		"{@body | truncate 3}":            "aa…",
	} {
		parsed, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		in := Input{Body: body, Source: func(Source) (string, bool) { return strings.Repeat("a", 10<<17), true }}
		if got := parsed.render(&in, nil, eighth); got != want {
			t.Errorf("%s: got %d bytes, %.50q", text, len(got), got)
		}
	}
	parsed, _ := Parse(strings.Repeat("{big | json | truncate 1}", 100))
	got := parsed.render(&Input{Body: body}, nil, eighth)
	if !strings.HasPrefix(got, "…") || !strings.HasSuffix(got, tooLarge) {
		t.Errorf("a hundred passes: %.100q", got)
	}
}

func TestSourcesAreInserted(t *testing.T) {
	t.Parallel()
	body := decoded(t, `{"x":"body","@type":"T","@context":{"y":"Y"},"@header":"H","@headers":{"a":"A"},"@root":{"x":"key"},"@body":1}`)
	for text, want := range map[string]string{
		"{@header.X-GitHub-Event}":                  "issues",
		"{@header.x-github-event}":                  "issues",
		"{ @header.X-GITHUB-EVENT }":                "issues",
		"{@header['X-GitHub-Event']}":               "issues",
		"{@header.X-Two}":                           "a, b",
		"{@header.X-Empty}":                         "",
		"{@header.X-Nope}":                          missing,
		"{@query.source}":                           "ci",
		"{@query.Source}":                           missing,
		"{@query['a b']}":                           `say "hi" \o/`,
		"{@body}":                                   `{"a": 1}`,
		"{@hook} {@run} {@time}":                    "issues-hook run_1 2026-11-16T05:47:15Z",
		"{@type} {@context.y} {@headers.a} {@Hook}": "T Y A " + missing,
		"{$['@header']} {['@header']} {$['@body']}": "H H 1",
		"{@header.X-Nope | default \"none\"}":       "none",
		"{@header.X-Empty | default \"none\"}":      "none",
		"{@header.X-GitHub-Event|truncate 4}":       "iss…",
		"{@body | json}":                            `"{\"a\": 1}"`,
		"{@time | truncate 11}":                     "2026-11-16…",
		"{{@hook}} {@} {@ hook} {@hook}":            "{{@hook}} {@} {@ hook} issues-hook",
		"{@root.x} {@root}":                         `key {"x":"key"}`, // without each it is a key
	} {
		parsed, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Render(Input{Body: body, Source: someSources}); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if got := rendered(t, "{@hook} {@header.X} {@body}", "{}"); got != "<missing> <missing> <missing>" {
		t.Errorf("without sources: %s", got)
	}
	invalid := func(Source) (string, bool) { return "a\xffb", true }
	parsed, _ := Parse("{@query.a}")
	if got := parsed.Render(Input{Source: invalid}); got != "a\uFFFDb" {
		t.Errorf("a text that is not UTF-8 became %q", got)
	}
}

func TestRootIsTheWholeBodyWithEach(t *testing.T) {
	t.Parallel()
	root := decoded(t, `{"group":"g","list":[{"n":1,"group":"own"}],"@root":"key"}`)
	match := root.(map[string]any)["list"].([]any)[0]
	for text, want := range map[string]string{
		"{n} {group} {@root.group} {@root.list[0].n} {@root['group']}": "1 own g 1 g",
		"{$.group} {$} {@root.nope} {@root | truncate 4}":              `own {"group":"own","n":1} <missing> {"@…`,
		"{@root.group | json}": `"g"`,
		"{['@root']} {$['@root']} {$['@root'] | default \"none\"}": "<missing> <missing> none",
	} {
		parsed, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Render(Input{Body: match, Root: root, Each: true}); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		selection := new(strictjson.Selection)
		parsed.Select(selection)
		if !selection.Has("anything") && strings.Contains(text, "{@root") {
			t.Errorf("%s selects not all", text)
		}
	}
}

func TestOnlyTextOfTheCallerIsMarked(t *testing.T) {
	t.Parallel()
	parsed, err := Parse(`{x} {@header.X-Two} {@query.source} {@body} {@hook} {@run} {@time} {@root.x} {nope | default "own"} {x | truncate 2} {@hook | json} {x | default "own"} {@header.X-Nope}`)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Body: decoded(t, `{"x":"abc"}`), Root: decoded(t, `{"x":"root"}`), Each: true, Source: someSources}
	const want = `«abc» «a, b» «ci» «{"a": 1}» issues-hook run_1 2026-11-16T05:47:15Z «root» own «a…» "issues-hook" «abc» <missing>`
	mark := func(value string) string { return "«" + value + "»" }
	if got := parsed.RenderMarked(in, mark); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	segments := parsed.Segments(in, mark)
	if got := segments[len(segments)-1]; got != (Segment{Text: missing, Placeholder: "{@header.X-Nope}", Missing: true}) {
		t.Errorf("got %+v", got)
	}
	for kind, want := range map[string]bool{"header": true, "query": true, "body": true, "hook": false, "run": false, "time": false} {
		if got := (Source{Kind: kind}).FromOutside(); got != want {
			t.Errorf("%s: %v", kind, got)
		}
	}
}

func TestTemplateListsItsSources(t *testing.T) {
	t.Parallel()
	parsed, err := Parse("{@header.x-a} {@hook} {a} {@header.X-A | json} {@query['a b']} {@root.x}")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range parsed.Sources() {
		got = append(got, s.String())
		again, err := Parse("{" + s.String() + "}")
		if err != nil || len(again.Sources()) != 1 || again.Sources()[0] != s {
			t.Errorf("%v became %v, %v", s, again.Sources(), err)
		}
	}
	if want := "@header.X-A @hook @query['a b']"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSignedTextHasItsSourcesAsTheyAre(t *testing.T) {
	t.Parallel()
	raw := func(s Source) (string, bool) {
		return map[string]string{"header": "17", "body": "{\"a\":\xff{@hook}}", "query": "q"}[s.Kind], s.Name != "X-Nope"
	}
	for text, want := range map[string]string{
		"{@header.X-Timestamp}.{@body}":    "17.{\"a\":\xff{@hook}}",
		"v0:{@header.x-timestamp}:{@body}": "v0:17:{\"a\":\xff{@hook}}",
		"{@body}":                          "{\"a\":\xff{@hook}}",
		"{{x}} {@query.a}":                 "{{x}} q",
	} {
		parsed, err := ParseSigned(text)
		if err != nil {
			t.Fatal(err)
		}
		got, absent := parsed.AppendRaw([]byte("before:"), Input{Source: raw})
		if string(got) != "before:"+want || absent != nil {
			t.Errorf("%s: got %q, missing %v", text, got, absent)
		}
	}
	parsed, _ := ParseSigned("{@header.X-Nope}.{@body}")
	if _, absent := parsed.AppendRaw(nil, Input{Source: raw}); absent == nil || absent.String() != "@header.X-Nope" {
		t.Errorf("missing %v", absent)
	}
	for text, want := range map[string]string{
		"":                     "blank",
		" ":                    "blank",
		"{body}":               "{body}: it takes {@body}",
		"{$.a}":                "{$.a}: it takes",
		"{@run}.{@body}":       "{@run}: it takes",
		"{@hook}":              "{@hook}: it takes",
		"{@root.a}":            "{@root.a}: it takes",
		"{@body | truncate 5}": "it takes",
		"{@body | upper}":      "no pipe upper",
		"{@header}":            "needs a name",
		"{$.a":                 "no closing brace",
	} {
		if _, err := ParseSigned(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
