package caddyhooks

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/untrusted"
)

// preview is what a hook would make of a request.
type preview struct {
	Message      []segmentJSON   `json:"message"` // of the first run, if there are several
	ChatID       string          `json:"chatId"`  // "" for a new chat
	Placeholders int             `json:"placeholders"`
	Missing      int             `json:"missing"`
	Runs         int             `json:"runs"`              // that the request would become
	Ignored      string          `json:"ignored,omitempty"` // the condition because of which it would become none
	Conditions   []conditionJSON `json:"conditions"`
	Folded       string          `json:"folded,omitempty"`  // the message of a turn for several such runs
	Request      *requestJSON    `json:"request,omitempty"` // that is shown, if it is an example
	Samples      []outcomeJSON   `json:"samples"`           // of the last requests to the hook, the newest first
	Problems     []problemJSON   `json:"problems"`
	Warnings     []string        `json:"warnings"` // as saving tells them
}

// requestJSON is a request to a hook.
type requestJSON struct {
	Headers http.Header `json:"headers"`
	Query   string      `json:"query"`
	Payload string      `json:"payload"`
}

// conditionJSON is a line of only or skip.
type conditionJSON struct {
	Field string `json:"field"`
	Text  string `json:"text"`
	Error string `json:"error,omitempty"`
	Holds *bool  `json:"holds,omitempty"` // for the payload, if that can be told
}

// outcomeJSON is what a request would become.
type outcomeJSON struct {
	At      *time.Time `json:"at"`
	Runs    int        `json:"runs"`
	Ignored string     `json:"ignored,omitempty"` // the condition
	Problem string     `json:"problem,omitempty"` // why it would be refused
}

// segmentJSON is a part of a message.
type segmentJSON struct {
	Text        string `json:"text"`
	Placeholder string `json:"placeholder,omitempty"` // that the text stands for
	Missing     bool   `json:"missing,omitempty"`
}

// problemJSON says what is wrong with a field of the mapping, or with the payload.
type problemJSON struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// maxSegments bounds the segments of a preview. The rest of a longer message is one segment.
const maxSegments = 10_000

// newPreview is a preview in which no list is null in JSON.
func newPreview() *preview {
	return &preview{Message: []segmentJSON{}, Conditions: []conditionJSON{}, Samples: []outcomeJSON{}, Problems: []problemJSON{}, Warnings: []string{}}
}

// preview shows what a mapping, as it was sent, would make of a request. It changes nothing, and reads no secret.
func (in *instance) preview(asked previewRequest) *preview {
	p := newPreview()
	m, err := parseMapping(asked.mapping)
	if err != nil {
		p.addProblem("mapping", err)
		return p
	}
	p.Warnings = append(p.Warnings, m.warnings(jsonWords)...)
	h := &hook{Mapping: m}
	h.Action = cmp.Or(h.Action, engine.Wake)
	h.auth.scheme = cmp.Or(findScheme(m.AuthMode), bearerScheme)
	checks := p.checkConditions(h)
	err = h.parseTemplates()
	readable := err == nil
	p.addProblem("mapping", err)
	p.addProblem("mapping", in.checkDraft(m))

	active := in.active.Load()
	req := asked.incoming()
	if asked.example && readable {
		req = h.example(time.Now())
		p.Request = &requestJSON{req.header, req.values.Encode(), string(req.body)}
	}
	if most := h.maxPayload(active); int64(len(req.body)) > most {
		p.addProblem("payload", fieldErrorf("payload", "is larger than maxPayloadSize, which is %d bytes", most))
	}
	if !readable {
		h.selected = new(strictjson.Selection)
	}
	body, err := h.parseBody(req, h.selected)
	if err != nil {
		p.addProblem("payload", payloadError(err))
	}
	if err != nil || !readable {
		return p
	}
	f := h.filtering(req)
	f.input.Body = body.doc
	for i, condition := range checks {
		if condition != nil {
			holds, decided := condition.Holds(f.input, &f.steps)
			holds = holds && decided
			p.Conditions[i].Holds = &holds
		}
	}
	p.show(h, req, body)
	if asked.samples {
		p.Samples = h.outcomes(in.service.samples.of(m.Name))
	}
	return p
}

