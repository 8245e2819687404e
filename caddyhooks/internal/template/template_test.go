package template

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// decoded reads a body as the service does.
func decoded(t testing.TB, body string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		t.Fatalf("decoding %s: %v", body, err)
	}
	return value
}

func rendered(t testing.TB, template, body string) string {
	t.Helper()
	parsed, err := Parse(template)
	if err != nil {
		t.Fatalf("Parse(%q): %v", template, err)
	}
	return parsed.Render(Input{Body: decoded(t, body)})
}

type renderTest struct{ template, body, want string }

func runRenderTests(t *testing.T, tests []renderTest) {
	t.Helper()
	for _, test := range tests {
		if got := rendered(t, test.template, test.body); got != test.want {
			t.Errorf("%s with %s\n got %q\nwant %q", test.template, test.body, got, test.want)
		}
	}
}

func TestTemplateFollowsBarePaths(t *testing.T) {
	t.Parallel()
	const body = `{"user":{"login":"ann","full name":"Ann B"},"tags":["x","y","z"],"user-agent":"curl","@type":"T","a":{"b-c":[{"d":1}]},
		"_id":7,"2fa":true,"größe":"XL","ключ":"да","नमस्ते":"hi","app.io/name":"n","it's":"q","x":{"y":{"0":"zero"}}}`
	runRenderTests(t, []renderTest{
		{"hi {user.login}!", body, "hi ann!"},
		{"{user.login}{tags[0]}{tags[1]}", body, "annxy"},
		{"{ user.login } {\tuser.login\n}", body, "ann ann"},
		{"{tags[-1]} {tags[3]} {tags[-4]}", body, "z <missing> <missing>"},
		{"{user-agent} {a.b-c[0].d}", body, "curl 1"},
		{"{@type} {_id} {2fa}", body, "T 7 true"},
		{"{größe} {ключ} {नमस्ते}", body, "XL да hi"},
		{"{['app.io/name']} {[\"it's\"]} {['it\\'s']} {user['full name']} {user[\"full name\"]}", body, "n q q Ann B Ann B"},
		{"{x.y.0} {x['y']['0']}", body, "zero zero"},
		{"{nope} {user.nope} {user.login.nope} {tags.x} {user[0]} {tags[0][0]}", body, strings.Repeat("<missing> ", 5) + "<missing>"},
		{"{[0].id} {[1]}", `[{"id":5}]`, "5 <missing>"},
		{"{app.io/name}", body, "{app.io/name}"},
		{"{a}", `null`, "<missing>"},
		{"{a}", `"text"`, "<missing>"},
	})
}

func TestTemplateWritesValues(t *testing.T) {
	t.Parallel()
	runRenderTests(t, []renderTest{
		{"{v}", `{"v":"raw \"text\" <b> {x}\n"}`, "raw \"text\" <b> {x}\n"},
		{"{v}", `{"v":""}`, ""},
		{"{v}", `{"v":true}`, "true"},
		{"{v}", `{"v":false}`, "false"},
		{"{v}", `{"v":null}`, "null"},
		{"{v}", `{}`, "<missing>"},
		{"{v}", `{"v":{"b":[1, 2.50, {"z":null}],"a":"<&>\u2028\n\"\\"}}`, `{"a":"<&>\u2028\n\"\\","b":[1,2.50,{"z":null}]}`},
		{"{v}", `{"v":[]}`, "[]"},
		{"{v}", `{"v":{}}`, "{}"},
		{"{v}", `{"v":"😀é"}`, "😀é"},
		{"{$}", `{"b":1,"a":2}`, `{"a":2,"b":1}`},
		{"{$}", `"text"`, "text"},
	})
}

