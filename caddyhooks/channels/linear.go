package channels

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func init() {
	caddy.RegisterModule(Linear{})
}

// Linear is a channel that posts answers as comments on issues, with a personal API key or an OAuth token. A chat is the id of an
// issue, or its name, such as ENG-123. The url is that of the GraphQL API.
//
// Linear cannot tell a repeat: when its answer gets lost, a comment is posted twice.
type Linear struct {
	API
}

// CaddyModule returns the Caddy module information.
func (Linear) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.linear",
		New: func() caddy.Module { return new(Linear) },
	}
}

// Provision sets up the channel.
func (l *Linear) Provision(caddy.Context) error {
	return l.provisionBot("linear", "https://api.linear.app/graphql", l.ValidTo)
}

// UnmarshalCaddyfile parses:
//
//	channel <name> linear <token> {
//		url      <url>
//		timeout  <duration>
//		allow_to <to>...
//	}
func (l *Linear) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return l.unmarshalBot(d, "linear", l.ValidTo)
}

var (
	linearIssue = regexp.MustCompile(`^[A-Z][A-Z0-9]{0,9}-[1-9][0-9]{0,8}$`)
	linearID    = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// ValidTo takes ids and names of issues.
func (*Linear) ValidTo(to string) error {
	if !linearIssue.MatchString(to) && !linearID.MatchString(to) {
		return errors.New("a chat on Linear is an issue: its name, such as ENG-123, or its id, a UUID in small letters")
	}
	return nil
}

// linearRequest is a request of GraphQL.
type linearRequest struct {
	Query     string          `json:"query"`
	Variables linearVariables `json:"variables"`
}

type linearVariables struct {
	ID    string         `json:"id,omitempty"`
	Input *linearComment `json:"input,omitempty"`
}

// linearComment is a CommentCreateInput, or a CommentUpdateInput if it has no issue.
type linearComment struct {
	Issue string `json:"issueId,omitempty"`
	Body  string `json:"body"`
}

const (
	linearCreate = `mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id } } }`
	linearUpdate = `mutation($id: String!, $input: CommentUpdateInput!) { commentUpdate(id: $id, input: $input) { success comment { id } } }`
	linearDelete = `mutation($id: String!) { commentDelete(id: $id) { success } }`
	linearViewer = `query { viewer { id } }`
)

// Linear documents no limit.
var linearSplitter = splitter{limit: 65536, size: quietLength}

// Send comments on the issue, in as many comments as it takes.
func (l *Linear) Send(ctx context.Context, d *engine.Delivery) error {
	return sendEdited(ctx, l, d, linearSplitter, linearID)
}

// Begin comments that an answer is being worked on.
func (l *Linear) Begin(ctx context.Context, to, text string) (string, error) {
	return beginEdited(ctx, l, to, text, linearSplitter, linearID)
}

// Withdraw deletes the comment of Begin.
func (l *Linear) Withdraw(ctx context.Context, to, progress string) error {
	return withdrawEdited(ctx, l, to, progress, linearID)
}

func (l *Linear) post(ctx context.Context, d *engine.Delivery, text string) (id string, err error) {
	variables := linearVariables{Input: &linearComment{Issue: d.To, Body: quietMarkdown(text)}}
	err = l.ask(ctx, d, linearCreate, variables, func(data map[string]any) bool {
		made, _ := data["commentCreate"].(map[string]any)
		comment, _ := made["comment"].(map[string]any)
		id, _ = comment["id"].(string)
		return made["success"] == true && linearID.MatchString(id)
	})
	return id, err
}

func (l *Linear) edit(ctx context.Context, d *engine.Delivery, id, text string) error {
	variables := linearVariables{ID: id, Input: &linearComment{Body: quietMarkdown(text)}}
	return l.ask(ctx, d, linearUpdate, variables, succeeded("commentUpdate"))
}

func (l *Linear) remove(ctx context.Context, d *engine.Delivery, id string) error {
	return l.ask(ctx, d, linearDelete, linearVariables{ID: id}, succeeded("commentDelete"))
}

func succeeded(mutation string) func(data map[string]any) bool {
	return func(data map[string]any) bool {
		made, _ := data[mutation].(map[string]any)
		return made["success"] == true
	}
}

// ask sends a request. read reports whether data is what Linear would answer.
func (l *Linear) ask(ctx context.Context, d *engine.Delivery, query string, v linearVariables, read func(data map[string]any) bool) error {
	req, err := l.request(ctx, http.MethodPost, "", encodeJSON(linearRequest{Query: query, Variables: v}))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+l.token)
	if strings.HasPrefix(l.token, "lin_api_") {
		req.Header.Set("Authorization", l.token) // Linear wants its API keys bare
	}
	return l.callReading(d, req, func(o *outbound.Outcome, header http.Header, answer map[string]any) {
		judgeLinear(o, header, answer)
		data, _ := answer["data"].(map[string]any)
		if o.Delivered && !read(data) {
			markUnexpected(o, "Linear")
		}
	})
}

