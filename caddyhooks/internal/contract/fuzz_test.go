package contract

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// FuzzSchema compiles any bytes as a schema and validates any instance. Where the library can be trusted with the input
// as it is, it must come to the same verdict.
func FuzzSchema(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"type":["object","null"],"required":["a"],"properties":{"a":{"type":"integer","minimum":1,"multipleOf":0.5}},"additionalProperties":false}`, `{"a":1.5}`},
		{`{"$defs":{"a":{"$anchor":"x","items":{"$ref":"#x"}}},"$ref":"#/$defs/a"}`, `[[],[[]]]`},
		{`{"anyOf":[{"const":1},{"enum":["a",null,[1]]}],"not":{"type":"null"}}`, `[1.0]`},
		{`{"oneOf":[{"minLength":2},{"pattern":"^a"}],"maxLength":5}`, `"ab"`},
		{`{"if":{"required":["k"]},"then":{"minProperties":2},"else":{"maxProperties":0},"propertyNames":{"maxLength":3}}`, `{"k":1}`},
		{`{"prefixItems":[true,false],"items":{"uniqueItems":true},"contains":{"const":1},"minContains":0,"maxContains":2}`, `[1,1]`},
		{`{"allOf":[{"properties":{"a":true}},{"patternProperties":{"^b":{"type":"string"}}}],"unevaluatedProperties":false}`, `{"a":1,"bc":"","d":1}`},
		{`{"contains":{"type":"string"},"unevaluatedItems":{"type":"number"}}`, `["a",1,null]`},
		{`{"dependentRequired":{"a":["b"]},"dependentSchemas":{"b":{"required":["c"]}}}`, `{"a":1,"b":2}`},
		{`{"$id":"https://example.com/a","$dynamicAnchor":"n","$ref":"b","$defs":{"b":{"$id":"b","$dynamicAnchor":"n","items":{"$dynamicRef":"#n"}}}}`, `[[1]]`},
		{`{"x":{"type":"string"},"$ref":"#/x","format":"email","contentSchema":{}}`, `"a"`},
		{`{"exclusiveMinimum":-1e-3,"exclusiveMaximum":1E+2}`, `1e2`},
		{`{"pattern":"(?i)[a-z]{2,}\\pL+"}`, `"AbC"`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, raw, instance []byte) {
		schema, err := Compile(raw)
		if err != nil {
			if text := err.Error(); len(text) > 700 || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\x00") {
				t.Fatalf("the error is not fit to be shown: %q", text)
			}
			return
		}
		v, err := strictjson.Parse(instance)
		if err != nil {
			return
		}
		budget := answerBudget()
		before := budget.work
		failures, err := validateWithin(schema, v, budget)
		if err != nil {
			return
		}
		for _, f := range failures {
			if text := f.String(); len(text) > 700 || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\x00") {
				t.Fatalf("the failure is not fit to be shown: %q", text)
			}
			if strings.Contains(f.text, "does not match the schema") {
				t.Fatalf("the failure says nothing: %q", f)
			}
		}
		_, outOfBounds := measureDocument(v, answerBounds)
		if outOfBounds != nil || before-budget.work > 1_000_000 {
			return // the library alone might take forever
		}
		if bare := bareLibrary(raw); bare != nil && bare(v) != (failures == nil) {
			t.Fatalf("the library alone decides otherwise: %v", failures)
		}
	})
}

// changed matches the parts of schemas that the library alone reads differently: keywords that the draft does not have,
// format, an empty enum, and numbers that it cannot read.
var changed = regexp.MustCompile(`(?i)format|recursive|regexProperties|"enum"\s*:\s*\[\s*\]|\$vocabulary|\$id|\\u|[0-9.]{15}|e[-+0-9]{2}`)

// bareLibrary validates values with the library alone. It returns nil if the verdict of the library does not count.
func bareLibrary(raw []byte) func(v any) bool {
	if len(raw) > 2000 || changed.Match(raw) {
		return nil
	}
	c := jsonschema.NewCompiler()
	c.LoadURL = func(string) (io.ReadCloser, error) { return nil, errors.New("not allowed") }
	if err := c.AddResource(baseURL, bytes.NewReader(raw)); err != nil {
		return nil
	}
	schema, err := c.Compile(baseURL)
	if err != nil {
		return nil
	}
	return func(v any) bool { return schema.Validate(v) == nil }
}

// FuzzAnswer looks for JSON in any text. The JSON must be in the text, and be valid.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"a":1}`, "Sure:\n```json\n{\"a\":1}\n```", `x {"a":1} y {"b":2}`, `<think>{"a":2}</think>{"a":1}`, `{"a":1,}`, "\ufeff[1,2]", `{"a":"\ud800"}`,
		`{"list":[{"a":1},`, `{{{[[["a`, "~~~\n[\n~~~", "{\"a\":\"\xff\"}", `{"a":1e1000}`, strings.Repeat("[", 200),
	} {
		f.Add(seed)
	}
	schema, err := Compile([]byte(`{"type":["object","array"],"minProperties":1,"minItems":1,"uniqueItems":true,"properties":{"a":{"type":"integer"}}}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		result, err := schema.Fulfil(t.Context(), answer, func(_ context.Context, _ int, p Prompt) (string, error) {
			if strings.Count(p.Message, "[END EXTERNAL WEBHOOK DATA]") != 1 {
				t.Fatalf("the marking is broken: %q", p.Message)
			}
			return answer, nil
		})
		if err != nil {
			if !errors.Is(err, ErrNotFulfilled) || result.JSON != nil {
				t.Fatal(result, err)
			}
			return
		}
		if !strings.Contains(answer, string(result.JSON)) || result.Repairs != 0 {
			t.Fatalf("%q is not in the answer", result.JSON)
		}
		if v, err := strictjson.Parse(result.JSON); err != nil || failuresOf(t, schema, v) != nil {
			t.Fatalf("%q is not valid: %v", result.JSON, err)
		}
	})
}
