package admin

import (
	"errors"
	"net/url"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Whatever an operator sends, it is understood, or refused with a clean sentence.
func FuzzParseAgain(f *testing.F) {
	f.Add(`{"deliver":true,"chatId":"c"}`, "status=failed&hook=a&dry=1")
	f.Add(`{"deliver":null}`, "status=expired")
	f.Add(`{"chatId":"\u0000"}`, "status=%00")
	f.Add(`[]`, "%")
	f.Fuzz(func(t *testing.T, body, rawQuery string) {
		how, err := parseAgain([]byte(body), []string{"deliver", "chatId"})
		if err == nil && settings.CheckChatID(how.ChatID) != nil {
			t.Errorf("the chat %q is taken", how.ChatID)
		}
		var query engine.Query
		queryErr := checkParameters(rawQuery, againParameters)
		if queryErr == nil {
			params, err := url.ParseQuery(rawQuery)
			if err != nil {
				t.Fatalf("a query that cannot be read is taken: %v", err)
			}
			query, _, queryErr = parseAgainQuery(params)
		}
		if queryErr == nil && (len(query.Statuses) != 1 || !slices.Contains([]engine.Status{engine.Failed, engine.TimedOut, engine.Expired}, query.Statuses[0])) {
			t.Errorf("the status %q is taken", query.Statuses)
		}
		for _, err := range []error{err, queryErr} {
			if err == nil {
				continue
			}
			var api caddy.APIError
			if !errors.As(changeError(err), &api) || api.HTTPStatus != 400 || !utf8.ValidString(api.Err.Error()) {
				t.Errorf("an error without an answer: %v", err)
			}
		}
	})
}