func TestTemplateKeepsNumbersAsWritten(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"0", "-0", "1.10", "12345678901234567890", "1e400", "1E+2", "0.1000", "-1.5e-7"} {
		body := fmt.Sprintf(`{"n":%s,"list":[%[1]s]}`, number)
		want := fmt.Sprintf("%s [%[1]s] %[1]s", number)
		if got := rendered(t, "{n} {list} {$.list[?(@ != 'x')]}", body); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTemplateLeavesOtherBracesAlone(t *testing.T) {
	t.Parallel()
	const body = `{"x":"VALUE","a":"VALUE","0":"VALUE","b":"VALUE"}`
	for _, text := range []string{
		"{{x}}", "{{ x }}", "{{{x}}}", "{{x}", "{{$.x}}", "{{$", "{}", "{ }", "{", "}", "}{", "x}", "{x", "{\n}",
		"{not a path}", `{"a": 1}`, `{"x"}`, "{'x'}", "{0}", "{12}", "{1,2}", "{1-2}", "{-}", "{-1}", "{...}", "{.x}", "{x.}", "{x..a}",
		"{x,a}", "{x:a}", "{:x}", "{@}", "{a.@}", "{x|a}", "{x!}", "{x=1}", "{x[]}", "{x[}", "{x[0}", "{x[+1]}", "{x[1.5]}", "{x[0]a}",
		"{x['}", "{x['a}", "{x['a'}", "{x['a\n']}", "{x[\"a']}", "{x[a]}", "{x[1234567890]}", "{/x}", "{#x}", "{&x}", "{x y}", "{x[0] .a}", "{*}",
		"body { color: red; }", "func() { return; }", "\\d{3}",
	} {
		if got := rendered(t, text, body); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	runRenderTests(t, []renderTest{
		{`{"user":{"name":"{x}","raw":{x}}}`, body, `{"user":{"name":"VALUE","raw":VALUE}}`},
		{"${x}", body, "$VALUE"},
		{"{ {x} }", body, "{ VALUE }"},
		{"{{x}} {x}", body, "{{x}} VALUE"},
	})
}

func TestTemplateNeverExpandsAnInsertedValue(t *testing.T) {
	t.Parallel()
	runRenderTests(t, []renderTest{
		{"{a}{b}", `{"a":"{b}","b":"{a}"}`, "{b}{a}"},
		{"{a}b}", `{"a":"{","b":"x"}`, "{b}"},
		{"{a}", `{"a":"{$.secret}","secret":"s"}`, "{$.secret}"},
	})
}

func TestTemplateEvaluatesJSONPath(t *testing.T) {
	t.Parallel()
	const body = `{"payload":{"meta":{"client_id":42},"x-y":{"z":"dash"}},"n":null,
		"items":[{"id":1,"price":1.10,"name":"a","tags":["p"]},{"id":2,"price":20,"name":"b"},{"id":12345678901234567890,"price":3e1,"name":"c"}]}`
	runRenderTests(t, []renderTest{
		{"{$.payload.meta.client_id} { $.payload.meta.client_id }", body, "42 42"},
		{"{$['payload']['x-y'].z}", body, "dash"},
		{`{$["payload"].meta}`, body, `{"client_id":42}`},
		{"{$.n} {$.nope} {$.items[7]} {$.items[-1].name}", body, "null <missing> <missing> c"},
		{"{$.items[*].name}", body, `["a","b","c"]`},
		{"{$.items[*].tags}", body, `["p"]`},
		{"{$.items[*].nope}", body, "<missing>"},
		{"{$..id}", body, "[1,2,12345678901234567890]"},
		{"{$..client_id}", body, "42"},
		{"{$.items[0:2].name} {$.items[::-1].name} {$.items[-1:].name} {$.items[5:].name}", body, `["a","b"] ["c","b","a"] c <missing>`},
		{"{$.items[0,2].name} {$.items[0]['name','id']}", body, `["a","c"] ["a",1]`},
		{"{$.items[0].*}", body, `[1,"a",1.10,["p"]]`},
		{"{$.payload..}", body, `[{"client_id":42},{"z":"dash"},42,"dash"]`},
		{"{$.items[?(@.id == 2)].name} {$.items[?(@.price > 5)].name}", body, `b ["b","c"]`},
		{"{$.items[?@.price == 1.1].name} {$.items[?(@.price < 2)].price}", body, "a 1.10"},
		{"{$.items[?(@.name == 'b' || @.name == \"c\")].id}", body, "[2,12345678901234567890]"},
		{"{$.items[?(@.tags)].name} {$.items[?(!@.tags)].name} {$.items[?!(@.tags && @.id == 1) && @.id < 5].name}", body, `a ["b","c"] b`},
		{"{$.items[?@.id == 1 || @.id == 2 && @.name == 'nope'].name}", body, "a"},
		{"{$.items[?@.id == $.items[1].id].name} {$.items[?@.name == $['n']].name} {$[?@ == null]}", body, "b <missing> null"},
		{"{$.items[?@.price != 20].name} {$.items[?@.price >= 20.0].name} {$.items[?@.price <= 1.1].name}", body, `["a","c"] ["b","c"] a`},
		{"{$.items[?@.id == 12345678901234567890].name}{$.items[?@.id == 12345678901234567891].name}", body, "c<missing>"},
		{"{$.items[?@.name > 'a'].name} {$.items[?@.name > 1].name} {$.items[?@.nope == $.nope].id}", body, `["b","c"] <missing> [1,2,12345678901234567890]`},
		{"{$.items[?(@.name in ['a','c'])].name}", body, `["a","c"]`},
		{"{$.items[?(@.name =~ /^[ab}]$/)].name} {$.items[?match(@.name, 'a|bc?')].name} {$.items[?search(@.name, \"^[^/]\") && @.name =~ /[c\\/]/].name}", body, `["a","b"] ["a","b"] c`},
		{"{$.items[?length(@.tags) == 1].name} {$.items[?length(@.name)>=1]['id']} {$.items[ ? 'p' in @.tags ].name}", body, "a [1,2,12345678901234567890] a"},
		{"{$.items[?(@.name == '}')].name}", body, "<missing>"},
		{"{$.items[?(@.id > 3)].name}", body, "c"},
		{"{$.items[?(@.tags == @.tags)].name}", body, `["b","c"]`},
		{"{$..[?@.z].z} {$.payload[?@.z == 'dash']..z}", body, "dash dash"},
		{"{$[?(@.a == 1)]}", `null`, "<missing>"},
		{"{$[?(@.a == 1)]}", `[null,{"a":1}]`, `{"a":1}`},
		{"{$[?(@.a > 1)].b}", `{"z":{"a":2,"b":"first by key is y"},"y":{"a":3,"b":"y"}}`, `["y","first by key is y"]`},
	})
}

func TestTemplateNamesABadExpressionAndItsPlace(t *testing.T) {
	t.Parallel()
	for template, want := range map[string][]string{
		"a\nbé {$.x-y.z}":                       {"line 2, column 4", "{$.x-y.z}", "['x-y']"},
		"{ $.a. }":                              {"line 1, column 1", "{$.a.}"},
		"{$a}":                                  {"{$a}"},
		"cost {$5}":                             {"column 6", "{$5}"},
		"{$.a$}":                                {"{$.a$}"},
		"{$.a[}":                                {"{$.a[}"},
		"{$.a":                                  {"no closing brace", "{$.a"},
		"{$.a['}":                               {"no closing brace"},
		"{$..a..b}":                             {"one .. only"},
		"{$.a['b'].c-d}":                        {"['c-d']"},
		"{$..a[?(@..b)]}":                       {`unexpected "..b)"`},
		"{$.a[?(@[*] == @[*])]}":                {`unexpected "[*]`},
		"{$.a[?(@.b[?(@.c)])]}":                 {`unexpected "[?`},
		"{$.a[?(@.b[0:2])]}":                    {`unexpected "[0:2]`},
		"{$.a[?(@.b == )]}":                     {`unexpected ")"`},
		"{$.a[?(@.b == 1]}":                     {"ends too early"},
		"{$.a[?@.b == 1e]}":                     {`unexpected "1e"`},
		"{$.a[?@.b == 'c' 'd']}":                {`unexpected "'d'"`},
		"{$.a[?@.b + 1 == 2]}":                  {`unexpected "+ 1 == 2"`},
		"{$.a[?]}":                              {"{$.a[?]}"},
		"{$.a[?1]}":                             {"compares nothing"},
		"{$.a[?@.b && 1]}":                      {"conditions only"},
		"{$.a[?!1]}":                            {"conditions only"},
		"{$.a[?@.b in [1 2]]}":                  {`unexpected "2]"`},
		"{$.a[?(@.b =~ @.c)]}":                  {"regular expression"},
		"{$.a[?(@.b =~ /(/)]}":                  {"missing closing )"},
		"{$.a[?match(@.b, @.c)]}":               {"quoted regular expression"},
		"{$.a[?match(@.b)]}":                    {`unexpected ")"`},
		"{$.a[?(@.b =~ /(x{100}){10}/)]}":       {"too large"},
		"{$.a[(@.length-1)]}":                   {"{$.a[(@.length-1)]}"},
		"{$." + strings.Repeat("a", 2000) + "}": {"longer than 1024", "…"},
	} {
		_, err := Parse(template)
		if err == nil {
			t.Errorf("%q parsed", template)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q lacks %q", template, err, part)
			}
		}
	}
}

func TestTemplateMarksInsertedValuesOnly(t *testing.T) {
	t.Parallel()
	parsed, err := Parse("a {x} {nope} {$..y} {z} {{x}}")
	if err != nil {
		t.Fatal(err)
	}
	body := decoded(t, `{"x":"<x>","y":1,"z":{"y":null}}`)
	got := parsed.RenderMarked(Input{Body: body}, func(value string) string { return "«" + value + "»" })
	if want := `a «<x>» <missing> «[1,null]» «{"y":null}» {{x}}`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTemplateIsBlankWhenWhiteSpace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": true, " \n\t": true, "x": false, " {a} ": false} {
		parsed, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Blank() != want || parsed.String() != text {
			t.Errorf("%q: Blank %v, String %q", text, parsed.Blank(), parsed)
		}
	}
}

