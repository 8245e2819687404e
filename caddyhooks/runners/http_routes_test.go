package runners

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

// newRouted is a runner from a Caddyfile: `http …`.
func newRouted(t testing.TB, block string) *HTTP {
	t.Helper()
	h, err := tryRouted(t, block)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func tryRouted(t testing.TB, block string) (*HTTP, error) {
	t.Helper()
	h, err := adapted(block)
	if err != nil {
		return nil, err
	}
	base, err := caddyContext()
	if err != nil {
		return nil, err
	}
	ctx, cancel := caddy.NewContext(base)
	t.Cleanup(cancel)
	adapting.Lock() // Caddy provisions one thing at a time
	err = h.Provision(ctx)
	adapting.Unlock()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = h.Cleanup() })
	return h, h.Validate()
}

// caddyContext is that of a Caddy without servers.
var caddyContext = sync.OnceValues(func() (caddy.Context, error) {
	return caddy.ProvisionContext(&caddy.Config{
		Admin:   &caddy.AdminConfig{Disabled: true},
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: "PANIC"}}}},
	})
})

// adapted has Caddy read `http …` as a directive of a site, so that its directives are read as they are in real life.
func adapted(block string) (*HTTP, error) {
	adapting.Lock()
	defer adapting.Unlock()
	adapting.h = new(HTTP)
	_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(":1 {\n"+block+"\n}"), map[string]any{"filename": "Caddyfile"})
	return adapting.h, err
}

var adapting struct {
	sync.Mutex
	h *HTTP
}

func init() {
	httpcaddyfile.RegisterDirective("http", func(helper httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
		return nil, adapting.h.UnmarshalRoutes(helper)
	})
}

// upstream serves with a handler that begins after the request was read.
func upstream(t testing.TB, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server
}

// bothForms are a runner with the URL of a server, and one with a reverse_proxy to it.
func bothForms(t testing.TB, server *httptest.Server, more string) map[string]*HTTP {
	t.Helper()
	return map[string]*HTTP{
		"URL":  newRouted(t, "http "+server.URL+"/turn {\n"+more+"\n}"),
		"path": newRouted(t, "http /turn {\n"+more+"\nreverse_proxy "+server.Listener.Addr().String()+"\n}"),
	}
}