// incoming is the request that is asked about.
func (asked *previewRequest) incoming() *incoming {
	return &incoming{header: asked.header, values: asked.query, body: asked.payload}
}

// checkConditions checks each line of only and skip. Those that cannot be read are taken out of the hook, so that the rest of it can
// be shown.
func (p *preview) checkConditions(h *hook) (checks []*template.Condition) {
	check := func(field string, lines []string) (good []string) {
		for _, line := range lines {
			shown := conditionJSON{Field: field, Text: line}
			condition, err := template.ParseCondition(line)
			if err != nil {
				shown.Error = err.Error()
				p.addProblem(field, fieldErrorf(field, "is refused: %v", err))
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

// payloadError tells a sentence that is for the caller as one about the payload.
func payloadError(err error) error {
	text := err.Error()
	var answer *httpError
	if errors.As(err, &answer) {
		text = answer.message
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "The body "), ".")
	return fieldErrorf("payload", "%s", text)
}

// runOfPreview stands for the id of a run that there is not.
const runOfPreview = "<run id>"

// show puts what becomes of a request into the preview. See intakeCustom.
func (p *preview) show(h *hook, req *incoming, body payload) {
	p.Ignored = h.ignores(req, body.doc)
	inputs, err := h.inputs(req, body, runOfPreview)
	var ignored *ignoredError
	if errors.As(err, &ignored) {
		p.Ignored = cmp.Or(p.Ignored, ignored.condition)
		return
	} else if err != nil {
		p.addProblem("payload", payloadError(err))
		return
	}
	p.ChatID = h.chatOf(inputs[0])
	p.showMessage(h, h.segments(inputs[0], body))
	if p.Ignored == "" {
		p.Runs = len(inputs)
	}
	if fold := newFold(h.FoldSeconds, h.FoldMax); fold.IsSet() {
		p.Folded = h.foldedMessage(inputs, body)
	}
}

// foldedMessage is the message of a turn for the first runs of a request or, if that becomes a single one, for two such requests.
func (h *hook) foldedMessage(inputs []template.Input, body payload) string {
	if len(inputs) == 1 {
		inputs = append(inputs, inputs[0])
	}
	runs := make([]*engine.Run, min(len(inputs), 3))
	for i := range runs {
		message, err := h.messageOf(inputs[i], body)
		if err != nil {
			return ""
		}
		runs[i] = &engine.Run{ID: strconv.Itoa(i), AcceptedAt: time.Now().Add(time.Duration(i) * time.Second), Message: message}
	}
	return engine.FoldMessage(runs)
}

// outcomes tells what the hook would make of requests. All of them share the budget of one: later ones are left out if that is used up.
func (h *hook) outcomes(of []sample) []outcomeJSON {
	all := make([]outcomeJSON, 0, len(of))
	steps := template.ConditionSteps
	for _, kept := range of {
		req := &incoming{header: kept.header, values: kept.query, body: kept.payload}
		outcome := outcomeJSON{At: text.JSONTime(kept.at)}
		body, err := h.parseBody(req, h.selected)
		if err == nil {
			f := h.filtering(req)
			f.steps, f.input.Body = steps, body.doc
			outcome.Ignored = f.ignoredBy(h.filters)
			if steps = f.steps; steps <= 0 {
				return all
			}
		}
		if err == nil && outcome.Ignored == "" {
			outcome.Runs, err = h.countRuns(req, body)
		}
		var ignored *ignoredError
		if errors.As(err, &ignored) {
			outcome.Ignored = ignored.condition
		} else if err != nil {
			outcome.Problem = payloadError(err).Error()
		}
		all = append(all, outcome)
	}
	return all
}

// countRuns is how many runs a request becomes that no condition leaves out.
func (h *hook) countRuns(req *incoming, body payload) (int, error) {
	inputs, err := h.inputs(req, body, runOfPreview)
	if err != nil {
		return 0, err
	}
	_, err = h.messageOf(inputs[0], body)
	return len(inputs), err
}

// checkDraft checks a mapping as it is checked when it is saved, but for secrets that come from the environment or from files.
func (in *instance) checkDraft(m Mapping) error {
	s := in.service
	s.mu.Lock()
	saved := findMapping(s.live.Mappings, m.Name)
	s.mu.Unlock()
	if pinned := findMapping(in.pinned.Mappings, m.Name); pinned != nil {
		saved = pinned
	}
	if err := admitMapping(&m, nil, saved); err != nil {
		return err
	}
	_, err := m.compile(&in.rules, hookSecrets{tokens: in.active.Load().tokens, resolve: unread})
	return err
}

// unread stands in for resolving a secret: whoever may look at a preview need not be one who may read files of the server.
func unread(configured string) (string, error) {
	if strings.Contains(configured, "{") {
		return configured, nil
	}
	return caddyconf.ResolveSecret(configured)
}

// segments is the message that the hook makes of a request, in its parts, but for the marks around the whole. See messageOf.
func (h *hook) segments(input template.Input, body payload) []template.Segment {
	switch {
	case h.template.Blank() && body.json != nil && !input.Each:
		return []template.Segment{{Text: string(body.json)}}
	case h.template.Blank():
		return []template.Segment{{Text: wholeBody.Render(input)}}
	case h.marksValues():
		return h.template.Segments(input, untrusted.NewMarker().WrapValue)
	default:
		return h.template.Segments(input, nil)
	}
}

// showMessage puts a message into the preview, with its marks.
func (p *preview) showMessage(h *hook, segments []template.Segment) {
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
			p.Message = append(p.Message, segmentJSON{s.Text, s.Placeholder, s.Missing})
		} else {
			rest.WriteString(s.Text)
		}
	}
	if rest.Len() > 0 {
		p.Message = append(p.Message, segmentJSON{Text: rest.String()})
	}
	if blank {
		p.addProblem("payload", fieldErrorf("payload", "gives a message that is blank, and such a request is refused"))
	}
	if h.marksWhole() {
		p.wrap()
	}
}

// wrap marks the whole message as data from outside.
func (p *preview) wrap() {
	parts := make([]string, len(p.Message))
	for i, s := range p.Message {
		parts[i] = s.Text
	}
	before, cleaned, after := untrusted.NewMarker().WrapParts(parts)
	wrapped := append(make([]segmentJSON, 0, len(parts)+2), segmentJSON{Text: before})
	for i, s := range p.Message {
		s.Text = cleaned[i]
		wrapped = append(wrapped, s)
	}
	p.Message = append(wrapped, segmentJSON{Text: after})
}

// addProblem adds an error, if it is one and if it was not told before. field is for an error that names none.
func (p *preview) addProblem(field string, err error) {
	if err == nil {
		return
	}
	var wrong *fieldError
	if errors.As(err, &wrong) {
		field = wrong.field
	}
	problem := problemJSON{field, err.Error()}
	for _, known := range p.Problems {
		if known == problem {
			return
		}
	}
	p.Problems = append(p.Problems, problem)
}

// previewLimiter bounds how many previews a user may ask for. It outlives reloads.
type previewLimiter struct {
	mu     sync.Mutex
	byUser map[string]*rate.Limiter
}

const (
	previewsASecond  = 2
	previewsAtOnce   = 2
	maxPreviewLimits = 1000 // users that are known at once
)

// wait takes a preview, and returns how long the user has to wait if there is none to take.
func (l *previewLimiter) wait(user string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.byUser[user]
	if limiter == nil {
		l.makeRoom(now)
		limiter = rate.NewLimiter(previewsASecond, previewsAtOnce)
		l.byUser[user] = limiter
	}
	taken := limiter.ReserveN(now, 1)
	delay := taken.DelayFrom(now)
	if delay > 0 {
		taken.CancelAt(now)
	}
	return delay
}

// makeRoom forgets users who may ask as if they never had, or any one if there is none.
func (l *previewLimiter) makeRoom(now time.Time) {
	if l.byUser == nil {
		l.byUser = make(map[string]*rate.Limiter)
	}
	if len(l.byUser) < maxPreviewLimits {
		return
	}
	for user, limiter := range l.byUser {
		if limiter.TokensAt(now) >= previewsAtOnce {
			delete(l.byUser, user)
		}
	}
	for user := range l.byUser {
		if len(l.byUser) < maxPreviewLimits {
			return
		}
		delete(l.byUser, user)
	}
}
