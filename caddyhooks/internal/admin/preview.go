package admin

import (
	"cmp"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// preview shows what a mapping, as it was sent, would make of a request. It changes nothing, and reads no secret.
func preview(in *service.Instance, asked api.PreviewRequest) *api.Preview {
	p := api.NewPreview()
	m, err := settings.ParseMapping(asked.Mapping)
	if err != nil {
		intake.AddProblem(p, "mapping", err)
		return p
	}
	p.Warnings = append(p.Warnings, m.FindWarnings(settings.JSONWords)...)
	h := &settings.Hook{Mapping: m}
	h.Action = cmp.Or(h.Action, engine.Wake)
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