func TestTurnThroughRoutes(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		data, _ := io.ReadAll(r.Body)
		body = string(data)
		_, _ = io.WriteString(w, "hello")
	}))
	defer server.Close()
	h := newRouted(t, "http /turn?a=1 {\n token s3cret-token\n reverse_proxy "+server.Listener.Addr().String()+"\n}")
	var sent atomic.Int32
	turn := runnertest.ExampleTurn()
	turn.Sent = func() { sent.Add(1) }
	reply, err := h.Run(t.Context(), turn)
	if err != nil || reply.Text != "hello" || sent.Load() != 1 {
		t.Fatalf("got %q, %v; sent %d times", reply.Text, err, sent.Load())
	}
	if got.Method != "POST" || got.RequestURI != "/turn?a=1" || got.Host != "localhost" || got.ContentLength != int64(len(body)) || !strings.HasPrefix(body, `{"version":1,"runId":"run"`) {
		t.Errorf("got %s %s %s of %d bytes: %s", got.Method, got.Host, got.RequestURI, got.ContentLength, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Authorization": "Bearer s3cret-token", "Idempotency-Key": "run:turn",
		"X-Service-Run-Id": "run", "X-Service-Chat-Id": "ch%C3%A4t%201", "X-Service-Deadline": "2026-01-02T03:04:05Z",
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost",
	} {
		if got := got.Header.Get(name); got != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
	if h.Address() != "/turn" {
		t.Errorf("the address is %s", h.Address())
	}
}

func TestRoutesAreAnyDirectives(t *testing.T) {
	t.Parallel()
	server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.URL.Path, " ", r.Host, " ", r.Header.Get("X-More"))
	})
	addr := server.Listener.Addr().String()
	for block, want := range map[string]string{
		"respond hello": "hello",
		"respond `{\"text\":\"from JSON\"}`\nheader Content-Type application/json":                                                        "from JSON",
		"reverse_proxy " + addr + "\nrewrite /agent{http.request.uri}":                                                                    "/agent/turn localhost ",
		"route {\n request_header X-More {http.request.local}\n reverse_proxy " + addr + " {\n header_up Host {upstream_hostport}\n }\n}": "/turn " + addr + " 127.0.0.1:0",
		"@wake header X-Service-Run-Id other\nrespond @wake no\nrespond yes":                                                              "yes",
		"request_header X-More {client_ip}\nreverse_proxy " + addr + "\n":                                                                 "/turn localhost 127.0.0.1",
		"encode gzip\nreverse_proxy " + addr:                                                                                              "/turn localhost ",
		"respond 200":                                                                                                                     "",
		"vars a b\nrespond {vars.a} 200":                                                                                                  "b",
		"reverse_proxy " + addr + " {\n request_buffers 1MB\n response_buffers 1MB\n}":                                                    "/turn localhost ",
		"reverse_proxy {\n dynamic a 127.0.0.1 " + addr[strings.LastIndex(addr, ":")+1:] + "\n}":                                          "/turn localhost ",
		"log_append a b\nreverse_proxy " + addr:                                                                                           "/turn localhost ",
		"tracing\nreverse_proxy " + addr:                                                                                                  "/turn localhost ",
		"method PUT\nreverse_proxy " + addr:                                                                                               "/turn localhost ",
	} {
		t.Run(block, func(t *testing.T) {
			reply, err := newRouted(t, "http /turn {\n"+block+"\n}").Run(t.Context(), runnertest.ExampleTurn())
			if err != nil || reply.Text != want {
				t.Errorf("got %q, %v, want %q", reply.Text, err, want)
			}
		})
	}
}

