package channels

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// GitHubApp is the configuration of a GitHub App. It signs with a key that it is the app, and gets a token for each repository, which
// it keeps for as long as the token is valid.
type GitHubApp struct {
	// The id of the app, or its client id.
	ID string `json:"id"`

	// The PEM file with a private key of the app.
	KeyFile string `json:"key_file"`

	// The id of the installation to use. Default: that of the repository.
	Installation string `json:"installation,omitempty"`

	id, installation string // the same, placeholders replaced
	key              *rsa.PrivateKey

	mu     sync.Mutex
	tokens map[string]installationToken // by repository
}

type installationToken struct {
	token string
	until time.Time
}

// maxInstallationTokens bounds what is remembered. Callers of hooks choose the repositories.
const maxInstallationTokens = 1000

var (
	githubAppID        = regexp.MustCompile(`^[A-Za-z0-9.]{1,64}$`)
	githubInstallation = regexp.MustCompile(`^[1-9][0-9]{0,18}$`)
)

// readGitHubApp reads the id of an app, its key file, relative to the Caddyfile, and an installation.
func readGitHubApp(d *caddyfile.Dispenser) (*GitHubApp, error) {
	place := *d
	args, err := caddyconf.List(d)
	if err != nil {
		return nil, err
	}
	if len(args) < 2 || len(args) > 3 {
		return nil, place.Err("app takes the id of a GitHub App, the file with its private key, and the id of an installation or nothing")
	}
	app := &GitHubApp{ID: args[0], KeyFile: args[1], Installation: strings.Join(args[2:], "")}
	if !filepath.IsAbs(app.KeyFile) && !caddyconf.HasPlaceholder(app.KeyFile) {
		app.KeyFile = filepath.Join(filepath.Dir(d.File()), app.KeyFile)
	}
	return app, nil
}

func (a *GitHubApp) provision() error {
	repl := caddy.NewReplacer()
	a.id, a.installation = repl.ReplaceKnown(a.ID, ""), repl.ReplaceKnown(a.Installation, "")
	switch {
	case !githubAppID.MatchString(a.id):
		return errors.New("channel github: the id of the app must be a number, or a client id such as Iv1.0123456789abcdef")
	case a.Installation != "" && !githubInstallation.MatchString(a.installation):
		return errors.New("channel github: the id of the installation must be a number")
	}
	path := repl.ReplaceKnown(a.KeyFile, "")
	data, err := caddyconf.ReadRegularFile(path)
	if err != nil {
		return fmt.Errorf("channel github: reading the key file %s: %w", path, err)
	}
	if a.key, err = parseRSAKey(data); err != nil {
		return fmt.Errorf("channel github: the key file %s %w", path, err)
	}
	a.tokens = make(map[string]installationToken)
	return nil
}

// parseRSAKey reads a private key as GitHub makes them, or as other programs convert them. Errors hold nothing of it.
func parseRSAKey(data []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("has no private key in PEM")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if key, ok := key.(*rsa.PrivateKey); ok {
			return key, nil
		}
	}
	return nil, errors.New("has no RSA key")
}

// sign returns a token that says that the bearer is the app: a JWT, which GitHub takes for ten minutes at most, by its own clock.
func (a *GitHubApp) sign(now time.Time) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims := struct {
		IssuedAt int64  `json:"iat"`
		Expires  int64  `json:"exp"`
		Issuer   string `json:"iss"`
	}{now.Add(-time.Minute).Unix(), now.Add(8 * time.Minute).Unix(), a.id}
	signed := encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode(encodeJSON(claims))
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, a.key, crypto.SHA256, sum[:])
	if err != nil {
		return signed + "." // which GitHub refuses
	}
	return signed + "." + encode(signature)
}

// tokenFor returns a token that is good for one repository.
func (a *GitHubApp) tokenFor(ctx context.Context, g *GitHub, d *engine.Delivery, repo string) (string, error) {
	a.mu.Lock()
	known := a.tokens[repo]
	a.mu.Unlock()
	if time.Now().Before(known.until) {
		return known.token, nil
	}
	signed := a.sign(time.Now())
	installation := a.installation
	if installation == "" {
		err := g.ask(ctx, d, signed, http.MethodGet, "/repos/"+repo+"/installation", nil, func(answer map[string]any) bool {
			id, _ := answer["id"].(json.Number)
			installation = string(id)
			return githubInstallation.MatchString(installation)
		})
		if err != nil {
			return "", explainApp(d, err, "the app is not installed in the repository, or there is no such repository")
		}
	}
	_, name, _ := strings.Cut(repo, "/")
	var made installationToken
	err := g.ask(ctx, d, signed, http.MethodPost, "/app/installations/"+installation+"/access_tokens",
		encodeJSON(map[string][]string{"repositories": {name}}), func(answer map[string]any) bool {
			made.token, _ = answer["token"].(string)
			expires, _ := answer["expires_at"].(string)
			var err error
			made.until, err = time.Parse(time.RFC3339, expires)
			return err == nil && made.token != "" && !strings.ContainsFunc(made.token, func(r rune) bool { return r <= ' ' || r > '~' })
		})
	if d.LastStatus/100 == 2 {
		d.LastAnswer = "" // it has the token
	}
	if err != nil {
		return "", explainApp(d, err, "the installation of the app does not include the repository, or there is no such installation")
	}
	// GitHub's clock may be a bit ahead. A token that lasts no longer is used once.
	made.until = made.until.Add(-time.Minute)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.tokens) >= maxInstallationTokens {
		clear(a.tokens)
	}
	a.tokens[repo] = made
	return made.token, nil
}

func (a *GitHubApp) forget(repo string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tokens, repo)
}

// explainApp explains a refusal to an app, of which the status means something else than to a comment.
func explainApp(d *engine.Delivery, err error, notFound string) error {
	switch d.LastStatus {
	case http.StatusNotFound, http.StatusUnprocessableEntity:
		return &engine.FinalError{Err: errors.New(answerReason("GitHub", d.LastStatus, notFound))}
	case http.StatusUnauthorized:
		return &engine.FinalError{Err: errors.New(answerReason("GitHub", d.LastStatus,
			"it does not know the app by this id and key, or the clock of this machine is wrong"))}
	}
	return err
}
