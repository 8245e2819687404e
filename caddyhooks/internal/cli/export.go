package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
)

func exportVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export --of runs|chat|deliveries [--format jsonl|csv] [-o FILE] [filters]",
		Short: "Writes all runs, a chat or all deliveries to a file",
		Long: `
Writes all rows of a list, the newest first, as lines of JSON or as CSV: to a file, or to stdout without -o. The file appears when it is
whole, and only its owner may read it. One that is there already is kept, unless --force is said.

Runs are selected as in caddy hooks runs, deliveries as in caddy hooks deliveries, and a chat by --chat. Messages and replies are in the
export of a chat.`,
		Example: `  caddy hooks export --of runs --since 24h -o runs.jsonl
  caddy hooks export --of deliveries --status dead --format csv -o dead.csv
  caddy hooks export --of chat --chat repo:acme/api | jq -r .reply`,
		RunE: withSession(runExport),
	}
	flags.AddText(cmd, "of", "", "what to write: runs, chat or deliveries", flags.CompleteWords("runs", "chat", "deliveries"))
	flags.AddText(cmd, "format", exportFormats[0], "jsonl or csv", flags.CompleteWords(exportFormats...))
	cmd.Flags().StringP("output", "o", "", "the file (default: stdout)")
	cmd.Flags().Bool("force", false, "replace a file that is there already")
	addFilters(cmd, exportedBy)
	return cmd
}

var (
	exportFormats = []string{"jsonl", "csv"}
	exportedBy    = slices.Concat(runFilters, targetFilters)
)

// exportCall reads what to export, and how.
func exportCall(cmd *cobra.Command) (call adminclient.Call, format string, err error) {
	of := flags.Text(cmd, "of")
	filters, ok := api.ExportFilters[of]
	if !ok {
		return call, "", flags.Usagef("say what to export: --of must be one of runs, chat and deliveries")
	}
	if format = flags.Text(cmd, "format"); !slices.Contains(exportFormats, format) || format == "csv" && flags.WantsJSON(cmd) {
		return call, "", flags.Usagef("--format must be jsonl, or csv without --json")
	}
	for _, f := range exportedBy {
		if cmd.Flags().Changed(f.flag) && !slices.Contains(filters, f.parameter) {
			return call, "", flags.Usagef("--%s does not go with --of %s", f.flag, of)
		}
	}
	query, err := filterQuery(cmd, exportedBy)
	if err != nil {
		return call, "", err
	}
	query.Set("of", of)
	if of == "chat" && !query.Has("chatId") {
		return call, "", flags.Usagef("say which chat by --chat; caddy hooks chat lists them")
	}
	call = adminclient.Call{Query: query, Header: http.Header{"Accept": {"application/x-ndjson"}}}
	if format == "csv" {
		call.Header.Set("Accept", "text/csv")
	}
	return call, format, nil
}

func runExport(s *session, cmd *cobra.Command, _ []string) error {
	call, format, err := exportCall(cmd)
	if err != nil {
		return err
	}
	path, force := flags.Text(cmd, "output"), flags.IsOn(cmd, "force")
	if cmd.Flags().Changed("output") && path == "" {
		return flags.Usagef("--output must not be empty")
	}
	if path == "" || path == "-" {
		if s.screen.IsTerminal() {
			return s.exportToPerson(call, format)
		}
		_, err := s.export(call, format, s.screen.Out())
		return err
	}
	if err := checkReplace(path, force); err != nil {
		return err
	}
	file, err := storefile.CreateBeside(path)
	if err != nil {
		return storefile.FolderError(path, err)
	}
	defer file.Discard()
	written, err := s.export(call, format, file)
	if err == nil {
		err = file.Finish()
	}
	if err == nil {
		err = checkReplace(path, force) // it may have come meanwhile
	}
	if err == nil {
		err = file.TakeName(force)
	}
	if err != nil {
		return err
	}
	s.screen.Note("%s written to %s (%s).", terminal.Counted(written.rows, "row was", "rows were"), path, terminal.ByteSize(written.bytes))
	return nil
}

// exportToPerson writes rows to a terminal. What callers wrote must not control it.
func (s *session) exportToPerson(call adminclient.Call, format string) error {
	visible := transform.NewWriter(s.screen.Out(), runes.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}))
	_, err := s.export(call, format, visible)
	return errors.Join(err, visible.Close())
}

// checkReplace refuses to replace a file that nobody wants to lose, and what is no file.
func checkReplace(path string, force bool) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file: name one, or leave -o out to write to stdout", path)
	case !force:
		return fmt.Errorf("%s is there already: choose another name, or say --force to replace it", path)
	default:
		return nil
	}
}

// export writes rows as they come, and tells how far it has got.
func (s *session) export(call adminclient.Call, format string, to io.Writer) (exported, error) {
	call.Path = s.path("export")
	resp, err := s.client.Download(s.ctx, call, searchPatience*s.client.Silence)
	if err != nil {
		return exported{}, wrongFilter(err)
	}
	defer resp.Body.Close()
	written := exported{to: to, progress: s.screen.Progress(), csv: format == "csv"}
	defer written.progress.Close()
	if _, err := io.Copy(&written, resp.Body); err != nil {
		if s.ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		return written, fmt.Errorf("the export broke off after %s: %w", terminal.Counted(written.rows, "row", "rows"), err)
	}
	if written.csv {
		written.rows-- // its header
	}
	return written, nil
}

// searchPatience is how many times as long as in a backup Caddy may say nothing: it may look for words in many messages.
const searchPatience = 10

// exported counts what is written.
type exported struct {
	to       io.Writer
	progress *terminal.Progress
	csv      bool

	rows   int
	bytes  int64
	quoted bool // in a cell of CSV, which may have line breaks
}

func (x *exported) Write(p []byte) (int, error) {
	n, err := x.to.Write(p)
	x.bytes += int64(n)
	for _, b := range p[:n] {
		switch {
		case b == '"' && x.csv:
			x.quoted = !x.quoted
		case b == '\n' && !x.quoted:
			x.rows++
		}
	}
	x.progress.Show("%s, %s", terminal.Counted(x.rows, "row", "rows"), terminal.ByteSize(x.bytes))
	return n, err
}
