package local

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// kind is what tells runs apart when they are handed out. Chat queues that are ready are listed by the kind of their first run, since
// neither a runner that is unreachable nor a hook that has all its workers may be in the way of others. Few kinds have ready chat queues.
type kind struct {
	kindOf
	places int // how many runs it has
	ready  readyList
	active int // where it is among those that have ready chat queues, counted from 1
}

// kindOf names a kind.
type kindOf struct {
	runner, hook string
	fold         engine.Fold // zero for runs that are not folded
}

func newKindOf(runner, hook string, fold engine.Fold) kindOf {
	if !fold.IsSet() {
		fold = engine.Fold{}
	}
	fold.Alike = 0 // it comes from callers, who must not be able to make many kinds
	return kindOf{runner, hook, fold}
}

// folds reports whether runs of a kind are folded.
func (k *kindOf) folds() bool { return k.fold.Max != 0 }

// opensUntil is until when a run that was accepted at a time waits for others.
func (k *kindOf) opensUntil(accepted int64) int64 {
	const forEver = 100 * 365 * 24 * time.Hour // its end could not be told in nanoseconds
	return accepted + int64(min(k.fold.Window, forEver))
}

// kindNumber is the number of a kind for one more run.
func (l *ChatQueues) kindNumber(of kindOf) uint32 {
	n, known := l.kindNumbers[of]
	if !known {
		if last := len(l.unusedKinds) - 1; last >= 0 {
			n = l.unusedKinds[last]
			l.unusedKinds = l.unusedKinds[:last]
		} else {
			n = uint32(len(l.kinds))
			l.kinds = append(l.kinds, kind{})
		}
		l.kinds[n] = kind{kindOf: of}
		l.kindNumbers[of] = n
	}
	l.kinds[n].places++
	return n
}

// keptKinds is how many kinds are kept without runs, since most of them have runs again soon.
const keptKinds = 64

// releaseKind notes that a kind has one run less. Hooks come and go, so one without runs is forgotten if there are many.
func (l *ChatQueues) releaseKind(n uint32) {
	k := &l.kinds[n]
	if k.places--; k.places == 0 && len(l.kindNumbers) > keptKinds {
		delete(l.kindNumbers, k.kindOf)
		*k = kind{}
		l.unusedKinds = append(l.unusedKinds, n)
	}
}

// activate notes that a kind has ready chat queues, or none any more.
func (l *ChatQueues) activate(n uint32) {
	k := &l.kinds[n]
	switch {
	case k.ready.first != 0 && k.active == 0:
		l.active = append(l.active, n)
		k.active = len(l.active)
	case k.ready.first == 0 && k.active != 0:
		last := len(l.active) - 1
		moved := l.active[last]
		l.active[k.active-1] = moved
		l.kinds[moved].active = k.active
		l.active = l.active[:last]
		k.active = 0
	}
}
