package clicks

import (
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

var telegramParts = new(strictjson.Selection).Paths("callback_query.id", "callback_query.data",
	"callback_query.from.id", "callback_query.from.username", "callback_query.from.first_name", "callback_query.from.last_name",
	"callback_query.message.chat.id", "callback_query.message.chat.username")

// telegramReply is an answer to a webhook that calls a method of the Bot API.
type telegramReply struct {
	Method string `json:"method"`
	ID     string `json:"callback_query_id"`
	Text   string `json:"text"`
	Alert  bool   `json:"show_alert"`
}

// parseTelegram reads an update.
func parseTelegram(body []byte) *Click {
	doc, err := strictjson.ParseSelected(body, telegramParts)
	if err != nil {
		return nil
	}
	query := strictjson.ValueAt(doc, "callback_query")
	c := &Click{
		Chat:   strictjson.TextAt(query, "message.chat.id"),
		Person: strictjson.TextAt(query, "from.id"),
		Name:   strictjson.TextAt(query, "from.first_name") + " " + strictjson.TextAt(query, "from.last_name"),
	}
	if !c.parseButton(strictjson.TextAt(query, "data")) {
		return nil
	}
	if c.Chat != "" {
		c.Chats = []string{c.Chat}
	}
	if name := strictjson.TextAt(query, "message.chat.username"); name != "" {
		c.Chats = append(c.Chats, "@"+name)
	}
	if strings.TrimSpace(c.Name) == "" {
		c.Name = strictjson.TextAt(query, "from.username")
	}
	id := strictjson.TextAt(query, "id")
	c.reply = func(reply string, refused bool) any { return telegramReply{"answerCallbackQuery", id, reply, refused} }
	return c
}
