package turns

import (
	"context"
	"fmt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Session is the session that the runner has given the chat of a turn, "" if there is none or the turn has no memory.
func Session(ctx context.Context, turn *engine.Turn) (string, error) {
	if !turn.Memory() || turn.Chat == nil {
		return "", nil
	}
	session, err := turn.Chat.Session(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the session of the chat: %w", err)
	}
	return session, nil
}
