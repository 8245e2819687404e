package intake

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/untrusted"
)

// maxSegments bounds the segments of a preview. The rest of a longer message is one segment.
const maxSegments = 10_000

// NewPreviewedRequest is the request that is asked about.
func NewPreviewedRequest(asked *api.PreviewRequest) *Request {
	return &Request{Header: asked.Header, Values: asked.Query, Body: asked.Payload}
}

// PreviewMapping is what a mapping makes of a request, as far as that is known without its instance.
func PreviewMapping(m settings.Mapping, asked api.PreviewRequest) *api.Preview {
	p := api.NewPreview()
	h := &settings.Hook{Mapping: m}
	h.Auth.Scheme = settings.BearerScheme
	if err := h.ParseTemplates(); err != nil {
		AddProblem(p, "messageTemplate", err)
		return p
	}
	p.Warnings = append(p.Warnings, h.Template.Warnings()...)
	req := NewPreviewedRequest(&asked)
	body, err := ParseBody(h, req, h.Selected)
	if err != nil {
		AddProblem(p, "payload", PayloadError(err))
		return p
	}
	Show(p, h, req, body)
	return p
}

// CheckConditions checks each line of only and skip. Those that cannot be read are taken out of the hook, so that the rest of it can
// be shown.
func CheckConditions(p *api.Preview, h *settings.Hook) (checks []*template.Condition) {
	check := func(field string, lines []string) (good []string) {
		for _, line := range lines {
			shown := api.Condition{Field: field, Text: line}
			condition, err := template.ParseCondition(line)
			if err != nil {
				shown.Error = err.Error()
				AddProblem(p, field, settings.FieldErrorf(field, "is refused: %v", err))
			} else {
				good = append(good, line)
			}
			p.Conditions = append(p.Conditions, shown)
			checks = append(checks, condition)
		}
		return good
	}
	h.Only = check("only", h.Only)
	h.Skip = check("skip", h.Skip)
	return checks
}

// PayloadError tells a sentence that is for the caller as one about the payload.
func PayloadError(err error) error {
	text := err.Error()
	var answer *api.Error
	if errors.As(err, &answer) {
		text = answer.Message
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "The body "), ".")
	return settings.FieldErrorf("payload", "%s", text)
}

// runOfPreview stands for the id of a run that there is not.
const runOfPreview = "<run id>"

// Show puts what becomes of a request into the preview. See intakeCustom.
func Show(p *api.Preview, h *settings.Hook, req *Request, body payload) {
	f := Filtering(h, req)
	p.Ignored = f.ignores(h.Filters, &body)
	if len(body.events) == 0 && body.isBatch {
		return
	}
	inputs, err := templateInputs(h, req, body, runOfPreview)
	var ignored *IgnoredError
	if errors.As(err, &ignored) {
		p.Ignored = cmp.Or(p.Ignored, ignored.Condition)
		return
	} else if err != nil {
		AddProblem(p, "payload", PayloadError(err))
		return
	}
	p.ChatID = chatOf(h, inputs[0])
	p.Warnings = append(p.Warnings, h.WithoutValue(inputs[0])...)
	showChat(p, h, inputs)
	showMessage(p, h, segments(h, inputs[0], body))
	if p.Ignored == "" {
		p.Runs = len(inputs)
	}
	if h.Fold().IsSet() {
		p.Folded = foldedMessage(h, inputs, body)
	}
}

// foldedMessage is the message of a turn for the first runs of a request or, if that becomes a single one, for two such requests.
func foldedMessage(h *settings.Hook, inputs []template.Input, body payload) string {
	if len(inputs) == 1 {
		inputs = append(inputs, inputs[0])
	}
	runs := make([]*engine.Run, min(len(inputs), 3))
	for i := range runs {
		message, err := messageOf(h, inputs[i], body)
		if err != nil {
			return ""
		}
		runs[i] = &engine.Run{ID: strconv.Itoa(i), AcceptedAt: time.Now().Add(time.Duration(i) * time.Second), Message: message,
			Fold: h.Fold()}
	}
	return engine.FoldMessage(runs)
}

