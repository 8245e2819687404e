package admin

import (
	"errors"
	"net/url"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/bulk"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Whatever an operator sends, it is understood, or refused with a clean sentence.
func FuzzParseAgain(f *testing.F) {
	f.Add(`{"deliver":true,"chatId":"c"}`, "do=again&status=failed&hook=a&dry=1")
	f.Add(`{"deliver":null}`, "do=retry&status=dead&host=https://a")
	f.Add(`{"chatId":"\u0000"}`, "do=cancel&status=%00&since=1h")
	f.Add(`[]`, "%")
	f.Fuzz(func(t *testing.T, body, rawQuery string) {
		how, err := parseAgain([]byte(body), []string{"deliver", "chatId"})
		if err == nil && settings.CheckChatID(how.ChatID) != nil {
			t.Errorf("the chat %q is taken", how.ChatID)
		}
		var action *bulk.Action
		queryErr := checkParameters(rawQuery, bulkParameters())
		if queryErr == nil {
			params, err := url.ParseQuery(rawQuery)
			if err != nil {
				t.Fatalf("a query that cannot be read is taken: %v", err)
			}
			action, queryErr = parseBulk(params, time.Now())
		}
		if queryErr == nil && (action.Runs == nil) == (action.Deliveries == nil) {
			t.Errorf("%+v is about runs and deliveries, or neither", action)
		}
		if queryErr == nil && action.Runs != nil && len(action.Runs.Statuses) == 0 {
			t.Errorf("%+v is about runs of any status", action)
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
