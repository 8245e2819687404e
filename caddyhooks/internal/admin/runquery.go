package admin

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/moment"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// parseRunQuery reads the parameters of a list of runs.
func parseRunQuery(params url.Values, now time.Time) (query engine.Query, err error) {
	query = engine.Query{ChatID: params.Get("chatId"), RequestID: engine.NewRequestID(params.Get("requestId")), Cursor: params.Get("cursor")}
	query.Statuses, err = parseOneOf(params, "status", engine.Statuses...)
	if err != nil {
		return query, err
	}
	if query.Hooks, err = parseList(params, "hook"); err != nil {
		return query, err
	}
	if query.Runners, err = parseList(params, "runner"); err != nil {
		return query, err
	}
	if query.Since, query.Until, err = parsePeriod(params, now); err != nil {
		return query, err
	}
	q, err := parseSearch(params)
	if err != nil {
		return query, err
	}
	if api.IsRunID(q, now) {
		query.Prefix = strings.ToLower(q)
	} else {
		query.Text = q
	}
	query.Limit, err = parseLimit(params)
	return query, err
}

// listFound lists runs. What is looked for may be the whole id that a sender gave its request: then only such runs are listed, and they are
// found at once.
func listFound(ctx context.Context, from *engine.Engine, query engine.Query, q string) (page []*engine.Record, next string, err error) {
	if q != "" && query.RequestID == "" {
		sent := query
		sent.RequestID, sent.Prefix, sent.Text = engine.NewRequestID(q), "", ""
		if page, next, err = from.List(ctx, sent); err != nil || len(page) > 0 || next != "" {
			return page, next, err
		}
	}
	return from.List(ctx, query)
}

// searches reports whether a query is one of which only a few may be made at once.
func searches(query *engine.Query) bool { return query.Prefix != "" || query.Text != "" }

// parsePeriod reads since and until. The zero time is no bound.
func parsePeriod(params url.Values, now time.Time) (since, until time.Time, err error) {
	if since, err = parseMoment(params, "since", now); err != nil {
		return since, until, err
	}
	if until, err = parseMoment(params, "until", now); err != nil {
		return since, until, err
	}
	if !until.IsZero() && !since.Before(until) {
		return since, until, api.Errorf(http.StatusBadRequest, "since must be before until: nothing is both")
	}
	return since, until, nil
}

// parseMoment reads a moment. The zero time is none.
func parseMoment(params url.Values, name string, now time.Time) (time.Time, error) {
	text := params.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := moment.Parse(text, now)
	if err != nil { // a plus sign that is not escaped, as in +02:00, arrives as a space
		if moved, failed := moment.Parse(strings.Replace(text, " ", "+", 1), now); failed == nil {
			return moved, nil
		}
		return at, api.Errorf(http.StatusBadRequest, "%s %v", name, err)
	}
	return at, nil
}

// maxSearch bounds the text that is looked for.
const maxSearch = 256

// parseSearch reads the text to look for, "" if there is none.
func parseSearch(params url.Values) (string, error) {
	q := strings.TrimSpace(params.Get("q"))
	if len(q) > maxSearch {
		return "", api.Errorf(http.StatusBadRequest, "q must not be longer than %d bytes", maxSearch)
	}
	return q, nil
}

// searchedTo is how far back a search has got whose next page begins after a cursor, nil if that is not known.
func searchedTo(cursor string) *time.Time {
	id, err := uuid.Parse(cursor)
	if err != nil {
		return nil
	}
	return text.JSONTime(api.TimeOfID(id))
}
