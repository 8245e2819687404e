package caddyhooks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/admin"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/openapi"
)

// The admin API is described as it is registered: no endpoint and no parameter is missing, and none is made up.
func TestOpenAPIHasAllEndpointsOfOperators(t *testing.T) {
	t.Parallel()
	served := make(map[string]string)
	for _, endpoints := range []admin.Endpoints{admin.InstanceEndpoints, admin.GlobalEndpoints} {
		for path, methods := range endpoints {
			for _, e := range methods {
				served[e.Method+" "+path] = fmt.Sprint(slices.Sorted(slices.Values(e.Parameters)))
			}
		}
	}
	described := make(map[string]string)
	for path, item := range documentOf(t, openapi.Operators).document["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			if method == "parameters" || method == "servers" {
				continue
			}
			names := []string{}
			parameters, _ := operation.(map[string]any)["parameters"].([]any)
			for _, p := range parameters {
				if p := p.(map[string]any); p["in"] == "query" {
					names = append(names, p["name"].(string))
				}
				if p.(map[string]any)["description"] == "" {
					t.Errorf("%s %s: the parameter %v has no text", method, path, p)
				}
			}
			described[strings.ToUpper(method)+" "+path] = fmt.Sprint(slices.Sorted(slices.Values(names)))
		}
	}
	if !maps.Equal(served, described) {
		for pattern := range served {
			if served[pattern] != described[pattern] {
				t.Errorf("%s has the parameters %s, and is described with %q", pattern, served[pattern], described[pattern])
			}
		}
		for pattern := range described {
			if _, ok := served[pattern]; !ok {
				t.Errorf("%s is described, and not served", pattern)
			}
		}
	}
}

func documentOf(t *testing.T, described *openapi.Document) *checkedDocument {
	t.Helper()
	document, err := newCheckedDocument(described)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

func TestOpenAPIDescribesRequests(t *testing.T) {
	t.Parallel()
	callers, operators := documentOf(t, openapi.Callers), documentOf(t, openapi.Operators)
	for _, c := range []struct {
		document *checkedDocument
		at, body string
		good     bool
	}{
		{callers, "/paths/~1agent/post", `{"message":"a","model":"smart","memoryPreset":"ops_support","metadata":{"a":1},"syncResponse":true}`, true},
		{callers, "/paths/~1agent/post", `{"model":"smart"}`, false},
		{callers, "/paths/~1agent/post", `{"message":"a","model":"huge"}`, false},
		{callers, "/paths/~1agent/post", `{"message":"a","metadata":[]}`, false},
		{callers, "/paths/~1wake/post", `{"text":"a"}`, true},
		{callers, "/paths/~1wake/post", `{"text":1}`, false},
		{operators, "/paths/~1settings/patch", `{"enabled":null,"token":["a","b"],"memoryPreset":null,"wakeFold":null}`, true},
		{operators, "/paths/~1settings/patch", `{"memoryPreset":"huge"}`, false},
		{operators, "/paths/~1mappings~1%7Bname%7D/put", `{"action":"agent","authSecret":"a","historySeconds":0}`, true},
		{operators, "/paths/~1mappings~1%7Bname%7D/put", `{"action":"sleep"}`, false},
	} {
		err := c.document.validate("#"+c.at+"/requestBody/content/application~1json/schema", []byte(c.body))
		if (err == nil) != c.good {
			t.Errorf("%s %s: %v", c.at, c.body, err)
		}
	}
}

func TestOpenAPIDescribesTheTurnsOfRunners(t *testing.T) {
	s := hookstest.NewServer(t)
	rn := hookstest.StartRunner(t, nil)
	s.Load(hookstest.Hooks(rn, ""))
	document := documentOf(t, openapi.Callers)
	for _, request := range []string{
		`{"message":"a"}`,
		`{"message":"a","name":"b","model":"smart","metadata":{"c":1},"syncResponse":true,"responseJsonSchema":{"type":"object"}}`,
	} {
		s.Post("/api/hooks/agent", request)
		turn, err := json.Marshal(rn.Next().Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := document.validate("#/webhooks/turn/post/requestBody/content/application~1json/schema", turn); err != nil {
			t.Errorf("%s: %v", turn, err)
		}
	}
}

// The schemas of both documents go by the names of types alone, so no two types may have the same one.
func TestOpenAPINamesEveryTypeOnce(t *testing.T) {
	t.Parallel()
	for _, document := range []*openapi.Document{openapi.Callers, openapi.Operators} {
		types, err := document.Types()
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]reflect.Type)
		for _, kind := range types {
			if other := seen[kind.Name()]; other != nil && other != kind {
				t.Errorf("%v and %v have the same name", kind, other)
			}
			seen[kind.Name()] = kind
		}
	}
}

func TestAnswerThatIsNotDescribedIsNoticed(t *testing.T) {
	t.Parallel()
	document := documentOf(t, openapi.Callers)
	for body, good := range map[string]bool{
		`{"status":"accepted","chatId":"a"}`: true, `{"status":"accepted","chatId":1}`: false, `{"status":"accepted","more":1}`: false, `{}`: false,
	} {
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}}
		if operation, problem := document.check("post", "/wake", resp, []byte(body)); operation != "wake" || (problem == nil) != good {
			t.Errorf("%s: %s, %v", body, operation, problem)
		}
	}
	teapot := &http.Response{StatusCode: http.StatusTeapot}
	if _, problem := document.check("post", "/wake", teapot, nil); problem == nil {
		t.Error("a status that is not described is not noticed")
	}
}

