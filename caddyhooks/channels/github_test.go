package channels

import (
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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// startGitHub starts a server that answers as api.github.com does, where acme/widgets#7 exists, and one user.
func startGitHub(t *testing.T, token string) (*service, *thread) {
	c := new(thread)
	return startService(t, func(w http.ResponseWriter, r request, _ int) {
		if r.header.Get("Authorization") != "Bearer "+token {
			say(w, 401, `{"message":"Bad credentials","documentation_url":"https://docs.github.com/rest","status":"401"}`)
			return
		}
		answerGitHub(t, w, r, c)
	}), c
}

func answerGitHub(t *testing.T, w http.ResponseWriter, r request, c *thread) {
	const issue, comments = "/repos/acme/widgets/issues/7/comments", "/repos/acme/widgets/issues/comments/"
	if r.header.Get("Accept") != "application/vnd.github+json" || r.header.Get("X-Github-Api-Version") != "2022-11-28" || r.header.Get("User-Agent") == "" {
		t.Errorf("%s %s has the headers %v", r.method, r.path, r.header)
	}
	var sent map[string]any
	text := ""
	if r.body != "" {
		if err := json.Unmarshal([]byte(r.body), &sent); err != nil || r.header.Get("Content-Type") != "application/json; charset=utf-8" {
			say(w, 400, `{"message":"Problems parsing JSON","status":"400"}`)
			return
		}
		text, _ = sent["body"].(string)
		if len(sent) != 1 || strings.TrimSpace(text) == "" || len([]rune(text)) > 65536 {
			say(w, 422, `{"message":"Validation Failed","errors":[{"resource":"IssueComment","code":"unprocessable","field":"data","message":"Body is too long"}]}`)
			return
		}
	}
	id := numberAt(r.path, comments)
	answer := func(status, id int) {
		body, _ := json.Marshal(text)
		say(w, status, fmt.Sprintf(`{"id":%d,"node_id":"IC_1","url":"https://api.github.com%s%d","html_url":"https://github.com/acme/widgets/issues/7#issuecomment-%d",`+
			`"issue_url":"https://api.github.com/repos/acme/widgets/issues/7","user":{"login":"acme-bot","id":1,"type":"User"},"created_at":"2026-01-02T03:04:05Z",`+
			`"updated_at":"2026-01-02T03:04:05Z","author_association":"MEMBER","body":%s,"reactions":{"total_count":0}}`, id, comments, id, id, body))
	}
	switch {
	case r.method == "GET" && r.path == "/user" && r.body == "":
		say(w, 200, `{"login":"acme-bot","id":1,"type":"User"}`)
	case r.method == "POST" && r.path == issue && text != "":
		answer(201, c.add(text))
	case r.method == "PATCH" && id > 0 && text != "" && c.change(id, text):
		answer(200, id)
	case r.method == "DELETE" && id > 0 && r.body == "" && c.remove(id):
		w.WriteHeader(204)
	default:
		say(w, 404, `{"message":"Not Found","documentation_url":"https://docs.github.com/rest","status":"404"}`)
	}
}

func TestGitHubCommentOnTheWire(t *testing.T) {
	t.Parallel()
	s, _ := startGitHub(t, "ghp_a-secret")
	d := delivery("acme/widgets#7", "See #5, @octocat: `a<b>`\n```go\n@x\n```\x00")
	if err := loadChannel(t, "github ghp_a-secret {\n url "+s.URL+"/\n}").Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	r := s.one()
	if r.method != "POST" || r.path != "/repos/acme/widgets/issues/7/comments" || r.query != "" || d.Sent != 1 || d.LastStatus != 201 {
		t.Errorf("got %s %s?%s", r.method, r.path, r.query)
	}
	r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "Authorization": "Bearer ghp_a-secret",
		"User-Agent": "caddy-hooks", "Accept": "application/vnd.github+json", "X-Github-Api-Version": "2022-11-28"})
	wantJSON(t, r.body, `{"body":"See #\u200b5, @\u200boctocat: `+"`a<\\u200bb>`\\n```go\\n@x\\n```"+`"}`)
}

