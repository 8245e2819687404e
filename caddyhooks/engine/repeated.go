package engine

import (
	"context"
	"errors"
	"fmt"
)

// Repeated looks whether a request that is not accepted now was accepted before. The error is a *DuplicateError then, as that of
// Submit, nil if it is a new one, and ErrSettingsChanged if the settings are not those in force. Nothing is stored.
func (e *Engine) Repeated(ctx context.Context, runs []*Run, settings int64) error {
	ctx, stop := e.patience(context.WithoutCancel(ctx))
	defer stop()
	err := e.store.Runs().AddAll(ctx, runs, Terms{Settings: settings, Limits: e.config.Load().Limits, Refuse: errNotRepeated})
	var duplicate *DuplicateError
	switch {
	case errors.Is(err, errNotRepeated):
		return nil
	case errors.As(err, &duplicate), errors.Is(err, ErrSettingsChanged):
		return err
	default:
		e.noteBroken(err)
		return fmt.Errorf("looking for a repeated request: %w", err)
	}
}

var errNotRepeated = errors.New("the request repeats no other one")
