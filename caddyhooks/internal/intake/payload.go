package intake

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cloudevents"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/form"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// payload is the body of a request to a custom hook, as its templates see it.
type payload struct {
	Doc  any
	json []byte // its text, nil if the sender wrote none that could be the message: a form, or an event

	// The events of a request with CloudEvents, and whether they came as a batch. Doc is the first of them.
	events  []cloudevents.Event
	isBatch bool
}

// ParseBody reads the body of a request. Of JSON that is the selected parts. Errors are for the caller.
func ParseBody(h *settings.Hook, req *Request, selected *strictjson.Selection) (payload, error) {
	body, err := parseBody(h, req, selected)
	if errors.Is(err, strictjson.ErrNoMemory) {
		err = req.Messages.refused
	}
	return body, err
}

func parseBody(h *settings.Hook, req *Request, selected *strictjson.Selection) (payload, error) {
	reserve := req.Messages.reserveValues
	if h.Body == settings.CloudEvents {
		return parseEvents(h, req, selected, reserve)
	}
	if !takesForm(h, req.Header) {
		doc, err := strictjson.ParseWithin(req.Body, selected, reserve)
		if errors.Is(err, strictjson.ErrNoMemory) {
			return payload{}, err
		}
		if err != nil {
			return payload{}, malformed(req.Body, err, errFormForHook)
		}
		return payload{Doc: doc, json: req.Body}, nil
	}
	if looksLikeJSON(req.Body) {
		return payload{}, malformedForm(errJSONBody)
	}
	doc, text, err := form.Decode(req.Body, reserve)
	if errors.Is(err, strictjson.ErrNoMemory) {
		return payload{}, err
	}
	if err != nil {
		return payload{}, malformedForm(err)
	}
	return payload{Doc: doc, json: text}, nil
}

// takesForm reports whether the body of a request must be a form.
func takesForm(h *settings.Hook, header http.Header) bool {
	if h.Body != "auto" {
		return h.Body == "form"
	}
	mediaType, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	return mediaType == formType
}

var errJSONBody = errors.New("it looks like JSON; the content type of that is application/json, and the hook takes it without 'body form'")

// looksLikeJSON reports whether a body that should be a form is JSON. No form begins like that: such characters are escaped.
func looksLikeJSON(body []byte) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && (body[0] == '{' || body[0] == '[')
}

// malformedForm is the answer to a body that is no form.
func malformedForm(err error) error {
	return &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("The body is not the form that is expected here: %v.", err),
		Reason: "the body is not the form that is expected here"}
}

// wholeBody is the message of a blank template if it is not the body as it came: a form, or a match of each.
var wholeBody = func() *template.Template {
	whole, err := template.Parse("{$}")
	if err != nil {
		panic(err)
	}
	return whole
}()
