//go:build unix

package programs

import (
	"io/fs"
	"syscall"
)

// numbersOf are the numbers of the user and the group that a file belongs to.
func numbersOf(info fs.FileInfo) (uid, gid int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(stat.Uid), int(stat.Gid), true
}
