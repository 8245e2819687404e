package storetest

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// allSet expects that no field of a struct was forgotten, so that a new one is not either.
func allSet(t *testing.T, pointer any) {
	t.Helper()
	value := reflect.ValueOf(pointer).Elem()
	for i := range value.NumField() {
		if value.Field(i).IsZero() {
			t.Fatalf("%s.%s is not set by the tests of stores", value.Type(), value.Type().Field(i).Name)
		}
	}
}

// same expects that two values are equal, as far as stores promise it.
func same[T any](t *testing.T, name string, got, want T) {
	t.Helper()
	if where := difference(name, reflect.ValueOf(&got).Elem(), reflect.ValueOf(&want).Elem()); where != "" {
		t.Error(where)
	}
}

// difference says where two values differ. Times are equal if they are so to the microsecond. A byte slice that is nil is
// not the same as an empty one, since that can tell absent from empty. The token of a delivery is the store's own affair.
func difference(where string, got, want reflect.Value) string {
	unequal := func() string {
		return fmt.Sprintf("%s is %.100q, want %.100q", where, fmt.Sprint(got), fmt.Sprint(want))
	}
	if gotTime, ok := got.Interface().(time.Time); ok {
		if d := gotTime.Sub(want.Interface().(time.Time)); d <= -time.Microsecond || d >= time.Microsecond {
			return unequal()
		}
		return ""
	}
	switch got.Kind() {
	case reflect.Pointer:
		if got.IsNil() != want.IsNil() {
			return unequal()
		}
		if !got.IsNil() {
			return difference(where, got.Elem(), want.Elem())
		}
	case reflect.Struct:
		for i := range got.NumField() {
			name := got.Type().Field(i).Name
			if name == "Token" && got.Type() == reflect.TypeFor[engine.Delivery]() {
				continue
			}
			if d := difference(where+"."+name, got.Field(i), want.Field(i)); d != "" {
				return d
			}
		}
	case reflect.Slice:
		if got.Type().Elem().Kind() == reflect.Uint8 {
			if got.IsNil() != want.IsNil() || string(got.Bytes()) != string(want.Bytes()) {
				return unequal()
			}
			return ""
		}
		if got.Len() != want.Len() {
			return fmt.Sprintf("%s has %d elements, want %d", where, got.Len(), want.Len())
		}
		for i := range got.Len() {
			if d := difference(fmt.Sprintf("%s[%d]", where, i), got.Index(i), want.Index(i)); d != "" {
				return d
			}
		}
	default:
		if !got.Equal(want) {
			return unequal()
		}
	}
	return ""
}
