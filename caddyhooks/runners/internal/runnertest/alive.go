package runnertest

import (
	"os"
	"runtime"
	"syscall"
)

// Alive reports whether there is a process.
func Alive(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = process.Release() }()
	return runtime.GOOS == "windows" || process.Signal(syscall.Signal(0)) == nil
}
