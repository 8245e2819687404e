package contract

import (
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func TestExampleIsSmallAndValid(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{`{"title":"anything"}`, `null`},
		{`{"type":"object"}`, `{}`},
		{`{"type":"array"}`, `[]`},
		{`{"type":"string"}`, `""`},
		{`{"type":"integer"}`, `0`},
		{`{"type":"boolean"}`, `false`},
		{`{"type":"null"}`, `null`},
		{`{"type":["string","null"]}`, `""`},
		{`{"const":{"b":1.50,"a":"<"}}`, `{"a":"<","b":1.50}`},
		{`{"enum":["x","y"],"not":{"const":"x"}}`, `"y"`},
		{`{"type":"object","required":["b","a"],"properties":{"a":{"type":"string"},"b":{"type":"integer","minimum":1},"c":{}}}`, `{"a":"","b":1}`},
		{`{"required":["x"]}`, `{"x":null}`},
		{`{"minProperties":2,"properties":{"a":{"const":1},"b":false}}`, `{"a":1,"property1":null}`},
		{`{"minProperties":1,"additionalProperties":false,"patternProperties":{"^id-[0-9]+$":{"type":"integer"}}}`, `{"id-0":0}`},
		{`{"minProperties":2,"propertyNames":{"enum":["p","q"]}}`, `{"p":null,"q":null}`},
		{`{"required":["a"],"dependentRequired":{"a":["b"]},"dependentSchemas":{"b":{"required":["c"],"properties":{"c":{"const":1}}}}}`, `{"a":null,"b":null,"c":1}`},
		{`{"type":"array","minItems":2,"items":{"type":"integer"}}`, `[0,0]`},
		{`{"minItems":3,"uniqueItems":true,"items":{"type":"integer","minimum":5}}`, `[5,6,7]`},
		{`{"minItems":3,"uniqueItems":true,"items":{"type":"string"}}`, `["","1","2"]`},
		{`{"minItems":2,"uniqueItems":true,"items":{"enum":["a","b"]}}`, `["a","b"]`},
		{`{"minItems":2,"prefixItems":[{"const":1},{"const":2}],"items":false}`, `[1,2]`},
		{`{"contains":{"const":"x"},"minContains":2}`, `["x","x"]`},
		{`{"minLength":3}`, `"aaa"`},
		{`{"type":"string","maxLength":0}`, `""`},
		{`{"format":"date-time"}`, `"2000-01-01T00:00:00Z"`},
		{`{"format":"email","maxLength":3}`, `""`},
		{`{"pattern":"^[A-Z]{2}-\\d+(x|y)?$"}`, `"AA-0"`},
		{`{"pattern":"^a+$","minLength":5}`, `"aaaaaaa"`},
		{`{"minimum":2.5}`, `3`},
		{`{"minimum":2.5,"maximum":2.75}`, `2.625`},
		{`{"exclusiveMinimum":5}`, `6`},
		{`{"maximum":-2.5}`, `-3`},
		{`{"exclusiveMaximum":-3}`, `-4`},
		{`{"exclusiveMinimum":0,"exclusiveMaximum":1}`, `0.5`},
		{`{"minimum":7,"multipleOf":5}`, `10`},
		{`{"minimum":1,"multipleOf":0.3,"allOf":[{"multipleOf":0.2}]}`, `1.2`},
		{`{"type":"integer","minimum":1e600}`, `1e600`},
		{`{"anyOf":[{"type":"string","minLength":1},{"type":"null"}]}`, `"a"`},
		{`{"oneOf":[{"type":"integer"},{"type":"number","multipleOf":0.5}]}`, `0.5`},
		{`{"allOf":[{"required":["a"]},{"properties":{"a":{"type":"string"}}},{"properties":{"a":{"minLength":2}}}]}`, `{"a":"aa"}`},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","required":["v","next"],"properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}}}}}`,
			`{"next":null,"v":0}`},
		{`{"required":["k"],"properties":{"k":{"const":"x"}},"if":{"properties":{"k":{"const":"x"}}},"then":{"required":["a"],"properties":{"a":{"type":"integer"}}}}`, `{"a":0,"k":"x"}`},
		{`{"type":"object","properties":{"a":{}},"required":["a"],"unevaluatedProperties":false}`, `{"a":null}`},
	} {
		schema := compile(t, c.schema)
		example, ok := schema.Example()
		if !ok || string(example) != c.want {
			t.Errorf("%s: %s, want %s", c.schema, example, c.want)
			continue
		}
		if v, err := strictjson.Parse(example); err != nil || failuresOf(t, schema, v) != nil {
			t.Errorf("%s: %s is not valid: %v", c.schema, example, err)
		}
	}
}

func TestExampleAdmitsWhenThereIsNone(t *testing.T) {
	for _, schema := range []string{
		`{"enum":[]}`,
		`{"not":{}}`,
		`{"type":"string","minLength":1e300}`,
		`{"minimum":2,"maximum":1,"type":"number"}`,
		`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}}`,
		`{"allOf":[{"type":"string"},{"type":"null"}]}`,
	} {
		if example, ok := compile(t, schema).Example(); ok || example != nil {
			t.Errorf("%s: %s", schema, example)
		}
	}
}
