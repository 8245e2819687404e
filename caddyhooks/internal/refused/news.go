package refused

import (
	"context"
	"slices"
)

// Number is that of the last change of a kind, for event streams.
func (r *Recorder) Number() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.number
}

// Changed names the kinds that changed after a number, up to a limit, and says how many others did. It returns the number of the last
// change. Kinds of other nodes are among them when they were read from the store.
func (r *Recorder) Changed(after uint64, limit int) (names []string, others int, number uint64) {
	if r == nil {
		return nil, 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.Recent.Front(); e != nil; e = e.Next() {
		notes := e.Value.(*kindNotes)
		if notes.number <= after {
			break
		}
		names = append(names, notes.kind.name())
	}
	for name, number := range r.remote {
		if number > after && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	shown := min(len(names), limit)
	return names[:shown], len(names) - shown, r.number
}

// Hear reads what other nodes have counted.
func (r *Recorder) Hear(ctx context.Context) {
	if r == nil {
		return
	}
	r.saver.io.Lock()
	defer r.saver.io.Unlock()
	r.saver.refresh(ctx, false)
}

// Named returns kinds by the names that Changed told, the last seen first.
func (r *Recorder) Named(ctx context.Context, names []string) (found []Requests) {
	all := r.all(ctx)
	for _, name := range names {
		if kind, ok := all[name]; ok {
			found = append(found, kind)
		}
	}
	slices.SortFunc(found, latestFirst)
	return found
}
