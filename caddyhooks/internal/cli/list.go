package cli

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/moment"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// resource is a list of the admin API: where it is, how it is filtered, and how its rows are printed. It drives the verb that lists
// it, paging, --json and completion.
type resource[Row any] struct {
	name          string // its path, and the member of a page with the rows
	path          string // its path, if that is another one
	many          string // rows, as --limit names them
	filters       []filter
	none, noMatch string // what is said if there are no rows at all, or none that match
	columns       []string
	cells         func(clock terminal.Clock, row *Row) [][]terminal.Text // the lines of the table for a row
	beside        func(s *session, page listPage) error                  // shows what a page has beside its rows, unless it is nil
	word          func(row *Row) (word, description string)              // what a shell is offered
}

// filter is a flag that selects rows, and the parameter of the API that it sets.
type filter struct {
	flag, parameter, usage string
	complete               cobra.CompletionFunc
	isMoment               bool                           // it is read here, in the zone of this machine
	mayBeEmpty             bool                           // an empty value selects something, too
	noteUnknown            func(s *session, value string) // says if there is nothing by that name, unless it is nil
}

// verb makes cmd list the resource.
func (r *resource[Row]) verb(cmd *cobra.Command) *cobra.Command {
	cmd.RunE = withSession(func(s *session, cmd *cobra.Command, _ []string) error { return r.list(s, cmd) })
	addFilters(cmd, r.filters)
	limitFlag(cmd, r.many)
	return cmd
}

func addFilters(cmd *cobra.Command, filters []filter) {
	for _, f := range filters {
		flags.AddText(cmd, f.flag, "", f.usage, f.complete)
	}
}

// filterQuery reads the flags that select rows. An empty value would select everything, and is refused.
func filterQuery(cmd *cobra.Command, filters []filter) (url.Values, error) {
	query, now := make(url.Values), time.Now()
	for _, f := range filters {
		if !cmd.Flags().Changed(f.flag) {
			continue
		}
		if flags.Text(cmd, f.flag) == "" && !f.mayBeEmpty {
			return nil, flags.Usagef("--%s must not be empty", f.flag)
		}
		value := flags.Text(cmd, f.flag)
		if f.isMoment {
			at, err := moment.Parse(value, now)
			if err != nil {
				return nil, flags.Usagef("--%s %v", f.flag, err)
			}
			value = at.Format(time.RFC3339Nano)
		}
		query.Set(f.parameter, value)
	}
	return query, nil
}

// limitFlag adds the flag of all lists.
func limitFlag(cmd *cobra.Command, many string) {
	const usual = 20
	cmd.Flags().Int("limit", usual, "show so many "+many+" at most, 0 for all")
	flags.NoFiles(cmd, "limit")
}

// limitOf reads that flag.
func limitOf(cmd *cobra.Command) (int, error) {
	limit := flags.Number(cmd, "limit")
	if limit < 0 {
		return 0, flags.Usagef("--limit must be a number of rows, or 0 for all")
	}
	return limit, nil
}

// selected are the rows that flags select.
func (r *resource[Row]) selected(cmd *cobra.Command) (listing, error) {
	query, err := filterQuery(cmd, r.filters)
	if err != nil {
		return listing{}, err
	}
	limit, err := limitOf(cmd)
	return listing{path: cmp.Or(r.path, r.name), member: r.name, query: query, limit: limit}, err
}

