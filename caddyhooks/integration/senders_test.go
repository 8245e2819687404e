package integration

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// What each sender of the README's table sends with a body. Senders that the table has no lines for send the token.
var senders = map[string]struct {
	credential func(mac []byte) (header, value string)
	id         string // the header that names the request, if it is the same when the request is sent again
}{
	"Zapier, Make, n8n":    {serviceToken, ""},
	"Alertmanager":         {bearerToken, ""},
	"Grafana":              {bearerToken, ""},
	"Grafana 11.6, signed": {hexOf("X-Grafana-Alerting-Signature", ""), ""},
	"GitHub":               {hexOf("X-Hub-Signature-256", "sha256="), "X-GitHub-Delivery"},
	"GitLab 17.1":          {serviceToken, "Idempotency-Key"},
	"Bitbucket":            {hexOf("X-Hub-Signature", "sha256="), "X-Request-UUID"},
	"Sentry":               {hexOf("Sentry-Hook-Signature", ""), "Request-ID"},
	"Linear":               {hexOf("Linear-Signature", ""), ""},
	"Shopify": {func(mac []byte) (string, string) {
		return "X-Shopify-Hmac-SHA256", base64.StdEncoding.EncodeToString(mac)
	}, "X-Shopify-Webhook-Id"},
	"PagerDuty": {func(mac []byte) (string, string) {
		return "X-PagerDuty-Signature", "v1=" + strings.Repeat("0", 64) + ",v1=" + hex.EncodeToString(mac)
	}, ""},
}

func bearerToken([]byte) (header, value string)  { return "Authorization", "Bearer " + hookstest.Token }
func serviceToken([]byte) (header, value string) { return "X-Service-Token", hookstest.Token }

func hexOf(header, prefix string) func([]byte) (string, string) {
	return func(mac []byte) (string, string) { return header, prefix + hex.EncodeToString(mac) }
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// A hook with the lines of the README's table accepts what the sender sends, once, and nothing else.
func TestHooksOfTheSenderTableAcceptTheirSenders(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-the-tests"
	directives := "hooks {\nenabled\ntoken " + hookstest.Token + "\nstore memory\n"
	names := make(map[string]string)
	for i, row := range tableRows(t, "Senders") {
		if strings.HasPrefix(row[1], "no hook") {
			continue
		}
		if _, ok := senders[row[0]]; !ok {
			t.Errorf("nothing is known about %s", row[0])
			continue
		}
		names[row[0]] = fmt.Sprintf("sender-%d", i)
		directives += "hook " + names[row[0]] + " {\naction agent\n"
		for _, line := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			directives += line[1] + "\n"
		}
		directives += "}\n"
	}
	s := hookstest.StartProcess(t, directives+"}", "SECRET="+secret)
	for sender, sends := range senders {
		if names[sender] == "" {
			t.Errorf("the table does not have %s", sender)
			continue
		}
		body := `{"from":"` + sender + `"}`
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		header, value := sends.credential(mac.Sum(nil))
		headers := []string{header, value}
		if sends.id != "" {
			headers = append(headers, sends.id, "the-id")
		}
		first := s.Request("POST", "/api/hooks/"+names[sender], body, headers...)
		if first.Status != 202 {
			t.Errorf("%s is answered %d %s", sender, first.Status, first.Body)
		}
		if sends.id != "" {
			s.Request("POST", "/api/hooks/"+names[sender], body, headers...).WantReplay(t, first)
		}
		headers[1] = strings.Repeat("0", len(value))
		if resp := s.Request("POST", "/api/hooks/"+names[sender], body, headers...); resp.Status != 401 {
			t.Errorf("%s with a wrong credential is answered %d %s", sender, resp.Status, resp.Body)
		}
	}
}
