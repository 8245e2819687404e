package acp

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
)

// Gemini CLI 0.61 keeps a session in a file that is named after the minute in which it began. When it opens one over ACP, it first begins
// a conversation of the same name, in a file that is named after the minute now, and leaves that. What follows is needed because of it.

// geminiReadyAt is when a session may be opened again: not in the minute in which it began, since the history would be lost.
func geminiReadyAt(home, id string, now time.Time) time.Time {
	const minute = "2006-01-02T15-04"
	files := geminiFiles(home, id)
	if len(files) > 0 && strings.HasPrefix(path.Base(files[0]), "session-"+now.UTC().Format(minute)+"-") {
		return now.Truncate(time.Minute).Add(time.Minute)
	}
	return now
}

// geminiOpened removes the files that are left of a session besides its own. If they stayed, Gemini CLI would take them for damaged ones
// at its next start, and remove them with the session.
func geminiOpened(home, id string) error {
	files := geminiFiles(home, id)
	if len(files) < 2 {
		return nil
	}
	root, err := os.OpenRoot(home) // which may be another user's: no link leads out of it
	if err != nil {
		return err
	}
	defer root.Close()
	for _, file := range files[1:] {
		data, err := root.ReadFile(file)
		if err == nil && !bytes.Contains(data, []byte(`"type":"gemini"`)) { // an answer
			err = root.Remove(file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// geminiFiles are the files of a session, as paths below the home. The first one has the history.
func geminiFiles(home, id string) []string {
	const shortID = 8
	if uuid.Validate(id) != nil {
		return nil
	}
	files, err := fs.Glob(os.DirFS(home), ".gemini/tmp/*/chats/session-*-"+id[:shortID]+".jsonl")
	if err != nil {
		return nil
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return files
}

// untilReady waits until a session may be opened again.
func (a *ACP) untilReady(ctx context.Context, agent *agentProcess, id, chat string) error {
	if a.preset.readyAt == nil || id == "" || agent.has(id, chat) {
		return nil
	}
	for logged := false; ; logged = true {
		wait := time.Until(a.preset.readyAt(agent.home, id, time.Now()))
		if wait <= 0 {
			return nil
		}
		if !logged {
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

// tidy removes what opening a session has left.
func (a *ACP) tidy(agent *agentProcess, id string) {
	if a.preset.opened == nil {
		return
	}
	if err := a.preset.opened(agent.home, id); err != nil {
		a.log.Warn("the history of a chat may be lost at the next start of the agent", zap.String("program", agent.name), zap.Error(err))
	}
}
