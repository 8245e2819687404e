package settings

import (
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// readHistory reads how long messages of finished runs are kept, in seconds:
//
//	history <duration>|off
func readHistory(d *caddyfile.Dispenser) (int, error) {
	text, err := caddyconf.Text(d)
	if err != nil || text == "off" {
		return 0, err
	}
	duration, err := caddy.ParseDuration(text)
	if err != nil || duration < time.Second || duration%time.Second != 0 {
		return 0, d.Errf("'%s' is neither off nor a duration of whole seconds%s", text, caddyconf.DurationHint(text))
	}
	return int(duration / time.Second), nil
}

// checkHistory refuses what is longer than another setting.
func checkHistory(seconds, most int, setting string) error {
	if seconds < 0 {
		return errors.New("must not be negative; 0 keeps nothing")
	}
	if seconds <= most {
		return nil
	}
	limit := "off"
	if most > 0 {
		limit = text.ShortDuration(time.Duration(most) * time.Second)
	}
	return fmt.Errorf("must not be longer than %s, which is %s", setting, limit)
}

// HistoryOf is how long the message of a run is kept after its end. hook is nil for wake and agent.
func (a *Active) HistoryOf(h *Hook) time.Duration {
	if h != nil && h.HistorySeconds != nil {
		return min(time.Duration(*h.HistorySeconds)*time.Second, a.History)
	}
	return a.History
}
