package procs

import (
	"syscall"
	"time"
)

// The numbers of these calls are the same on all architectures. The package syscall is older than they are.
const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434
)

// Signal sends a signal to a process, and never to another one that has got its number meanwhile. It reports whether the signal
// was sent.
func Signal(s Stat, signal syscall.Signal) bool {
	fd, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(s.PID), 0, 0)
	if errno != 0 {
		// An old kernel, or a filter of system calls: the number is checked just before it is used.
		return errno != syscall.ESRCH && isSameProcess(s) && syscall.Kill(s.PID, signal) == nil
	}
	defer func() { _ = syscall.Close(int(fd)) }()
	if !isSameProcess(s) { // since the descriptor was opened, it stands for one process only
		return false
	}
	_, _, errno = syscall.RawSyscall6(sysPidfdSendSignal, fd, uintptr(signal), 0, 0, 0, 0)
	if errno == syscall.ENOSYS || errno == syscall.EPERM {
		return syscall.Kill(s.PID, signal) == nil
	}
	return errno == 0
}

func isSameProcess(s Stat) bool {
	now, ok := Read(s.PID)
	return ok && now.Start == s.Start
}

// Pauses between two looks at processes that are to end.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// NextPause is how long to wait after a pause, 0 for the first one.
func NextPause(pause time.Duration) time.Duration { return min(max(firstPause, 2*pause), lastPause) }

// EndAll kills all that find returns, until it returns none. What is still there after a time is returned.
func EndAll(find func() []Stat, patience time.Duration) (left []Stat) {
	deadline := time.Now().Add(patience)
	for pause := NextPause(0); ; pause = NextPause(pause) {
		if left = find(); len(left) == 0 {
			return nil
		}
		for _, s := range left {
			Signal(s, syscall.SIGKILL)
		}
		if time.Now().After(deadline) {
			return left
		}
		time.Sleep(pause)
	}
}

// EndTrees kills processes and all that they have started. These are stopped before the first one is killed, for it is by their
// parents that they are found.
func EndTrees(roots []Stat, patience time.Duration) (left []Stat) {
	type id struct {
		pid   int
		start uint64
	}
	deadline := time.Now().Add(patience)
	stopped := make(map[id]bool) // false: to be stopped
	for _, root := range roots {
		stopped[id{root.PID, root.Start}] = false
	}
	for fresh := true; fresh && time.Now().Before(deadline); {
		fresh = false
		all := Table()
		var tree []Stat
		var pids []int
		for _, s := range all {
			if _, ours := stopped[id{s.PID, s.Start}]; ours && !s.Dead() {
				tree, pids = append(tree, s), append(pids, s.PID)
			}
		}
		for _, s := range append(tree, Below(all, pids...)...) {
			if !stopped[id{s.PID, s.Start}] {
				stopped[id{s.PID, s.Start}] = true
				Signal(s, syscall.SIGSTOP)
				fresh = true
			}
		}
	}
	return EndAll(func() (alive []Stat) {
		for s := range stopped {
			if now, ok := Read(s.pid); ok && now.Start == s.start && !now.Dead() {
				alive = append(alive, now)
			}
		}
		return alive
	}, time.Until(deadline))
}
