//go:build !linux

package caddyhooks_test

import "os"

func toDisk(file *os.File) error { return file.Sync() }