// Whether a run is tried again depends on whether an agent may have begun with it.
func TestFailuresOfRoutes(t *testing.T) {
	t.Parallel()
	closing := func(answer string) string { return rawUpstream(t, answer) }
	const reaching = "reaching the runner: "
	for _, tc := range []struct {
		name, block, want string // want: how the error begins
		unavailable, busy bool
	}{
		{"nobody there", "reverse_proxy 127.0.0.1:1", reaching + "dial", true, false},
		{"none of two", "reverse_proxy 127.0.0.1:1 127.0.0.1:2 {\n lb_retries 3\n}", reaching + "dial", true, false},
		{"nobody there, buffered", "reverse_proxy 127.0.0.1:1 {\n request_buffers 1MB\n}", reaching + "dial", true, false},
		{"no upstreams", "reverse_proxy {\n dynamic a localhost.invalid 1\n}", reaching, true, false},
		{"FastCGI to nobody", "reverse_proxy 127.0.0.1:1 {\n transport fastcgi\n}", reaching + "dialing backend", true, false},
		{"FastCGI that closes", "reverse_proxy " + closing("") + " {\n transport fastcgi\n}", "", false, false},
		{"FastCGI by a socket that is not there", "reverse_proxy unix//nowhere/php.sock {\n transport fastcgi\n}", reaching + "dialing backend", true, false},
		{"no TLS there", "reverse_proxy https://" + closing("HTTP/1.1 400 Bad Request\r\n\r\n"), reaching, true, false},
		{"closed without an answer", "reverse_proxy " + closing(""), "the runner closed the connection without an answer", false, false},
		{"closed in the header", "reverse_proxy " + closing("HTTP/1.1 200 OK\r\nContent-Type: te"), "the runner closed the connection without an answer", false, false},
		{"not HTTP", "reverse_proxy " + closing("SSH-2.0-OpenSSH\r\n"), "calling the runner: ", false, false},
		{"broken off", "reverse_proxy " + closing("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel"), "the runner's answer broke off", false, false},
		{"broken off between chunks", "reverse_proxy " + closing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n"), "the runner's answer broke off", false, false},
		{"bad chunks", "reverse_proxy " + closing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhel\r\n"), "the runner's answer broke off", false, false},
		{"a result that breaks off", "reverse_proxy " + closing("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{\"text\":\"all\"}"), "the runner's answer broke off", false, false},
		{"another protocol", "reverse_proxy " + closing("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), "the runner answered 101; it must answer 200", false, false},
		{"another protocol, not named", "reverse_proxy " + closing("HTTP/1.1 101 Switching Protocols\r\n\r\n"), "the runner answered 101; it must answer 200", false, false},
		{"hints before", "reverse_proxy " + closing("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno"), "the runner answered 500: no", false, false},
		{"a redirect", "redir https://elsewhere.example", "the runner answered 302; it must answer 200, and redirects are not followed", false, false},
		{"busy", "reverse_proxy " + closing("HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"), "the runner answered 503: busy", true, true},
		{"busy by directive", "respond later 429", "the runner answered 429: later", true, true},
		{"a gateway that knows nobody", "respond nobody 502", "the runner answered 502: nobody", true, false},
		{"a gateway behind the upstream", "reverse_proxy " + closing("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\nnobody"), "the runner answered 502: nobody", false, false},
		{"an error directive", "error later 503", reaching + "later", true, false},
		{"forbidden", "error no 403", "the directives of the runner failed with 403: no", false, false},
		{"nobody answers", "header X-A b", "no directive of the runner answered; it needs one such as reverse_proxy for POST requests to its path", false, false},
		{"no matcher matches", "respond /other hello", "no directive of the runner answered; ", false, false},
		{"a connection that is cut", "abort", "the runner closed the connection without an answer", false, false},
		{"too slow for the transport", "reverse_proxy " + upstream(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }).Listener.Addr().String() + " {\n transport http {\n response_header_timeout 10ms\n }\n}", "calling the runner: ", false, false},
		{"a page", "respond <p>\nheader Content-Type text/html", "the runner answered 200 with text/html: <p>", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := newRouted(t, "http /turn {\n"+tc.block+"\n}").Run(t.Context(), runnertest.ExampleTurn())
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Fatalf("got %v, want %s", err, tc.want)
			}
			var unavailable *engine.UnavailableError
			if errors.As(err, &unavailable) != tc.unavailable || tc.unavailable && unavailable.Busy != tc.busy {
				t.Errorf("got %#v: %v", err, err)
			}
			if tc.busy && tc.name == "busy" && unavailable.RetryAfter != 7*time.Second {
				t.Errorf("it is to be tried again after %v", unavailable.RetryAfter)
			}
		})
	}
}

// rawUpstream answers every request with some bytes, and closes the connection.
func rawUpstream(t testing.TB, answer string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.Copy(io.Discard, req.Body)
				}
				_, _ = io.WriteString(conn, answer)
			}()
		}
	}()
	return l.Addr().String()
}

