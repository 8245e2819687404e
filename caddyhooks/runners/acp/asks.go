package acp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/coder/acp-go-sdk"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

// Asks is what people are asked about before the agent does it, and where.
type Asks struct {
	// The kinds of tools, of those that permit takes.
	Kinds []string `json:"kinds,omitempty"`

	caddyconf.AskPlace
}

// The answers that people can give.
const (
	allowAnswer  = "allow"
	rejectAnswer = "reject"
)

// readAsks reads
//
//	ask <kind>... in <channel> <to> [<duration>] [by <id>...] [else allow|reject]
func readAsks(d *caddyfile.Dispenser) (asks Asks, err error) {
	place := *d
	words := d.RemainingArgs()
	in := slices.Index(words, "in")
	if in <= 0 {
		return asks, place.Err("ask takes kinds of tools and where to ask, as in: ask edit execute in ops -100123 30m else reject")
	}
	asks.Kinds = words[:in]
	if asks.AskPlace, err = caddyconf.ReadAskPlace(words[in+1:]); err != nil {
		return asks, place.Errf("ask %v", err)
	}
	if err := asks.check(); err != nil {
		return asks, place.WrapErr(err)
	}
	return asks, nil
}

func (a *Asks) check() error {
	if len(a.Kinds) == 0 {
		return errors.New("ask has no kinds of tools")
	}
	for i, kind := range a.Kinds {
		if err := checkToolKind(kind); err != nil {
			return err
		}
		if slices.Contains(a.Kinds[:i], kind) {
			return fmt.Errorf("ask has '%s' twice", kind)
		}
	}
	if err := a.AskPlace.Check(); err != nil {
		return fmt.Errorf("ask %w", err)
	}
	switch {
	case a.Else != "" && a.Else != allowAnswer && a.Else != rejectAnswer:
		return fmt.Errorf("ask takes %s or %s after else, and not '%s'", allowAnswer, rejectAnswer, a.Else)
	case a.Else != "" && a.For == 0:
		return fmt.Errorf("ask needs a duration before else, after which %s counts", a.Else)
	}
	return nil
}

// place is where to ask.
func (a *Asks) place() engine.AskPlace {
	place := a.AskPlace.Place()
	if place.For > 0 && place.Else == "" {
		place.Else = rejectAnswer
	}
	return place
}

// checkAsks finds kinds of tools about which nobody can be asked, or more than once.
func (a *ACP) checkAsks() error {
	for i := range a.Ask {
		if err := a.Ask[i].check(); err != nil {
			return err
		}
		for _, kind := range a.Ask[i].Kinds {
			switch {
			case slices.Contains(a.Permit, kind):
				return fmt.Errorf("'%s' is in permit and in ask; leave it out of one of them", kind)
			case slices.ContainsFunc(a.Ask[:i], func(other Asks) bool { return slices.Contains(other.Kinds, kind) }):
				return fmt.Errorf("'%s' is in two lines of ask", kind)
			case agentPresets[a.Preset].unasked == kind:
				return fmt.Errorf("ask cannot have '%s' with the preset %s, which does some of that without asking; it can be in permit",
					kind, a.Preset)
			}
		}
	}
	return nil
}

// asked are the kinds of tools that people are asked about.
func (a *ACP) asked() (kinds []string) {
	for i := range a.Ask {
		kinds = append(kinds, a.Ask[i].Kinds...)
	}
	return kinds
}

// AskPlaces are the places where people are asked.
func (a *ACP) AskPlaces() (places []engine.AskPlace) {
	for i := range a.Ask {
		places = append(places, a.Ask[i].place())
	}
	return places
}

// placeFor is where people are asked about a kind of tool.
func (a *ACP) placeFor(kind string) (place engine.AskPlace, ok bool) {
	for i := range a.Ask {
		if slices.Contains(a.Ask[i].Kinds, kind) {
			return a.Ask[i].place(), true
		}
	}
	return place, false
}

// maxWaitingAsks is how many requests of a turn wait for people.
const maxWaitingAsks = 16

// How many bytes of a request people are shown. Chats show little more in one message.
const (
	maxAskedTitle = 200
	maxAskedInput = 600
	maxAskedPaths = 150
)

// What a request is told to operators as that people were to decide about.
const (
	rejectedUnasked = "rejected: nobody could be asked"
	rejectedAtEnd   = "rejected: broken off before an answer"
	rejectedTooMany = "rejected: too many requests wait"
)

