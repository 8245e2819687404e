package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// sessions implements engine.Sessions. Ends name them, by set_sessions_1.
type sessions struct{ *store }

func newSessions(s *store) *sessions { return &sessions{s} }

func (s *sessions) Get(ctx context.Context, runner, chat string) (string, error) {
	var id *string
	err := s.query(ctx, func(row pgx.Rows) error { return row.Scan(&id) },
		"SELECT @.get_session_1($1, $2)", dbText(runner), dbText(chat))
	if err != nil || id == nil {
		return "", err
	}
	return goText(*id), nil
}
