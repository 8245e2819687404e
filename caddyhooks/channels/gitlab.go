package channels

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func init() {
	caddy.RegisterModule(GitLab{})
}

// GitLab is a channel that posts answers as comments on issues and merge requests, with a token of the scope api. A chat is
// group/project#number, or group/project!number of a merge request. The url is that of the REST API, with its version.
//
// GitLab cannot tell a repeat: when its answer gets lost, a comment is posted twice.
type GitLab struct {
	API
}

// CaddyModule returns the Caddy module information.
func (GitLab) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.gitlab",
		New: func() caddy.Module { return new(GitLab) },
	}
}

// Provision sets up the channel.
func (g *GitLab) Provision(caddy.Context) error {
	g.splitTo = splitAtNumber
	return g.provisionBot("gitlab", "https://gitlab.com/api/v4", entriesOf(g.ValidTo))
}

// UnmarshalCaddyfile parses:
//
//	channel <name> gitlab <token> {
//		url      <url>
//		timeout  <duration>
//		allow_to <to>...
//	}
func (g *GitLab) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return g.unmarshalBot(d, "gitlab", entriesOf(g.ValidTo))
}

var gitlabChat = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.][A-Za-z0-9_.-]*){1,20}[#!][1-9][0-9]{0,9}$`)

// ValidTo takes issues and merge requests.
func (*GitLab) ValidTo(to string) error {
	project, _ := splitAtNumber(to)
	for name := range strings.SplitSeq(project, "/") {
		if strings.Trim(name, ".") == "" || len(name) > 255 || !gitlabChat.MatchString(to) {
			return errors.New("a chat on GitLab is an issue, such as group/project#123, or a merge request, such as group/project!123")
		}
	}
	return nil
}

type gitlabNote struct {
	Body string `json:"body"`
}

// GitLab takes a million characters, which nobody would read.
var gitlabSplitter = splitter{limit: 65536, size: quietLength}

// Send comments on the issue or merge request, in as many comments as it takes.
func (g *GitLab) Send(ctx context.Context, d *engine.Delivery) error {
	return sendEdited(ctx, g, d, gitlabSplitter, commentID)
}

// Begin comments that an answer is being worked on.
func (g *GitLab) Begin(ctx context.Context, to, text string) (string, error) {
	return beginEdited(ctx, g, to, text, gitlabSplitter, commentID)
}

// Withdraw deletes the comment of Begin.
func (g *GitLab) Withdraw(ctx context.Context, to, progress string) error {
	return withdrawEdited(ctx, g, to, progress, commentID)
}

func (g *GitLab) post(ctx context.Context, d *engine.Delivery, text string) (id string, err error) {
	return g.note(ctx, d, http.MethodPost, "", text)
}

func (g *GitLab) edit(ctx context.Context, d *engine.Delivery, id, text string) error {
	_, err := g.note(ctx, d, http.MethodPut, "/"+id, text)
	return err
}

func (g *GitLab) remove(ctx context.Context, d *engine.Delivery, id string) error {
	return g.ask(ctx, d, http.MethodDelete, notesOf(d.To)+"/"+id, nil, func(map[string]any) bool { return true })
}

// note sends a text and returns the id of the comment that has it.
func (g *GitLab) note(ctx context.Context, d *engine.Delivery, method, path, text string) (id string, err error) {
	body := encodeJSON(gitlabNote{Body: quietMarkdown(text)})
	err = g.ask(ctx, d, method, notesOf(d.To)+path, body, func(answer map[string]any) bool {
		number, _ := answer["id"].(json.Number)
		_, hasText := answer["body"].(string)
		id = string(number)
		return commentID.MatchString(id) && hasText
	})
	return id, err
}

// notesOf is the path of the comments on an issue or a merge request.
func notesOf(to string) string {
	project, thread := splitAtNumber(to)
	kind := "/issues/"
	if thread[0] == '!' {
		kind = "/merge_requests/"
	}
	return "/projects/" + url.PathEscape(project) + kind + thread[1:] + "/notes"
}

// ask sends a request. read reports whether an answer of 2xx is one that GitLab would give.
func (g *GitLab) ask(
	ctx context.Context, d *engine.Delivery, method, path string, body []byte, read func(answer map[string]any) bool,
) error {
	req, err := g.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Private-Token", g.token)
	return g.callReading(d, req, func(o *outbound.Outcome, header http.Header, answer map[string]any) {
		if !o.Delivered {
			judgeGitLab(o, header, answer)
		} else if !read(answer) {
			markUnexpected(o, "GitLab")
		}
	})
}

// judgeGitLab reads {"error": …}, which only some answers have.
func judgeGitLab(o *outbound.Outcome, header http.Header, answer map[string]any) {
	code, _ := answer["error"].(string)
	why := explainStatus(o.Status)
	switch {
	case o.Status == http.StatusTooManyRequests:
		o.RetryAfter = cmp.Or(o.RetryAfter, readReset(header.Get("RateLimit-Reset"), time.Second))
		o.WholeChannel = true
	case code == "insufficient_scope":
		why = "the token of this channel lacks the scope api"
	case o.Status == http.StatusForbidden:
		why = "the user of the token may not comment there, or the discussion is locked"
	case o.Status == http.StatusNotFound:
		why = "there is no such project, issue or merge request, or the user of the token may not see it"
	case o.Status == http.StatusRequestEntityTooLarge:
		why = "the comment is too long for it"
	}
	o.Reason = answerReason("GitLab", o.Status, why)
}

// Authors returns the id and the name of the user who comments.
func (g *GitLab) Authors(ctx context.Context) ([]string, error) {
	var id json.Number
	var name string
	err := g.ask(ctx, new(engine.Delivery), http.MethodGet, "/user", nil, func(answer map[string]any) bool {
		id, _ = answer["id"].(json.Number)
		name, _ = answer["username"].(string)
		return commentID.MatchString(string(id)) && accountName.MatchString(name)
	})
	if err != nil {
		return nil, err
	}
	return []string{string(id), name}, nil
}

// Interface guards
var (
	_ engine.Channel         = (*GitLab)(nil)
	_ engine.ProgressChannel = (*GitLab)(nil)
	_ engine.AuthorChannel   = (*GitLab)(nil)
	_ caddy.Provisioner      = (*GitLab)(nil)
	_ caddy.CleanerUpper     = (*GitLab)(nil)
	_ caddyfile.Unmarshaler  = (*GitLab)(nil)
)
