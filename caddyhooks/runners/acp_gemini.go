package runners

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
)

// geminiReadyAt is when a session may be opened again. Gemini CLI 0.61 keeps a session in a file that is named after the minute in
// which it was begun. When it opens one, it first begins a conversation of the same name, in a file that is named after this minute.
// If both are the same, the history is lost.
func geminiReadyAt(home, id string, now time.Time) time.Time {
	const minute, shortID = "2006-01-02T15-04", 8
	if uuid.Validate(id) != nil {
		return now
	}
	files, err := filepath.Glob(filepath.Join(globLiteral(home), ".gemini", "tmp", "*", "chats", "session-*-"+id[:shortID]+".jsonl"))
	if err != nil || len(files) == 0 {
		return now
	}
	for i, file := range files {
		files[i] = filepath.Base(file)
	}
	// The first one has the history; others are left of later openings.
	if strings.HasPrefix(slices.Min(files), "session-"+now.UTC().Format(minute)+"-") {
		return now.Truncate(time.Minute).Add(time.Minute)
	}
	return now
}

// globLiteral is a pattern that matches a path and no other.
func globLiteral(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// untilReady waits until a session may be opened again.
func (a *ACP) untilReady(ctx context.Context, agent *acpAgent, id, chat string) error {
	if a.preset.readyAt == nil || id == "" || agent.has(id, chat) {
		return nil
	}
	for told := false; ; told = true {
		wait := time.Until(a.preset.readyAt(agent.home, id, time.Now()))
		if wait <= 0 {
			return nil
		}
		if !told {
			a.log.Info("a session cannot be opened again at once", zap.String("program", agent.name), zap.Duration("wait", wait))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
