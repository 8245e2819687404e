//go:build unix && !solaris && !aix

package programs

import (
	"os"
	"syscall"
)

// LockFolder locks a folder against others that do so, also in this process, unless one of them has. It follows no link.
func LockFolder(path string) (release func(), ok bool) {
	folder, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, false
	}
	if syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = folder.Close()
		return nil, false
	}
	return func() { _ = folder.Close() }, true
}
