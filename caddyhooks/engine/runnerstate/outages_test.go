package runnerstate

import (
	"testing"
	"testing/synctest"
	"time"
)

// A runner that comes and goes must not fill the log.
func TestARunnerThatComesAndGoesIsToldOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var outages Outages
		fails := func(busy, want bool) {
			t.Helper()
			if _, news := outages.Failed("a", &Refusal{Cause: "refused", Busy: busy}, time.Now()); news != want {
				t.Errorf("after %v, busy %v: it is news: %v", time.Since(outages.known["a"].loggedAt), busy, news)
			}
		}
		fails(true, false)
		fails(false, true)
		fails(false, false)
		time.Sleep(2 * logEvery)
		fails(false, false) // it is still the same
		outages.TakenOn("a")
		fails(false, true)
		for range 10 {
			outages.TakenOn("a")
			fails(false, false)
		}
		time.Sleep(logEvery)
		fails(true, false)
		fails(false, true)
	})
}
