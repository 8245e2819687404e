// Package hookstest is the harness of the tests that start a real Caddy: in their own process, or as the program that people
// build. It has the runners and receivers that Caddy talks to, and the requests that it is asked with.
package hookstest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks"
)

// Server is a real Caddy, run from a Caddyfile: in the process of the tests, where there can be only one at a time, or in one
// of its own.
type Server struct {
	T     testing.TB
	URL   string // of the site
	Admin string // of the admin endpoint
	Site  string // the address to put in a Caddyfile
	Port  string
	Data  string // the directory that stores are in

	Globals string // global options beside those that every test has

	deployment *Deployment // if it has a process of its own
	process    *Process    // nil while there is none
}

// StartSite starts Caddy with one site that has the given directives.
func StartSite(t testing.TB, directives string) *Server {
	t.Helper()
	s := NewServer(t)
	s.Load(directives)
	return s
}

// NewServer is a Caddy that has nothing to serve yet.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{T: t, Data: t.TempDir()}
	t.Setenv("XDG_DATA_HOME", s.Data)
	s.Port = FreePort(t)
	s.Site = "http://127.0.0.1:" + s.Port
	s.URL = s.Site
	s.Admin = "http://127.0.0.1:" + FreePort(t)
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Errorf("stopping Caddy: %v", err)
		}
	})
	return s
}

// StartProcess is StartSite for a Caddy that has a process of its own, so that tests can run side by side.
func StartProcess(t testing.TB, directives string, env ...string) *Server {
	t.Helper()
	d := NewBinary(t).Deploy(t, "", "")
	d.Env = env
	s := &Server{T: t, URL: d.URL, Admin: d.Admin, Site: d.URL, Port: strings.TrimPrefix(d.URL, "http://127.0.0.1:"), Data: d.home, deployment: d}
	s.Load(directives)
	return s
}

// Load loads, or reloads, a configuration in which the site has the given directives. To go on with requests to the same site, Reload.
func (s *Server) Load(directives string) {
	s.T.Helper()
	if err := s.TryLoad(directives); err != nil {
		s.T.Fatalf("loading the configuration: %v", err)
	}
}

// TryLoad is Load for a configuration that may be refused.
func (s *Server) TryLoad(directives string) error {
	globals := s.Globals
	if !strings.Contains(globals, "log {") {
		level := "PANIC" // the log would be among the output of the tests
		if s.deployment != nil {
			level = "WARN"
		}
		globals += "\n\tlog {\n\t\tlevel " + level + "\n\t}\n"
	}
	text := fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n%s\n}\n%s {\n%s\n}\n",
		strings.TrimPrefix(s.Admin, "http://"), globals, s.Site, directives)
	switch {
	case s.deployment == nil:
		return LoadCaddyfile(text)
	case s.process == nil:
		return s.startProcess(text)
	}
	return s.loadByAdminAPI("text/caddyfile", text)
}

// loadByAdminAPI asks a Caddy in a process of its own to load a configuration. Caddy restarts its admin endpoint at every
// reload, and the kernel resets connections that the old one has not taken yet; so this asks again if there is no answer.
func (s *Server) loadByAdminAPI(contentType, config string) error {
	var resp Response
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		resp, err = TryRequest("POST", s.Admin+"/load", config, "Content-Type", contentType, "Cache-Control", "must-revalidate", "Connection", "close")
		if err == nil {
			break
		}
	}
	if err == nil && resp.Status != http.StatusOK {
		err = fmt.Errorf("answered %d %s", resp.Status, resp.Field(s.T, "error"))
	}
	return err
}

// LoadJSON is Load for a whole configuration in JSON, and a Caddy in a process of its own.
func (s *Server) LoadJSON(config []byte) {
	s.T.Helper()
	if err := s.loadByAdminAPI("application/json", string(config)); err != nil {
		s.T.Fatalf("loading the configuration: %v", err)
	}
}

func (s *Server) startProcess(config string) error {
	if err := os.WriteFile(s.deployment.Config, []byte(config), 0o600); err != nil {
		return err
	}
	s.process = s.deployment.Start(s.T)
	return nil
}

// LoadCaddyfile loads a whole Caddyfile.
func LoadCaddyfile(text string) error {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

// FreePort is a port that nothing listens at and no outgoing connection is given. No other test gets it before this one ends:
// tests of other processes see that it is taken for UDP.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(15_000 + rand.IntN(15_000))
		claim, err := net.ListenPacket("udp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			t.Cleanup(func() { claim.Close() })
			return port
		}
		claim.Close()
	}
	t.Fatal("found no free port")
	return ""
}

