package caddyhooks

import (
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/untrusted"
)

// preview is what a hook would make of a payload.
type preview struct {
	Message      []segmentJSON `json:"message"`
	ChatID       string        `json:"chatId"` // "" for a new chat
	Placeholders int           `json:"placeholders"`
	Missing      int           `json:"missing"`
	Problems     []problemJSON `json:"problems"`
	Warnings     []string      `json:"warnings"` // as saving tells them
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

// preview shows what a mapping, as it was sent, would make of a payload. It changes nothing, and reads no secret.
func (in *instance) preview(raw, payload []byte) *preview {
	p := &preview{Message: []segmentJSON{}, Problems: []problemJSON{}, Warnings: []string{}}
	m, err := parseMapping(raw)
	if err != nil {
		p.addProblem("mapping", err)
		return p
	}
	p.Warnings = append(p.Warnings, m.warnings(jsonWords)...)
	h := &hook{Mapping: m}
	h.Action = orDefault(h.Action, engine.Wake)
	err = h.parseTemplates()
	readable := err == nil
	p.addProblem("mapping", err)
	p.addProblem("mapping", in.checkDraft(m))

	active := in.active.Load()
	if int64(len(payload)) > active.maxPayload {
		p.addProblem("payload", fieldErrorf("payload", "is larger than maxPayloadSize, which is %d bytes", active.maxPayload))
	}
	if !readable {
		_, err := strictjson.ParseSelected(payload, new(strictjson.Selection))
		p.addPayloadProblem(payload, err)
		return p
	}
	doc, err := strictjson.ParseSelected(payload, h.selected)
	if err != nil {
		p.addPayloadProblem(payload, err)
		return p
	}
	p.ChatID = h.chatOf(doc)
	p.show(h, h.segments(doc, payload))
	return p
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
		return "a secret", nil
	}
	return caddyconf.ResolveSecret(configured)
}

// segments is the message that the hook makes of a payload, in its parts, but for the marks around the whole. See intakeCustom.
func (h *hook) segments(doc any, payload []byte) []template.Segment {
	switch {
	case h.template.Blank():
		return []template.Segment{{Text: string(payload)}}
	case h.marksValues():
		return h.template.Segments(doc, untrusted.NewMarker().WrapValue)
	default:
		return h.template.Segments(doc, nil)
	}
}

// show puts a message into the preview, with its marks.
func (p *preview) show(h *hook, segments []template.Segment) {
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

func (p *preview) addPayloadProblem(payload []byte, err error) {
	if err == nil {
		return
	}
	if looksLikeForm(payload) {
		err = errFormBody
	}
	p.addProblem("payload", fieldErrorf("payload", "is not JSON: %v", err))
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
