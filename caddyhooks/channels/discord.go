package channels

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

func init() {
	caddy.RegisterModule(Discord{})
}

// Discord is a channel that posts answers as a Discord bot, whose token it has. A chat is the id of a channel or a thread.
// The url is that of the API, with its version.
//
// Discord makes links of addresses in every text. It knows a repeat for a few minutes, in which a message is posted once. An edit
// is done once however often it is repeated.
type Discord struct {
	API
}

// CaddyModule returns the Caddy module information.
func (Discord) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.discord",
		New: func() caddy.Module { return new(Discord) },
	}
}

// Provision sets up the channel.
func (c *Discord) Provision(caddy.Context) error {
	return c.provisionBot("discord", "https://discord.com/api/v10", c.ValidTo)
}

// UnmarshalCaddyfile parses:
//
//	channel <name> discord <token> {
//		url      <url>
//		timeout  <duration>
//		allow_to <to>...
//	}
func (c *Discord) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return c.unmarshalBot(d, "discord", c.ValidTo)
}

var snowflake = regexp.MustCompile(`^[0-9]{15,20}$`)

// ValidTo takes ids of channels.
func (*Discord) ValidTo(to string) error {
	if !snowflake.MatchString(to) {
		return errors.New("a chat on Discord is the id of a channel or a thread, a number of 15 to 20 digits such as 123456789012345678")
	}
	return nil
}

// discordMessage is the body of Create Message, and of Edit Message, which takes no nonce.
type discordMessage struct {
	Content  string          `json:"content"`
	Mentions discordMentions `json:"allowed_mentions"`
	Flags    int             `json:"flags"`
	Nonce    string          `json:"nonce,omitempty"`
	Enforce  bool            `json:"enforce_nonce,omitempty"`
	Rows     []discordRow    `json:"components,omitzero"` // nil leaves those of an edited message as they are
}

// discordRow is a row of buttons.
type discordRow struct {
	Type    int             `json:"type"`
	Buttons []discordButton `json:"components"`
}

type discordButton struct {
	Type  int    `json:"type"`
	Style int    `json:"style"`
	Label string `json:"label"`
	Data  string `json:"custom_id"`
}

const (
	discordRowType, discordButtonType = 1, 2
	discordGrey                       = 2 // as Cancel often is: no choice looks like the right one
	discordRowLength                  = 5
)

type discordMentions struct {
	Parse []string `json:"parse"`
}

const suppressEmbeds = 1 << 2

var discordSplitter = splitter{limit: 2000, size: func(text string) int { return utf16Length(escapeMarkdown(text)) }}

// Send posts the answer, in as many messages as it takes.
func (c *Discord) Send(ctx context.Context, d *engine.Delivery) error {
	return sendEdited(ctx, c, d, discordSplitter, snowflake)
}

// Begin posts a message.
func (c *Discord) Begin(ctx context.Context, to, text string) (progress string, err error) {
	return beginEdited(ctx, c, to, text, discordSplitter, snowflake)
}

// Withdraw deletes a message.
func (c *Discord) Withdraw(ctx context.Context, to, progress string) error {
	return withdrawEdited(ctx, c, to, progress, snowflake)
}

func (c *Discord) post(ctx context.Context, d *engine.Delivery, part string) (id string, err error) {
	return c.send(ctx, d, newDiscordMessage(part))
}

func (c *Discord) send(ctx context.Context, d *engine.Delivery, message *discordMessage) (id string, err error) {
	if d.ID != "" { // else it is not sent again
		message.Nonce, message.Enforce = discordNonce(d), true
	}
	err = c.endpoint(ctx, d, http.MethodPost, "/channels/"+d.To+"/messages", message, discordID(&id))
	return id, err
}

func (c *Discord) edit(ctx context.Context, d *engine.Delivery, id, part string) error {
	message := newDiscordMessage(part)
	message.Rows = []discordRow{}
	gone := false
	err := c.endpoint(ctx, d, http.MethodPatch, "/channels/"+d.To+"/messages/"+id, message, func(o *outbound.Outcome, answer map[string]any) {
		judgeDiscord(o, answer)
		gone = isDiscordMessageGone(answer)
	})
	return orGone(err, gone)
}

func isDiscordMessageGone(answer map[string]any) bool {
	return answer["code"] == json.Number("10008") // Unknown Message
}

// Ask posts a question with buttons.
func (c *Discord) Ask(ctx context.Context, to string, question engine.ChannelQuestion) (posted string, err error) {
	return askEdited(ctx, c, to, question, discordSplitter, snowflake)
}

// Close puts a text in the place of a question.
func (c *Discord) Close(ctx context.Context, to, posted, text string) error {
	return closeEdited(ctx, c, to, posted, text, discordSplitter, snowflake)
}

func (c *Discord) postAsked(ctx context.Context, d *engine.Delivery, asked askedMessage) (id string, err error) {
	message := newDiscordMessage(asked.text)
	if asked.link != "" {
		message.Content += "\n-# " + asked.linkText + " <" + asked.link + ">"
	}
	for some := range slices.Chunk(asked.buttons, discordRowLength) {
		row := discordRow{Type: discordRowType}
		for _, b := range some {
			row.Buttons = append(row.Buttons, discordButton{discordButtonType, discordGrey, b.label, b.data})
		}
		message.Rows = append(message.Rows, row)
	}
	return c.send(ctx, d, message)
}

func (c *Discord) remove(ctx context.Context, d *engine.Delivery, id string) error {
	return c.endpoint(ctx, d, http.MethodDelete, "/channels/"+d.To+"/messages/"+id, nil, func(o *outbound.Outcome, answer map[string]any) {
		if o.Status != http.StatusNoContent {
			judgeDiscord(o, answer)
		}
		o.Delivered = o.Delivered || isDiscordMessageGone(answer)
	})
}

