package clicks

import (
	"bytes"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/form"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

// parseSlack reads the form that Slack sends to the interactivity URL of an app. Slack takes no answer: the channel shows one to whoever
// pressed the button.
func parseSlack(body []byte) *Click {
	if !bytes.HasPrefix(body, []byte("payload=")) {
		return nil
	}
	doc, payload, err := form.Decode(body, nil)
	if err != nil || payload == nil || strictjson.TextAt(doc, "type") != "block_actions" {
		return nil
	}
	actions, _ := strictjson.ValueAt(doc, "actions").([]any)
	c := &Click{
		Chat:   strictjson.TextAt(doc, "channel.id"),
		Thread: strictjson.TextAt(doc, "container.thread_ts", "message.thread_ts"),
		Person: strictjson.TextAt(doc, "user.id"),
		Name:   strictjson.TextAt(doc, "user.name", "user.username"),
	}
	if len(actions) != 1 || strictjson.TextAt(actions[0], "type") != "button" || !c.parseButton(strictjson.TextAt(actions[0], "value")) {
		return nil
	}
	c.Chats = []string{c.Chat}
	c.Posted = c.Chat + "/" + strictjson.TextAt(doc, "container.message_ts")
	switch name := strictjson.TextAt(doc, "channel.name"); name {
	case "":
	case "directmessage":
		c.Chats = append(c.Chats, c.Person) // a channel writes to the person
	default:
		c.Chats = append(c.Chats, "#"+name)
	}
	return c
}
