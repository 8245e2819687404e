// Package intake makes runs of the body of one webhook: it parses the body once, applies the conditions of the hook, renders its
// templates, and chooses the chat and the runner. A preview and an example of a sender come from the same code. Nothing here
// stores or answers. It imports settings, template, cloudevents, strictjson, api and engine.
package intake

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/untrusted"
)

// Runs makes runs of a request to the named hook: one or, with each or a batch of events, several. Errors are for the caller, and an
// *ignoredError or a *challengeError says that there is none.
func Runs(active *settings.Active, name string, custom *settings.Hook, req *Request) ([]*engine.Run, error) {
	var runs []*engine.Run
	var err error
	if custom != nil {
		runs, err = IntakeCustom(active, custom, req)
	} else {
		var run *engine.Run
		if name == "wake" {
			run, err = intakeWake(active, req)
		} else {
			run, err = intakeAgent(active, req)
		}
		runs = []*engine.Run{run}
	}
	if err != nil {
		return nil, req.withWarning(err)
	}
	for _, run := range runs {
		run.QueueTime = cmp.Or(run.QueueTime, active.Rules.QueueTime)
		if custom != nil {
			run.Runner = custom.Runner
		}
		run.Runner = cmp.Or(run.Runner, active.Rules.Runners.Of(run.TurnTier()))
	}
	return runs, nil
}

// malformed is the answer to a body that is not JSON. err tells where, and ofForm is told instead if the body is a form.
func malformed(body []byte, err, ofForm error) error {
	switch {
	case beginsAsForm.Match(body):
		err = ofForm
	case formPart.Match(body):
		err = errFormBody
	}
	return &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("The body is not the JSON that is expected here: %v.", err),
		Reason: "the body is not the JSON that is expected here"}
}

var (
	errFormBody = errors.New("it looks like a form, as in name=value; choose application/json as the content type in the settings of " +
		"the sender")
	errFormForHook = fmt.Errorf("%w, or let the hook take forms, with 'body form'", errFormBody)

	beginsAsForm = regexp.MustCompile(`^\s*[\w.%+*-][\w.%+*\[\]-]{0,99}=[^=\s]`)
	formPart     = regexp.MustCompile(`(?i)^--[^\r\n]{1,80}\r?\ncontent-disposition: *form-data`)
)

// The fields of requests. Other members are checked, and take no memory. Those that are mistaken for each other are read in both.
var (
	wakeFieldNames  = []string{"text", "chatId", "metadata"}
	agentFieldNames = []string{"message", "name", "chatId", "model", "memoryPreset", "syncResponse", "responseJsonSchema",
		"responseValidationModelTier", "callbackUrl", "deliver", "channel", "to", "timeoutSeconds", "queueTimeSeconds", "metadata"}

	wakeFields  = strictjson.Members(append([]string{"message"}, wakeFieldNames...)...)
	agentFields = strictjson.Members(append([]string{"text"}, agentFieldNames...)...)
)

// intakeWake reads {"text", "chatId", "metadata"}.
func intakeWake(active *settings.Active, req *Request) (*engine.Run, error) {
	f, err := readFields(req.Body, wakeFields)
	if err != nil {
		return nil, malformed(req.Body, err, errFormBody)
	}
	req.Warning = ""
	req.noteUnknown(f.other, wakeFieldNames)
	text := f.Text("text")
	chatID := f.Text("chatId")
	metadata := f.Object("metadata")
	if f.Err != nil {
		return nil, f.Err
	}
	if strings.TrimSpace(text) == "" {
		if _, ok := f.Given("message"); ok {
			return nil, settings.FieldErrorf("text", "is missing: wake takes its event as text, not as message")
		}
		return nil, settings.FieldErrorf("text", "is missing or blank: it must hold the text of the event")
	}
	if err := settings.CheckChatID(chatID); err != nil {
		return nil, err
	}
	return &engine.Run{
		Hook: "wake", Action: engine.Wake, ChatID: cmp.Or(chatID, defaultWakeChat),
		Message: untrusted.Wrap(text), Metadata: metadata,
		MemoryPreset: active.MemoryPreset, Timeout: active.DefaultTimeout,
	}, nil
}

