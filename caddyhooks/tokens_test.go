package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// tokensOf are the tokens and secrets of a site, each as its hook, number and whether it was used.
func tokensOf(t *testing.T, s *hookstest.Server) (list api.TokenList, short string) {
	t.Helper()
	resp := s.AdminRequest("GET", "/hooks/tokens", "")
	if err := json.Unmarshal([]byte(resp.Body), &list); err != nil || resp.Status != 200 {
		t.Fatalf("%v: %d %s", err, resp.Status, resp.Body)
	}
	for _, token := range list.Tokens {
		short += fmt.Sprintf("%s %s %d %t; ", token.Hook, token.Scheme, token.Number, token.LastUsedAt != nil)
		if token.Since == nil || len(token.ID) != 8 || !token.Pinned {
			t.Errorf("got %+v", token)
		}
	}
	for _, secret := range []string{"old-token", "new-token", "own-token", "s3cret", "Zm9v"} {
		if strings.Contains(resp.Body, secret) {
			t.Errorf("%s is shown", secret)
		}
	}
	return list, short
}

func TestTheLastUseOfEachTokenIsToldAndSurvivesARestart(t *testing.T) {
	config := "hooks {\nenabled\nrunner echo\ntoken old-token-1234567 new-token-1234567\nhook own {\nauth token own-token-1234567\n}\n" +
		"hook signed {\nauth hmac X-Signature s3cret-1234567890 {\nsecret s3cret-new-4567890\n}\n}\n}"
	s := hookstest.StartSite(t, config)
	if _, short := tokensOf(t, s); short != " bearer 1 false;  bearer 2 false; own token 1 false; signed hmac 1 false; signed hmac 2 false; " {
		t.Errorf("at first: %s", short)
	}
	s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer wrong-token-1234567")
	s.Request("POST", "/api/hooks/wake", `{"text":"a"}`, "Authorization", "Bearer new-token-1234567")
	s.Request("POST", "/api/hooks/signed", `{}`, "X-Signature", signature("s3cret-new-4567890", `{}`))
	const want = " bearer 1 false;  bearer 2 true; own token 1 false; signed hmac 1 false; signed hmac 2 true; "
	before, short := tokensOf(t, s)
	if short != want {
		t.Errorf("got %s, want %s", short, want)
	}
	s.Restart(config)
	after, short := tokensOf(t, s)
	if short != want {
		t.Errorf("after a restart: got %s, want %s", short, want)
	}
	for i, token := range before.Tokens {
		if later := after.Tokens[i]; later.ID != token.ID || !later.Since.Equal(*token.Since) {
			t.Errorf("after a restart %+v is %+v", token, later)
		}
	}
}
