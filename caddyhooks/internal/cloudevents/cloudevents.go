// Package cloudevents reads CloudEvents 1.0 from HTTP requests in all three content modes: structured, binary and batched. Whatever the
// mode, an event is the object of the JSON format. The package knows nothing of hooks. It imports strictjson and text.
package cloudevents

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

const (
	// StructuredType and BatchType are the content types of one event and of several.
	StructuredType = "application/cloudevents+json"
	BatchType      = "application/cloudevents-batch+json"

	// headerPrefix begins the names of headers that are attributes, in lower case.
	headerPrefix = "ce-"

	maxAttributes = 64   // of one event, data included
	maxName       = 64   // bytes of the name of an attribute
	maxValue      = 4096 // bytes of its value
)

// Request is what one request brings.
type Request struct {
	Events  []Event // a single one, unless the request is a batch
	IsBatch bool
}

// Event is one event.
type Event struct {
	ID
	Doc map[string]any // the selected parts of the event, as strictjson parses them, and all of its attributes
}

// ID tells one event from all others.
type ID struct{ Source, ID string }

// Error says why a request has no event. It quotes no value.
type Error struct {
	IsType bool // the content type is at fault
	Reason string
}

func (e *Error) Error() string { return e.Reason }

func errorf(format string, args ...any) error { return &Error{Reason: fmt.Sprintf(format, args...)} }

// ErrTooManyEvents is for a batch of more events than are wanted.
var ErrTooManyEvents = errors.New("the batch has too many events")

// Read reads the selected parts of the events of a request: one, or a batch of at most so many. An event of a batch whose id stands before
// in the batch is left out. reserve is as in strictjson.ParseWithin. Errors are ErrTooManyEvents or strictjson.ErrNoMemory, or of
// type *Error or *strictjson.Error.
func Read(header http.Header, body []byte, selected *strictjson.Selection, most int, reserve func(bytes int) bool) (Request, error) {
	if len(header["Content-Type"]) > 1 {
		return Request{}, errorf("the header Content-Type stands more than once")
	}
	contentType := header.Get("Content-Type")
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	if err != nil && contentType != "" {
		return Request{}, &Error{true, "the content type cannot be read"}
	}
	selected = selected.WithMembers()
	isEvents := strings.HasPrefix(mediaType, "application/cloudevents")
	switch {
	case isEvents && !isUTF8(parameters):
		return Request{}, &Error{true, "the charset of the content type is not UTF-8"}
	case mediaType == StructuredType:
		doc, err := strictjson.ParseWithin(body, selected, reserve)
		if err != nil {
			return Request{}, err
		}
		event, err := newEvent(doc)
		return Request{Events: []Event{event}}, err
	case mediaType == BatchType:
		return readBatch(body, selected, most, reserve)
	case isEvents:
		return Request{}, &Error{true, "of events, the content types " + StructuredType + " and " + BatchType + " are accepted"}
	case !HasAttributes(header):
		return Request{}, errorf("the content type is neither %s nor %s, and no headers begin with %s", StructuredType, BatchType, headerPrefix)
	}
	doc, err := readHeaders(header)
	if err == nil && contentType != "" {
		doc["datacontenttype"] = contentType
	}
	if err == nil && len(body) > 0 {
		err = addData(doc, body, mediaType, isUTF8(parameters), selected, reserve)
	}
	if err != nil {
		return Request{}, err
	}
	event, err := newEvent(doc)
	return Request{Events: []Event{event}}, err
}

// isUTF8 reports whether the parameters of a content type name no other charset.
func isUTF8(parameters map[string]string) bool {
	charset := strings.ToLower(parameters["charset"])
	return charset == "" || charset == "utf-8" || charset == "us-ascii"
}

// HasAttributes reports whether headers have attributes of an event.
func HasAttributes(header http.Header) bool {
	for name := range header {
		if _, ok := attributeOf(name); ok {
			return true
		}
	}
	return false
}

// attributeOf is the attribute that a header has.
func attributeOf(header string) (name string, ok bool) {
	return strings.CutPrefix(strings.ToLower(header), headerPrefix)
}

func readBatch(body []byte, selected *strictjson.Selection, most int, reserve func(bytes int) bool) (Request, error) {
	doc, err := strictjson.ParseWithin(body, selected.Items(most+1), reserve)
	if err != nil {
		return Request{}, err
	}
	items, ok := doc.([]any)
	if !ok {
		return Request{}, errorf("a batch must be an array of events")
	}
	if len(items) > most {
		return Request{}, ErrTooManyEvents
	}
	batch := Request{IsBatch: true, Events: make([]Event, 0, len(items))}
	known := make(map[ID]bool, len(items))
	for i, item := range items {
		event, err := newEvent(item)
		if err != nil {
			return Request{}, errorf("event %d: %v", i+1, err)
		}
		if !known[event.ID] {
			known[event.ID] = true
			batch.Events = append(batch.Events, event)
		}
	}
	return batch, nil
}

