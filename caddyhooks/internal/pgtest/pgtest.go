//go:build linux

// Package pgtest starts PostgreSQL servers for tests: as a normal user, in a temporary folder, on a Unix socket and, if a test wants
// it, on TCP. No server outlives the test process, however that ends.
package pgtest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

var shared struct {
	once sync.Once
	s    *Server
	err  error
}

var names atomic.Int64

// Main runs the tests of a package, and stops the server that they share. It is for TestMain.
func Main(m *testing.M) {
	code := m.Run()
	StopShared()
	os.Exit(code)
}

// StopShared stops the server that the tests of a package share, if there is one. It is for a TestMain that does more than Main.
func StopShared() {
	if shared.s != nil {
		shared.s.remove()
	}
}

// Shared is a server that all tests of a package share. It is quick rather than safe: it does not survive a crash of the machine.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() {
		if shared.s, shared.err = initServer(Config{Settings: "fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n"}); shared.err == nil {
			shared.err = shared.s.Start()
		}
	})
	mustWork(t, shared.err)
	return shared.s
}

// New starts a server of the test's own. It is gone when the test ends.
func New(t testing.TB, config Config) *Server {
	t.Helper()
	s, err := initServer(config)
	mustWork(t, err)
	t.Cleanup(s.remove)
	mustWork(t, s.Start())
	return s
}

var errNotInstalled = errors.New("there is no PostgreSQL on this machine: install the package postgresql")

func mustWork(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NewName is a name that no other test of this process has, for a schema.
func NewName(prefix string) string { return fmt.Sprint(prefix, names.Add(1)) }
