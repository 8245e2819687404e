//go:build !unix

package caddyhooks_test

import "syscall"

func withSmallBuffers(string, string, syscall.RawConn) error { return nil }
