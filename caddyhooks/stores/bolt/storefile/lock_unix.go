//go:build !windows && !plan9 && !solaris && !aix && !android

package storefile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// unlock gives up the lock on a file that a database has open. To close the file is not enough while it is mapped.
func unlock(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }

// lock takes the lock that a database takes, whatever is in the file.
func lock(file *os.File) (err error) {
	for deadline := time.Now().Add(LockTimeout); ; time.Sleep(lockRetry) {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) ||
			time.Now().After(deadline) {
			return err
		}
	}
}

// lockRetry is how often a lock is asked for that another process has.
const lockRetry = 50 * time.Millisecond

// giveTo gives an open file the owner of another one, if this process may. Its name may lead to another file meanwhile.
func giveTo(file *os.File, other fs.FileInfo) error {
	owner, ok := other.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return file.Chown(int(owner.Uid), int(owner.Gid))
}

// Allocated is how many bytes of a file are on the disk, 0 if that is not known.
func Allocated(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512
	}
	return 0
}