// Outcomes tells what the hook would make of requests. All of them share the budget of one: later ones are left out if that is used up.
func Outcomes(h *settings.Hook, of []Sample) []api.SampleOutcome {
	all := make([]api.SampleOutcome, 0, len(of))
	steps := template.ConditionSteps
	for _, kept := range of {
		req := &Request{Header: kept.Header, Values: kept.Query, Body: kept.Payload}
		outcome := api.SampleOutcome{At: text.JSONTime(kept.At)}
		body, err := ParseBody(h, req, h.Selected)
		if err == nil {
			f := Filtering(h, req)
			f.Steps = steps
			outcome.Ignored = f.ignores(h.Filters, &body)
			if steps = f.Steps; steps <= 0 {
				return all
			}
		}
		if err == nil && outcome.Ignored == "" {
			outcome.Runs, err = countRuns(h, req, body)
		}
		var ignored *IgnoredError
		if errors.As(err, &ignored) {
			outcome.Ignored = ignored.Condition
		} else if err != nil {
			outcome.Problem = PayloadError(err).Error()
		}
		all = append(all, outcome)
	}
	return all
}

// countRuns is how many runs a request becomes that no condition leaves out.
func countRuns(h *settings.Hook, req *Request, body payload) (int, error) {
	inputs, err := templateInputs(h, req, body, runOfPreview)
	if err != nil {
		return 0, err
	}
	if _, err = messageOf(h, inputs[0], body); err != nil {
		return 0, err
	}
	for _, input := range inputs {
		if _, err := chosenChat(h, input); err != nil {
			return 0, err
		}
	}
	return len(inputs), nil
}

// segments is the message that the hook makes of a request, in its parts, but for the marks around the whole. See messageOf.
func segments(h *settings.Hook, input template.Input, body payload) []template.Segment {
	switch {
	case h.Template.Blank() && body.json != nil && !input.Each:
		return []template.Segment{{Text: string(body.json)}}
	case h.Template.Blank():
		return []template.Segment{{Text: wholeBody.Render(input)}}
	case marksValues(h):
		return h.Template.Segments(input, untrusted.NewMarker().WrapValue)
	default:
		return h.Template.Segments(input, nil)
	}
}

// showMessage puts a message into the preview, with its marks.
func showMessage(p *api.Preview, h *settings.Hook, segments []template.Segment) {
	var rest strings.Builder
	blank := true
	for i, s := range segments {
		blank = blank && strings.TrimSpace(s.Text) == ""
		if s.Placeholder != "" {
			p.Placeholders++
		}
		if s.Missing {
			p.Missing++
		}
		if i < maxSegments {
			p.Message = append(p.Message, api.Segment{Text: s.Text, Placeholder: s.Placeholder, Missing: s.Missing})
		} else {
			rest.WriteString(s.Text)
		}
	}
	if rest.Len() > 0 {
		p.Message = append(p.Message, api.Segment{Text: rest.String()})
	}
	if blank {
		AddProblem(p, "payload", settings.FieldErrorf("payload", "gives a message that is blank, and such a request is refused"))
	}
	if marksWhole(h) {
		wrap(p)
	}
}

// wrap marks the whole message as data from outside.
func wrap(p *api.Preview) {
	parts := make([]string, len(p.Message))
	for i, s := range p.Message {
		parts[i] = s.Text
	}
	before, cleaned, after := untrusted.NewMarker().WrapParts(parts)
	wrapped := append(make([]api.Segment, 0, len(parts)+2), api.Segment{Text: before})
	for i, s := range p.Message {
		s.Text = cleaned[i]
		wrapped = append(wrapped, s)
	}
	p.Message = append(wrapped, api.Segment{Text: after})
}

// AddProblem adds an error, if it is one and if it was not told before. field is for an error that names none.
func AddProblem(p *api.Preview, field string, err error) {
	if err == nil {
		return
	}
	var wrong *settings.FieldError
	if errors.As(err, &wrong) {
		field = wrong.Field
	}
	problem := api.Problem{Field: field, Message: err.Error()}
	for _, known := range p.Problems {
		if known == problem {
			return
		}
	}
	p.Problems = append(p.Problems, problem)
}

const (
	PreviewsASecond  = 2
	PreviewsAtOnce   = 2
	MaxPreviewLimits = 1000 // users that are known at once
)
