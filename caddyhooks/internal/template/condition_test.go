package template

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func parsedCondition(t testing.TB, line string) *Condition {
	t.Helper()
	c, err := ParseCondition(line)
	if err != nil {
		t.Fatalf("ParseCondition(%q): %v", line, err)
	}
	return c
}

// holds asks a condition of the whole body, and of the parts that it selects.
func holds(t testing.TB, line, body string, source func(Source) (string, bool)) bool {
	t.Helper()
	c := parsedCondition(t, line)
	selection := new(strictjson.Selection)
	c.Select(selection)
	parts, err := strictjson.ParseSelected([]byte(body), selection)
	if err != nil {
		t.Fatal(err)
	}
	steps := ConditionSteps
	got, decided := c.Holds(Input{Body: decoded(t, body), Source: source}, &steps)
	if !decided || steps >= ConditionSteps {
		t.Errorf("%s: decided %v, %d steps are left", line, decided, steps)
	}
	if again, _ := c.Holds(Input{Body: parts, Source: source}, &steps); again != got {
		t.Errorf("%s is %v of %s, and %v of the parts that it selects", line, got, body, again)
	}
	return got
}

const issueBody = `{"action":"opened","draft":false,"closed":null,"count":3,"big":12345678901234567890,"x-y":1,"@type":"T","größe":"XL","a b":"ü",
	"issue":{"title":"Crash: it's \"bad\"","labels":[{"name":"bug","tags":["p",1]},{"name":"ui"}],"user":{"login":"ann"},"body":"one\ntwo"},
	"author":"ann","allowed":["ann","bob"],"same":{"user":{"login":"ann"}},"pattern":"cr.*h","bad":"("}`

