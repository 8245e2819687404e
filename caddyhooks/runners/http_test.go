package runners

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

func newHTTP(t *testing.T, url, token string) *HTTP {
	t.Helper()
	h := &HTTP{URL: url, Token: token}
	if err := h.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Validate(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Cleanup() })
	return h
}

func TestTurnOnTheWire(t *testing.T) {
	t.Parallel()
	var header http.Header
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		data, _ := io.ReadAll(r.Body)
		body = string(data)
	}))
	defer server.Close()
	h := newHTTP(t, server.URL, "runner-token")

	if _, err := h.Run(t.Context(), runnertest.ExampleTurn()); err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"runId":"run","chatId":"chät 1","phase":"turn","action":"agent","hook":"github","name":"label",` +
		`"message":"<hello> & \u2028","system":"be brief","tier":"smart","memory":{"preset":"ops_support","recall":true,"persist":true},` +
		`"responseSchema":{"type":"object"},"metadata":{"n":1.10},"timeoutSeconds":90,"isolated":false}` + "\n"
	if body != want {
		t.Errorf("got body\n%s\nwant\n%s", body, want)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Authorization": "Bearer runner-token", "Idempotency-Key": "run:turn",
		"X-Service-Run-Id": "run", "X-Service-Chat-Id": "ch%C3%A4t%201", "X-Service-Deadline": "2026-01-02T03:04:05Z",
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}

	if _, err := h.Run(t.Context(), engine.Turn{RunID: "run", ChatID: "c", Action: engine.Wake, Hook: "wake", Message: "m", MemoryPreset: engine.MemoryDisabled}); err != nil {
		t.Fatal(err)
	}
	want = `{"version":1,"runId":"run","chatId":"c","phase":"turn","action":"wake","hook":"wake","name":"","message":"m","system":"","tier":null,` +
		`"memory":{"preset":"disabled","recall":false,"persist":false},"responseSchema":null,"metadata":{},"timeoutSeconds":0,"isolated":false}` + "\n"
	if body != want {
		t.Errorf("got the smallest body\n%s\nwant\n%s", body, want)
	}

	folded := engine.Turn{RunID: "run", ChatID: "c", Action: engine.Wake, Hook: "wake", Message: "m", MemoryPreset: engine.MemoryDisabled, Folded: []engine.FoldedRun{
		{RunID: "run", AcceptedAt: time.Date(2026, 1, 2, 3, 4, 5, 67e6, time.FixedZone("CET", 3600))},
		{RunID: "later", AcceptedAt: time.Date(2026, 1, 2, 2, 4, 6, 0, time.UTC)},
	}}
	if _, err := h.Run(t.Context(), folded); err != nil {
		t.Fatal(err)
	}
	want = strings.TrimSuffix(want, "}\n") + `,"folded":[{"runId":"run","acceptedAt":"2026-01-02T02:04:05.067Z"},{"runId":"later","acceptedAt":"2026-01-02T02:04:06Z"}]}` + "\n"
	if body != want {
		t.Errorf("got the body of a fold\n%s\nwant\n%s", body, want)
	}
	if got := header.Get("Idempotency-Key"); got != "run:turn" {
		t.Errorf("a fold has the key %q", got)
	}

	repair := runnertest.ExampleTurn()
	repair.Repair, repair.Tier, repair.MemoryPreset = 2, "", engine.MemoryDisabled
	if _, err := h.Run(t.Context(), repair); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"phase":"repair"`, `"tier":null`, `"isolated":true`, `{"preset":"disabled","recall":false,"persist":false}`} {
		if !strings.Contains(body, part) {
			t.Errorf("the repair call has no %s: %s", part, body)
		}
	}
	if got := header.Get("Idempotency-Key"); got != "run:repair-2" {
		t.Errorf("got key %q", got)
	}
}

