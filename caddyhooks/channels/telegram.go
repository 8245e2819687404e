package channels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
	caddy.RegisterModule(Telegram{})
}

// Telegram is a channel that sends answers as a Telegram bot, whose token it has. A chat is an id or the @name of a public
// group or channel, and <chat>/<id> is a topic in it. The url is that of a Bot API server of one's own.
//
// Telegram finds links, #tags and /commands in every text. It would notify people by their @name, too; @names are
// sent as code, so that it does not. It cannot tell a repeat: when its answer gets lost, a message is sent twice, unless it takes
// the place of another.
type Telegram struct {
	API
}

// CaddyModule returns the Caddy module information.
func (Telegram) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.telegram",
		New: func() caddy.Module { return new(Telegram) },
	}
}

// Provision sets up the channel.
func (t *Telegram) Provision(caddy.Context) error {
	t.splitTo = splitAtSlash
	return t.provisionBot("telegram", "https://api.telegram.org", t.ValidTo)
}

// UnmarshalCaddyfile parses:
//
//	channel <name> telegram <token> {
//		url      <url>
//		timeout  <duration>
//		allow_to <to>...
//	}
func (t *Telegram) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return t.unmarshalBot(d, "telegram", t.ValidTo)
}

// ValidTo takes ids and names of chats, and topics in them.
func (*Telegram) ValidTo(to string) error {
	_, _, err := parseTelegramChat(to)
	return err
}

var telegramName = regexp.MustCompile(`^@[A-Za-z0-9_]{5,32}$`)

// parseTelegramChat reads a chat, a number or a name, and the topic in it, 0 if there is none.
func parseTelegramChat(to string) (chat any, topic int64, err error) {
	name, thread, hasTopic := strings.Cut(to, "/")
	id, ok := parseID(name)
	chat = id
	if telegramName.MatchString(name) {
		chat, ok = name, true
	}
	if hasTopic && ok {
		topic, ok = parseID(thread)
		ok = ok && topic > 0
	}
	if !ok {
		return nil, 0, errors.New("a chat on Telegram is an id such as 123456789 or -1001234567890, or a name such as @our_channel; " +
			"a topic of it follows after a slash, as in -1001234567890/42")
	}
	return chat, topic, nil
}

// parseID reads a number that is written in the usual way and is not 0.
func parseID(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n != 0 && strconv.FormatInt(n, 10) == text
}

// telegramMessage is the body of sendMessage and, with the id of a message, of editMessageText. Without a parse_mode no character
// of the text has a meaning of its own.
type telegramMessage struct {
	Chat     any              `json:"chat_id"`
	Topic    int64            `json:"message_thread_id,omitempty"`
	ID       json.Number      `json:"message_id,omitempty"`
	Text     string           `json:"text"`
	Entities []telegramEntity `json:"entities,omitempty"`
	Preview  telegramPreview  `json:"link_preview_options"`
	Markup   *telegramMarkup  `json:"reply_markup,omitempty"` // an edit without one removes the buttons
}

// telegramEntity is a piece of a text that looks differently. Telegram counts in UTF-16 code units.
type telegramEntity struct {
	Type   string `json:"type"`
	Offset int    `json:"offset"`
	Length int    `json:"length"`
}

type telegramPreview struct {
	Disabled bool `json:"is_disabled"`
}

type telegramMarkup struct {
	Keyboard [][]telegramButton `json:"inline_keyboard"`
}

type telegramButton struct {
	Text string `json:"text"`
	Data string `json:"callback_data"`
}

// telegramRow is how many buttons are beside each other. Screens are narrow.
const telegramRow = 2

var telegramSplitter = splitter{limit: 4096, size: utf16Length, drop: dropAsTelegramDoes}

var telegramID = regexp.MustCompile(`^[1-9][0-9]{0,17}$`)

// Send sends the answer, in as many messages as it takes.
func (t *Telegram) Send(ctx context.Context, d *engine.Delivery) error {
	return sendEdited(ctx, t, d, telegramSplitter, telegramID)
}

// Begin sends a message.
func (t *Telegram) Begin(ctx context.Context, to, text string) (progress string, err error) {
	return beginEdited(ctx, t, to, text, telegramSplitter, telegramID)
}