func TestGitHubErrors(t *testing.T) {
	t.Parallel()
	soon := fmt.Sprint(time.Now().Add(90 * time.Second).Unix())
	final := func(words string) outcome { return outcome{"final", 0, words} }
	for _, tc := range []struct {
		status int
		header string
		body   string
		want   outcome
	}{
		{403, "", `{"message":"Unable to create comment because issue is locked."}`, final("GitHub answered 403: the conversation is locked")},
		{403, "", `{"message":"Repository was archived so is read-only."}`, final("archived")},
		{403, "", `{"message":"Resource not accessible by integration"}`, final("write issues")},
		{403, "", `{"message":"Resource not accessible by personal access token"}`, final("write issues")},
		{403, "", `{"message":"Resource protected by organization SAML enforcement. You must grant your Personal Access token access."}`, final("single sign-on")},
		{403, "", `{"message":"User is blocked"}`, final("blocked")},
		{403, "X-RateLimit-Remaining: 12", `{"message":"Must have admin rights"}`, final("does not allow")},
		{404, "", `{"message":"Not Found"}`, final("GitHub answered 404: there is no such repository or issue, or the token of this channel may not see it")},
		{410, "", `{"message":"This issue was deleted"}`, final("deleted")},
		{301, "Location: /repositories/1", `{"message":"Moved Permanently"}`, final("another name")},
		{401, "", `{"message":"Bad credentials"}`, final("does not take the token")},
		{422, "", `{"message":"Validation Failed","errors":[]}`, final("does not take the comment")},
		{403, "Retry-After: 60", `{"message":"You have exceeded a secondary rate limit."}`, outcome{"later", time.Minute, "GitHub answered 403: it asks for a pause"}},
		{429, "Retry-After: 60", `{}`, outcome{"later", time.Minute, "pause"}},
		{403, "", `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes"}`, outcome{"later", time.Minute, "pause"}},
		{403, "", `{"message":"You have triggered an abuse detection mechanism."}`, outcome{"later", time.Minute, "pause"}},
		{429, "", `{}`, outcome{"again", 0, "pause"}},
		{403, "X-RateLimit-Remaining: 0", `{"message":"API rate limit exceeded"}`, outcome{"later", time.Minute, "pause"}},
		{500, "", `{"message":"Server Error"}`, outcome{"again", 0, "GitHub answered 500"}},
		{502, "", `<html>`, outcome{"again", 0, "GitHub answered 502"}},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			if name, value, ok := strings.Cut(tc.header, ": "); ok {
				w.Header().Set(name, value)
			}
			say(w, tc.status, tc.body)
		})
		d := delivery("acme/widgets#7", "x")
		tc.want.check(t, loadChannel(t, "github hush-1 {\n url "+s.URL+"\n}").Send(t.Context(), d))
		if d.Sent != 0 || d.LastStatus != tc.status || d.LastAnswer != tc.body {
			t.Errorf("noted: %+v", d)
		}
	}
	for _, status := range []int{403, 429} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
			w.Header().Set("X-RateLimit-Remaining", "0")
			w.Header().Set("X-RateLimit-Reset", soon)
			say(w, status, `{"message":"API rate limit exceeded"}`)
		})
		err := loadChannel(t, "github hush-1 {\n url "+s.URL+"\n}").Send(t.Context(), delivery("acme/widgets#7", "x"))
		var later *engine.RetryLaterError
		if !errors.As(err, &later) || later.After < time.Second || later.After > 91*time.Second || !later.WholeChannel {
			t.Errorf("%d: got %+v", status, err)
		}
	}
}

func TestResetsAreBounded(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"": 0, "x": 0, "0": 0, "-5": 0, "9223372036854775807": 0, "99999999999999999999": 0, "9223372036": 24 * time.Hour, "1": time.Second,
	} {
		if got := readReset(value, time.Second); got != want {
			t.Errorf("%q is %s", value, got)
		}
	}
}

