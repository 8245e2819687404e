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
	ValidTo(to string) error
	post(ctx context.Context, d *engine.Delivery, text string) (id string, err error)
	edit(ctx context.Context, d *engine.Delivery, id, text string) error
	remove(ctx context.Context, d *engine.Delivery, id string) error
}

// sendEdited sends an answer in parts. The first takes the place of the message that beginEdited posted, if there is one: the
// delivery's Progress, which comes from the store, has the form of an id then. An edit may be repeated: what it does again changes
// nothing. If the service refuses it for good, the message is gone or can no longer be changed, and the part is posted.
func sendEdited(ctx context.Context, m messageEditor, d *engine.Delivery, s splitter, id *regexp.Regexp) error {
	if err := m.ValidTo(d.To); err != nil {
		return &engine.FinalError{Err: err}
	}
	return sendParts(d, s.split(cleanText(d.Body), d.RunID), func(part string) error {
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

// beginEdited posts a message that sendEdited can change: as much of the text as fits into one. The id is "" if the service gave
// none of that form.
func beginEdited(ctx context.Context, m messageEditor, to, text string, s splitter, form *regexp.Regexp) (id string, err error) {
	if err := m.ValidTo(to); err != nil {
		return "", err
	}
	parts := s.split(cleanText(text), "")
	if len(parts) == 0 {
		return "", errors.New("the text is blank")
	}
	if id, err = m.post(ctx, &engine.Delivery{To: to}, parts[0]); err != nil || !form.MatchString(id) {
		return "", err
	}
	return id, nil
}

// withdrawEdited removes a message that beginEdited posted.
func withdrawEdited(ctx context.Context, m messageEditor, to, progress string, id *regexp.Regexp) error {
	if err := m.ValidTo(to); err != nil {
		return err
	}
	if !id.MatchString(progress) {
		return errNoProgress
	}
	return m.remove(ctx, &engine.Delivery{To: to}, progress)
}

var errNoProgress = errors.New("there is no message that could be removed")

// accountName is the form of the names that services give to those who post.
var accountName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,255}$`)
