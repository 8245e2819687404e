package admin

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("POST /preview", servePreview)
	InstanceEndpoints.Handle("GET /samples", listSamples, "hook")
}

// servePreview shows the message that a mapping would make of a payload. The mapping need not be saved. Mistakes in it, and in
// the payload, are part of the answer.
func servePreview(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	if wait := in.Service.Previews.Wait(callerFrom(r).account(), time.Now()); wait > 0 {
		w.Header().Set("Retry-After", api.RetryAfterSeconds(wait))
		return api.Errorf(http.StatusTooManyRequests, "there are at most %d previews a second for each user; try again in a moment",
			intake.PreviewsASecond)
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	asked, err := parsePreview(body)
	if err != nil {
		return changeError(err)
	}
	asked.Samples = !callerFrom(r).HideTexts
	return writeJSON(w, http.StatusOK, preview(in, asked))
}

var previewFields = strictjson.Members("mapping", "payload", "headers", "query")

// parsePreview reads {"mapping": {…}, "payload": "…", "headers": {"Name": ["…"]}, "query": "a=b"}. The last two may be missing. Without a
// payload, the request is an example.
func parsePreview(body []byte) (asked api.PreviewRequest, err error) {
	obj, err := strictjson.ParseObject(body, previewFields)
	if err != nil {
		return asked, api.Errorf(http.StatusBadRequest, "the body is not the JSON that is expected here: %v", err)
	}
	if obj.Other != nil {
		return asked, settings.FieldErrorf(text.Abridge(obj.Other[0]), "is unknown here; use mapping, payload, headers and query")
	}
	f := intake.RequestFields{Members: obj.Members, Selected: previewFields}
	asked.Mapping, asked.Payload = f.Object("mapping"), []byte(f.Text("payload"))
	_, given := f.Given("payload")
	asked.Example = !given
	if asked.Mapping == nil {
		f.Wrong("mapping", "an object")
	}
	asked.Query, _ = url.ParseQuery(f.Text("query")) // what cannot be read is left out, as in requests
	asked.Header = make(http.Header)
	if headers := f.Object("headers"); headers != nil {
		var named map[string][]string
		if json.Unmarshal(headers, &named) != nil {
			f.Wrong("headers", "an object of lists of strings")
		}
		for name, values := range named {
			name = http.CanonicalHeaderKey(name)
			asked.Header[name] = append(asked.Header[name], values...)
		}
	}
	return asked, f.Err
}

// listSamples lists the last payloads of a hook, the newest first. There are none for whoever sees no texts in lists.
func listSamples(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("hook")
	active := in.Active.Load()
	switch {
	case name == "":
		return api.Errorf(http.StatusBadRequest, "say which: hook=<name>")
	case name != "wake" && name != "agent" && active.Hooks[name] == nil:
		return noHookInForce(name, active)
	}
	var kept []intake.Sample
	if !callerFrom(r).HideTexts {
		kept = in.Service.Samples.Of(name)
	}
	shown := api.ShowAll(kept, func(s intake.Sample) api.Sample {
		return api.Sample{At: text.JSONTime(s.At), Bytes: len(s.Payload), ContentType: s.ContentType, Headers: s.Header, Query: s.Query.Encode(),
			Payload: string(s.Payload)}
	})
	return writeJSON(w, http.StatusOK, api.Samples{Samples: shown})
}

// preview shows what a mapping, as it was sent, would make of a request. It changes nothing, and reads no secret.
func preview(in *service.Instance, asked api.PreviewRequest) *api.Preview {
	p := api.NewPreview()
	m, err := settings.ParseMapping(asked.Mapping)
	if err != nil {
		intake.AddProblem(p, "mapping", err)
		return p
	}
	p.Warnings = append(p.Warnings, m.FindWarnings()...)
	h := &settings.Hook{Mapping: m}
	h.Action = cmp.Or(h.Action, engine.Wake)
	h.ToChannel = in.Rules.Channels[m.Channel]
	h.Auth.Scheme = cmp.Or(settings.FindScheme(m.AuthMode), settings.BearerScheme)
	checks := intake.CheckConditions(p, h)
	err = h.ParseTemplates()
	readable := err == nil
	intake.AddProblem(p, "mapping", err)
	intake.AddProblem(p, "mapping", checkDraft(in, m))

	active := in.Active.Load()
	req := intake.NewPreviewedRequest(&asked)
	if asked.Example && readable {
		req = intake.Example(h, time.Now())
		p.Request = &api.PreviewedRequest{Headers: req.Header, Query: req.Values.Encode(), Payload: string(req.Body)}
	}
	if most := h.MaxPayload(active); int64(len(req.Body)) > most {
		intake.AddProblem(p, "payload", settings.FieldErrorf("payload", "is larger than maxPayloadSize, which is %d bytes", most))
	}
	if !readable {
		h.Selected = new(strictjson.Selection)
	}
	body, err := intake.ParseBody(h, req, h.Selected)
	if err != nil {
		intake.AddProblem(p, "payload", intake.PayloadError(err))
	}
	if err != nil || !readable {
		return p
	}
	f := intake.Filtering(h, req)
	f.Input.Body = body.Doc
	for i, condition := range checks {
		if condition != nil {
			holds, decided := condition.Holds(f.Input, &f.Steps)
			holds = holds && decided
			p.Conditions[i].Holds = &holds
		}
	}
	intake.Show(p, h, req, body)
	if asked.Samples {
		p.Samples = intake.Outcomes(h, in.Service.Samples.Of(m.Name))
	}
	return p
}

// checkDraft checks a mapping as it is checked when it is saved, but for secrets that come from the environment or from files.
func checkDraft(in *service.Instance, m settings.Mapping) error {
	s := in.Service
	s.Mu.Lock()
	saved := settings.FindMapping(s.Live.Mappings, m.Name)
	s.Mu.Unlock()
	if pinned := settings.FindMapping(in.Pinned.Mappings, m.Name); pinned != nil {
		saved = pinned
	}
	if err := settings.AdmitMapping(&m, nil, saved); err != nil {
		return err
	}
	_, err := m.Compile(&in.Rules, settings.HookSecrets{Tokens: in.Active.Load().Tokens, Resolve: unread})
	return err
}

// unread stands in for resolving a secret: whoever may look at a preview need not be one who may read files of the server.
func unread(configured string) (string, error) {
	if strings.Contains(configured, "{") {
		return configured, nil
	}
	return caddyconf.ResolveSecret(configured)
}
