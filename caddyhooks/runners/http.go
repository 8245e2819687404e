package runners

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

func init() {
	caddy.RegisterModule(HTTP{})
}

// HTTP is a runner that posts every turn as JSON to a URL. The response is the answer: plain text, JSON as {"text": …}, or a
// stream of events. A page in HTML is none: it comes from a login or from a proxy. A script of a few lines can serve it.
type HTTP struct {
	// The URL that turns are posted to.
	URL string `json:"url,omitempty"`

	// A token to send as `Authorization: Bearer`. Placeholders such as {env.X} and {file.X} are replaced.
	Token string `json:"token,omitempty"`

	client   *http.Client
	token    string
	redactor redactor
}

// CaddyModule returns the Caddy module information.
func (HTTP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.runners.http",
		New: func() caddy.Module { return new(HTTP) },
	}
}

// Provision sets up the runner.
func (h *HTTP) Provision(caddy.Context) error {
	if h.Token != "" {
		var err error
		if h.token, err = caddyconf.ResolveSecret(h.Token); err != nil {
			return fmt.Errorf("runner http: the token %w", err)
		}
	}
	h.URL = caddy.NewReplacer().ReplaceKnown(h.URL, "")
	h.redactor = newRedactor(h.token, h.URL)
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	h.client = &http.Client{
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			MaxIdleConnsPerHost: 256,
			// Shorter than the five seconds after which Node closes an idle connection: a turn sent into a connection that
			// is being closed is a turn that failed.
			IdleConnTimeout:     4 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true,
		},
		// A redirect would turn the POST into a GET, or carry the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

// Validate checks the configuration.
func (h *HTTP) Validate() error { return checkURL(h.URL) }

func checkURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("runner http needs a URL that starts with http:// or https:// and names a host")
	}
	return nil
}

// Address is the scheme and the host of the URL, for logs. The rest of it may be secret.
func (h *HTTP) Address() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Cleanup closes connections that no turn uses. Turns that are under way go on.
func (h *HTTP) Cleanup() error {
	if h.client != nil {
		h.client.CloseIdleConnections()
	}
	return nil
}

// UnmarshalCaddyfile parses:
//
//	runner http <url> {
//		token <secret>
//	}
func (h *HTTP) UnmarshalCaddyfile(d *caddyfile.Dispenser) (err error) {
	d.Next()
	if h.URL, err = caddyconf.CheckedText(checkURL)(d); err != nil {
		return err
	}
	return caddyconf.ReadBlock(d, "runner http", caddyconf.Set("token", &h.Token, caddyconf.Secret))
}

// maxReply bounds the text of an answer.
const maxReply = 1 << 20

// turnRequest is the body of a request. All fields are always present, which keeps scripts simple.
type turnRequest struct {
	Version        int             `json:"version"`
	RunID          string          `json:"runId"`
	ChatID         string          `json:"chatId"`
	Phase          string          `json:"phase"`
	Action         engine.Action   `json:"action"`
	Hook           string          `json:"hook"`
	Name           string          `json:"name"`
	Message        string          `json:"message"`
	System         string          `json:"system"`
	Tier           *string         `json:"tier"`
	Memory         turnMemory      `json:"memory"`
	ResponseSchema json.RawMessage `json:"responseSchema"`
	Metadata       json.RawMessage `json:"metadata"`
	TimeoutSeconds int             `json:"timeoutSeconds"`
	Isolated       bool            `json:"isolated"`
}

type turnMemory struct {
	Preset  string `json:"preset"`
	Recall  bool   `json:"recall"`
	Persist bool   `json:"persist"`
}

// Run posts the turn and reads the answer.
func (h *HTTP) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	text, err := h.call(ctx, turn)
	if err != nil {
		return engine.Reply{}, h.redactor.clean(err)
	}
	return engine.Reply{Text: text}, nil
}

// Redact hides the token, and the secrets in the URL.
func (h *HTTP) Redact(text string) string { return h.redactor.redact(text) }

// call is Run with errors that may show a secret.
func (h *HTTP) call(ctx context.Context, turn engine.Turn) (string, error) {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err == nil && !sent.Swap(true) && turn.Sent != nil {
			turn.Sent()
		}
	}})
	req, err := h.request(ctx, turn)
	if err != nil {
		return "", err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		// Its text would show the URL, which may hold a secret.
		var urlErr *url.Error
		if errors.As(err, &urlErr) {
			err = urlErr.Err
		}
		if !sent.Load() { // whatever the reason, the runner cannot have begun
			return "", &engine.UnavailableError{Err: fmt.Errorf("reaching the runner: %w", err)}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return "", errNoAnswer
		}
		return "", fmt.Errorf("calling the runner: %w", err)
	}
	defer resp.Body.Close()
	form := mediaType(resp.Header.Get("Content-Type"))
	refused := answerError{problem: fmt.Sprintf("the runner answered %d", resp.StatusCode)}
	if isPage(form) {
		refused.problem += " with " + form
	}
	if resp.StatusCode != http.StatusOK {
		refused.answer, refused.hint = beginningOf(resp), statusHint(resp.StatusCode)
		return "", statusError(resp.StatusCode, outbound.RetryAfter(resp.Header.Get("Retry-After"), time.Now()), &refused)
	}
	if isPage(form) {
		refused.answer = beginningOf(resp)
		refused.hint = "it must answer text/plain, application/json or text/event-stream"
		return "", &refused
	}
	var text string
	switch form {
	case "text/event-stream":
		text, err = readEvents(resp.Body, turn.Emit)
	case "application/json":
		text, err = readJSONReply(resp.Body)
	default:
		text, err = readText(resp.Body)
	}
	if err != nil {
		return "", readingError(err)
	}
	return text, nil
}

