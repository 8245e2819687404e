package caddyhooks_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/configschema"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/openapi"
)

var handlersInSchema = []string{"hooks", "hooks_dashboard", "hooks_health"}

// The comments in the source are those of the schema. `go test ./caddyhooks -run TestSchemaHasTheCommentsInTheSource -update` writes them.
func TestSchemaHasTheCommentsInTheSource(t *testing.T) {
	docs := make(configschema.Docs)
	kinds := configschema.Types(handlersInSchema...)
	for _, document := range []*openapi.Document{openapi.Callers, openapi.Operators} {
		types, err := document.Types()
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, types...)
	}
	for _, kind := range kinds {
		if docs[configschema.TypeName(kind)] != nil || isOfATest(kind) {
			continue
		}
		doc, fields := sourceComments(t, kind)
		comments := map[string]string{"": joined(doc)}
		for i := range kind.NumField() {
			field := kind.Field(i)
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); field.IsExported() && name != "" && name != "-" {
				comments[field.Name] = joined(fields[field.Name])
			}
		}
		docs[configschema.TypeName(kind)] = comments
	}
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "\t")
	if err := encoder.Encode(docs); err != nil {
		t.Fatal(err)
	}
	const file = "internal/configschema/docs.json"
	if *updateGoldens {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is out of date: run go test ./caddyhooks -run %s -update", file, t.Name())
	}
}

// isOfATest reports whether a module is one that these tests register.
func isOfATest(kind reflect.Type) bool { return strings.HasSuffix(kind.PkgPath(), "_test") }

// joined takes the line breaks out of a comment, but for those between paragraphs.
func joined(comment string) string {
	paragraphs := strings.Split(strings.TrimSpace(comment), "\n\n")
	for i, paragraph := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(paragraph), " ")
	}
	return strings.Join(paragraphs, "\n\n")
}

// printedSchema is the schema that `caddy hooks schema` prints.
func printedSchema(t *testing.T) (text string, schema *jsonschema.Schema) {
	t.Helper()
	made, err := configschema.Of(handlersInSchema...)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	schema, err = jsonschema.CompileString("hooks.schema.json", string(encoded)) // which checks it against the schema of schemas
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded), schema
}

// handlersIn finds the handlers of this module in a configuration.
func handlersIn(value any) (found []map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		if name, _ := value["handler"].(string); slices.Contains(handlersInSchema, name) {
			found = append(found, value)
		}
		for _, member := range value {
			found = append(found, handlersIn(member)...)
		}
	case []any:
		for _, element := range value {
			found = append(found, handlersIn(element)...)
		}
	}
	return found
}

func TestSchemaFitsWhatCaddyfilesAreAdaptedTo(t *testing.T) {
	_, schema := printedSchema(t)
	seen, misspelt := 0, 0
	check := func(name string, config []byte) {
		var decoded any
		if err := json.Unmarshal(config, &decoded); err != nil {
			t.Fatal(err)
		}
		for _, handler := range handlersIn(decoded) {
			seen++
			if err := schema.Validate(handler); err != nil {
				t.Errorf("%s: %#v", name, err)
			}
			misspelt += wantMisspeltRefused(t, schema, handler, handler)
		}
	}
	for _, g := range readGoldens(t) {
		if strings.HasPrefix(g.want, "{") {
			check(g.name, []byte(g.want))
		}
	}
	for _, name := range []string{"HOOKS_TOKEN", "HOOKS_DSN"} {
		t.Setenv(name, "of-a-test")
	}
	example, err := os.ReadFile("../Caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(example, map[string]any{"filename": "../Caddyfile.example"})
	if err != nil {
		t.Fatal(err)
	}
	check("Caddyfile.example", config)
	if seen < 100 || misspelt < 500 {
		t.Errorf("found only %d handlers, and %d members to misspell", seen, misspelt)
	}
}

// anyNames are members whose own members may have any name, or are described elsewhere.
var anyNames = []string{"tiers", "body", "memory", "runners", "channels", "runner_for", "metadata", "headers", "env", "routes", "responseJsonSchema"}

// wantMisspeltRefused misspells each member of an object in a handler, one at a time, and returns how many there were.
func wantMisspeltRefused(t *testing.T, schema *jsonschema.Schema, handler, object map[string]any) (n int) {
	t.Helper()
	for name, value := range object {
		delete(object, name)
		object[name+"x"] = value
		if schema.Validate(handler) == nil {
			t.Errorf("%sx is accepted in %v", name, handler)
		}
		delete(object, name+"x")
		object[name] = value
		n++
		inner := []any{value}
		if list, ok := value.([]any); ok {
			inner = list
		}
		for _, value := range inner {
			if object, ok := value.(map[string]any); ok && !slices.Contains(anyNames, name) {
				n += wantMisspeltRefused(t, schema, handler, object)
			}
		}
		if named, ok := value.(map[string]any); ok && (name == "runners" || name == "channels") {
			for _, module := range named {
				n += wantMisspeltRefused(t, schema, handler, module.(map[string]any))
			}
		}
	}
	return n
}

func TestSchemaRefusesWhatCaddyRefuses(t *testing.T) {
	t.Parallel()
	_, schema := printedSchema(t)
	for config, good := range map[string]bool{
		`{"handler":"hooks"}`: true,
		`{"handler":"hooks","workers":4,"queue_time":"1h","max_request":"1MB","drain_timeout":1000000000}`: true,
		`{"handler":"hooks","runners":{"a":{"runner":"echo","delay":"1s"}},"store":{"store":"memory"}}`:    true,
		`{"handler":"hooks","settings":{"token":["a","b"]}}`:                                               true,
		`{"handler":"hooks","settings":{"token":"a"}}`:                                                     true,
		`{"handler":"hooks_health","despite":["runner_unreachable"]}`:                                      true,
		`{"handler":"hooks_dashboard","hide_texts":true}`:                                                  true,

		`{"handler":"other"}`:                                            false,
		`{"workers":4}`:                                                  false,
		`{"handler":"hooks","worker":4}`:                                 false,
		`{"handler":"hooks","workers":"4"}`:                              false,
		`{"handler":"hooks","workers":4.5}`:                              false,
		`{"handler":"hooks","store":{"store":"mysql"}}`:                  false,
		`{"handler":"hooks","store":{"path":"a"}}`:                       false,
		`{"handler":"hooks","store":{"store":"memory","path":"a"}}`:      false,
		`{"handler":"hooks","runners":{"a":{"runner":"echo","dely":1}}}`: false,
		`{"handler":"hooks","settings":{"Token":"a"}}`:                   false,
		`{"handler":"hooks","settings":{"token":[1]}}`:                   false,
		`{"handler":"hooks","settings":{"mappings":[{"nam":"a"}]}}`:      false,
		`{"handler":"hooks_health","path":1}`:                            false,
	} {
		var decoded any
		if err := json.Unmarshal([]byte(config), &decoded); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(decoded); (err == nil) != good {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// Of a store that somebody else wrote the schema knows the name.
func TestSchemaListsModulesOfOthersWithoutDetails(t *testing.T) {
	t.Parallel()
	text, schema := printedSchema(t)
	var foreign any
	if err := json.Unmarshal([]byte(`{"handler":"hooks","store":{"store":"torn","whatever":{"a":1}}}`), &foreign); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(foreign); err != nil {
		t.Error(err)
	}
	if !strings.Contains(text, `"How long finished runs are kept. Default: 168h."`) {
		t.Error("the schema has no comments")
	}
}
