package outbound

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// openGuard lets tests reach listeners on loopback, on whatever port they got.
var openGuard = NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil, true)

func TestPostSendsTheCallback(t *testing.T) {
	t.Parallel()
	type received struct {
		header http.Header
		body   string
		length int64
	}
	got := make(chan received, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- received{r.Header, string(body), r.ContentLength}
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "thanks")
	}))
	defer server.Close()

	for _, c := range []struct {
		name string
		cb   Callback
		want map[string]string
	}{
		{
			"text",
			Callback{ID: "d1", RunID: "r1", ChatID: "hook:1", RunStatus: "completed", Attempt: 1, Body: []byte("Grüße\n")},
			map[string]string{
				"Content-Type": "text/plain; charset=utf-8", "X-Service-Run-Id": "r1", "X-Service-Chat-Id": "hook:1",
				"X-Service-Run-Status": "completed", "X-Service-Attempt": "1",
				"Webhook-Id": "d1", "Webhook-Timestamp": "", "Webhook-Signature": "",
			},
		},
		{
			"error body",
			Callback{ID: "d2", RunID: "r2", ChatID: "c", RunStatus: "timed_out", Attempt: 8, ContentType: "application/json", Body: []byte(`{"status":"error"}`)},
			map[string]string{"Content-Type": "application/json", "X-Service-Run-Status": "timed_out", "X-Service-Attempt": "8"},
		},
		{
			"nothing to say",
			Callback{ID: "d3", RunStatus: "completed", Attempt: 1},
			map[string]string{"Content-Type": "text/plain; charset=utf-8", "X-Service-Chat-Id": ""},
		},
		{
			"odd chat id",
			Callback{ID: "d4", ChatID: "a b\r\nX-Evil: 1\x00é%", Attempt: 1},
			map[string]string{"X-Service-Chat-Id": "a%20b%0D%0AX-Evil:%201%00%C3%A9%25", "X-Evil": ""},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cb.URL = server.URL + "/back"
			o := newClient(t, openGuard, 0).Post(t.Context(), c.cb)
			if !o.Delivered || o.Final || o.Status != http.StatusAccepted || string(o.Answer) != "thanks" || o.Reason != "" {
				t.Errorf("outcome: %+v", o)
			}
			r := <-got
			if r.body != string(c.cb.Body) || r.length != int64(len(c.cb.Body)) {
				t.Errorf("body %q, length %d", r.body, r.length)
			}
			for name, want := range c.want {
				if got := r.header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestPostSignsWithEverySecret(t *testing.T) {
	t.Parallel()
	cb := Callback{ID: "0198c0de-delivery", Attempt: 1, Body: []byte(`{"test": 2432232314}`)}
	var headers []http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers = append(headers, r.Header) }))
	defer server.Close()
	cb.URL = server.URL

	client := newClient(t, openGuard, 0, secretA, secretB)
	for range 2 {
		if o := client.Post(t.Context(), cb); !o.Delivered {
			t.Fatalf("outcome: %+v", o)
		}
		cb.Attempt++
	}
	for _, h := range headers {
		if got := h.Get("webhook-id"); got != cb.ID {
			t.Errorf("webhook-id %q is not the delivery's", got)
		}
		if n := len(strings.Fields(h.Get("webhook-signature"))); n != 2 {
			t.Errorf("%d signatures", n)
		}
		for _, secret := range []string{secretA, secretB} {
			receiver, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			if err := receiver.Verify(cb.Body, h); err != nil {
				t.Errorf("a receiver with one of the secrets refuses: %v", err)
			}
			if receiver.Verify([]byte("altered"), h) == nil {
				t.Error("an altered body verifies")
			}
		}
	}
}

func TestPostClassifiesAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status     int
		retryAfter string
		want       Outcome
	}{
		{200, "", Outcome{Delivered: true}},
		{204, "", Outcome{Delivered: true}},
		{299, "", Outcome{Delivered: true}},
		{200, "30", Outcome{Delivered: true}},
		{300, "", Outcome{Final: true}},
		{301, "", Outcome{Final: true}},
		{304, "", Outcome{Final: true}},
		{307, "", Outcome{Final: true}},
		{400, "", Outcome{Final: true}},
		{401, "", Outcome{Final: true}},
		{404, "60", Outcome{Final: true}},
		{410, "", Outcome{Final: true}},
		{422, "", Outcome{Final: true}},
		{408, "", Outcome{}},
		{425, "", Outcome{}},
		{429, "", Outcome{}},
		{429, "120", Outcome{RetryAfter: 2 * time.Minute}},
		{429, "soon", Outcome{}},
		{429, "-5", Outcome{}},
		{500, "", Outcome{}},
		{503, "7", Outcome{RetryAfter: 7 * time.Second}},
		{503, "99999999999999999999999", Outcome{RetryAfter: 24 * time.Hour}},
		{599, "", Outcome{}},
		{600, "", Outcome{}},
		{999, "", Outcome{}},
	} {
		t.Run(fmt.Sprintf("%d %s", c.status, c.retryAfter), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.status)
			}))
			defer server.Close()
			o := newClient(t, openGuard, 0).Post(t.Context(), Callback{URL: server.URL})
			if o.Delivered != c.want.Delivered || o.Final != c.want.Final || o.RetryAfter != c.want.RetryAfter || o.Status != c.status {
				t.Errorf("outcome: %+v", o)
			}
			if o.Delivered != (o.Reason == "") {
				t.Errorf("reason: %q", o.Reason)
			}
		})
	}
}

func TestRetryAfterReadsDates(t *testing.T) {
	t.Parallel()
	now := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"Sun, 01 Jun 2025 12:01:30 GMT":  90 * time.Second,
		"Sunday, 01-Jun-25 12:00:05 GMT": 5 * time.Second,
		"Sun, 01 Jun 2025 11:00:00 GMT":  0,
		"Sun, 01 Jun 2999 12:00:00 GMT":  24 * time.Hour,
		"Sun, 99 Jun 2025 12:00:00 GMT":  0,
		"1.5":                            0,
		"":                               0,
	} {
		if got := RetryAfter(value, now); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

func TestPostFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	target, untouched := listen(t)
	server := httptest.NewServer(http.RedirectHandler("http://"+target+"/", http.StatusTemporaryRedirect))
	defer server.Close()
	o := newClient(t, openGuard, 0).Post(t.Context(), Callback{URL: server.URL, Body: []byte("text")})
	if o.Delivered || !o.Final || o.Status != http.StatusTemporaryRedirect {
		t.Errorf("outcome: %+v", o)
	}
	untouched()
}

func TestPostTouchesNoRefusedAddress(t *testing.T) {
	t.Parallel()
	address, untouched := listen(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{
		"127.0.0.1", "localhost", "LOCALHOST", "①②⑦.⓪.⓪.①", "１２７。０。０。１", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
		"[64:ff9b::127.0.0.1]", "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "0", "0.0.0.0", "[::]", "[::1]", "127.0.0.1.", "user@127.0.0.1",
	} {
		t.Run(host, func(t *testing.T) {
			client := newClient(t, NewGuard(nil, nil, true), 0)
			o := client.Post(t.Context(), Callback{URL: "http://" + host + ":" + port + "/secret-path"})
			if o.Delivered || !o.Final || o.Status != 0 {
				t.Errorf("outcome: %+v", o)
			}
			if strings.Contains(o.Reason, "secret-path") {
				t.Errorf("the reason says too much: %s", o.Reason)
			}
			if strings.EqualFold(host, "localhost") && !strings.Contains(o.Reason, "'allow 127.0.0.1 ::1'") {
				t.Errorf("the reason does not name the addresses of localhost: %s", o.Reason)
			}
		})
	}
	untouched()
}

func TestPostRefusesAPortThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	address, untouched := listen(t)
	guard := NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil, false)
	if o := newClient(t, guard, 0).Post(t.Context(), Callback{URL: "http://" + address}); !o.Final || !strings.Contains(o.Reason, "port") {
		t.Errorf("outcome: %+v", o)
	}
	untouched()
}

func TestPostUsesNoProxy(t *testing.T) {
	t.Parallel()
	// Loopback is never proxied, so the environment cannot be put to the test with a listener.
	if newClient(t, openGuard, 0).transport.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
}

