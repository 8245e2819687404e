package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/stores"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func backupVerb() *cobra.Command {
	return stores.Backup(func(ctx context.Context, cmd *cobra.Command) (stores.Source, error) {
		s, err := newSession(ctx, cmd)
		if err != nil {
			return nil, err
		}
		return s.downloadBackup, nil
	})
}

// downloadBackup asks the admin endpoint for a backup.
func (s *session) downloadBackup(ctx context.Context, w io.Writer, total func(int64)) error {
	resp, err := s.client.Download(ctx, adminclient.Call{Path: s.path("backup")}, s.client.Silence)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	total(resp.ContentLength)
	n, err := io.Copy(w, resp.Body)
	var brokeOff *adminclient.BrokeOffError
	switch {
	case errors.Is(err, adminclient.ErrSilent):
		return fmt.Errorf("the backup broke off: %w", err)
	case errors.As(err, &brokeOff):
		return fmt.Errorf("the backup broke off after %s of %s: a reload of Caddy ends it, and Caddy's log tells other reasons. Try again",
			terminal.ByteSize(n), terminal.ByteSize(resp.ContentLength))
	}
	return err
}
