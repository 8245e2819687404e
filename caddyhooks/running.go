package caddyhooks

import (
	"net/http"
	"slices"
	"sync"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// running has the instances that are started, for the admin API and the access log. During a reload there are two instances
// with the same name.
var running instanceList

// waiting has the instances whose start waits for their store.
var waiting instanceList

type instanceList struct {
	mu        sync.Mutex
	instances []*instance // the newest last
}

func (r *instanceList) add(in *instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances = append(r.instances, in)
}

func (r *instanceList) remove(in *instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances = slices.DeleteFunc(r.instances, func(other *instance) bool { return other == in })
}

func (r *instanceList) find(name string) *instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, in := range slices.Backward(r.instances) {
		if in.name == name {
			return in
		}
	}
	return nil
}

func (r *instanceList) all() []*instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.instances)
}

func (r *instanceList) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := []string{}
	for _, in := range r.instances {
		names = append(names, in.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// secretHeadersIn are the headers that must not be logged. active is nil before the start.
func (in *instance) secretHeadersIn(active *settings.Active) auth.HeaderNames {
	if active == nil {
		return in.secretHeaders
	}
	return active.SecretHeaders
}

// takeOverLogEntry stops Caddy from logging the request and returns the entry to be written instead, nil if Caddy does not log the
// request. secret are the headers of this instance that must not be logged. A webhook for another instance may come here, too.
func (in *instance) takeOverLogEntry(secret auth.HeaderNames, w http.ResponseWriter, r *http.Request) *observe.AccessEntry {
	return in.accessLog.TakeOver(w, r, func(yield func(auth.HeaderNames) bool) {
		if !yield(secret) {
			return
		}
		for _, other := range running.all() {
			if !yield(other.secretHeadersIn(other.active.Load())) {
				return
			}
		}
	})
}