// askPeople has people decide about a request. The lock is held, and the returned function is called without it.
func (t *turnListener) askPeople(place engine.AskPlace, kind string, use *acpclient.ToolUse, request *acpclient.PermissionRequest) (
	option string, decide func(context.Context) string) {
	allow, reject := request.Option(acp.PermissionOptionKindAllowOnce), request.Option(acp.PermissionOptionKindRejectOnce)
	switch {
	case t.ask == nil:
		t.note(kind, use.Title, rejectedUnasked)
		return reject, nil
	case allow == "":
		t.note(kind, use.Title, "rejected")
		return reject, nil
	case t.waiting == maxWaitingAsks:
		t.note(kind, use.Title, rejectedTooMany)
		return reject, nil
	}
	noted := t.note(kind, use.Title, rejectedAtEnd)
	ask := engine.Ask{Text: askedText(kind, use, t.runner.Redact), Choices: []string{allowAnswer, rejectAnswer}, Place: place}
	t.waiting++
	t.asks.Add(1)
	return "", func(ctx context.Context) string {
		defer t.asks.Done()
		answer, err := t.ask(ctx, ask)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waiting--
		switch {
		case t.closed || t.cancelled || t.problem != nil || errors.Is(err, errBrokenOff):
			return ""
		case err != nil:
			*noted = rejectedUnasked
			return reject
		case answer.Text != allowAnswer:
			*noted = "rejected" + decidedBy(&answer)
			return reject
		}
		*noted = "allowed" + decidedBy(&answer)
		return allow
	}
}

// decidedBy says who gave an answer, as far as that is known.
func decidedBy(answer *engine.Answer) string {
	switch {
	case answer.Via == engine.AnsweredByDeadline:
		return ": nobody answered in time"
	case answer.By != "":
		return " by " + answer.By
	}
	return ""
}

// errBrokenOff says that nobody waits for the answer to a question any more.
var errBrokenOff = errors.New("the question was broken off")

// askFunc asks a person something.
type askFunc func(context.Context, engine.Ask) (engine.Answer, error)

// askOneByOne asks people as a turn does, and never two questions at the same time. The questions end with ctx.
func askOneByOne(ctx context.Context, turn *engine.Turn) askFunc {
	if turn.Ask == nil {
		return nil
	}
	free := make(chan struct{}, 1)
	return func(request context.Context, ask engine.Ask) (answer engine.Answer, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(request, cancel)()
		select {
		case free <- struct{}{}:
			defer func() { <-free }()
		case <-ctx.Done():
			return answer, errBrokenOff
		}
		answer, err = turn.Ask(ctx, ask)
		if ctx.Err() != nil {
			err = errBrokenOff
		}
		return answer, err
	}
}

// askedText says what an agent wants to do. Each part of it is on one line: a person sees a line break in a command, and no part can pass
// for another one.
func askedText(kind string, use *acpclient.ToolUse, redact func(string) string) string {
	line := func(text string, most int) string {
		text = redact(text) // before a secret can be cut in two
		shown := oneline.Of(text, most)
		const widest = len(`\U0010ffff`) // of what one byte or more of a text is shown as
		if len(text) > most || shown != oneline.Of(text, widest*most) {
			shown += fmt.Sprintf(" (the rest of its %d bytes is left out)", len(text))
		}
		return shown
	}
	title, command := strings.TrimSpace(use.Title), use.Command()
	text := kind + ": "
	if command != "" && title == strings.TrimSpace(command) { // as many agents have it
		text += line(command, maxAskedInput)
	} else {
		text += cmp.Or(line(title, maxAskedTitle), "it does not say what for")
		if command != "" {
			text += "\nCommand: " + line(command, maxAskedInput)
		}
	}
	if command == "" && hasInput(use.Input) {
		text += "\nInput: " + line(compact(use.Input), maxAskedInput)
	}
	if paths := use.Paths(); len(paths) > 0 {
		text += "\nFiles: " + line(strings.Join(paths, ", "), maxAskedPaths)
	}
	return text
}

// hasInput reports whether the input of a tool says anything.
func hasInput(input json.RawMessage) bool {
	switch string(bytes.TrimSpace(input)) {
	case "", "null", "{}", `""`:
		return false
	}
	return true
}

// compact is JSON without spaces.
func compact(input json.RawMessage) string {
	var out bytes.Buffer
	if json.Compact(&out, input) != nil {
		return string(input)
	}
	return out.String()
}
