package engine_test

import (
	"slices"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestFieldsHaveNumbersAndNamesOfTheirOwn(t *testing.T) {
	numbers := append(check(t, engine.RunFields), check(t, engine.EndFields)...)
	slices.Sort(numbers)
	if len(slices.Compact(numbers)) != len(engine.RunFields)+len(engine.EndFields) {
		t.Errorf("a number is used twice: %v", numbers)
	}
}

func check[T engine.Run | engine.Record](t *testing.T, table []engine.Field[T]) (numbers []int) {
	names := make(map[string]bool)
	places := make(map[any]bool)
	of := new(T)
	for _, f := range table {
		numbers = append(numbers, f.Number)
		if f.Number < 1 || f.Number >= engine.MaxFields || names[f.Name] || places[f.At(of)] {
			t.Errorf("field %d %q is there twice, or has a wrong number", f.Number, f.Name)
		}
		names[f.Name], places[f.At(of)] = f.Name != "", true
	}
	return numbers
}
