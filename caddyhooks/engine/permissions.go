package engine

import "github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"

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
