package questions

import (
	"fmt"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/untrusted"
)

// maxQuoted is how many bytes of a text from outside a question shows: chats show no more than about 2,000 characters in one message.
const maxQuoted = 1200

// quoteMark begins each line that comes from outside. What stands on a line without it is our own word.
const quoteMark = "│ "

// lineBreaks makes all that some chat shows as a line break one.
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n")

// Quote marks a text from outside, line by line, and cuts it.
func Quote(outside string) string {
	outside = strings.TrimSpace(untrusted.Clean(untrusted.Unmarked(outside)))
	cut := len(outside) > maxQuoted
	if cut {
		outside = text.Beginning(outside, maxQuoted)
	}
	outside = lineBreaks.Replace(outside)
	quoted := quoteMark + strings.ReplaceAll(outside, "\n", "\n"+quoteMark)
	if cut {
		quoted += "…\n(The rest is left out.)"
	}
	return quoted
}

// BeforeStart asks whether a run may start.
func BeforeStart(run *engine.Run) string {
	return fmt.Sprintf("May the agent act on this message to hook %s?\n\n%s", hookOf(run), Quote(run.Message))
}

// FirstOf asks whether a run of an unknown sender may start, and those that come after it.
func FirstOf(run *engine.Run) string {
	return fmt.Sprintf("Somebody new writes to hook %s: %s\nMay the agent act on this message, and on later ones of the same sender?\n\n%s",
		hookOf(run), oneline.Of(untrusted.Clean(run.Sender), 100), Quote(run.Message))
}

// BeforeDelivery asks whether an answer may be sent.
func BeforeDelivery(run *engine.Run, outcome *engine.Outcome) string {
	return fmt.Sprintf("May this answer of the agent to a message to hook %s be sent?\n\n%s", hookOf(run), Quote(outcome.Text))
}

// FromAgent is what an agent wants to know, or to do.
func FromAgent(run *engine.Run, ask engine.Ask) string {
	wants := "asks"
	if len(ask.Choices) > 0 {
		wants = "wants to do this"
	}
	return fmt.Sprintf("The agent of hook %s %s:\n\n%s", hookOf(run), wants, Quote(ask.Text))
}

// hookOf names the hook of a run. Its name is the operator's.
func hookOf(run *engine.Run) string { return oneline.Of(run.Hook, 64) }