func TestTemplateBoundsTheSizeOfAMessage(t *testing.T) {
	t.Parallel()
	body := `{"big":"` + strings.Repeat("x", 1<<20) + `","small":"s"}`
	got := rendered(t, strings.Repeat("{big}", 10)+" {small} end", body)
	want := strings.Repeat("x", 4<<20) + strings.Repeat("<too large>", 6) + " <too large> end"
	if got != want {
		t.Errorf("%d bytes, ending %q", len(got), got[len(got)-100:])
	}
}

// A saved template renders any body in about a second and a few megabytes. Here bodies and limits are an eighth of their
// size, which takes an eighth of the time.
func TestTemplateBearsHostileBodies(t *testing.T) {
	t.Parallel()
	const size = 1 << 20 / 8
	eighth := limits{messageLimits.values / 8, messageLimits.steps / 8}
	fill := func(open, unit, end string) string {
		return open + strings.Repeat(unit+",", (size-len(open)-len(end))/(len(unit)+1)-1) + unit + end
	}
	nested := strings.Repeat(`[`, 127) + fill("", "1", "") + strings.Repeat(`]`, 127)
	var members strings.Builder
	for i := range size / 12 {
		fmt.Fprintf(&members, `"k%d":%d,`, i, i%10)
	}
	bodies := map[string]string{
		"numbers": fill("[", "1", "]"),
		"members": "{" + members.String() + `"a":{"a":1}}`,
		"nested":  nested,
		"deep":    fill("[", strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100), "]"),
		"operands": `{"number":1` + strings.Repeat("0", size/4) + `1,"text":"` + strings.Repeat("x", size/4) + `","list":[` +
			strings.Repeat("1,", size/8) + `1],"a":[` + strings.Repeat(`{"a":1},`, size/32) + `1]}`,
		"one string": `[{"a":"` + strings.Repeat("ab", size/2) + `"}]`,
	}
	templates := []string{
		"{$..*}",
		"{$..a}",
		"{$..[?(@.a == 1 && @.b != 'y' || !(@.c > 5) && @[0] == @[1] || @.a.a.a.a == 2)].b}",
		"{$..[?(@.a =~ /(a|b|ab|ba|aab)*c(a|b|ab|ba|aab)*d.{0,100}$/)]}",
		"{$.a[?@.a == $.number]}{$.a[?$.number > @.a]}",
		"{$.a[?$.text == $.text]}",
		"{$.a[?length($.text) == @.a]}",
		"{$.a[?2 in $.list]}",
		"{$.a[?$.text =~ /(a|x)*$/ && @.b]}",
		"{$..[?search(@.a, '(a|b)*c')]}",
		"{$" + strings.Repeat("[0,0,0,0,0,0,0,0,0,0]", 40) + "}",
		"{$" + strings.Repeat("[*]", 300) + "}",
		strings.Repeat("{$..*}", 100),
		strings.Repeat("{$..nope[?(@.a == 1)]}", 100),
		strings.Repeat("{$}", 100),
	}
	for name, text := range bodies {
		body := decoded(t, text)
		for _, template := range templates {
			parsed, err := Parse(template)
			if err != nil {
				t.Fatalf("Parse(%.100q): %v", template, err)
			}
			start := time.Now()
			got := parsed.render(&Input{Body: body}, nil, eighth)
			took := time.Since(start)
			if testing.Verbose() && took > 200*time.Millisecond {
				t.Logf("%s with %.60q: %v, %d bytes", name, template, took, len(got))
			}
			if len(got) > eighth.values+100*len(tooLarge) {
				t.Errorf("%s with %.60q gave %d bytes", name, template, len(got))
			}
		}
	}
}

