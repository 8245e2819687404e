package runners

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

func init() {
	caddy.RegisterModule(HTTP{})
}

// TurnRequest is the JSON that is posted for a turn.
type TurnRequest = turns.Request

// HTTP is a runner that posts every turn as JSON to a URL, or to a path of its own that Caddy's HTTP handlers answer. The response
// is the answer: plain text, JSON as {"text": …}, or a stream of events. A page in HTML is none: it comes from a login or from a
// proxy. A script of a few lines can serve it.
type HTTP struct {
	// The URL that turns are posted to.
	URL string `json:"url,omitempty"`

	// The path that turns are posted to, instead of a URL. The routes see a request for it.
	Path string `json:"path,omitempty"`

	// The routes that answer the requests for the path: any HTTP handlers, such as reverse_proxy.
	Routes caddyhttp.RouteList `json:"routes,omitempty"`

	// A token to send as `Authorization: Bearer`. Placeholders such as {env.X} and {file.X} are replaced.
	Token string `json:"token,omitempty"`

	// More headers to send to the URL, by name. Placeholders in their values are replaced.
	Headers map[string]string `json:"headers,omitempty"`

	// How long the agent may be silent after a turn was sent, and between two parts of its answer. A turn of which nothing is
	// heard for longer fails. Default: as long as the run has time.
	IdleTimeout caddy.Duration `json:"idle_timeout,omitempty"`

	// How long the agent may take to answer later, after it has answered 202. Default: it must answer at once.
	Async caddy.Duration `json:"async,omitempty"`

	httpcall.ServerTLS
	httpcall.Client // with a URL

	log     *zap.Logger
	routes  *routes // with a path
	blank   *http.Request
	token   string
	headers map[string]string
}

// CaddyModule returns the Caddy module information.
func (HTTP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.runners.http",
		New: func() caddy.Module { return new(HTTP) },
	}
}

// Usage describes the runner in a list of choices.
func (HTTP) Usage() (arguments, agent string) {
	return "<url>", "a service of your own, as in: runner http http://127.0.0.1:9000/turn"
}

// Provision sets up the runner.
func (h *HTTP) Provision(ctx caddy.Context) (err error) {
	h.log = ctx.Logger()
	if h.Token != "" {
		if h.token, err = caddyconf.ResolveSecret(h.Token); err != nil {
			return fmt.Errorf("runner http: the token %w", err)
		}
	}
	if h.headers, err = httpcall.ResolveHeaders(h.Headers, httpcall.CheckHeader); err != nil {
		return fmt.Errorf("runner http: %w", err)
	}
	repl := caddy.NewReplacer()
	h.URL, h.Path = repl.ReplaceKnown(h.URL, ""), repl.ReplaceKnown(h.Path, "")
	h.Redactor = answers.NewRedactor(h.token, h.URL+h.Path, append(httpcall.HeaderSecrets(h.headers), routeSecrets(h.Routes)...)...)
	if h.Path != "" {
		h.routes, err = newRoutes(ctx, h.Routes)
	} else {
		err = h.Connect(&h.ServerTLS, func(t *http.Transport) http.RoundTripper { return t })
	}
	if err != nil {
		return fmt.Errorf("runner http: %w", err)
	}
	if h.blank, err = http.NewRequestWithContext(ctx, http.MethodPost, h.URL+h.Path, nil); err != nil {
		h.blank = nil // and Validate says what is wrong
	}
	return nil
}

// Validate checks the configuration.
func (h *HTTP) Validate() error {
	switch {
	case h.IdleTimeout < 0:
		return errors.New("runner http: idle_timeout must not be negative")
	case h.Async < 0:
		return errors.New("runner http: async must not be negative")
	case h.token != "" && h.headers["Authorization"] != "":
		return errTwoAuthorizations
	case h.Path == "" && len(h.Routes) > 0:
		return errors.New("runner http: routes need a path")
	case h.Path == "":
		if err := checkURL(h.URL); err != nil {
			return err
		}
		return h.checkURLOptions()
	case h.URL != "":
		return errors.New("runner http takes a URL or a path, not both")
	case len(h.Headers) > 0 || h.HasTLSOptions():
		return errors.New("runner http: headers and tls options go with a URL; with a path, the routes see to both")
	case len(h.Routes) == 0:
		return errNoRoutes
	}
	return checkPath(h.Path)
}