func TestConditionAsksForValuesOfTheBody(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		`$.action == 'opened' && $.issue.labels[?@.name == 'bug']`: true,
		`$.action == 'opened' && $.issue.labels[?@.name == 'doc']`: false,
		`$.action == "opened"`:                                 true,
		` $['action']=='opened' `:                              true,
		`'opened' == $.action`:                                 true,
		`$.action != 'opened'`:                                 false,
		`$.action == 'closed' || $.action == 'opened'`:         true,
		`$.count > 2 && $.count <= 3.0`:                        true,
		`$.count >= 4`:                                         false,
		`$.big == 12345678901234567890`:                        true,
		`$.big == 12345678901234567891`:                        false,
		`$.action < 'p'`:                                       true,
		`$.action < 5`:                                         false,
		`not $.action == 'opened'`:                             false,
		`not $.action == 'closed'`:                             true,
		`not $.nope`:                                           true,
		"not\t$.nope":                                          true,
		`!$.nope`:                                              true,
		`!($.action == 'opened')`:                              false,
		`! $.issue`:                                            false,
		`$.draft`:                                              true, // it is there
		`$.closed`:                                             true,
		`$.nope`:                                               false,
		`$.draft == false`:                                     true,
		`$.draft == true`:                                      false,
		`$.closed == null`:                                     true,
		`$.nope == null`:                                       false,
		`$.nope == $.neither`:                                  true,
		`$.nope != 'x'`:                                        true,
		`$.issue.user == $.same.user`:                          true,
		`$.issue.user == $.same`:                               false,
		`$.closed <= null`:                                     true,
		`$.issue.labels`:                                       true,
		`$.issue.labels[*]`:                                    true,
		`$.issue.labels[5]`:                                    false,
		`$.issue.labels[-1].name == 'ui'`:                      true,
		`$.issue.labels[0:1].name`:                             true,
		`$..login`:                                             true,
		`$..nope`:                                              false,
		`$..labels..name`:                                      true,
		`$.issue.labels[?@.tags[?@ == 'p']]`:                   true,
		`$.issue.labels[?@.tags[?@ == 'q']]`:                   false,
		`$.issue.labels[?@.tags[?@ == $.count]]`:               false,
		`$.issue[?@.login == $.author]`:                        true,
		`!$.issue.labels[?@.name == 'wontfix']`:                true,
		`count($.issue.labels[*]) == 2`:                        true,
		`count($.issue.labels) == 1`:                           true,
		`count($.nope) == 0`:                                   true,
		`length($.issue.labels) == 2`:                          true,
		`length($.issue.title) > 10`:                           true,
		`length($['a b']) == 1`:                                true,
		`length($.nope) == 0`:                                  false,
		`length($.count) == 1`:                                 false,
		`length(value($..title)) == 17`:                        true,
		`value($..draft) == false`:                             true,
		`value($..name) == 'bug'`:                              false, // there are two
		`value($.author) == 'ann'`:                             true,
		`match($.issue.title, 'Crash.*')`:                      true,
		`match($.issue.title, 'rash')`:                         false,
		`search($.issue.title, 'rash')`:                        true,
		`search($.issue.title, '(?i)CRASH')`:                   true,
		`search($.issue.body, 'one.two')`:                      false, // a dot is no end of a line
		`search($.issue.body, 'one\\ntwo')`:                    true,
		`search($.issue.body, "one[\\n.]two")`:                 true,
		`search($.count, '3')`:                                 false,
		`search($.issue.title, $.pattern)`:                     false,
		`search('a crash', $.pattern)`:                         true,
		`search('(', $.bad)`:                                   false,
		`search('(', $.nope)`:                                  false,
		`!match($.action, 'closed|reopened')`:                  true,
		`$.action in ['opened', 'reopened']`:                   true,
		`$.action in ['closed']`:                               false,
		`$.author in $.allowed`:                                true,
		`'eve' in $.allowed`:                                   false,
		`$.issue.title =~ /^crash/`:                            false,
		`$.issue.title =~ /^Crash/ && $.draft == false`:        true,
		`$.issue.title == 'Crash: it\'s "bad"'`:                true,
		`$.issue.title == "Crash: it's \"bad\""`:               true,
		`$['a b'] == '\u00fc' && $["gr\u00f6\u00dfe"]`:         true,
		`$.größe == 'XL' && $.x-y == 1 && $.@type=='T'`:        true,
		`$["action", 'nope'] && $['nope','neither',?@.labels]`: true,
		`1 == 1`:            true,
		`$`:                 true,
		`$[?@ == 'opened']`: true,
		`($.nope || ($.action == 'opened')) && !$.nope`: true,
		`$.nope && $.nope || $.action`:                  true,
		`$.action || $.nope && $.nope`:                  true,
	} {
		if got := holds(t, line, issueBody, nil); got != want {
			t.Errorf("%s: got %v", line, got)
		}
		if !parsedCondition(t, line).NeedsBody() {
			t.Errorf("%s needs no body", line)
		}
	}
	for _, body := range []string{`null`, `[]`, `"text"`, `5`} {
		if holds(t, `$.action == 'opened'`, body, nil) || !holds(t, `not $.action`, body, nil) {
			t.Errorf("the body %s has an action", body)
		}
	}
}

// someSources are those of a request.
func someSources(s Source) (string, bool) {
	text, ok := map[Source]string{
		{"header", "X-Github-Event"}: "issues",
		{"header", "User-Agent"}:     "GitHub-Hookshot/abc def",
		{"header", "X-Empty"}:        "",
		{"header", "X-Two"}:          "a, b",
		{"query", "source"}:          "ci",
		{"query", "a b"}:             `say "hi" \o/`,
		{"body", ""}:                 `{"a": 1}`,
		{"hook", ""}:                 "issues-hook",
		{"run", ""}:                  "run_1",
		{"time", ""}:                 "2026-11-16T05:47:15Z",
	}[s]
	return text, ok
}

