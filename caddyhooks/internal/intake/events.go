package intake

import (
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cloudevents"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// parseEvents reads the CloudEvents of a request. In a preview a payload without a content type is an event, or a batch if it is an array.
func parseEvents(h *settings.Hook, req *Request, selected *strictjson.Selection, reserve func(bytes int) bool) (payload, error) {
	header := req.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	maps.DeleteFunc(header, func(name string, _ []string) bool { return h.Hidden.Has(name) }) // a secret in Ce-Token is no attribute
	if req.request == nil {
		WithContentType(header, req.Body, h.Body)
	}
	read, err := cloudevents.Read(header, req.Body, selected, maxMatches, reserve)
	var wrong *cloudevents.Error
	switch {
	case errors.Is(err, strictjson.ErrNoMemory):
		return payload{}, err
	case errors.Is(err, cloudevents.ErrTooManyEvents):
		return payload{}, errTooManyMatches
	case errors.As(err, &wrong) && wrong.IsType:
		return payload{}, &api.Error{Status: http.StatusUnsupportedMediaType, Reason: "the content type is not one of CloudEvents",
			Message: fmt.Sprintf("The body is not of a type that is expected here: %v.", err)}
	case err != nil:
		return payload{}, &api.Error{Status: http.StatusBadRequest, Reason: "the body is not the CloudEvent that is expected here",
			Message: fmt.Sprintf("The body is not the CloudEvent that is expected here: %v.", err)}
	case read.IsBatch && h.SyncResponse && h.Action == engine.Agent:
		return payload{}, errBatchWaits
	}
	body := payload{events: read.Events, isBatch: read.IsBatch}
	if len(read.Events) > 0 {
		body.Doc = read.Events[0].Doc
	}
	return body, nil
}

var errBatchWaits = &api.Error{Status: http.StatusUnsupportedMediaType,
	Message: "This hook answers with the reply to one event: send events one by one, not as a batch."}

// EventID is the id that operators see of an event. What tells events of a source apart comes first: long ids are cut.
func EventID(id cloudevents.ID) string { return engine.NewRequestID(id.ID + " " + id.Source) }

// isAttribute reports whether a header is part of an event that the hook takes.
func isAttribute(h *settings.Hook, header string) bool {
	return h.Body == settings.CloudEvents && !MayHoldSecret(header) && cloudevents.HasAttributes(http.Header{header: nil})
}