func TestGitHubChats(t *testing.T) {
	t.Parallel()
	channel := new(GitHub)
	for _, to := range []string{"acme/widgets#7", "a/b#1", "Acme-Inc/my.repo_1-x#4294967295", "octo_corp/.github#12"} {
		if err := channel.ValidTo(to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, to := range []string{"", "acme", "acme/widgets", "acme/widgets#", "acme/widgets#0", "acme/widgets#07", "acme/widgets#-1", "acme/widgets#7#8", "acme/widgets!7",
		"acme/../x#7", "acme/..#7", "acme/.#7", "../x#7", "-a/b#1", "acme/wid gets#7", "acme/widgets#7\n", "acme/widgets#７", "acme/wídgets#7", "a/b/c#7", "/b#7", "a/#7",
		"acme/widgets%2F..#7", "acme/widgets?x#7", "acme/widgets#7/comments", strings.Repeat("a", 101) + "/b#1", "a/" + strings.Repeat("b", 101) + "#1", "a/b#12345678901"} {
		if err := channel.ValidTo(to); err == nil || !strings.Contains(err.Error(), "owner/repository#123") {
			t.Errorf("%q: %v", to, err)
		}
	}
}

// app is a fake of api.github.com for apps: installation 99 is in acme/widgets, and has tokens that are made for it.
type app struct {
	*service
	*thread
	keyFile string
	made    int
	expires time.Duration
	revoked bool // whether tokens so far are refused
}

func startApp(t *testing.T) *app {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	a := &app{thread: new(thread), keyFile: filepath.Join(t.TempDir(), "app.pem"), expires: time.Hour}
	data := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(a.keyFile, data, 0o600); err != nil {
		t.Fatal(err)
	}
	a.service = startService(t, func(w http.ResponseWriter, r request, _ int) {
		bearer := strings.TrimPrefix(r.header.Get("Authorization"), "Bearer ")
		asApp := strings.HasPrefix(r.path, "/app") || strings.HasSuffix(r.path, "/installation")
		current := fmt.Sprintf("ghs_secret%d", a.made)
		switch {
		case asApp && !isSigned(bearer, &key.PublicKey):
			say(w, 401, `{"message":"A JSON web token could not be decoded"}`)
		case r.method == "GET" && r.path == "/repos/acme/widgets/installation":
			say(w, 200, `{"id":99,"account":{"login":"acme"},"app_id":12345,"app_slug":"helper"}`)
		case r.method == "GET" && r.path == "/app":
			say(w, 200, `{"id":12345,"slug":"helper","name":"Helper"}`)
		case r.method == "POST" && r.path == "/app/installations/99/access_tokens":
			if r.body != `{"repositories":["widgets"]}` {
				say(w, 422, `{"message":"There is at least one repository that does not exist or is not accessible to the parent installation."}`)
				return
			}
			a.made++
			a.revoked = false
			say(w, 201, fmt.Sprintf(`{"token":"ghs_secret%d","expires_at":%q,"permissions":{"issues":"write"}}`, a.made, time.Now().Add(a.expires).UTC().Format(time.RFC3339)))
		case asApp:
			say(w, 404, `{"message":"Not Found"}`)
		case bearer != current || a.revoked:
			say(w, 401, `{"message":"Bad credentials: `+bearer+`"}`)
		default:
			answerGitHub(t, w, r, a.thread)
		}
	})
	return a
}

// isSigned checks a JWT as GitHub does: RS256, issued in the past, valid for ten minutes at most.
func isSigned(token string, key *rsa.PublicKey) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	decode := func(text string) []byte { data, _ := base64.RawURLEncoding.DecodeString(text); return data }
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	var header struct{ Alg, Typ string }
	var claims struct {
		Iat, Exp int64
		Iss      string
	}
	now := time.Now().Unix()
	return json.Unmarshal(decode(parts[0]), &header) == nil && header.Alg == "RS256" && header.Typ == "JWT" &&
		json.Unmarshal(decode(parts[1]), &claims) == nil && claims.Iss == "12345" && claims.Iat <= now && claims.Exp > now && claims.Exp-claims.Iat <= 600 &&
		rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], decode(parts[2])) == nil
}

func (a *app) load(t *testing.T, more string) engine.Channel {
	return loadChannel(t, "github {\n app 12345 "+a.keyFile+" "+more+"\n url "+a.URL+"\n}")
}

func (a *app) paths() (paths []string) {
	for _, r := range a.seen() {
		paths = append(paths, r.method+" "+r.path)
	}
	return paths
}

