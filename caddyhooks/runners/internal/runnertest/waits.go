package runnertest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// WaitOf is what becomes of a run whose turn ended with an error, as in the table of the documentation.
func WaitOf(err error) string {
	var unavailable *engine.UnavailableError
	switch {
	case err == nil:
		return "answered"
	case !errors.As(err, &unavailable):
		return "ends"
	case unavailable.Failing && unavailable.Busy:
		return "waits a while"
	case unavailable.Busy:
		return "waits for time"
	default:
		return "waits for contact"
	}
}

// What a run waits for is the same for all runners, by the status that an agent or a model answered with.
var (
	agentWaits = map[int]string{
		400: "ends", 401: "ends", 403: "ends", 404: "ends", 429: "waits for time", 500: "ends", 502: "ends", 503: "waits for time", 504: "ends",
		529: "waits for time",
	}
	modelWaits = map[int]string{
		400: "ends", 401: "ends", 403: "ends", 429: "waits for time", 500: "waits a while", 502: "waits a while", 503: "waits for time",
		504: "waits a while", 529: "waits for time",
	}
)

// WantAgentWaits checks the error of a turn whose agent answered with a status, for all of them.
func WantAgentWaits(t *testing.T, run func(t *testing.T, status int) error) {
	t.Helper()
	wantWaits(t, run, agentWaits)
}

// WantModelWaits is WantAgentWaits for a model.
func WantModelWaits(t *testing.T, run func(t *testing.T, status int) error) {
	t.Helper()
	wantWaits(t, run, modelWaits)
}

func wantWaits(t *testing.T, run func(t *testing.T, status int) error, waits map[int]string) {
	t.Helper()
	for status, want := range waits {
		if err := run(t, status); WaitOf(err) != want {
			t.Errorf("%d: %s, want %s: %v", status, WaitOf(err), want, err)
		}
	}
}

// WantWait checks the error of each turn.
func WantWait(t *testing.T, want string, turns map[string]error) {
	t.Helper()
	for name, err := range turns {
		if WaitOf(err) != want {
			t.Errorf("%s: %s, want %s: %v", name, WaitOf(err), want, err)
		}
	}
}

// Answering is the URL of a server that answers every request with a status.
func Answering(t *testing.T, status int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
