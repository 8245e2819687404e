package caddyhooks

import (
	"net/http"
	"slices"
	"strings"
)

func init() {
	globalEndpoints.handle("GET /health", serveHealth)
	globalEndpoints.handle("GET /health/ready", serveHealth)
	globalEndpoints.handle("GET /health/live", serveHealth)
}

// healthJSON tells whether this node takes on work.
type healthJSON struct {
	Live      bool                 `json:"live"`  // no instance needs a restart of Caddy
	Ready     bool                 `json:"ready"` // all instances are
	Instances []instanceHealthJSON `json:"instances"`
}

type instanceHealthJSON struct {
	Instance string          `json:"instance"`
	Live     bool            `json:"live"`
	Ready    bool            `json:"ready"`
	Webhooks string          `json:"webhooks,omitempty"` // "on" or "off"
	Reason   string          `json:"reason,omitempty"`   // why it is not ready, in words
	Reasons  []healthProblem `json:"reasons,omitempty"`
	Degraded []healthProblem `json:"degraded,omitempty"` // what else is wrong
}

// serveHealth answers 200 if all instances take on work, or are live if that is asked, and otherwise 503. Load balancers look at the
// status, operators at the reason.
func serveHealth(_ *instance, w http.ResponseWriter, r *http.Request) error {
	shown := healthJSON{Live: true, Ready: true, Instances: []instanceHealthJSON{}}
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
		shown.Instances = append(shown.Instances, instanceHealthJSON{
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

func inWords(problems []healthProblem) string {
	var words []string
	for _, problem := range problems {
		words = append(words, problem.Detail)
	}
	return strings.Join(words, "; ")
}
