package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is as large as a pipe may be without special rights. Programs of Node.js end without waiting until their last words are
// read: what does not fit into the pipe is lost.
const pipeSize = 1 << 20

// enlarge makes a pipe as large as it may be. A user with many pipes gets small ones.
func enlarge(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}
