package hookstest

import (
	"os"
	"path/filepath"
	"strings"
)

// CommandLine is the program of a process and its arguments.
func CommandLine(pid string) string {
	args, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	return strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")
}

// ProcessesWith are the processes that have a word among their arguments.
func ProcessesWith(word string) (pids []string) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if args, _ := os.ReadFile(filepath.Join(process, "cmdline")); strings.Contains(string(args), word) {
			pids = append(pids, filepath.Base(process))
		}
	}
	return pids
}

// ProcessesAtHome are the processes that have a directory as their home, or work in it.
func ProcessesAtHome(home string) (pids []string) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		environ, _ := os.ReadFile(filepath.Join(process, "environ"))
		at, _ := os.Readlink(filepath.Join(process, "cwd"))
		if strings.Contains("\x00"+string(environ), "\x00HOME="+home+"\x00") || at == home || strings.HasPrefix(at, home+"/") {
			pids = append(pids, filepath.Base(process))
		}
	}
	return pids
}
