// Package openapi describes two APIs in OpenAPI 3.1: that of callers, with what is sent to receivers and runners, and that of operators.
// The operations are tables here, and their bodies are the Go types that the program itself encodes. It imports api, settings, runners
// and configschema.
package openapi

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/configschema"
)

type object = map[string]any

// Document is an API that can be described.
type Document struct {
	title, text string
	servers     []any
	security    []any
	schemes     object
	tags        [][2]string // with their texts
	operations  []operation
	webhooks    []operation
}

// operation is one method of one path.
type operation struct {
	method, path string // below the server; of a webhook, its name
	id           string
	tag          string
	summary      string
	text         string
	query        []string // the names of parameters
	headers      []string // of the request
	body         content
	bodyOptional bool
	answers      []answer
	global       bool // not about one instance
	open         bool // needs no credential
}

// content is a body by its media type: a Go type, or a schema.
type content map[string]any

type answer struct {
	status  string // as in "200" or "4XX"
	text    string
	body    content
	headers []string // of the answer
}

// known are the schemas of types that are not described by their fields.
var known = map[reflect.Type]configschema.Schema{
	reflect.TypeFor[engine.Status](): {"type": "string", "enum": engine.Statuses},
	reflect.TypeFor[engine.QuestionKind](): {"type": "string", "enum": []engine.QuestionKind{engine.AskAgent, engine.AskStart,
		engine.AskDeliver, engine.AskInput, engine.AskPermission}},
	reflect.TypeFor[engine.Action](): {"type": "string", "enum": []engine.Action{engine.Wake, engine.Agent}},
	reflect.TypeFor[engine.Phase](): {"type": "string",
		"enum": []engine.Phase{engine.PhaseQueued, engine.PhaseTurn, engine.PhaseRepair}},
	reflect.TypeFor[engine.DeliveryStatus](): {"type": "string",
		"enum": []engine.DeliveryStatus{engine.Pending, engine.Delivered, engine.Dead}},
	reflect.TypeFor[api.Point](): {"type": "array", "minItems": 2, "maxItems": 2,
		"description": "The time in seconds since 1970, and the value.",
		"prefixItems": []any{object{"type": "integer"}, object{"type": []string{"number", "null"}}}},
}

// rulesOfMembers are what the program checks beside the types of members, by their names.
var rulesOfMembers = map[string]object{
	"model": {"enum": engine.Tiers}, "responseValidationModelTier": {"enum": engine.Tiers},
	"memoryPreset": {"enum": engine.MemoryPresets}, "metadata": {"type": "object"}, "responseJsonSchema": {"type": "object"},
}

// JSON is the document. If it is closed, objects have no other members than those listed, which is for tests.
func (d *Document) JSON(closed bool) (map[string]any, error) {
	schemas := &configschema.API{Known: known, Closed: closed}
	paths, webhooks := make(object), make(object)
	for i, o := range slices.Concat(d.operations, d.webhooks) {
		shown, err := o.show(schemas)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.method, o.path, err)
		}
		of := paths
		if i >= len(d.operations) {
			of = webhooks
		}
		item, _ := of[o.path].(object)
		if item == nil {
			item = make(object)
			if inPath := pathParameters(o.path); inPath != nil {
				item["parameters"] = inPath
			}
			if o.global {
				item["servers"] = d.servers[:1]
			}
			of[o.path] = item
		}
		item[strings.ToLower(o.method)] = shown
	}
	tags := make([]any, len(d.tags))
	for i, tag := range d.tags {
		tags[i] = object{"name": tag[0], "description": tag[1]}
	}
	definitions := schemas.Definitions()
	for kind, definition := range definitions {
		if kind == "Use" { // whose model is none of the tiers
			continue
		}
		members, _ := definition.(object)["properties"].(object)
		for name, rule := range rulesOfMembers {
			if member, ok := members[name].(object); ok && member["$ref"] == nil && member["type"] != "object" {
				maps.Copy(member, rule)
			}
		}
	}
	if patch, ok := definitions["SettingsPatch"].(object); ok {
		members := patch["properties"].(object)
		for name, member := range members {
			members[name] = configschema.OrNull(member.(object))
		}
	}
	components := object{"schemas": definitions}
	if d.schemes != nil {
		components["securitySchemes"] = d.schemes
	}
	document := object{
		"openapi": "3.1.0", "info": object{"title": d.title, "description": d.text, "version": "1"},
		"servers": d.servers, "security": d.security, "tags": tags, "paths": paths, "components": components,
	}
	if len(webhooks) > 0 {
		document["webhooks"] = webhooks
	}
	return document, nil
}

// Types are the types that the document describes.
func (d *Document) Types() ([]reflect.Type, error) {
	schemas := new(configschema.API)
	for _, o := range slices.Concat(d.operations, d.webhooks) {
		if _, err := o.show(schemas); err != nil {
			return nil, err
		}
	}
	return schemas.Types(), nil
}

// show is the operation object.
func (o *operation) show(schemas *configschema.API) (object, error) {
	shown := object{"operationId": o.id, "tags": []string{o.tag}, "summary": o.summary}
	if o.text != "" {
		shown["description"] = o.text
	}
	if o.open {
		shown["security"] = []any{}
	}
	var parameters []any
	for _, name := range o.query {
		parameters = append(parameters, object{"in": "query", "name": name, "description": queryTexts[name],
			"required": slices.Contains(requiredQuery, o.id+" "+name), "schema": object{"type": "string"}})
	}
	for _, name := range o.headers {
		parameters = append(parameters, object{"in": "header", "name": name, "description": headerTexts[name],
			"schema": object{"type": "string"}})
	}
	if parameters != nil {
		shown["parameters"] = parameters
	}
	if o.body != nil {
		body, err := o.body.show(schemas)
		if err != nil {
			return nil, err
		}
		shown["requestBody"] = object{"required": !o.bodyOptional, "content": body}
	}
	answers := make(object)
	for _, a := range o.answers {
		status, _ := strconv.Atoi(a.status)
		described := object{"description": cmp.Or(a.text, http.StatusText(status))}
		if a.body != nil {
			body, err := a.body.show(schemas)
			if err != nil {
				return nil, err
			}
			described["content"] = body
		}
		headers := make(object)
		for _, name := range a.headers {
			headers[name] = object{"description": headerTexts[name], "schema": object{"type": "string"}}
		}
		if len(headers) > 0 {
			described["headers"] = headers
		}
		answers[a.status] = described
	}
	shown["responses"] = answers
	return shown, nil
}

func (c content) show(schemas *configschema.API) (object, error) {
	shown := make(object)
	for _, media := range slices.Sorted(maps.Keys(c)) {
		schema, ok := c[media].(object)
		if !ok {
			var err error
			if schema, err = schemas.Of(reflect.TypeOf(c[media])); err != nil {
				return nil, err
			}
		}
		shown[media] = object{"schema": schema}
	}
	return shown, nil
}

var inBraces = regexp.MustCompile(`\{(\w+)\}`)

func pathParameters(path string) (parameters []any) {
	for _, match := range inBraces.FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, object{"in": "path", "name": match[1], "required": true, "description": pathTexts[match[1]],
			"schema": object{"type": "string"}})
	}
	return parameters
}

const (
	mediaJSON   = "application/json"
	mediaText   = "text/plain"
	mediaEvents = "text/event-stream"
)

// isJSON is a body of JSON with the shape of a value's type.
func isJSON(value any) content { return content{mediaJSON: value} }

var (
	anyJSON  = object{}
	someText = object{"type": "string"}
)
