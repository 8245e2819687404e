package codec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// fieldsJSON is the JSON of the fields of a run, or of its end. It is made of the engine's table, as a struct with a member for each field.
type fieldsJSON[T engine.Run | engine.Record] struct {
	fields []engine.Field[T]
	shape  reflect.Type
}

var (
	runJSON    = newFieldsJSON(engine.RunFields)
	endingJSON = newFieldsJSON(engine.EndFields)
)

func newFieldsJSON[T engine.Run | engine.Record](table []engine.Field[T]) *fieldsJSON[T] {
	f := new(fieldsJSON[T])
	var members []reflect.StructField
	for i, field := range table {
		if field.Name == "" {
			continue // it has a column
		}
		f.fields = append(f.fields, field)
		members = append(members, reflect.StructField{
			Name: fmt.Sprintf("Field%d", i), Type: reflect.TypeOf(memberFor(field.At(new(T)))).Elem(),
			Tag: reflect.StructTag(fmt.Sprintf(`json:"%s,omitempty"`, field.Name)),
		})
	}
	f.shape = reflect.StructOf(members)
	return f
}

func (f *fieldsJSON[T]) encode(of *T) (string, error) {
	value := reflect.New(f.shape)
	for i, field := range f.fields {
		toJSON(field.At(of), value.Elem().Field(i).Addr().Interface())
	}
	data, err := json.Marshal(value.Interface())
	return string(data), err
}

func (f *fieldsJSON[T]) decode(data []byte, of *T) error {
	value := reflect.New(f.shape)
	if err := json.Unmarshal(data, value.Interface()); err != nil {
		return err
	}
	for i, field := range f.fields {
		fromJSON(value.Elem().Field(i).Addr().Interface(), field.At(of))
	}
	return nil
}

// memberFor points to what a field is in JSON.
func memberFor(field any) any {
	switch field.(type) {
	case *[]byte:
		return new(*string)
	case **engine.Key:
		return new(*keyJSON)
	case *[]engine.Sibling:
		return new([]siblingJSON)
	case *[]engine.Permission:
		return new([]permissionJSON)
	case *[]engine.Step:
		return new([]stepJSON)
	default:
		return field
	}
}

// toJSON sets a member to the value of a field.
func toJSON(field, member any) {
	switch from := field.(type) {
	case *string:
		*member.(*string) = Escape(*from)
	case *[]byte:
		if *from != nil {
			text := Escape(string(*from))
			*member.(**string) = &text
		}
	case *[]string:
		*member.(*[]string) = EscapeAll(*from)
	case **engine.Key:
		*member.(**keyJSON) = newKeyJSON(*from)
	case *[]engine.Sibling:
		*member.(*[]siblingJSON) = convertAll(*from, func(s *engine.Sibling) siblingJSON { return siblingJSON{s.ID, Escape(s.ChatID)} })
	case *[]engine.Permission:
		*member.(*[]permissionJSON) = convertAll(*from, func(p *engine.Permission) permissionJSON {
			return permissionJSON{Escape(p.Kind), Escape(p.Title), Escape(p.Answer)}
		})
	case *[]engine.Step:
		*member.(*[]stepJSON) = convertAll(*from, func(s *engine.Step) stepJSON {
			return stepJSON{string(s.Phase), s.StartedAt, s.Took, Escape(s.Tier), s.Bytes, EscapeAll(s.Errors)}
		})
	default:
		copyPlain(field, member)
	}
}

// fromJSON sets a field to the value of a member.
func fromJSON(member, field any) {
	switch to := field.(type) {
	case *string:
		*to = Unescape(*member.(*string))
	case *[]byte:
		if text := *member.(**string); text != nil {
			*to = []byte(Unescape(*text))
		}
	case *[]string:
		*to = UnescapeAll(*member.(*[]string))
	case **engine.Key:
		*to = (*member.(**keyJSON)).key()
	case *[]engine.Sibling:
		*to = convertAll(*member.(*[]siblingJSON), func(s *siblingJSON) engine.Sibling {
			return engine.Sibling{ID: s.ID,
				ChatID: Unescape(s.Chat)}
		})
	case *[]engine.Permission:
		*to = convertAll(*member.(*[]permissionJSON), func(p *permissionJSON) engine.Permission {
			return engine.Permission{Kind: Unescape(p.Kind), Title: Unescape(p.Title), Answer: Unescape(p.Answer)}
		})
	case *[]engine.Step:
		*to = convertAll(*member.(*[]stepJSON), func(s *stepJSON) engine.Step {
			return engine.Step{Phase: engine.Phase(s.Phase), StartedAt: s.StartedAt, Took: s.Took, Tier: Unescape(s.Tier), Bytes: s.Bytes,
				Errors: UnescapeAll(s.Errors)}
		})
	default:
		copyPlain(member, field)
	}
}

// copyPlain copies a value that is the same in JSON.
func copyPlain(from, to any) {
	switch from := from.(type) {
	case *bool:
		*to.(*bool) = *from
	case *int:
		*to.(*int) = *from
	case *uint32:
		*to.(*uint32) = *from
	case *time.Duration:
		*to.(*time.Duration) = *from
	case *[]engine.Use:
		*to.(*[]engine.Use) = *from
	default:
		panic(fmt.Sprintf("a field of type %T cannot be written as JSON", from))
	}
}

// convertAll is nil if there is nothing.
func convertAll[From, To any](all []From, convert func(*From) To) (converted []To) {
	for i := range all {
		converted = append(converted, convert(&all[i]))
	}
	return converted
}
