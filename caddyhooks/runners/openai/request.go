package openai

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// modelRequest is a turn as it is sent. A server may refuse parts of it, and is then asked again without them.
type modelRequest struct {
	runner   *OpenAI
	turn     *engine.Turn
	model    string // of the turn, whether it stands in the body or in a header
	messages []byte
	format   json.RawMessage // of the answer, nil if it is not asked for
	session  string          // as the server named it, "" if it did not
	usage    bool            // whether a stream is to tell what was used
	tries    int
	sent     atomic.Bool
}

// ask carries out the turn. Its errors may show a secret.
func (o *OpenAI) ask(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	r, err := o.newRequest(ctx, &turn)
	if err != nil {
		return engine.Reply{}, err
	}
	for {
		reply, again, err := r.post(ctx)
		if !again {
			return reply, err
		}
	}
}

func (o *OpenAI) newRequest(ctx context.Context, turn *engine.Turn) (*modelRequest, error) {
	r := &modelRequest{runner: o, turn: turn, model: o.modelFor(turn)}
	var past []engine.PastTurn
	var err error
	switch turns := o.historyFor(turn); {
	case turn.Chat == nil:
	case o.SessionFrom != "":
		if r.session, err = turn.Chat.Session(ctx); err != nil {
			return nil, fmt.Errorf("reading the session of the chat: %w", err)
		}
	case turns > 0:
		if past, err = turn.Chat.Past(ctx, turns, o.historyBytes()); err != nil {
			return nil, fmt.Errorf("reading the history of the chat: %w", err)
		}
	}
	if turn.ResponseSchema != nil && !o.formats.refused(r.model) {
		r.format = o.responseFormat(turn.ResponseSchema)
	}
	r.usage = o.streams() && !o.more.streamOptions && !o.usages.refused(r.model)
	r.messages, err = encodeMessages(o.systemText(turn, past), past, turn.Message)
	return r, err
}

// modelFor returns the model for a turn: that of its tier, else that of its memory preset, else the runner's.
func (o *OpenAI) modelFor(turn *engine.Turn) string {
	if model := o.tiers[turn.Tier]; model != "" {
		return model
	}
	if turn.Chat != nil && o.memory[turn.MemoryPreset].Model != "" {
		return o.memory[turn.MemoryPreset].Model
	}
	return o.model
}

// historyFor returns how many turns of the chat are sent along.
func (o *OpenAI) historyFor(turn *engine.Turn) int {
	if turn.Chat == nil || o.serverKeepsChat() {
		return 0
	}
	turns, ok := presetHistory[turn.MemoryPreset]
	if !ok {
		turns = otherHistory
	}
	if memory := o.memory[turn.MemoryPreset]; memory.History != nil {
		turns = *memory.History
	}
	if o.History != nil {
		turns = min(turns, *o.History)
	}
	return turns
}

func (o *OpenAI) historyBytes() int {
	if o.HistoryBytes > 0 {
		return int(o.HistoryBytes)
	}
	return defaultHistoryBytes
}

// SystemText is the text of the operator, and then ours.
func (o *OpenAI) systemText(turn *engine.Turn, past []engine.PastTurn) string {
	fromFile := ""
	if o.systemFile != nil {
		fromFile = o.systemFile.read()
	}
	return turns.SystemText(turn, past, o.System, fromFile)
}

// chatMessage is one of the messages of a request.
type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func encodeMessages(system string, past []engine.PastTurn, message string) ([]byte, error) {
	messages := make([]chatMessage, 0, 2*len(past)+2)
	if system != "" {
		messages = append(messages, chatMessage{"system", system})
	}
	for _, turn := range past {
		// Many servers refuse an empty message, and half a turn makes no sense.
		if strings.TrimSpace(turn.Message) != "" && strings.TrimSpace(turn.Reply) != "" {
			messages = append(messages, chatMessage{"user", turn.Message}, chatMessage{"assistant", turn.Reply})
		}
	}
	return turns.EncodeJSON(append(messages, chatMessage{"user", message}))
}

// responseFormat is how the server gets the schema. It is not called strict: OpenAI's strict mode refuses most schemas
// that people write, and the answer is checked here in any case.
func (o *OpenAI) responseFormat(schema json.RawMessage) json.RawMessage {
	switch o.ResponseFormat {
	case "off":
		return nil
	case "json_object":
		return json.RawMessage(`{"type":"json_object"}`)
	default:
		format := make([]byte, 0, len(schema)+64)
		if o.Background > 0 {
			format = append(format, `{"type":"json_schema","name":"answer","strict":false,"schema":`...)
			return append(append(format, schema...), '}')
		}
		format = append(format, `{"type":"json_schema","json_schema":{"name":"answer","schema":`...)
		return append(append(format, schema...), `}}`...)
	}
}

