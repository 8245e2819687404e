package admin

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

func init() {
	GlobalEndpoints.Handle("GET /health", serveHealth)
	GlobalEndpoints.Handle("GET /health/ready", serveHealth)
	GlobalEndpoints.Handle("GET /health/live", serveHealth)
}

// serveHealth answers 200 if all instances take on work, or are live if that is asked, and otherwise 503. Load balancers look at the
// status, operators at the reason.
func serveHealth(_ *service.Instance, w http.ResponseWriter, r *http.Request) error {
	shown := api.Health{Live: true, Ready: true, Instances: []api.InstanceHealth{}}
	names := slices.Concat(service.Running.Names(), service.Waiting.Names())
	slices.Sort(names)
	for _, name := range callerFrom(r).Visible(slices.Compact(names)) {
		in := service.Running.Find(name)
		if in == nil {
			in = service.Waiting.Find(name)
		}
		if in == nil {
			continue // it was stopped meanwhile
		}
		h := in.Health()
		shown.Live, shown.Ready = shown.Live && h.Live, shown.Ready && h.Ready()
		shown.Instances = append(shown.Instances, api.InstanceHealth{
			Instance: name, Live: h.Live, Ready: h.Ready(), Webhooks: h.Webhooks,
			Reason: inWords(h.Reasons), Reasons: h.Reasons, Degraded: h.Degraded,
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
	return writeJSON(w, status, shown)
}

func inWords(problems []api.HealthProblem) string {
	var words []string
	for _, problem := range problems {
		words = append(words, problem.Detail)
	}
	return strings.Join(words, "; ")
}
