package channels

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func init() {
	caddy.RegisterModule(Slack{})
}

// Slack is a channel that posts answers with the token of a Slack app, which has to have the scope chat:write. A chat is
// the id of a channel, a group, a direct message or a user, or the #name of a channel, and <id>/<ts> is the thread of a message.
// The url is that of the Web API.
//
// Slack makes pictures of :names: in texts that are posted, and may make links of addresses, though it is asked not to. It cannot
// tell a repeat: when its answer gets lost, a message is posted twice, unless it takes the place of another.
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
	s.splitTo = splitAtSlash
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

var (
	slackChat    = regexp.MustCompile(`^[CGDUW][A-Z0-9]{1,40}(?:/` + slackTime + `)?$`)
	slackName    = regexp.MustCompile(`^#[\p{Ll}\p{Lo}\p{Lm}\p{M}\p{N}_.-]+$`) // counted, it would take megabytes
	slackMessage = regexp.MustCompile(`^[CGD][A-Z0-9]{1,40}/` + slackTime + `$`)
)

// slackTime is the ts of a message, which is its id within a channel.
const slackTime = `[0-9]{1,12}\.[0-9]{1,6}`

const maxSlackName = 80 // characters

// ValidTo takes ids, with a thread or without, and names of channels.
func (*Slack) ValidTo(to string) error {
	if !slackChat.MatchString(to) && (!slackName.MatchString(to) || utf8.RuneCountInString(to) > len("#")+maxSlackName) {
		return errors.New("a chat on Slack is an id that begins with C, G, D, U or W, such as C0123456789, or the name of a channel, " +
			"such as #general; a thread follows after an id and a slash, as in C0123456789/1700000000.000100")
	}
	return nil
}

// slackPost is the body of chat.postMessage.
type slackPost struct {
	Channel     string `json:"channel"`
	Thread      string `json:"thread_ts,omitempty"`
	Text        string `json:"text"`
	Mrkdwn      bool   `json:"mrkdwn"`
	Parse       string `json:"parse"`
	LinkNames   bool   `json:"link_names"`
	UnfurlLinks bool   `json:"unfurl_links"`
	UnfurlMedia bool   `json:"unfurl_media"`

	Blocks []any `json:"blocks,omitempty"` // shown instead of the text, which is for notifications then
}

// slackUpdate is the body of chat.update, which has no mrkdwn. So blocks of plain text are shown, and the text is for
// notifications.
type slackUpdate struct {
	slackPlace
	Text      string `json:"text"`
	Blocks    []any  `json:"blocks"`
	Parse     string `json:"parse"`
	LinkNames bool   `json:"link_names"`
}

// slackPlace names a message.
type slackPlace struct {
	Channel string `json:"channel"`
	Time    string `json:"ts"`
}

type slackSection struct {
	Type string    `json:"type"`
	Text slackText `json:"text"`
}

type slackText struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Emoji bool   `json:"emoji"`
}

func slackPlainText(text string) slackText {
	return slackText{Type: "plain_text", Text: escapeSlack.Replace(text)}
}

// slackRow is a block of elements beside each other.
type slackRow struct {
	Type     string `json:"type"`
	Elements []any  `json:"elements"`
}

// slackButton is a button. Its action_id is unlike those of the others in its message.
type slackButton struct {
	Type   string    `json:"type"`
	Text   slackText `json:"text"`
	Value  string    `json:"value"`
	Action string    `json:"action_id"`
}

type slackMarkup struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Verbatim bool   `json:"verbatim"` // no links are looked for
}

// Slack recommends this limit, and takes ten times as much. A block takes less.
var (
	slackSplitter      = splitter{limit: 4000, size: slackLength}
	slackBlockSplitter = splitter{limit: 3000, size: slackLength}
)

func slackLength(text string) int { return utf16Length(escapeSlack.Replace(text)) }

// escapeSlack escapes the characters that mentions and links are written with. The fields of the message do the rest: parse
// none asks Slack not to look for bare addresses, and without link_names it does not look for @names and #channels.
var escapeSlack = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Send posts the answer, in as many messages as it takes.
func (s *Slack) Send(ctx context.Context, d *engine.Delivery) error {
	return sendEdited(ctx, s, d, slackSplitter, slackMessage)
}

// Begin posts a message.
func (s *Slack) Begin(ctx context.Context, to, text string) (progress string, err error) {
	return beginEdited(ctx, s, to, text, slackSplitter, slackMessage)
}

// Withdraw deletes a message.
func (s *Slack) Withdraw(ctx context.Context, to, progress string) error {
	return withdrawEdited(ctx, s, to, progress, slackMessage)
}

func (s *Slack) post(ctx context.Context, d *engine.Delivery, part string) (id string, err error) {
	return s.postBlocks(ctx, d, part, nil)
}

func (s *Slack) postBlocks(ctx context.Context, d *engine.Delivery, part string, blocks []any) (id string, err error) {
	channel, thread := splitAtSlash(d.To)
	message := slackPost{Channel: channel, Thread: thread, Text: escapeSlack.Replace(part), Parse: "none", Blocks: blocks}
	err = s.method(ctx, d, "chat.postMessage", message, func(o *outbound.Outcome, answer map[string]any) {
		judgeSlack(o, answer)
		// The channel may be another than in To: a message to a user is in a direct message.
		channel, _ := answer["channel"].(string)
		ts, _ := answer["ts"].(string)
		id = channel + "/" + ts
	})
	return id, err
}