func TestTemplateStopsALongSearch(t *testing.T) {
	t.Parallel()
	got := rendered(t, "{$"+strings.Repeat("[0,0,0,0,0,0,0,0,0,0]", 40)+"}", strings.Repeat("[", 50)+strings.Repeat("]", 50))
	if got != tooLarge {
		t.Errorf("got %.50q", got)
	}
}

func BenchmarkRender(b *testing.B) {
	body := decoded(b, `{"action":"opened","number":17,"pull_request":{"title":"Fix the thing","user":{"login":"ann"},"labels":[{"name":"bug"}]},`+
		`"filler":"`+strings.Repeat("x", 20_000)+`"}`)
	for name, template := range map[string]string{
		"5 paths":  "{pull_request.user.login} {action} #{number}: {pull_request.title} ({pull_request.labels[0].name})",
		"JSONPath": "{$..login}",
		"filter":   "{$.pull_request.labels[?(@.name == 'bug')].name}",
		"20 KB":    "{filler}",
		"pipes":    "{pull_request.title | truncate 8} {$.pull_request.labels[*].name | join ', '} {nope | default 'none'}",
	} {
		parsed, err := Parse(template)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parsed.Render(Input{Body: body})
			}
		})
	}
}

// What a regular expression may cost depends on its instructions, and a look into the tables of Unicode is the dearest.
func TestTemplateCountsTheCostOfRegularExpressions(t *testing.T) {
	t.Parallel()
	const long = 24_000 // bytes, for which the dearest expressions would take several times as long as all of a message may
	for _, c := range []struct{ pattern, unit, want string }{
		{`(?:\pL?){300}q`, "a", tooLarge},
		{`(?:\pL?){300}q`, "д", tooLarge},
		{`(?:\PN?){300}q`, "a", tooLarge},
		{`(?:[^\p{Lu}]?){300}q`, "a", tooLarge},
		{`(?:(?:\pL|\pN|\pP)?){200}(?:\pS?){100}q`, "a", tooLarge},
		{`(?i)(?:я?){200}q`, "a", tooLarge},
		{`(?i)(?:ſ?){200}q`, "a", tooLarge},
		{`^x(?:\b|\B){200}y`, "a", missing},
		{`(?:a?){200}q`, "a", missing},
		{`\pL+\pN*$`, "a", `"` + strings.Repeat("a", long) + `"`},
		{`(?i)^(error|warning|fatal):`, "a", missing},
		{`[\p{Greek}\p{Cyrillic}]`, "a", missing},
	} {
		body := `["` + strings.Repeat(c.unit, long/len(c.unit)) + `"]`
		want := strings.Trim(c.want, `"`)
		if got := rendered(t, `{$[?@ =~ /`+c.pattern+`/]}`, body); got != want {
			t.Errorf("%s: got %.50q, want %.50q", c.pattern, got, want)
		}
	}
	for _, c := range []struct{ dear, cheap string }{
		{`\pL`, `[a-z]`}, {`[^\pL]`, `[^a]`}, {`\p{Greek}`, `\d`}, {`(?i)я`, `я`}, {`(?i)я`, `(?i)a`}, {`(?i)k`, `(?i)a`}, {`(?i)\pL`, `(?i)[a-z]`},
	} {
		if dear, cheap := costOf(t, c.dear), costOf(t, c.cheap); dear <= cheap {
			t.Errorf("%s costs %d, and %s %d", c.dear, dear, c.cheap, cheap)
		}
	}
}

