package caddyhooks_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// The failure policy as callers and operators see it, with an agent that answers as each message asks. What becomes of runs
// by the kind of an error is in a table of the engine.
func TestFailurePolicyOfAnAgent(t *testing.T) {
	var back atomic.Bool
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		message := turn.Text("message")
		if back.Load() {
			message = "200"
		}
		switch message {
		case "close":
			panic(http.ErrAbortHandler)
		case "cut":
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "half an ans")
		case "page":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<h1>Login</h1>")
		default:
			status, _ := strconv.Atoi(message)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "inside 10.1.2.3")
		}
	})
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "store memory\nworkers 16\n"))

	// All of these fail at once, and however many there are, the runner is not left alone.
	for message, reason := range map[string]string{
		"401": "the runner answered 401: inside 10.1.2.3", "403": "the runner answered 403: inside 10.1.2.3", "404": "the runner answered 404: inside 10.1.2.3",
		"500": "the runner answered 500: inside 10.1.2.3", "502": "the runner answered 502: inside 10.1.2.3", "504": "the runner answered 504: inside 10.1.2.3",
		"201": "the runner answered 201", "close": "the runner closed the connection without an answer", "cut": "the runner's answer broke off",
		"page": "the runner answered 200 with text/html: <h1>Login</h1>",
	} {
		body := fmt.Sprintf(`{"message":%q}`, message)
		s.Post("/api/hooks/agent", strings.TrimSuffix(body, "}")+`,"syncResponse":true}`).WantError(t, 502, "The agent failed to answer.")
		id := s.Accept(body)
		run := s.Ended(id)
		if run.Status != "failed" || run.ErrorMessage != "The agent failed to answer." || run.Attempts != 1 {
			t.Errorf("%s: the run is %s", message, run.Body)
		}
		if told, _ := s.AdminRequest("GET", "/hooks/runs/"+id, "").Field(t, "reason").(string); !strings.HasPrefix(told, reason) {
			t.Errorf("%s: operators are told %q, want %q", message, told, reason)
		}
		if state := runnersOf(t, s)["default"]; state.State != "failing" || !strings.HasPrefix(state.LastError, reason) {
			t.Errorf("%s: the runner is %+v", message, state)
		}
	}

	// Those of the other kind go back to the queue.
	var waiting []string
	for i := range 6 {
		waiting = append(waiting, s.Accept(fmt.Sprintf(`{"message":"%d"}`, []int{429, 503}[i%2])))
	}
	hookstest.Eventually(t, "the runner is left alone", func() bool { return runnersOf(t, s)["default"].State == "busy" })
	for _, id := range waiting {
		if run := s.LookUp(id, ""); run.Field(t, "status") != "queued" && run.Field(t, "status") != "running" || strings.Contains(run.Body, "10.1.2.3") {
			t.Errorf("a run that waits is %s", run.Body)
		}
	}
	// A try that is answered ends the wait.
	back.Store(true)
	s.AdminRequest("POST", "/hooks/runners/default/try", "").WantMembers(t, `{"ok":true,"text":"inside 10.1.2.3","error":""}`)
	for _, id := range waiting {
		if run := s.Ended(id); run.Status != "completed" {
			t.Errorf("after the try a run is %s", run.Body)
		}
	}
}
