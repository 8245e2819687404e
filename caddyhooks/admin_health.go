package caddyhooks

import (
	"net/http"
	"slices"
)

func init() {
	globalEndpoints.handle("GET /health", serveHealth)
}

// healthJSON tells whether this node takes on work.
type healthJSON struct {
	Ready     bool                 `json:"ready"` // all instances are
	Instances []instanceHealthJSON `json:"instances"`
}

type instanceHealthJSON struct {
	Instance string `json:"instance"`
	Ready    bool   `json:"ready"`
	Reason   string `json:"reason,omitempty"` // why it is not
}

// serveHealth answers 200 if all instances take on work, and otherwise 503. Load balancers look at the status, operators at the reason.
func serveHealth(_ *instance, w http.ResponseWriter, r *http.Request) error {
	health := healthJSON{Ready: true, Instances: []instanceHealthJSON{}}
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
		shown := instanceHealthJSON{Instance: name, Ready: true}
		if err := in.notReady(); err != nil {
			shown.Ready, shown.Reason, health.Ready = false, err.Error(), false
		}
		health.Instances = append(health.Instances, shown)
	}
	status := http.StatusOK
	if !health.Ready {
		status = http.StatusServiceUnavailable
	}
	return writeAdminJSON(w, status, health)
}
