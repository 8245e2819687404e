package local

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// A chat that nobody named is made for one run, a moment before the run gets its id, and called hook:<UUIDv7>. The time in
// that tells where the run is, so it needs no place in an index of chats.

// freshWithin is how long after its chat a run is looked for. One that got its id later is found like that of a named chat.
const freshWithin = 100 * time.Millisecond

// freshChat reads the id of a chat that was made for a run.
func freshChat(chat string) (id uuid.UUID, ok bool) {
	text, ok := strings.CutPrefix(chat, "hook:")
	if !ok {
		return id, false
	}
	return ParseID(text)
}

// IsNamed reports whether somebody named the chat of a run. Earlier versions did not write that down, and made chats with
// random ids.
func IsNamed(run *engine.Run) bool {
	if run.NewChat {
		return false
	}
	id, fresh := freshChat(run.ChatID)
	return !fresh || id.Version() != 4
}

// IsFoundByTime reports whether FreshRange leads to the run for which its chat was made.
func IsFoundByTime(run *engine.Run, id uuid.UUID) bool {
	from, to, ok := FreshRange(run.ChatID)
	return ok && run.NewChat && compareIDs(id, from) >= 0 && compareIDs(id, to) <= 0
}

// FreshRange is where the run is for which a chat was made, if it got its id soon.
func FreshRange(chat string) (from, to uuid.UUID, ok bool) {
	id, ok := freshChat(chat)
	if !ok || id.Version() != 7 {
		return from, to, false
	}
	made := IDTime(id)
	return FirstID(made), LastID(made.Add(freshWithin)), true
}
