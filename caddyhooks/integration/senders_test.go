package integration

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// tableSenders are those of the table in authentication.md, as sign.mjs calls them.
var tableSenders = map[string]string{
	"GitHub": "github", "GitLab": "gitlab-signed", "Bitbucket": "bitbucket", "Linear": "linear", "Sentry": "sentry", "PagerDuty": "pagerduty",
	"Grafana 11.6": "grafana", "Alertmanager": "token", "Slack": "slack", "Discord": "discord", "Telegram": "telegram", "Twilio": "twilio",
	"Stripe": "stripe", "Shopify": "shopify", "Standard Webhooks, Svix": "standard", "cron, CI": "token", "Zapier, Make, n8n": "token",
	"HubSpot": "hubspot", "Zendesk": "zendesk", "Intercom": "intercom", "Calendly": "calendly", "Typeform": "typeform", "Notion": "notion", "Zoom": "zoom",
	"Meta, WhatsApp": "meta", "Microsoft Teams": "teams", "Microsoft Graph": "graph", "Azure Event Grid, CloudEvents": "eventgrid", "Dropbox": "dropbox",
	"Square": "square", "Mailgun": "mailgun", "SendGrid": "sendgrid",
	"a program of yours": "github", // which signs the body alone, as that line has it
}

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	recipeLink = regexp.MustCompile(`\[([^\]]+)\]\(\.\./\.\./\.\./examples/senders/([^)/]+)\)`)
)

// A hook with the lines of the table in authentication.md accepts what the sender sends, and nothing else. The page leads to every recipe.
func TestHooksOfTheSenderTableAcceptTheirSenders(t *testing.T) {
	t.Parallel()
	signer := startSigner(t)
	page := string(readFile(t, filepath.Join(root, "caddyhooks", "docs", "reference", "authentication.md")))
	var linked []string
	for _, link := range recipeLink.FindAllStringSubmatch(page, -1) {
		linked = append(linked, link[2])
	}
	rows := map[string]string{ // the lines of the hook, by sender; these are below the table
		"Alertmanager": "auth token {env.SECRET}\n", "cron, CI": "auth token {env.SECRET}\nbody form\n", "Zapier, Make, n8n": "auth token {env.SECRET}\n",
		"a program of yours": "auth hmac X-Signature {env.SECRET} sha256=\n",
	}
	for _, row := range tableRows(t, "Senders") {
		sender := recipeLink.FindStringSubmatch(row[0])
		if sender == nil || tableSenders[sender[1]] == "" {
			t.Errorf("nothing is known about %s", row[0])
			continue
		}
		lines := codeSpan.FindAllStringSubmatch(row[1], -1)
		rows[sender[1]] = "auth " + lines[0][1] + " {env." + cmp.Or(map[string]string{"Discord": "PUBLIC_KEY", "SendGrid": "ECDSA_KEY"}[sender[1]], "SECRET") + "}\n"
		for _, line := range lines[1:] {
			rows[sender[1]] += line[1] + "\n"
		}
	}
	dirs, err := os.ReadDir(filepath.Join(root, "examples", "senders"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if !slices.Contains(linked, dir.Name()) {
			t.Errorf("the page does not lead to the recipe for %s", dir.Name())
		}
	}
	site := "hooks {\nenabled\ntoken " + hookstest.Token + "\nrunner echo\nstore memory\n"
	sendgrid := schemeTest{sender: "sendgrid", kind: ecdsaKey}
	sendgridPrivate, sendgridPublic := sendgrid.secret("old")
	sendgridOther, _ := sendgrid.secret("wrong")
	s := hookstest.StartProcess(t, "respond 404", "SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "PUBLIC_KEY="+discordKey, "ECDSA_KEY="+sendgridPublic)
	for sender, lines := range rows {
		lines = strings.Replace(lines, "X-Signature", "X-Hub-Signature-256", 1) // of a program that is GitHub here
		site += "hook " + hookOf(sender) + " {\naction agent\n" + lines + "}\n"
	}
	s.Globals = "servers {\ntrusted_proxies static 127.0.0.1\n}\n" // bad credentials from one address are answered 429 after a while
	s.Load(site + "}")
	signer.sign(t, question{Sender: "github", Secret: "any", Body: "{}", ID: "1"}) // so that it is at work before the time is taken
	n := 0
	for sender, name := range tableSenders {
		n++
		if rows[sender] == "" {
			t.Errorf("the table does not have %s", sender)
			continue
		}
		c := schemeTests[slices.IndexFunc(schemeTests, func(c schemeTest) bool { return c.sender == name })]
		body := `{"n":1}`
		if c.body != nil {
			body = c.body("1", time.Now())
		}
		if strings.Contains(rows[sender], "body form") {
			body = "n=1"
		}
		q := question{Sender: name, Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", URL: s.URL + "/api/hooks/" + hookOf(sender), Body: body, Time: time.Now().Unix(), ID: "1"}
		wrong := q
		wrong.Secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
		if name == "discord" {
			q.Secret, wrong.Secret = discordSeed, strings.Repeat("00", 32)
		}
		if name == "sendgrid" {
			q.Secret, wrong.Secret = sendgridPrivate, sendgridOther
		}
		for _, test := range []struct {
			question
			want int
		}{{wrong, 401}, {q, c.accepted()}} {
			resp, err := signer.sign(t, test.question).send("X-Forwarded-For", fmt.Sprintf("10.0.0.%d", n))
			if err != nil || resp.Status != test.want {
				t.Errorf("%s is answered %d %s %v, want %d", sender, resp.Status, resp.Body, err, test.want)
			}
		}
	}
}

// The key pair of the recipe for Discord.
const (
	discordSeed = "6f6e6c792d666f722d747279696e672d69742d6f75742d63616464792d686f6f"
	discordKey  = "a5d717089d414674b1613d7677f22810ca4c249d9ef15ff79439b869303f894e"
)

// hookOf is a name for the hook of a sender.
func hookOf(sender string) string {
	return regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(sender, "-")
}
