package integration

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// recipes are the senders in examples/senders: who signs, with which secret, and the headers that come with it.
var recipes = map[string]struct {
	sender, secret string
	headers        []string
}{
	"alertmanager":    {sender: "token", secret: "a-token-for-trying-it-out"},
	"another-program": {sender: "hmac", headers: []string{"X-Program", "reports"}},
	"bitbucket":       {headers: []string{"X-Event-Key", "pullrequest:created"}},
	"cron":            {sender: "token", secret: "a-token-for-trying-it-out", headers: []string{"Content-Type", "application/x-www-form-urlencoded"}},
	"calendly":        {},
	"cloudevents":     {sender: "token", secret: "a-token-for-trying-it-out", headers: []string{"Content-Type", "application/cloudevents+json"}},
	"discord":         {secret: discordSeed},
	"dropbox":         {},
	"eventgrid":       {},
	"github":          {headers: []string{"X-GitHub-Event", "issues"}},
	"github-actions":  {sender: "oidc", secret: `"aud":"https://example.com","repository":"octo/shop","ref":"refs/heads/main"`},
	"gitlab":          {headers: []string{"X-Gitlab-Event", "Merge Request Hook"}},
	"google-pubsub": {sender: "oidc", secret: `"aud":"https://example.com/api/hooks/builds","email":"push@octo-shop.iam.gserviceaccount.com"`,
		headers: []string{"X-Goog-Pubsub-Message-Id", "2"}},
	"grafana":   {},
	"graph":     {},
	"hubspot":   {},
	"intercom":  {},
	"linear":    {},
	"mailgun":   {},
	"meta":      {},
	"notion":    {},
	"pagerduty": {},
	"sendgrid":  {secret: sendgridKey},
	"sentry":    {headers: []string{"Sentry-Hook-Resource", "event_alert"}},
	"shopify":   {}, // the signer sends the topic
	"slack":     {},
	"square":    {},
	"standard":  {secret: "whsec_Zm9yLXRyeWluZy1pdC1vdXQtb25seQ=="},
	"stripe":    {secret: "whsec_a-secret-for-trying-it-out"},
	"teams":     {secret: "YS1zZWNyZXQtZm9yLXRyeWluZy1pdC1vdXQ="},
	"telegram":  {},
	"twilio":    {},
	"typeform":  {},
	"zendesk":   {},
	"zoom":      {},
}

// The key pair of the recipe for Discord.
const (
	discordSeed = "6f6e6c792d666f722d747279696e672d69742d6f75742d63616464792d686f6f"
	discordKey  = "a5d717089d414674b1613d7677f22810ca4c249d9ef15ff79439b869303f894e"
)

// The private key of the recipe for SendGrid.
const sendgridKey = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgoyZYlRL8WqgJ07BTo4jEU6mOU53ZFwJUGjS2aobTJr2hRANCAAQjGdfFnESw1hcX9NQW61VQRQlpkCSeYV8seiDMZzasVrVNphzUl878nuT6j85a9jlBrVT2m3FX2La8LhsfknvO" //nolint:gosec // for trying it out

var (
	hookOfRecipe = regexp.MustCompile(`(?m)^\t\thook (\S+) \{$`)
	foldOfRecipe = regexp.MustCompile(`(?m)^(\t+fold )\S+`)
	linearTime   = regexp.MustCompile(`("webhookTimestamp": )\d+`)
)

// The payload of a recipe, signed by its sender, becomes the message that the recipe shows. Its page says so, too, and its
// commands print what they say.
func TestRecipesTellTheAgentWhatTheySay(t *testing.T) {
	t.Parallel()
	signer := startSigner(t)
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartProcess(t, "respond 404")
	ports := strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:"+s.Port, "localhost:8080", "localhost:"+s.Port)
	dirs, err := filepath.Glob(filepath.Join(root, "examples", "senders", "*"))
	if err != nil || len(dirs) != len(recipes) {
		t.Fatalf("the recipes are %v, %v", dirs, err)
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		recipe, known := recipes[name]
		if !known {
			t.Errorf("nothing is known about the recipe %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) { // one after the other: they share the port
			caddyfile := string(readFile(t, filepath.Join(dir, "Caddyfile")))
			loadExample(t, s, filepath.Join(dir, "Caddyfile"), func(text string) string {
				text = strings.Replace(text, "runner echo", "runner http "+rn.URL, 1)
				return ports.Replace(foldOfRecipe.ReplaceAllString(text, "${1}1s"))
			})
			payload := filepath.Join(dir, "payload.json")
			if _, err := os.Stat(payload); err != nil {
				payload = filepath.Join(dir, "payload.form")
			}
			hook := hookOfRecipe.FindStringSubmatch(caddyfile)[1]
			q := question{Sender: recipe.sender, Secret: recipe.secret, URL: s.URL + "/api/hooks/" + hook, Time: time.Now().Unix(), ID: "id-of-" + name}
			q.Body = linearTime.ReplaceAllString(string(readFile(t, payload)), "${1}"+strconv.FormatInt(time.Now().UnixMilli(), 10))
			switch q.Sender {
			case "":
				q.Sender = name
			case "oidc": // the secret is what the token says
				q.Sender, q.Secret = "token", tokenOfRecipe(t, `{"iss":"`+s.URL+`","exp":`+strconv.FormatInt(q.Time+300, 10)+`,`+recipe.secret+`}`)
			}
			if q.Secret == "" {
				q.Secret = "a-secret-for-trying-it-out"
			}
			resp, err := signer.sign(t, q).send(recipe.headers...)
			if err != nil || resp.Status < 200 || resp.Status > 299 || strings.Contains(resp.Body, "ignored") {
				t.Fatalf("answered %d %s %v", resp.Status, resp.Body, err)
			}
			want := string(readFile(t, filepath.Join(dir, "message.txt")))
			turn := rn.Next()
			for turn.Text("hook") != hook { // those of the commands of pages before this one
				turn = rn.Next()
			}
			got := tidy(turn.Text("message"))
			if ok, err := regexp.MatchString("^"+strings.ReplaceAll(regexp.QuoteMeta(tidy(want)), "…", `[^\n]*?`)+"$", got); err != nil || !ok {
				t.Errorf("the agent is told\n%s\nand message.txt says\n%s", got, want)
			}
			if strings.Contains(got, "<missing>") {
				t.Errorf("something is missing: %s", got)
			}
			page := filepath.Join(dir, "README.md")
			if !slices.ContainsFunc(fences(t, page), func(f fence) bool { return f.language == "text" && f.text == want }) {
				t.Errorf("the page does not show message.txt")
			}
			runCommands(t, page, ports)
		})
	}
}

// tokenOfRecipe signs a token with the key of the recipes.
func tokenOfRecipe(t *testing.T, claims string) string {
	t.Helper()
	seed, err := hex.DecodeString(discordSeed)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"EdDSA","kid":"try"}`)) + "." + encode([]byte(claims))
	return signed + "." + encode(ed25519.Sign(ed25519.NewKeyFromSeed(seed), []byte(signed)))
}

// runCommands runs the commands of a page, but for the one that starts Caddy, which runs already.
func runCommands(t *testing.T, page string, ports *strings.Replacer) {
	t.Helper()
	commands := 0
	blocks := fences(t, page)
	for i, block := range blocks {
		if script := startsCaddy.ReplaceAllString(block.text, ""); block.language == "sh" && strings.TrimSpace(script) != "" {
			commands++
			wantOutput(t, blocks, i, ports.Replace(script))
		}
	}
	if commands == 0 {
		t.Error("the page has no command")
	}
}
