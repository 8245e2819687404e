//go:build linux

package pgtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// syncMethodVariable names, in the environment, the wal_sync_method of durable servers. Without it they have that of the platform.
const syncMethodVariable = "HOOKS_WAL_SYNC_METHOD"

// NewDurable is New with a server that has on its disk what it acknowledges. It is for benchmarks.
func NewDurable(t testing.TB) *Server {
	t.Helper()
	settings := "fsync = on\nsynchronous_commit = on\nfull_page_writes = on\n"
	if method := os.Getenv(syncMethodVariable); method != "" {
		settings += "wal_sync_method = " + method + "\n"
	}
	return New(t, Config{Settings: settings})
}

// ProcessorTime is how long all processes of the server have had a processor, also those that are gone, to 10 ms each.
func (s *Server) ProcessorTime(t testing.TB) time.Duration {
	t.Helper()
	s.mu.Lock()
	server := strconv.Itoa(s.process.Process.Pid)
	s.mu.Unlock()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		t.Fatal("there is no /proc", err)
	}
	ticks := 0
	for _, file := range files {
		stat, _ := os.ReadFile(file) // it may be gone by now
		// Its name, which may hold spaces, is in parentheses. After it are the state, the parent and, from the 12th field on, times: its own in
		// its code and in the kernel's, and the same of children that are gone.
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		var times []string
		switch {
		case len(fields) < 15:
		case filepath.Base(filepath.Dir(file)) == server:
			times = fields[11:15]
		case fields[1] == server:
			times = fields[11:13]
		}
		for _, field := range times {
			n, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