const defaultWakeChat = "webhook:default"

// newChat gives a run a chat of its own. The id of the chat tells about when that was, so that the run can be found by it.
func newChat(run *engine.Run) {
	run.ChatID, run.NewChat = "hook:"+uuid.Must(uuid.NewV7()).String(), true
}

// intakeAgent reads a request for a full run.
func intakeAgent(active *settings.Active, req *Request) (*engine.Run, error) {
	f, err := readFields(req.Body, agentFields)
	if err != nil {
		return nil, malformed(req.Body, err, errFormBody)
	}
	req.Warning = ""
	req.noteUnknown(f.other, agentFieldNames)
	message := f.Text("message")
	name := f.Text("name")
	_, emptyCallback := f.Given("callbackUrl")
	agent := settings.AgentFields{
		ChatID:             f.Text("chatId"),
		Model:              f.choice("model", settings.Tiers),
		MemoryPreset:       f.choice("memoryPreset", settings.MemoryPresets),
		SyncResponse:       f.Boolean("syncResponse"),
		ResponseJSONSchema: f.Object("responseJsonSchema"),
		CallbackURL:        f.Text("callbackUrl"),
		Deliver:            f.Boolean("deliver"),
		Channel:            f.Text("channel"),
		To:                 f.Text("to"),
		TimeoutSeconds:     f.seconds("timeoutSeconds"),
		QueueTimeSeconds:   f.seconds("queueTimeSeconds"),
		Metadata:           f.Object("metadata"),
	}
	if agent.ResponseJSONSchema != nil {
		agent.ResponseValidationModelTier = f.choice("responseValidationModelTier", settings.Tiers)
	}
	if f.Err != nil {
		return nil, f.Err
	}
	if strings.TrimSpace(message) == "" {
		if _, ok := f.Given("text"); ok {
			return nil, settings.FieldErrorf("message", "is missing: agent takes its prompt as message, not as text")
		}
		return nil, settings.FieldErrorf("message", "is missing or blank: it must hold the prompt")
	}
	if len(name) > 256 {
		return nil, settings.FieldErrorf("name", "must not be longer than 256 bytes")
	}
	if emptyCallback && agent.CallbackURL == "" {
		return nil, settings.FieldErrorf("callbackUrl", "must not be empty; leave it out for no callback")
	}
	if err := agent.Check(active.Rules); err != nil {
		return nil, err
	}
	req.noteMisspelt(agent.ResponseJSONSchema)
	if _, ok := f.Given("deliver"); !ok {
		req.noteUndelivered(&agent)
	}
	run := agentRun(&agent, active)
	run.Hook, run.Name, run.Message = "agent", name, message
	run.ChatID = agent.ChatID
	if run.ChatID == "" {
		newChat(run)
	}
	return run, nil
}

// agentRun makes a run of the fields. The caller adds hook, chat and message.
func agentRun(f *settings.AgentFields, active *settings.Active) *engine.Run {
	run := &engine.Run{
		Action:         engine.Agent,
		Metadata:       f.Metadata,
		Tier:           f.Model,
		ValidationTier: f.ResponseValidationModelTier,
		MemoryPreset:   cmp.Or(f.MemoryPreset, active.MemoryPreset),
		Schema:         f.ResponseJSONSchema,
		Sync:           f.SyncResponse,
		CallbackURL:    f.CallbackURL,
		Timeout:        cmp.Or(time.Duration(f.TimeoutSeconds)*time.Second, active.DefaultTimeout),
		QueueTime:      queueTime(f),
	}
	if f.Deliver {
		run.Channel, run.To = f.Channel, f.To
	}
	return run
}

// queueTime is 0 if none is set.
func queueTime(f *settings.AgentFields) time.Duration {
	return time.Duration(f.QueueTimeSeconds) * time.Second
}