func TestHandlersThatPanicOrFail(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		handle caddyhttp.HandlerFunc
		want   string
	}{
		"a panic":               {func(http.ResponseWriter, *http.Request) error { panic("oh") }, "a directive of the runner panicked: oh"},
		"a panic in the answer": {func(w http.ResponseWriter, _ *http.Request) error { _, _ = io.WriteString(w, "hel"); panic("oh") }, "the runner's answer broke off"},
		"an error in the answer": {func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, "hel")
			return errors.New("oh")
		}, "the runner's answer broke off"},
		"less than announced": {func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "hel")
			return nil
		}, "the runner's answer broke off"},
		"nothing of what was announced": {func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(200)
			return nil
		}, "the runner's answer broke off"},
		"an error without a status": {func(http.ResponseWriter, *http.Request) error { return errors.New("oh") }, "oh"},
		"a rate limit": {func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Retry-After", "3")
			return caddyhttp.Error(429, nil)
		}, "reaching the runner: Too Many Requests"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newRouted(t, "http /turn {\n respond no\n}")
			h.routes.handler = tc.handle
			_, err := h.Run(t.Context(), runnertest.ExampleTurn())
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// Deltas are told while the upstream still writes.
func TestDeltasArriveBeforeTheEnd(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, word := range []string{"one ", "two "} {
			_, _ = io.WriteString(w, "event: delta\ndata: "+word+"\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-goOn:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, "event: result\ndata: {}\n\n")
	})
	for name, h := range bothForms(t, server, "") {
		t.Run(name, func(t *testing.T) {
			turn := runnertest.ExampleTurn()
			var told []string
			turn.Emit = func(p engine.Progress) {
				told = append(told, p.Text)
				goOn <- struct{}{} // the upstream waits for this
			}
			reply, err := h.Run(t.Context(), turn)
			if err != nil || reply.Text != "one two " || strings.Join(told, "|") != "one |two " {
				t.Errorf("got %q, %v, and was told %q", reply.Text, err, told)
			}
		})
	}
}

func TestCancellingReachesTheUpstream(t *testing.T) {
	t.Parallel()
	for _, streaming := range []bool{false, true} {
		here, gone := make(chan struct{}), make(chan struct{})
		server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			if streaming {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "event: delta\ndata: x\n\n")
				_ = http.NewResponseController(w).Flush()
			}
			here <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
		})
		for name, h := range bothForms(t, server, "") {
			t.Run(fmt.Sprint(name, " ", streaming), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				failed := make(chan error, 1)
				go func() {
					_, err := h.Run(ctx, runnertest.ExampleTurn())
					failed <- err
				}()
				<-here
				cancel()
				<-gone
				var unavailable *engine.UnavailableError
				if err := <-failed; err == nil || errors.As(err, &unavailable) {
					t.Errorf("got %#v", err)
				}
			})
		}
	}
}

// A handler that does not heed its context does not hold up the turn, and cannot have an effect on it afterwards.
func TestHandlersAreLeftBehind(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here := make(chan net.Conn, 1)
	go func() {
		if conn, err := l.Accept(); err == nil {
			here <- conn
		}
	}()
	h := newRouted(t, "http /turn {\n reverse_proxy "+l.Addr().String()+" {\n transport fastcgi\n }\n}") // which waits for its upstream
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	sent := make(chan struct{})
	turn := runnertest.ExampleTurn()
	turn.Sent = func() { close(sent) }
	go func() {
		_, err := h.Run(ctx, turn)
		failed <- err
	}()
	conn := <-here
	defer conn.Close()
	<-sent
	cancel()
	if err := <-failed; err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRunnerThatIsSilent(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		gone := make(chan struct{})
		server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			if begun {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, ": comment\n\n")
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
			gone <- struct{}{}
		})
		for name, h := range bothForms(t, server, "") {
			t.Run(fmt.Sprint(name, " ", begun), func(t *testing.T) {
				h.IdleTimeout = caddy.Duration(50 * time.Millisecond)
				_, err := h.Run(t.Context(), runnertest.ExampleTurn())
				var unavailable *engine.UnavailableError
				if err == nil || err.Error() != "the runner was silent for 50ms" || errors.As(err, &unavailable) {
					t.Errorf("got %#v", err)
				}
				<-gone
			})
		}
	}
}