var (
	errTwoAuthorizations = errors.New("runner http: token and header Authorization are the same header; use one of them")
	errNoRoutes          = errors.New("runner http with a path needs a directive that answers, as in: reverse_proxy 127.0.0.1:9000")
)

func checkURL(raw string) error {
	if httpcall.ParseURL(raw) == nil {
		return errors.New("runner http needs a URL that starts with http:// or https:// and names a host, or a path that starts with /")
	}
	return nil
}

func (h *HTTP) checkURLOptions() error {
	if err := h.CheckTLS(h.URL); err != nil {
		return fmt.Errorf("runner http: %w", err)
	}
	return nil
}

// Address is the path, or the scheme and the host of the URL, for logs. The rest may be secret.
func (h *HTTP) Address() string {
	if path, _, _ := strings.Cut(h.Path, "?"); path != "" {
		return path
	}
	return httpcall.Address(h.URL)
}

// UnmarshalRoutes parses:
//
//	runner http <url> {
//		token                    <secret>
//		header                   <name> <value>
//		idle_timeout             <duration>
//		async                    <duration>
//		tls_ca                   <file>
//		tls_client_auth          <cert_file> <key_file>
//		tls_server_name          <name>
//		tls_insecure_skip_verify
//	}
//	runner http <path> {
//		token        <secret>
//		idle_timeout <duration>
//		async        <duration>
//		<directives...>
//	}
//
// The directives are those of a site, such as reverse_proxy, in Caddy's order.
func (h *HTTP) UnmarshalRoutes(helper httpcaddyfile.Helper) error {
	d := helper.Dispenser
	d.Next()
	place := *d
	const missing = "runner http needs a URL or a path, as in: runner http http://127.0.0.1:9000/turn"
	if err := httpcall.CheckArguments(d, "http", "a URL or a path", missing); err != nil {
		return err
	}
	where, err := caddyconf.Text(d)
	if err != nil {
		return err
	}
	if strings.HasPrefix(where, "/") {
		h.Path = where
		if err := checkPath(where); err != nil && !caddyconf.HasPlaceholder(where) {
			return place.WrapErr(err)
		}
		return h.unmarshalPath(helper, place)
	}
	h.URL = where
	if err := checkURL(where); err != nil && !caddyconf.HasPlaceholder(where) {
		return place.WrapErr(err)
	}
	err = caddyconf.ReadBlock(d, "directives of Caddy go with a path, as in: runner http /turn; runner http with a URL",
		slices.Concat(h.directives(), []caddyconf.Directive{httpcall.HeaderDirective(&h.Headers, httpcall.CheckHeader)}, h.TLSDirectives())...)
	if err != nil {
		return err
	}
	if h.Token != "" && h.Headers["Authorization"] != "" {
		return place.WrapErr(errTwoAuthorizations)
	}
	if err := h.checkURLOptions(); err != nil {
		return place.WrapErr(err)
	}
	return nil
}

// directives are those of both forms.
func (h *HTTP) directives() []caddyconf.Directive {
	return []caddyconf.Directive{
		caddyconf.Set("token", &h.Token, caddyconf.Secret),
		caddyconf.Set("idle_timeout", &h.IdleTimeout, caddyconf.Duration(time.Second)),
		caddyconf.Set("async", &h.Async, caddyconf.Duration(time.Second)),
	}
}

// unmarshalPath reads the block after a path. Caddy reads all of it but for our own directives.
func (h *HTTP) unmarshalPath(helper httpcaddyfile.Helper, place caddyfile.Dispenser) error {
	d := helper.Dispenser
	name := place.Token()
	open, end := name, name
	open.Text, end.Text = "{", "}"
	own, others := []caddyfile.Token{name, open}, []caddyfile.Token{name, open}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		switch {
		case word == "token" || word == "idle_timeout" || word == "async":
			own = append(own, d.NextSegment()...)
		case strings.HasPrefix(word, "tls_"):
			return d.Errf("%s goes with a URL; with a path, see the transport of reverse_proxy", word)
		default:
			others = append(others, d.NextSegment()...)
		}
	}
	end.Line, end.File = d.Token().Line, d.Token().File
	ownBlock := caddyfile.NewDispenser(append(own, end))
	ownBlock.Next()
	if err := caddyconf.ReadBlock(ownBlock, "runner http", h.directives()...); err != nil {
		return err
	}
	subroute, err := httpcaddyfile.ParseSegmentAsSubroute(helper.WithDispenser(caddyfile.NewDispenser(append(others, end))))
	if err != nil && !strings.Contains(err.Error(), ", at "+place.File()+":") { // one about the order of directives
		return place.WrapErr(err)
	}
	if err != nil {
		return err
	}
	if routes, ok := subroute.(*caddyhttp.Subroute); ok {
		h.Routes = routes.Routes
	}
	if len(h.Routes) == 0 {
		return place.WrapErr(errNoRoutes)
	}
	return nil
}