// IntakeCustom renders the messages of a custom hook from any JSON, from a form, or from CloudEvents.
func IntakeCustom(active *settings.Active, h *settings.Hook, req *Request) ([]*engine.Run, error) {
	req.Messages.Release() // if they were made under earlier settings
	body, err := parseUnlessIgnored(active, h, req)
	if err != nil {
		return nil, err
	}
	idPlaceholder := ""
	if h.NamesRun {
		idPlaceholder = uuid.NewString()
	}
	inputs, err := templateInputs(h, req, body, idPlaceholder)
	if err != nil {
		return nil, err
	}
	runs := make([]*engine.Run, len(inputs))
	size := 0
	for i, input := range inputs {
		message, err := messageOf(h, input, body)
		chatID := chatOf(h, input)
		if req.Messages.refused != nil {
			return nil, req.Messages.refused
		}
		if err != nil && (input.Each || body.isBatch) {
			return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("The message made from item %d of this body is blank.", i+1),
				Reason: "the message that a match of each gives is blank"}
		}
		if err != nil {
			return nil, err
		}
		to, err := chosenChat(h, input)
		if err != nil {
			return nil, err
		}
		if size += len(message); i > 0 && size > maxMessages {
			return nil, errMessagesTooLarge
		}
		req.Messages.settle(size)
		runs[i] = newRun(h, active, message, chatID)
		runs[i].IDPlaceholder = idPlaceholder
		if body.events != nil && req.Header.Get(h.IdempotencyHeader) == "" {
			runs[i].RequestID = EventID(body.events[i].ID)
		}
		if to != "" {
			runs[i].To = to
		}
		if h.SenderTemplate != nil { // a value that is missing is nobody's, and asked about each time
			runs[i].Sender, _ = h.SenderTemplate.Strict(input, maxSender)
		}
		runs[i].Asks, runs[i].Budgets = h.Asks, h.Spending.Accounts(input)
		h.Gate(runs[i], input)
	}
	return runs, nil
}

const (
	// maxMatches bounds the runs of one request.
	maxMatches = 100

	// maxMessages bounds the messages of the runs of one request together.
	maxMessages = 16 << 20
)

var (
	errTooManyMatches = &api.Error{Status: http.StatusRequestEntityTooLarge,
		Message: fmt.Sprintf("The body has more than %d of the items that become runs, which is the most that one request may have.", maxMatches),
		Reason:  fmt.Sprintf("each has more than %d matches", maxMatches)}
	errMatchesUndecided = &api.Error{Status: http.StatusRequestEntityTooLarge,
		Message: "The items that become runs take too long to find in this body.", Reason: "the matches of each take too long to find"}
	errMessagesTooLarge = &api.Error{Status: http.StatusRequestEntityTooLarge,
		Message: fmt.Sprintf("The messages made from this body are larger than %d MB together.", maxMessages>>20),
		Reason:  fmt.Sprintf("the messages of all matches of each are larger than %d MB together", maxMessages>>20)}
)

// errMessagesNeverFit is for a request that would be refused however often it is sent.
var errMessagesNeverFit = &api.Error{Status: http.StatusRequestEntityTooLarge,
	Message: "The messages made from this body are larger than all the memory for requests.",
	Reason:  "the messages of one request are larger than max_memory"}

var errValuesNeverFit = &api.Error{Status: http.StatusRequestEntityTooLarge,
	Message: "The values in this body take more than all the memory for requests.",
	Reason:  "the values in the body of one request take more than max_memory"}

// ErrNeverFit is for a request that would be refused however often it is sent.
var ErrNeverFit = &api.Error{Status: http.StatusRequestEntityTooLarge,
	Message: "The body has more of the items that become runs than the queue can hold.",
	Reason:  "each has more matches than queue_limit or chat_limit allow"}

// NeverFit reports whether runs of one request are too many even for an empty queue.
func NeverFit(limits *engine.Limits, runs []*engine.Run) bool {
	ofChat, most := make(map[string]int), 0
	for _, run := range runs {
		ofChat[run.ChatID]++
		most = max(most, ofChat[run.ChatID])
	}
	return limits.Queue > 0 && len(runs) > limits.Queue || limits.Chat > 0 && most > limits.Chat
}