func TestConditionAsksForHeadersAndQueryParameters(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		`header X-GitHub-Event`:                       true,
		`header x-github-event`:                       true,
		` header  X-GitHub-Event `:                    true,
		`header X-Nope`:                               false,
		`header X-Empty`:                              true,
		`header X-Empty ""`:                           true,
		`header X-Empty x`:                            false,
		`header X-GitHub-Event issues`:                true,
		`header X-GitHub-Event ISSUES`:                false,
		`header X-GitHub-Event push issues`:           true,
		`header X-GitHub-Event push "issues"`:         true,
		`header X-GitHub-Event issue`:                 false,
		`header X-Nope issues`:                        false,
		`header X-Two "a, b"`:                         true,
		`header X-Two a`:                              false,
		`header User-Agent "GitHub-Hookshot/abc def"`: true,
		`header User-Agent GitHub-Hookshot/abc def`:   false,
		`header User-Agent ~ ^GitHub-Hookshot/`:       true,
		`header User-Agent ~ hook`:                    false,
		`header User-Agent ~ (?i)hook`:                true,
		`header User-Agent ~ "abc def$"`:              true,
		`header User-Agent ~ \w\s\w`:                  true,
		`header User-Agent ~ "\\w\\s\\w"`:             true,
		`header User-Agent "~" x`:                     false, // two values
		`header "User-Agent" ~ Hook`:                  true,
		`header X-Nope ~ .*`:                          false,
		`query source`:                                true,
		`query Source`:                                false,
		`query source ci`:                             true,
		`query source cd`:                             false,
		`query source ~ ^c.$`:                         true,
		`query "a b" "say \"hi\" \\o/"`:               true,
		`query nope`:                                  false,
		`not header X-GitHub-Event`:                   false,
		`not header X-Nope`:                           true,
		`not header X-GitHub-Event push`:              true,
		`not header X-Nope push`:                      true,
		`not header X-Nope ~ x`:                       true,
		`not header User-Agent ~ Hook`:                false,
		`not query nope`:                              true,
		`header header`:                               false,
		`header not`:                                  false,
	} {
		if got := holds(t, line, issueBody, someSources); got != want {
			t.Errorf("%s: got %v", line, got)
		}
		if parsedCondition(t, line).NeedsBody() {
			t.Errorf("%s needs the body", line)
		}
	}
	if holds(t, "header X-GitHub-Event", "{}", nil) || !holds(t, "not query a", "{}", nil) {
		t.Error("without sources, one is there")
	}
}

func TestConditionNamesItsMistake(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		``:                                      "is empty",
		" \n":                                   "is empty",
		`not`:                                   "needs a condition",
		`not not $.a`:                           "once",
		`header`:                                "header needs a name",
		`query`:                                 "query needs a name",
		`header ""`:                             "header needs a name",
		`header X:Y`:                            "X:Y is not a header name",
		`header X ~`:                            "one regular expression",
		`header X ~ a b`:                        "one regular expression",
		`header X ~ (`:                          "missing closing )",
		`header X ~ (x{100}){10}`:               "too large",
		`header X "a`:                           "no closing quote",
		`header X "a"b`:                         "a space is missing",
		`Header X`:                              "begins with header, query or not",
		`action == 'opened'`:                    "begins with header, query or not",
		`path /x`:                               "begins with header, query or not",
		`@.action == 'opened'`:                  "the body is $",
		`$.a == @.b`:                            "the body is $",
		`count(@.a) == 1`:                       "the body is $",
		`$.action == opened`:                    "as in 'opened'",
		`$.action = 'opened'`:                   `unexpected "= 'opened'": write ==`,
		`$.a === 'b'`:                           ": write ==",
		`$.a == 1 and $.b == 2`:                 `unexpected "and $.b == 2": write &&`,
		`$.a OR $.b`:                            ": write ||",
		`$.a && not $.b`:                        ": write !",
		`startsWith($.a, 'b')`:                  "there is no function startsWith",
		`$.a[?status == 'firing']`:              "a path begins with @, as in @.status, and a text stands in quotes, as in 'status'",
		`action in ['a']`:                       "a path begins with $, as in $.action,",
		`$.a in 'opened'`:                       "in takes a list",
		`match($.a, '(x')`:                      "missing closing ): `(x`",
		`$.a contains 'bug'`:                    ": write $.labels[?@ == 'bug'] for an item of a list",
		`$.action == `:                          "ends too early",
		`$.action == 'opened`:                   "no end",
		`$.action == 'a\x'`:                     "escapes nothing",
		`$.action == '\ud800'`:                  "escapes nothing",
		"$.action == 'a\nb'":                    "line breaks",
		`$.a.`:                                  "a key is missing",
		`$.a.[0]`:                               `after a dot`,
		`$.0`:                                   "after a dot",
		`$.a[01]`:                               "01 is not an index",
		`$.a[9007199254740992]`:                 "is not an index",
		`$.a[`:                                  "ends too early",
		`$.a[0`:                                 "ends too early",
		`$.a[x]`:                                `unexpected "x]"`,
		`$.labels[*].name == 'bug'`:             "put the comparison into it",
		`$.a in $.b[*]`:                         "put the comparison into it",
		`length($.a[*]) == 1`:                   "length takes one value: write count",
		`count(1) == 1`:                         "count takes a path",
		`count($.a)`:                            "compares nothing",
		`length($.a)`:                           "compares nothing",
		`value($.a)`:                            "compares nothing",
		`match($.a, 'b') == true`:               "compared with nothing",
		`match($.a)`:                            `unexpected ")"`,
		`match($.a, '(')`:                       "missing closing )",
		`match($.a, 1)`:                         "in quotes",
		`match($.a, 'b'`:                        "ends too early",
		`first($.a) == 1`:                       "there is no function first",
		`'opened'`:                              "compares nothing",
		`$.a && true`:                           "compares nothing",
		`!$.a == 1`:                             "in parentheses",
		`!'a'`:                                  "compares nothing",
		`($.a`:                                  "ends too early",
		`$.a)`:                                  `unexpected ")"`,
		`$.a $.b`:                               `unexpected "$.b"`,
		`$.a =~ 'b'`:                            "regular expression such as",
		`$.a[?@.b == 1e]`:                       "",
		"$.a == '\xff'":                         "UTF-8",
		`$.` + strings.Repeat("a", 1024):        "longer than 1024",
		`header X ` + strings.Repeat("a", 9000): "longer than 8192",
	} {
		_, err := ParseCondition(line)
		if want == "" {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50q: got %v, want %q", line, err, want)
		}
	}
}

