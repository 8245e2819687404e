package memory

import (
	"container/list"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// history keeps what ended runs were told. Runs that keep it for the same time stand together, in the order in which they
// ended, so what is too old is at the front.
type history struct {
	groups map[time.Duration]*list.List // of *told, by how long it is kept
	bytes  int64
}

// told is what a run was told, and its place in the history.
type told struct {
	engine.Told
	run        uuid.UUID
	finishedAt time.Time
	group      *list.List
	place      *list.Element
}

// add keeps what a run was told that has ended, and returns nil if it is not to be kept.
func (h *history) add(id uuid.UUID, run *engine.Run, finishedAt time.Time) *told {
	if run.History <= 0 {
		return nil
	}
	group := h.groups[run.History]
	if group == nil {
		if h.groups == nil {
			h.groups = make(map[time.Duration]*list.List)
		}
		group = list.New()
		h.groups[run.History] = group
	}
	kept := &told{Told: run.Told(), run: id, finishedAt: finishedAt, group: group}
	if kept.Cut {
		kept.Message = strings.Clone(kept.Message) // or the whole would stay in memory
	}
	kept.place = group.PushBack(kept)
	h.bytes += int64(kept.Size())
	return kept
}

// remove forgets what a run was told.
func (h *history) remove(kept *told) {
	kept.group.Remove(kept.place)
	h.bytes -= int64(kept.Size())
}

// next finds one that is too old or, if there is too much, the oldest. It returns nil if there is none.
func (h *history) next(now time.Time, limits engine.Limits) *told {
	var oldest *told
	for own, group := range h.groups {
		if group.Len() == 0 {
			delete(h.groups, own)
			continue
		}
		first := group.Front().Value.(*told)
		if keep := limits.HistoryOf(own); keep <= 0 || !first.finishedAt.Add(keep).After(now) {
			return first
		}
		if oldest == nil || first.finishedAt.Before(oldest.finishedAt) {
			oldest = first
		}
	}
	if limits.HistoryBytes > 0 && h.bytes > limits.HistoryBytes {
		return oldest
	}
	return nil
}

// forgetTold forgets what a run was told, if it is kept.
func (d *Data) forgetTold(r *run) {
	if r.told != nil {
		d.bytes -= r.size()
		d.history.remove(r.told)
		r.told = nil
		d.bytes += r.size()
	}
}
