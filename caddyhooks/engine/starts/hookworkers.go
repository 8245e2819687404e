package starts

import "sync"

// HookWorkers bounds how many turns of a hook are under way at once. Runs of a hook that has as many as it may are not claimed, and
// so hold no worker. All methods may be called by many goroutines.
type HookWorkers struct {
	mu       sync.Mutex
	limits   map[string]int      // those of hooks that have one
	underWay map[string]int      // turns by hook, whether it has a limit or not: it may get one meanwhile
	held     map[string]int      // room that is held for claims which the store has not answered yet
	short    map[string]struct{} // hooks of which there may be runs that were not claimed for want of room
}

// Limit sets how many turns of each hook there may be at once. A hook that is not named, or has 0, has no limit.
func (h *HookWorkers) Limit(workers map[string]int) {
	limits := make(map[string]int, len(workers))
	for hook, limit := range workers {
		if limit > 0 {
			limits[hook] = limit
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limits = limits
	clear(h.short) // all are looked at now
}

// Hold holds room for a claim of up to n runs, which may be of any hook, and returns the limits of the claim.
func (h *HookWorkers) Hold(n int) (rooms map[string]int, limits []Limit) {
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
			limits = append(limits, Limit{Hook, hook, room})
		}
		if room < min(free, n) {
			h.note(hook) // others hold what they may not need
		}
		h.add(&h.held, hook, room)
		rooms[hook] = room
	}
	return rooms, limits
}

// Settle counts the runs that were claimed, of up to n, by their hooks, and gives up the rest of the room that was held for them. It
// reports whether there may be runs to claim that there was no room for before.
func (h *HookWorkers) Settle(n int, rooms map[string]int, hooks []string) (more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var got map[string]int
	for _, hook := range hooks {
		h.add(&h.underWay, hook, 1)
		if rooms != nil {
			h.add(&got, hook, 1)
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

// Leave says that a turn of a hook is over.
func (h *HookWorkers) Leave(hook string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(&h.underWay, hook, -1)
}

// note is called under the lock, as is add.
func (h *HookWorkers) note(hook string) {
	if h.short == nil {
		h.short = make(map[string]struct{})
	}
	h.short[hook] = struct{}{}
}

func (h *HookWorkers) add(counts *map[string]int, hook string, n int) {
	if *counts == nil {
		*counts = make(map[string]int)
	}
	if sum := (*counts)[hook] + n; sum != 0 {
		(*counts)[hook] = sum
	} else {
		delete(*counts, hook)
	}
}

// Size is how many hooks have turns under way, or room that is held. It is 0 for an engine at rest.
func (h *HookWorkers) Size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.underWay) + len(h.held)
}
