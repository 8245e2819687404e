package contract

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// A checker is a compiled copy of a schema, for one goroutine at a time: the library does not tell its hooks which
// validation calls them, so every validation has its own copy.
//
// The guard uses two hooks. The hook for formats is called before a subschema goes on to other subschemas, so every
// subschema gets a format of its own; formats of the schema mean nothing. The hook for extensions is called at the end of
// every evaluation in which the format was checked.
type checker struct {
	root *jsonschema.Schema
	*evaluation
}

type validationError = jsonschema.ValidationError

// newChecker returns an error that can be shown to the sender of the schema.
func newChecker(s *Schema) (c *checker, err error) {
	defer recoverUnusable(&err)
	c = new(checker)
	compiler := jsonschema.NewCompiler()
	compiler.Draft = jsonschema.Draft2020
	compiler.LoadURL = func(string) (io.ReadCloser, error) { return nil, errUnusable }
	compiler.AssertFormat = true
	for i, p := range s.numbered {
		compiler.Formats[strconv.Itoa(i)] = func(v any) bool {
			c.enter(p, v)
			return true
		}
	}
	compiler.RegisterExtension("guard", nil, c)
	if err := compiler.AddResource(baseURL, bytes.NewReader(s.reduced)); err != nil {
		return nil, errUnusable
	}
	c.root, err = compiler.Compile(baseURL)
	if loop := jsonschema.InfiniteLoopError(""); errors.As(err, &loop) {
		return nil, errors.New("the schema is not valid: a reference leads back to itself")
	} else if err != nil {
		return nil, errUnusable
	}
	return c, nil
}

var errUnusable = errors.New("the schema cannot be used")

// recoverUnusable is deferred where the library might panic over a schema.
func recoverUnusable(err *error) {
	if recover() != nil {
		*err = errUnusable
	}
}

// Compile is called by the library for every subschema.
func (c *checker) Compile(jsonschema.CompilerContext, map[string]any) (jsonschema.ExtSchema, error) {
	return c, nil
}

// Validate is called by the library at the end of an evaluation.
func (c *checker) Validate(jsonschema.ValidationContext, any) error {
	c.leave()
	return nil
}

// check returns the errors of the library about v, or the reason for the lack of a verdict, or neither if v is valid.
func (c *checker) check(v any, b *budget) (tree *validationError, unjudged *failure) {
	size, unjudged := measureDocument(v, answerBounds)
	if unjudged != nil {
		return nil, unjudged
	}
	c.evaluation = newEvaluation(size, b)
	defer func() {
		c.evaluation = nil
		switch r := recover(); r {
		case nil:
		case errTooLarge:
			unjudged = &failure{"", errTooLarge.Error()}
		case errTooCostly:
			panic(r)
		default:
			unjudged = &failure{"", "it cannot be checked"}
		}
	}()
	c.spend(50*size.nodes + c.callCost() + c.loadCost(v))
	err := c.root.Validate(v)
	if err != nil && !errors.As(err, &tree) {
		return nil, &failure{"", "it cannot be checked"} // for references that lead back to themselves on the way
	}
	return tree, nil
}

func (s *Schema) takeChecker() (*checker, error) {
	select {
	case c := <-s.idle:
		return c, nil
	default:
		return newChecker(s)
	}
}

func (s *Schema) returnChecker(c *checker) {
	select {
	case s.idle <- c:
	default:
	}
}