func TestConditionsOfARequestShareTheirSteps(t *testing.T) {
	t.Parallel()
	body := decoded(t, `[`+strings.Repeat("1,", 999)+"1]")
	c := parsedCondition(t, "$[?@ == 2]")
	steps := 5000
	if holds, decided := c.Holds(Input{Body: body}, &steps); holds || !decided || steps >= 5000 {
		t.Fatalf("holds %v, decided %v, %d steps are left", holds, decided, steps)
	}
	for _, line := range []string{"$[?@ == 2]", "not $[?@ == 2]"} {
		steps = 100
		if holds, decided := parsedCondition(t, line).Holds(Input{Body: body}, &steps); holds || decided || steps != 0 {
			t.Errorf("%s: holds %v, decided %v, %d steps are left", line, holds, decided, steps)
		}
	}
	steps = 100
	long := func(Source) (string, bool) { return strings.Repeat("a", 10_000), true }
	if holds, decided := parsedCondition(t, "header X ~ a$").Holds(Input{Source: long}, &steps); holds || decided {
		t.Errorf("a long header: holds %v, decided %v", holds, decided)
	}
}

// No condition takes more than all steps, whatever the body is, and steps are time: see BenchmarkDearestRegularExpressions.
func TestConditionsBearHostileBodies(t *testing.T) {
	t.Parallel()
	const size = 20_000
	bodies := map[string]string{
		"numbers": "[" + strings.Repeat("1,", size) + "1]",
		"deep":    strings.Repeat(`{"a":[`, 60) + "1" + strings.Repeat("]}", 60),
		"pattern": `{"p":"(?:\\pL?){300}q","q":"` + strings.Repeat("x{1000}", 100) + `","a":[` + strings.Repeat(`"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",`, size/40) + `""]}`,
		"same":    `{"x":[` + strings.Repeat("[1,{}],", size/8) + `1],"y":[` + strings.Repeat("[1,{}],", size/8) + `1],"a":[` + strings.Repeat("1,", size) + `1]}`,
		"digits":  `{"x":1` + strings.Repeat("0", size) + `1,"a":[` + strings.Repeat("1,", size) + `1]}`,
	}
	for name, text := range bodies {
		body := decoded(t, text)
		for _, line := range []string{
			"$..*..*..*..nope", "$[?$[?$[?@ == 2]]]", "count($..*..*..*) == 5", "$.a[?$.x == $.y && @ == 2]", "$.a[?search(@, $.p)]", "$.a[?match(@, $.q)]",
			"$.a[?@ == $.x]", "$" + strings.Repeat("[0,0,0,0,0,0,0,0,0,0]", 40), "$.a[?length(value($..x)) == @]", "$.a[?search(@, 'a') && match(@, @)]",
			strings.Repeat("$..x||", 150) + "$..x",
			"$[" + strings.Repeat("0,", 250) + "0]" + strings.Repeat(".a", 200), "$" + strings.Repeat("[0,0]", 200) + ".nope",
		} {
			steps := ConditionSteps / 8
			parsedCondition(t, line).Holds(Input{Body: body}, &steps)
			if steps < 0 {
				t.Errorf("%s: %s: %d steps are left", name, line, steps)
			}
		}
	}
}

