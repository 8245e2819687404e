package supervise

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

// notStarted says why the system refused to start a program. Its number of the error can mean the program, its interpreter, the
// folder or the user.
func notStarted(order wrapper.Order, errno syscall.Errno) error {
	where := fmt.Sprintf("%s in the folder %s", order.Path, order.Dir)
	if order.AsUser {
		where += fmt.Sprintf(" as the user with the number %d", order.UID)
	}
	switch {
	case errno == syscall.ENOENT:
		if _, err := os.Stat(order.Dir); err != nil {
			return fmt.Errorf("the folder %s does not exist", order.Dir)
		}
		if _, err := os.Stat(order.Path); err == nil {
			return fmt.Errorf("the program %s cannot be started: the interpreter that it names does not exist", order.Path)
		}
		return fmt.Errorf("the program %s does not exist", order.Path)
	case errno == syscall.ENOEXEC:
		return fmt.Errorf("the file %s is neither a program for this machine nor a script with #! at its beginning", order.Path)
	case errno == syscall.E2BIG:
		return fmt.Errorf("the program %s cannot be started: its arguments and environment are too long", order.Path)
	case errors.Is(errno, os.ErrPermission):
		return fmt.Errorf("cannot start %s: permission denied", where)
	}
	return fmt.Errorf("cannot start %s: %w", where, errno)
}

// errnoOf is the number of a system's error.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EINVAL
}
