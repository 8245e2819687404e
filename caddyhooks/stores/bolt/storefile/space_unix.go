//go:build unix

package storefile

import "golang.org/x/sys/unix"

// SpaceAt is how many bytes the file system of a file has, and how many are free for this process.
func SpaceAt(path string) (free, total uint64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, 0, err
	}
	size := uint64(fs.Bsize)
	return uint64(max(fs.Bavail, 0)) * size, uint64(fs.Blocks) * size, nil //nolint:unconvert,nolintlint // types differ between systems
}
