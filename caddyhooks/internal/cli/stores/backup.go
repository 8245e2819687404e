// Package stores has the commands about the files and tables of stores: backup, restore, compact, migrate and migrate-store. All but
// backup are for a Caddy that is stopped. The package imports what stores offer beside their modules, settings, caddyconf, text,
// terminal and flags.
package stores

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
)

// A Source writes a backup to w. total is told how long it will be.
type Source func(ctx context.Context, w io.Writer, total func(bytes int64)) error

// Running finds the Caddy that flags name, which makes a backup of its store.
type Running func(ctx context.Context, cmd *cobra.Command) (Source, error)

// Backup is the verb backup.
func Backup(running Running) *cobra.Command {
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
		Args: flags.TakesOne("the file"),
		RunE: flags.Interruptible(running.run),
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

func (running Running) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	if from := flags.Text(cmd, "from"); from != "" {
		return makeBackup(ctx, cmd, args[0], func(_ context.Context, w io.Writer, total func(int64)) error {
			err := bolt.BackUpFile(from, cmp.Or(flags.Text(cmd, "instance"), "default"), w, total)
			var inUse *storefile.InUseError
			if errors.As(err, &inUse) {
				return fmt.Errorf("a process has %s open: leave --from out, and the Caddy that runs makes the backup", from)
			}
			return err
		})
	}
	source, err := running(ctx, cmd)
	if err == nil {
		err = makeBackup(ctx, cmd, args[0], source)
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) && !errors.Is(err, errBackupFile) {
		return fmt.Errorf("%w. If Caddy is stopped, name the file of its store by --from", err)
	}
	return err
}

// errBackupFile marks an error of the file that is written.
var errBackupFile = errors.New("the backup cannot be written")

var errInterrupted = errors.New("interrupted: no backup was made")

// makeBackup writes a backup to a file, and tells about it.
func makeBackup(ctx context.Context, cmd *cobra.Command, path string, source Source) error {
	screen, force := flags.Screen(cmd), flags.IsOn(cmd, "force")
	if path == "-" {
		return passBackupOn(ctx, cmd, screen, source)
	}
	file, err := storefile.Create(path, force)
	if err != nil {
		return backupFileError(storefile.FolderError(path, err))
	}
	defer file.Discard()
	if err := copyWithProgress(ctx, screen, file, source); err != nil {
		return err
	}
	checked, err := bolt.PlaceBackup(file, force)
	if err != nil {
		return backupFileError(err)
	}
	if flags.WantsJSON(cmd) {
		return terminal.PrintJSON(screen.Out(), newBackupJSON(path, checked))
	}
	screen.Line(terminal.Plain(fmt.Sprintf("Backed up the hooks instance %s to %s: %s, checked.", checked.Manifest.Instance, path,
		terminal.ByteSize(checked.Bytes))))
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
func passBackupOn(ctx context.Context, cmd *cobra.Command, screen *terminal.Screen, source Source) error {
	if screen.IsTerminal() {
		return flags.Usagef("a backup is not for a terminal: name a file, or give it to another program")
	}
	if flags.WantsJSON(cmd) {
		return flags.Usagef("--json and the backup cannot both go to the standard output")
	}
	check := storefile.NewStreamCheck()
	if err := copyWithProgress(ctx, screen, io.MultiWriter(screen.Out(), check), source); err != nil {
		return err
	}
	manifest, err := check.Manifest()
	if err != nil {
		return err
	}
	screen.Note("Backed up the hooks instance %s: %s, checksum checked. There are secrets in it: keep it as safe as the store.",
		manifest.Instance, terminal.ByteSize(manifest.Bytes))
	return nil
}

// copyWithProgress tells how far a backup has got, and ends it when the person at the terminal does not want to wait.
func copyWithProgress(ctx context.Context, screen *terminal.Screen, to io.Writer, source Source) error {
	progress := screen.Progress()
	defer progress.Close()
	var all, done int64
	err := source(ctx, writerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, errInterrupted
		}
		n, err := to.Write(p)
		done += int64(n)
		progress.Show("%s of %s", terminal.ByteSize(done), terminal.ByteSize(all))
		return n, storefile.ExplainSpace(err)
	}), func(bytes int64) { all = bytes })
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func Restore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE [--to STORE] [--force] [--yes] [--dry-run]",
		Short: "Puts a backup in the place of a store",
		Long: `
Checks a backup, and puts it in the place of the bolt store of an instance. Stop Caddy first. Run it as the user that runs Caddy, or name
the file of the store by --to.

Runs that were unfinished when the backup was taken are carried out when Caddy starts, also if they were carried out since. Deliveries
that were pending are sent. What was accepted after the backup is not in it.

A store that is there is refused. With --force it is replaced, and stays beside under a name that is printed.

  caddy stop
  caddy hooks restore hooks.db
  caddy start`,
		Args: flags.TakesOne("the file of the backup"),
		RunE: runRestore,
	}
	cmd.Flags().String("to", "", "the file of the store (default: that of the instance in Caddy's data directory)")
	cmd.Flags().Bool("force", false, "replace a store that is there, and keep it under another name")
	flags.AddYes(cmd)
	cmd.Flags().Bool("dry-run", false, "check the backup, say what would be done, and do nothing; Caddy may run")
	return cmd
}

