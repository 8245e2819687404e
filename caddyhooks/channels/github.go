package channels

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func init() {
	caddy.RegisterModule(GitHub{})
}

// GitHub is a channel that posts answers as comments on issues and pull requests, with the token of a user or as a GitHub App. A chat
// is owner/repository#number. The url is that of the REST API; on GitHub Enterprise Server it ends with /api/v3.
//
// GitHub cannot tell a repeat: when its answer gets lost, a comment is posted twice.
type GitHub struct {
	API

	// The GitHub App that comments, in place of a token: its id, the PEM file with its private key, and the id of the installation to
	// use. Default of the installation: that of the repository.
	App *GitHubApp `json:"app,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (GitHub) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.github",
		New: func() caddy.Module { return new(GitHub) },
	}
}

// Provision sets up the channel.
func (g *GitHub) Provision(caddy.Context) error {
	if (g.Token == "") == (g.App == nil) {
		return errors.New("channel github needs a token, or app <id> <key file> in its block, and not both")
	}
	if g.App != nil {
		if err := g.App.provision(); err != nil {
			return err
		}
	}
	g.splitTo = splitAtNumber
	return g.provision("github", "https://api.github.com", checkBaseURL, entriesOf(g.ValidTo))
}

// UnmarshalCaddyfile parses:
//
//	channel <name> github [<token>] {
//		app      <id> <key file> [<installation>]
//		url      <url>
//		timeout  <duration>
//		allow_to <to>...
//	}
func (g *GitHub) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	// Errors do not quote the arguments: one is a secret.
	args := d.RemainingArgs()
	if len(args) > 1 || len(args) == 1 && strings.TrimSpace(args[0]) == "" {
		return d.Err("channel github takes one secret, a token, which must not be blank" + caddyconf.Unset)
	}
	g.Token = strings.Join(args, "")
	return caddyconf.ReadBlock(d, "channel github",
		caddyconf.Set("app", &g.App, readGitHubApp),
		caddyconf.Set("url", &g.URL, caddyconf.CheckedText(checkBaseURL)), timeoutDirective(&g.Timeout),
		g.allowDirective(entriesOf(g.ValidTo)))
}

var githubIssue = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_-]{0,99}/[A-Za-z0-9._-]{1,100})#([1-9][0-9]{0,9})$`)

// ValidTo takes issues and pull requests.
func (*GitHub) ValidTo(to string) error {
	if repo, number := splitGitHub(to); number == "" || strings.HasSuffix(repo, "/.") || strings.HasSuffix(repo, "/..") {
		return errors.New("a chat on GitHub is an issue or a pull request, written as owner/repository#123")
	}
	return nil
}

// splitGitHub returns the repository and the number of an issue. The number is missing if this is something else.
func splitGitHub(to string) (repo, number string) {
	if found := githubIssue.FindStringSubmatch(to); found != nil {
		return found[1], found[2]
	}
	return to, ""
}

// splitAtNumber is the splitTo of channels whose threads are issues and merge requests: repository#1 and repository!1.
func splitAtNumber(to string) (chat, thread string) {
	if i := strings.IndexAny(to, "#!"); i >= 0 {
		return to[:i], to[i:]
	}
	return to, ""
}

// entriesOf takes a whole repository or project for allow_to, besides what validTo takes.
func entriesOf(validTo func(to string) error) func(entry string) error {
	return func(entry string) error {
		if validTo(entry+"#1") == nil {
			return nil
		}
		return validTo(entry)
	}
}

type githubComment struct {
	Body string `json:"body"`
}

var githubSplitter = splitter{limit: 65536, size: quietLength}

// commentID is the form of the id of a comment on GitHub or GitLab.
var commentID = regexp.MustCompile(`^[1-9][0-9]{0,18}$`)

// Send comments on the issue, in as many comments as it takes.
func (g *GitHub) Send(ctx context.Context, d *engine.Delivery) error {
	return sendEdited(ctx, g, d, githubSplitter, commentID)
}

// Begin comments that an answer is being worked on.
func (g *GitHub) Begin(ctx context.Context, to, text string) (string, error) {
	return beginEdited(ctx, g, to, text, githubSplitter, commentID)
}

// Withdraw deletes the comment of Begin.
func (g *GitHub) Withdraw(ctx context.Context, to, progress string) error {
	return withdrawEdited(ctx, g, to, progress, commentID)
}

func (g *GitHub) post(ctx context.Context, d *engine.Delivery, text string) (id string, err error) {
	repo, number := splitGitHub(d.To)
	return g.comment(ctx, d, repo, http.MethodPost, "/issues/"+number+"/comments", text)
}

func (g *GitHub) edit(ctx context.Context, d *engine.Delivery, id, text string) error {
	repo, _ := splitGitHub(d.To)
	_, err := g.comment(ctx, d, repo, http.MethodPatch, "/issues/comments/"+id, text)
	return err
}

func (g *GitHub) remove(ctx context.Context, d *engine.Delivery, id string) error {
	repo, _ := splitGitHub(d.To)
	return g.inRepository(ctx, d, repo, http.MethodDelete, "/issues/comments/"+id, nil, func(map[string]any) bool { return true })
}