func costOf(t *testing.T, pattern string) int {
	t.Helper()
	var f filter
	if err := f.setPattern(pattern); err != nil {
		t.Fatal(err)
	}
	return f.matchCost(strings.Repeat("x", 1000))
}

// BenchmarkDearestRegularExpressions uses up all steps of a message. What one of them takes is what is promised.
func BenchmarkDearestRegularExpressions(b *testing.B) {
	for _, pattern := range []string{`(?:a?){300}q`, `(?:\pL?){300}q`, `(?i)(?:я?){300}q`, `(?:\b|\B){200}q`, `(\pL|\pN)*$x`, `(?:.*){20}q`, `[^\p{Lu}]*q$`} {
		b.Run(pattern, func(b *testing.B) {
			parsed, err := Parse(`{$[?@ =~ /` + pattern + `/]}`)
			if err != nil {
				b.Fatal(err)
			}
			text := strings.Repeat("a", messageLimits.steps*10/parsed.parts[0].query.selectors[0].filter.patternCost-100)
			for b.Loop() {
				if got := parsed.Render(Input{Body: []any{text}}); got != missing {
					b.Fatal(got)
				}
			}
		})
	}
}

func TestSegmentsNameTheirPlaceholders(t *testing.T) {
	t.Parallel()
	parsed, err := Parse("Issue { issue.number }: {{x}} {$.labels[*].name} {nobody}{no.body[0]}!")
	if err != nil {
		t.Fatal(err)
	}
	body := decoded(t, `{"issue":{"number":1207},"labels":[{"name":"<b>"}],"nobody":null}`)
	got := parsed.Segments(Input{Body: body}, strings.ToUpper)
	want := []Segment{
		{Text: "Issue "}, {Text: "1207", Placeholder: "{ issue.number }"}, {Text: ": {{x}} "}, {Text: "<B>", Placeholder: "{$.labels[*].name}"}, {Text: " "},
		{Text: "NULL", Placeholder: "{nobody}"}, {Text: "<missing>", Placeholder: "{no.body[0]}", Missing: true}, {Text: "!"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for text, want := range map[string]int{"": 0, "plain": 1, "{a}{b}{c}": 3} {
		parsed, _ := Parse(text)
		if got := parsed.Segments(Input{}, nil); len(got) != want {
			t.Errorf("%q has the segments %+v", text, got)
		}
	}
	parsed, _ = Parse("{$}{$}")
	large := parsed.Segments(Input{Body: strings.Repeat("x", 3<<20)}, nil)
	if len(large[0].Text) != 3<<20 || large[1].Text != tooLarge || large[1].Missing {
		t.Errorf("values that are too large: %d bytes, and then %.100s", len(large[0].Text), large[1].Text)
	}
}
