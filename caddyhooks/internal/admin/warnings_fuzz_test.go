package admin

import (
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Whatever an operator gives as a reason, it is kept as one short line, or refused with a clean sentence.
func FuzzParseDismissal(f *testing.F) {
	for _, body := range []string{`{"reason":"known"}`, `{}`, `{"reason":"a\nb"}`, `{"reason":7}`, `{"reason":"a","\ud800":1}`, `[]`, ``} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		reason, err := parseDismissal([]byte(body))
		var d settings.Dismissal
		if err == nil {
			d, err = settings.NewDismissal(settings.Warning{Text: "a"}, reason, "me", time.Now())
		}
		var api caddy.APIError
		if err != nil && (!errors.As(changeError(err), &api) || api.HTTPStatus != 400 || !utf8.ValidString(api.Err.Error())) {
			t.Errorf("an error without an answer: %v", err)
		}
		if err == nil && (d.Reason == "" || len(d.Reason) > settings.MaxDismissalReason) {
			t.Errorf("%q is taken", d.Reason)
		}
	})
}