func TestPostNeverSendsTwice(t *testing.T) {
	t.Parallel()
	// The connection breaks after the second request has been read: the moment at which a transport likes to try again.
	requests := make(chan string, 10)
	address := serveRaw(t, func(conn net.Conn, body string) (more bool) {
		requests <- body
		if body != "first" {
			return false
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		return true
	})
	client := newClient(t, openGuard, 0)
	if o := client.Post(t.Context(), Callback{URL: "http://" + address, Body: []byte("first")}); !o.Delivered {
		t.Fatalf("first: %+v", o)
	}
	for _, body := range []string{"second", ""} {
		o := client.Post(t.Context(), Callback{URL: "http://" + address, Body: []byte(body)})
		if o.Delivered || o.Final || o.Reason != "the host gave no proper answer" {
			t.Errorf("%q: %+v", body, o)
		}
	}
	if n := len(requests); n != 3 {
		t.Errorf("3 attempts made %d requests", n)
	}
}

func TestPostReusesConnections(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := newClient(t, openGuard, 0)
	for range 5 {
		if o := client.Post(t.Context(), Callback{URL: server.URL, Body: []byte("x")}); !o.Delivered {
			t.Fatalf("outcome: %+v", o)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("5 callbacks took %d connections", n)
	}
}

func TestPostKeepsTheBeginningOfTheAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}))
	defer server.Close()
	if o := newClient(t, openGuard, 0).Post(t.Context(), Callback{URL: server.URL}); !o.Delivered || len(o.Answer) != 4<<10 {
		t.Errorf("delivered %v, %d bytes kept", o.Delivered, len(o.Answer))
	}
}

// Each of these receivers would hold an attempt for ever; the tests end because the attempts do.
func TestPostEndsWithItsTimeout(t *testing.T) {
	t.Parallel()
	var attempts sync.WaitGroup
	for _, c := range []struct {
		name   string
		answer string // what the receiver says before it falls silent
		want   Outcome
	}{
		{"silence", "", Outcome{Unreachable: true, Reason: "no answer within 1s"}},
		{"half a status line", "HTTP/1.1 20", Outcome{Unreachable: true, Reason: "no answer within 1s"}},
		{"half a header", "HTTP/1.1 200 OK\r\nX-", Outcome{Unreachable: true, Reason: "no answer within 1s"}},
		{"informational answers only", "HTTP/1.1 103 Early Hints\r\n\r\n", Outcome{Unreachable: true, Reason: "no answer within 1s"}},
		{"half a body", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", Outcome{Delivered: true, Status: 200, Answer: []byte("half")}},
		{"half a body of a failure", "HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nhalf", Outcome{Status: 500, Answer: []byte("half"), Reason: "the receiver answered 500"}},
		{"switched protocols", "HTTP/1.1 101 Switching Protocols\r\n\r\n", Outcome{Final: true, Status: 101, Reason: "the receiver answered 101"}},
	} {
		address := serveRaw(t, func(conn net.Conn, _ string) (more bool) {
			io.WriteString(conn, c.answer)
			return true
		})
		timeout := time.Second
		if c.want.Status != 0 {
			timeout = 10 * time.Second // so that the status comes in time on a busy machine
		}
		client := newClient(t, openGuard, timeout)
		attempts.Go(func() { // all at once, since each takes its time
			o := client.Post(t.Context(), Callback{URL: "http://" + address, Body: []byte("x")})
			if fmt.Sprintf("%+v", o) != fmt.Sprintf("%+v", c.want) {
				t.Errorf("%s: got %+v, want %+v", c.name, o, c.want)
			}
		})
	}
	attempts.Wait()
}

// With a timeout of an hour this would not end if the answer was waited for.
func TestPostDoesNotWaitForTheRestOfAGoodAnswer(t *testing.T) {
	t.Parallel()
	address := serveRaw(t, func(conn net.Conn, _ string) (more bool) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		return true
	})
	o := newClient(t, openGuard, time.Hour).Post(t.Context(), Callback{URL: "http://" + address, Body: []byte("x")})
	if !o.Delivered {
		t.Errorf("outcome: %+v", o)
	}
}

func TestPostBoundsTheAnswersHeader(t *testing.T) {
	t.Parallel()
	address := serveRaw(t, func(conn net.Conn, _ string) (more bool) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for line := []byte("X-Filler: " + strings.Repeat("x", 1000) + "\r\n"); ; {
			if _, err := conn.Write(line); err != nil {
				return false
			}
		}
	})
	o := newClient(t, openGuard, 0).Post(t.Context(), Callback{URL: "http://" + address})
	if o.Delivered || o.Final || o.Reason != "the host gave no proper answer" {
		t.Errorf("outcome: %+v", o)
	}
}

func TestPostStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	address := serveRaw(t, func(net.Conn, string) (more bool) {
		cancel()
		return true
	})
	o := newClient(t, openGuard, 0).Post(ctx, Callback{URL: "http://" + address})
	if o.Delivered || o.Final || !strings.Contains(o.Reason, "stopped") {
		t.Errorf("outcome: %+v", o)
	}
}

