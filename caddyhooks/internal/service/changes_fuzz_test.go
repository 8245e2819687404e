package service

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// Whatever mappings hold, the description of a change is valid JSON of bounded size, and holds no secret.
func FuzzDescribeChange(f *testing.F) {
	f.Add(`{"messageTemplate":"a <b>","hmacSecret":"s","metadata":{"k":[1,2]}}`, `{"messageTemplate":"b","action":"agent"}`, 1)
	f.Add(`{"messageTemplate":"`+strings.Repeat(`\u0001ä`, 5000)+`"}`, `{"callbackUrl":"https://example.com/path"}`, 150)
	f.Add(`{"metadata":{"k":"`+strings.Repeat("long ", 2000)+`"},"responseJsonSchema":{"const":"`+strings.Repeat("long ", 2000)+`"}}`, `{}`, 100)
	f.Add(`{"chatId":"`+strings.Repeat("c", 300)+`"}`, `{"historySeconds":0}`, 300)
	f.Fuzz(func(t *testing.T, before, after string, n int) {
		was, err := settings.ParseMapping([]byte(before))
		is, err2 := settings.ParseMapping([]byte(after))
		if err != nil || err2 != nil || n < 0 || n > 300 {
			return
		}
		const secret = "!very secret indeed!"
		old, changed := settings.Settings{Token: settings.Secrets{secret}}, settings.Settings{Token: settings.Secrets{secret, secret + "2"}}
		for i := range n {
			was.Name, is.Name = fmt.Sprintf("hook-%d%s", i, strings.Repeat("x", 50)), fmt.Sprintf("hook-%d%s", i, strings.Repeat("x", 50+i%3/2))
			was.HMACSecret, is.HMACSecret = settings.Secrets{secret}, settings.Secrets{secret + "2"}
			old.Mappings, changed.Mappings = append(old.Mappings, was), append(changed.Mappings, is)
		}
		description := encode(describeChange(api.Origin{Via: "admin API", Address: "127.0.0.1"}, &old, &changed))
		if len(description) > 64<<10 || !json.Valid(description) || !utf8.Valid(description) {
			t.Errorf("%d bytes: %.200s", len(description), description)
		}
		if strings.Contains(string(description), secret) && !strings.Contains(before+after, secret) {
			t.Errorf("there is a secret in %s", description)
		}
		if _, err := NewChangeJSON(engine.SettingsChange{Description: description}); err != nil {
			t.Error(err)
		}
		if change := describeChange(api.Origin{}, &changed, &changed); change != nil {
			t.Errorf("nothing was changed, and it tells %s", encode(change))
		}
	})
}
