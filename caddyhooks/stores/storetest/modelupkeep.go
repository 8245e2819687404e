package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var upkeepActions = []action{
	{"join or leave", func(w *world, chance *rand.Rand) any {
		if w.join != nil && len(w.nodes) < 3 {
			w.open(w.join())
			return nil
		}
		if chance.IntN(3) > 0 {
			return nil
		}
		all := w.endAll() // a node that leaves may keep its claims until their leases are over
		w.leave()
		return all
	}},
	{"open it again", func(w *world, chance *rand.Rand) any {
		if w.reopen == nil || w.throttled || chance.IntN(2) == 0 { // throttles need not outlive the process
			return nil
		}
		return w.openAgain()
	}},
	{"prune", func(w *world, chance *rand.Rand) any {
		limits := engine.Limits{Retention: oneOf[time.Duration](chance, 0, time.Hour, 10*time.Hour), HistoryBytes: oneOf[int64](chance, 0, 0, 1, 8_000),
			KeyAge: oneOf[time.Duration](chance, 0, 2*time.Hour), History: oneOf[time.Duration](chance, 0, time.Hour, engine.NoHistory)}
		for {
			if more, err := w.s.Prune(w.t.Context(), limits); err != nil || !more {
				return err
			}
		}
	}},
	{"save settings", (*world).saveSettings},
	{"save a minute", func(w *world, chance *rand.Rand) any {
		m := fullMinute()
		m.At, m.Part, m.Accepted = aMinute.Add(time.Duration(chance.IntN(3))*time.Minute), chance.Uint64N(2), chance.Int64N(9)
		return w.s.Minutes().Save(w.t.Context(), m)
	}},
}

func (w *world) saveSettings(chance *rand.Rand) any {
	settings, description := []byte(fmt.Sprint(chance.IntN(100))), oneOf(chance, nil, fmt.Append(nil, "change ", chance.IntN(100)))
	revision, err := w.s.Settings().Save(w.t.Context(), settings, description, w.saved-int64(chance.IntN(8)/7))
	if err == nil {
		w.saved = revision
	}
	return []any{revision, err}
}
