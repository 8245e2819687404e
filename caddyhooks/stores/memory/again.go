package memory

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// firstOf finds the run that another one is again, nil if there is none to mark.
func (d *Data) firstOf(added *engine.Run, terms engine.Terms) (*run, error) {
	if added.AgainOf == "" {
		return nil, nil
	}
	id, _ := local.ParseID(added.AgainOf)
	first := d.runs[id]
	if first == nil || !first.Status.Ended() {
		if terms.Once {
			return nil, engine.ErrNotFound
		}
		return nil, nil
	}
	if terms.Once && first.AgainAs != "" {
		return nil, engine.ErrRunAgain
	}
	return first, nil
}
