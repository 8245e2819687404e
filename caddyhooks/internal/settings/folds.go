package settings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// FoldOf is how runs of a hook are folded. custom is nil for wake and agent.
func (a *Active) FoldOf(name string, custom *Hook) engine.Fold {
	switch {
	case custom != nil:
		return custom.Fold()
	case name == "wake" && a.Settings.WakeFold != nil:
		f := a.Settings.WakeFold
		return newFold(f.Seconds, f.Max, f.Latest)
	default:
		return engine.Fold{}
	}
}

// Fold is how runs of the hook are folded.
func (m *Mapping) Fold() engine.Fold { return newFold(m.FoldSeconds, m.FoldMax, m.FoldLatest) }

func newFold(window, most int, latest bool) engine.Fold {
	if window == 0 {
		return engine.Fold{}
	}
	return engine.Fold{Window: time.Duration(window) * time.Second, Max: cmp.Or(most, defaultFoldMax), Latest: latest}
}

// WakeFold says how runs of the built-in wake are folded.
type WakeFold struct {
	// How long the first run in a chat waits for others, which are then carried out in the same turn.
	Seconds int `json:"seconds"`

	// How many runs one turn carries out at most. Default: 100.
	Max int `json:"max,omitempty"`

	// Whether a turn is told the newest message alone. Default: all of them.
	Latest bool `json:"latest,omitempty"`
}

// UnmarshalJSON refuses members that it does not know.
func (f *WakeFold) UnmarshalJSON(raw []byte) error {
	obj, err := strictjson.ParseObject(raw, wakeFoldMembers)
	if err != nil {
		return err
	}
	if obj.Other != nil {
		return errors.New("wakeFold has seconds, max and latest")
	}
	type plain WakeFold
	return json.Unmarshal(raw, (*plain)(f))
}

var wakeFoldMembers = strictjson.Members("seconds", "max", "latest")

// check checks the setting.
func (f *WakeFold) check(r *Rules) error {
	if f.Max < 0 || f.Max > maxFoldRuns {
		return fmt.Errorf("must have a number of runs (max) from 1 to %d", maxFoldRuns)
	}
	return checkFoldSeconds(f.Seconds, r.MaxQueueSeconds(), "queue_time of the instance")
}

// readFold parses:
//
//	fold <duration> [<runs>] [latest]
func readFold(d *caddyfile.Dispenser) (fold WakeFold, err error) {
	place := *d
	args := d.RemainingArgs()
	if last := len(args) - 1; last > 0 && args[last] == "latest" {
		fold.Latest, args = true, args[:last]
	}
	if len(args) == 0 || len(args) > 2 {
		return fold, place.Errf("%s takes a duration and, if need be, a number and latest, as in: %s 30s 50 latest%s", place.Val(), place.Val(),
			caddyconf.Unset)
	}
	window, err := caddy.ParseDuration(args[0])
	if err != nil || window < time.Second || window%time.Second != 0 {
		return fold, place.Errf("'%s' is not a duration of whole seconds%s", args[0], caddyconf.DurationHint(args[0]))
	}
	fold.Seconds = int(window / time.Second)
	if len(args) == 2 {
		if fold.Max, err = strconv.Atoi(args[1]); err != nil || fold.Max < 1 {
			return fold, place.Errf("%s takes a number from 1 on after its duration, or latest, not '%s'", place.Val(), args[1])
		}
	}
	return fold, nil
}

// Bounds of fold and wake_fold.
const (
	maxFoldTime    = time.Hour
	maxFoldRuns    = 1000
	defaultFoldMax = 100
)

// checkFold checks the fields of fold.
func (h *Hook) checkFold(r *Rules) error {
	switch {
	case h.FoldSeconds == 0 && h.FoldMax != 0:
		return FieldErrorf("foldMax", "needs foldSeconds")
	case h.FoldSeconds == 0 && h.FoldLatest:
		return FieldErrorf("foldLatest", "needs foldSeconds")
	case h.FoldSeconds == 0:
		return nil
	case h.FoldMax < 0 || h.FoldMax > maxFoldRuns:
		return FieldErrorf("foldMax", "must have a number of runs from 1 to %d", maxFoldRuns)
	case h.Action == engine.Agent && h.SyncResponse:
		return FieldErrorf("foldSeconds", "does not go with %s: a caller that waits is answered by a turn of its own", bothNames("syncResponse"))
	}
	queueSeconds := cmp.Or(h.QueueTimeSeconds, r.MaxQueueSeconds())
	if err := checkFoldSeconds(h.FoldSeconds, queueSeconds, bothNames("queueTimeSeconds")); err != nil {
		return FieldErrorf("foldSeconds", "%v", err)
	}
	return nil
}

// warningsAboutFold looks for a fold that folds nothing.
func (m *Mapping) warningsAboutFold() (found []string) {
	switch {
	case m.FoldSeconds == 0:
	case m.FoldMax == 1:
		found = append(found, bothNames("foldSeconds")+" has no effect with a number of runs (foldMax) of 1: nothing is folded")
	case m.Action == engine.Agent && m.ChatID == "":
		found = append(found, bothNames("foldSeconds")+" has no effect without "+bothNames("chatId")+": every run has a chat of its own")
	}
	return found
}

// warningsAboutFoldMax looks for folds that can never have as many runs as they ask for.
func (c *Compiler) warningsAboutFoldMax(active *Active) (found []Warning) {
	limit := c.Rules.ChatLimit
	for i := range active.Settings.Mappings {
		m := &active.Settings.Mappings[i]
		if most := m.Fold().Max; limit > 0 && most > limit {
			found = append(found, Warning{Part{Mapping: m.Name},
				fmt.Sprintf("a turn is to have up to %d runs, but a chat holds %d at most (chat_limit): further requests are refused until the "+
					"window is over", most, limit)})
		}
	}
	return found
}

// checkFoldSeconds checks a window. One that is as long as runs may wait would let them expire.
func checkFoldSeconds(window, queueSeconds int, queueTime string) error {
	if most := int(maxFoldTime / time.Second); window < 1 || window > most {
		return fmt.Errorf("must have a window from 1 to %s", inSeconds(most))
	}
	if queueSeconds > 0 && window >= queueSeconds {
		return fmt.Errorf("must have a window shorter than %s, which is %s", queueTime, inSeconds(queueSeconds))
	}
	return nil
}
