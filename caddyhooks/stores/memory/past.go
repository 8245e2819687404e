package memory

import (
	"context"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

func (s runs) Past(_ context.Context, chatID string, turns, bytes int) (past []*engine.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.indexes.chats[chatID]
	if c == nil {
		return nil, nil
	}
	misses := 0
	for i := len(c.turns) - 1; i >= 0 && len(past) < turns && bytes >= 0 && misses <= local.PastMisses; i-- {
		if s.runs[c.turns[i]].input == nil {
			misses++
			continue
		}
		record := s.whole(c.turns[i])
		bytes -= len(record.Run.Message) + len(record.Outcome.Text)
		turn := local.PastQuery.Listed(record)
		for _, id := range s.runs[c.turns[i]].followers {
			if s.runs[id] == nil {
				continue
			}
			follower := s.whole(id).Run
			bytes -= len(follower.Message)
			turn.Followers = append(turn.Followers, follower)
		}
		past = append(past, turn)
	}
	return past, nil
}