func TestGitHubAppGetsATokenAndKeepsIt(t *testing.T) {
	t.Parallel()
	const lookup, make, comment = "GET /repos/acme/widgets/installation", "POST /app/installations/99/access_tokens", "POST /repos/acme/widgets/issues/7/comments"
	a := startApp(t)
	channel := a.load(t, "")
	for range 3 {
		if err := channel.Send(t.Context(), delivery("acme/widgets#7", "x")); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.paths(); !slices.Equal(got, []string{lookup, make, comment, comment, comment}) {
		t.Errorf("got %q", got)
	}
	// A token that is refused is replaced at the next attempt.
	a.revoked = true
	d := delivery("acme/widgets#7", "y")
	err := channel.Send(t.Context(), d)
	outcome{kind: "again", words: "next attempt"}.check(t, err)
	if strings.Contains(d.LastAnswer+err.Error(), "ghs_") {
		t.Errorf("the token is shown: %s", d.LastAnswer)
	}
	if err := channel.Send(t.Context(), d); err != nil || a.made != 2 {
		t.Errorf("%d tokens: %v", a.made, err)
	}
	// One that has nearly expired is not used again.
	a = startApp(t)
	a.expires = 30 * time.Second
	channel = a.load(t, "99")
	for range 2 {
		if err := channel.Send(t.Context(), delivery("acme/widgets#7", "x")); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.paths(); !slices.Equal(got, []string{make, comment, make, comment}) {
		t.Errorf("got %q", got)
	}
	authors, err := channel.(engine.AuthorChannel).Authors(t.Context())
	if err != nil || !slices.Equal(authors, []string{"helper[bot]"}) {
		t.Errorf("the authors are %q: %v", authors, err)
	}
}

func TestGitHubAppThatIsRefused(t *testing.T) {
	t.Parallel()
	a, other := startApp(t), startApp(t)
	outcome{kind: "final", words: "not installed"}.check(t, a.load(t, "").Send(t.Context(), delivery("acme/other#7", "x")))
	outcome{kind: "final", words: "does not include"}.check(t, a.load(t, "99").Send(t.Context(), delivery("acme/other#7", "x")))
	outcome{kind: "final", words: "no such installation"}.check(t, a.load(t, "98").Send(t.Context(), delivery("acme/widgets#7", "x")))
	outcome{kind: "final", words: "by this id and key"}.check(t, loadChannel(t, "github {\n app 12345 "+other.keyFile+"\n url "+a.URL+"\n}").Send(t.Context(), delivery("acme/widgets#7", "x")))
	for _, answer := range []string{`{}`, `{"token":"ghs_loud"}`, `{"token":"a b","expires_at":"2099-01-01T00:00:00Z"}`, `{"token":"ghs_loud","expires_at":7}`, `["ghs_loud"]`} {
		s := startService(t, func(w http.ResponseWriter, r request, _ int) { say(w, 201, answer) })
		d := delivery("acme/widgets#7", "x")
		err := loadChannel(t, "github {\n app 12345 "+a.keyFile+" 99\n url "+s.URL+"\n}").Send(t.Context(), d)
		outcome{kind: "again", words: "not what GitHub would say"}.check(t, err)
		if d.LastAnswer != "" {
			t.Errorf("kept is %q", d.LastAnswer)
		}
	}
}

func TestGitHubAppFromACaddyfile(t *testing.T) {
	a := startApp(t)
	t.Setenv("GITHUB_KEY", a.keyFile)
	none := filepath.Join(t.TempDir(), "none.pem")
	if err := os.WriteFile(none, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, _ := x509.MarshalPKCS8PrivateKey(key)
	converted := filepath.Join(t.TempDir(), "pkcs8.pem")
	if err := os.WriteFile(converted, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600); err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]string{
		"github {\n app 12345 " + a.keyFile + "\n}":                 "",
		"github {\n app Iv1.0123456789abcdef {env.GITHUB_KEY} 7\n}": "",
		"github {\n app 1 " + converted + "\n}":                     "",
		"github hush {\n allow_to acme/* acme/widgets#7 x/y\n}":     "",
		"github": "needs a token, or app",
		"github hush {\n app 1 " + a.keyFile + "\n}": "and not both",
		"github hush hush":                           "takes one secret",
		`github ""`:                                  "must not be blank",
		"github {\n app 1\n}":                        "app takes the id",
		"github {\n app 1 a b c\n}":                  "app takes the id",
		"github {\n app x/y " + a.keyFile + "\n}":    "the id of the app",
		"github {\n app 1 " + a.keyFile + " x\n}":    "the id of the installation",
		"github {\n app 1 /not/there\n}":             "reading the key file /not/there",
		"github {\n app 1 " + none + "\n}":           "has no private key in PEM",
		"github hush {\n allow_to acme\n}":           "allow_to 'acme' is refused",
		"github hush {\n token x\n}":                 "channel github takes app, url, timeout and allow_to",
	} {
		_, err := tryLoadChannel(t, config)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%q: got %v", config, err)
		}
	}
}