// net/http would send a request again by itself when a connection that it had kept breaks.
func TestTurnThroughRoutesIsSentOnce(t *testing.T) {
	t.Parallel()
	var turns atomic.Int32
	server := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		if turns.Add(1) == 1 {
			return // and keep the connection
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	other := upstream(t, func(http.ResponseWriter, *http.Request) { turns.Add(1000) })
	h := newRouted(t, "http /turn {\n reverse_proxy "+server.Listener.Addr().String()+" "+other.Listener.Addr().String()+" {\n lb_policy first\n lb_try_duration 5s\n }\n}")
	if _, err := h.Run(t.Context(), runnertest.ExampleTurn()); err != nil {
		t.Fatal(err)
	}
	_, err := h.Run(t.Context(), runnertest.ExampleTurn())
	var unavailable *engine.UnavailableError
	if err == nil || errors.As(err, &unavailable) || turns.Load() != 2 {
		t.Errorf("got %v, and %d turns", err, turns.Load())
	}
}

// Upstreams that cannot be reached are passed over, with the turn whole.
func TestUpstreamsThatAreDownArePassedOver(t *testing.T) {
	t.Parallel()
	var bodies atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if n == r.ContentLength {
			bodies.Add(1)
		}
	}))
	defer server.Close()
	h := newRouted(t, "http /turn {\n reverse_proxy 127.0.0.1:1 127.0.0.1:2 "+server.Listener.Addr().String()+" {\n lb_policy round_robin\n lb_try_duration 5s\n lb_try_interval 1ms\n }\n}")
	for range 6 {
		if _, err := h.Run(t.Context(), runnertest.ExampleTurn()); err != nil {
			t.Error(err)
		}
	}
	if bodies.Load() != 6 {
		t.Errorf("%d of 6 turns came whole", bodies.Load())
	}
}

func TestAnswersOfAnySizeThroughRoutes(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 10)
	server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("X-Form"))
		part := "event: delta\ndata: " + strings.Repeat("x", 32<<10) + "\n\n"
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, part); err != nil {
				break
			}
		}
		gone <- struct{}{}
	})
	for _, form := range []string{"text/plain", "application/json", "text/event-stream"} {
		h := newRouted(t, "http /turn {\n reverse_proxy "+server.Listener.Addr().String()+" {\n header_up X-Form "+form+"\n }\n}")
		if _, err := h.Run(t.Context(), runnertest.ExampleTurn()); err == nil || err.Error() != "reading the runner's answer: the answer is larger than 1048576 bytes" {
			t.Errorf("%s: got %v", form, err)
		}
		<-gone
	}
}

func TestTrailersAndHTTP2ThroughRoutes(t *testing.T) {
	t.Parallel()
	plain := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, r.Proto)
		w.Header().Set("X-Sum", "1")
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
	}))
	plain.Config.Protocols = new(http.Protocols)
	plain.Config.Protocols.SetHTTP1(true)
	plain.Config.Protocols.SetUnencryptedHTTP2(true)
	plain.Start()
	defer plain.Close()
	addr := plain.Listener.Addr().String()
	for to, want := range map[string]string{addr: "HTTP/1.1", "h2c://" + addr: "HTTP/2.0"} {
		h := newRouted(t, "http /turn {\n reverse_proxy "+to+"\n}")
		var sent atomic.Int32
		turn := runnertest.ExampleTurn()
		turn.Sent = func() { sent.Add(1) }
		if reply, err := h.Run(t.Context(), turn); err != nil || reply.Text != want || sent.Load() != 1 {
			t.Errorf("%s: got %q, %v; sent %d times", to, reply.Text, err, sent.Load())
		}
	}
}

func TestManyTurnsThroughRoutes(t *testing.T) {
	t.Parallel()
	server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Service-Run-Id")
		if len(id)%2 == 0 {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "event: delta\ndata: %s\n\n", id)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "event: result\n\n")
			return
		}
		_, _ = io.WriteString(w, id)
	})
	h := newRouted(t, "http /turn {\n reverse_proxy "+server.Listener.Addr().String()+"\n}")
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			for j := range 5 {
				turn := runnertest.ExampleTurn()
				turn.RunID = fmt.Sprint("run-", i*100+j)
				turn.Emit, turn.Sent = func(engine.Progress) {}, func() {}
				ctx := t.Context()
				if j == 4 { // some are cancelled at any point
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*100*time.Microsecond)
					defer cancel()
				}
				if reply, err := h.Run(ctx, turn); ctx.Err() == nil && (err != nil || reply.Text != turn.RunID) {
					t.Errorf("got %q, %v, want %s", reply.Text, err, turn.RunID)
				}
			}
		})
	}
	all.Wait()
}

