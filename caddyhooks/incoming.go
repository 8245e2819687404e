package caddyhooks

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"go.uber.org/zap"
)

// incoming is what a request brings: all that schemes, conditions and templates may look at. It is made once.
type incoming struct {
	header http.Header
	host   string
	client string // the address of the caller, "" if it is unknown
	body   []byte // as it was received
	doc    any    // the body of a custom hook's request, once it is parsed

	messages messageMemory

	request *http.Request // nil if there was none, as in a preview
	values  url.Values    // of its query, once they are read
	asked   auth.Request

	log     *zap.Logger // for operators
	warning string      // about fields of a wake or agent request, "" if there is nothing to warn of
}

func newIncoming(r *http.Request, log *zap.Logger) incoming {
	return incoming{log: log, header: r.Header, host: r.Host, client: clientAddress(r), request: r}
}

// query are the values of the query. A part that cannot be read is left out.
func (req *incoming) query() url.Values {
	if req.values == nil && req.request != nil {
		req.values = req.request.URL.Query()
	}
	return req.values
}

// url is what the caller used.
func (req *incoming) url() string { return calledURL(req.request) }

// sources are what a template of the hook may read of a request beside the values of its body. hole stands for the id of the run,
// which is not known yet; without one the id is missing. Templates ask again and again, so the body is made a text only once.
func (h *hook) sources(req *incoming, hole, now string) func(template.Source) (text string, ok bool) {
	body := ""
	return func(s template.Source) (text string, ok bool) {
		switch s.Kind {
		case "header":
			text, ok = h.readHeader(req, s.Name)
		case "query":
			text, ok = readQuery(req, s.Name)
		case "body":
			if body == "" {
				body = asUTF8(string(req.body))
			}
			return body, true
		case "hook":
			return h.Name, true
		case "run":
			return hole, hole != ""
		case "time":
			return now, now != ""
		}
		return asUTF8(text), ok
	}
}

// asUTF8 replaces bytes that are no text. A JSON body has none.
func asUTF8(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// readHeader returns the values of a header. Those that carry a secret are missing.
func (h *hook) readHeader(req *incoming, name string) (string, bool) {
	name = http.CanonicalHeaderKey(name)
	if h.hidesHeader(name) {
		return "", false
	}
	if name == "Host" { // which net/http takes out of the headers
		return req.host, req.host != ""
	}
	values := req.header[name]
	return strings.Join(values, ", "), len(values) > 0
}

func readQuery(req *incoming, name string) (string, bool) {
	values := req.query()[name]
	return strings.Join(values, ", "), len(values) > 0
}

// credential is what verifiers look at.
func (req *incoming) credential(now time.Time) *auth.Request {
	if req.asked.Header == nil {
		req.asked = auth.Request{Header: req.header, URL: req.url, Query: req.query, Now: now}
	}
	req.asked.Body = req.body
	return &req.asked
}

// hidesHeader reports whether a header carries a secret, which neither templates nor conditions get to see.
func (h *hook) hidesHeader(name string) bool { return h.hidden.Has(name) }

// hiddenHeaders are those that carry a secret.
func (h *hook) hiddenHeaders() auth.HeaderNames {
	hidden := make(auth.HeaderNames)
	hidden.Add("Authorization", "Proxy-Authorization", "Cookie")
	hidden.Add(bearerScheme.secretHeaders(nil)...)
	if scheme := findScheme(h.AuthMode); scheme != nil && scheme.secretHeaders != nil {
		hidden.Add(scheme.secretHeaders(&h.Mapping)...)
	}
	return hidden
}