// requestMembers are the operator's members of a request, each after a comma.
type requestMembers struct {
	format        []byte // of the answer, which stands aside for that of a schema
	others        []byte
	streamOptions bool // whether stream_options is among the others
}

// errBody quotes nothing: a body may hold a secret.
var errBody = errors.New(`body must be a JSON object, such as {"temperature": 0.2}`)

// reservedMembers are those members of a request that are not the operator's alone.
type reservedMembers struct {
	own    []string // of the runner
	format string   // stands aside for that of a schema
	errOwn error
}

var chatMembers = &reservedMembers{
	[]string{"model", "messages", "stream"}, "response_format", errors.New("body must not set model, messages or stream"),
}

// reserved are the members of the API that is used.
func (o *OpenAI) reserved() *reservedMembers {
	if o.Background > 0 {
		return responseMembers
	}
	return chatMembers
}

func parseMembers(body []byte, reserved *reservedMembers) (members requestMembers, err error) {
	if len(body) == 0 {
		return members, nil
	}
	all := new(strictjson.Selection)
	all.SelectAll()
	object, err := strictjson.ParseObject(body, all)
	if err != nil {
		return members, errBody
	}
	for _, member := range object.Members {
		to := &members.others
		switch name := strings.ToLower(member.Key); { // servers in Go take any spelling, and the last one
		case slices.Contains(reserved.own, name):
			return members, reserved.errOwn
		case name == reserved.format:
			to = &members.format
		case name == "stream_options":
			members.streamOptions = true
		}
		key, err := turns.EncodeJSON(member.Key)
		if err != nil {
			return members, err
		}
		*to = append(append(append(append(*to, ','), key...), ':'), member.Raw...)
	}
	return members, nil
}

// body is the request as JSON.
func (r *modelRequest) body() ([]byte, error) {
	o := r.runner
	model := r.model
	if o.ModelHeader != "" {
		model = o.model
	}
	name, err := turns.EncodeJSON(model)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, len(r.messages)+len(r.format)+len(o.more.others)+len(o.more.format)+len(name)+128)
	body = append(append(body, `{"model":`...), name...)
	body = append(append(body, `,"messages":`...), r.messages...)
	body = fmt.Appendf(body, `,"stream":%t`, o.streams())
	if r.usage {
		body = append(body, `,"stream_options":{"include_usage":true}`...)
	}
	if r.format != nil {
		body = append(append(body, `,"response_format":`...), r.format...)
	} else if r.turn.ResponseSchema == nil {
		body = append(body, o.more.format...)
	}
	return append(append(body, o.more.others...), '}'), nil
}

func (r *modelRequest) encode(ctx context.Context) (*http.Request, error) {
	body, err := r.body()
	if err != nil {
		return nil, err
	}
	req, err := r.newRequest(ctx, http.MethodPost, r.runner.endpoint, body)
	if err == nil && r.runner.streams() {
		req.Header.Set("Accept", "text/event-stream, application/json")
	}
	return req, err
}

