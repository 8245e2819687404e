// Package fold makes one message of those of several runs. It is a part of package engine, and imports no other package of the project.
package fold

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Message is the message of a run.
type Message struct {
	RunID      string
	AcceptedAt time.Time
	Text       string
}

// Join is the message of a turn for several runs: the messages of all, in order, each after a line with its number and
// time. Outside text stays marked as it is in each of them. A single run has its own message.
//
// The lines carry an id that depends on the ids of all runs. Those are random, and made after the messages were sent: nobody can
// send a text that passes for such a line. The same runs have the same id, so a turn that is repeated has the same message.
func Join(messages []Message) string {
	if len(messages) == 1 {
		return messages[0].Text
	}
	ids := sha256.New()
	size := 0
	for _, m := range messages {
		ids.Write([]byte(m.RunID))
		size += len(m.Text) + lineSize
	}
	id := fmt.Sprintf("%x", ids.Sum(nil)[:4])
	var joined strings.Builder
	joined.Grow(size + lineSize)
	fmt.Fprintf(&joined, "%d messages came one after the other. Each one begins after a line that ends with id=%s].\n", len(messages), id)
	for i, m := range messages {
		joined.WriteString("\n[" + strconv.Itoa(i+1) + " of " + strconv.Itoa(len(messages)) +
			", accepted " + m.AcceptedAt.UTC().Format(time.RFC3339) + ", id=" + id + "]\n")
		joined.WriteString(m.Text)
		if i+1 < len(messages) {
			joined.WriteByte('\n')
		}
	}
	return joined.String()
}

// lineSize is about how many bytes there are beside each message.
const lineSize = 80
