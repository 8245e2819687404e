//go:build unix

package supervise

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// readWithoutWaiting reads what is in a pipe now. An empty pipe is at its end.
func readWithoutWaiting(f *os.File, p []byte) (n int, err error) {
	if err := f.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	defer endReading(f)
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			if n, readErr = syscall.Read(int(fd), p); !errors.Is(readErr, syscall.EINTR) {
				return true
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(readErr, syscall.EAGAIN) || readErr == nil && n == 0 && len(p) > 0:
		return 0, io.EOF
	case readErr != nil:
		return 0, readErr
	}
	return n, nil
}
