package channels

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/clicks"
)

// A questioner is a messageEditor that posts messages with buttons. Its edit removes them.
type questioner interface {
	messageEditor
	postAsked(ctx context.Context, d *engine.Delivery, asked askedMessage) (id string, err error)
}

// askedMessage is a question that fits into one message.
type askedMessage struct {
	text     string // not escaped
	linkText string // what stands before the link …
	link     string // … which is made here, not outside; "" if there is none
	buttons  []askedButton
}

type askedButton struct{ label, data string }

// maxButtons is what fits into a message of every service.
const maxButtons = 25

// minAsked is how long the text of a question may be at least, whatever its link.
const minAsked = 500

// askEdited posts a question that closeEdited can change: as much of its text as fits into a message with the link. The id is "" if the
// service gave none of that form.
func askEdited(
	ctx context.Context, m questioner, to string, q engine.ChannelQuestion, s splitter, form *regexp.Regexp,
) (id string, err error) {
	if err := m.ValidTo(to); err != nil {
		return "", &engine.FinalError{Err: err}
	}
	runID, _, ok := engine.ParseQuestionID(q.ID)
	if !ok {
		return "", &engine.FinalError{Err: errors.New("the question has no id")}
	}
	if len(q.Choices) > maxButtons {
		return "", &engine.FinalError{Err: fmt.Errorf("the question has more than %d choices, which do not fit into a message", maxButtons)}
	}
	asked := askedMessage{link: q.Link, linkText: "Answer at"}
	for i, choice := range q.Choices {
		asked.buttons = append(asked.buttons, askedButton{buttonLabel(i, choice), clicks.ButtonData(q.ID, i)})
		asked.linkText = "Or answer at"
	}
	if asked.link != "" {
		s.limit -= s.size("\n\n-# " + asked.linkText + " <" + asked.link + ">")
	}
	if s.limit < minAsked {
		return "", &engine.FinalError{Err: errors.New("the link of the question does not fit into a message")}
	}
	if asked.text = s.first(cleanText(q.Text), runID); asked.text == "" {
		return "", &engine.FinalError{Err: errors.New("the question is blank")}
	}
	// With the id of the question it is known again, where the service can do that.
	if id, err = m.postAsked(ctx, &engine.Delivery{ID: q.ID, To: to}, asked); err != nil || !form.MatchString(id) {
		return "", err
	}
	return id, nil
}

// closeEdited puts a text in the place of a question that askEdited posted. One that is gone has no buttons any more.
func closeEdited(ctx context.Context, m questioner, to, posted, text string, s splitter, form *regexp.Regexp) error {
	if err := m.ValidTo(to); err != nil {
		return &engine.FinalError{Err: err}
	}
	if !form.MatchString(posted) {
		return &engine.FinalError{Err: errors.New("there is no message that could be closed")}
	}
	if text = s.first(cleanText(text), ""); text == "" {
		return &engine.FinalError{Err: errors.New("the text is blank")}
	}
	err := m.edit(ctx, &engine.Delivery{To: to}, posted, text)
	if errors.Is(err, errMessageGone) {
		return nil
	}
	return err
}

// errMessageGone is the error of an edit of a message that does not exist any more.
var errMessageGone = errors.New("the message is gone")

// orGone is the error of an edit: that the message is gone, if the service has refused it for that.
func orGone(err error, gone bool) error {
	if _, refused := errors.AsType[*engine.FinalError](err); refused && gone {
		return &engine.FinalError{Err: errMessageGone}
	}
	return err
}

// labelSplitter cuts labels so that every service takes them.
var labelSplitter = splitter{limit: 60, size: slackLength}

// buttonLabel is the label of a choice: one line, or its number if there is nothing to see in it.
func buttonLabel(number int, choice string) string {
	label := clicks.OneLine(choice)
	if isBlank(label) {
		return fmt.Sprintf("Choice %d", number+1)
	}
	if labelSplitter.size(label) > labelSplitter.limit {
		label = strings.TrimSpace(label[:labelSplitter.cut(label, "…")]) + "…"
	}
	return label
}
