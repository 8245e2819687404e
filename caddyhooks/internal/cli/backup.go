package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
)

func init() {
	verbs = append(verbs, backupVerb)
}

func backupVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE [--force] [--from STORE]",
		Short: "Copies the store of a running Caddy to a file, and checks the copy",
		Long: `
Copies the bolt store of an instance to a file: runs, deliveries, keys, sessions, history and live settings, all as they were at one
moment. Caddy goes on meanwhile. The copy is checked before it gets its name, so a file with that name is a good one.

The backup has the tokens and secrets of the live settings in it, and all messages that are kept. Only you may read the file: keep
it as safe as the store.

The file - is the standard output, for another program:

  caddy hooks backup - | age -r ... > hooks.db.age

If Caddy is stopped, name the file of the store by --from. A store in PostgreSQL is backed up with pg_dump, one in memory not at all.`,
		Args: takesOne("the file"),
		RunE: runBackup,
	}
	cmd.Flags().Bool("force", false, "replace a file that is there")
	cmd.Flags().String("from", "", "the file of a store that no Caddy has open")
	return cmd
}

// backupJSON is what is told about a backup.
type backupJSON struct {
	File     string    `json:"file"`
	Instance string    `json:"instance,omitempty"`
	TakenAt  time.Time `json:"takenAt,omitzero"`
	Bytes    int64     `json:"bytes"`
	bolt.Summary
}

func newBackupJSON(file string, checked *bolt.Checked) backupJSON {
	shown := backupJSON{File: file, Bytes: checked.Bytes, Summary: checked.Summary}
	if m := checked.Manifest; m != nil {
		shown.Instance, shown.TakenAt = m.Instance, m.TakenAt
	}
	return shown
}

// backupSource writes a backup to w. total is told how long it will be.
type backupSource func(ctx context.Context, w io.Writer, total func(bytes int64)) error

func runBackup(cmd *cobra.Command, args []string) error {
	from, _ := cmd.Flags().GetString("from")
	if from != "" {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		instance, _ := cmd.Flags().GetString("instance")
		return makeBackup(ctx, cmd, args[0], func(_ context.Context, w io.Writer, total func(int64)) error {
			err := bolt.BackUpFile(from, cmp.Or(instance, "default"), w, total)
			var inUse *storefile.InUseError
			if errors.As(err, &inUse) {
				return fmt.Errorf("a process has %s open: leave --from out, and the Caddy that runs makes the backup", from)
			}
			return err
		})
	}
	err := errandVerb(func(e *errand, cmd *cobra.Command, args []string) error {
		return makeBackup(e.ctx, cmd, args[0], e.downloadBackup)
	})(cmd, args)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) && !errors.Is(err, errBackupFile) {
		return fmt.Errorf("%w. If Caddy is stopped, name the file of its store by --from", err)
	}
	return err
}

// errBackupFile marks an error of the file that is written.
var errBackupFile = errors.New("the backup cannot be written")

// downloadBackup asks the admin endpoint for a backup.
func (e *errand) downloadBackup(ctx context.Context, w io.Writer, total func(int64)) error {
	resp, err := e.client.download(ctx, apiCall{path: e.path("backup")}, e.client.silence)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	total(resp.ContentLength)
	n, err := io.Copy(w, resp.Body)
	var brokeOff *brokeOffError
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, errSilent):
		return fmt.Errorf("the backup broke off: %w", err)
	case errors.As(err, &brokeOff):
		return fmt.Errorf("the backup broke off after %s of %s: a reload of Caddy ends it, and Caddy's log tells other reasons. Try again", byteSize(n), byteSize(resp.ContentLength))
	}
	return err
}

var errInterrupted = errors.New("interrupted: no backup was made")

// makeBackup writes a backup to a file, and tells about it.
func makeBackup(ctx context.Context, cmd *cobra.Command, path string, source backupSource) error {
	screen := newScreen(cmd)
	force, _ := cmd.Flags().GetBool("force")
	if path == "-" {
		return passBackupOn(ctx, cmd, screen, source)
	}
	file, err := storefile.Create(path, force)
	if err != nil {
		return backupFileError(folderError(path, err))
	}
	defer file.Discard()
	if err := copyWithProgress(ctx, screen, file, source); err != nil {
		return err
	}
	checked, err := bolt.PlaceBackup(file, force)
	if err != nil {
		return backupFileError(err)
	}
	if wantsJSON(cmd) {
		return printValue(screen.Out(), newBackupJSON(path, checked))
	}
	screen.Line(terminal.Plain(fmt.Sprintf("Backed up the hooks instance %s to %s: %s, checked.", checked.Manifest.Instance, path, byteSize(checked.Bytes))))
	showSummary(screen, &checked.Summary)
	screen.Note("The file has secrets in it, and all messages that are kept. Only you may read it: keep it as safe as the store.")
	return nil
}

func backupFileError(err error) error {
	var exists *storefile.ExistsError
	if errors.As(err, &exists) {
		return fmt.Errorf("%w: choose another name, or replace it with --force", err)
	}
	var path *fs.PathError
	if errors.As(err, &path) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errBackupFile, err)
	}
	return err
}

// passBackupOn writes a backup to the standard output.
func passBackupOn(ctx context.Context, cmd *cobra.Command, screen *terminal.Screen, source backupSource) error {
	if screen.IsTerminal() {
		return &usageError{"a backup is not for a terminal: name a file, or give it to another program"}
	}
	if wantsJSON(cmd) {
		return &usageError{"--json and the backup cannot both go to the standard output"}
	}
	check := storefile.NewStreamCheck()
	if err := copyWithProgress(ctx, screen, io.MultiWriter(screen.Out(), check), source); err != nil {
		return err
	}
	manifest, err := check.Manifest()
	if err != nil {
		return err
	}
	screen.Note("Backed up the hooks instance %s: %s, checksum checked. There are secrets in it: keep it as safe as the store.", manifest.Instance, byteSize(manifest.Bytes))
	return nil
}

// copyWithProgress tells how far a backup has got, and ends it when the person at the terminal does not want to wait.
func copyWithProgress(ctx context.Context, screen *terminal.Screen, to io.Writer, source backupSource) error {
	progress := screen.Progress()
	defer progress.Close()
	var all, done int64
	return source(ctx, writerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, errInterrupted
		}
		n, err := to.Write(p)
		done += int64(n)
		progress.Show("%s of %s", byteSize(done), byteSize(all))
		return n, storefile.ExplainSpace(err)
	}), func(bytes int64) { all = bytes })
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
