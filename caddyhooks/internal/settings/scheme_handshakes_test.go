package settings

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

// Whatever is asked, no handshake tells or signs anything for somebody who has no secret, and nothing panics.
func FuzzHandshakes(f *testing.F) {
	const secret = "c2lnbmluZy1zZWNyZXQtMDEyMzQ1Njc4OQ=="
	hooks := make(map[string]Authentication)
	for _, s := range Senders {
		m := Mapping{Name: "a", AuthMode: s.Name, AuthSecret: Secrets{secret}, VerifyToken: Secrets{"another-" + secret}}
		if s.newHandshake == nil {
			continue
		}
		a, err := m.Authentication(HookSecrets{Resolve: func(secret string) (string, error) { return secret, nil }})
		if err != nil {
			f.Fatal(err)
		}
		hooks[s.Name] = a
	}
	for _, query := range []string{"", "challenge=a", "validationToken=a", "hub.mode=subscribe&hub.challenge=a&hub.verify_token=a", "hub.mode=subscribe&hub.verify_token="} {
		for _, body := range []string{"", "{}", `{"event":"endpoint.url_validation","payload":{"plainToken":"a"}}`, `{"verification_token":"a"}`, `[{"data":{"validationCode":"a"}}]`} {
			for _, method := range []string{"GET", "POST", "OPTIONS"} {
				f.Add(method, query, body, "SubscriptionValidation", "v0=0000")
			}
		}
	}
	f.Fuzz(func(t *testing.T, method, query, body, header, signature string) {
		values, _ := url.ParseQuery(query)
		for name, a := range hooks {
			req := &auth.Request{Method: method, Header: make(http.Header), Query: func() url.Values { return values }, Body: []byte(body), Now: time.Unix(1_700_000_000, 0)}
			req.Header["Aeg-Event-Type"], req.Header["Webhook-Request-Origin"] = []string{header}, []string{header}
			req.Header["X-Zm-Signature"], req.Header["X-Zm-Request-Timestamp"] = []string{signature}, []string{"1700000000"}
			req.Header["X-Notion-Signature"] = []string{signature}
			answer, err := a.Handshake(req)
			if answer == nil {
				continue
			}
			allowed := map[string]string{"dropbox": values.Get("challenge"), "graph": values.Get("validationToken"), "eventgrid": "", "intercom": ""}
			echoed, ok := allowed[name]
			if err != nil || !ok || answer.Body != echoed || len(answer.Body) > maxChallenge || answer.Reveal != "" {
				t.Errorf("%s: %s %q %q: got %+v, %v", name, method, query, body, answer, err)
			}
		}
	})
}
