package service

import (
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// LogWarnings logs the warnings that were not there before.
func (in *Instance) LogWarnings(before, now []settings.Warning) {
	known := make(map[string]bool, len(before))
	for _, w := range before {
		known[w.String()] = true
	}
	logged := 0
	for _, w := range now {
		switch {
		case known[w.String()]:
			continue
		case logged < settings.MaxLoggedWarnings:
			in.Log.Warn("a setting is probably a mistake", zap.Stringer("setting", w.Part), zap.String("warning", w.Text))
		}
		logged++
	}
	if logged > settings.MaxLoggedWarnings {
		in.Log.Warn("more settings are probably mistakes; GET /hooks/settings on the admin endpoint lists all",
			zap.Int("more", logged-settings.MaxLoggedWarnings))
	}
}

// warningsWhenLoaded returns the warnings about a configuration that is not started yet, and those that a start may find to be
// wrong: a token that is missing may be among the live settings.
func (in *Instance) warningsWhenLoaded(active *settings.Active) (certain, unstarted []settings.Warning) {
	for _, w := range active.Warnings {
		if w.Part.String() == "enabled" {
			w.Text = "unless a token was saved while Caddy ran, " + w.Text
			unstarted = append(unstarted, w)
		} else {
			certain = append(certain, w)
		}
	}
	return certain, unstarted
}

// showWarnings returns the warnings about the settings in force that nobody has dismissed.
func (in *Instance) showWarnings(active *settings.Active) any { return showWarningsIf(active, false) }

// showDismissed returns the others.
func (in *Instance) showDismissed(active *settings.Active) any { return showWarningsIf(active, true) }

func showWarningsIf(active *settings.Active, dismissed bool) any {
	var shown []string
	for _, w := range active.Warnings {
		if (active.Settings.FindDismissal(w.Code()) != nil) == dismissed {
			shown = append(shown, w.String())
		}
	}
	if shown == nil {
		return nil
	}
	return shown
}
