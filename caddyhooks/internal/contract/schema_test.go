package contract

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestCompileAcceptsDraft2020Schemas(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{"type":"object"}`,
		` {"title":"anything"} `,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":["string","null"]}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema#"}`,
		`{"enum":[]}`,
		`{"enum":[1,1]}`,
		`{"minLength":2.0,"maxLength":1e2}`,
		`{"minimum":-1e999,"multipleOf":1e-999}`,
		`{"properties":{"pattern":{"type":"string"},"$ref":{"type":"string"},"$id":{},"enum":true}}`,
		`{"const":{"$ref":"file:///etc/passwd","pattern":"("}}`,
		`{"enum":[{"$id":7}],"default":{"type":7},"examples":[{"type":7}]}`,
		`{"$ref":"#/$defs/a~1b/properties/%25","$defs":{"a/b":{"properties":{"%":{"type":"string"}}}}}`,
		`{"$ref":"#name","$defs":{"a":{"$anchor":"name"}}}`,
		`{"$id":"https://example.com/root","$ref":"other","$defs":{"a":{"$id":"other","type":"string"}}}`,
		`{"$id":"urn:uuid:00000000-0000-4000-8000-000000000000","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":true}}`,
		`{"definitions":{"a":{"type":"string"}},"$ref":"#/definitions/a"}`,
		`{"$vocabulary":{"https://example.com/unknown":true}}`,
		`{"regexProperties":7,"additionalItems":8,"nullable":9,"extends":[]}`, // unknown to the draft
		`{"format":"regex","contentMediaType":"application/json","contentSchema":{"type":"string"}}`,
		`{"items":{"$ref":"#"}}`,
		`{"$id":"?"}`,
		`{"$id":"SCHEMA:///?#","items":{"$ref":"#"}}`,
		`{"$id":"","items":{"$ref":""}}`,
		`{"$id":"HTTP://example.com","$ref":"http://example.com#/$defs/a","$defs":{"a":{"$id":"b?","items":{"$ref":"#"}}}}`,
		`{"$ref":"#/$defs/caf%c3%a9","$defs":{"café":{"$anchor":"a","$dynamicAnchor":"a"}}}`,
	} {
		if _, err := Compile([]byte(schema)); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

func TestCompileSaysWhatIsWrongWithASchema(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		``:              "the schema is not valid JSON: it is empty",
		`{`:             "the schema is not valid JSON",
		`{"a":1,"a":2}`: "the schema is not valid JSON: a key stands twice",
		`{} {}`:         "the schema is not valid JSON: there is more after",
		`{}`:            "the schema is empty",
		`{ }`:           "the schema is empty",
		`true`:          "the schema must be a JSON object",
		`false`:         "the schema must be a JSON object",
		`null`:          "the schema must be a JSON object",
		`[]`:            "the schema must be a JSON object",
		`"object"`:      "the schema must be a JSON object",
		`{"type":"strng"}`: "the schema is not valid at /type: it must be one or several different of object, array, string, integer, number, " +
			"boolean and null",
		`{"type":[]}`:                             "at /type: it must be one or several",
		`{"type":["string","string"]}`:            "at /type: it must be one or several",
		`{"type":{"a":1}}`:                        "at /type: it must be one or several",
		`{"properties":{"a/b":{"minLength":-1}}}`: "at /properties/a~1b/minLength: it must be an integer of at least 0",
		`{"minItems":1.5}`:                        "at /minItems: it must be an integer",
		`{"required":"a"}`:                        "at /required: it must be an array of different property names",
		`{"required":["a","a"]}`:                  "at /required: it must be an array of different property names",
		`{"required":[1]}`:                        "at /required/0: it must be an array of different property names",
		`{"properties":[]}`:                       "at /properties: it must be an object of schemas",
		`{"properties":{"a":7}}`:                  "at /properties/a: it must be an object of schemas, each an object or a boolean",
		`{"not":{"allOf":[{},{"items":7}]}}`:      "at /not/allOf/1/items: it must be a schema, which is an object or a boolean",
		`{"items":[{}]}`:                          "at /items: it must be a schema; a list of schemas is called prefixItems",
		`{"anyOf":[]}`:                            "at /anyOf: it must be an array of at least one schema",
		`{"allOf":{}}`:                            "at /allOf: it must be an array of at least one schema",
		`{"enum":1}`:                              "at /enum: it must be an array",
		`{"multipleOf":0}`:                        "at /multipleOf: it must be a number greater than 0",
		`{"multipleOf":-0.0}`:                     "at /multipleOf: it must be a number greater than 0",
		`{"exclusiveMinimum":true}`:               "at /exclusiveMinimum: it must be a number",
		`{"uniqueItems":1}`:                       "at /uniqueItems: it must be true or false",
		`{"title":1}`:                             "at /title: it must be a string",
		`{"format":1}`:                            "at /format: it must be a string",
		`{"readOnly":"x"}`:                        "at /readOnly: it must be true or false",
		`{"examples":1}`:                          "at /examples: it must be an array",
		`{"$vocabulary":{"a":1}}`:                 "at /$vocabulary/a: it must be an object of booleans",
		`{"dependentRequired":{"a":1}}`:           "at /dependentRequired/a: it must be an object of arrays",
		`{"dependencies":{"a":1}}`:                "at /dependencies/a: it must be an object of schemas or of arrays",
		`{"pattern":"(?=a)"}`:                     "at /pattern: the regular expression cannot be used: invalid or unsupported Perl syntax; write it in RE2 syntax",
		`{"pattern":"a{1001}"}`:                   "repeat counts up to 1000",
		`{"patternProperties":{"(":{}}}`:          "at /patternProperties/(: the regular expression cannot be used: missing closing )",
		`{"$schema":"http://json-schema.org/draft-07/schema#"}`: `at /$schema: only Draft 2020-12 is supported; leave $schema out or make it "https://json-schema.org/draft/2020-12/schema"`,
		`{"$schema":7}`: "at /$schema: only Draft 2020-12",
		`{"$defs":{"a":{"$schema":"https://json-schema.org/draft/2019-09/schema"}}}`: "at /$defs/a/$schema: only Draft 2020-12",
		`{"$id":"#a"}`:                                        "at /$id: it must be a URI without a fragment",
		`{"$id":"http://[::1"}`:                               "at /$id: it must be a URI",
		`{"$id":7}`:                                           "at /$id: it must be a URI",
		`{"$anchor":"a b"}`:                                   "at /$anchor: it must be a name",
		`{"$ref":7}`:                                          "at /$ref: it must be a URI reference",
		`{"$ref":"#/$defs/a"}`:                                `at /$ref: "#/$defs/a" is not a subschema of the schema`,
		`{"$ref":"#a"}`:                                       `at /$ref: "#a" is not a subschema of the schema`,
		`{"$ref":"%zz"}`:                                      "at /$ref: it must be a URI reference",
		`{"$ref":"other.json"}`:                               "at /$ref: a reference must lead to a subschema of the schema itself, such as #/$defs/name",
		`{"$ref":"#/enum/0","enum":[7]}`:                      `at /$ref: "#/enum/0" is not a subschema of the schema`,
		`{"$ref":"#/enum/0","enum":[{}]}`:                     `at /$ref: "#/enum/0" is not a subschema of the schema`,
		`{"x":{"type":"string"},"$ref":"#/x"}`:                `at /$ref: "#/x" is not a subschema of the schema`,
		`{"$ref":"#"}`:                                        "a reference leads back to itself",
		`{"$dynamicRef":"#"}`:                                 "a reference leads back to itself",
		`{"anyOf":[{"not":{"$ref":"#/anyOf/0"}}]}`:            "a reference leads back to itself",
		`{"$defs":{"a":{"$id":"x"},"b":{"$id":"x"}}}`:         "at /$defs/b/$id: another subschema has the same",
		`{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}`: "at /$defs/b/$anchor: another subschema has the same anchor",
		`{"$ref":"#/$defs","$defs":{"format":{}}}`:            "is not a subschema",
		`{"minimum":1e1000}`:                                  "at /minimum: the number has more than 512 characters or an exponent of more than 3 digits",
		`{"enum":[[1e-1000]]}`:                                "at /enum/0/0: the number has",
		`{"maximum":` + strings.Repeat("9", 600) + `}`:        "at /maximum: the number has",
		`{"a":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`: "at the top level: it is nested deeper than 64 levels",
		`{"a":[` + strings.Repeat("1,", 5000) + `1]}`:                     "there are more than 5000 values",
		`{"allOf":[` + strings.Repeat("true,", 2000) + `true]}`:           "the schema has more than 2000 subschemas",
		`{"a":"` + strings.Repeat("a", 70_000) + `"}`:                     "the schema is larger than 64 KiB",
		`{"pattern":"` + strings.Repeat("a", 30_000) + `"}`:               "regular expressions of the schema together are too large",
	} {
		_, err := Compile([]byte(schema))
		if err == nil {
			t.Errorf("%.80s is accepted", schema)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s\n got: %v\nwant: %s", schema, err, want)
		}
	}
}

