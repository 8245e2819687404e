package contract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func TestVerdictsFollowTheDraft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schema  string
		valid   []string
		invalid []string
	}{
		{`{"type":"integer"}`, []string{`1`, `1.0`, `1e3`, `-0`, `100e-2`}, []string{`1.5`, `1e-1`, `"1"`, `null`, `true`}},
		{`{"type":["string","number"]}`, []string{`1`, `1.5`, `""`}, []string{`null`, `[]`}},
		{`{"enum":[]}`, nil, []string{`null`, `0`, `""`, `{}`, `[]`}},
		{`{"const":5}`, []string{`5`, `5.0`, `50e-1`}, []string{`"5"`, `[5]`, `true`}},
		{`{"const":{"a":[1,{"b":2.0}],"c":null}}`, []string{`{"c":null,"a":[1.0,{"b":2}]}`}, []string{`{"a":[1,{"b":2}]}`, `{}`}},
		{`{"enum":["a",1,null,[1,"1"]]}`, []string{`"a"`, `1.0`, `null`, `[1,"1"]`}, []string{`"1"`, `[1,1]`, `["1",1]`, `false`}},
		{`{"const":false}`, []string{`false`}, []string{`0`, `null`, `""`}},
		{`{"minimum":1.1,"exclusiveMaximum":2}`, []string{`1.1`, `11e-1`, `1.999999999999999999999999`}, []string{`1.0999999999999999999999`, `2.0`}},
		{`{"exclusiveMinimum":0,"maximum":1e400}`, []string{`1e-400`, `1e400`}, []string{`0`, `-0.0`, `-1`, `1.0000001e400`}},
		{`{"multipleOf":0.01}`, []string{`4.35`, `0`, `1e300`, `-0.07`}, []string{`0.001`, `4.355`}},
		{`{"multipleOf":3}`, []string{`3e2`, `999999999999999999999999999999`, `6`}, []string{`1e300`, `10`}},
		{`{"minLength":2,"maxLength":2}`, []string{`"é😀"`, `5`}, []string{`"a"`, `"abc"`}},
		{`{"maxLength":1e300,"maxItems":9e18,"maxProperties":1e20}`, []string{`"a"`, `[1]`, `{"a":1}`}, nil},
		{`{"minLength":1e300,"minItems":9e18,"minProperties":1e20}`, []string{`1`}, []string{`"a"`, `[1]`, `{"a":1}`}},
		{`{"dependencies":{"a":["b"],"c":{"required":["d"]}}}`, []string{`{"a":1,"b":1}`, `{"c":1,"d":1}`}, []string{`{"a":1}`, `{"c":1}`}},
		{`{"pattern":"^a+$"}`, []string{`"aa"`, `1`}, []string{`""`, `"aab"`, `"a\n"`}},
		{`{"uniqueItems":true}`, []string{`[1,"1",true,[1],{"a":1}]`, `[0,false]`}, []string{`[1,1.0]`, `[{"a":1,"b":2},{"b":2,"a":1.0}]`, `["","x",""]`}},
		{`{"contains":{"type":"string"},"minContains":2,"maxContains":3}`, []string{`["a",1,"b"]`, `{}`}, []string{`["a"]`, `["a","b","c","d"]`, `[]`}},
		{`{"contains":{"const":1},"minContains":0}`, []string{`[]`, `[2]`}, nil},
		{`{"prefixItems":[{"type":"string"}],"items":{"type":"integer"}}`, []string{`[]`, `["a",1,2]`}, []string{`[1]`, `["a","b"]`}},
		{`{"prefixItems":[true],"items":false}`, []string{`[7]`}, []string{`[7,8]`}},
		{`{"required":["a"],"properties":{"a":{"type":"string"}},"additionalProperties":false,"patternProperties":{"^x-":{"type":"integer"}}}`,
			[]string{`{"a":"","x-y":1}`, `[]`}, []string{`{}`, `{"a":1}`, `{"a":"","x-y":""}`, `{"a":"","b":1}`}},
		{`{"propertyNames":{"maxLength":1},"minProperties":1,"maxProperties":2}`, []string{`{"a":1}`}, []string{`{}`, `{"ab":1}`, `{"a":1,"b":2,"c":3}`}},
		{`{"dependentRequired":{"a":["b"]},"dependentSchemas":{"c":{"required":["d"]}}}`, []string{`{}`, `{"a":1,"b":1}`}, []string{`{"a":1}`, `{"c":1}`}},
		{`{"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"required":["a"]},"else":{"required":["b"]}}`,
			[]string{`{"k":1,"a":1}`, `{"b":1}`}, []string{`{"k":1,"b":1}`, `{}`}},
		{`{"then":false,"else":false}`, []string{`1`}, nil},
		{`{"oneOf":[{"multipleOf":2},{"multipleOf":3}]}`, []string{`2`, `9`}, []string{`6`, `5`}},
		{`{"not":{"type":"null"}}`, []string{`1`}, []string{`null`}},
		{`{"properties":{"a":false}}`, []string{`{}`}, []string{`{"a":1}`}},
		{`{"format":"email","contentMediaType":"application/json","contentEncoding":"base64","contentSchema":false}`, []string{`"nothing of the kind"`}, nil},
		{`{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}`, []string{`{"a":1}`}, []string{`{"b":1}`}},
		{`{"anyOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":true}}],"unevaluatedProperties":{"type":"integer"}}`,
			[]string{`{"a":"","b":""}`, `{"b":"","c":1}`, `{"a":1}`}, []string{`{"b":"","c":""}`, `{"a":[]}`}},
		{`{"not":{"not":{"properties":{"a":true}}},"unevaluatedProperties":false}`, []string{`{}`}, []string{`{"a":1}`}},
		{`{"if":{"properties":{"a":{"const":1}}},"unevaluatedProperties":false}`, []string{`{"a":1}`}, []string{`{"a":2}`}},
		{`{"prefixItems":[true],"contains":{"const":1},"unevaluatedItems":false}`, []string{`[0,1]`, `[1]`}, []string{`[1,2]`, `[2]`}},
		{`{"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"additionalProperties":false}},"$ref":"#/$defs/n"}`,
			[]string{`{"next":{"next":{}}}`}, []string{`{"next":{"next":{"x":1}}}`, `{"next":1}`}},
		{`{"$id":"https://example.com/strict","$dynamicAnchor":"node","$ref":"tree","unevaluatedProperties":false,"$defs":{"tree":{"$id":"tree",
			"$dynamicAnchor":"node","type":"object","properties":{"data":true,"kids":{"type":"array","items":{"$dynamicRef":"#node"}}}}}}`,
			[]string{`{"kids":[{"data":1}]}`}, []string{`{"kids":[{"daat":1}]}`, `{"daat":1}`}},
		{`{"$dynamicAnchor":"a","items":{"$dynamicRef":"#a"},"type":"array"}`, []string{`[[[]]]`}, []string{`[[1]]`}},
		{`{"$defs":{"":{"type":"string"}},"$ref":"#/$defs/"}`, []string{`""`}, []string{`1`}},
	} {
		schema := compile(t, c.schema)
		for want, instances := range map[bool][]string{true: c.valid, false: c.invalid} {
			for _, instance := range instances {
				v, err := strictjson.Parse([]byte(instance))
				if err != nil {
					t.Fatalf("%s: %v", instance, err)
				}
				if failures := failuresOf(t, schema, v); (failures == nil) != want {
					t.Errorf("%s under %s: %v", instance, c.schema, failures)
				}
			}
		}
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 500)
	for _, c := range []struct {
		schema, instance string
		want             []string
	}{
		{`{"const":5}`, `"5"`, []string{`at the top level: must be exactly 5`}},
		{`{"const":"5"}`, `5`, []string{`at the top level: must be exactly "5"`}},
		{`{"const":{"b":[1.10],"a":null}}`, `5`, []string{`at the top level: must be exactly {"a":null,"b":[1.10]}`}},
		{`{"enum":[1,"1",null]}`, `2`, []string{`at the top level: must be one of 1, "1", null`}},
		{`{"enum":[]}`, `2`, []string{`at the top level: no value is allowed here, because enum is empty`}},
		{`{"not":{}}`, `2`, []string{`at the top level: matches the schema under not, which it must not match`}},
		{`{"properties":{"a/b":{"type":["string","null"]}}}`, `{"a/b":1}`, []string{`at /a~1b: must be a string or null, but is a number`}},
		{`{"items":{"type":"integer"}}`, `[1,1.5,"x"]`, []string{`at /1: must be an integer, but is a number`, `at /2: must be an integer, but is a string`}},
		{`{"required":["a","b","c"]}`, `{"b":1}`, []string{`at the top level: lacks "a", "c", which the schema requires`}},
		{`{"properties":{"a":true},"additionalProperties":false}`, `{"z":1,"a":1,"b":2}`, []string{`at the top level: has properties that are not allowed: "b", "z"`}},
		{`{"unevaluatedProperties":false}`, `{"z":1}`, []string{`at /z: no value is allowed here`}},
		{`{"properties":{"a":false}}`, `{"a":1}`, []string{`at /a: no value is allowed here`}},
		{`{"properties":{"additionalProperties":false}}`, `{"additionalProperties":1}`, []string{`at /additionalProperties: no value is allowed here`}},
		{`{"properties":{"propertyNames":{"maxLength":1}}}`, `{"propertyNames":"ab"}`, []string{`at /propertyNames: must have at most 1 characters, but has 2`}},
		{`{"$ref":"#/$defs/a%25b","$defs":{"a%b":{"const":1}}}`, `2`, []string{`at the top level: must be exactly 1`}},
		{`{"minimum":1.50,"multipleOf":2}`, `1.10`, []string{`at the top level: must be at least 1.50, but is 1.10`, `at the top level: must be a multiple of 2, but is 1.10`}},
		{`{"exclusiveMaximum":3}`, `3`, []string{`at the top level: must be less than 3, but is 3`}},
		{`{"minLength":3,"pattern":"^\"\n"}`, `"é"`, []string{`at the top level: must have at least 3 characters, but has 1`, `at the top level: must match the regular expression "^\"\n"`}},
		{`{"uniqueItems":true,"minItems":4}`, `[1,2,1.0]`, []string{`at the top level: must have at least 4 items, but has 3`, `at the top level: must have no equal items`}},
		{`{"prefixItems":[true],"items":false}`, `[1,2]`, []string{`at /1: no value is allowed here`}},
		{`{"contains":{"const":1}}`, `[2]`, []string{`at the top level: must have at least 1 of the items that contains describes`}},
		{`{"propertyNames":{"maxLength":2}}`, `{"abc":1}`, []string{`at the top level: has a property with the name "abc", but the name must have at most 2 characters, but has 3`}},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, []string{`at the top level: has "a" and therefore must have "b" as well`}},
		{`{"oneOf":[{"minimum":1},{"minimum":2}]}`, `3`, []string{`at the top level: matches more than one of the 2 schemas under oneOf, but must match exactly one`}},
		{`{"anyOf":[{"type":"string"},{"type":"object","required":["a"]}]}`, `{}`,
			[]string{`at the top level: matches none of the 2 schemas under anyOf`, `at the top level: lacks "a", which the schema requires`}},
		{`{"items":{"type":"string"}}`, `[1,2,3,4,5,6,7,8,9,10]`, []string{
			`at /0: must be a string, but is a number`, `at /1: must be a string, but is a number`, `at /2: must be a string, but is a number`,
			`at /3: must be a string, but is a number`, `at /4: must be a string, but is a number`, `at /5: must be a string, but is a number`,
			`at /6: must be a string, but is a number`, `at /7: must be a string, but is a number`}},
		{`{"type":"object"}`, `1e1000`, []string{`at the top level: the number has more than 512 characters or an exponent of more than 3 digits`}},
		{`{"additionalProperties":{"const":"` + long + `"}}`, `{"a\nb":1}`, []string{`at /a\nb: must be exactly "` + long[:80] + `…"`}},
		{`{"additionalProperties":{"type":"null"}}`, `{"` + long + `":1}`, []string{`at /` + long[:48] + `…: must be null, but is a number`}},
	} {
		v, err := strictjson.Parse([]byte(c.instance))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range failuresOf(t, compile(t, c.schema), v) {
			got = append(got, f.String())
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%.100s under %.100s\n got: %q\nwant: %q", c.instance, c.schema, got, c.want)
		}
	}
}

// failuresOf validates a value.
func failuresOf(t testing.TB, schema *Schema, v any) []failure {
	t.Helper()
	failures, err := validateWithin(schema, v, answerBudget())
	if err != nil {
		t.Fatal(err)
	}
	return failures
}

func validateWithin(schema *Schema, v any, b *budget) (failures []failure, err error) {
	err = b.run(func() { failures = schema.validate(v, b) })
	return failures, err
}
