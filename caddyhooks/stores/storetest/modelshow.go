package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// show writes a value down without what differs between two stores.
func (w *world) show(value any) string {
	var b strings.Builder
	w.write(&b, reflect.ValueOf(value))
	return strings.NewReplacer(w.names...).Replace(b.String())
}

func (w *world) write(b *strings.Builder, v reflect.Value) {
	if !v.IsValid() {
		b.WriteString("nil")
		return
	}
	switch value := v.Interface().(type) {
	case time.Time:
		if value.IsZero() {
			b.WriteString("never")
		} else { // nothing takes half a minute, and the clock is advanced by whole ones
			fmt.Fprintf(b, "minute %d", int(value.Sub(w.began).Round(time.Minute)/time.Minute))
		}
		return
	case time.Duration:
		fmt.Fprint(b, value.Round(time.Minute))
		return
	case *engine.DuplicateError:
		fmt.Fprintf(b, "duplicate of %s, %t, %v", value.First.ID, value.SameBody, value.First.Together)
		return
	case error:
		b.WriteString(value.Error())
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		w.write(b, v.Elem())
	case reflect.Struct:
		b.WriteByte('{')
		for i := range v.NumField() {
			name, field := v.Type().Field(i).Name, v.Field(i)
			isEmpty := field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0
			if isEmpty || name == "Token" || !w.exact && slices.Contains(varyingFields, name) {
				continue
			}
			b.WriteString(name + ":")
			w.write(b, field)
			b.WriteByte(' ')
		}
		b.WriteByte('}')
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			fmt.Fprintf(b, "%t %q", v.IsNil(), v.Bytes())
			return
		}
		b.WriteByte('[')
		for i := range v.Len() {
			w.write(b, v.Index(i))
			b.WriteByte(' ')
		}
		b.WriteByte(']')
	default:
		fmt.Fprintf(b, "%v", v.Interface())
	}
}

// varyingFields are those that some stores set when a delivery is claimed, or forget no sooner than a run that waited is claimed.
var varyingFields = []string{"TriedAt", "WaitingFor"}
