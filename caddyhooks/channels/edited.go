package channels

import (
	"context"
	"errors"
	"regexp"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// A messageEditor posts messages to the chat of a delivery, and changes and removes those that it posted, which it finds by their
// ids. Each makes one attempt, as Send does.
type messageEditor interface {
	post(ctx context.Context, d *engine.Delivery, text string) (id string, err error)
	edit(ctx context.Context, d *engine.Delivery, id, text string) error
	remove(ctx context.Context, d *engine.Delivery, id string) error
}

// sendEdited sends the parts of an answer. The first takes the place of the message that said that it is being worked on, if there is
// one of which the id has the given form. If the service does not let that message be changed, the part is posted like the others.
func sendEdited(ctx context.Context, m messageEditor, d *engine.Delivery, parts []string, id *regexp.Regexp) error {
	return sendParts(d, parts, func(part string) error {
		if d.Sent == 0 && id.MatchString(d.Progress) {
			err := m.edit(ctx, d, d.Progress, part)
			if _, refused := errors.AsType[*engine.FinalError](err); !refused {
				return err
			}
		}
		_, err := m.post(ctx, d, part)
		return err
	})
}

// beginEdited posts a message that sendEdited can change.
func beginEdited(ctx context.Context, m messageEditor, to, text string) (id string, err error) {
	text = cleanText(text)
	if isBlank(text) {
		return "", nil
	}
	return m.post(ctx, &engine.Delivery{To: to}, text)
}

// withdrawEdited removes a message that beginEdited posted.
func withdrawEdited(ctx context.Context, m messageEditor, to, progress string, id *regexp.Regexp) error {
	if !id.MatchString(progress) {
		return errors.New("there is no message that could be removed")
	}
	return m.remove(ctx, &engine.Delivery{To: to}, progress)
}