func (h *HTTP) request(ctx context.Context, turn engine.Turn) (*http.Request, error) {
	body := turnRequest{
		Version: 1, RunID: turn.RunID, ChatID: turn.ChatID, Phase: "turn", Action: turn.Action, Hook: turn.Hook,
		Name: turn.Name, Message: turn.Message, System: turn.System, ResponseSchema: turn.ResponseSchema,
		Metadata: turn.Metadata, Isolated: turn.Isolated(),
		Memory:         turnMemory{Preset: turn.MemoryPreset, Recall: turn.Memory(), Persist: turn.Memory()},
		TimeoutSeconds: int(turn.Timeout / time.Second),
	}
	key := turn.RunID + ":turn"
	if turn.Repair > 0 {
		body.Phase = "repair"
		key = fmt.Sprintf("%s:repair-%d", turn.RunID, turn.Repair)
	}
	if turn.Tier != "" {
		body.Tier = &turn.Tier
	}
	if body.Metadata == nil {
		body.Metadata = json.RawMessage(`{}`)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, fmt.Errorf("encoding the turn: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, &buf)
	if err != nil {
		return nil, err
	}
	// With an Idempotency-Key, net/http would send the request again by itself when a connection breaks. Whether a
	// turn is carried out a second time is for the engine to say.
	req.GetBody = nil
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/plain, application/json, text/event-stream")
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("X-Service-Run-Id", turn.RunID)
	req.Header.Set("X-Service-Chat-Id", outbound.HeaderValue(turn.ChatID))
	req.Header.Set("X-Service-Deadline", turn.Deadline.UTC().Format(time.RFC3339))
	if turn.TraceParent != "" {
		req.Header.Set("Traceparent", turn.TraceParent)
	}
	return req, nil
}

// readingError is an error of reading an answer, with the step in its text.
func readingError(err error) error {
	const step = "reading the runner's answer: "
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errCutAnswer
	}
	var answer *answerError
	if errors.As(err, &answer) { // which is redacted later, and must not be part of another text before
		answer.problem = step + answer.problem
		return answer
	}
	return fmt.Errorf(step+"%w", err)
}

var (
	errNoAnswer      = errors.New("the runner closed the connection without an answer")
	errCutAnswer     = errors.New("the runner's answer broke off")
	errReplyTooLarge = fmt.Errorf("the answer is larger than %d bytes", maxReply)
)

// readBounded reads an answer into memory that is at most twice what has arrived.
func readBounded(r io.Reader, limit int) ([]byte, error) {
	data := make([]byte, 0, 512)
	for {
		if len(data) == cap(data) {
			data = append(make([]byte, 0, min(2*cap(data), limit+1)), data...)
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case len(data) > limit:
			return nil, errReplyTooLarge
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		}
	}
}

func readText(r io.Reader) (string, error) {
	data, err := readBounded(r, maxReply)
	if err == nil && !utf8.Valid(data) {
		err = errors.New("the text is not valid UTF-8")
	}
	return string(data), err
}

// readJSONReply reads {"text": …}. Escapes can make the JSON a good deal longer than the text.
func readJSONReply(r io.Reader) (string, error) {
	data, err := readBounded(r, 6*maxReply+1024)
	if err != nil {
		return "", err
	}
	text, ok := textMember(data)
	if !ok {
		return "", &answerError{problem: `the JSON is not an object with a string "text"`, answer: string(data[:min(len(data), maxAnswerBeginning)])}
	}
	if len(text) > maxReply {
		return "", errReplyTooLarge
	}
	return text, nil
}

// answerFields are the members of a JSON answer. The others are checked, and take no memory.
var answerFields = strictjson.Members("text")

func textMember(data []byte) (string, bool) {
	v, err := strictjson.ParseSelected(data, answerFields)
	if err != nil {
		return "", false
	}
	obj, _ := v.(map[string]any)
	text, ok := obj["text"].(string)
	return text, ok
}

// statusError is the error of a turn that got a status code other than 200.
func statusError(status int, retryAfter time.Duration, err error) error {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		return &engine.UnavailableError{Busy: true, RetryAfter: retryAfter, Err: err}
	}
	return err
}

// statusHint says what is wrong with a status that is not an error by itself.
func statusHint(status int) string {
	switch status / 100 {
	case 1, 2:
		return "it must answer 200"
	case 3:
		return "it must answer 200, and redirects are not followed"
	default:
		return ""
	}
}

// Interface guards
var (
	_ engine.Runner         = (*HTTP)(nil)
	_ engine.Redactor       = (*HTTP)(nil)
	_ engine.AnswerError    = (*answerError)(nil)
	_ caddy.Provisioner     = (*HTTP)(nil)
	_ caddy.Validator       = (*HTTP)(nil)
	_ caddy.CleanerUpper    = (*HTTP)(nil)
	_ caddyfile.Unmarshaler = (*HTTP)(nil)
)