// parseUnlessIgnored parses the body of a request, unless a condition of the hook leaves the request out, or the sender only tries out
// whether the hook is there, or one of our channels wrote the event. A body that is malformed is an error in any case: its sender should
// know.
func parseUnlessIgnored(active *settings.Active, h *settings.Hook, req *Request) (payload, error) {
	f := Filtering(h, req)
	selected := h.Selected
	condition := f.ignoredBy(h.Filters[:h.OfBody])
	if condition != "" {
		selected = h.Checked // nobody will look at more
	}
	body, err := ParseBody(h, req, selected)
	if err != nil {
		return payload{}, err
	}
	req.Doc, req.IsBatch, req.Events = body.Doc, body.isBatch, nil
	for _, event := range body.events {
		req.Events = append(req.Events, event.ID)
	}
	if h.Auth.Scheme != nil { // which a preview does without
		if answer := h.Auth.Challenge(body.Doc); answer != nil {
			return payload{}, &ChallengeError{answer}
		}
	}
	if condition == "" {
		condition = f.ignores(h.Filters[h.OfBody:], &body)
	}
	if f.undecided != "" {
		noteUndecided(h, req.Log, f.undecided)
	}
	if condition != "" {
		return payload{}, &IgnoredError{condition}
	}
	return body, checkAuthor(active, h, body.Doc)
}

// ChallengeError says that the sender tries out whether the hook is there, and how it is answered. It is no error to the sender.
type ChallengeError struct{ Answer *settings.SchemeAnswer }

func (*ChallengeError) Error() string { return "the sender tries the hook out" }

// templateInputs are what the templates of each run of a request are rendered from. idPlaceholder stands for the id of the run.
func templateInputs(h *settings.Hook, req *Request, body payload, idPlaceholder string) ([]template.Input, error) {
	input := template.Input{Body: body.Doc, Source: sources(h, req, idPlaceholder, time.Now().UTC().Format(time.RFC3339)),
		Reserve: req.Messages.reserve}
	if body.isBatch {
		inputs := make([]template.Input, len(body.events))
		for i, event := range body.events {
			inputs[i] = input
			inputs[i].Body = event.Doc
		}
		return inputs, nil
	}
	if h.EachMatch == nil {
		return []template.Input{input}, nil
	}
	matches, more, decided := h.EachMatch.Find(body.Doc, maxMatches)
	switch {
	case !decided:
		return nil, errMatchesUndecided
	case more:
		return nil, errTooManyMatches
	case len(matches) == 0:
		return nil, &IgnoredError{oneline.Of("each "+h.Each, settings.MaxFilterText)}
	}
	inputs := make([]template.Input, len(matches))
	for i, match := range matches {
		inputs[i] = input
		inputs[i].Body, inputs[i].Root, inputs[i].Each = match, body.Doc, true
	}
	return inputs, nil
}

// messageOf renders the message of a run.
func messageOf(h *settings.Hook, input template.Input, body payload) (message string, err error) {
	switch {
	case h.Template.Blank() && body.json != nil && !input.Each:
		if input.Reserve(len(body.json)) {
			message = string(body.json)
		}
	case h.Template.Blank():
		message = wholeBody.Render(input)
	case marksValues(h):
		message = h.Template.RenderMarked(input, untrusted.NewMarker().WrapValue)
	default:
		message = h.Template.Render(input)
	}
	if strings.TrimSpace(message) == "" {
		return "", &api.Error{Status: http.StatusBadRequest, Message: "The message made from this body is blank."}
	}
	if marksWhole(h) {
		message = untrusted.Wrap(message)
	}
	return message, nil
}

// newRun makes a run of a message for a chat, which is a new one if it is "".
func newRun(h *settings.Hook, active *settings.Active, message, chatID string) *engine.Run {
	if h.Action == engine.Wake {
		return &engine.Run{
			Hook: h.Name, Action: engine.Wake, ChatID: chatID,
			Message: message, Metadata: h.Metadata,
			MemoryPreset: active.MemoryPreset, Timeout: active.DefaultTimeout, QueueTime: queueTime(&h.Mapping.AgentFields),
		}
	}
	run := agentRun(&h.AgentFields, active)
	run.Hook, run.Message, run.ChatID = h.Name, message, chatID
	if chatID == "" {
		newChat(run)
	}
	return run
}