func TestEachFindsItsMatches(t *testing.T) {
	t.Parallel()
	const body = `{"alerts":[{"status":"firing","n":1},{"status":"resolved","n":2},{"status":"firing","n":3}],"one":{"x":1},"none":[]}`
	for _, test := range []struct {
		expression string
		most       int
		want       string
		more       bool
	}{
		{"$.alerts[*].n", 100, "[1,2,3]", false},
		{" $.alerts[*].n ", 3, "[1,2,3]", false},
		{"$.alerts[*].n", 2, "[1,2]", true},
		{"$.alerts[?@.status == 'firing'].n", 100, "[1,3]", false},
		{"$.alerts[?@.status == 'nope']", 100, "[]", false},
		{"$.none[*]", 100, "[]", false},
		{"$.nope[*]", 100, "[]", false},
		{"$.nope", 100, "[]", false},
		{"$.one", 100, `[{"x":1}]`, false},
		{"$.alerts[0]['n','status']", 100, `[1,"firing"]`, false},
		{"$..n", 100, "[1,2,3]", false},
	} {
		each, err := ParseEach(test.expression)
		if err != nil {
			t.Fatal(err)
		}
		selection := new(strictjson.Selection)
		each.Select(selection)
		parts, _ := strictjson.ParseSelected([]byte(body), selection)
		for _, from := range []any{decoded(t, body), parts} {
			matches, more, decided := each.Find(from, test.most)
			got, _ := appendJSON(nil, append([]any{}, matches...), &bound{limit: 1000})
			if string(got) != test.want || more != test.more || !decided {
				t.Errorf("%s: got %s, more %v, decided %v", each, got, more, decided)
			}
		}
	}
	each, _ := ParseEach("$" + strings.Repeat("[0,0,0,0,0,0,0,0,0,0]", 40) + ".nope")
	if matches, more, decided := each.Find(decoded(t, strings.Repeat("[", 50)+strings.Repeat("]", 50)), 100); matches != nil || more || decided {
		t.Errorf("a search without end found %d, more %v, decided %v", len(matches), more, decided)
	}
	for expression, want := range map[string]string{
		"": "begin with $", "alerts[*]": "begin with $", "@.a": "begin with $", "$.a == 1": `unexpected "== 1"`, "$.a[": "too early", "$..": "missing", "{$.a}": "begin with $",
	} {
		if _, err := ParseEach(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", expression, err, want)
		}
	}
}

// BenchmarkHolds is what an ignored request takes beside parsing.
func BenchmarkHolds(b *testing.B) {
	body := decoded(b, issueBody)
	for _, line := range []string{"header X-GitHub-Event issues", "$.action == 'closed'", "$.issue.labels[?@.name == 'nope']", "header User-Agent ~ ^GitHub-"} {
		c := parsedCondition(b, line)
		source := func(Source) (string, bool) { return "GitHub-Hookshot", true }
		b.Run(line, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				steps := ConditionSteps
				c.Holds(Input{Body: body, Source: source}, &steps)
			}
		})
	}
}

func TestExampleOfACondition(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"header X-Event issues pull_request":      "issues",
		"not header X-Event issues":               "issues",
		"header X-Event":                          "example",
		"header User-Agent ~ ^GitHub-Hookshot/":   "GitHub-Hookshot/",
		"header X-Event ~ ^(deploy|build)$":       "deploy",
		"header X-Event ~ ^(?:push|tag\\.added)$": "push",
		"header X-Event ~ ^[0-9]+$":               "",
		"query team blue":                         "blue",
		"$.action == 'opened'":                    "",
	} {
		if got := parsedCondition(t, line).Example(); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
