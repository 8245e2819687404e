package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

// storeFile is the file of an instance that is not named by its path.
func storeFile(path, instance string) string {
	return (&bolt.Bolt{Path: path}).File(cmp.Or(instance, "default"))
}

// folderError says why a file cannot be begun. The error itself has the name of a temporary file, which nobody knows.
func folderError(path string, err error) error {
	var failed *fs.PathError
	switch folder := filepath.Dir(path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s: %w", folder, fs.ErrNotExist)
	case errors.As(err, &failed):
		return fmt.Errorf("no file can be made in the folder %s: %w", folder, failed.Err)
	default:
		return err
	}
}

// showSummary prints what a file of a store has.
func showSummary(screen *terminal.Screen, s *bolt.Summary) {
	var statuses []string
	for _, status := range slices.Sorted(maps.Keys(s.ByStatus)) {
		statuses = append(statuses, withCommas(s.ByStatus[status])+" "+statusWord(status))
	}
	ended := withCommas(s.Ended)
	if len(statuses) > 0 {
		ended += ": " + strings.Join(statuses, ", ")
	}
	rows := [][2]string{
		{"unfinished runs", withCommas(s.Unfinished)},
		{"ended runs", ended},
		{"with history", withCommas(s.History)},
		{"deliveries", fmt.Sprintf("%s pending, %s delivered, %s dead", withCommas(s.Pending), withCommas(s.Delivered), withCommas(s.Dead))},
		{"keys", withCommas(s.Keys)},
		{"sessions", withCommas(s.Sessions)},
		{"live settings", fmt.Sprintf("revision %d, %s", s.Revision, counted(s.Changes, "change", "changes"))},
		{"counted minutes", withCommas(s.Minutes)},
	}
	table := make([][]terminal.Text, len(rows))
	for i, row := range rows {
		table[i] = []terminal.Text{terminal.Faint(row[0]), terminal.Plain(row[1])}
	}
	screen.Table(nil, table)
	if s.Damaged > 0 {
		screen.Line(terminal.Warn("! "), terminal.Plain(counted(s.Damaged, "record", "records")+" in it cannot be read."))
	}
}