func TestPostSaysWhyThereWasNoAnswer(t *testing.T) {
	// Not parallel: another test could listen on the port that this one leaves.
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for _, c := range []struct{ name, url, want string }{
		{"unknown authority", secure.URL, "certificate"},
		{"plain HTTP behind https", strings.Replace(plain.URL, "http:", "https:", 1), "does not speak TLS"},
		{"nobody there", closed.URL, "refused the connection"},
		{"no such host", "http://nobody.invalid/", "the host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newClient(t, openGuard, 0).Post(t.Context(), Callback{URL: c.url})
			if o.Delivered || o.Final || !o.Unreachable || !strings.Contains(o.Reason, c.want) || strings.Contains(o.Reason, "127.0.0.1") {
				t.Errorf("outcome: %+v", o)
			}
		})
	}
}

func TestPostSpeaksTLS(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			protocol := make(chan string, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocol <- r.Proto }))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			client := newClient(t, openGuard, 0)
			client.transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
			client.transport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
			if o := client.Post(t.Context(), Callback{URL: server.URL, Body: []byte("x")}); !o.Delivered {
				t.Fatalf("outcome: %+v", o)
			}
			if got := <-protocol; (got == "HTTP/2.0") != http2 {
				t.Errorf("spoke %s", got)
			}
		})
	}
}

func TestNewClientRefusesUselessSecrets(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]string{
		"empty":       "",
		"prefix only": "whsec_",
		"no prefix":   strings.TrimPrefix(secretA, "whsec_"),
		"no base64":   "whsec_not*base64*not*base64*not*base64*",
		"too short":   "whsec_c2hvcnQ=",
		"too long":    "whsec_" + strings.Repeat("AAAA", 22),
	} {
		_, err := NewClient(openGuard, 0, []string{secretA, secret})
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if !strings.Contains(err.Error(), "secret 2") || len(secret) > 6 && strings.Contains(err.Error(), secret[6:]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSignerMakesTheDocumentedSignature(t *testing.T) {
	t.Parallel()
	s, err := NewSigner([]string{secretA})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	s.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got := h.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("webhook-signature %q", got)
	}
	if got := h.Get("webhook-timestamp"); got != "1614265330" {
		t.Errorf("webhook-timestamp %q", got)
	}
}

func TestHeaderValueCanBeDecoded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"webhook:default", "webhook:default"},
		{"hook:0198c0de-0000-7000-8000-000000000000", "hook:0198c0de-0000-7000-8000-000000000000"},
		{"a b", "a%20b"},
		{"100%", "100%25"},
		{"é\r\n\x00\x7f", "%C3%A9%0D%0A%00%7F"},
		{"\xff", "%FF"},
	} {
		got := HeaderValue(c.in)
		if got != c.want {
			t.Errorf("HeaderValue(%q) = %q", c.in, got)
		}
		if back, err := url.PathUnescape(got); err != nil || back != c.in {
			t.Errorf("%q decodes to %q, %v", got, back, err)
		}
	}
}

func newClient(t *testing.T, guard *Guard, timeout time.Duration, secrets ...string) *Client {
	t.Helper()
	client, err := NewClient(guard, timeout, secrets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// listen opens a listener on loopback. Calling untouched fails the test if anybody has connected to it by then.
func listen(t *testing.T) (address string, untouched func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String(), func() {
		t.Helper()
		// Connections are accepted in order, so if ours is the first there was no other.
		ours, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		first, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		if first.RemoteAddr().String() != ours.LocalAddr().String() {
			t.Error("the listener was touched")
		}
	}
}

// serveRaw calls answer for every request that comes in on loopback, and leaves it to answer which rules of HTTP to
// break. The connection is closed if answer wants no more of it, and else stays open until the client closes it.
func serveRaw(t *testing.T, answer func(conn net.Conn, body string) (more bool)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(conn net.Conn) {
		defer conn.Close()
		for r := bufio.NewReader(conn); ; {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil || !answer(conn, string(body)) {
				return
			}
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"", "0", "7", "-1", "99999999999999999999", "Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "1e3", " 5", "soon"} {
		f.Add(value)
	}
	now := time.Now()
	f.Fuzz(func(t *testing.T, value string) {
		if d := RetryAfter(value, now); d < 0 || d > 24*time.Hour {
			t.Errorf("%q: %s", value, d)
		}
	})
}