func TestInstructionsHoldTheSchema(t *testing.T) {
	t.Parallel()
	schema := compile(t, ` {"type": "object", "description": "<b>"} `)
	if text := schema.Instructions(); !strings.Contains(text, "\n{\"type\": \"object\", \"description\": \"<b>\"}") {
		t.Errorf("the schema is missing: %s", text)
	}
}

func TestCacheCompilesOnce(t *testing.T) {
	t.Parallel()
	var cache Cache
	first, err := cache.Compile([]byte(`{"type":"object"}`))
	if err != nil {
		t.Fatal(err)
	}
	again, err := cache.Compile([]byte("\n{\"type\":\"object\"} "))
	if err != nil || again != first {
		t.Errorf("a second schema was made, or an error: %v", err)
	}
	if _, err := cache.Compile([]byte(`{}`)); err == nil {
		t.Error("a bad schema is accepted")
	}
}

func TestCacheIsBoundedAndKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	var cache Cache
	kept, err := cache.Compile([]byte(`{"title":"kept"}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxCacheEntries {
		cache.keep(fmt.Sprintf(`{"title":"%d"}`, i), &Schema{weight: kept.weight})
		if again, _ := cache.Compile([]byte(`{"title":"kept"}`)); again != kept {
			t.Fatalf("dropped after %d others", i)
		}
	}
	if n := len(cache.entries); n != maxCacheEntries || cache.recent.Len() != n {
		t.Errorf("%d entries", n)
	}
	large := compile(t, `{"allOf":[`+strings.Repeat("{},", 800)+`{}]}`)
	for i := range 100 {
		cache.keep(fmt.Sprintf("large %d", i), &Schema{weight: large.weight})
	}
	if n := len(cache.entries); n >= 100 || cache.find([]byte("large 99")) == nil {
		t.Errorf("%d entries", n)
	}
	weight := 0
	for element := cache.recent.Front(); element != nil; element = element.Next() {
		weight += element.Value.(*cacheEntry).schema.weight
	}
	if weight != cache.weight || weight > maxCacheBytes {
		t.Errorf("%d bytes, counted %d", weight, cache.weight)
	}
}

func TestSchemasAndCachesAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var cache Cache
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 50 {
				schema, err := cache.Compile(fmt.Appendf(nil, `{"type":"object","required":["a"],"properties":{"a":{"pattern":"^x+$"}},"title":"%d"}`, j%3))
				if err != nil {
					t.Error(err)
					return
				}
				answer := fmt.Sprintf(`{"a":"%s"}`, strings.Repeat("x", i+j+1))
				result, err := schema.Fulfil(t.Context(), answer, noRepair)
				if err != nil || string(result.JSON) != answer {
					t.Errorf("%s: %q, %v", answer, result.JSON, err)
				}
			}
		})
	}
	group.Wait()
}

func compile(t testing.TB, schema string) *Schema {
	t.Helper()
	s, err := Compile([]byte(schema))
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return s
}
