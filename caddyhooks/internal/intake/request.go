package intake

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cloudevents"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// Request is what a request brings: all that schemes, conditions and templates may look at. It is made once.
type Request struct {
	Header http.Header
	host   string
	Client string // the address of the caller, "" if it is unknown
	Body   []byte // as it was received
	Doc    any    // the body of a custom hook's request, once it is parsed

	Events  []cloudevents.ID // of all events that it brought, to a hook that takes CloudEvents
	IsBatch bool             // the events came as a batch, and become a list of runs

	Messages MessageMemory

	request *http.Request // nil if there was none, as in a preview
	Values  url.Values    // of its query, once they are read
	asked   auth.Request

	Log     *zap.Logger // for operators
	Warning string      // about fields of a wake or agent request, "" if there is nothing to warn of
}

func NewRequest(r *http.Request, log *zap.Logger) Request {
	return Request{Log: log, Header: r.Header, host: r.Host, Client: ClientAddress(r), request: r}
}

// Query are the values of the query. A part that cannot be read is left out.
func (req *Request) Query() url.Values {
	if req.Values == nil && req.request != nil {
		req.Values = req.request.URL.Query()
	}
	return req.Values
}

// url is what the caller used.
func (req *Request) url() string { return calledURL(req.request) }

// sources are what a template of the hook may read of a request beside the values of its body. idPlaceholder stands for the id of the run,
// which is not known yet; without one the id is missing. Templates ask again and again, so the body is made a text only once.
func sources(h *settings.Hook, req *Request, idPlaceholder, now string) func(template.Source) (text string, ok bool) {
	body := ""
	return func(s template.Source) (text string, ok bool) {
		switch s.Kind {
		case "header":
			text, ok = readHeader(h, req, s.Name)
		case "query":
			text, ok = readQuery(req, s.Name)
		case "body":
			if body == "" {
				body = asUTF8(string(req.Body))
			}
			return body, true
		case "hook":
			return h.Name, true
		case "run":
			return idPlaceholder, idPlaceholder != ""
		case "time":
			return now, now != ""
		}
		return asUTF8(text), ok
	}
}

// asUTF8 replaces bytes that are no text. A JSON body has none.
func asUTF8(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// readHeader returns the values of a header. Those that carry a secret are missing.
func readHeader(h *settings.Hook, req *Request, name string) (string, bool) {
	name = http.CanonicalHeaderKey(name)
	if h.HidesHeader(name) {
		return "", false
	}
	if name == "Host" { // which net/http takes out of the headers
		return req.host, req.host != ""
	}
	values := req.Header[name]
	return strings.Join(values, ", "), len(values) > 0
}

func readQuery(req *Request, name string) (string, bool) {
	values := req.Query()[name]
	return strings.Join(values, ", "), len(values) > 0
}

// Credential is what verifiers look at.
func (req *Request) Credential(now time.Time) *auth.Request {
	if req.asked.Header == nil {
		req.asked = auth.Request{Header: req.Header, URL: req.url, Query: req.Query, Now: now}
		if req.request != nil {
			req.asked.Method = req.request.Method
		}
	}
	req.asked.Body = req.Body
	return &req.asked
}

// ClientAddress is the address of the caller, "" if it is unknown. Behind a trusted proxy it is the one that the proxy tells.
func ClientAddress(r *http.Request) string {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return ip
}

// calledURL is the URL that the caller used, as far as it is known here: a rewrite does not change it, and behind a trusted
// proxy scheme and host are those that the proxy tells.
func calledURL(r *http.Request) string {
	uri, host, scheme := r.RequestURI, r.Host, "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		uri = original.RequestURI
	}
	if trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool); trusted {
		if proto := firstWord(r.Header.Get("X-Forwarded-Proto")); proto == "http" || proto == "https" {
			scheme = proto
		}
		if forwarded := firstWord(r.Header.Get("X-Forwarded-Host")); forwarded != "" {
			host = forwarded
		}
	}
	if absolute, err := url.Parse(uri); err == nil && absolute.IsAbs() { // as some proxies write it
		uri = absolute.RequestURI()
	}
	return scheme + "://" + host + uri
}

// firstWord is the first item of a list with commas.
func firstWord(list string) string {
	first, _, _ := strings.Cut(list, ",")
	return strings.TrimSpace(first)
}
