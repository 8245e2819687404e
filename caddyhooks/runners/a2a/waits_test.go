package a2a

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

func TestA2AWaitsAsAllRunnersDo(t *testing.T) {
	t.Parallel()
	runnertest.WantAgentWaits(t, func(t *testing.T, status int) error {
		server := newTestServer(t, bindings["REST"], nil)
		server.before = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "agent-card.json") {
				return false
			}
			w.WriteHeader(status)
			return true
		}
		_, err := newA2A(t, server.URL, nil).Run(t.Context(), turnOf("hi"))
		return err
	})
}
