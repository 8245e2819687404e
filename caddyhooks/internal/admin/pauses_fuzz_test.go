package admin

import (
	"errors"
	"net/url"
	"testing"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Whatever an operator wants to pause or to resume, it is understood, or refused with a clean sentence.
func FuzzParsePause(f *testing.F) {
	f.Add(`{"what":"hook","name":"github","reason":"deploy","rate":"10/s"}`, "what=hook&name=github")
	f.Add(`{"what":"all"}`, "what=all")
	f.Add(`{"what":"chat","name":"\u0000","rate":"1/9223372036854775807h"}`, "what=%00")
	f.Add(`[]`, "%")
	f.Fuzz(func(t *testing.T, body, rawQuery string) {
		p, err := parsePause([]byte(body))
		if err == nil {
			if len(p.Reason) > settings.MaxPauseReason || len(p.Name) > settings.MaxChatID || p.Check() != nil {
				t.Errorf("%+v is taken", p)
			}
			if rate := settings.Starts([]settings.Pause{p})[0].Rate; (rate.Runs > 0) != (p.Rate != "") {
				t.Errorf("the rate %q becomes %v", p.Rate, rate)
			}
		}
		params, queryErr := url.ParseQuery(rawQuery)
		if queryErr == nil {
			_, queryErr = parseResume(params)
		} else {
			queryErr = nil
		}
		for _, err := range []error{err, queryErr} {
			var api caddy.APIError
			if err != nil && (!errors.As(changeError(err), &api) || api.HTTPStatus != 400 || !utf8.ValidString(api.Err.Error())) {
				t.Errorf("an error without an answer: %v", err)
			}
		}
	})
}
