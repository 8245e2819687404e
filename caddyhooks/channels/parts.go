package channels

import (
	"errors"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// sendParts sends the parts of an answer, from the first that has not arrived. An error ends the attempt, and the next attempt
// begins with the same part.
func sendParts(d *engine.Delivery, parts []string, send func(part string) error) error {
	if len(parts) == 0 {
		return &engine.FinalError{Err: errBlank}
	}
	for ; d.Sent < len(parts); d.Sent++ {
		if err := send(parts[d.Sent]); err != nil {
			return err
		}
	}
	return nil
}

var errBlank = errors.New("the answer is blank, and the channel takes no blank messages")

// editOrPost sends the next part of an answer. The first part takes the place of the message that Begin posted, if there is one.
// edit may be repeated: what it does again changes nothing. If the service refuses it for good, the message is gone or can no
// longer be changed, and the part is posted. valid reports whether the delivery's Progress, which comes from the store, is one.
func editOrPost(d *engine.Delivery, valid func(progress string) bool, edit, post func() error) error {
	if d.Sent == 0 && valid(d.Progress) {
		err := edit()
		if _, refused := errors.AsType[*engine.FinalError](err); !refused {
			return err
		}
	}
	return post()
}

// errNoProgress is returned by Withdraw for a progress that Begin did not return.
var errNoProgress = errors.New("this is not a message of this channel")

// progressPart is the text of a message that Begin posts: what fits into one message.
func (s splitter) progressPart(text string) (string, error) {
	parts := s.split(text, "")
	if len(parts) == 0 {
		return "", errors.New("the text is blank")
	}
	return parts[0], nil
}