func TestAnswersThatAreTaken(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, contentType, body, want string }{
		{"plain text", "text/plain", " as it is\n", " as it is\n"},
		{"no content type", "", "text", "text"},
		{"JSON", "application/json; charset=utf-8", `{"text":"a \ud83d\ude00","more":1}`, "a 😀"},
		{"empty", "text/plain", "", ""},
		{"the largest", "text/plain", strings.Repeat("x", answers.MaxReply), strings.Repeat("x", answers.MaxReply)},
		{"deltas", "text/event-stream", "event: delta\ndata: {\"text\":\"Hel\"}\n\nevent: heartbeat\n\n: comment\n\nevent: delta\ndata: lo\n\nevent: result\ndata: {}\n\n", "Hello"},
		{"a result instead of deltas", "text/event-stream", "event: delta\ndata: draft\n\nevent: result\ndata: {\"text\":\"final\"}\n\n", "final"},
		{"several lines and CRLF", "text/event-stream", "event: result\r\ndata: one\r\ndata: two\r\n\r\n", "one\ntwo"},
		{"JSON that is the answer", "text/event-stream", "event: result\ndata: {\"a\":1}\n\n", `{"a":1}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reply, err := runAgainst(t, func(w http.ResponseWriter) {
				w.Header()["Content-Type"] = nil
				if tc.contentType != "" {
					w.Header().Set("Content-Type", tc.contentType)
				}
				_, _ = io.WriteString(w, tc.body)
			})
			if err != nil || reply.Text != tc.want {
				t.Errorf("got %.80q, %v, want %.80q", reply.Text, err, tc.want)
			}
		})
	}
}

func TestAnswersThatAreRefused(t *testing.T) {
	t.Parallel()
	const reading = "reading the runner's answer: "
	noText := reading + `the JSON is not an object with a string "text": `
	mustAnswer := "; it must answer text/plain, application/json or text/event-stream"
	for _, tc := range []struct{ name, contentType, body, want string }{
		{"text that is too large", "text/plain", strings.Repeat("x", answers.MaxReply+1), reading + "the answer is larger than 1048576 bytes"},
		{"invalid UTF-8", "text/plain", "\xff", reading + "the text is not valid UTF-8"},
		{"JSON without text", "application/json", "\n" + `{"answer":"x"}`, noText + `{"answer":"x"}`},
		{"JSON with another text", "application/json", `{"text":1}`, noText + `{"text":1}`},
		{"JSON with two texts", "application/json", `{"text":"a","text":"b"}`, noText + `{"text":"a","text":"b"}`},
		{"broken JSON", "application/json", `{"text":`, noText + `{"text":`},
		{"a large text in JSON", "application/json", `{"text":"` + strings.Repeat("x", answers.MaxReply+1) + `"}`, reading + "the answer is larger than 1048576 bytes"},
		{"a stream that is cut off", "text/event-stream", "event: delta\ndata: Hel\n\n", reading + "the stream of events ended without a result"},
		{"a result that is cut off", "text/event-stream", "event: result\ndata: Hel", reading + "the stream of events ended without a result"},
		{"an error event", "text/event-stream", "event: error\ndata: {\"text\":\"no credit\\nleft\"}\n\n", reading + "the runner sent an error event: no credit"},
		{"an error event of another kind", "text/event-stream", "event: error\ndata: {\"message\":\"no credit\"}\n\n", reading + `the runner sent an error event: {"message":"no credit"}`},
		{"an error event that says nothing", "text/event-stream", "event: error\n\n", reading + "the runner sent an error event"},
		{"deltas that are too large", "text/event-stream", strings.Repeat("event: delta\ndata: "+strings.Repeat("x", 1<<16)+"\n\n", 20), reading + "the answer is larger than 1048576 bytes"},
		{"a line without end", "text/event-stream", "data: " + strings.Repeat("x", 7*answers.MaxReply), reading + "the answer is larger than 1048576 bytes"},
		{"heartbeats without end", "text/event-stream", strings.Repeat("event: heartbeat\n\n", 1<<20), reading + "the answer is larger than 1048576 bytes"},
		{"a page", "text/html; charset=utf-8", "\r\n<title>Please log in</title>\r\n<form>", "the runner answered 200 with text/html: <title>Please log in</title>" + mustAnswer},
		{"a page with odd parameters", "Text/HTML ;charset=utf-8; charset=utf-8", "<html>", "the runner answered 200 with text/html: <html>" + mustAnswer},
		{"an empty page", "text/html", "", "the runner answered 200 with text/html" + mustAnswer},
		{"a page in XML", "application/xhtml+xml", "<html>", "the runner answered 200 with application/xhtml+xml: <html>" + mustAnswer},
		{"a large page", "text/html", strings.Repeat("<p>", 1<<20), "the runner answered 200 with text/html: " + strings.Repeat("<p>", 84) + "<…" + mustAnswer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reply, err := runAgainst(t, func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", tc.contentType)
				_, _ = io.WriteString(w, tc.body)
			})
			if err == nil || err.Error() != tc.want || reply.Text != "" {
				t.Errorf("got %q and error\n%v\nwant\n%s", reply.Text, err, tc.want)
			}
		})
	}
}

func runAgainst(t *testing.T, answer func(w http.ResponseWriter)) (engine.Reply, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w)
	}))
	t.Cleanup(server.Close)
	return newHTTP(t, server.URL, "").Run(t.Context(), runnertest.ExampleTurn())
}

func TestStatusesOfTheRunner(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status     int
		retryAfter string
		busy       bool
		after      time.Duration
	}{
		{400, "", false, 0}, {404, "", false, 0}, {500, "", false, 0}, {502, "3", false, 0},
		{201, "", false, 0}, {301, "", false, 0},
		{429, "7", true, 7 * time.Second}, {503, "", true, 0}, {503, "soon", true, 0}, {503, "-1", true, 0},
		{503, "99999999999999999999", true, 24 * time.Hour}, {503, "99999999", true, 24 * time.Hour},
		{503, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), true, time.Hour},
	} {
		_, err := runAgainst(t, func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
			if tc.retryAfter != "" {
				w.Header().Set("Retry-After", tc.retryAfter)
			}
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, "\n Traceback (most recent\tcall last):\x1b\n  File 1")
		})
		hint := map[int]string{201: "; it must answer 200", 301: "; it must answer 200, and redirects are not followed"}[tc.status]
		var unavailable *engine.UnavailableError
		if err == nil || err.Error() != fmt.Sprintf(`the runner answered %d: Traceback (most recent\tcall last):\x1b%s`, tc.status, hint) {
			t.Errorf("status %d: got error %v", tc.status, err)
		} else if busy := errors.As(err, &unavailable) && unavailable.Busy; busy != tc.busy {
			t.Errorf("status %d: busy is %v", tc.status, busy)
		} else if busy && (tc.after-unavailable.RetryAfter).Abs() > 5*time.Second {
			t.Errorf("status %d with %q: retry after %s, want %s", tc.status, tc.retryAfter, unavailable.RetryAfter, tc.after)
		}
	}
}

func TestAnswersWithoutWords(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		204: "the runner answered 204; it must answer 200", 302: "the runner answered 302; it must answer 200, and redirects are not followed",
		500: "the runner answered 500",
	} {
		if _, err := runAgainst(t, func(w http.ResponseWriter) { w.WriteHeader(status) }); err == nil || err.Error() != want {
			t.Errorf("status %d: got error %v", status, err)
		}
	}
	_, err := runAgainst(t, func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(502)
		_, _ = io.WriteString(w, "<html>\n<h1>Bad gateway")
	})
	if err == nil || err.Error() != "the runner answered 502 with text/html: <html>" {
		t.Errorf("a page of a proxy: got error %v", err)
	}
}

// A runner that repeats what it was sent must not bring a secret into the log.
func TestSecretsAreFoundInOtherSpellings(t *testing.T) {
	t.Parallel()
	const token, user = "ab/cdEFGH12345678+xyz==", "sk-live-0123456789"
	for _, c := range []struct{ address, answer, want string }{
		{"http://127.0.0.1/", `{"authorization":"Bearer ab\/cdEFGH12345678+xyz=="}`, `{"authorization":"Bearer REDACTED"}`},
		{"http://127.0.0.1/", "Bearer%20ab%2FcdEFGH12345678%2Bxyz%3D%3D", "Bearer%20REDACTED"},
		{"http://127.0.0.1/", "<p>ab/cdEFGH12345678&#43;xyz==</p>", "<p>REDACTED</p>"},
		{"http://" + user + "@127.0.0.1/", "Basic c2stbGl2ZS0wMTIzNDU2Nzg5Og==", "Basic REDACTED"},
		{"http://e@127.0.0.1/?v", "the server is over capacity", "the server is over capacity"},
	} {
		if got := answers.NewRedactor(token, c.address).Redact(c.answer); got != c.want {
			t.Errorf("%s becomes %s", c.answer, got)
		}
	}
}

func TestErrorsShowNoSecret(t *testing.T) {
	t.Parallel()
	secrets := []string{"runner-token", "p%40ssword", "p@ssword", "c3lzdGVtOnBAc3N3b3Jk", "key=s3cr3t+key", "s3cr3t key", "system:p"}
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.Header.Get("X-Service-Run-Id"))
		if status == 200 {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(status)
		user, password, _ := r.BasicAuth()
		_, _ = fmt.Fprintln(w, r.Header.Get("X-Service-Chat-Id"), r.RequestURI, r.URL.Query(), r.Header["Authorization"], user, password)
	}))
	defer echo.Close()
	// It answers with the request itself, which is not HTTP.
	mirror, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mirror.Close()
	go func() {
		for {
			conn, err := mirror.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, line)
			conn.Close()
		}
	}()
	for _, host := range []string{echo.Listener.Addr().String(), mirror.Addr().String(), "127.0.0.1:1"} {
		for _, token := range []string{"", "runner-token"} {
			h := newHTTP(t, "http://system:p%40ssword@"+host+"/turns?key=s3cr3t+key", token)
			for i, status := range []string{"500", "503", "200", "500", "500", "500", "500", "500", "500"} {
				turn := runnertest.ExampleTurn()
				turn.RunID, turn.ChatID = status, strings.Repeat("x", 10+i*30) // a line is cut at different places
				_, err := h.Run(t.Context(), turn)
				if err == nil {
					t.Fatalf("%s %s: no error", host, status)
				}
				for _, secret := range secrets {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("%s, status %s: the error shows %q: %v", host, status, secret, err)
					}
				}
				var unavailable *engine.UnavailableError
				refused := host == "127.0.0.1:1" || host == echo.Listener.Addr().String() && status == "503"
				if errors.As(err, &unavailable) != refused {
					t.Errorf("%s, status %s: got %#v", host, status, err)
				}
			}
		}
	}
}

func TestConnectionsThatAreClosedEarly(t *testing.T) {
	t.Parallel()
	const none, cut = "the runner closed the connection without an answer", "the runner's answer broke off"
	for answer, want := range map[string]string{
		"":                  none,
		"HTTP/1.1 200 OK\r": none,
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n":                                                                  none,
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel":                                                                  cut,
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{":                                  cut,
		"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nevent: delta\ndata": cut,
	} {
		_, err := runAgainst(t, func(w http.ResponseWriter) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		})
		if err == nil || err.Error() != want {
			t.Errorf("%q: got %v", answer, err)
		}
	}
}

// The first line of an answer is in the text of an error. All of an answer is kept if it has more.
func TestAnswersAreKeptThatSayMoreThanALine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", answers.MaxLine+1)
	for _, tc := range []struct {
		status                  int
		contentType, body, want string
	}{
		{500, "text/plain", "", ""},
		{500, "text/plain", "\n one line\t\x1b\n\n", ""},
		{500, "text/plain", "Traceback:\n  File 1\n", "Traceback:\n  File 1"},
		{500, "text/plain", long, long},
		{500, "text/plain", strings.Repeat("y\n", 1<<20), strings.TrimSpace(strings.Repeat("y\n", answers.MaxBeginning/2))},
		{503, "text/plain", "busy:\nBearer runner-token", "busy:\nBearer REDACTED"},
		{500, "text/plain", strings.Repeat("runner-token\n", 1000), strings.Repeat("REDACTED\n", answers.MaxBeginning/13) + "r"},
		{200, "text/html", "<p>\n<form>", "<p>\n<form>"},
		{200, "application/json", "{\n\"answer\":\"runner-token\"}", "{\n\"answer\":\"REDACTED\"}"},
		{200, "application/json", `{"answer":"runner-token"}`, ""},
		{200, "text/event-stream", "event: error\ndata: runner-token\ndata: no credit\n\n", "REDACTED\nno credit"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", tc.contentType)
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.body)
		}))
		_, err := newHTTP(t, server.URL, "runner-token").Run(t.Context(), runnertest.ExampleTurn())
		server.Close()
		var answer engine.AnswerError
		if !errors.As(err, &answer) || strings.Contains(err.Error(), "runner-token") {
			t.Errorf("%d %.50q: got %v", tc.status, tc.body, err)
		} else if got := answer.Answer(); got != tc.want {
			t.Errorf("%d %.50q: kept is %q, want %q", tc.status, tc.body, got, tc.want)
		}
	}
}

func TestSecretsAreHiddenInAllSpellings(t *testing.T) {
	t.Parallel()
	h := newHTTP(t, "http://127.0.0.1:1/turns?a=1&key=a-secret-key", `to/ke~n"<7>"`)
	for text, want := range map[string]string{
		"":                                 "",
		"nothing of the kind, to be sure…": "nothing of the kind, to be sure…",
		`Bearer to/ke~n"<7>" and again to/ke~n"<7>"`: "Bearer REDACTED and again REDACTED",
		`{"a":"to/ke~n\"<7>\""}`:                     `{"a":"REDACTED"}`,
		`{"a":"to/ke~n\"\u003c7\u003e\""}`:           `{"a":"REDACTED"}`,
		`at /to~1ke~0n\"<7>\"/b: is wrong`:           "at /REDACTED/b: is wrong",
		`is "Bearer to/ke…", at /to~1ke…: a`:         `is "Bearer REDACTED…", at /REDACTED…: a`,
		"cut at the end: to/ke~n":                    "cut at the end: REDACTED",
		`/turns?a=1\u0026key=a-secret-key a-sec`:     "/turns?REDACTED REDACTED",
	} {
		if got := h.Redact(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
}

func TestRunnerThatIsNotThere(t *testing.T) {
	// Not parallel: another test could listen on the port that this one leaves.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	_, err = newHTTP(t, url, "").Run(t.Context(), runnertest.ExampleTurn())
	var unavailable *engine.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Busy {
		t.Errorf("got %v", err)
	}
}

// A turn whose connection breaks may have been carried out: it must not be sent a second time behind our back.
func TestTurnIsSentOnce(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	h := newHTTP(t, server.URL, "")
	if _, err := h.Run(t.Context(), runnertest.ExampleTurn()); err != nil {
		t.Fatal(err)
	}
	_, err := h.Run(t.Context(), runnertest.ExampleTurn())
	var unavailable *engine.UnavailableError
	if err == nil || errors.As(err, &unavailable) || requests.Load() != 2 {
		t.Errorf("got %v after %d requests", err, requests.Load())
	}
}

func TestCancellingClosesTheConnection(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	if _, err := newHTTP(t, server.URL, "").Run(ctx, runnertest.ExampleTurn()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-gone
}

func TestRunnerThatSwitchesProtocols(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the other side closes
		conn.Close()
	}()
	if _, err := newHTTP(t, "http://"+l.Addr().String(), "").Run(t.Context(), runnertest.ExampleTurn()); err == nil {
		t.Error("got no error")
	}
}

func TestBadConfigurationOfHTTP(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "127.0.0.1:9000", "ftp://x", "http://", "http://%zz"} {
		if err := (&HTTP{URL: url}).Validate(); err == nil {
			t.Errorf("URL %q is taken", url)
		}
	}
	if err := (&HTTP{URL: "http://x", Token: "{env.CADDYHOOKS_NOT_SET}"}).Provision(caddy.Context{}); err == nil {
		t.Error("a token that is not there is taken")
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add("event: delta\ndata: {\"text\":\"a\"}\n\nevent: result\ndata: {}\n\n")
	f.Add("event: result\ndata: x\ndata\n\n")
	f.Add(": c\r\n\r\nevent:error\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		reply, err := readEvents(strings.NewReader(stream), nil)
		if err != nil && reply.Text != "" {
			t.Errorf("an error comes with the text %q", reply.Text)
		}
		if err == nil && !strings.Contains(stream, "result") {
			t.Error("a stream without a result gave an answer")
		}
	})
}

func FuzzReadJSONReply(f *testing.F) {
	f.Add(`{"text":"a"}`)
	f.Add(`{"text":1}`)
	f.Add(`{"text":"a","usage":[{"inputTokens":-1},{"costUsd":{}}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		reply, err := readJSONReply(strings.NewReader(body), -1)
		if err != nil {
			return
		}
		var want struct{ Text string }
		if json.Unmarshal([]byte(body), &want) != nil || want.Text != reply.Text {
			t.Errorf("got %q from %q", reply.Text, body)
		}
	})
}

// Whatever goes wrong before a turn was sent, the runner has not taken it on.
func TestTurnThatWasNotSent(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing, so TLS does not come about
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	late, cancel := context.WithCancel(t.Context())
	for name, tc := range map[string]struct {
		ctx context.Context
		url string
	}{
		"TLS with a plain server":   {t.Context(), strings.Replace(plain.URL, "http:", "https:", 1)},
		"time that is up meanwhile": {late, "https://" + silent.Addr().String()},
	} {
		t.Run(name, func(t *testing.T) {
			turn := runnertest.ExampleTurn()
			turn.Sent = func() { t.Error("the turn was sent") }
			if tc.ctx == late {
				time.AfterFunc(50*time.Millisecond, cancel)
			}
			_, err := newHTTP(t, tc.url, "").Run(tc.ctx, turn)
			var unavailable *engine.UnavailableError
			if !errors.As(err, &unavailable) || unavailable.Busy {
				t.Errorf("got %v", err)
			}
		})
	}
	cancel()
}

func TestRunnerTellsThatATurnWasSent(t *testing.T) {
	t.Parallel()
	sent := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-sent // long before the answer
	}))
	defer server.Close()
	turn := runnertest.ExampleTurn()
	turn.Sent = func() { close(sent) }
	if _, err := newHTTP(t, server.URL, "").Run(t.Context(), turn); err != nil {
		t.Error(err)
	}
}

// An answer of any shape takes a few times its size, whatever it holds beside its text.
func TestHostileAnswersTakeLittleMemory(t *testing.T) {
	fill := func(head, item, tail string, size int) string {
		return head + strings.Repeat(item, size/len(item)) + tail
	}
	const most = 6 * answers.MaxReply
	for name, tc := range map[string]struct {
		answer string
		read   func(io.Reader) (engine.Reply, error)
	}{
		"text":                    {fill("", "x", "", answers.MaxReply), ofUnknownLength(readText)},
		"JSON with other members": {fill(`{"text":"x","a":[`, `{},`, `0]}`, most), ofUnknownLength(readJSONReply)},
		"JSON with much usage":    {fill(`{"text":"x","usage":[`, `{},`, `0]}`, most), ofUnknownLength(readJSONReply)},
		"JSON with long text":     {fill(`{"text":"`, `\u0061`, `"}`, most), ofUnknownLength(readJSONReply)},
		"event of one line":       {fill(`data:{"text":"x","a":[`, `{},`, "0]}\nevent: result\n\n", most), readEventsSilently},
		"event of many lines":     {fill(`event: result`+"\n", "data:\n", "\n", most), readEventsSilently},
		"event without end":       {fill("event: result\n", "data:\n", "", 16*answers.MaxReply), readEventsSilently},
		"many events":             {fill("", "event: delta\ndata:\n\n", "event: result\n\n", 4*answers.MaxReply), readEventsSilently},
	} {
		var before, after runtime.MemStats
		answer := strings.NewReader(tc.answer)
		runtime.ReadMemStats(&before)
		_, err := tc.read(answer)
		runtime.ReadMemStats(&after)
		if took := int(after.TotalAlloc - before.TotalAlloc); took > 5*len(tc.answer) {
			t.Errorf("%s (%v): %d bytes for an answer of %d, %.1f times its size", name, err, took, len(tc.answer), float64(took)/float64(len(tc.answer)))
		}
	}
}

func readEventsSilently(r io.Reader) (engine.Reply, error) { return readEvents(r, nil) }

func ofUnknownLength(read func(io.Reader, int64) (engine.Reply, error)) func(io.Reader) (engine.Reply, error) {
	return func(r io.Reader) (engine.Reply, error) { return read(r, -1) }
}

func TestHTTPWaitsAsAllRunnersDo(t *testing.T) {
	t.Parallel()
	runnertest.WantAgentWaits(t, func(t *testing.T, status int) error {
		_, err := newHTTP(t, runnertest.Answering(t, status, "no"), "").Run(t.Context(), engine.Turn{Message: "hi"})
		return err
	})
}