// Run posts the turn and reads the answer.
func (h *HTTP) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	if turn.TakenOn != "" {
		return engine.Reply{}, h.stillTakenOn(turn.TakenOn)
	}
	reply, err := h.call(ctx, turn)
	return reply, h.CleanTurn(&turn, err)
}

// call is Run with errors that may show a secret.
func (h *HTTP) call(ctx context.Context, turn engine.Turn) (reply engine.Reply, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	quiet := &httpcall.Silence{Limit: time.Duration(h.IdleTimeout), End: end}
	defer quiet.Stop()
	way := &httpcall.Sending{Arrived: turn.Sent, Heard: quiet.Heard}
	defer way.End()
	req, err := h.request(way.WithTrace(ctx, h.routes != nil, h.IdleTimeout > 0), turn, way)
	if err != nil {
		return reply, err
	}
	resp, err := h.send(req, way)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusAccepted {
			return reply, h.accepted(&turn, resp)
		}
		reply, err = h.readAnswer(ctx, resp, quiet.Listen(resp.Body), turn.Emit, way)
	}
	if err != nil {
		if silent := httpcall.WasSilent(ctx); silent != nil {
			err = silent
		}
		reply.Text = ""
		return reply, err
	}
	if httpcall.MediaType(resp.Header.Get("Content-Type")) == sse.MediaType {
		httpcall.Drain(resp.Body, end)
	}
	return reply, nil
}

// send sends a request to the agent.
func (h *HTTP) send(req *http.Request, way *httpcall.Sending) (*http.Response, error) {
	if h.routes != nil {
		return h.routes.do(req, way)
	}
	// Redirects are not followed and there are no cookies, so a client would add nothing but work.
	resp, err := h.HTTPClient().Transport.RoundTrip(req)
	if err != nil {
		return nil, httpcall.CallError(err, way.MayHaveStarted())
	}
	return resp, nil
}

// readAnswer reads an answer from its body.
func (h *HTTP) readAnswer(
	ctx context.Context, resp *http.Response, body io.Reader, emit func(engine.Progress), way *httpcall.Sending,
) (reply engine.Reply, err error) {
	form := httpcall.MediaType(resp.Header.Get("Content-Type"))
	refused := answers.Error{Problem: fmt.Sprintf("the runner answered %d", resp.StatusCode)}
	if httpcall.IsPage(form) {
		refused.Problem += " with " + form
	}
	if resp.StatusCode != http.StatusOK {
		if h.routes != nil && ctx.Err() != nil { // reverse_proxy answers 499 then
			return reply, httpcall.CallError(context.Cause(ctx), way.MayHaveStarted())
		}
		refused.Text, refused.Hint = httpcall.Beginning(resp), httpcall.StatusHint(resp.StatusCode)
		if form == jsonMediaType {
			reply.Usage = parseAnswer([]byte(refused.Text)).used
		}
		ofGateway := resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusGatewayTimeout
		if h.routes != nil && ofGateway && !way.MayHaveStarted() {
			return reply, &engine.UnavailableError{Err: &refused} // a word of Caddy's, not of an upstream
		}
		return reply, answers.AgentRefusal(resp.StatusCode, outbound.RetryAfter(resp.Header.Get("Retry-After"), time.Now()), &refused)
	}
	if httpcall.IsEncoded(resp.Header) {
		return reply, httpcall.ErrEncoded
	}
	if httpcall.IsPage(form) {
		refused.Text = httpcall.Beginning(resp)
		refused.Hint = "it must answer text/plain, application/json or text/event-stream"
		return reply, &refused
	}
	switch form {
	case sse.MediaType:
		reply, err = readEvents(body, emit)
	case jsonMediaType:
		reply, err = readJSONReply(body, resp.ContentLength)
	default:
		reply, err = readText(body, resp.ContentLength)
	}
	if err != nil {
		return reply, httpcall.ReadingError(err)
	}
	return reply, nil
}

