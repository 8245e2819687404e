package template

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ohler55/ojg/jp"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

var templateSeeds = []string{
	"", "hi {user.login}", "{tags[0]} {tags[-1]}", "{a['x y']}{a[\"x\"]}", "{{x}}", "{ $.a.b }", "{$..a}", "{$}", "{$.a[*]}",
	"{$.a[?(@.b == 1 && !(@.c) || @.d in ['x', 2])]}", "{$.a[?(@.b =~ /x}/)]}", "{$.a[?match(@.b, 'x')]}", "{$[0:2]} {$[::-1]}",
	"{$['a','b']}", "{$.a[?length(@.b) > 1.5e3]}", "{not a path}", `{"a": {b}}`, "{$.x-y}", "{$.a[?(@.b == '}')]}", "{$.a[?$.b != @[0]]}",
	`{a | truncate 2 | default "x}" | json}`, `{$.a[*] | join "\n" | indent 2}`, "{tags|json|json}{a | nope}", "{@header.X-A} {@query['a b']} {@body}",
	"{@hook} {@run} {@time | truncate 4}", "{@root.a.b} {@root} {@header} {@body.x}", "{@header.a | default ''}", "{ $ | indent 100 }",
	"{a.thread | default a.b}/{tags[0]}", "{x | default @header.abcd | default @root.a | default tags[-1] | json}",
}

// fuzzSources has a text of some length, or none, for every source.
func fuzzSources(s Source) (string, bool) {
	return strings.Repeat(s.Kind+"\n{a}", len(s.Name)), len(s.Name) != 3
}

func FuzzParse(f *testing.F) {
	for _, seed := range templateSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if found, meant := DoubleBraces(text); !strings.Contains(text, found) || len(found) > 500 {
			t.Errorf("DoubleBraces found %q in %q", found, text)
		} else if meant != "" {
			if placeholder, err := Parse(meant); err != nil || len(placeholder.parts) != 1 || placeholder.parts[0].text != "" {
				t.Errorf("DoubleBraces took %q for %q, which is no placeholder: %v", found, meant, err)
			}
		}
		parsed, err := Parse(text)
		if err != nil {
			return
		}
		if parsed.String() != text {
			t.Errorf("String() = %q", parsed)
		}
		if !strings.Contains(text, "{") && parsed.Render(Input{}) != text {
			t.Errorf("text without braces became %q", parsed.Render(Input{}))
		}
		if doubled := strings.ReplaceAll(text, "{", "{{"); doubled != text {
			again, err := Parse(doubled)
			if err != nil {
				t.Fatalf("Parse(%q): %v", doubled, err)
			}
			if got := again.Render(Input{}); got != doubled {
				t.Errorf("double braces %q became %q", doubled, got)
			}
		}
	})
}

