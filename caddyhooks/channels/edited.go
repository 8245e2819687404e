package channels

import (
	"context"
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

// sendEdited sends an answer in parts. The form of an id is that of the messages that beginEdited posts.
func sendEdited(ctx context.Context, m messageEditor, d *engine.Delivery, s splitter, id *regexp.Regexp) error {
	if err := m.ValidTo(d.To); err != nil {
		return &engine.FinalError{Err: err}
	}
	return sendParts(d, s.split(cleanText(d.Body), d.RunID), func(part string) error {
		return editOrPost(d, id.MatchString,
			func() error { return m.edit(ctx, d, d.Progress, part) },
			func() error {
				_, err := m.post(ctx, d, part)
				return err
			})
	})
}

// beginEdited posts a message that sendEdited can change.
func beginEdited(ctx context.Context, m messageEditor, to, text string, s splitter) (id string, err error) {
	if err := m.ValidTo(to); err != nil {
		return "", err
	}
	part, err := s.progressPart(cleanText(text))
	if err != nil {
		return "", err
	}
	if id, err = m.post(ctx, &engine.Delivery{To: to}, part); err != nil {
		return "", err
	}
	return id, nil
}

// accountName is the form of the names that services give to those who post.
var accountName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,255}$`)

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
