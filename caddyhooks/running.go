package caddyhooks

import (
	"slices"
	"sync"
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
