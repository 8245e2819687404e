package service

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Pause keeps runs of something from being started, on all nodes, or lets them start at a rate.
func (s *Service) Pause(from api.Origin, p settings.Pause) error {
	_, err := s.Change(from, func(_ *Instance, live *settings.Settings) error {
		if err := live.SetPause(p); err != nil {
			return api.Conflictf("%v", err)
		}
		return nil
	})
	return err
}

// Resume lets runs of something start again, on all nodes. It reports false if that was not paused.
func (s *Service) Resume(from api.Origin, what starts.What, name string) (was bool, err error) {
	_, err = s.Change(from, func(_ *Instance, live *settings.Settings) error {
		was = live.Resume(what, name)
		return nil
	})
	return was, err
}

// followPauses puts the pauses in force that are among the settings, and tells about those that came and went. It is called under the lock.
func (s *Service) followPauses(active *settings.Active) {
	before, now := s.pauses, active.Settings.Pauses
	s.pauses = now
	s.Engine.SetPauses(settings.Starts(now))
	newest := s.newest()
	if newest == nil {
		return
	}
	for i := range now {
		if was := findPause(before, &now[i]); was != nil && *was == now[i] {
			continue
		}
		if now[i].IsPace() {
			newest.Log.Info("resumed at a pace", pauseFields(&now[i])...)
		} else {
			newest.Log.Info("paused", pauseFields(&now[i])...)
		}
	}
	for i := range before {
		if findPause(now, &before[i]) == nil {
			newest.Log.Info("resumed", pauseFields(&before[i])...)
		}
	}
}

func pauseFields(p *settings.Pause) []zap.Field {
	return []zap.Field{zap.String("what", string(p.What)), zap.String("name", p.Name), zap.String("reason", p.Reason),
		zap.String("paused_by", p.By), zap.Time("since", p.At), zap.String("rate", p.Rate)}
}

// findPause returns the pause of the same thing as another one, nil if there is none.
func findPause(pauses []settings.Pause, like *settings.Pause) *settings.Pause {
	i := slices.IndexFunc(pauses, func(p settings.Pause) bool { return p.IsFor(like.What, like.Name) })
	if i < 0 {
		return nil
	}
	return &pauses[i]
}

// pauseOrNil is the value of a pause in a list of changes.
func pauseOrNil(p *settings.Pause) any {
	if p == nil {
		return nil
	}
	return p
}

// PausedText says what is paused, by whom, since when and why, for operators.
func PausedText(p *settings.Pause) string {
	text := p.String() + " is paused"
	if p.IsPace() {
		text = p.String() + " is resumed at " + p.Rate + " on each node"
	}
	if p.By != "" {
		text += " by " + p.By
	}
	text += " since " + p.At.UTC().Format(time.RFC3339)
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// pauseProblems tells health what is paused.
func pauseProblems(pauses []settings.Pause) (problems []api.HealthProblem) {
	for _, p := range pauses {
		code := api.IsPaused
		if p.IsPace() {
			code = api.IsPaced
		}
		problems = append(problems, api.HealthProblem{Code: code, Detail: PausedText(&p)})
	}
	return problems
}

// countPaused is how many pauses of a kind there are, without paces.
func countPaused(pauses []settings.Pause, what starts.What) (n int) {
	for _, p := range pauses {
		if p.What == what && !p.IsPace() {
			n++
		}
	}
	return n
}