// Hooks is a hooks directive with webhooks on and turns that go to rn. more are further subdirectives.
func Hooks(rn *Runner, more string) string {
	return "hooks {\n\tenabled\n\ttoken " + Token + "\n\trunner http " + rn.URL + "\n" + more + "\n}"
}

// Request sends a request. headers are pairs of name and value.
func (s *Server) Request(method, path, body string, headers ...string) Response {
	s.T.Helper()
	resp, err := TryRequest(method, s.URL+path, body, headers...)
	if err != nil {
		s.T.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// Token is the webhook token in all tests.
const Token = "token-of-all-tests"

// Post sends a webhook with the right token.
func (s *Server) Post(path, body string, headers ...string) Response {
	s.T.Helper()
	return s.Request("POST", path, body, append(headers, "Authorization", "Bearer "+Token)...)
}

// PostChunked sends a webhook whose length is not told beforehand.
func (s *Server) PostChunked(path, body string) Response {
	s.T.Helper()
	req, err := http.NewRequest("POST", s.URL+path, io.MultiReader(strings.NewReader(body)))
	if err != nil {
		s.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.T.Fatalf("POST %s: %v", path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.T.Fatalf("POST %s: %v", path, err)
	}
	return Response{resp.StatusCode, resp.Header, string(data)}
}

// AdminRequest calls the admin API. Headers are pairs of a name and a value.
func (s *Server) AdminRequest(method, path, body string, headers ...string) Response {
	s.T.Helper()
	headers = append([]string{"Content-Type", "application/json"}, headers...)
	resp, err := TryRequest(method, s.Admin+path, body, headers...)
	for tries := 1; (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && tries < 5; tries++ {
		// After a reload, Caddy's previous admin server may take a connection, and close it unread, while it stops.
		resp, err = TryRequest(method, s.Admin+path, body, headers...)
	}
	if err != nil {
		s.T.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// GoroutinesIn is how many goroutines are in a function.
func GoroutinesIn(s *Server, function string) int {
	stacks, err := TryRequest("GET", s.Admin+"/debug/pprof/goroutine?debug=2", "")
	if err != nil {
		return -1
	}
	return strings.Count(stacks.Body, function)
}

// Caddyfile is a Caddyfile with the given sites, and the options of the harness.
func (s *Server) Caddyfile(sites string) string {
	return fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n\tlog {\n\t\tlevel PANIC\n\t}\n}\n%s\n", strings.TrimPrefix(s.Admin, "http://"), sites)
}

// Key is a header that marks a request as one that may be repeated.
func Key(k string) []string { return []string{"Idempotency-Key", k} }

// Reload loads another configuration in place of the one that is served, and waits until the old servers are gone. They
// drop connections that clients keep, and reset those that they have not taken yet.
func (s *Server) Reload(directives string) {
	s.T.Helper()
	s.Load(directives)
	s.Settle()
}

// Settle waits until the site is served by the configuration that was loaded last alone.
func (s *Server) Settle() {
	s.T.Helper()
	http.DefaultClient.CloseIdleConnections()
	good := 0
	Eventually(s.T, "the site is served", func() bool {
		if _, err := TryRequest("GET", s.URL+"/api/hooks/none", "", "Connection", "close"); err != nil {
			good = 0
		} else {
			good++
		}
		return good == 3
	})
}

// Restart stops Caddy and starts it again on the same data, which is what a new process does.
func (s *Server) Restart(directives string) {
	s.T.Helper()
	s.Stop()
	s.Load(directives)
	s.Settle()
}

// Stop stops Caddy until something is loaded again.
func (s *Server) Stop() {
	s.T.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	if s.deployment != nil {
		http.DefaultClient.CloseIdleConnections() // a server that stops waits for those that were never used
		s.process.Terminate(s.T)
		s.process.WantCleanExit(s.T)
		s.process = nil
		return
	}
	if err := caddy.Stop(); err != nil {
		s.T.Fatalf("stopping Caddy: %v", err)
	}
}

// Kill is kill -9 of a Caddy that has a process of its own.
func (s *Server) Kill() {
	s.T.Helper()
	s.process.Kill()
	s.process = nil
	http.DefaultClient.CloseIdleConnections()
}

// PID is the number of the process of a Caddy that has one of its own.
func (s *Server) PID() int { return s.process.Cmd.Process.Pid }

// WithCallbacks lets callbacks go to receivers on this machine.
const WithCallbacks = "callbacks {\n allow 127.0.0.1\n ports *\n }\n"
