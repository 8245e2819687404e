package memory

import (
	"container/list"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// history keeps the input of ended runs. Runs that keep it for the same time stand together, in the order in which they
// ended, so what is too old is at the front.
type history struct {
	groups map[time.Duration]*list.List // of *keptInput, by how long it is kept
	bytes  int64
}

// keptInput is the input of a run, and its place in the history.
type keptInput struct {
	engine.Input
	run        uuid.UUID
	finishedAt time.Time
	group      *list.List
	place      *list.Element
}

// add keeps the input of an ended run. It returns nil if the input is not to be kept.
func (h *history) add(id uuid.UUID, run *engine.Run, finishedAt time.Time) *keptInput {
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
	kept := &keptInput{Input: run.Input(), run: id, finishedAt: finishedAt, group: group}
	if kept.Cut {
		kept.Message = strings.Clone(kept.Message) // or the whole would stay in memory
	}
	kept.place = group.PushBack(kept)
	h.bytes += int64(kept.Size())
	return kept
}

// remove forgets a run's input.
func (h *history) remove(kept *keptInput) {
	kept.group.Remove(kept.place)
	h.bytes -= int64(kept.Size())
}

// next finds one that is too old or, if there is too much, the oldest. It returns nil if there is none.
func (h *history) next(now time.Time, limits engine.Limits) *keptInput {
	var oldest *keptInput
	for own, group := range h.groups {
		if group.Len() == 0 {
			delete(h.groups, own)
			continue
		}
		first := group.Front().Value.(*keptInput)
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

// forgetInput forgets a run's input, if it is kept.
func (d *Data) forgetInput(r *run) {
	if r.input != nil {
		d.bytes -= r.size()
		d.history.remove(r.input)
		r.input = nil
		d.bytes += r.size()
	}
}