// marksValues reports whether each value that the template inserts is marked as data from outside.
func marksValues(h *settings.Hook) bool {
	return h.Action == engine.Agent && h.Untrusted == "wrap" && !h.Template.Blank()
}

// marksWhole reports whether the whole message is marked.
func marksWhole(h *settings.Hook) bool {
	return h.Action == engine.Wake || h.Untrusted == "wrap" && h.Template.Blank()
}

// chatOf is the chat that a run is for, "" for a new one.
func chatOf(h *settings.Hook, input template.Input) string {
	chatID := ""
	if !h.ChatTemplate.Blank() {
		chatID = fitChatID(h.ChatTemplate.Render(input))
	}
	if h.Action == engine.Wake {
		return cmp.Or(chatID, defaultWakeChat)
	}
	return chatID
}

// fitChatID makes a valid chat id of a rendered template. It refuses nothing, since senders cannot change their payloads.
func fitChatID(value string) string {
	value = strings.TrimSpace(strings.Map(func(r rune) rune {
		if text.IsControl(r) {
			return -1
		}
		return r
	}, value))
	if len(value) <= settings.MaxChatID {
		return value
	}
	// Different long ids that begin alike must stay different.
	digest := sha256.Sum256([]byte(value))
	suffix := "~" + hex.EncodeToString(digest[:8])
	cut := settings.MaxChatID - len(suffix)
	for !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut] + suffix
}

// RequestFields reads the members of a request by their types. The first member of a wrong type is its error. A null member
// counts as absent.
type RequestFields struct {
	Members  []strictjson.Member
	other    []string // the first keys that are not selected
	Selected *strictjson.Selection
	Err      error
}

func readFields(body []byte, selected *strictjson.Selection) (RequestFields, error) {
	obj, err := strictjson.ParseObject(body, selected)
	return RequestFields{Members: obj.Members, other: obj.Other, Selected: selected}, err
}

// Given returns a member that is present and not null.
func (f *RequestFields) Given(name string) (strictjson.Member, bool) {
	for _, m := range f.Members {
		if m.Key == name {
			return m, m.Value != nil
		}
	}
	if !f.Selected.Has(name) {
		panic("the field " + name + " is read, but not selected")
	}
	return strictjson.Member{}, false
}

func (f *RequestFields) Wrong(name, want string) {
	if f.Err == nil {
		f.Err = settings.FieldErrorf(name, "must be %s", want)
	}
}

func (f *RequestFields) Text(name string) string {
	m, ok := f.Given(name)
	if !ok {
		return ""
	}
	s, ok := m.Value.(string)
	if !ok {
		f.Wrong(name, "a string")
	}
	return s
}

func (f *RequestFields) choice(name string, allowed []string) string {
	s := f.Text(name)
	if _, ok := f.Given(name); ok && !slices.Contains(allowed, s) {
		f.Wrong(name, "one of "+strings.Join(allowed, ", "))
	}
	return s
}

func (f *RequestFields) Boolean(name string) bool {
	m, ok := f.Given(name)
	if !ok {
		return false
	}
	b, ok := m.Value.(bool)
	if !ok {
		f.Wrong(name, "true or false")
	}
	return b
}

// seconds reads a number of seconds of at least 1. It returns 0 if there is none.
func (f *RequestFields) seconds(name string) int {
	m, ok := f.Given(name)
	if !ok {
		return 0
	}
	number, _ := m.Value.(json.Number)
	n, err := number.Int64()
	if err != nil {
		f.Wrong(name, "a whole number")
		return 0
	}
	if n < 1 {
		f.Wrong(name, "at least 1")
		return 0
	}
	return int(n)
}

// Object returns an object as it is written in the body.
func (f *RequestFields) Object(name string) json.RawMessage {
	m, ok := f.Given(name)
	if !ok {
		return nil
	}
	if _, ok := m.Value.(map[string]any); !ok {
		f.Wrong(name, "an object")
		return nil
	}
	return bytes.Clone(m.Raw)
}
