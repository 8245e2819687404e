package settings

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Ask has somebody approve the runs of a hook.
type Ask struct {
	// What must not happen without a yes: "run" is that a run starts, "deliver" that its reply is sent.
	Before string `json:"before"`

	// Ask only about the first run of each sender: a template whose value tells senders apart, such as {sender.login}. Only with "run".
	First string `json:"first,omitempty"`

	// The channel to ask on.
	Channel string `json:"channel"`

	// The chat on that channel.
	To string `json:"to"`

	// Who may answer in the chat, by their ids on the service of the channel. Default: anybody in the chat.
	By []string `json:"by,omitempty"`

	// How long the question is open. Default: until somebody answers.
	Seconds int `json:"seconds,omitempty"`

	// What happens then: "drop" ends the run, "run" or "send" goes ahead. Default: "drop".
	Else string `json:"else,omitempty"`
}

// What an Ask can be about.
const (
	BeforeRun     = "run"
	BeforeDeliver = "deliver"
)

var askMembers = strictjson.Members("before", "first", "channel", "to", "by", "seconds", "else")

// UnmarshalJSON refuses members that it does not know.
func (a *Ask) UnmarshalJSON(raw []byte) error {
	obj, err := strictjson.ParseObject(raw, askMembers)
	if err != nil {
		return err
	}
	if obj.Other != nil {
		return FieldErrorf("ask", "must be objects with before, first, channel, to, by, seconds and else, and nothing else")
	}
	type plain Ask
	return json.Unmarshal(raw, (*plain)(a))
}

// Question is the question as the engine knows it, without its text.
func (a *Ask) Question() *engine.Question {
	q := &engine.Question{Choices: []string{engine.Yes, engine.No}, Channel: a.Channel, To: a.To, By: a.By,
		For: time.Duration(a.Seconds) * time.Second, Else: engine.No}
	if a.Else == "run" || a.Else == "send" {
		q.Else = engine.Yes
	}
	return q
}

// AskBefore is the question of a hook before something, nil if there is none.
func (m *Mapping) AskBefore(what string) *Ask { return askBefore(m.Ask, what) }

func askBefore(asks []Ask, what string) *Ask {
	if i := slices.IndexFunc(asks, func(a Ask) bool { return a.Before == what }); i >= 0 {
		return &asks[i]
	}
	return nil
}

// encodeAsks writes down what a hook asks, nil for nothing.
func encodeAsks(asks []Ask) ([]byte, error) {
	if len(asks) == 0 {
		return nil, nil
	}
	return json.Marshal(asks)
}

// KeptAsk is the question before something that a run has kept of its hook, nil if there is none. If it cannot be read, such as that of a
// later release, then operators are asked.
func KeptAsk(run *engine.Run, what string) *Ask {
	if run.Asks == nil {
		return nil
	}
	var asks []Ask
	if json.Unmarshal(run.Asks, &asks) != nil {
		return &Ask{Before: what}
	}
	return askBefore(asks, what)
}

// PushTokenHeaders carry the token of a question when an agent that speaks A2A says that there is news: libraries differ in the name. They
// must not be logged.
var PushTokenHeaders = []string{"X-A2A-Notification-Token", "A2A-Notification-Token"}

// maxAskSeconds is a year.
const maxAskSeconds = 366 * 24 * 60 * 60

// checkAsk finds mistakes in the questions of a hook.
func (h *Hook) checkAsk(r *Rules) error {
	if len(h.Ask) > 0 && h.FoldSeconds > 0 {
		return FieldErrorf("ask", "does not go with fold: runs that are folded are carried out in one turn, and cannot wait one by one")
	}
	for i := range h.Ask {
		a := &h.Ask[i]
		if err := oneOf("ask", a.Before, []string{BeforeRun, BeforeDeliver}); err != nil || a.Before == "" {
			return FieldErrorf("ask", "must be before run or before deliver")
		}
		if slices.ContainsFunc(h.Ask[:i], func(other Ask) bool { return other.Before == a.Before }) {
			return FieldErrorf("ask", "must not be there twice before %s", a.Before)
		}
		if err := h.checkAskPlace(a, r); err != nil {
			return err
		}
	}
	return nil
}