// newRequest is a request to the server. One with a body carries the turn.
func (r *modelRequest) newRequest(ctx context.Context, method, to string, body []byte) (*http.Request, error) {
	o := r.runner
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	// With an Idempotency-Key, net/http would send the request again by itself when a connection breaks. Whether a
	// turn is carried out a second time is for the engine to say.
	req.GetBody = nil
	req.Header.Set("User-Agent", "caddyhooks")
	for name, value := range o.headers {
		req.Header.Set(name, value)
	}
	if r.turn.TraceParent != "" {
		req.Header.Set("Traceparent", r.turn.TraceParent)
	}
	if o.ModelHeader != "" && r.model != o.model {
		req.Header.Set(o.ModelHeader, r.model)
	}
	if r.turn.Chat != nil {
		for name, value := range o.memory[r.turn.MemoryPreset].Headers {
			req.Header.Set(name, value)
		}
		switch {
		case r.session != "" && o.SessionHeader != "":
			req.Header.Set(o.SessionHeader, r.session)
		case r.session != "":
			req.Header.Set(o.SessionFrom, r.session)
		case o.SessionHeader != "" && o.SessionFrom == "":
			req.Header.Set(o.SessionHeader, sessionKey(o.SessionPrefix, r.turn.ChatID))
		}
	}
	req.Header.Set("Accept", "application/json")
	if o.key != "" {
		req.Header.Set("Authorization", "Bearer "+o.key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", r.idempotencyKey())
	}
	return req, nil
}

// idempotencyKey differs between the requests of a turn, which differ themselves.
func (r *modelRequest) idempotencyKey() string {
	key := turns.Key(r.turn)
	if r.tries > 1 {
		key += fmt.Sprintf(":%d", r.tries)
	}
	return key
}

// sessionKey is the name of a chat for a server. Two chats never have the same. Capitals are encoded too, since
// there are servers that do not tell them from small letters; a long id becomes a hash, since there are servers that take no
// more than 256 bytes.
func sessionKey(prefix, chat string) string {
	const most, hexDigits = 256, "0123456789abcdef"
	key := []byte(prefix)
	for i := range len(chat) {
		if c := chat[i]; '!' <= c && c <= '~' && c != '%' && (c < 'A' || c > 'Z') {
			key = append(key, c)
		} else {
			key = append(key, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	if len(key) > most {
		sum := sha256.Sum256([]byte(chat))
		return prefix + "%sha256:" + hex.EncodeToString(sum[:]) // no encoded id has a % before an s
	}
	return string(key)
}

// arrived is called when a request is with the server.
func (r *modelRequest) arrived() {
	if !r.sent.Swap(true) && r.turn.Sent != nil {
		r.turn.Sent()
	}
}

// post sends the request and reads the answer. again reports that the server refused a part of the request, which has been
// taken out.
func (r *modelRequest) post(ctx context.Context) (reply engine.Reply, again bool, err error) {
	r.tries++
	err = r.do(ctx, r.encode, func(resp *http.Response, body io.Reader, end context.CancelCauseFunc) (err error) {
		reply, again, err = r.read(resp, body, end)
		return err
	})
	if again {
		return reply, true, nil
	}
	return reply, false, err
}

// do sends a request and has its answer read. end, which read is given, ends the request.
func (r *modelRequest) do(
	turnCtx context.Context, encode func(context.Context) (*http.Request, error),
	read func(resp *http.Response, body io.Reader, end context.CancelCauseFunc) error,
) error {
	o := r.runner
	ctx, end := context.WithCancelCause(turnCtx)
	defer end(nil)
	quiet := &httpcall.Silence{Limit: o.idle, End: end}
	defer quiet.Stop()
	way := &httpcall.Sending{Arrived: r.arrived, Heard: quiet.Heard}
	defer way.End()
	req, err := encode(way.WithTrace(ctx, false, o.idle > 0))
	if err != nil {
		return err
	}
	resp, err := o.HTTPClient().Do(req)
	if err == nil {
		defer resp.Body.Close()
		err = read(resp, quiet.Listen(resp.Body), end)
	} else {
		// Its text would show the URL, which may hold a secret.
		var urlErr *url.Error
		if errors.As(err, &urlErr) {
			err = urlErr.Err
		}
		err = httpcall.CallError(err, way.MayHaveStarted())
	}
	switch silent := httpcall.WasSilent(ctx); {
	case err != nil && silent != nil:
		return silent
	case err == nil && turnCtx.Err() != nil: // it was cancelled while the end of the answer was on its way
		return turnCtx.Err()
	case err == nil:
		httpcall.Drain(resp.Body, end)
	}
	return err
}

// read reads an answer. end ends the request.
func (r *modelRequest) read(resp *http.Response, body io.Reader, end context.CancelCauseFunc) (reply engine.Reply, again bool, err error) {
	o := r.runner
	if resp.StatusCode != http.StatusOK {
		failure := refusedAnswer(resp, o.key != "")
		if r.mend(resp.StatusCode, failure.Text) {
			return reply, true, nil
		}
		return reply, false, o.refusal(resp.StatusCode, outbound.RetryAfter(resp.Header.Get("Retry-After"), time.Now()), failure)
	}
	if r.turn.Chat != nil && o.SessionFrom != "" {
		reply.Session = namedSession(resp.Header.Get(o.SessionFrom))
	}
	if form := httpcall.MediaType(resp.Header.Get("Content-Type")); httpcall.IsPage(form) {
		return reply, false, &answers.Error{Problem: "the runner answered 200 with " + form, Text: httpcall.Beginning(resp), Hint: hintURL}
	}
	if httpcall.IsEncoded(resp.Header) {
		return reply, false, httpcall.ErrEncoded
	}
	var last *time.Timer
	defer func() {
		if last != nil {
			last.Stop()
		}
	}()
	finished := func() {
		if last == nil {
			last = time.AfterFunc(afterFinish, func() { end(httpcall.ErrTurnOver) })
		}
	}
	var used usage.Report
	reply.Text, used, err = readCompletion(body, finished, r.turn.Emit)
	reply.Usage = o.used(r.turn, used)
	if err != nil {
		err = httpcall.ReadingError(err)
		var reported *answers.Error
		if errors.As(err, &reported) && reported.Status != 0 {
			err = o.refusal(reported.Status, 0, err)
		}
	}
	return reply, false, err
}

// refusal is the error of a turn that got a status other than 200. A server that keeps chats is an agent, which may have done something.
func (o *OpenAI) refusal(status int, retryAfter time.Duration, err error) error {
	if o.serverKeepsChat() {
		return answers.AgentRefusal(status, retryAfter, err)
	}
	return answers.ModelRefusal(status, retryAfter, err)
}

// afterFinish is how long a server may take for the end of a stream after it gave a finish reason. Tests shorten it.
var afterFinish = 5 * time.Second

// mend takes out of the request what the server refused, and reports whether there was such a thing.
func (r *modelRequest) mend(status int, answer string) bool {
	refused := status == http.StatusBadRequest || status == http.StatusUnprocessableEntity
	switch {
	case r.usage && refused && namesUsage(answer):
		r.usage = false
		r.runner.usages.refuse(r.model)
		return true
	case r.format != nil && refused && namesFormat(answer):
		r.format = nil
		r.runner.formats.refuse(r.model)
		return true
	case r.session != "" && (status == http.StatusNotFound || status == http.StatusGone): // the server has lost it
		r.session = ""
		return true
	}
	return false
}

// namesFormat reports whether an error is about response_format.
func namesFormat(answer string) bool {
	answer = strings.ToLower(answer)
	return strings.Contains(answer, "response_format") || strings.Contains(answer, "text.format") || strings.Contains(answer, "json_schema") ||
		strings.Contains(answer, "json_object")
}

// namesUsage reports whether an error is about stream_options.
func namesUsage(answer string) bool {
	return strings.Contains(answer, "stream_options") || strings.Contains(answer, "include_usage")
}

// refusals are the models that refused a part of a request not long ago.
type refusals struct {
	mu    sync.Mutex
	until map[string]time.Time // by model: those that are configured
}

// refusalPause is how long a model is not asked for the same again.
const refusalPause = 10 * time.Minute

func newRefusals() *refusals { return &refusals{until: make(map[string]time.Time)} }

func (f *refusals) refuse(model string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until[model] = time.Now().Add(refusalPause)
}

func (f *refusals) refused(model string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.until[model])
}

// namedSession is the name of a session that a server gave, "" if it cannot be sent back.
func namedSession(name string) string {
	const most = 1024
	if name = strings.TrimSpace(name); len(name) > most || !sendable(name) {
		return ""
	}
	return name
}

// watchedText is the text in a file that may change.
type watchedText struct {
	path string
	log  *zap.Logger

	mu      sync.Mutex
	seen    os.FileInfo // as it was when the text was read
	text    string
	problem bool // which was logged
}

// watchText reads the file. Its errors are made to follow the name of the option.
func watchText(path string, log *zap.Logger) (*watchedText, error) {
	w := &watchedText{path: path, log: log}
	return w, w.update()
}

// read returns the text as it is now, or as it was if the file cannot be read now.
func (w *watchedText) read() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.update(); err == nil {
		w.problem = false
	} else if !w.problem {
		w.problem = true
		w.log.Warn("system_file unreadable; keeping its last text", zap.Error(err))
	}
	return w.text
}

func (w *watchedText) update() error {
	info, err := os.Stat(w.path)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if w.seen != nil && os.SameFile(info, w.seen) && info.ModTime().Equal(w.seen.ModTime()) && info.Size() == w.seen.Size() {
		return nil
	}
	data, err := caddyconf.ReadRegularFile(w.path)
	switch {
	case err != nil:
		return fmt.Errorf("names the file %s, which cannot be read: %w", w.path, err)
	case !utf8.Valid(data):
		return fmt.Errorf("%s is not valid UTF-8", w.path)
	case len(bytes.TrimSpace(data)) == 0: // as it is for a moment while it is written
		return fmt.Errorf("%s is empty", w.path)
	}
	w.text, w.seen = string(data), info
	return nil
}
