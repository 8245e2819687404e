package caddyhooks

import (
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func init() {
	instanceEndpoints.handle("POST /preview", (*instance).servePreview)
	instanceEndpoints.handle("GET /samples", (*instance).listSamples, "hook")
}

// servePreview shows the message that a mapping would make of a payload. The mapping need not be saved. Mistakes in it, and in
// the payload, are part of the answer.
func (in *instance) servePreview(w http.ResponseWriter, r *http.Request) error {
	who := callerFrom(r)
	if wait := in.service.previews.wait(who.via+" "+who.by, time.Now()); wait > 0 {
		w.Header().Set("Retry-After", retryAfterSeconds(wait))
		return apiError(http.StatusTooManyRequests, "there are at most %d previews a second for each user; try again in a moment", previewsASecond)
	}
	body, err := readAdminBody(r)
	if err != nil {
		return err
	}
	mapping, payload, err := parsePreview(body)
	if err != nil {
		return changeError(err)
	}
	return writeAdminJSON(w, http.StatusOK, in.preview(mapping, payload))
}

var previewFields = strictjson.Members("mapping", "payload")

// parsePreview reads {"mapping": {…}, "payload": "…"}. The mapping is as it was sent.
func parsePreview(body []byte) (mapping, payload []byte, err error) {
	obj, err := strictjson.ParseObject(body, previewFields)
	if err != nil {
		return nil, nil, apiError(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
	}
	if obj.Other != nil {
		return nil, nil, fieldErrorf(abridge(*obj.Other), "is unknown here; use mapping and payload")
	}
	f := requestFields{members: obj.Members, selected: previewFields}
	mapping, payload = f.object("mapping"), []byte(f.text("payload"))
	if mapping == nil {
		f.wrong("mapping", "an object")
	}
	return mapping, payload, f.err
}

// sampleJSON is a payload of a hook as operators see it.
type sampleJSON struct {
	At          *time.Time `json:"at"`
	Bytes       int        `json:"bytes"`
	ContentType string     `json:"contentType"`
	Payload     string     `json:"payload"`
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
		return sampleJSON{jsonTime(s.at), len(s.payload), s.contentType, string(s.payload)}
	})
	return writeAdminJSON(w, http.StatusOK, struct {
		Samples []sampleJSON `json:"samples"`
	}{shown})
}
