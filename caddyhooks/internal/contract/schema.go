// Package contract checks the agent's answers against the JSON Schema (Draft 2020-12) of a request. It checks the schema
// before a run is accepted, finds the JSON in an answer, validates it, and asks for repairs in words of its own.
//
// The jsonschema package, called "the library" in these comments, decides whether a schema is valid and whether a value
// matches it. The library is written for trusted schemas: it opens files, panics on some input, and takes time and memory
// without end on other. But schemas and answers come from outside and may be hostile. So the library gets a reduced copy
// of the schema with nothing in it but keywords of the draft, and can load nothing. At every step of an evaluation it
// calls a guard, which pays for the step from a budget and ends the evaluation when the budget is used up.
//
// As the draft has it by default, format and the content keywords reject nothing. References lead to subschemas of the
// schema only. Regular expressions are those of Go, which know no look-around and no back-references.
package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// A Schema is ready to judge answers. It never changes, and many goroutines may use it at once.
type Schema struct {
	text      []byte                // as the caller wrote it
	reduced   []byte                // the copy for the library
	numbered  []*subschema          // the objects among the subschemas
	byPointer map[string]*subschema // all subschemas, by their JSON pointers as the library writes them
	idle      chan *checker
	weight    int // about how many bytes of memory it holds
}

// maxIdle is how many checkers a schema keeps for goroutines that use it at once.
var maxIdle = min(runtime.GOMAXPROCS(0), 16)

// compiling bounds how many schemas are compiled at once. That takes much memory, and more of them at once would not be faster.
var compiling = make(chan struct{}, maxIdle)

// Compile reads and checks a schema. Its error is one sentence that can be shown to whoever sent the schema.
func Compile(raw []byte) (*Schema, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("the schema is larger than %d KiB", maxSchemaBytes>>10)
	}
	compiling <- struct{}{}
	defer func() { <-compiling }()
	doc, err := strictjson.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the schema is not valid JSON: %w", err)
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("the schema must be a JSON object")
	}
	if len(object) == 0 {
		return nil, errors.New("the schema is empty; it must say what an answer looks like")
	}
	if _, outOfBounds := measureDocument(doc, schemaBounds); outOfBounds != nil {
		return nil, invalid(outOfBounds.at, outOfBounds.text)
	}
	r := newSchemaReader()
	reduced, err := r.read(object, "", "", nil)
	if err != nil {
		return nil, err
	}
	if err := r.resolve(r.byPointer); err != nil {
		return nil, err
	}
	s := &Schema{text: bytes.Clone(raw), numbered: r.numbered, byPointer: r.byPointer, idle: make(chan *checker, maxIdle)}
	if s.reduced, err = json.Marshal(reduced); err != nil {
		return nil, errUnusable
	}
	s.weight = 12*len(raw) + maxIdle*(2<<10*len(r.byPointer)+64*r.patterns.instructions)
	c, err := newChecker(s)
	if err != nil {
		return nil, err
	}
	s.idle <- c
	return s, nil
}

// Instructions is the part of the system prompt about the form of the answer.
func (s *Schema) Instructions() string {
	return "The final answer must be one JSON value that is valid under the JSON Schema (Draft 2020-12) below. " +
		"Write that JSON value and nothing else: no explanation before or after it, no code fence, no comments. " +
		"Use exactly the property names of the schema, and leave out nothing that it requires.\n\n" +
		"JSON Schema:\n" + string(s.text)
}

// validate returns nil if v matches the schema.
func (s *Schema) validate(v any, b *budget) []failure {
	c, err := s.takeChecker()
	if err != nil {
		return []failure{{"", err.Error()}}
	}
	defer s.returnChecker(c)
	tree, unjudged := c.check(v, b)
	switch {
	case unjudged != nil:
		return []failure{*unjudged}
	case tree != nil:
		return s.failures(tree, v)
	default:
		return nil
	}
}
