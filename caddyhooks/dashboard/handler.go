// Package dashboard serves the operator's page: one constant page, its assets, and below api/ the API that the page is drawn
// from. It does not know Caddy. An [Access] says who may enter and has the API behind it: the directive hooks_dashboard is one,
// and `caddy hooks dashboard` is another.
//
// All addresses in the page are relative, so it works below any path and behind any number of proxies. The page has no text
// from outside in it. The browser makes elements of what the API answers, under a policy that forbids markup made of text.
package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// Access is a way to reach the page: who may enter, and the API behind it.
type Access struct {
	// Name is what the page calls this access.
	Name string

	// Enter tells who asks. It is called for every request, and nothing is served if it returns an error. The operator is told
	// the sentence of a [Refusal].
	Enter func(r *http.Request) (Operator, error)

	// Instances are the names of the hooks instances that the operator may see.
	Instances func(r *http.Request) ([]string, error)

	// PublicPath is the path that the browser asked for, escaped, as far as it is known. It may be nil. A path of the page that
	// lacks the slash at its end is redirected.
	PublicPath func(r *http.Request) string

	// API answers requests below api/, which is taken off their path: it gets /settings for api/settings. OperatorFrom finds
	// the operator in the context of the request.
	API http.Handler
}

// Operator is somebody who may enter.
type Operator struct {
	User      string `json:"user"`
	ReadOnly  bool   `json:"readOnly"`  // read-only access
	HideTexts bool   `json:"hideTexts"` // sees no texts of runs in lists
}

type operatorKey struct{}

// OperatorFrom returns the operator whose request has the context.
func OperatorFrom(ctx context.Context) Operator {
	operator, _ := ctx.Value(operatorKey{}).(Operator)
	return operator
}

// Refusal is an error that is shown to the operator. Its sentence says what to change.
type Refusal struct {
	Status   int
	Sentence string
}

func (e *Refusal) Error() string { return e.Sentence }

func refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{status, fmt.Sprintf(format, args...)}
}

// Handler serves the page to those who may enter. It takes all requests that it gets as ones for the page: a path
// in front of the page must have been taken off.
func Handler(access Access) http.Handler {
	return &handler{access}
}

type handler struct{ access Access }

// policy forbids the browser everything that the page does not need, and scripts made of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// setHeaders sets the headers of every answer. An asset replaces Cache-Control.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	rest, isAPI := strings.CutPrefix(r.URL.Path, "/api/")
	operator, err := h.access.Enter(r)
	if err == nil {
		r = r.WithContext(context.WithValue(r.Context(), operatorKey{}, operator))
		if isAPI {
			err = h.serveAPI(w, r, "/"+rest)
		} else {
			err = h.servePage(w, r)
		}
	}
	if err == nil {
		return
	}
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		refusal = refuse(http.StatusInternalServerError, "The request failed: %v.", err)
	}
	if isAPI {
		WriteError(w, refusal.Status, refusal.Sentence)
	} else {
		writeSentence(w, refusal)
	}
}

// MaxBody is how many bytes the body of an API request may have.
const MaxBody = 4 << 20

// serveAPI checks a request for the API and passes it on.
func (h *handler) serveAPI(w http.ResponseWriter, r *http.Request, rest string) error {
	if err := checkSameSite(r); err != nil {
		return err
	}
	// Such a path would be cleaned later, by a redirect to a place that is not below the page.
	if path.Clean(rest) != rest || strings.Count(r.URL.Path, "/") != strings.Count(r.URL.EscapedPath(), "/") {
		return refuse(http.StatusNotFound, "There is no such endpoint.")
	}
	if r.ContentLength > MaxBody {
		return errLargeBody
	}
	// One byte more lets the API see that the body is too large, instead of a body that breaks off.
	r.Body = http.MaxBytesReader(w, r.Body, MaxBody+1)
	if rest == "/me" {
		return h.serveMe(w, r)
	}
	h.access.API.ServeHTTP(w, withoutPrefix(r, "/api"))
	return nil
}

var errLargeBody = refuse(http.StatusRequestEntityTooLarge, "The body is larger than %d bytes.", MaxBody)

// withoutPrefix returns the request with a path that lacks its beginning.
func withoutPrefix(r *http.Request, prefix string) *http.Request {
	shorter := new(http.Request)
	*shorter = *r
	shorter.URL = new(url.URL)
	*shorter.URL = *r.URL
	shorter.URL.Path = strings.TrimPrefix(r.URL.Path, prefix)
	shorter.URL.RawPath = strings.TrimPrefix(r.URL.RawPath, prefix)
	return shorter
}

// serveMe tells the page who its operator is.
func (h *handler) serveMe(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		return refuse(http.StatusMethodNotAllowed, "Method not allowed; use GET.")
	}
	instances, err := h.access.Instances(r)
	if err != nil {
		return err
	}
	if instances == nil {
		instances = []string{}
	}
	writeJSON(w, http.StatusOK, struct {
		Operator
		Instances []string `json:"instances"`
		Access    string   `json:"access"`
	}{OperatorFrom(r.Context()), instances, h.access.Name})
	return nil
}

// WriteError answers an API request with an error, in the shape of Caddy's admin errors.
func WriteError(w http.ResponseWriter, status int, sentence string) {
	writeJSON(w, status, struct {
		Error string `json:"error"`
	}{sentence})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // a browser that is gone cannot be told
}

// writeSentence answers with a refusal that an operator reads in place of the page.
func writeSentence(w http.ResponseWriter, refusal *Refusal) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(refusal.Status)
	_, _ = fmt.Fprintln(w, refusal.Sentence)
}
