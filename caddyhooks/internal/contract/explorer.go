package contract

import (
	"strconv"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// An Explorer shows the subschemas of a schema, and checks values against any of them, for callers that look for values
// with certain properties. Everything that it does is paid from a budget.
type Explorer struct {
	schema  *Schema
	checker *checker
	budget  *budget
}

// A Node is a compiled schema or subschema. It must not be changed, nor used to validate values.
type Node = jsonschema.Schema

// Explore calls search with an Explorer that is good until search returns. It stops the search and returns an error when
// the search has cost more than maxWork, by estimate, or has taken more than maxTime.
func (s *Schema) Explore(maxWork, maxTime time.Duration, search func(*Explorer)) error {
	c, err := s.takeChecker()
	if err != nil {
		return err
	}
	defer s.returnChecker(c)
	b := &budget{work: int(maxWork), time: maxTime}
	return b.run(func() { search(&Explorer{s, c, b}) })
}

// Root is the schema as a whole.
func (e *Explorer) Root() *Node { return e.checker.root }

// Source returns a subschema as it was written, or nil if it is a boolean.
func (e *Explorer) Source(sub *Node) map[string]any {
	i, err := strconv.Atoi(sub.Format)
	if err != nil {
		return nil
	}
	return e.schema.numbered[i].doc.(map[string]any)
}

// IsValid reports whether a value is known to be valid under a subschema. It pays for the check.
func (e *Explorer) IsValid(sub *Node, value any) bool {
	tree, unjudged := e.checker.check(sub, value, e.budget)
	return tree == nil && unjudged == nil
}

// Spend pays for work of the caller, in nanoseconds. It does not return if the budget is used up.
func (e *Explorer) Spend(nanoseconds int) { e.budget.spend(nanoseconds) }
