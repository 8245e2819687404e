package clicks

import (
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
)

var discordParts = new(strictjson.Selection).Paths("type", "event", "channel_id", "data.custom_id",
	"user.id", "user.global_name", "user.username",
	"member.nick", "member.user.id", "member.user.global_name", "member.user.username")

const (
	discordComponent = "3"    // the type of an interaction with a button
	discordMessage   = 4      // the type of an answer that is shown …
	discordEphemeral = 1 << 6 // … to whoever pressed the button alone
)

// discordReply is an answer to an interaction.
type discordReply struct {
	Type int             `json:"type"`
	Data discordReplyMsg `json:"data"`
}

type discordReplyMsg struct {
	Content  string              `json:"content"`
	Flags    int                 `json:"flags"`
	Mentions map[string][]string `json:"allowed_mentions"`
}

// escapeDiscord puts a backslash before all that can begin markup, a mention or a link. Discord takes one before any such character.
var escapeDiscord = func() *strings.Replacer {
	var pairs []string
	for _, c := range "\\*_~`|<>[]()@#-+/" {
		pairs = append(pairs, string(c), "\\"+string(c))
	}
	return strings.NewReplacer(pairs...)
}()

// parseDiscord reads an interaction.
func parseDiscord(body []byte) *Click {
	doc, err := strictjson.ParseSelected(body, discordParts)
	if err != nil || strictjson.TextAt(doc, "type") != discordComponent || strictjson.ValueAt(doc, "event") != nil {
		return nil
	}
	c := &Click{
		Chat:   strictjson.TextAt(doc, "channel_id"),
		Person: strictjson.TextAt(doc, "member.user.id", "user.id"),
		Name: strictjson.TextAt(doc, "member.nick", "member.user.global_name", "user.global_name", "member.user.username",
			"user.username"),
	}
	if !c.parseButton(strictjson.TextAt(doc, "data.custom_id")) {
		return nil
	}
	c.Chats = []string{c.Chat}
	c.reply = func(reply string, _ bool) any {
		return discordReply{discordMessage, discordReplyMsg{escapeDiscord.Replace(reply), discordEphemeral, map[string][]string{"parse": {}}}}
	}
	return c
}