// restoreJSON is what is told about a backup that was restored.
type restoreJSON struct {
	backupJSON
	To       string `json:"to"`
	Kept     string `json:"kept,omitempty"` // where the store is now that was there
	Restored bool   `json:"restored"`
	Obstacle string `json:"obstacle,omitempty"` // why it could not be restored right now, of a dry run
}

// restoring is a backup that is about to be restored.
type restoring struct {
	backup   *bolt.Checked
	to       string
	exists   bool   // there is a store already
	obstacle string // why it could not be put there right now
}

func runRestore(cmd *cobra.Command, args []string) error {
	screen, dry := flags.Screen(cmd), flags.IsOn(cmd, "dry-run")
	r, err := newRestoring(cmd, args[0])
	if err != nil {
		return err
	}
	force := flags.IsOn(cmd, "force")
	if r.exists, err = bolt.CheckPlace(r.to); err == nil && r.exists && !force {
		err = restoreError(&storefile.ExistsError{Path: r.to})
	}
	if err != nil {
		if !dry {
			return err
		}
		r.obstacle = err.Error()
	}
	result := restoreJSON{backupJSON: newBackupJSON(args[0], r.backup), To: r.to, Obstacle: r.obstacle}
	if !flags.WantsJSON(cmd) {
		r.show(screen)
	}
	if dry {
		screen.Note("Nothing was done, because of --dry-run.")
	} else {
		if err := flags.Confirm(cmd, "It will be restored to "+r.to+"."); err != nil {
			return err
		}
		if result.Kept, err = r.backup.Restore(r.to, force); err != nil {
			return restoreError(err)
		}
		result.Restored = true
	}
	if flags.WantsJSON(cmd) {
		return terminal.PrintJSON(screen.Out(), result)
	}
	if dry {
		return nil
	}
	if result.Kept != "" {
		screen.Line(terminal.Plain("The store that was there is now " + result.Kept))
	}
	screen.Line(terminal.Good("Restored"), terminal.Plain(" to "+r.to+". Start Caddy."))
	return nil
}

// newRestoring checks the backup, and finds out where it belongs.
func newRestoring(cmd *cobra.Command, file string) (*restoring, error) {
	checked, err := bolt.Check(file)
	if err != nil {
		return nil, err
	}
	if checked.Summary.Damaged > 0 {
		return nil, fmt.Errorf("%s of %s cannot be read, so it is not restored. If there is no better backup, copy the file into place with "+
			"cp: Caddy leaves out what it cannot read, or refuses the file",
			terminal.Counted(checked.Summary.Damaged, "record", "records"), file)
	}
	instance := flags.Text(cmd, "instance")
	if instance == "" && checked.Manifest != nil {
		instance = checked.Manifest.Instance
	}
	if instance != "" {
		if err := settings.CheckInstanceNames([]string{instance}); err != nil { // it becomes the name of a file
			return nil, err
		}
	}
	r := &restoring{backup: checked, to: storeFile(flags.Text(cmd, "to"), instance)}
	if isSameFile(file, r.to) {
		return nil, flags.Usagef("the backup is the file of the store itself")
	}
	return r, nil
}

func isSameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

func restoreError(err error) error {
	var exists *storefile.ExistsError
	if errors.As(err, &exists) {
		return fmt.Errorf("there is a store at %s already: --force replaces it, and keeps it beside under another name", exists.Path)
	}
	return err
}