func FuzzRender(f *testing.F) {
	for i, seed := range templateSeeds {
		f.Add(seed, []string{`{"a":{"b":1,"x y":"{b}"},"tags":["{a}",null,1e400]}`, `[[1,2.50],{"b":"x"}]`, `null`, `"{a}"`}[i%4])
	}
	f.Fuzz(func(t *testing.T, template, body string) {
		parsed, err := Parse(template)
		if err != nil {
			return
		}
		d := json.NewDecoder(strings.NewReader(body))
		d.UseNumber()
		var value any
		if d.Decode(&value) != nil {
			return
		}
		in := Input{Body: value, Source: fuzzSources}
		got := parsed.Render(in)
		if again := parsed.Render(in); again != got {
			t.Errorf("rendered %q and then %q", got, again)
		}
		if most := len(template)*len(tooLarge) + messageLimits.values; len(got) > most {
			t.Errorf("%d bytes of at most %d", len(got), most)
		}
		small := limits{values: 100, steps: 1000}
		if short := parsed.render(&in, nil, small); len(short) > len(template)*len(tooLarge)+small.values {
			t.Errorf("%d bytes with a limit of %d", len(short), small.values)
		}
		const most = 64
		if text, err := parsed.Strict(in, most); err == nil && (text != got || len(text) > most) {
			t.Errorf("strictly it is %q, and otherwise %q", text, got)
		}
		for _, source := range parsed.Sources() {
			if again, err := Parse("{" + source.String() + "}"); err != nil || len(again.Sources()) != 1 || again.Sources()[0] != source {
				t.Errorf("the source %v became %v, %v", source, again.Sources(), err)
			}
		}
		each := Input{Body: nil, Root: value, Each: true, Source: fuzzSources}
		if again := parsed.Render(each); again != parsed.Render(each) {
			t.Errorf("rendered %q and then %q", again, parsed.Render(each))
		}
		if signed, err := ParseSigned(template); err == nil {
			if raw, absent := signed.AppendRaw(nil, in); absent == nil && len(raw) > len(template)*2000 {
				t.Errorf("%d bytes are signed", len(raw))
			}
		}

		// The segments are the same message in parts, one for each part of the template.
		for _, mark := range []func(string) string{nil, func(value string) string { return "[" + value + "]" }} {
			var text strings.Builder
			segments := parsed.Segments(in, mark)
			for i, segment := range segments {
				text.WriteString(segment.Text)
				own := parsed.parts[i].text
				if (segment.Placeholder == "") != (own != "") || own != "" && segment.Text != own || segment.Missing && segment.Text != missing ||
					!strings.Contains(template, segment.Placeholder) {
					t.Errorf("segment %d is %+v", i, segment)
				}
			}
			if want := parsed.render(&in, mark, messageLimits); text.String() != want || len(segments) != len(parsed.parts) {
				t.Errorf("%d segments say %q, want %q in %d", len(segments), text.String(), want, len(parsed.parts))
			}
		}

		// Parts that the template does not select make no difference to it.
		if _, err := strictjson.Parse([]byte(body)); err == nil {
			selected := new(strictjson.Selection)
			parsed.Select(selected)
			parts, err := strictjson.ParseSelected([]byte(body), selected)
			if err != nil {
				t.Fatal(err)
			}
			if again := parsed.Render(Input{Body: parts, Source: fuzzSources}); again != got {
				t.Errorf("rendered %q, and %q from the selected parts", got, again)
			}
		}

		// Marking every value with nothing leaves the template's own text: no value was read as a template.
		empty := parsed.RenderMarked(in, func(string) string { return "" })
		var text strings.Builder
		own := false // some values are
		for _, p := range parsed.parts {
			text.WriteString(p.text)
			own = own || p.extra != nil && (p.extra.source != nil && !p.extra.source.FromOutside() ||
				slices.ContainsFunc(p.extra.pipes, func(p pipe) bool { return p.name == "default" }))
		}
		for _, stand := range []string{missing, tooLarge} {
			empty = strings.ReplaceAll(empty, stand, "")
		}
		if want := strings.NewReplacer(missing, "", tooLarge, "").Replace(text.String()); empty != want && !own {
			t.Errorf("the text around the values is %q, want %q", empty, want)
		}

		whole, _ := Parse("{$}")
		if _, isText := value.(string); !isText {
			var back any
			d := json.NewDecoder(strings.NewReader(whole.Render(Input{Body: value})))
			d.UseNumber()
			if err := d.Decode(&back); err != nil || !reflect.DeepEqual(back, value) {
				t.Errorf("%q came back as %q: %v", value, back, err)
			}
		}
	})
}

func FuzzCondition(f *testing.F) {
	for i, seed := range []string{
		"$.a == 'x' && $.b[?@.c == 'bug']", "not $.a", "header X-A", `header X-A a "b c"`, "query a ~ ^x", "not header X ~ \"a b\"", "!($.a || $..b) && count($.a[*]) > 1",
		"match($.a, 'x.')", "search($.a, $.b)", "value($..b) == null", "length($.a) <= 2.5e1", "$.a in ['x', 1]", "$.a =~ /x/", "$['a',0,1:2,?@ == $.b]", "$.a[?@[?@[?@ == 1]]]",
		`$["\u00e9\ud83d\ude00"] != "\n"`, "$..a..b", "header", "$.a[", "$[::-1]", "1 == 1.0", "$.a == $.b",
	} {
		f.Add(seed, []string{`{"a":"x","b":[{"c":"bug"}]}`, `{"a":[1,2,[3]],"b":"x"}`, `null`, `[[1],{"b":{"a":[]}}]`}[i%4])
	}
	f.Fuzz(func(t *testing.T, line, body string) {
		if each, err := ParseEach(line); err == nil {
			checkEach(t, each, body)
		}
		c, err := ParseCondition(line)
		if err != nil {
			return
		}
		again, err := ParseCondition(c.String())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%q became %q: %v", c, again, err)
		}
		value, err := strictjson.Parse([]byte(body))
		if err != nil {
			return
		}
		steps := 100_000
		holds, decided := c.Holds(Input{Body: value, Source: fuzzSources}, &steps)
		if steps < 0 || holds && !decided {
			t.Errorf("holds %v, decided %v, %d steps are left", holds, decided, steps)
		}
		if !decided {
			return
		}
		if opposite, err := ParseCondition("not " + c.String()); err == nil {
			steps := 100_000
			if not, _ := opposite.Holds(Input{Body: value, Source: fuzzSources}, &steps); not == holds {
				t.Errorf("%s and its opposite are both %v", c, holds)
			}
		} else if !c.negated {
			t.Errorf("%s cannot be turned round: %v", c, err)
		}
		selected := new(strictjson.Selection)
		c.Select(selected)
		parts, err := strictjson.ParseSelected([]byte(body), selected)
		if err != nil {
			t.Fatal(err)
		}
		steps = 100_000
		if again, _ := c.Holds(Input{Body: parts, Source: fuzzSources}, &steps); again != holds {
			t.Errorf("%s is %v of the whole, and %v of the selected parts", c, holds, again)
		}
	})
}

