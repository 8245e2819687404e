package service

import (
	"net/http"
	"slices"
	"sync"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Running has the instances that are started, for the admin API and the access log. During a reload there are two instances
// with the same name.
var Running instanceList

// Waiting has the instances whose start waits for their store.
var Waiting instanceList

type instanceList struct {
	mu        sync.Mutex
	instances []*Instance // the newest last
}

func (r *instanceList) add(in *Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances = append(r.instances, in)
}

func (r *instanceList) remove(in *Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances = slices.DeleteFunc(r.instances, func(other *Instance) bool { return other == in })
}

func (r *instanceList) Find(name string) *Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, in := range slices.Backward(r.instances) {
		if in.Name == name {
			return in
		}
	}
	return nil
}

func (r *instanceList) all() []*Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.instances)
}

func (r *instanceList) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := []string{}
	for _, in := range r.instances {
		names = append(names, in.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// SecretHeadersIn are the headers that must not be logged. active is nil before the start.
func (in *Instance) SecretHeadersIn(active *settings.Active) auth.HeaderNames {
	if active == nil {
		return in.secretHeaders
	}
	return active.SecretHeaders
}

// TakeOverLogEntry stops Caddy from logging the request and returns the entry to be written instead, nil if Caddy does not log the
// request. secret are the headers of this instance that must not be logged. A webhook for another instance may come here, too.
func (in *Instance) TakeOverLogEntry(secret auth.HeaderNames, w http.ResponseWriter, r *http.Request) *observe.AccessEntry {
	return in.AccessLog.TakeOver(w, r, func(yield func(auth.HeaderNames) bool) {
		if !yield(secret) {
			return
		}
		for _, other := range Running.all() {
			if !yield(other.SecretHeadersIn(other.Active.Load())) {
				return
			}
		}
	})
}
