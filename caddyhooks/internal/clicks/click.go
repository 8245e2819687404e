// Package clicks reads what services send when somebody presses a button under a question that a channel asked. Channels label buttons
// with [ButtonData], and a scheme of the same service (`auth slack`, …) brings the click back. It imports engine, form, strictjson and
// text.
package clicks

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Click says who has pressed which button. Whoever signed the request vouches for it, but not for the name.
type Click struct {
	Service string // the name of the scheme, and of the channels of the same service

	Question string // the id of a question, which may not exist
	Choice   int    // from 0; the question may have fewer

	Chat   string   // the id of the chat …
	Chats  []string // … and all names that it goes by there, as a channel would write them
	Thread string   // "" if there is none, or if that does not matter
	Posted string   // the message with the buttons, as the channel named it when it was posted, "" if only the chat matters

	Person string // an id of the service
	Name   string // of the person, one short line

	reply func(reply string, refused bool) any
}

// Reply is the JSON with which the service takes an answer for whoever pressed the button, nil if it takes none.
func (c *Click) Reply(reply string, refused bool) []byte {
	if c.reply == nil {
		return nil
	}
	return text.PlainJSON(c.reply(reply, refused))
}

// IsIn reports whether the button was pressed in the chat that a channel was told to ask in, or in a thread there.
func (c *Click) IsIn(to string) bool {
	chat, _, _ := strings.Cut(to, "/")
	for _, name := range c.Chats {
		if strings.EqualFold(name, chat) && name != "" {
			return true
		}
	}
	return false
}

// parsers has a parser for each service. It returns nil for a body that is no click on one of our buttons.
var parsers = map[string]func(body []byte) *Click{"slack": parseSlack, "telegram": parseTelegram, "discord": parseDiscord}

// Parse reads the body of a request of a service. It returns nil if that is something else than a click on one of our buttons.
func Parse(service string, body []byte) *Click {
	parse := parsers[service]
	if parse == nil || !bytes.Contains(body, []byte(buttonStart)) || len(body) > maxBody {
		return nil
	}
	click := parse(body)
	if click == nil || !anID.MatchString(click.Person) || click.Chat != "" && !anID.MatchString(click.Chat) {
		return nil
	}
	click.Service, click.Name = service, OneLine(click.Name)
	return click
}

// maxBody is more than services send for a click: it has the message with the buttons in it.
const maxBody = 1 << 20

var anID = regexp.MustCompile(`^-?[A-Za-z0-9]{1,64}$`)

// buttonStart is how the data of buttons begins, as the ids of questions do.
const buttonStart = "q_"

// ButtonData is what a service sends back when the button of a choice is pressed: at most 64 bytes, of which none has a meaning elsewhere.
func ButtonData(question string, choice int) string { return question + ":" + strconv.Itoa(choice) }

// parseButton is the reverse of ButtonData.
func (c *Click) parseButton(data string) bool {
	question, number, _ := strings.Cut(data, ":")
	choice, err := strconv.Atoi(number)
	_, _, ok := engine.ParseQuestionID(question)
	c.Question, c.Choice = question, choice
	return ok && err == nil && choice >= 0 && ButtonData(question, choice) == data
}

// maxLine bounds the texts from outside in a reply, in characters. Telegram takes 200 in all.
const maxLine = 60

// OneLine is a text from outside, such as a name, as one short line.
func OneLine(text string) string {
	line := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	line = strings.Join(strings.Fields(line), " ")
	if runes := []rune(line); len(runes) > maxLine {
		line = string(runes[:maxLine-1]) + "…"
	}
	return line
}
