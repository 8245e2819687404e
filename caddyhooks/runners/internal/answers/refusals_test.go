package answers

import (
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

func TestReportsOfAgentsSayWhatARunWaitsFor(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"We’re currently experiencing high demand, which may cause temporary errors.": "waits a while",
		"exceeded retry limit, last status: 429 Too Many Requests":                    "waits for time",
	} {
		if err := ReportedRefusal(words, ErrTooLarge); runnertest.WaitOf(err) != want {
			t.Errorf("%s: %s", words, runnertest.WaitOf(err))
		}
	}
}
