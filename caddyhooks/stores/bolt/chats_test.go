package bolt

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// An end is in the file a moment before memory knows of it.
func TestARunWhoseEndIsBeingWrittenCountsOnce(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "store.db"))
	claims, err := s.Runs().(engine.ClaimingRuns).AddAndClaim(t.Context(), []*engine.Run{testRun("chat", "hello")}, engine.Terms{},
		engine.Batch{Max: 1, Lease: time.Hour})
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	id, before := uuid.MustParse(claims[0].Run.ID), engine.Record{Run: claims[0].Run}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}}
	if _, err := s.Runs().End(t.Context(), claims[0], end, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.ending[id] = before
	s.mu.Unlock()
	chats, _, err := s.Runs().Chats(t.Context(), engine.ChatQuery{Limit: 10})
	if err != nil || len(chats) != 1 || chats[0].Runs != 1 {
		t.Errorf("got %+v, %v", chats, err)
	}
	s.mu.Lock()
	delete(s.ending, id)
	s.mu.Unlock()
}