// answerChecker compares all answers that tests of this package get from Caddy with the OpenAPI documents.
type answerChecker struct {
	next      http.RoundTripper
	documents map[string]*checkedDocument // by the beginning of the path
	mu        sync.Mutex
	wrong     map[string]string // the first of each operation
}

// checkedDocument is a document with schemas that are compiled when they are needed.
type checkedDocument struct {
	paths    map[*regexp.Regexp]string
	document map[string]any
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

const documentURL = "https://example.com/openapi.json"

func newAnswerChecker(next http.RoundTripper) (checker *answerChecker, err error) {
	checker = &answerChecker{next: next, documents: make(map[string]*checkedDocument), wrong: make(map[string]string)}
	for base, described := range map[string]*openapi.Document{"/api/hooks": openapi.Callers, "/hooks": openapi.Operators} {
		if checker.documents[base], err = newCheckedDocument(described); err != nil {
			return nil, err
		}
	}
	return checker, nil
}

// newCheckedDocument reads a document as a client does. Objects have no members that it does not list.
func newCheckedDocument(described *openapi.Document) (*checkedDocument, error) {
	made, err := described.JSON(true)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(made)
	if err != nil {
		return nil, err
	}
	checked := &checkedDocument{paths: make(map[*regexp.Regexp]string), compiler: jsonschema.NewCompiler(), compiled: make(map[string]*jsonschema.Schema)}
	if err := json.Unmarshal(encoded, &checked.document); err != nil {
		return nil, err
	}
	if err := checked.compiler.AddResource(documentURL, bytes.NewReader(encoded)); err != nil {
		return nil, err
	}
	for path := range checked.document["paths"].(map[string]any) {
		pattern := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/]+`)
		checked.paths[regexp.MustCompile("^"+pattern+"$")] = path
	}
	return checked, nil
}

func (c *answerChecker) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	resp.Body = &checkedBody{ReadCloser: resp.Body, check: func(body []byte) { c.check(r, resp, body) }}
	return resp, nil
}

func (c *answerChecker) CloseIdleConnections() { c.next.(*http.Transport).CloseIdleConnections() }

// checkedBody checks a body that was read to its end.
type checkedBody struct {
	io.ReadCloser
	read  bytes.Buffer
	check func([]byte)
}

func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	const most = 1 << 20
	if b.check != nil && b.read.Len() <= most {
		b.read.Write(p[:n])
		if err == io.EOF {
			b.check(b.read.Bytes())
			b.check = nil
		}
	}
	return n, err
}

// check notes an answer that is not as it is described. Answers of another server, or of another handler, are left alone.
func (c *answerChecker) check(r *http.Request, resp *http.Response, body []byte) {
	for base, document := range c.documents {
		path, ok := strings.CutPrefix(r.URL.Path, base)
		if !ok || resp.StatusCode == http.StatusTeapot { // which tests let the next handler answer
			continue
		}
		if base == "/hooks" {
			path = regexp.MustCompile(`^/instances/[^/]+/`).ReplaceAllString(path, "/")
		}
		c.mu.Lock()
		operation, problem := document.check(strings.ToLower(r.Method), path, resp, body)
		if problem != nil && c.wrong[operation] == "" {
			c.wrong[operation] = fmt.Sprintf("%s %s: %d %.300s: %v", r.Method, r.URL, resp.StatusCode, body, problem)
		}
		c.mu.Unlock()
	}
}

// check reports the operation that an answer belongs to, "" if there is none, and what is wrong with the answer.
func (d *checkedDocument) check(method, path string, resp *http.Response, body []byte) (operation string, problem error) {
	var found string
	for pattern, name := range d.paths {
		if pattern.MatchString(path) && (found == "" || strings.Contains(found, "{")) { // a path without parameters goes first
			found = name
		}
	}
	item, _ := d.document["paths"].(map[string]any)[found].(map[string]any)
	described, ok := item[method].(map[string]any)
	if !ok {
		return "", nil
	}
	operation = described["operationId"].(string)
	answers := described["responses"].(map[string]any)
	key := strconv.Itoa(resp.StatusCode)
	if answers[key] == nil {
		key = key[:1] + "XX"
	}
	answer, ok := answers[key].(map[string]any)
	if !ok {
		return operation, fmt.Errorf("%s does not have this status", operation)
	}
	content, _ := answer["content"].(map[string]any)
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if len(body) > 0 && content[media] == nil {
		return operation, fmt.Errorf("%s has no %s with this status", operation, media)
	}
	if media != "application/json" {
		return operation, nil
	}
	return operation, d.validate(fmt.Sprintf("#/paths/%s/%s/responses/%s/content/application~1json/schema",
		strings.ReplaceAll(found, "/", "~1"), method, key), body)
}

// validate checks JSON with the schema at a pointer.
func (d *checkedDocument) validate(pointer string, body []byte) error {
	schema := d.compiled[pointer]
	if schema == nil {
		var err error
		if schema, err = d.compiler.Compile(documentURL + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(pointer)); err != nil {
			return err
		}
		d.compiled[pointer] = schema
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	return schema.Validate(value)
}

// report tells what was wrong, and whether all was well.
func (c *answerChecker) report(w io.Writer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, wrong := range c.wrong {
		fmt.Fprintln(w, "an answer is not as the OpenAPI document says:", wrong)
	}
	return len(c.wrong) == 0
}
