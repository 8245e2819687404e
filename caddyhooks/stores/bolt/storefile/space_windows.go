package storefile

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

// SpaceAt is how many bytes the file system of a file has, and how many are free for this process.
func SpaceAt(path string) (free, total uint64, err error) {
	dir, err := windows.UTF16PtrFromString(filepath.Dir(path))
	if err != nil {
		return 0, 0, err
	}
	err = windows.GetDiskFreeSpaceEx(dir, &free, &total, nil)
	return free, total, err
}
