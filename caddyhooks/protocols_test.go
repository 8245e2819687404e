package caddyhooks_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// secureSite starts a site with a certificate, which Caddy serves over HTTP/2 and HTTP/3 too.
func secureSite(t *testing.T, directives string) *hookstest.Server {
	t.Helper()
	s := hookstest.NewServer(t)
	s.Port = portForBoth(t)
	s.Site = "https://127.0.0.1:" + s.Port
	s.URL = s.Site
	s.Globals = "skip_install_trust\n\tauto_https disable_redirects\n"
	s.Load("tls internal\n" + directives)
	hookstest.Eventually(t, "the site has its certificate", func() bool {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+s.Port, trusting())
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return s
}

// portForBoth is a port that nothing listens at, be it for TCP or for UDP.
func portForBoth(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		packets, err := net.ListenPacket("udp", ":"+port)
		l.Close()
		if err == nil {
			packets.Close()
			return port
		}
	}
	t.Fatal("found no free port")
	return ""
}

// trusting lets a client trust the certificate of the site, which is one of Caddy's own.
func trusting() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// eachProtocol runs a test with a client of HTTP/2 and one of HTTP/3.
func eachProtocol(t *testing.T, test func(t *testing.T, c protocolClient)) {
	t.Run("HTTP2", func(t *testing.T) {
		transport := &http.Transport{TLSClientConfig: trusting(), ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		test(t, protocolClient{t, &http.Client{Transport: transport}, 2})
	})
	t.Run("HTTP3", func(t *testing.T) {
		transport := &http3.Transport{TLSClientConfig: trusting()}
		t.Cleanup(func() { transport.Close() })
		test(t, protocolClient{t, &http.Client{Transport: transport}, 3})
	})
}

// protocolClient is a client that speaks one version of HTTP.
type protocolClient struct {
	t       *testing.T
	client  *http.Client
	version int
}

// send sends a request with the right token. headers are pairs of name and value.
func (c protocolClient) send(ctx context.Context, method, url string, body io.Reader, headers ...string) (hookstest.Response, error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+hookstest.Token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return hookstest.Response{}, err
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != c.version {
		c.t.Errorf("the answer came over HTTP/%d", resp.ProtoMajor)
	}
	data, err := io.ReadAll(resp.Body)
	return hookstest.Response{Status: resp.StatusCode, Header: resp.Header, Body: string(data)}, err
}

// post sends a webhook that is answered.
func (c protocolClient) post(url, body string, headers ...string) hookstest.Response {
	c.t.Helper()
	resp, err := c.send(c.t.Context(), "POST", url, strings.NewReader(body), headers...)
	if err != nil {
		c.t.Fatalf("POST %s: %v", url, err)
	}
	return resp
}

func TestNewerVersionsOfHTTP(t *testing.T) {
	rn, gone, release := hookstest.HeldRunner(t)
	defer close(release)
	logFile := filepath.Join(t.TempDir(), "access.log")
	s := secureSite(t, "log {\n output file "+logFile+"\n format json\n}\n"+
		hookstest.Hooks(rn, "max_request 64KB\n hook signed {\n auth hmac X-Sig s3cret\n }"))
	hooks := s.URL + "/api/hooks/"
	eachProtocol(t, func(t *testing.T, c protocolClient) {
		c.post(hooks+"wake", `{"text":"hello"}`).WantBody(t, 200, "status", "chatId")
		rn.Next()

		accepted := c.post(hooks+"agent", `{"message":"hold on"}`)
		if accepted.Status != 202 || !strings.HasPrefix(accepted.Header.Get("Location"), "/api/hooks/runs/") {
			t.Fatalf("got %+v", accepted)
		}
		rn.Next()
		shown := make(chan hookstest.Response, 1)
		go func() {
			resp, _ := c.send(t.Context(), "GET", s.URL+accepted.Header.Get("Location")+"?wait=30s", nil)
			shown <- resp
		}()
		c.post(s.URL+accepted.Header.Get("Location")+"/cancel", "")
		hookstest.ReceiveWithin(t, "the turn is cancelled", gone)
		if resp := hookstest.ReceiveWithin(t, "the caller is answered", shown); resp.Status != 200 || !strings.Contains(resp.Body, `"cancelled"`) {
			t.Errorf("a run that somebody waited for was shown as %d %s", resp.Status, resp.Body)
		}

		if resp := c.post(hooks+"agent", `{"message":"hi","syncResponse":true}`, "Expect", "100-continue"); resp.Status != 200 || resp.Body != "hi" {
			t.Errorf("a synchronous answer is %+v", resp)
		}
		rn.Next()
		c.post(hooks+"signed", `{}`).WantError(t, 401)
		c.post(hooks+"agent", strings.Repeat(" ", 100_000)).WantError(t, 413)
		resp, err := c.send(t.Context(), "POST", hooks+"agent", io.MultiReader(strings.NewReader(strings.Repeat(" ", 10_000_000))))
		if err != nil {
			t.Errorf("a body that is too large, and does not say so: %v", err)
		} else {
			resp.WantError(t, 413)
		}
		// The connection is none the worse for it.
		c.post(hooks+"wake", `{"text":"hello"}`).WantBody(t, 200, "status", "chatId")
		rn.Next()
	})
	if err := s.TryLoad(""); err != nil { // which writes the log to its end
		t.Fatal(err)
	}
	log, err := os.ReadFile(logFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, proto := range []string{`"proto":"HTTP/2.0"`, `"proto":"HTTP/3.0"`} {
		if !strings.Contains(string(log), proto) {
			t.Errorf("no entry of the access log has %s", proto)
		}
	}
	if strings.Contains(string(log), hookstest.Token) {
		t.Error("the token is in the access log")
	}
}

func TestCallersOfNewerVersionsOfHTTPThatGoAway(t *testing.T) {
	rn, gone, release := hookstest.HeldRunner(t)
	defer close(release)
	s := secureSite(t, hookstest.Hooks(rn, ""))
	eachProtocol(t, func(t *testing.T, c protocolClient) {
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			if _, err := c.send(ctx, "POST", s.URL+"/api/hooks/agent", strings.NewReader(`{"message":"hold","syncResponse":true}`)); err == nil {
				t.Error("a caller that is gone has an answer")
			}
		}()
		rn.Next()
		cancel()
		hookstest.ReceiveWithin(t, "the request is over", over)
		select {
		case <-gone:
		case <-time.After(30 * time.Second):
			t.Error("the run of a caller that is gone goes on")
		}

		// In the middle of a body.
		ctx, cancel = context.WithCancel(t.Context())
		body, half := io.Pipe()
		over = make(chan struct{})
		go func() {
			defer close(over)
			_, _ = c.send(ctx, "POST", s.URL+"/api/hooks/agent", body)
		}()
		_, _ = io.WriteString(half, `{"message":`)
		hookstest.Eventually(t, "the body is being read", func() bool { return hookstest.GoroutinesIn(s, "ingress.readBody(") > 0 })
		cancel()
		hookstest.ReceiveWithin(t, "the request is over", over)
		half.Close()
		hookstest.Eventually(t, "nobody reads the body any more", func() bool { return hookstest.GoroutinesIn(s, "ingress.readBody(") == 0 })
	})
}

func TestSlowBodiesOverNewerVersionsOfHTTP(t *testing.T) {
	restore := caddyhooks.ShortenBodyTime(200 * time.Millisecond)
	s := secureSite(t, "hooks {\n\tenabled\n\trunner echo\n\ttoken "+hookstest.Token+"\n}")
	t.Cleanup(restore)
	eachProtocol(t, func(t *testing.T, c protocolClient) {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("little by little %t", slow), func(t *testing.T) {
				body, half := io.Pipe()
				defer half.Close()
				pace := time.NewTicker(20 * time.Millisecond)
				defer pace.Stop()
				go func() {
					for {
						if _, err := io.WriteString(half, " "); err != nil || !slow {
							return
						}
						<-pace.C
					}
				}()
				resp, err := c.send(t.Context(), "POST", s.URL+"/api/hooks/agent", body)
				if err != nil {
					t.Fatalf("there is no answer: %v", err)
				}
				resp.WantError(t, 408, "too long")
				if resp.Header.Get("Connection") != "" {
					t.Error("the answer has a header that this version of HTTP forbids")
				}
			})
		}
		if resp := c.post(s.URL+"/api/hooks/agent", `{"message":"x","syncResponse":true}`); resp.Status != 200 {
			t.Errorf("a body in time is answered %+v", resp)
		}
	})
}
