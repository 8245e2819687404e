package channels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	caddy.RegisterModule(Mattermost{})
}

// Mattermost is a channel that posts answers with the token of a bot on a server, whose url it has. A chat is the id of a channel, and
// <channel>/<post> is the thread that begins with the post.
//
// A server knows a repeat for half a minute, in which a message is posted once.
type Mattermost struct {
	API
}

// CaddyModule returns the Caddy module information.
func (Mattermost) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.mattermost",
		New: func() caddy.Module { return new(Mattermost) },
	}
}

// Provision sets up the channel.
func (m *Mattermost) Provision(caddy.Context) error {
	m.splitTo = splitAtSlash
	return m.provisionBot("mattermost", "", m.ValidTo)
}

// UnmarshalCaddyfile parses:
//
//	channel <name> mattermost <url> <token> {
//		timeout  <duration>
//		allow_to <to>...
//	}
func (m *Mattermost) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return m.unmarshalOnServer(d, "mattermost", "the URL of a server and one secret, the token of a bot", m.ValidTo)
}

var mattermostChat = regexp.MustCompile(`^[a-z0-9]{26}(?:/[a-z0-9]{26})?$`)

// ValidTo takes ids of channels, and threads in them.
func (*Mattermost) ValidTo(to string) error {
	if !mattermostChat.MatchString(to) {
		return errors.New("a chat on Mattermost is the id of a channel, 26 letters and digits such as 4xp9fdt77pncbef59f4k1qe83o; " +
			"a thread follows after a slash, with the id of its first post")
	}
	return nil
}

// mattermostPost is the body of a request that makes a post. A server that has seen the pending id answers with the post that it made.
type mattermostPost struct {
	Channel string `json:"channel_id"`
	Root    string `json:"root_id,omitempty"`
	Message string `json:"message"`
	Pending string `json:"pending_post_id,omitempty"`
}

type mattermostPatch struct {
	Message string `json:"message"`
}

var mattermostSplitter = splitter{limit: 16383, size: quietLength}

// mattermostID is the form of the id of a post.
var mattermostID = regexp.MustCompile(`^[a-z0-9]{26}$`)

// Send posts the answer, in as many posts as it takes.
func (m *Mattermost) Send(ctx context.Context, d *engine.Delivery) error {
	return sendEdited(ctx, m, d, mattermostSplitter, mattermostID)
}

// Begin posts that an answer is being worked on.
func (m *Mattermost) Begin(ctx context.Context, to, text string) (string, error) {
	return beginEdited(ctx, m, to, text, mattermostSplitter, mattermostID)
}

// Withdraw deletes the post of Begin.
func (m *Mattermost) Withdraw(ctx context.Context, to, progress string) error {
	return withdrawEdited(ctx, m, to, progress, mattermostID)
}

func (m *Mattermost) post(ctx context.Context, d *engine.Delivery, text string) (id string, err error) {
	p := mattermostPost{Message: quietMarkdown(text)}
	p.Channel, p.Root = splitAtSlash(d.To)
	if d.ID != "" {
		p.Pending = fmt.Sprintf("%s:%d", d.ID, d.Sent)
	}
	return m.ask(ctx, d, http.MethodPost, "/posts", encodeJSON(p), "id")
}

func (m *Mattermost) edit(ctx context.Context, d *engine.Delivery, id, text string) error {
	_, err := m.ask(ctx, d, http.MethodPut, "/posts/"+id+"/patch", encodeJSON(mattermostPatch{Message: quietMarkdown(text)}), "id")
	return err
}

func (m *Mattermost) remove(ctx context.Context, d *engine.Delivery, id string) error {
	_, err := m.ask(ctx, d, http.MethodDelete, "/posts/"+id, nil, "")
	return err
}

// ask sends a request, and returns the id that the answer has as a member.
func (m *Mattermost) ask(ctx context.Context, d *engine.Delivery, method, path string, body []byte, member string) (id string, err error) {
	req, err := m.request(ctx, method, "/api/v4"+path, body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+m.token)
	err = m.callReading(d, req, func(o *outbound.Outcome, header http.Header, answer map[string]any) {
		if !o.Delivered {
			judgeMattermost(o, header, answer)
		} else if id, _ = answer[member].(string); member != "" && !mattermostID.MatchString(id) {
			markUnexpected(o, "a Mattermost server")
		}
	})
	return id, err
}

// judgeMattermost reads {"id": …}, the name of an error.
func judgeMattermost(o *outbound.Outcome, header http.Header, answer map[string]any) {
	name, _ := answer["id"].(string)
	why := explainStatus(o.Status)
	switch {
	case o.Status == http.StatusTooManyRequests:
		// Here, X-RateLimit-Reset is a number of seconds from now.
		o.RetryAfter = cmp.Or(o.RetryAfter, outbound.RetryAfter(header.Get("X-RateLimit-Reset"), time.Now()))
		o.WholeChannel = true
	case strings.Contains(name, "root_id"):
		why = "there is no such thread in the channel"
	case strings.Contains(name, "can_not_post_to_deleted"):
		why = "the channel is archived"
	case o.Status == http.StatusForbidden:
		why = "the bot is not a member of the channel, or may not post there"
	case o.Status == http.StatusNotFound:
		why = "there is no such channel, or the url of this channel is wrong"
	}
	o.Reason = answerReason("the Mattermost server", o.Status, why)
}

// Authors returns the id of the bot.
func (m *Mattermost) Authors(ctx context.Context) ([]string, error) {
	id, err := m.ask(ctx, new(engine.Delivery), http.MethodGet, "/users/me", nil, "id")
	if err != nil {
		return nil, err
	}
	return []string{id}, nil
}

// Interface guards
var (
	_ engine.Channel         = (*Mattermost)(nil)
	_ engine.ProgressChannel = (*Mattermost)(nil)
	_ engine.AuthorChannel   = (*Mattermost)(nil)
	_ caddy.Provisioner      = (*Mattermost)(nil)
	_ caddy.CleanerUpper     = (*Mattermost)(nil)
	_ caddyfile.Unmarshaler  = (*Mattermost)(nil)
)
