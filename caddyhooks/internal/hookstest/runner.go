package hookstest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Turn is a turn as the recording runner saw it.
type Turn struct {
	Header http.Header
	Body   map[string]any
}

// Text is a field that is a string, "" if it is none.
func (t Turn) Text(field string) string {
	s, _ := t.Body[field].(string)
	return s
}

// Runner is an HTTP runner that keeps the turns it gets and answers as it is told.
type Runner struct {
	*httptest.Server
	t     testing.TB
	Reply func(w http.ResponseWriter, r *http.Request, turn Turn)

	Turns chan Turn
}

// StartRunner starts a runner. reply may be nil: then every turn is answered "ok".
func StartRunner(t testing.TB, reply func(w http.ResponseWriter, r *http.Request, turn Turn)) *Runner {
	t.Helper()
	rn := &Runner{t: t, Reply: reply, Turns: make(chan Turn, 10_000)}
	rn.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tn := Turn{Header: r.Header.Clone()}
		dec := json.NewDecoder(r.Body)
		dec.UseNumber()
		if err := dec.Decode(&tn.Body); err != nil {
			t.Errorf("a turn is not JSON: %v", err)
		}
		// Read on, so that the server notices when the caller goes away.
		_, _ = io.Copy(io.Discard, r.Body)
		rn.Turns <- tn
		w.Header().Set("Content-Type", "text/plain; charset=utf-8") // net/http would guess, and take some texts for HTML
		if rn.Reply == nil {
			_, _ = io.WriteString(w, "ok")
			return
		}
		rn.Reply(w, r, tn)
	}))
	t.Cleanup(func() {
		rn.Server.CloseClientConnections()
		rn.Server.Close()
	})
	return rn
}

// Next waits for the next turn.
func (rn *Runner) Next() Turn {
	rn.t.Helper()
	select {
	case tn := <-rn.Turns:
		return tn
	case <-time.After(patience):
		rn.t.Fatal("no turn reached the runner")
		return Turn{}
	}
}

// WantNoTurn checks that nothing that was sent before has become a turn: a run that is sent now is the first one that
// the runner sees. The site must have one worker, which takes runs in the order in which they came.
func (rn *Runner) WantNoTurn(s *Server) {
	rn.t.Helper()
	resp := s.Post("/api/hooks/agent", `{"message":"after all that","syncResponse":true}`)
	if resp.Status != http.StatusOK {
		rn.t.Fatalf("a good request is answered %d: %s", resp.Status, resp.Body)
	}
	if got := rn.Next().Text("message"); got != "after all that" {
		rn.t.Errorf("the runner got a turn with the message %.200q", got)
	}
}

// ReplyText answers every turn with the same text.
func ReplyText(text string) func(http.ResponseWriter, *http.Request, Turn) {
	return func(w http.ResponseWriter, _ *http.Request, _ Turn) { _, _ = io.WriteString(w, text) }
}

// HeldRunner answers each turn as its message says: "fail", "hold", and otherwise with the message. Turns to be held are
// held until they are cancelled, and that is told, or until release is closed.
func HeldRunner(t testing.TB) (rn *Runner, gone chan string, release chan struct{}) {
	gone, release = make(chan string, 1000), make(chan struct{})
	rn = StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn Turn) {
		message := tn.Text("message")
		if strings.HasPrefix(message, "hold") {
			select {
			case <-r.Context().Done():
				gone <- tn.Text("runId")
				return
			case <-release:
			}
		}
		if message == "fail" {
			w.WriteHeader(500)
		}
		_, _ = io.WriteString(w, message)
	})
	return rn, gone, release
}

// WantMemory checks what the runner was told about memory.
func (t Turn) WantMemory(tb testing.TB, preset string) {
	tb.Helper()
	on := preset != "disabled"
	want := AsJSON(tb, map[string]any{"preset": preset, "recall": on, "persist": on})
	if got := AsJSON(tb, t.Body["memory"]); got != want {
		tb.Errorf("the runner was given memory %s, want %s", got, want)
	}
}

// WakeText takes the markers off the message of a wake turn.
func (t Turn) WakeText(tb testing.TB) string {
	tb.Helper()
	parts := Markers.FindStringSubmatch(t.Text("message"))
	if parts == nil || parts[1] != parts[3] {
		tb.Fatalf("the message is not between two markers of the same id: %q", t.Text("message"))
	}
	return parts[2]
}