// A program behind FastCGI is a runner too. Its transport tells nothing of what it has sent.
func TestTurnThroughFastCGI(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = fcgi.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var turn struct{ Message string }
			_ = json.NewDecoder(r.Body).Decode(&turn)
			if r.Header.Get("X-Service-Run-Id") == "short" {
				w.Header().Set("Content-Length", "100")
			}
			_, _ = fmt.Fprint(w, r.Method, " ", r.Header.Get("Authorization"), " ", turn.Message)
		}))
	}()
	defer func() { l.Close(); <-served }()
	script := filepath.Join(t.TempDir(), "turn.php")
	if err := os.WriteFile(script, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := newRouted(t, "http /turn.php {\n token secret-token\n php_fastcgi "+l.Addr().String()+" {\n root "+filepath.Dir(script)+"\n }\n}")
	var sent atomic.Int32
	turn := runnertest.ExampleTurn()
	turn.Sent = func() { sent.Add(1) }
	if reply, err := h.Run(t.Context(), turn); err != nil || reply.Text != "POST Bearer secret-token "+turn.Message || sent.Load() != 1 {
		t.Errorf("got %q, %v; sent %d times", reply.Text, err, sent.Load())
	}
	turn.RunID = "short"
	if reply, err := h.Run(t.Context(), turn); err == nil || err.Error() != "the runner's answer broke off" {
		t.Errorf("got %q, %v", reply.Text, err)
	}
}

// Secrets that Caddy's directives add are none of ours, and still must not come back in an error.
func TestSecretsOfRoutesAreHidden(t *testing.T) {
	t.Setenv("RUNNERS_TEST_KEY", "key-from-the-environment")
	server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(500)
		_, _ = fmt.Fprint(w, r.Header["X-Api-Key"], r.Header["X-More"], r.Header["X-Team"])
	})
	h := newRouted(t, "http /turn {\n handle {\n request_header X-More \"Bearer more-of-them\"\n reverse_proxy "+server.Listener.Addr().String()+
		" {\n header_up X-Api-Key {env.RUNNERS_TEST_KEY}\n header_up X-Team blue\n }\n }\n}")
	if _, err := h.Run(t.Context(), runnertest.ExampleTurn()); err == nil || err.Error() != "the runner answered 500: [REDACTED] [REDACTED] [blue]" {
		t.Errorf("got %v", err)
	}
}

func TestChatsStayWithTheirUpstream(t *testing.T) {
	t.Parallel()
	var upstreams []string
	for i := range 4 {
		server := upstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, i) })
		upstreams = append(upstreams, server.Listener.Addr().String())
	}
	h := newRouted(t, "http /turn {\n reverse_proxy "+strings.Join(upstreams, " ")+" {\n lb_policy header X-Service-Chat-Id\n }\n}")
	for chat := range 10 {
		first := ""
		for range 3 {
			turn := runnertest.ExampleTurn()
			turn.ChatID = fmt.Sprint("chat ", chat)
			reply, err := h.Run(t.Context(), turn)
			if err != nil || first != "" && reply.Text != first {
				t.Errorf("%s went to %s, and then to %q, %v", turn.ChatID, first, reply.Text, err)
			}
			first = reply.Text
		}
	}
}

