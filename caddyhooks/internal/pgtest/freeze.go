//go:build linux

package pgtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Freeze has all processes of the server stand still, as those of a virtual machine that is paused: connections stay open, and nothing
// answers. They go on at the end of the test, if nobody thaws them before.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { s.signalAll(t, syscall.SIGCONT) })
	s.signalAll(t, syscall.SIGSTOP)
}

// Thaw has a frozen server go on.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	s.signalAll(t, syscall.SIGCONT)
}

// signalAll sends a signal to the server, and then to its children, of which it starts no more if it stands still.
func (s *Server) signalAll(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if !s.isRunning() {
		return
	}
	s.mu.Lock()
	server := s.process.Process.Pid
	s.mu.Unlock()
	if err := syscall.Kill(server, signal); err != nil {
		t.Error(err)
	}
	for _, child := range childrenOf(server) {
		_ = syscall.Kill(child, signal) // it may be gone by now
	}
}

// childrenOf are the processes that a process has started and that are there now.
func childrenOf(parent int) (children []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(stat), ") ") // what is before may hold spaces
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			children = append(children, child)
		}
	}
	return children
}
