package supervise

import (
	"testing"
	"time"
)

// HurryStop has Stop wait for less. Only a test that runs alone may do so.
func HurryStop(t *testing.T, patience time.Duration) {
	before := stopPatience
	stopPatience = patience
	t.Cleanup(func() { stopPatience = before })
}

// WithoutWrapper lets programs run as where this program may not be started once more.
func WithoutWrapper(t *testing.T) {
	before := self
	self = "/proc/self/there-is-no-such-file"
	t.Cleanup(func() { self = before })
}

// WrapperPID is the number of the wrapper's process.
func (p *Process) WrapperPID() int { return p.watch.(*wrapped).wrapper.Pid }

// ProgramPID is the number of the program's process.
func (p *Process) ProgramPID() int { return p.watch.(*wrapped).program.PID }