// show says what would be done.
func (r *restoring) show(screen *terminal.Screen) {
	what := "no backup of `caddy hooks backup`, so it has no checksum"
	if m := r.backup.Manifest; m != nil {
		what = "of the hooks instance " + m.Instance + ", taken " + m.TakenAt.Format("2006-01-02 15:04:05") + " UTC"
	}
	screen.Line(terminal.Plain(fmt.Sprintf("%s: %s, %s, checked.", r.backup.Path, what, terminal.ByteSize(r.backup.Bytes))))
	showSummary(screen, &r.backup.Summary)
	warn := func(sentence string) { screen.Line(terminal.Warn("! "), terminal.Plain(sentence)) }
	if n := r.backup.Summary.Unfinished; n > 0 {
		runs := terminal.Counted(n, "run", "runs")
		warn(runs + " that had not ended will be carried out when Caddy starts, also if this was done since the backup.")
	}
	if n := r.backup.Summary.Pending; n > 0 {
		warn(terminal.Counted(n, "pending delivery", "pending deliveries") + " will be sent, also if this was done since the backup.")
	}
	if r.obstacle != "" {
		warn("It could not be restored right now: " + r.obstacle)
	} else if r.exists {
		warn("The store at " + r.to + " will be replaced, and kept beside under another name.")
	}
}

func Compact() *cobra.Command {
	return &cobra.Command{
		Use:   "compact [STORE]",
		Short: "Gives the free space in the file of a store back to the disk",
		Long: `
Writes the file of a bolt store anew, without the space that forgotten runs have left in it. Caddy uses that space again, so this is only
worth it after a file has become much larger than it will be again. Stop Caddy first. Run it as the user that runs Caddy, or name the file
of the store.

The new file is written beside the old one, so there must be room for both. It is checked to have the same records, and then takes the place
of the old one. If something goes wrong before that, the old one stays as it is.`,
		Args: flags.TakesOneAtMost,
		RunE: runCompact,
	}
}

// compactedJSON is what is told about a file that was compacted.
type compactedJSON struct {
	File        string `json:"file"`
	BytesBefore int64  `json:"bytesBefore"`
	BytesAfter  int64  `json:"bytesAfter"`
	bolt.Summary
}

func runCompact(cmd *cobra.Command, args []string) error {
	path := storeFile(strings.Join(args, ""), flags.Text(cmd, "instance")) // there is one at most
	screen := flags.Screen(cmd)
	progress := screen.Progress()
	done, err := bolt.Compact(path, func(bytes int64) { progress.Show("%s written", terminal.ByteSize(bytes)) })
	progress.Close()
	if err != nil {
		return err
	}
	if flags.WantsJSON(cmd) {
		return terminal.PrintJSON(screen.Out(), compactedJSON{path, done.Before, done.After, done.Summary})
	}
	screen.Line(terminal.Plain(fmt.Sprintf("Compacted %s: %s before, %s after, checked.", path, terminal.ByteSize(done.Before),
		terminal.ByteSize(done.After))))
	showSummary(screen, &done.Summary)
	return nil
}

// storeFile is the file of an instance that is not named by its path.
func storeFile(path, instance string) string {
	return (&bolt.Bolt{Path: path}).File(cmp.Or(instance, "default"))
}

// showSummary prints what a file of a store has.
func showSummary(screen *terminal.Screen, s *bolt.Summary) {
	var statuses []string
	for _, status := range slices.Sorted(maps.Keys(s.ByStatus)) {
		statuses = append(statuses, terminal.WithCommas(s.ByStatus[status])+" "+strings.ReplaceAll(status, "_", " "))
	}
	ended := terminal.WithCommas(s.Ended)
	if len(statuses) > 0 {
		ended += ": " + strings.Join(statuses, ", ")
	}
	screen.Table(nil, [][]terminal.Text{
		terminal.Cells(terminal.Faint("unfinished runs"), terminal.WithCommas(s.Unfinished)),
		terminal.Cells(terminal.Faint("open questions"), terminal.WithCommas(s.Open)),
		terminal.Cells(terminal.Faint("ended runs"), ended),
		terminal.Cells(terminal.Faint("with history"), terminal.WithCommas(s.History)),
		terminal.Cells(terminal.Faint("deliveries"),
			terminal.WithCommas(s.Pending)+" pending, "+terminal.WithCommas(s.Delivered)+" delivered, "+terminal.WithCommas(s.Dead)+" dead"),
		terminal.Cells(terminal.Faint("keys"), terminal.WithCommas(s.Keys)),
		terminal.Cells(terminal.Faint("sessions"), terminal.WithCommas(s.Sessions)),
		terminal.Cells(terminal.Faint("live settings"), fmt.Sprintf("revision %d, %s", s.Revision, terminal.Counted(s.Changes, "change",
			"changes"))),
		terminal.Cells(terminal.Faint("counted minutes"), terminal.WithCommas(s.Minutes)),
	})
	if s.Damaged > 0 {
		screen.Line(terminal.Warn("! "), terminal.Plain(terminal.Counted(s.Damaged, "record", "records")+" in it cannot be read."))
	}
}
