package integration

import (
	"flag"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

var shutdownStops = flag.Int("stops", 10, "how often Caddy is stopped that has a shutdown_delay, while it gets requests")

// Caddy stops its apps in any order, and its web server serves on for shutdown_delay. Every request that is answered until the end of the server is
// accepted, and carried out after the next start at the latest.
func TestRequestsAreAcceptedUntilTheWebServerStops(t *testing.T) {
	t.Parallel()
	s := hookstest.NewBinary(t).Deploy(t, "shutdown_delay 200ms", `
	hooks {
		enabled
		token `+hookstest.Token+`
		runner echo
	}`)
	post := func(url, body string) (hookstest.Response, error) {
		return hookstest.TryRequest("POST", url, body, "Authorization", "Bearer "+hookstest.Token)
	}
	var accepted, late, refused atomic.Int64
	var last []string // what each caller sent last before a stop
	var mu sync.Mutex
	bad := 0
	for range *shutdownStops {
		p := s.Start(t)
		before := refused.Load()
		var stopping atomic.Bool
		var callers sync.WaitGroup
		answered := make(chan struct{}, 1)
		for range 4 {
			callers.Go(func() {
				id := ""
				for {
					resp, err := post(p.URL+"/api/hooks/agent", `{"message":"a"}`)
					switch {
					case err != nil:
						if !stopping.Load() {
							t.Errorf("nobody has stopped Caddy: %v", err)
						}
						mu.Lock()
						defer mu.Unlock()
						last = append(last, id)
						return
					case resp.Status != 202:
						refused.Add(1)
					default:
						id = resp.Field(t, "runId").(string)
						accepted.Add(1)
						if stopping.Load() {
							late.Add(1)
						}
					}
					select {
					case answered <- struct{}{}:
					default:
					}
				}
			})
		}
		hookstest.ReceiveWithin(t, "the first answer", answered)
		stopping.Store(true)
		p.Terminate(t)
		callers.Wait()
		p.WantCleanExit(t)
		p.WantQuietLog(t)
		if refused.Load() > before {
			bad++
		}
	}
	t.Logf("%d requests were accepted, %d of them after the signal; %d were refused, in %d of %d stops",
		accepted.Load(), late.Load(), refused.Load(), bad, *shutdownStops)
	if refused.Load() > 0 || late.Load() == 0 {
		t.Errorf("%d requests were refused, in %d of %d stops; %d were accepted after the signal", refused.Load(), bad, *shutdownStops, late.Load())
	}
	p := s.Start(t)
	for _, id := range last {
		hookstest.Eventually(t, "the run "+id+" ends", func() bool {
			resp, err := hookstest.TryRequest("GET", p.URL+hookstest.RunPath(id), "", "Authorization", "Bearer "+hookstest.Token)
			return err == nil && resp.Status == 200 && resp.Field(t, "status") == "completed"
		})
	}
	p.Terminate(t)
	p.WantCleanExit(t)
}
