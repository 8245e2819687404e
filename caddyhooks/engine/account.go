package engine

import (
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Account is what operators are told about the end of a run. Callers, callbacks and channels are not: it may show the inside
// of a runner. All of it is at most 4 KiB, without the permissions.
type Account struct {
	CancelledBy      string   // who or what cancelled the run
	Reason           string   // why it did not complete, in a sentence, unless it was cancelled
	LastAnswer       string   // the beginning of the last answer, if it could not be used and Reason does not show all of it
	ValidationErrors []string // why it did not match the schema

	// What the agent asked to be allowed in the turns of the last attempt, the first 32 of them, and how many there were besides.
	Permissions     []Permission
	MorePermissions int
}

// How many bytes of an Account there can be, 4 KiB in all.
const (
	maxCancelledBy      = 256
	maxReason           = 512
	maxLastAnswer       = 1792
	maxValidationErrors = 1536
	maxValidationError  = 256 // of one of them
)

// redact takes a runner's secrets out of its answer. That comes before bounded, which may cut a secret in two.
func (a *Account) redact(by Redactor) {
	a.LastAnswer = by.Redact(a.LastAnswer)
	for i, text := range a.ValidationErrors {
		a.ValidationErrors[i] = by.Redact(text)
	}
}

// bounded is as much of an account as is kept.
func (a Account) bounded() Account {
	a.CancelledBy = oneline.Of(a.CancelledBy, maxCancelledBy)
	a.Reason = oneline.Of(a.Reason, maxReason)
	a.LastAnswer = excerpt(a.LastAnswer, maxLastAnswer)
	var kept []string
	room := maxValidationErrors
	for _, text := range a.ValidationErrors {
		text = oneline.Of(text, maxValidationError)
		if room -= len(text); room < 0 {
			break
		}
		kept = append(kept, text)
	}
	a.ValidationErrors = kept
	return a
}

// Size is how many bytes it has.
func (a *Account) Size() int {
	size := len(a.CancelledBy) + len(a.Reason) + len(a.LastAnswer)
	for _, text := range a.ValidationErrors {
		size += len(text)
	}
	for i := range a.Permissions {
		size += a.Permissions[i].Size()
	}
	return size
}

// excerpt is the beginning of a text in valid UTF-8, lines and all. An ellipsis says that there was more.
func excerpt(of string, size int) string {
	const ellipsis = "…"
	whole := len(of) <= size
	of = strings.ToValidUTF8(text.Beginning(of, size), "\ufffd")
	if whole && len(of) <= size {
		return of
	}
	return text.Beginning(of, size-len(ellipsis)) + ellipsis
}

// Bounds of the permissions that are kept of a run.
const (
	maxPermissions     = 32
	maxPermissionKind  = 64  // bytes, also of the answer
	maxPermissionTitle = 256 // bytes
)

// replyNotes are what a runner tells about the turns of an attempt besides its answers, and besides the session.
type replyNotes struct {
	redactor Redactor // nil if the runner has no secrets

	sessionRenewed  bool
	permissions     []Permission
	morePermissions int // that were asked for and are not kept
}

func newReplyNotes(runner Runner) *replyNotes {
	redactor, _ := runner.(Redactor)
	return &replyNotes{redactor: redactor}
}

// add notes what a reply tells, also one that came with an error. Repairs have no session.
func (n *replyNotes) add(turn *Turn, reply *Reply) {
	if turn.Repair == 0 && reply.SessionRenewed {
		n.sessionRenewed = true
	}
	for i, p := range reply.Permissions {
		if len(n.permissions) == maxPermissions {
			n.morePermissions += len(reply.Permissions) - i
			return
		}
		n.permissions = append(n.permissions, Permission{
			Kind: n.line(p.Kind, maxPermissionKind), Title: n.line(p.Title, maxPermissionTitle), Answer: n.line(p.Answer, maxPermissionKind),
		})
	}
}

// line is a text of the agent as it is kept, without the secrets of the runner.
func (n *replyNotes) line(text string, most int) string {
	if n.redactor != nil {
		text = n.redactor.Redact(text) // before a secret can be cut in two
	}
	return oneline.Of(text, most)
}

// complete adds what was noted to an outcome.
func (n *replyNotes) complete(outcome *Outcome) {
	outcome.SessionRenewed = n.sessionRenewed
	outcome.Account.Permissions, outcome.Account.MorePermissions = n.permissions, n.morePermissions
}