func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		_, _ = io.WriteString(zip, "hello from "+r.Header.Get("Accept-Encoding"))
		_ = zip.Close()
	})
	for name, h := range bothForms(t, server, "") {
		if reply, err := h.Run(t.Context(), runnertest.ExampleTurn()); err != nil || reply.Text != "hello from gzip" {
			t.Errorf("%s: got %q, %v", name, reply.Text, err)
		}
	}
	h := newRouted(t, "http /turn {\n reverse_proxy "+server.Listener.Addr().String()+" {\n transport http {\n compression off\n }\n }\n}")
	if _, err := h.Run(t.Context(), runnertest.ExampleTurn()); err == nil || err.Error() != "the runner's answer has a Content-Encoding; it must have none" {
		t.Errorf("got %v", err)
	}
}

// The stream of an agent that does not end it after its result is not waited for.
func TestStreamsThatGoOnAfterTheResult(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: result\ndata: done\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	for name, h := range bothForms(t, server, "") {
		if reply, err := h.Run(t.Context(), runnertest.ExampleTurn()); err != nil || reply.Text != "done" {
			t.Errorf("%s: got %q, %v", name, reply.Text, err)
		}
		<-gone
	}
}

// An agent that ends its stream soon after its result keeps its connection.
func TestConnectionsOfStreamsAreUsedAgain(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: result\ndata: done\n\n")
		_ = http.NewResponseController(w).Flush()
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	for name, h := range bothForms(t, server, "") {
		connections.Store(0)
		for range 10 {
			if _, err := h.Run(t.Context(), runnertest.ExampleTurn()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := connections.Load(); n > 5 {
			t.Errorf("%s: 10 turns took %d connections", name, n)
		}
	}
}

// After a switch of protocols, nobody but us closes the connection.
func TestConnectionsThatSwitchProtocolsAreClosed(t *testing.T) {
	t.Parallel()
	for _, upgrade := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
		gone := make(chan error, 1)
		server := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				gone <- err
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+upgrade+"\r\n")
			_, err = conn.Read(make([]byte, 1))
			gone <- err
		})
		_, err := newRouted(t, "http /turn {\n reverse_proxy "+server.Listener.Addr().String()+"\n}").Run(t.Context(), runnertest.ExampleTurn())
		if err == nil || err.Error() != "the runner answered 101; it must answer 200" {
			t.Errorf("got %v", err)
		}
		if err := <-gone; !errors.Is(err, io.EOF) {
			t.Errorf("the upstream got %v", err)
		}
	}
}

// A turn that nobody waits for any more leaves nothing behind.
func TestTurnsThroughRoutesLeaveNoGoroutines(t *testing.T) {
	hold := make(chan struct{})
	server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Service-Run-Id") {
		case "hold":
			select {
			case <-r.Context().Done():
			case <-hold:
			}
		case "cut":
			_, _ = io.WriteString(w, "x")
			panic(http.ErrAbortHandler)
		case "large":
			_, _ = io.WriteString(w, strings.Repeat("x", 2*answers.MaxReply))
		}
	})
	defer close(hold)
	h := newRouted(t, "http /turn {\n reverse_proxy "+server.Listener.Addr().String()+"\n}")
	for _, id := range []string{"hold", "cut", "large", "fine"} {
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			turn := runnertest.ExampleTurn()
			turn.RunID = id
			if id == "hold" {
				turn.Sent = cancel
			}
			_, _ = h.Run(ctx, turn)
			cancel()
		}
	}
	stacks := make([]byte, 1<<20)
	for deadline := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		if all := string(stacks[:runtime.Stack(stacks, true)]); !strings.Contains(all, "runners.(*routes).do.func") {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("handlers are left:\n%s", all)
		}
	}
}

func TestHintsWithoutEnd(t *testing.T) {
	t.Parallel()
	server := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			w.WriteHeader(http.StatusProcessing)
		}
	})
	for name, h := range bothForms(t, server, "idle_timeout 1m") {
		if _, err := h.Run(t.Context(), runnertest.ExampleTurn()); err == nil || !strings.Contains(err.Error(), "the runner answered 1xx too often") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
