package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
)

func init() {
	verbs = append(verbs, restoreVerb)
}

func restoreVerb() *cobra.Command {
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
		Args: takesOne("the file of the backup"),
		RunE: runRestore,
	}
	cmd.Flags().String("to", "", "the file of the store (default: that of the instance in Caddy's data directory)")
	cmd.Flags().Bool("force", false, "replace a store that is there, and keep it under another name")
	addYesFlag(cmd)
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
	exists   bool // there is a store already
	force    bool
	obstacle string // why it could not be put there right now
}

func runRestore(cmd *cobra.Command, args []string) error {
	screen := newScreen(cmd)
	flag := func(name string) bool {
		is, _ := cmd.Flags().GetBool(name)
		return is
	}
	r, err := newRestoring(cmd, args[0])
	if err != nil {
		return err
	}
	if err := r.checkPlace(flag("force")); err != nil {
		if !flag("dry-run") {
			return err
		}
		r.obstacle = err.Error()
	}
	told := restoreJSON{backupJSON: newBackupJSON(args[0], r.backup), To: r.to, Obstacle: r.obstacle}
	if !wantsJSON(cmd) {
		r.show(screen)
	}
	if flag("dry-run") {
		screen.Note("Nothing was done, because of --dry-run.")
		if wantsJSON(cmd) {
			return printValue(screen.Out(), told)
		}
		return nil
	}
	if err := confirm(cmd, "It will be restored to "+r.to+"."); err != nil {
		return err
	}
	if told.Kept, err = r.backup.Restore(r.to, r.force); err != nil {
		return r.refused(err)
	}
	told.Restored = true
	if wantsJSON(cmd) {
		return printValue(screen.Out(), told)
	}
	if told.Kept != "" {
		screen.Line(terminal.Plain("The store that was there is now " + told.Kept))
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
		return nil, fmt.Errorf("%s of %s cannot be read, so it is not restored. If there is no better backup, copy the file into place with cp: Caddy leaves out what it cannot read, or refuses the file",
			counted(checked.Summary.Damaged, "record", "records"), file)
	}
	instance, _ := cmd.Flags().GetString("instance")
	if instance == "" && checked.Manifest != nil {
		instance = checked.Manifest.Instance
	}
	if instance != "" {
		if err := settings.CheckInstanceNames([]string{instance}); err != nil { // it becomes the name of a file
			return nil, err
		}
	}
	to, _ := cmd.Flags().GetString("to")
	r := &restoring{backup: checked, to: storeFile(to, instance)}
	if isSameFile(file, r.to) {
		return nil, &usageError{"the backup is the file of the store itself"}
	}
	return r, nil
}

// checkPlace checks that the backup can be put where it belongs.
func (r *restoring) checkPlace(force bool) (err error) {
	r.force = force
	if r.exists, err = bolt.CheckPlace(r.to); err != nil {
		return err
	}
	if r.exists && !force {
		return r.refused(&storefile.ExistsError{Path: r.to})
	}
	return nil
}

func isSameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

func (r *restoring) refused(err error) error {
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
	screen.Line(terminal.Plain(fmt.Sprintf("%s: %s, %s, checked.", r.backup.Path, what, byteSize(r.backup.Bytes))))
	showSummary(screen, &r.backup.Summary)
	warn := func(sentence string) { screen.Line(terminal.Warn("! "), terminal.Plain(sentence)) }
	if n := r.backup.Summary.Unfinished; n > 0 {
		warn(fmt.Sprintf("%s that had not ended will be carried out when Caddy starts, also if this was done since the backup.", counted(n, "run", "runs")))
	}
	if n := r.backup.Summary.Pending; n > 0 {
		warn(fmt.Sprintf("%s will be sent, also if this was done since the backup.", counted(n, "pending delivery", "pending deliveries")))
	}
	if r.obstacle != "" {
		warn("It could not be restored right now: " + r.obstacle)
	} else if r.exists {
		warn("The store at " + r.to + " will be replaced, and kept beside under another name.")
	}
}