// comment sends a text and returns the id of the comment that has it.
func (g *GitHub) comment(ctx context.Context, d *engine.Delivery, repo, method, path, text string) (id string, err error) {
	body := encodeJSON(githubComment{Body: quietMarkdown(text)})
	err = g.inRepository(ctx, d, repo, method, path, body, func(answer map[string]any) bool {
		number, _ := answer["id"].(json.Number)
		_, hasText := answer["body"].(string)
		id = string(number)
		return commentID.MatchString(id) && hasText
	})
	return id, err
}

// inRepository calls a path of a repository with the token that there is for it.
func (g *GitHub) inRepository(
	ctx context.Context, d *engine.Delivery, repo, method, path string, body []byte, read func(answer map[string]any) bool,
) error {
	if g.App == nil {
		return g.ask(ctx, d, g.token, method, "/repos/"+repo+path, body, read)
	}
	token, err := g.App.tokenFor(ctx, g, d, repo)
	if err != nil {
		return err
	}
	err = g.ask(ctx, d, token, method, "/repos/"+repo+path, body, read)
	if d.LastStatus == http.StatusUnauthorized && err != nil {
		g.App.forget(repo)
		return errors.New("GitHub takes the token of the app's installation no longer; the next attempt gets a new one")
	}
	return err
}

// ask sends a request. read reports whether an answer of 2xx is one that GitHub would give.
func (g *GitHub) ask(
	ctx context.Context, d *engine.Delivery, token, method, path string, body []byte, read func(answer map[string]any) bool,
) error {
	req, err := g.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	return g.callReading(d, req, func(o *outbound.Outcome, header http.Header, answer map[string]any) {
		if !o.Delivered {
			judgeGitHub(o, header, answer)
		} else if !read(answer) {
			markUnexpected(o, "GitHub")
		}
	})
}

// judgeGitHub reads {"message": …}. A limit is told by a status that has other meanings, too.
func judgeGitHub(o *outbound.Outcome, header http.Header, answer map[string]any) {
	message, _ := answer["message"].(string)
	message = strings.ToLower(message)
	forbidden := o.Status == http.StatusForbidden || o.Status == http.StatusTooManyRequests
	limited := strings.Contains(message, "rate limit") || strings.Contains(message, "abuse detection")
	switch {
	case !forbidden:
	case o.RetryAfter > 0:
		limited = true
	case header.Get("X-RateLimit-Remaining") == "0":
		limited = true
		o.RetryAfter = readReset(header.Get("X-RateLimit-Reset"), time.Second)
	}
	if forbidden && limited {
		o.Final, o.WholeChannel = false, true
		o.RetryAfter = cmp.Or(o.RetryAfter, time.Minute)
		o.Reason = answerReason("GitHub", o.Status, "it asks for a pause")
		return
	}
	o.Reason = answerReason("GitHub", o.Status, explainGitHub(o.Status, message))
}

// githubReasons explains messages, which are no part of the API, to an operator.
var githubReasons = []struct{ words, why string }{
	{"issue is locked", "the conversation is locked"},
	{"archived", "the repository is archived"},
	{"not accessible by", "the token may not comment: it needs the permission to write issues and pull requests"},
	{"saml", "the organisation wants the token to be authorised for its single sign-on"},
	{"blocked", "the repository has blocked the author of this channel"},
	{"ip allow list", "the organisation does not take requests from this address"},
	{"suspended", "the account or the installation of the app is suspended"},
	{"too long", "the comment is too long for it"},
}

func explainGitHub(status int, message string) string {
	for _, reason := range githubReasons {
		if strings.Contains(message, reason.words) {
			return reason.why
		}
	}
	switch status {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return "the repository or the issue has another name now, and redirects are not followed"
	case http.StatusNotFound:
		return "there is no such repository or issue, or the token of this channel may not see it"
	case http.StatusGone:
		return "the issue has been deleted, or the repository has no issues"
	case http.StatusUnprocessableEntity:
		return "it does not take the comment"
	}
	return explainStatus(status)
}

// Authors returns the login of the user or the app that comments.
func (g *GitHub) Authors(ctx context.Context) ([]string, error) {
	token, path, member, suffix := g.token, "/user", "login", ""
	if g.App != nil {
		token, path, member, suffix = g.App.sign(time.Now()), "/app", "slug", "[bot]"
	}
	var name string
	err := g.ask(ctx, new(engine.Delivery), token, http.MethodGet, path, nil, func(answer map[string]any) bool {
		name, _ = answer[member].(string)
		return accountName.MatchString(name)
	})
	if err != nil {
		return nil, err
	}
	return []string{name + suffix}, nil
}

// Interface guards
var (
	_ engine.Channel         = (*GitHub)(nil)
	_ engine.ProgressChannel = (*GitHub)(nil)
	_ engine.AuthorChannel   = (*GitHub)(nil)
	_ caddy.Provisioner      = (*GitHub)(nil)
	_ caddy.CleanerUpper     = (*GitHub)(nil)
	_ caddyfile.Unmarshaler  = (*GitHub)(nil)
)
