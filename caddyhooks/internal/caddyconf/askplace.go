package caddyconf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
)

// AskPlace is where people are asked, and what happens if nobody answers.
type AskPlace struct {
	// The name of the channel to ask on.
	Channel string `json:"channel,omitempty"`

	// The chat on that channel.
	To string `json:"to,omitempty"`

	// Who may answer in the chat, by their ids on the service of the channel. Default: anybody in the chat.
	By []string `json:"by,omitempty"`

	// How long the question is open. Default: until somebody answers.
	For caddy.Duration `json:"for,omitempty"`

	// The answer that counts if nobody answers in that time.
	Else string `json:"else,omitempty"`
}

// maxAskers bounds who may answer a question.
const maxAskers = 100

// ReadAskPlace reads the words
//
//	<channel> <to> [<duration>] [by <id>...] [else <word>]
//
// which are the end of a line that asks people. Its errors follow the name of the directive. Whether there is such a channel, and what
// else may be, is for the caller to check.
func ReadAskPlace(words []string) (place AskPlace, err error) {
	if len(words) < 2 || words[0] == "" || words[1] == "" {
		return place, errors.New("needs a channel and a chat" + Unset)
	}
	place.Channel, place.To = words[0], shorthand.Undo(words[1])
	words = words[2:]
	if len(words) > 0 && !isAskWord(words[0]) {
		duration, err := caddy.ParseDuration(words[0])
		if err != nil || duration < time.Second {
			return place, fmt.Errorf("has '%s' where a duration of at least 1s can be%s", words[0], DurationHint(words[0]))
		}
		place.For, words = caddy.Duration(duration), words[1:]
	}
	if len(words) > 0 && words[0] == "by" {
		end := slices.IndexFunc(words[1:], isAskWord) + 1
		if end == 0 {
			end = len(words)
		}
		place.By, words = slices.Clone(words[1:end]), words[end:]
		if len(place.By) == 0 {
			return place, errors.New("needs at least one id after by" + Unset)
		}
	}
	if len(words) > 0 && words[0] == "else" {
		if len(words) != 2 {
			return place, errors.New(`takes one answer after else; a text with spaces stands in "double quotes"`)
		}
		place.Else, words = shorthand.Undo(words[1]), nil
	}
	if len(words) > 0 {
		return place, fmt.Errorf("has '%s' where by or else should be; they stand in this order, each once", words[0])
	}
	return place, place.Check()
}

func isAskWord(word string) bool { return word == "by" || word == "else" }

// Check finds mistakes that do not depend on what else is configured. Its errors follow the name of the directive.
func (p *AskPlace) Check() error {
	switch {
	case p.Channel == "" || p.To == "":
		return errors.New("needs a channel and a chat")
	case p.For < 0:
		return errors.New("has a negative duration")
	case len(p.By) > maxAskers:
		return fmt.Errorf("names more than %d people who may answer", maxAskers)
	}
	for i, id := range p.By {
		_, err := caddy.ParseDuration(id)
		switch {
		case err == nil && strings.ContainsAny(id, "smhd"):
			return fmt.Errorf("has '%s' after by, where ids stand: a duration stands before by", id)
		case strings.TrimSpace(id) == "":
			return errors.New("has a blank id after by" + Unset)
		case slices.Contains(p.By[:i], id):
			return fmt.Errorf("has the id '%s' after by twice", id)
		}
	}
	return nil
}

// Place is the place as the engine knows it.
func (p *AskPlace) Place() engine.AskPlace {
	return engine.AskPlace{Channel: p.Channel, To: p.To, By: p.By, For: time.Duration(p.For), Else: p.Else}
}
