package example

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract/contracttest"
)

func TestExampleIsSmallAndValid(t *testing.T) {
	t.Parallel()
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
		example := Of(schema)
		if string(example) != c.want {
			t.Errorf("%s: %s, want %s", c.schema, example, c.want)
			continue
		}
		checkValid(t, schema, example)
	}
}

func TestExampleAdmitsWhenThereIsNone(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{"enum":[]}`,
		`{"not":{}}`,
		`{"type":"string","minLength":1e300}`,
		`{"minimum":2,"maximum":1,"type":"number"}`,
		`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}}`,
		`{"allOf":[{"type":"string"},{"type":"null"}]}`,
	} {
		if example := Of(compile(t, schema)); example != nil {
			t.Errorf("%s: %s", schema, example)
		}
	}
}

func TestHostileSchemasStayWithinBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	for name, c := range contracttest.HostileCases() {
		t.Run(name, func(t *testing.T) {
			schema, err := contract.Compile([]byte(c.Schema))
			if err != nil {
				return // by Compile, which has its own test
			}
			var example []byte
			cost := contracttest.Measure(func() { example = Of(schema) })
			cost.Check(t, "example", 0)
			t.Logf("example: %.80s", example)
		})
	}
}

func TestCacheIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var cache Cache
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 50 {
				example, err := cache.Make(fmt.Appendf(nil, `{"required":["a"],"properties":{"a":{"pattern":"^x+$"}},"title":"%d"}`, i%3))
				if err != nil || string(example) != `{"a":"x"}` {
					t.Errorf("%q, %v", example, err)
				}
			}
		})
	}
	group.Wait()
	if len(cache.examples) != 3 {
		t.Errorf("%d examples are kept", len(cache.examples))
	}
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	var cache Cache
	if _, err := cache.Make([]byte(`{}`)); err == nil {
		t.Error("a bad schema is accepted")
	}
	for i := range 1000 {
		cache.keep(fmt.Sprint(i), bytes.Repeat([]byte("x"), 50_000))
	}
	cache.keep("large", make([]byte, maxCacheBytes))
	size := 0
	for schema, example := range cache.examples {
		size += entryBytes + len(schema) + len(example)
	}
	if size != cache.size || size > maxCacheBytes || cache.examples["999"] == nil || cache.examples["large"] != nil {
		t.Errorf("%d bytes, counted %d", size, cache.size)
	}
}

func FuzzExample(f *testing.F) {
	for _, seed := range []string{
		`{"type":["object","null"],"required":["a"],"properties":{"a":{"type":"integer","minimum":1,"multipleOf":0.5}},"additionalProperties":false}`,
		`{"$defs":{"a":{"$anchor":"x","items":{"$ref":"#x"},"minItems":1}},"$ref":"#/$defs/a"}`,
		`{"oneOf":[{"minLength":2},{"pattern":"^a"}],"maxLength":5}`,
		`{"if":{"required":["k"]},"then":{"minProperties":2},"else":{"minProperties":1},"propertyNames":{"maxLength":3}}`,
		`{"prefixItems":[true,false],"items":{"uniqueItems":true},"contains":{"const":1},"minContains":2}`,
		`{"allOf":[{"required":["a"]},{"patternProperties":{"^b":{"type":"string"}}}],"unevaluatedProperties":{"minimum":2}}`,
		`{"required":["a"],"dependentRequired":{"a":["b"]},"dependentSchemas":{"b":{"required":["c"]}}}`,
		`{"exclusiveMinimum":-1e-3,"exclusiveMaximum":1E+2}`,
		`{"pattern":"(?i)[a-z]{2,}\\pL+"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		schema, err := contract.Compile(raw)
		if err != nil {
			return
		}
		if example := Of(schema); example != nil {
			checkValid(t, schema, example)
		}
	})
}

func compile(t testing.TB, schema string) *contract.Schema {
	t.Helper()
	s, err := contract.Compile([]byte(schema))
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return s
}

func checkValid(t testing.TB, schema *contract.Schema, example []byte) {
	t.Helper()
	_, err := schema.Fulfil(t.Context(), string(example), func(_ context.Context, _ int, p contract.Prompt) (string, error) {
		_, failures, _ := strings.Cut(p.Message, "What is wrong")
		return "", errors.New(failures)
	})
	if err != nil {
		t.Errorf("%s is not valid: %v", example, err)
	}
}
