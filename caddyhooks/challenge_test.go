package caddyhooks_test

import (
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestChallengeIsAnsweredBeforeConditionsAndCounted(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `workers 1
	hook slack {
		action agent
		auth slack s3cret
		only $.event
		only header X-Never
		respond 299 never
	}`))
	body := `{"type":"url_verification","challenge":"3eZbrw1a"}`
	if resp := s.Request("POST", "/api/hooks/slack", body, slackHeaders("s3cret", body, time.Now())...); resp.Status != 200 || resp.Body != "3eZbrw1a" {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	s.Request("POST", "/api/hooks/slack", body, slackHeaders("wrong", body, time.Now())...).WantError(t, 401)
	if n := overviewOf(t, s, "").sum(t, "requests.challenges"); n != 1 {
		t.Errorf("%v challenges are counted", n)
	}
	rn.WantNoTurn(s)
}

// Somebody who recorded a signed request gets nothing by sending it again, and an ignored one is no first request.
func TestSignatureThatIsSentAgainStartsNoRun(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `workers 1
	hook slack {
		action agent
		auth slack s3cret
		only header X-Wanted
	}`))
	body := `{"type":"event_callback","event":{"type":"message"}}`
	headers := slackHeaders("s3cret", body, time.Now())
	wantIgnored(t, s.Request("POST", "/api/hooks/slack", body, headers...))
	headers = append(headers, "X-Wanted", "1")
	first := s.Request("POST", "/api/hooks/slack", body, headers...)
	first.WantNew(t, 200)
	rn.Next()
	s.Request("POST", "/api/hooks/slack", body, headers...).WantReplay(t, first)
	rn.WantNoTurn(s)
}