// Withdraw deletes a message.
func (t *Telegram) Withdraw(ctx context.Context, to, progress string) error {
	return withdrawEdited(ctx, t, to, progress, telegramID)
}

func (t *Telegram) post(ctx context.Context, d *engine.Delivery, part string) (id string, err error) {
	return t.send(ctx, d, newTelegramMessage(d.To, "", part))
}

func (t *Telegram) send(ctx context.Context, d *engine.Delivery, message telegramMessage) (id string, err error) {
	err = t.method(ctx, d, "sendMessage", message, func(o *outbound.Outcome, answer map[string]any) {
		judgeTelegram(o, answer)
		result, _ := answer["result"].(map[string]any)
		number, _ := result["message_id"].(json.Number)
		id = string(number)
	})
	return id, err
}

func (t *Telegram) edit(ctx context.Context, d *engine.Delivery, id, part string) error {
	gone := false
	err := t.method(ctx, d, "editMessageText", newTelegramMessage(d.To, id, part), func(o *outbound.Outcome, answer map[string]any) {
		judgeTelegram(o, answer)
		o.Delivered = o.Delivered || telegramSays(answer, "message is not modified") // an edit that was done before
		gone = telegramSays(answer, "message to edit not found") || telegramSays(answer, "MESSAGE_ID_INVALID")
	})
	return orGone(err, gone)
}

// Ask sends a question with buttons.
func (t *Telegram) Ask(ctx context.Context, to string, question engine.ChannelQuestion) (posted string, err error) {
	return askEdited(ctx, t, to, question, telegramSplitter, telegramID)
}

// Close puts a text in the place of a question.
func (t *Telegram) Close(ctx context.Context, to, posted, text string) error {
	return closeEdited(ctx, t, to, posted, text, telegramSplitter, telegramID)
}

func (t *Telegram) postAsked(ctx context.Context, d *engine.Delivery, asked askedMessage) (id string, err error) {
	text := asked.text
	if asked.link != "" {
		text += "\n\n" + asked.linkText + " " + asked.link
	}
	message := newTelegramMessage(d.To, "", text)
	if len(asked.buttons) > 0 {
		message.Markup = new(telegramMarkup)
		for some := range slices.Chunk(asked.buttons, telegramRow) {
			var row []telegramButton
			for _, b := range some {
				row = append(row, telegramButton{b.label, b.data})
			}
			message.Markup.Keyboard = append(message.Markup.Keyboard, row)
		}
	}
	return t.send(ctx, d, message)
}

func (t *Telegram) remove(ctx context.Context, d *engine.Delivery, id string) error {
	chat, _, _ := parseTelegramChat(d.To)
	return t.method(ctx, d, "deleteMessage", telegramPlace{chat, json.Number(id)}, func(o *outbound.Outcome, answer map[string]any) {
		judgeTelegram(o, answer)
		o.Delivered = o.Delivered || telegramSays(answer, "message to delete not found")
	})
}

// telegramPlace is the body of deleteMessage.
type telegramPlace struct {
	Chat any         `json:"chat_id"`
	ID   json.Number `json:"message_id"`
}

// Authors is the id of the bot, which its token begins with.
func (t *Telegram) Authors(context.Context) ([]string, error) {
	id, _, _ := strings.Cut(t.token, ":")
	if n, ok := parseID(id); !ok || n < 0 {
		return nil, errors.New("the token of this channel does not begin with the id of a bot, as those of Telegram do")
	}
	return []string{id}, nil
}

// newTelegramMessage is a message to a chat that is valid, or an edit of the one of an id.
func newTelegramMessage(to, id, part string) telegramMessage {
	chat, topic, _ := parseTelegramChat(to)
	if id != "" {
		topic = 0
	}
	return telegramMessage{
		Chat: chat, Topic: topic, ID: json.Number(id), Text: part, Entities: mentionsAsCode(part), Preview: telegramPreview{Disabled: true},
	}
}

// method calls a method of the Bot API.
func (t *Telegram) method(ctx context.Context, d *engine.Delivery, name string, body any, judge judge) error {
	req, err := t.request(ctx, http.MethodPost, "/bot"+url.PathEscape(t.token)+"/"+name, encodeJSON(body))
	if err != nil {
		return err
	}
	return t.call(d, req, judge)
}

