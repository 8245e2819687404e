package caddyhooks

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	instanceEndpoints.handle("POST /preview", (*instance).servePreview)
	instanceEndpoints.handle("GET /samples", (*instance).listSamples, "hook")
}

// servePreview shows the message that a mapping would make of a payload. The mapping need not be saved. Mistakes in it, and in
// the payload, are part of the answer.
func (in *instance) servePreview(w http.ResponseWriter, r *http.Request) error {
	if wait := in.service.previews.wait(callerFrom(r).account(), time.Now()); wait > 0 {
		w.Header().Set("Retry-After", retryAfterSeconds(wait))
		return apiError(http.StatusTooManyRequests, "there are at most %d previews a second for each user; try again in a moment", previewsASecond)
	}
	body, err := readAdminBody(r)
	if err != nil {
		return err
	}
	asked, err := parsePreview(body)
	if err != nil {
		return changeError(err)
	}
	asked.samples = !callerFrom(r).hideTexts
	return writeAdminJSON(w, http.StatusOK, in.preview(asked))
}

// previewRequest asks what a mapping would make of a request.
type previewRequest struct {
	mapping []byte // as it was sent
	header  http.Header
	query   url.Values
	payload []byte
	example bool // there is no payload: that of an example is asked for
	samples bool // what it would make of the last requests is asked for, too
}

var previewFields = strictjson.Members("mapping", "payload", "headers", "query")

// parsePreview reads {"mapping": {…}, "payload": "…", "headers": {"Name": ["…"]}, "query": "a=b"}. The last two may be missing. Without a
// payload, the request is an example.
func parsePreview(body []byte) (asked previewRequest, err error) {
	obj, err := strictjson.ParseObject(body, previewFields)
	if err != nil {
		return asked, apiError(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
	}
	if obj.Other != nil {
		return asked, fieldErrorf(text.Abridge(obj.Other[0]), "is unknown here; use mapping, payload, headers and query")
	}
	f := requestFields{members: obj.Members, selected: previewFields}
	asked.mapping, asked.payload = f.object("mapping"), []byte(f.text("payload"))
	_, given := f.given("payload")
	asked.example = !given
	if asked.mapping == nil {
		f.wrong("mapping", "an object")
	}
	asked.query, _ = url.ParseQuery(f.text("query")) // what cannot be read is left out, as in requests
	asked.header = make(http.Header)
	if headers := f.object("headers"); headers != nil {
		var named map[string][]string
		if json.Unmarshal(headers, &named) != nil {
			f.wrong("headers", "an object of lists of strings")
		}
		for name, values := range named {
			name = http.CanonicalHeaderKey(name)
			asked.header[name] = append(asked.header[name], values...)
		}
	}
	return asked, f.err
}

// sampleJSON is a request to a hook as operators see it.
type sampleJSON struct {
	At          *time.Time  `json:"at"`
	Bytes       int         `json:"bytes"`
	ContentType string      `json:"contentType"`
	Headers     http.Header `json:"headers"` // those that carry no secret
	Query       string      `json:"query"`   // likewise
	Payload     string      `json:"payload"`
}

// listSamples lists the last payloads of a hook, the newest first. There are none for whoever sees no texts in lists.
func (in *instance) listSamples(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("hook")
	active := in.active.Load()
	switch {
	case name == "":
		return apiError(http.StatusBadRequest, "say which: hook=<name>")
	case name != "wake" && name != "agent" && active.hooks[name] == nil:
		return in.noHookInForce(name, active)
	}
	var kept []sample
	if !callerFrom(r).hideTexts {
		kept = in.service.samples.of(name)
	}
	shown := showAll(kept, func(s sample) sampleJSON {
		return sampleJSON{text.JSONTime(s.at), len(s.payload), s.contentType, s.header, s.query.Encode(), string(s.payload)}
	})
	return writeAdminJSON(w, http.StatusOK, struct {
		Samples []sampleJSON `json:"samples"`
	}{shown})
}