// judgeLinear reads {"errors": [{"message": …, "extensions": {"type": …, "code": …}}]}, which comes with several statuses, 200 among them.
func judgeLinear(o *outbound.Outcome, header http.Header, answer map[string]any) {
	errs, _ := answer["errors"].([]any)
	if len(errs) == 0 {
		if !o.Delivered {
			o.Reason = answerReason("Linear", o.Status, explainStatus(o.Status))
		}
		return
	}
	first, _ := errs[0].(map[string]any)
	extensions, _ := first["extensions"].(map[string]any)
	message, _ := first["message"].(string)
	kind, _ := extensions["type"].(string)
	if extensions["code"] == "RATELIMITED" {
		kind = "ratelimited"
	}
	if kind = strings.ToLower(kind); linearReasons[kind] == "" {
		kind = "unknown"
	}
	why := linearReasons[kind]
	if strings.Contains(strings.ToLower(message), "not found") {
		kind, why = "invalid input", "there is no such issue or comment, or the token of this channel may not see it"
	}
	o.Delivered, o.Final = false, o.Status < 500 && !linearTemporary[kind]
	if kind == "ratelimited" {
		requests := readReset(header.Get("X-RateLimit-Requests-Reset"), time.Millisecond)
		complexity := readReset(header.Get("X-RateLimit-Complexity-Reset"), time.Millisecond)
		o.RetryAfter, o.WholeChannel = cmp.Or(o.RetryAfter, max(requests, complexity), time.Minute), true
	}
	o.Reason = answerReason("Linear", kind, why)
}

// linearTemporary has the types of errors for which another attempt may help.
var linearTemporary = map[string]bool{
	"ratelimited": true, "network error": true, "internal error": true, "bootstrap error": true, "lock timeout": true, "unknown": true,
}

// linearReasons explains the types of errors to an operator.
var linearReasons = map[string]string{
	"authentication error":   "it does not know the token of this channel",
	"forbidden":              "the token of this channel may not comment there: it needs the scope comments:create or write",
	"feature not accessible": "the workspace may not use this",
	"usage limit exceeded":   "the workspace has reached a limit of its plan",
	"invalid input":          "it does not take the comment",
	"user error":             "it does not take the comment",
	"graphql error":          "it does not understand the request; the url of this channel may be wrong",
	"other":                  "it does not say why",
	"ratelimited":            "it asks for a pause",
	"network error":          "it has a problem of its own",
	"internal error":         "it has a problem of its own",
	"bootstrap error":        "it has a problem of its own",
	"lock timeout":           "it has a problem of its own",
	"unknown":                "it does not say why",
}

// Authors returns the id of the user or the app that comments.
func (l *Linear) Authors(ctx context.Context) ([]string, error) {
	var id string
	err := l.ask(ctx, new(engine.Delivery), linearViewer, linearVariables{}, func(data map[string]any) bool {
		viewer, _ := data["viewer"].(map[string]any)
		id, _ = viewer["id"].(string)
		return linearID.MatchString(id)
	})
	if err != nil {
		return nil, err
	}
	return []string{id}, nil
}

// Interface guards
var (
	_ engine.Channel         = (*Linear)(nil)
	_ engine.ProgressChannel = (*Linear)(nil)
	_ engine.AuthorChannel   = (*Linear)(nil)
	_ caddy.Provisioner      = (*Linear)(nil)
	_ caddy.CleanerUpper     = (*Linear)(nil)
	_ caddyfile.Unmarshaler  = (*Linear)(nil)
)
