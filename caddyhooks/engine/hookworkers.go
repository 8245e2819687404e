package engine

import "sync"

// hookWorkers bounds how many turns of a hook are under way at once. Runs of a hook that has as many as it may are not claimed, and
// so hold no worker. All methods may be called by many goroutines.
type hookWorkers struct {
	mu       sync.Mutex
	limits   map[string]int      // those of hooks that have one
	underWay map[string]int      // turns by hook, whether it has a limit or not: it may get one meanwhile
	held     map[string]int      // room that is held for claims which the store has not answered yet
	short    map[string]struct{} // hooks of which there may be runs that were not claimed for want of room
}

// limitHooks is Engine.LimitHooks.
func (p *workerPool) limitHooks(workers map[string]int) {
	limits := make(map[string]int, len(workers))
	for hook, limit := range workers {
		if limit > 0 {
			limits[hook] = limit
		}
	}
	h := &p.hooks
	h.mu.Lock()
	h.limits = limits
	clear(h.short) // all are looked at now
	h.mu.Unlock()
	signal(p.free)
}

// hold holds room for a claim of up to n runs, which may be of any hook, and returns the bounds of the claim.
func (h *hookWorkers) hold(n int) (rooms map[string]int, bounds []Bound) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.limits) == 0 {
		return nil, nil
	}
	rooms = make(map[string]int, len(h.limits))
	for hook, limit := range h.limits {
		free := max(limit-h.underWay[hook], 0)
		room := min(max(free-h.held[hook], 0), n)
		if room < n {
			bounds = append(bounds, Bound{Hooks: []string{hook}, AtMost: room})
		}
		if room < min(free, n) {
			h.note(hook) // others hold what they may not need
		}
		h.add(&h.held, hook, room)
		rooms[hook] = room
	}
	return rooms, bounds
}

// settle counts the runs that were claimed, of up to n, and gives up the rest of the room that was held for them. It reports whether
// there may be runs to claim that there was no room for before.
func (h *hookWorkers) settle(n int, rooms map[string]int, claims []*Claim) (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var got map[string]int
	for _, claim := range claims {
		h.add(&h.underWay, claim.Run.Hook, 1)
		if rooms != nil {
			h.add(&got, claim.Run.Hook, 1)
		}
	}
	for hook, room := range rooms {
		h.add(&h.held, hook, -room)
		if room < n && got[hook] == room {
			h.note(hook)
		}
		if _, short := h.short[hook]; short && h.underWay[hook]+h.held[hook] < h.limits[hook] {
			delete(h.short, hook)
			more = true
		}
	}
	return more
}

// leave says that a turn of a hook is over.
func (h *hookWorkers) leave(hook string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(&h.underWay, hook, -1)
}

// note is called under the lock, as is add.
func (h *hookWorkers) note(hook string) {
	if h.short == nil {
		h.short = make(map[string]struct{})
	}
	h.short[hook] = struct{}{}
}

func (h *hookWorkers) add(counts *map[string]int, hook string, n int) {
	if *counts == nil {
		*counts = make(map[string]int)
	}
	if sum := (*counts)[hook] + n; sum != 0 {
		(*counts)[hook] = sum
	} else {
		delete(*counts, hook)
	}
}
