package caddyhooks

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
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/untrusted"
)

// intake makes runs of a request to the named hook: one or, with each, several. Errors are for the caller, and an *ignoredError
// or a *challengeError says that there is none.
func intake(active *activeSettings, name string, custom *hook, req *incoming) ([]*engine.Run, error) {
	var runs []*engine.Run
	var err error
	if custom != nil {
		runs, err = intakeCustom(active, custom, req)
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
		return nil, err
	}
	for _, run := range runs {
		run.QueueTime = cmp.Or(run.QueueTime, active.rules.queueTime)
		if custom != nil {
			run.Runner = custom.Runner
		}
		run.Runner = cmp.Or(run.Runner, active.rules.runners.of(run.TurnTier()))
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
	return &httpError{status: http.StatusBadRequest, message: fmt.Sprintf("The body is not the JSON that is expected here: %v.", err),
		reason: "the body is not the JSON that is expected here"}
}

var (
	errFormBody    = errors.New("it looks like a form, as in name=value; choose application/json as the content type in the settings of the sender")
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
func intakeWake(active *activeSettings, req *incoming) (*engine.Run, error) {
	f, err := readFields(req.body, wakeFields)
	if err != nil {
		return nil, malformed(req.body, err, errFormBody)
	}
	req.warning = ""
	req.noteUnknown(f.other, wakeFieldNames)
	text := f.text("text")
	chatID := f.text("chatId")
	metadata := f.object("metadata")
	if f.err != nil {
		return nil, f.err
	}
	if strings.TrimSpace(text) == "" {
		if _, ok := f.given("message"); ok {
			return nil, fieldErrorf("text", "is missing: wake takes its event as text, not as message")
		}
		return nil, fieldErrorf("text", "is missing or blank: it must hold the text of the event")
	}
	if err := checkChatID(chatID); err != nil {
		return nil, err
	}
	return &engine.Run{
		Hook: "wake", Action: engine.Wake, ChatID: cmp.Or(chatID, defaultWakeChat),
		Message: untrusted.Wrap(text), Metadata: metadata,
		MemoryPreset: active.memoryPreset, Timeout: active.defaultTimeout,
	}, nil
}

const defaultWakeChat = "webhook:default"

// newChat gives a run a chat of its own. The id of the chat tells about when that was, so that the run can be found by it.
func newChat(run *engine.Run) {
	run.ChatID, run.NewChat = "hook:"+uuid.Must(uuid.NewV7()).String(), true
}

// intakeAgent reads a request for a full run.
func intakeAgent(active *activeSettings, req *incoming) (*engine.Run, error) {
	f, err := readFields(req.body, agentFields)
	if err != nil {
		return nil, malformed(req.body, err, errFormBody)
	}
	req.warning = ""
	req.noteUnknown(f.other, agentFieldNames)
	message := f.text("message")
	name := f.text("name")
	_, emptyCallback := f.given("callbackUrl")
	agent := AgentFields{
		ChatID:             f.text("chatId"),
		Model:              f.choice("model", tiers),
		MemoryPreset:       f.choice("memoryPreset", memoryPresets),
		SyncResponse:       f.boolean("syncResponse"),
		ResponseJSONSchema: f.object("responseJsonSchema"),
		CallbackURL:        f.text("callbackUrl"),
		Deliver:            f.boolean("deliver"),
		Channel:            f.text("channel"),
		To:                 f.text("to"),
		TimeoutSeconds:     f.seconds("timeoutSeconds"),
		QueueTimeSeconds:   f.seconds("queueTimeSeconds"),
		Metadata:           f.object("metadata"),
	}
	if agent.ResponseJSONSchema != nil {
		agent.ResponseValidationModelTier = f.choice("responseValidationModelTier", tiers)
	}
	if f.err != nil {
		return nil, f.err
	}
	if strings.TrimSpace(message) == "" {
		if _, ok := f.given("text"); ok {
			return nil, fieldErrorf("message", "is missing: agent takes its prompt as message, not as text")
		}
		return nil, fieldErrorf("message", "is missing or blank: it must hold the prompt")
	}
	if len(name) > 256 {
		return nil, fieldErrorf("name", "must not be longer than 256 bytes")
	}
	if emptyCallback && agent.CallbackURL == "" {
		return nil, fieldErrorf("callbackUrl", "must not be empty; leave it out for no callback")
	}
	if err := agent.check(active.rules); err != nil {
		return nil, err
	}
	req.noteMisspelt(agent.ResponseJSONSchema)
	run := agent.run(active)
	run.Hook, run.Name, run.Message = "agent", name, message
	run.ChatID = agent.ChatID
	if run.ChatID == "" {
		newChat(run)
	}
	return run, nil
}

// run makes a run of the fields. The caller adds hook, chat and message.
func (f *AgentFields) run(active *activeSettings) *engine.Run {
	run := &engine.Run{
		Action:         engine.Agent,
		Metadata:       f.Metadata,
		Tier:           f.Model,
		ValidationTier: f.ResponseValidationModelTier,
		MemoryPreset:   cmp.Or(f.MemoryPreset, active.memoryPreset),
		Schema:         f.ResponseJSONSchema,
		Sync:           f.SyncResponse,
		CallbackURL:    f.CallbackURL,
		Timeout:        cmp.Or(time.Duration(f.TimeoutSeconds)*time.Second, active.defaultTimeout),
		QueueTime:      f.queueTime(),
	}
	if f.Deliver {
		run.Channel, run.To = f.Channel, f.To
	}
	return run
}

// queueTime is 0 if none is set.
func (f *AgentFields) queueTime() time.Duration {
	return time.Duration(f.QueueTimeSeconds) * time.Second
}

// intakeCustom renders the messages of a custom hook from any JSON, or from a form.
func intakeCustom(active *activeSettings, h *hook, req *incoming) ([]*engine.Run, error) {
	body, err := h.filter(req)
	if err != nil {
		return nil, err
	}
	hole := ""
	if h.namesRun {
		hole = uuid.NewString()
	}
	inputs, err := h.inputs(req, body, hole)
	if err != nil {
		return nil, err
	}
	runs := make([]*engine.Run, len(inputs))
	size := 0
	req.messages.release() // if they were made under earlier settings
	for i, input := range inputs {
		message, err := h.messageOf(input, body)
		chatID := h.chatOf(input)
		if req.messages.refused != nil {
			return nil, req.messages.refused
		}
		if err != nil && input.Each {
			return nil, &httpError{status: http.StatusBadRequest, message: fmt.Sprintf("The message that item %d of this body gives is blank.", i+1),
				reason: "the message that a match of each gives is blank"}
		}
		if err != nil {
			return nil, err
		}
		if size += len(message); i > 0 && size > maxMessages {
			return nil, errMessagesTooLarge
		}
		req.messages.settle(size)
		runs[i] = h.newRun(active, message, chatID)
		runs[i].Hole = hole
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
	errTooManyMatches = &httpError{status: http.StatusRequestEntityTooLarge,
		message: fmt.Sprintf("The body has more than %d of the items that become runs, which is the most that one request may have.", maxMatches),
		reason:  fmt.Sprintf("each has more than %d matches", maxMatches)}
	errMatchesUndecided = &httpError{status: http.StatusRequestEntityTooLarge,
		message: "The items that become runs take too long to find in this body.", reason: "the matches of each take too long to find"}
	errMessagesTooLarge = &httpError{status: http.StatusRequestEntityTooLarge,
		message: fmt.Sprintf("The messages that this body gives are larger than %d MB together.", maxMessages>>20),
		reason:  fmt.Sprintf("the messages of all matches of each are larger than %d MB together", maxMessages>>20)}
)

// errMessagesNeverFit is for a request that would be refused however often it is sent.
var errMessagesNeverFit = &httpError{status: http.StatusRequestEntityTooLarge,
	message: "The messages that this body gives are larger than all the memory for requests.",
	reason:  "the messages of one request are larger than max_memory"}

// errNeverFit is for a request that would be refused however often it is sent.
var errNeverFit = &httpError{status: http.StatusRequestEntityTooLarge,
	message: "The body has more of the items that become runs than the queue can hold.",
	reason:  "each has more matches than queue_limit or chat_limit allow"}

// neverFit reports whether runs of one request are too many even for an empty queue.
func neverFit(limits *engine.Limits, runs []*engine.Run) bool {
	ofChat, most := make(map[string]int), 0
	for _, run := range runs {
		ofChat[run.ChatID]++
		most = max(most, ofChat[run.ChatID])
	}
	return limits.Queue > 0 && len(runs) > limits.Queue || limits.Chat > 0 && most > limits.Chat
}

// filter parses the body of a request, unless a condition of the hook leaves the request out, or the sender only tries out whether
// the hook is there. A body that is malformed is an error in any case: its sender should know.
func (h *hook) filter(req *incoming) (payload, error) {
	f := h.filtering(req)
	selected := h.selected
	condition := f.ignoredBy(h.filters[:h.ofBody])
	if condition != "" {
		selected = h.checked // nobody will look at more
	}
	body, err := h.parseBody(req, selected)
	if err != nil {
		return payload{}, err
	}
	req.doc = body.doc
	if h.auth.scheme != nil { // which a preview does without
		if answer := h.auth.challenge(body.doc); answer != nil {
			return payload{}, &challengeError{answer}
		}
	}
	if condition == "" {
		f.input.Body = body.doc
		condition = f.ignoredBy(h.filters[h.ofBody:])
	}
	if f.undecided != "" {
		h.noteUndecided(req.log, f.undecided)
	}
	if condition != "" {
		return payload{}, &ignoredError{condition}
	}
	return body, nil
}

// challengeError says that the sender tries out whether the hook is there, and how it is answered. It is no error to the sender.
type challengeError struct{ answer *schemeAnswer }

func (*challengeError) Error() string { return "the sender tries the hook out" }

// inputs are what the templates of each run of a request are rendered from. hole stands for the id of the run.
func (h *hook) inputs(req *incoming, body payload, hole string) ([]template.Input, error) {
	input := template.Input{Body: body.doc, Source: h.sources(req, hole, time.Now().UTC().Format(time.RFC3339)), Reserve: req.messages.reserve}
	if h.each == nil {
		return []template.Input{input}, nil
	}
	matches, more, decided := h.each.Find(body.doc, maxMatches)
	switch {
	case !decided:
		return nil, errMatchesUndecided
	case more:
		return nil, errTooManyMatches
	case len(matches) == 0:
		return nil, &ignoredError{oneline.Of("each "+h.Each, maxFilterText)}
	}
	inputs := make([]template.Input, len(matches))
	for i, match := range matches {
		inputs[i] = input
		inputs[i].Body, inputs[i].Root, inputs[i].Each = match, body.doc, true
	}
	return inputs, nil
}

// messageOf renders the message of a run.
func (h *hook) messageOf(input template.Input, body payload) (message string, err error) {
	switch {
	case h.template.Blank() && body.json != nil && !input.Each:
		if input.Reserve(len(body.json)) {
			message = string(body.json)
		}
	case h.template.Blank():
		message = wholeBody.Render(input)
	case h.marksValues():
		message = h.template.RenderMarked(input, untrusted.NewMarker().WrapValue)
	default:
		message = h.template.Render(input)
	}
	if strings.TrimSpace(message) == "" {
		return "", &httpError{status: http.StatusBadRequest, message: "The message that this body gives is blank."}
	}
	if h.marksWhole() {
		message = untrusted.Wrap(message)
	}
	return message, nil
}

// newRun makes a run of a message for a chat, which is a new one if it is "".
func (h *hook) newRun(active *activeSettings, message, chatID string) *engine.Run {
	if h.Action == engine.Wake {
		return &engine.Run{
			Hook: h.Name, Action: engine.Wake, ChatID: chatID,
			Message: message, Metadata: h.Metadata,
			MemoryPreset: active.memoryPreset, Timeout: active.defaultTimeout, QueueTime: h.queueTime(),
		}
	}
	run := h.AgentFields.run(active)
	run.Hook, run.Message, run.ChatID = h.Name, message, chatID
	if chatID == "" {
		newChat(run)
	}
	return run
}

// marksValues reports whether each value that the template inserts is marked as data from outside.
func (h *hook) marksValues() bool {
	return h.Action == engine.Agent && h.Untrusted == "wrap" && !h.template.Blank()
}

// marksWhole reports whether the whole message is marked.
func (h *hook) marksWhole() bool {
	return h.Action == engine.Wake || h.Untrusted == "wrap" && h.template.Blank()
}

// chatOf is the chat that a run is for, "" for a new one.
func (h *hook) chatOf(input template.Input) string {
	chatID := ""
	if !h.chatID.Blank() {
		chatID = fitChatID(h.chatID.Render(input))
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
	if len(value) <= maxChatID {
		return value
	}
	// Different long ids that begin alike must stay different.
	digest := sha256.Sum256([]byte(value))
	suffix := "~" + hex.EncodeToString(digest[:8])
	cut := maxChatID - len(suffix)
	for !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut] + suffix
}

// requestFields reads the members of a request by their types. The first member of a wrong type is its error. A null member
// counts as absent.
type requestFields struct {
	members  []strictjson.Member
	other    []string // the first keys that are not selected
	selected *strictjson.Selection
	err      error
}

func readFields(body []byte, selected *strictjson.Selection) (requestFields, error) {
	obj, err := strictjson.ParseObject(body, selected)
	return requestFields{members: obj.Members, other: obj.Other, selected: selected}, err
}

// given returns a member that is present and not null.
func (f *requestFields) given(name string) (strictjson.Member, bool) {
	for _, m := range f.members {
		if m.Key == name {
			return m, m.Value != nil
		}
	}
	if !f.selected.Has(name) {
		panic("the field " + name + " is read, but not selected")
	}
	return strictjson.Member{}, false
}

func (f *requestFields) wrong(name, want string) {
	if f.err == nil {
		f.err = fieldErrorf(name, "must be %s", want)
	}
}

func (f *requestFields) text(name string) string {
	m, ok := f.given(name)
	if !ok {
		return ""
	}
	s, ok := m.Value.(string)
	if !ok {
		f.wrong(name, "a string")
	}
	return s
}

func (f *requestFields) choice(name string, allowed []string) string {
	s := f.text(name)
	if _, ok := f.given(name); ok && !slices.Contains(allowed, s) {
		f.wrong(name, "one of "+strings.Join(allowed, ", "))
	}
	return s
}

func (f *requestFields) boolean(name string) bool {
	m, ok := f.given(name)
	if !ok {
		return false
	}
	b, ok := m.Value.(bool)
	if !ok {
		f.wrong(name, "true or false")
	}
	return b
}

// seconds reads a number of seconds of at least 1. It returns 0 if there is none.
func (f *requestFields) seconds(name string) int {
	m, ok := f.given(name)
	if !ok {
		return 0
	}
	number, _ := m.Value.(json.Number)
	n, err := number.Int64()
	if err != nil {
		f.wrong(name, "a whole number")
		return 0
	}
	if n < 1 {
		f.wrong(name, "at least 1")
		return 0
	}
	return int(n)
}

// object returns an object as it is written in the body.
func (f *requestFields) object(name string) json.RawMessage {
	m, ok := f.given(name)
	if !ok {
		return nil
	}
	if _, ok := m.Value.(map[string]any); !ok {
		f.wrong(name, "an object")
		return nil
	}
	return bytes.Clone(m.Raw)
}
