package caddyhooks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks"
)

// server is a real Caddy, run in this process from a Caddyfile. There can be only one at a time.
type server struct {
	t     testing.TB
	url   string // of the site
	admin string // of the admin endpoint
	site  string // the address to put in a Caddyfile
	port  string

	globals string // global options beside those that every test has
}

// startSite starts Caddy with one site that has the given directives.
func startSite(t testing.TB, directives string) *server {
	t.Helper()
	s := newServer(t)
	s.load(directives)
	return s
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t}
	t.Setenv("XDG_DATA_HOME", t.TempDir()) // where the store is
	s.port = freePort(t)
	s.site = "http://127.0.0.1:" + s.port
	s.url = s.site
	s.admin = "http://127.0.0.1:" + freePort(t)
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Errorf("stopping Caddy: %v", err)
		}
	})
	return s
}

// load loads, or reloads, a configuration in which the site has the given directives.
func (s *server) load(directives string) {
	s.t.Helper()
	if err := s.tryLoad(directives); err != nil {
		s.t.Fatalf("loading the configuration: %v", err)
	}
}

func (s *server) tryLoad(directives string) error {
	globals := s.globals
	if !strings.Contains(globals, "log {") {
		globals += "\n\tlog {\n\t\tlevel PANIC\n\t}\n"
	}
	return loadCaddyfile(fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n%s\n}\n%s {\n%s\n}\n",
		strings.TrimPrefix(s.admin, "http://"), globals, s.site, directives))
}

// loadCaddyfile loads a whole Caddyfile.
func loadCaddyfile(text string) error {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

// freePort is a port that nothing listens at and no outgoing connection is given, so that it is still free a moment later.
func freePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(15_000 + rand.IntN(15_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("found no free port")
	return ""
}

// hooks is a hooks directive with webhooks on and turns that go to rn. more are further subdirectives.
func hooks(rn *runner, more string) string {
	return "hooks {\n\tenabled\n\ttoken " + token + "\n\trunner http " + rn.URL + "\n" + more + "\n}"
}

// response is an answer, read to its end.
type response struct {
	status int
	header http.Header
	body   string
}

// request sends a request. headers are pairs of name and value.
func (s *server) request(method, path, body string, headers ...string) response {
	s.t.Helper()
	resp, err := tryRequest(method, s.url+path, body, headers...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

func tryRequest(method, url, body string, headers ...string) (response, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, string(data)}, err
}

// token is the webhook token in all tests.
const token = "test-token"

// post sends a webhook with the right token.
func (s *server) post(path, body string, headers ...string) response {
	s.t.Helper()
	return s.request("POST", path, body, append(headers, "Authorization", "Bearer "+token)...)
}

// postChunked sends a webhook whose length is not told beforehand.
func (s *server) postChunked(path, body string) response {
	s.t.Helper()
	req, err := http.NewRequest("POST", s.url+path, io.MultiReader(strings.NewReader(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatalf("POST %s: %v", path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("POST %s: %v", path, err)
	}
	return response{resp.StatusCode, resp.Header, string(data)}
}

// adminRequest calls the admin API.
func (s *server) adminRequest(method, path, body string) response {
	s.t.Helper()
	resp, err := tryRequest(method, s.admin+path, body, "Content-Type", "application/json")
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// field reads one field of a JSON object in the body.
func (r response) field(t testing.TB, name string) any {
	t.Helper()
	var obj map[string]any
	if err := json.Unmarshal([]byte(r.body), &obj); err != nil {
		t.Fatalf("the body is no JSON object: %v\n%s", err, r.body)
	}
	return obj[name]
}

// wantError checks that the response is an error of the contract's shape, and that its message holds all the words.
func (r response) wantError(t testing.TB, status int, words ...string) {
	t.Helper()
	if r.status != status {
		t.Errorf("got status %d, want %d; body %s", r.status, status, r.body)
	}
	if got := r.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("got content type %q", got)
	}
	var obj map[string]any
	if err := json.Unmarshal([]byte(r.body), &obj); err != nil {
		t.Errorf("the body is no JSON object: %v\n%s", err, r.body)
		return
	}
	message, _ := obj["errorMessage"].(string)
	if len(obj) != 2 || obj["status"] != "error" || message == "" {
		t.Errorf("got error body %s", r.body)
	}
	for _, word := range words {
		if !strings.Contains(message, word) {
			t.Errorf("the message %q does not speak of %q", message, word)
		}
	}
}

// turn is a turn as the recording runner saw it.
type turn struct {
	header http.Header
	body   map[string]any
}

func (t turn) text(field string) string {
	s, _ := t.body[field].(string)
	return s
}

// runner is an HTTP runner that keeps the turns it gets and answers as it is told.
type runner struct {
	*httptest.Server
	t     testing.TB
	reply func(w http.ResponseWriter, r *http.Request, turn turn)

	turns chan turn
}

// startRunner starts a runner. reply may be nil: then every turn is answered "ok".
func startRunner(t testing.TB, reply func(w http.ResponseWriter, r *http.Request, turn turn)) *runner {
	t.Helper()
	rn := &runner{t: t, reply: reply, turns: make(chan turn, 10_000)}
	rn.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tn := turn{header: r.Header.Clone()}
		dec := json.NewDecoder(r.Body)
		dec.UseNumber()
		if err := dec.Decode(&tn.body); err != nil {
			t.Errorf("a turn is not JSON: %v", err)
		}
		// Read on, so that the server notices when the caller goes away.
		_, _ = io.Copy(io.Discard, r.Body)
		rn.turns <- tn
		if rn.reply == nil {
			_, _ = io.WriteString(w, "ok")
			return
		}
		rn.reply(w, r, tn)
	}))
	t.Cleanup(func() {
		rn.Server.CloseClientConnections()
		rn.Server.Close()
	})
	return rn
}

// next waits for the next turn.
func (rn *runner) next() turn {
	rn.t.Helper()
	select {
	case tn := <-rn.turns:
		return tn
	case <-time.After(10 * time.Second):
		rn.t.Fatal("no turn reached the runner")
		return turn{}
	}
}

// wantNoTurn checks that nothing that was sent before has become a turn: a run that is sent now is the first one that
// the runner sees. The site must have one worker, which takes runs in the order in which they came.
func (rn *runner) wantNoTurn(s *server) {
	rn.t.Helper()
	resp := s.post("/api/hooks/agent", `{"message":"after all that","syncResponse":true}`)
	if resp.status != http.StatusOK {
		rn.t.Fatalf("a good request is answered %d: %s", resp.status, resp.body)
	}
	if got := rn.next().text("message"); got != "after all that" {
		rn.t.Errorf("the runner got a turn with the message %.200q", got)
	}
}

// replyText answers every turn with the same text.
func replyText(text string) func(http.ResponseWriter, *http.Request, turn) {
	return func(w http.ResponseWriter, _ *http.Request, _ turn) { _, _ = io.WriteString(w, text) }
}

// eventually polls until ok reports true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen in time: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// asJSON is v as JSON.
func asJSON(t testing.TB, v any) string {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(buf.String())
}
