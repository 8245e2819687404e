package account

// Permission is a request of an agent to use a tool.
type Permission struct {
	Kind   string // of the tool, such as "read", "edit" or "execute"
	Title  string // what the agent says that it wants to do
	Answer string // "allowed" or "rejected", and possibly by whom or why
}

// Size is about how many bytes a store needs for it.
func (p *Permission) Size() int { return 16 + len(p.Kind) + len(p.Title) + len(p.Answer) }

// Bounds of the permissions that are kept of a run.
const (
	maxPermissions     = 32
	maxPermissionKind  = 64  // bytes, also of the answer
	maxPermissionTitle = 256 // bytes
)

// Permissions are what an agent asked to be allowed in the turns of an attempt at a run.
type Permissions struct {
	redact Redact
	kept   []Permission
	more   int // that were asked for and are not kept
}

// NewPermissions makes an empty list.
func NewPermissions(redact Redact) *Permissions { return &Permissions{redact: redact} }

// Add notes what an agent asked for in a turn.
func (p *Permissions) Add(asked []Permission) {
	for i, a := range asked {
		if len(p.kept) == maxPermissions {
			p.more += len(asked) - i
			return
		}
		p.kept = append(p.kept, Permission{Kind: p.redact.Line(a.Kind, maxPermissionKind), Title: p.redact.Line(a.Title, maxPermissionTitle),
			Answer: p.redact.Line(a.Answer, maxPermissionKind)})
	}
}

// Restore begins with those of an earlier attempt.
func (p *Permissions) Restore(kept []Permission, more int) { p.kept, p.more = kept, more }

// Note puts them into an account.
func (p *Permissions) Note(a *Account) { a.Permissions, a.MorePermissions = p.kept, p.more }