// dropAsTelegramDoes drops the characters that Telegram drops. Otherwise its dropping could make @names that were not sent as
// code.
func dropAsTelegramDoes(r rune) rune {
	if 0x202A <= r && r <= 0x202E || r == 0x30A || r == 0x333 || r == 0x33F {
		return -1
	}
	return r
}

var telegramMention = regexp.MustCompile(`(?:^|[^A-Za-z0-9_])(@[A-Za-z0-9_]{2,})`)

// maxEntities is the number of entities in a message after which Telegram ignores the rest.
const maxEntities = 100

// mentionsAsCode marks the @names in a text as code, or the whole text if there are too many of them.
func mentionsAsCode(text string) []telegramEntity {
	found := telegramMention.FindAllStringSubmatchIndex(text, maxEntities+1)
	if len(found) > maxEntities {
		return []telegramEntity{{Type: "code", Length: utf16Length(text)}}
	}
	var entities []telegramEntity
	end, offset := 0, 0
	for _, place := range found {
		from, to := place[2], place[3]
		offset += utf16Length(text[end:from])
		entities = append(entities, telegramEntity{Type: "code", Offset: offset, Length: to - from})
		offset += to - from
		end = to
	}
	return entities
}

// judgeTelegram reads {"ok": …}.
func judgeTelegram(o *outbound.Outcome, answer map[string]any) {
	status := o.Status
	if o.Delivered {
		switch answer["ok"] {
		case true:
			return
		case false:
			code, _ := answer["error_code"].(json.Number)
			status, _ = strconv.Atoi(string(code))
		}
		if status < 400 || status > 599 {
			markUnexpected(o, "Telegram")
			return
		}
		o.Delivered = false
		o.Final = status < 500 && status != http.StatusTooManyRequests
	}
	parameters, _ := answer["parameters"].(map[string]any)
	o.RetryAfter = max(o.RetryAfter, readPause(parameters["retry_after"], time.Second))
	description, _ := answer["description"].(string)
	why := explainTelegram(status, description)
	if to, ok := parameters["migrate_to_chat_id"].(json.Number); ok {
		if id, ok := parseID(string(to)); ok {
			o.Final = true
			why = fmt.Sprintf("the group has become a supergroup; its id is %d now", id)
		}
	}
	o.Reason = answerReason("Telegram", status, why)
}

// telegramSays reports whether an answer is a refusal of Telegram that says this.
func telegramSays(answer map[string]any, words string) bool {
	description, _ := answer["description"].(string)
	return answer["ok"] == false && answer["error_code"] == json.Number("400") && strings.Contains(description, words)
}

// telegramReasons explains descriptions of errors, which are no part of the API, to an operator.
var telegramReasons = []struct{ word, why string }{
	{"chat not found", "there is no such chat, or the bot has never been in it"},
	{"bot was blocked", "the user has blocked the bot"},
	{"bot was kicked", "the bot was removed from the chat"},
	{"not a member", "the bot is not a member of the chat"},
	{"user is deactivated", "the account of the user is deactivated"},
	{"initiate conversation", "the user has to write to the bot first"},
	{"messages to bots", "bots cannot write to bots"},
	{"thread not found", "there is no such topic in the chat"},
	{"topic_closed", "the topic is closed"},
	{"write_forbidden", "the bot may not write in the chat"},
	{"not enough rights", "the bot may not write in the chat"},
	{"no rights", "the bot may not write in the chat"},
	{"need administrator rights", "the bot may not write in the chat"},
}

func explainTelegram(status int, description string) string {
	description = strings.ToLower(description)
	for _, reason := range telegramReasons {
		if strings.Contains(description, reason.word) {
			return reason.why
		}
	}
	return explainStatus(status)
}

// Interface guards
var (
	_ engine.Channel         = (*Telegram)(nil)
	_ engine.ProgressChannel = (*Telegram)(nil)
	_ engine.AuthorChannel   = (*Telegram)(nil)
	_ engine.QuestionChannel = (*Telegram)(nil)
	_ caddy.Provisioner      = (*Telegram)(nil)
	_ caddy.CleanerUpper     = (*Telegram)(nil)
	_ caddyfile.Unmarshaler  = (*Telegram)(nil)
)