// readHeaders reads the attributes of an event in binary mode. Its data is the body.
func readHeaders(header http.Header) (map[string]any, error) {
	doc := make(map[string]any)
	for field, values := range header {
		name, ok := attributeOf(field)
		if !ok || name == "datacontenttype" { // which is the header Content-Type
			continue
		}
		_, known := doc[name]
		switch {
		case len(doc) > maxAttributes:
			return nil, errTooMany
		case name == "" || name == "data" || name == "data_base64":
			return nil, errorf("the header %s%s is no attribute", headerPrefix, name)
		case known || len(values) != 1:
			return nil, errorf("the header %s%s stands more than once", headerPrefix, text.Abridge(name))
		}
		value, ok := text.Unquote(values[0])
		if value = percentDecoded(value); !ok || !utf8.ValidString(value) {
			return nil, errorf("the header %s%s is not UTF-8, or its quotes do not match", headerPrefix, text.Abridge(name))
		}
		doc[name] = value
	}
	return doc, nil
}

// percentDecoded decodes a header once. A % without two hexadecimal digits after it stands for itself: older senders do not encode it.
func percentDecoded(value string) string {
	if !strings.Contains(value, "%") {
		return value
	}
	decoded := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			if char, err := hex.DecodeString(value[i+1 : i+3]); err == nil {
				decoded = append(decoded, char...)
				i += 2
				continue
			}
		}
		decoded = append(decoded, value[i])
	}
	return string(decoded)
}

// addData adds the body of a request in binary mode: JSON as it is, other text as a string, and all else in base64.
func addData(doc map[string]any, body []byte, mediaType string, isUTF8 bool, selected *strictjson.Selection,
	reserve func(bytes int) bool) (err error) {
	switch {
	case strings.HasSuffix(mediaType, "/json") || strings.HasSuffix(mediaType, "+json"):
		doc["data"], err = strictjson.ParseWithin(body, selected.Of("data"), reserve)
	case strings.HasPrefix(mediaType, "text/") && isUTF8 && utf8.Valid(body):
		doc["data"] = string(body)
	case selected.Has("data_base64"): // otherwise nobody reads it
		doc["data_base64"] = base64.StdEncoding.EncodeToString(body)
	}
	return err
}

var errTooMany = errorf("an event must not have more than %d attributes", maxAttributes)

// newEvent checks an event. Attributes that are null are taken out of it: they count as absent.
func newEvent(doc any) (Event, error) {
	event, ok := doc.(map[string]any)
	if !ok {
		return Event{}, errorf("an event must be an object")
	}
	if len(event) > maxAttributes {
		return Event{}, errTooMany
	}
	for _, name := range [...]string{"specversion", "id", "source", "type"} {
		if event[name] == nil {
			return Event{}, errorf("the attribute %s is missing", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(event)) {
		value := event[name]
		if value == nil && name != "data" {
			delete(event, name)
		} else if problem := problemOf(name, value); problem != "" {
			return Event{}, errorf("the attribute %s %s", text.Abridge(name), problem)
		}
	}
	if _, hasBytes := event["data_base64"]; hasBytes && event["data"] == nil {
		delete(event, "data") // null, as a program writes it that has a field for it
	} else if hasBytes {
		return Event{}, errorf("an event must not have both data and data_base64")
	}
	return Event{ID{event["source"].(string), event["id"].(string)}, event}, nil
}

// problemOf says what is wrong with a member of an event, "" if nothing is. The names of extensions are not checked: some senders use
// underscores.
func problemOf(name string, value any) string {
	content, isText := value.(string)
	switch name {
	case "data":
		return ""
	case "data_base64":
		decoder := base64.NewDecoder(base64.StdEncoding, strings.NewReader(content))
		if _, err := io.Copy(io.Discard, decoder); err != nil || !isText {
			return "is not base64"
		}
		return ""
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema":
		if content == "" {
			return "must be a text that is not empty"
		}
	}
	switch value.(type) {
	case map[string]any, []any:
		return "must be a text, a number, true or false"
	}
	switch {
	case len(name) > maxName:
		return fmt.Sprintf("has a name of more than %d bytes", maxName)
	case len(content) > maxValue:
		return fmt.Sprintf("has more than %d bytes", maxValue)
	case strings.ContainsFunc(content, text.IsControl):
		return "has control characters"
	case name == "specversion" && content != "1.0":
		return "must be 1.0"
	}
	if name == "time" {
		if _, err := time.Parse(time.RFC3339, strings.ToUpper(content)); err != nil {
			return "must be a time as in 2026-01-02T03:04:05Z"
		}
	}
	return ""
}