// list shows the rows that flags select, a page at a time, and says below them if there are more; or that there are none. With
// --json it prints them as the API gives them.
func (r *resource[Row]) list(s *session, cmd *cobra.Command) error {
	l, err := r.selected(cmd)
	if err != nil {
		return err
	}
	if s.json {
		return s.printList(l)
	}
	table := s.screen.Rows(r.columns...)
	n, more, err := s.walk(l, func(page listPage) error {
		rows, err := rowsOf[Row](s, page)
		if err == nil && len(rows) > 0 {
			r.print(table, terminal.NewClock(), rows)
		}
		if err == nil && r.beside != nil {
			err = r.beside(s, page)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case n == 0 && len(l.query) == 0:
		s.screen.Note("%s", r.none)
	case n == 0:
		s.screen.Note("%s", r.noMatch)
		for _, f := range r.filters {
			if f.noteUnknown != nil {
				f.noteUnknown(s, l.query.Get(f.parameter))
			}
		}
	case more:
		s.screen.Note("There are more: use --limit %d, or --limit 0 for all.", l.limit*moreRows)
	}
	return nil
}

// moreRows is how many times as many rows somebody may want to see who wants to see more.
const moreRows = 5

func (r *resource[Row]) print(table *terminal.Rows, clock terminal.Clock, rows []Row) {
	var lines [][]terminal.Text
	for i := range rows {
		lines = append(lines, r.cells(clock, &rows[i])...)
	}
	table.Print(lines...)
}

// complete offers the newest rows, or those of some statuses.
func (r *resource[Row]) complete(statuses ...string) cobra.CompletionFunc {
	return complete(func(s *session) (words []cobra.Completion, err error) {
		l := listing{path: cmp.Or(r.path, r.name), member: r.name}
		if statuses != nil {
			l.query = url.Values{"status": {strings.Join(statuses, ",")}}
		}
		page, err := s.page(l, completeAtMost, "")
		if err != nil {
			return nil, err
		}
		rows, err := rowsOf[Row](s, page)
		for i := range rows {
			if word, description := r.word(&rows[i]); word != "" {
				words = append(words, describedWord(word, description))
			}
		}
		return words, err
	})
}

// listing is a list of the API that is read page by page.
type listing struct {
	path   string
	member string // of a page, that has the rows
	query  url.Values
	limit  int // 0 is all
}

// listPage is a page of a list.
type listPage struct {
	answer  []byte // as it came
	members map[string]json.RawMessage
	rows    []json.RawMessage
	cursor  string // "" if it is the last one
}

// rowsOf are the rows of a page as values.
func rowsOf[Row any](s *session, page listPage) ([]Row, error) {
	rows := make([]Row, len(page.rows))
	for i, raw := range page.rows {
		if err := s.decode(raw, &rows[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// page asks for the page at a cursor.
func (s *session) page(l listing, size int, cursor string) (page listPage, err error) {
	query := url.Values{"limit": {strconv.Itoa(size)}}
	maps.Copy(query, l.query)
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if page.answer, err = s.get(l.path, query, &page.members); err != nil {
		return page, wrongFilter(err)
	}
	if err := s.decode(page.members[l.member], &page.rows); err != nil {
		return page, err
	}
	if raw, ok := page.members["cursor"]; ok {
		err = s.decode(raw, &page.cursor)
	}
	return page, err
}

// wrongFilter tells a filter that Caddy does not understand from a call that failed: the first is wrong usage.
func wrongFilter(err error) error {
	if adminclient.IsRefused(err, http.StatusBadRequest) {
		return flags.WrongUsage(err)
	}
	return err
}

// walk hands over a page after the other, up to the limit. It reports how many rows they had, and whether there are more.
func (s *session) walk(l listing, each func(page listPage) error) (rows int, more bool, err error) {
	for cursor := ""; ; {
		size := api.MaxPage
		if l.limit > 0 {
			size = min(l.limit-rows, api.MaxPage)
		}
		page, err := s.page(l, size, cursor)
		if err == nil {
			err = each(page)
		}
		if err != nil {
			return rows, false, err
		}
		rows += len(page.rows)
		if cursor = page.cursor; cursor == "" || l.limit > 0 && rows >= l.limit {
			return rows, cursor != "", nil
		}
	}
}

// printList prints a list as JSON. Several pages become one.
func (s *session) printList(l listing) error {
	var first, last listPage
	rows, pages := []json.RawMessage{}, 0
	if _, _, err := s.walk(l, func(page listPage) error {
		if pages++; pages == 1 {
			first = page
		}
		last, rows = page, append(rows, page.rows...)
		return nil
	}); err != nil {
		return err
	}
	if pages == 1 {
		return s.printJSON(first.answer)
	}
	first.members[l.member] = text.PlainJSON(rows)
	for _, name := range []string{"cursor", "searchedTo"} { // how far it has got
		delete(first.members, name)
		if value, ok := last.members[name]; ok {
			first.members[name] = value
		}
	}
	return s.printJSON(text.PlainJSON(first.members))
}
