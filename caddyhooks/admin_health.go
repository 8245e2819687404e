package caddyhooks

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

func init() {
	globalEndpoints.handle("GET /health", serveHealth)
	globalEndpoints.handle("GET /health/ready", serveHealth)
	globalEndpoints.handle("GET /health/live", serveHealth)
}

// serveHealth answers 200 if all instances take on work, or are live if that is asked, and otherwise 503. Load balancers look at the
// status, operators at the reason.
func serveHealth(_ *instance, w http.ResponseWriter, r *http.Request) error {
	shown := api.Health{Live: true, Ready: true, Instances: []api.InstanceHealth{}}
	names := slices.Concat(running.names(), waiting.names())
	slices.Sort(names)
	for _, name := range callerFrom(r).visible(slices.Compact(names)) {
		in := running.find(name)
		if in == nil {
			in = waiting.find(name)
		}
		if in == nil {
			continue // it was stopped meanwhile
		}
		h := in.health()
		shown.Live, shown.Ready = shown.Live && h.live, shown.Ready && h.ready()
		shown.Instances = append(shown.Instances, api.InstanceHealth{
			Instance: name, Live: h.live, Ready: h.ready(), Webhooks: h.webhooks,
			Reason: inWords(h.reasons), Reasons: h.reasons, Degraded: h.degraded,
		})
	}
	good := shown.Ready
	if strings.HasSuffix(r.URL.Path, "/live") {
		good = shown.Live
	}
	status := http.StatusOK
	if !good {
		status = http.StatusServiceUnavailable
	}
	return writeAdminJSON(w, status, shown)
}

func inWords(problems []api.HealthProblem) string {
	var words []string
	for _, problem := range problems {
		words = append(words, problem.Detail)
	}
	return strings.Join(words, "; ")
}
