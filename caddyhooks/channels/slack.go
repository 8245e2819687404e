package channels

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func init() {
	caddy.RegisterModule(Slack{})
}

// Slack is a channel that posts answers with the token of a Slack app, which has to have the scope chat:write. A chat is
// the id of a channel, a group, a direct message or a user, or the #name of a channel. The url is that of the Web API.
//
// Slack makes pictures of :names: in every text, and may make links of addresses, though it is asked not to. It cannot tell a
// repeat: when its answer gets lost, a message is posted twice.
type Slack struct {
	API
}

// CaddyModule returns the Caddy module information.
func (Slack) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.slack",
		New: func() caddy.Module { return new(Slack) },
	}
}

// Provision sets up the channel.
func (s *Slack) Provision(caddy.Context) error {
	return s.provisionBot("slack", "https://slack.com/api", s.ValidTo)
}

// UnmarshalCaddyfile parses:
//
//	channel <name> slack <token> {
//		url      <url>
//		timeout  <duration>
//		allow_to <to>...
//	}
func (s *Slack) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return s.unmarshalBot(d, "slack", s.ValidTo)
}

var slackChat = regexp.MustCompile(`^(?:[CGDUW][A-Z0-9]{1,40}|#[\p{Ll}\p{Lo}\p{Lm}\p{M}\p{N}_.-]{1,80})$`)

// ValidTo takes ids, and names of channels.
func (*Slack) ValidTo(to string) error {
	if !slackChat.MatchString(to) {
		return errors.New("a chat on Slack is an id that begins with C, G, D, U or W, such as C0123456789, " +
			"or the name of a channel, such as #general")
	}
	return nil
}

// slackMessage is the body of chat.postMessage.
type slackMessage struct {
	Channel     string `json:"channel"`
	Text        string `json:"text"`
	Mrkdwn      bool   `json:"mrkdwn"`
	Parse       string `json:"parse"`
	LinkNames   bool   `json:"link_names"`
	UnfurlLinks bool   `json:"unfurl_links"`
	UnfurlMedia bool   `json:"unfurl_media"`
}

// Slack recommends this limit, and takes ten times as much.
var slackSplitter = splitter{limit: 4000, size: func(text string) int { return utf16Length(escapeSlack.Replace(text)) }}

// escapeSlack escapes the characters that mentions and links are written with. The fields of the message do the rest: parse
// none asks Slack not to look for bare addresses, and without link_names it does not look for @names and #channels.
var escapeSlack = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Send posts the answer, in as many messages as it takes.
func (s *Slack) Send(ctx context.Context, d *engine.Delivery) error {
	if err := s.ValidTo(d.To); err != nil {
		return &engine.FinalError{Err: err}
	}
	return sendParts(d, slackSplitter.split(cleanText(d.Body), d.RunID), func(part string) error {
		body := encodeJSON(slackMessage{Channel: d.To, Text: escapeSlack.Replace(part), Parse: "none"})
		req, err := s.request(ctx, http.MethodPost, "/chat.postMessage", body)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+s.token)
		return s.call(d, req, judgeSlack)
	})
}

var slackError = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// judgeSlack reads {"ok": …}, which Slack sends with the status 200 also when it refuses something.
func judgeSlack(o *outbound.Outcome, answer map[string]any) {
	code, _ := answer["error"].(string)
	switch {
	case o.Delivered && answer["ok"] == true:
		return
	case answer["ok"] == false && slackError.MatchString(code):
		if o.Delivered {
			o.Final = !slackTemporary[code]
		}
		o.Delivered = false
		o.Reason = answerReason("Slack", code, slackReasons[code])
	case o.Delivered:
		markUnexpected(o, "Slack")
	default:
		o.Reason = answerReason("Slack", o.Status, explainStatus(o.Status))
	}
}

// slackTemporary has the errors for which another attempt may help.
var slackTemporary = map[string]bool{
	"ratelimited": true, "rate_limited": true, "message_limit_exceeded": true,
	"internal_error": true, "fatal_error": true, "service_unavailable": true, "request_timeout": true,
	"team_added_to_org": true, "org_login_required": true, // while a workspace is moved
}

// slackReasons explains error codes to an operator.
var slackReasons = map[string]string{
	"channel_not_found":                     "there is no such channel, or the app has not been invited to it",
	"not_in_channel":                        "the app has not been invited to the channel",
	"is_archived":                           "the channel is archived",
	"missing_scope":                         "the app lacks the scope chat:write",
	"no_permission":                         "the app may not post in the channel",
	"access_denied":                         "the app may not post in the channel",
	"restricted_action":                     "the workspace does not let the app post",
	"restricted_action_read_only_channel":   "nobody may post in the channel",
	"restricted_action_thread_only_channel": "only replies may be posted in the channel",
	"ekm_access_denied":                     "the workspace does not let the app post",
	"messages_tab_disabled":                 "the app takes no direct messages",
	"user_not_found":                        "there is no such user",
	"invalid_auth":                          "it does not know the token of this channel",
	"not_authed":                            "it does not know the token of this channel",
	"not_allowed_token_type":                "the token of this channel is not that of a bot",
	"account_inactive":                      "the token of this channel has been revoked",
	"token_revoked":                         "the token of this channel has been revoked",
	"token_expired":                         "the token of this channel has expired",
	"team_not_found":                        "the token is for a whole organisation, and the channel has to be given by its id",
	"ratelimited":                           "it asks for a pause",
	"rate_limited":                          "it asks for a pause",
}

// Interface guards
var (
	_ engine.Channel        = (*Slack)(nil)
	_ caddy.Provisioner     = (*Slack)(nil)
	_ caddy.CleanerUpper    = (*Slack)(nil)
	_ caddyfile.Unmarshaler = (*Slack)(nil)
)
