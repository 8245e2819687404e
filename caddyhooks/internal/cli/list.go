package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// defaultRows is how many rows a list shows if nobody says otherwise.
const defaultRows = 20

// limitFlag adds the flag of all lists.
func limitFlag(cmd *cobra.Command, many string) {
	cmd.Flags().Int("limit", defaultRows, "show so many "+many+" at most, 0 for all")
	_ = cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
}

// limitOf reads that flag.
func limitOf(cmd *cobra.Command) (int, error) {
	limit, _ := cmd.Flags().GetInt("limit")
	if limit < 0 {
		return 0, &usageError{"--limit must be a number of rows, or 0 for all"}
	}
	return limit, nil
}

// setFrom sets a parameter of the API to the value of a flag, if it was given. An empty value would select everything, and is refused.
func setFrom(cmd *cobra.Command, query url.Values, flag, parameter string) error {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	value, _ := cmd.Flags().GetString(flag)
	if value == "" {
		return &usageError{fmt.Sprintf("--%s must not be empty", flag)}
	}
	query.Set(parameter, value)
	return nil
}

// pageQuery asks for so many rows.
func pageQuery(limit int) url.Values { return url.Values{"limit": {strconv.Itoa(limit)}} }

// listing is a list of the API that is read page by page.
type listing struct {
	part   string // of the path
	member string // of a page, that has the rows
	query  url.Values
	limit  int                       // 0 is all
	beside func(page listPage) error // shows what a page has beside its rows, unless it is nil
	ifNone func()                    // says more if there are no rows, unless it is nil
}

// listPage is a page of a list.
type listPage struct {
	answer  []byte // as it came
	members map[string]json.RawMessage
	rows    []json.RawMessage
	cursor  string // "" if it is the last one
}

// page asks for the page at a cursor.
func (s *session) page(l listing, size int, cursor string) (page listPage, err error) {
	query := maps.Clone(l.query)
	if query == nil {
		query = make(url.Values)
	}
	query.Set("limit", strconv.Itoa(size))
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if page.answer, err = s.get(l.part, query, &page.members); err != nil {
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
	var refused *refusedError
	if errors.As(err, &refused) && refused.status == http.StatusBadRequest {
		return &usageError{refused.sentence}
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

// showList shows the rows of a list, a page at a time, and says below them if there are more; or none, if there are none. With
// --json it prints them as the API gives them.
func showList[Row any](s *session, l listing, none string, show func(rows []Row)) error {
	if s.json {
		return s.printList(l)
	}
	rows, more, err := s.walk(l, func(page listPage) error {
		var rows []Row
		err := s.decode(page.members[l.member], &rows)
		if err == nil && len(rows) > 0 {
			show(rows)
		}
		if err == nil && l.beside != nil {
			err = l.beside(page)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case rows == 0:
		s.screen.Note("%s", none)
		if l.ifNone != nil {
			l.ifNone()
		}
	case more:
		s.screen.Note("There are more: use --limit %d, or --limit 0 for all.", l.limit*moreRows)
	}
	return nil
}

// moreRows is how many times as many rows somebody may want to see who wants to see more.
const moreRows = 5

// printList prints a list as JSON. Several pages become one.
func (s *session) printList(l listing) error {
	var pages []listPage
	if _, _, err := s.walk(l, func(page listPage) error {
		pages = append(pages, page)
		return nil
	}); err != nil {
		return err
	}
	if len(pages) == 1 {
		return s.printJSON(pages[0].answer)
	}
	merged, rows := maps.Clone(pages[0].members), []json.RawMessage{}
	for _, page := range pages {
		rows = append(rows, page.rows...)
	}
	merged[l.member] = text.PlainJSON(rows)
	for _, name := range []string{"cursor", "searchedTo"} { // how far it has got
		delete(merged, name)
		if last, ok := pages[len(pages)-1].members[name]; ok {
			merged[name] = last
		}
	}
	return s.printJSON(text.PlainJSON(merged))
}
