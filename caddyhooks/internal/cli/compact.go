package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

func init() {
	verbs = append(verbs, compactVerb)
}

func compactVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "compact [STORE]",
		Short: "Gives the free space in the file of a store back to the disk",
		Long: `
Writes the file of a bolt store anew, without the space that forgotten runs have left in it. Caddy uses that space again, so this is only
worth it after a file has become much larger than it will be again. Stop Caddy first. Run it as the user that runs Caddy, or name the file
of the store.

The new file is written beside the old one, so there must be room for both. It is checked to have the same records, and then takes the place of
the old one. If something goes wrong before that, the old one stays as it is.`,
		Args: takesOneAtMost,
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
	instance, _ := cmd.Flags().GetString("instance")
	path := ""
	if len(args) > 0 {
		path = args[0]
	}
	path = storeFile(path, instance)
	screen := newScreen(cmd)
	progress := screen.Progress()
	done, err := bolt.Compact(path, func(bytes int64) { progress.Show("%s written", byteSize(bytes)) })
	progress.Close()
	if err != nil {
		return err
	}
	if wantsJSON(cmd) {
		return printValue(screen.Out(), compactedJSON{path, done.Before, done.After, done.Summary})
	}
	screen.Line(terminal.Plain(fmt.Sprintf("Compacted %s: %s before, %s after, checked.", path, byteSize(done.Before), byteSize(done.After))))
	showSummary(screen, &done.Summary)
	return nil
}