// checkAskPlace finds mistakes in one question.
func (h *Hook) checkAskPlace(a *Ask, r *Rules) error {
	place := caddyconf.AskPlace{Channel: a.Channel, To: a.To, By: a.By}
	ahead := "run"
	if a.Before == BeforeDeliver {
		ahead = "send"
	}
	switch channel, known := r.Channels[a.Channel]; {
	case place.Check() != nil:
		return FieldErrorf("ask", "%v", place.Check())
	case !known:
		return FieldErrorf("ask", "names no channel that is configured here: %s", text.Abridge(a.Channel))
	case strings.Contains(a.To, "{"):
		return FieldErrorf("ask", "must name one chat: it has no placeholders, since requests do not choose who approves them")
	case channel == nil: // it is not loaded yet
	case channel.ValidTo(a.To) != nil:
		return FieldErrorf("ask", "has a chat that is none on the channel %s: %v", a.Channel, channel.ValidTo(a.To))
	case len(a.By) > 0 && !isQuestionChannel(channel):
		return FieldErrorf("ask", "has by, but the channel %s has no buttons, and cannot tell who answers", a.Channel)
	}
	switch {
	case a.Before == BeforeDeliver && h.Action != engine.Agent:
		return FieldErrorf("ask", "before deliver needs %s agent: a wake has no reply", bothNames("action"))
	case a.Seconds < 0 || a.Seconds > maxAskSeconds:
		return FieldErrorf("ask", "must be open for at most a year")
	case a.Else != "" && a.Seconds == 0:
		return FieldErrorf("ask", "has else, but no time: write one after before %s, as in 1h", a.Before)
	case a.Else != "" && a.Else != "drop" && a.Else != ahead:
		return FieldErrorf("ask", "before %s takes else drop or else %s", a.Before, ahead)
	case a.First != "" && a.Before != BeforeRun:
		return FieldErrorf("ask", "can be about the first run of a sender only before run")
	case a.First != "" && h.SenderTemplate.FirstPlaceholder() == "":
		return FieldErrorf("ask", "first needs a placeholder that tells senders apart, such as {sender.login}")
	}
	return nil
}

// parseSender reads the template that tells senders apart, if somebody is asked about new ones.
func (h *Hook) parseSender() (err error) {
	if a := h.AskBefore(BeforeRun); a != nil && a.First != "" {
		if h.SenderTemplate, err = template.Parse(a.First); err != nil {
			return FieldErrorf("ask", "is refused: %v", err)
		}
	}
	return nil
}

func isQuestionChannel(channel engine.Channel) bool {
	_, ok := channel.(engine.QuestionChannel)
	return ok
}

// warningsAboutButtons looks for hooks that ask with buttons while no hook hears of a click.
func (c *Compiler) warningsAboutButtons(active *Active) (found []Warning) {
	heard := make(map[string]bool)
	for _, hook := range active.Hooks {
		if hook.Auth.Scheme != nil {
			heard[hook.Auth.Name] = true
		}
	}
	for name, hook := range active.Hooks {
		for _, a := range hook.Ask {
			channel := c.Rules.Channels[a.Channel]
			if service := ServiceOf(channel); isQuestionChannel(channel) && service != "log" && !heard[service] {
				found = append(found, Warning{Part{Mapping: name}, fmt.Sprintf("nobody hears of clicks on the buttons of ask before %s: "+
					"add a hook with auth %s, and let the service send clicks there", a.Before, service)})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Warning) int { return strings.Compare(a.Part.Mapping, b.Part.Mapping) })
	return found
}

// checkAskAllowed checks the chats of a live hook that people are asked in.
func (m *Mapping) checkAskAllowed(r *Rules) error {
	for _, a := range m.Ask {
		if !AllowsTo(r.Channels[a.Channel], a.To) {
			return FieldErrorf("ask", "is refused: the chat is not among those that may be named on the channel %s", a.Channel)
		}
	}
	return nil
}

// unmarshalAsk parses:
//
//	ask [first <template>] <channel> <to> before run|deliver [<duration>] [by <id>...] [else drop|run|send|hold]
func (h *HookBlock) unmarshalAsk(d *caddyfile.Dispenser) error {
	words, err := caddyconf.List(d)
	if err != nil {
		return err
	}
	var a Ask
	if len(words) > 1 && words[0] == "first" {
		a.First, words = shorthand.Undo(words[1]), words[2:]
	}
	if len(words) < 4 || words[2] != "before" {
		return d.Err("ask takes a channel, a chat on it, and before run or before deliver, as in ask ops -100123 before run 1h else drop")
	}
	a.Before = words[3]
	rest := append(slices.Clone(words[:2]), words[4:]...)
	hold := false
	if n := len(rest); n > 1 && rest[n-2] == "else" && rest[n-1] == "hold" { // which is how it is without a duration
		rest, hold = rest[:n-2], true
	}
	place, err := caddyconf.ReadAskPlace(rest)
	switch {
	case err != nil:
		return d.Errf("ask %v", err)
	case hold && place.For > 0:
		return d.Err("ask with else hold waits until somebody answers: leave out the duration, or write else drop")
	}
	a.Channel, a.To, a.By, a.Else = place.Channel, place.To, place.By, place.Else
	a.Seconds = int(time.Duration(place.For) / time.Second)
	h.Ask = append(h.Ask, a)
	return nil
}