// Authors asks for the id of the bot's user.
func (c *Discord) Authors(ctx context.Context) ([]string, error) {
	var id string
	err := c.endpoint(ctx, new(engine.Delivery), http.MethodGet, "/users/@me", nil, discordID(&id))
	if err == nil && !snowflake.MatchString(id) {
		err = errors.New("the answer is not what Discord would say")
	}
	if err != nil {
		return nil, err
	}
	return []string{id}, nil
}

// discordID is a judge that keeps the id in an answer.
func discordID(id *string) judge {
	return func(o *outbound.Outcome, answer map[string]any) {
		judgeDiscord(o, answer)
		*id, _ = answer["id"].(string)
	}
}

func newDiscordMessage(part string) *discordMessage {
	return &discordMessage{Content: escapeMarkdown(part), Mentions: discordMentions{Parse: []string{}}, Flags: suppressEmbeds}
}

// endpoint sends a request to the API. The message may be nil.
func (c *Discord) endpoint(ctx context.Context, d *engine.Delivery, method, path string, message *discordMessage, judge judge) error {
	var body []byte
	if message != nil {
		body = encodeJSON(message)
	}
	req, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bot "+c.token)
	// Discord may refuse clients that do not name themselves in this form.
	req.Header.Set("User-Agent", "DiscordBot (https://github.com/caddy-hooks/caddy-hooks, 1) caddy-hooks")
	return c.call(d, req, judge)
}

// discordNonce names the next part of a delivery in the 25 characters that Discord allows.
func discordNonce(d *engine.Delivery) string {
	sum := sha256.Sum256([]byte(d.ID + "." + strconv.Itoa(d.Sent)))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// escapeMarkdown puts a backslash before characters that are markup to Discord. Web addresses stay as they are: nothing in
// them is markup, and a backslash would become a part of them.
func escapeMarkdown(text string) string {
	var b strings.Builder
	b.Grow(len(text) + len(text)/8)
	lineStart := true // but for white space and, in a numbered list, digits
	inWord := false
	for i := 0; i < len(text); {
		if n := plainAddress(text[i:]); n > 0 && !inWord {
			b.WriteString(text[i : i+n])
			i += n
			lineStart, inWord = false, true
			continue
		}
		c := text[i]
		switch {
		case strings.IndexByte("\\*_~`|<>[]@", c) >= 0,
			lineStart && strings.IndexByte("#-+", c) >= 0,
			lineStart && inWord && (c == '.' || c == ')'):
			b.WriteByte('\\')
		}
		b.WriteByte(c)
		i++
		inWord = isAlphanumeric(c) || c == '_' || c >= 0x80
		lineStart = c == '\n' || lineStart && (c == ' ' || c == '\t' || '0' <= c && c <= '9')
	}
	return b.String()
}

// plainAddress is the length of the address that a text begins with, as far as it holds no unusual characters; 0 if there is
// none. A closing bracket belongs to it if it closes one in it.
func plainAddress(text string) int {
	rest, ok := strings.CutPrefix(text, "https://")
	if !ok {
		if rest, ok = strings.CutPrefix(text, "http://"); !ok {
			return 0
		}
	}
	if rest == "" || !isAlphanumeric(rest[0]) {
		return 0
	}
	n, open := 0, 0
	for ; n < len(rest); n++ {
		switch rest[n] {
		case '(':
			open++
		case ')':
			open--
		}
		if open < 0 || !isAlphanumeric(rest[n]) && strings.IndexByte("-._~/?#@!$&+,;=%:()'", rest[n]) < 0 {
			break
		}
	}
	return len(text) - len(rest) + n
}

// isAlphanumeric reports whether c is a letter or a digit of ASCII.
func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// judgeDiscord reads {"id": …}, or {"code": …, "retry_after": …}.
func judgeDiscord(o *outbound.Outcome, answer map[string]any) {
	if o.Delivered {
		if id, _ := answer["id"].(string); id == "" {
			markUnexpected(o, "Discord")
		}
		return
	}
	o.RetryAfter = max(o.RetryAfter, readPause(answer["retry_after"], time.Second))
	o.WholeChannel = answer["global"] == true
	code, _ := answer["code"].(json.Number)
	why := discordReasons[string(code)]
	if why == "" {
		why = explainStatus(o.Status)
	}
	o.Reason = answerReason("Discord", o.Status, why)
}

// discordReasons explains error codes to an operator.
var discordReasons = map[string]string{
	"10003":  "there is no such channel or thread",
	"40001":  "it does not know the token of this channel",
	"40333":  "its firewall does not let the bot in",
	"50001":  "the bot may not see the channel",
	"50007":  "the user takes no messages from the bot",
	"50008":  "nothing can be written in a channel of this type",
	"50009":  "the server wants members to be verified that the bot is not",
	"50013":  "the bot may not write in the channel",
	"50024":  "nothing can be written in a channel of this type",
	"50083":  "the thread is archived",
	"160005": "the thread is locked",
	"200000": "automatic moderation has blocked the answer",
}

// Interface guards
var (
	_ engine.Channel         = (*Discord)(nil)
	_ engine.ProgressChannel = (*Discord)(nil)
	_ engine.AuthorChannel   = (*Discord)(nil)
	_ engine.QuestionChannel = (*Discord)(nil)
	_ caddy.Provisioner      = (*Discord)(nil)
	_ caddy.CleanerUpper     = (*Discord)(nil)
	_ caddyfile.Unmarshaler  = (*Discord)(nil)
)
