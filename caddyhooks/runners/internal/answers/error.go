// Package answers has what all runners know about the answer of an agent: how long it may be, what an answer that cannot be used is
// shown as, which failures let a run wait, and how secrets are kept out of all that.
//
// It imports engine and packages for text, and no other package of the runners.
package answers

import (
	"fmt"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

// Error is an answer of a runner that cannot be taken. Its text is for operators, and has the first line of the answer.
type Error struct {
	Problem string // as in "the runner answered 500"
	Text    string // the beginning of the answer
	Hint    string // about what to do, if anything
	Status  int    // of the model, if the answer tells of an error of it
}

func (e *Error) Error() string {
	text := e.Problem
	if line := oneline.First(e.Text, MaxLine); line != "" {
		text += ": " + line
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Answer is the beginning of the answer if there is more to it than Error shows.
func (e *Error) Answer() string {
	const longestEscape = 4 // \x1b for one byte
	answer := strings.TrimSpace(e.Text)
	if oneline.Of(answer, longestEscape*len(answer)) == oneline.First(answer, MaxLine) {
		return ""
	}
	return answer
}

// Interface guards
var _ engine.AnswerError = (*Error)(nil)

const (
	// MaxReply bounds the text of an answer.
	MaxReply = 1 << 20

	// MaxStream bounds a stream: each token comes with a good deal of JSON around it, and comments count too.
	MaxStream = 256 * MaxReply

	// MaxLine bounds the line of an answer that is shown in a sentence.
	MaxLine = 256

	// MaxBeginning bounds the text of an Error.
	MaxBeginning = 4 << 10
)

// ErrTooLarge is the error of a turn whose answer is longer than MaxReply.
var ErrTooLarge = fmt.Errorf("the answer is larger than %d bytes", MaxReply)

// Beginning is as much of a text as an Error needs.
func Beginning[T string | []byte](text T) string {
	return string(text[:min(len(text), MaxBeginning)])
}
