package runners

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
)

// readEvents reads an answer that comes as server-sent events. The data of an event is {"text": …} or bare text. That
// of a result or an error may also say what was used, as {"usage": …}, with a text or without.
//
//	delta      adds its text to the answer
//	heartbeat  says that the runner is still at work
//	result     ends the answer; its text, if it has one, stands instead of the deltas
//	error      ends the turn without an answer
//
// A stream that stops without result or error has been cut off, and is no answer. emit gets the deltas; it may be nil.
func readEvents(r io.Reader, emit func(engine.Progress)) (reply engine.Reply, err error) {
	// Framing and escapes make the stream longer than the text in it, and heartbeats count too.
	events := sse.NewReader(r, 16*answers.MaxReply, 6*answers.MaxReply+1024, answers.ErrTooLarge)
	var text strings.Builder
	for events.Next() {
		chunk, has, used := eventText(bytes.TrimSuffix(events.Data, []byte("\n")))
		switch events.Name {
		case "delta":
			text.WriteString(chunk)
			if emit != nil && chunk != "" {
				emit(engine.Progress{Text: chunk})
			}
		case "result":
			reply.Usage = used
			if has {
				text.Reset()
				text.WriteString(chunk)
			}
			if text.Len() > answers.MaxReply {
				return reply, answers.ErrTooLarge
			}
			if !utf8.ValidString(text.String()) {
				return reply, errors.New("the text is not valid UTF-8")
			}
			reply.Text = text.String()
			return reply, nil
		case "error":
			reply.Usage = used
			return reply, &answers.Error{Problem: "the runner sent an error event", Text: answers.Beginning(chunk)}
		}
		if text.Len() > answers.MaxReply {
			return reply, answers.ErrTooLarge
		}
	}
	if err := events.Err(); err != nil {
		return reply, err
	}
	return reply, errors.New("the stream of events ended without a result")
}

// eventText is the text that an event carries, whether it carries any, and what was used.
func eventText(data []byte) (text string, has bool, used usage.Reports) {
	if bytes.HasPrefix(data, []byte("{")) {
		answer := parseAnswer(data)
		if answer.hasText || !answer.other {
			return answer.text, answer.hasText, answer.used
		}
	}
	return string(data), len(data) > 0, nil
}