func checkEach(t *testing.T, each *Each, body string) {
	t.Helper()
	if again, err := ParseEach(each.String()); err != nil || !reflect.DeepEqual(again, each) {
		t.Fatalf("%q became %q: %v", each, again, err)
	}
	value, err := strictjson.Parse([]byte(body))
	if err != nil {
		return
	}
	matches, more, decided := each.Find(value, 3)
	if len(matches) > 3 || more && len(matches) != 3 || !decided && len(matches) > 0 {
		t.Errorf("%d matches, more %v, decided %v", len(matches), more, decided)
	}
	selected := new(strictjson.Selection)
	each.Select(selected)
	parts, err := strictjson.ParseSelected([]byte(body), selected)
	if err != nil {
		t.Fatal(err)
	}
	if again, _, _ := each.Find(parts, 3); !reflect.DeepEqual(again, matches) {
		t.Errorf("%s finds %v, and %v in the selected parts", each, matches, again)
	}
}

func TestTemplateWritesTheSameJSONAsEncodingJSON(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		value := randomValue(random, 4)
		var want strings.Builder
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(value); err != nil {
			t.Fatal(err)
		}
		got, ok := appendJSON(nil, value, &bound{limit: messageLimits.values})
		if !ok || string(got) != strings.TrimSuffix(want.String(), "\n") {
			t.Fatalf("got %s, want %s", got, want.String())
		}
	}
}

func TestTemplateFindsWhatJSONPathFinds(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		value := randomValue(random, 5)
		expression, bare := randomPath(random)
		matches := jp.MustParseString(expression).Get(value)
		want := missing
		if len(matches) == 1 {
			text, _ := appendValue(nil, matches[0], &bound{limit: messageLimits.values})
			want = string(text)
		}
		for _, template := range []string{"{" + expression + "}", "{" + bare + "}"} {
			parsed, err := Parse(template)
			if err != nil {
				t.Fatalf("Parse(%q): %v", template, err)
			}
			if got := parsed.Render(Input{Body: value}); got != want {
				t.Fatalf("%s on %v: got %q, jp finds %q", template, value, got, want)
			}
			body, _ := json.Marshal(value)
			selected := new(strictjson.Selection)
			parsed.Select(selected)
			parts, err := strictjson.ParseSelected(body, selected)
			if err != nil {
				t.Fatal(err)
			}
			whole, _ := strictjson.Parse(body)
			if got, want := parsed.Render(Input{Body: parts}), parsed.Render(Input{Body: whole}); got != want {
				t.Fatalf("%s on %s: got %q from the selected parts, want %q", template, body, got, want)
			}
		}
	}
}

var randomKeys = []string{"a", "b", "c_1", "é"}

// randomPath returns the same path as an expression and in its bare form.
func randomPath(random *rand.Rand) (expression, bare string) {
	expression = "$"
	for i := range 1 + random.IntN(4) {
		key := randomKeys[random.IntN(len(randomKeys))]
		switch kind := random.IntN(4); {
		case kind == 0:
			index := fmt.Sprintf("[%d]", random.IntN(5)-2)
			expression, bare = expression+index, bare+index
		case kind == 1:
			quoted := fmt.Sprintf("['%s']", key)
			expression, bare = expression+quoted, bare+quoted
		case i == 0:
			expression, bare = expression+"."+key, key
		default:
			expression, bare = expression+"."+key, bare+"."+key
		}
	}
	return expression, bare
}

func randomValue(random *rand.Rand, depth int) any {
	kind := random.IntN(8)
	if depth == 0 {
		kind = random.IntN(5)
	}
	switch kind {
	case 0:
		return nil
	case 1:
		return random.IntN(2) == 0
	case 2:
		return json.Number([]string{"0", "1.10", "-3e7", "12345678901234567890"}[random.IntN(4)])
	case 3, 4:
		return []string{"", "x", "<&>", "\x00\x1f\b\f\n\r\t\"\\/\x7f", "é😀\u2028\u2029", "a\xffb"}[random.IntN(6)]
	case 5:
		list := make([]any, random.IntN(4))
		for i := range list {
			list[i] = randomValue(random, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for _, key := range randomKeys {
		if random.IntN(3) > 0 {
			object[key] = randomValue(random, depth-1)
		}
	}
	return object
}