func (s *Slack) edit(ctx context.Context, d *engine.Delivery, id, part string) error {
	update := slackUpdate{slackPlace: slackPlaceOf(id), Text: escapeSlack.Replace(part), Blocks: slackSections(part), Parse: "none"}
	gone := false
	err := s.method(ctx, d, "chat.update", update, func(o *outbound.Outcome, answer map[string]any) {
		judgeSlack(o, answer)
		gone = isSlackMessageGone(answer)
	})
	return orGone(err, gone)
}

func slackSections(part string) (blocks []any) {
	for _, piece := range slackBlockSplitter.split(part, "") {
		blocks = append(blocks, slackSection{"section", slackPlainText(piece)})
	}
	return blocks
}

func isSlackMessageGone(answer map[string]any) bool {
	return answer["ok"] == false && answer["error"] == "message_not_found"
}

// Ask posts a question with buttons.
func (s *Slack) Ask(ctx context.Context, to string, question engine.ChannelQuestion) (posted string, err error) {
	return askEdited(ctx, s, to, question, slackSplitter, slackMessage)
}

// Close puts a text in the place of a question.
func (s *Slack) Close(ctx context.Context, to, posted, text string) error {
	return closeEdited(ctx, s, to, posted, text, slackSplitter, slackMessage)
}

func (s *Slack) postAsked(ctx context.Context, d *engine.Delivery, asked askedMessage) (id string, err error) {
	blocks := slackSections(asked.text)
	if len(asked.buttons) > 0 {
		row := slackRow{Type: "actions"}
		for _, b := range asked.buttons {
			row.Elements = append(row.Elements, slackButton{"button", slackPlainText(b.label), b.data, b.data})
		}
		blocks = append(blocks, row)
	}
	if asked.link != "" {
		link := slackMarkup{"mrkdwn", asked.linkText + " <" + escapeSlack.Replace(asked.link) + ">", true}
		blocks = append(blocks, slackRow{"context", []any{link}})
	}
	return s.postBlocks(ctx, d, asked.text, blocks)
}

// Whisper shows a text to one member of a chat, an id, and to nobody else. The thread may be "".
func (s *Slack) Whisper(ctx context.Context, chat, thread, person, text string) error {
	if !slackID.MatchString(chat) || !slackID.MatchString(person) || thread != "" && s.ValidTo(chat+"/"+thread) != nil {
		return &engine.FinalError{Err: errors.New("there is nobody of this name in a chat of this name")}
	}
	shown := slackSplitter.first(cleanText(text), "")
	message := slackWhisper{Channel: chat, Thread: thread, User: person, Text: escapeSlack.Replace(shown), Parse: "none"}
	return s.method(ctx, new(engine.Delivery), "chat.postEphemeral", message, judgeSlack)
}

// slackWhisper is the body of chat.postEphemeral.
type slackWhisper struct {
	Channel   string `json:"channel"`
	Thread    string `json:"thread_ts,omitempty"`
	User      string `json:"user"`
	Text      string `json:"text"`
	Parse     string `json:"parse"`
	LinkNames bool   `json:"link_names"`
}

func (s *Slack) remove(ctx context.Context, d *engine.Delivery, id string) error {
	return s.method(ctx, d, "chat.delete", slackPlaceOf(id), func(o *outbound.Outcome, answer map[string]any) {
		judgeSlack(o, answer)
		o.Delivered = o.Delivered || isSlackMessageGone(answer)
	})
}

// Authors asks for the ids of the app's user and of its bot.
func (s *Slack) Authors(ctx context.Context) (ids []string, err error) {
	err = s.method(ctx, new(engine.Delivery), "auth.test", struct{}{}, func(o *outbound.Outcome, answer map[string]any) {
		judgeSlack(o, answer)
		for _, name := range []string{"user_id", "bot_id"} {
			if id, _ := answer[name].(string); o.Delivered && slackID.MatchString(id) {
				ids = append(ids, id)
			}
		}
		if o.Delivered && len(ids) == 0 {
			markUnexpected(o, "Slack")
		}
	})
	return ids, err
}

var slackID = regexp.MustCompile(`^[A-Z][A-Z0-9]{1,40}$`)

// slackPlaceOf reads a place in the form of slackMessage.
func slackPlaceOf(progress string) slackPlace {
	channel, ts := splitAtSlash(progress)
	return slackPlace{channel, ts}
}

// method calls a method of the Web API.
func (s *Slack) method(ctx context.Context, d *engine.Delivery, name string, body any, judge judge) error {
	req, err := s.request(ctx, http.MethodPost, "/"+name, encodeJSON(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	return s.call(d, req, judge)
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
	"thread_not_found":                      "there is no such thread in the channel",
	"message_not_found":                     "there is no such thread in the channel",
	"cannot_reply_to_message":               "no thread can begin at this message",
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
	_ engine.Channel         = (*Slack)(nil)
	_ engine.ProgressChannel = (*Slack)(nil)
	_ engine.AuthorChannel   = (*Slack)(nil)
	_ engine.QuestionChannel = (*Slack)(nil)
	_ caddy.Provisioner      = (*Slack)(nil)
	_ caddy.CleanerUpper     = (*Slack)(nil)
	_ caddyfile.Unmarshaler  = (*Slack)(nil)
)
