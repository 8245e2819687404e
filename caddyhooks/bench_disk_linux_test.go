package caddyhooks_test

import (
	"os"
	"syscall"
)

// toDisk waits until what was written to a file is on the disk, as bbolt does.
func toDisk(file *os.File) error { return syscall.Fdatasync(int(file.Fd())) } //nolint:gosec // it is an int