func (h *HTTP) request(ctx context.Context, turn engine.Turn, way *httpcall.Sending) (*http.Request, error) {
	body, err := turns.Encode(&turn, h.replyTo(&turn))
	if err != nil {
		return nil, err
	}
	buf := bytes.NewBuffer(body)
	// It has no GetBody: with an Idempotency-Key, net/http would send the request again by itself when a connection breaks.
	// Whether a turn is carried out a second time is for the engine to say.
	req := h.newRequest(ctx, h.blank.URL)
	req.ContentLength = int64(buf.Len())
	if h.routes != nil {
		req.Body = way.Body(buf)
	} else {
		req.Body = io.NopCloser(buf)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/plain, application/json, text/event-stream")
	req.Header.Set("Idempotency-Key", turns.Key(&turn))
	req.Header.Set("X-Service-Run-Id", turn.RunID)
	req.Header.Set("X-Service-Chat-Id", outbound.HeaderValue(turn.ChatID))
	req.Header.Set("X-Service-Deadline", turn.Deadline.UTC().Format(time.RFC3339))
	if turn.TraceParent != "" {
		req.Header.Set("Traceparent", turn.TraceParent)
	}
	return req, nil
}

// newRequest is a request to the agent, without a body, with the headers of the configuration.
func (h *HTTP) newRequest(ctx context.Context, to *url.URL) *http.Request {
	req := h.blank.WithContext(ctx)
	req.Header = make(http.Header, 8)
	req.URL = to
	if h.routes != nil { // as a server would see it; handlers may change the URL
		path := *to
		req.URL = &path
		req.RequestURI, req.Host, req.RemoteAddr = to.RequestURI(), routesHost, "127.0.0.1:0"
	}
	if user := h.blank.URL.User; h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	} else if user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	for name, value := range h.headers {
		req.Header.Set(name, value)
	}
	return req
}

// routesHost is the host of the requests that Caddy's handlers see.
const routesHost = "localhost"

const jsonMediaType = "application/json"

func readText(r io.Reader, length int64) (reply engine.Reply, err error) {
	data, err := httpcall.ReadBounded(r, length, answers.MaxReply)
	if err == nil && !utf8.Valid(data) {
		err = errors.New("the text is not valid UTF-8")
	}
	if err == nil {
		reply.Text = string(data)
	}
	return reply, err
}

// readJSONReply reads {"text": …, "usage": …}. Escapes can make the JSON a good deal longer than the text.
func readJSONReply(r io.Reader, length int64) (reply engine.Reply, err error) {
	data, err := httpcall.ReadBounded(r, length, 6*answers.MaxReply+1024)
	if err != nil {
		return reply, err
	}
	answer := parseAnswer(data)
	reply.Usage = answer.used
	switch {
	case !answer.hasText:
		return reply, &answers.Error{Problem: `the JSON is not an object with a string "text"`, Text: answers.Beginning(data)}
	case len(answer.text) > answers.MaxReply:
		return reply, answers.ErrTooLarge
	}
	reply.Text = answer.text
	return reply, nil
}

// answerFields are the members of a JSON answer. The others are checked, and take no memory.
var answerFields = strictjson.Members("text", "usage")

// jsonAnswer is what is in a JSON answer.
type jsonAnswer struct {
	text    string
	hasText bool
	other   bool // it has members that are not known here
	used    usage.Reports
}

// parseAnswer reads a JSON answer. One that is not an object has nothing.
func parseAnswer(data []byte) (a jsonAnswer) {
	object, err := strictjson.ParseObject(data, answerFields)
	if err != nil {
		return jsonAnswer{other: true}
	}
	a.other = len(object.Other) > 0
	for _, member := range object.Members {
		switch member.Key {
		case "text":
			a.text, a.hasText = member.Value.(string)
			a.other = a.other || !a.hasText
		case "usage":
			_ = a.used.UnmarshalJSON(member.Raw) // which takes anything
		}
	}
	return a
}

// Interface guards
var (
	_ engine.Runner         = (*HTTP)(nil)
	_ engine.Redactor       = (*HTTP)(nil)
	_ engine.Abandoner      = (*HTTP)(nil)
	_ engine.Postponer      = (*HTTP)(nil)
	_ caddy.Provisioner     = (*HTTP)(nil)
	_ caddy.Validator       = (*HTTP)(nil)
	_ caddy.CleanerUpper    = (*HTTP)(nil)
	_ caddyconf.RouteReader = (*HTTP)(nil)
)
