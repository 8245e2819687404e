package runners

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// readEvents reads an answer that comes as server-sent events. The data of an event is {"text": …} or bare text.
//
//	delta      adds its text to the answer
//	heartbeat  says that the runner is still at work
//	result     ends the answer; its text, if it has one, stands instead of the deltas
//	error      ends the turn without an answer
//
// A stream that stops without result or error has been cut off, and is no answer. emit is told the deltas; it may be nil.
func readEvents(r io.Reader, emit func(engine.Progress)) (string, error) {
	// Framing and escapes make the stream longer than the text in it, and heartbeats count too.
	bounded := &io.LimitedReader{R: r, N: 16 * maxReply}
	lines := bufio.NewScanner(bounded)
	lines.Buffer(make([]byte, 0, 4096), 6*maxReply+1024)
	var text strings.Builder
	var event string
	var data []string
	for lines.Scan() {
		line := lines.Text()
		if line != "" {
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "event":
				event = value
			case "data":
				data = append(data, value)
			}
			continue
		}
		chunk, has := eventText(data)
		switch event {
		case "delta":
			text.WriteString(chunk)
			if emit != nil && chunk != "" {
				emit(engine.Progress{Text: chunk})
			}
		case "result":
			if has {
				text.Reset()
				text.WriteString(chunk)
			}
			if text.Len() > maxReply {
				return "", errReplyTooLarge
			}
			if !utf8.ValidString(text.String()) {
				return "", errors.New("the text is not valid UTF-8")
			}
			return text.String(), nil
		case "error":
			return "", errors.New("the runner sent an error event")
		}
		if text.Len() > maxReply {
			return "", errReplyTooLarge
		}
		event, data = "", nil
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	if bounded.N == 0 {
		return "", errReplyTooLarge
	}
	return "", errors.New("the stream of events ended without a result")
}

// eventText is the text that an event carries, and whether it carries any.
func eventText(data []string) (string, bool) {
	joined := strings.Join(data, "\n")
	if strings.HasPrefix(joined, "{") {
		if text, ok := textMember([]byte(joined)); ok {
			return text, true
		}
		if joined == "{}" {
			return "", false
		}
	}
	return joined, joined != ""
}
