package procs

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	maxStat    = 4 << 10 // of /proc/<pid>/stat, which has some 300 bytes
	maxEnviron = 4 << 20 // of /proc/<pid>/environ; a program can have 2 MB of it, and more where the stack is larger
)

// Read is the process of this number, if there is one.
func Read(pid int) (Stat, bool) {
	var space [maxStat]byte
	text, ok := readInto(space[:], "/proc/"+strconv.Itoa(pid)+"/stat")
	if !ok {
		return Stat{}, false
	}
	return ParseStat(text)
}

// readInto reads a file until it ends or the space is full.
func readInto(space []byte, path string) ([]byte, bool) {
	fd, err := ignoringEINTR(func() (int, error) { return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return nil, false
	}
	defer func() { _ = syscall.Close(fd) }()
	var size int
	for size < len(space) {
		n, err := ignoringEINTR(func() (int, error) { return syscall.Read(fd, space[size:]) })
		if err != nil {
			return nil, false
		}
		if n <= 0 {
			break
		}
		size += n
	}
	return space[:size], true
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// Each calls see for all processes that can be seen, the newest numbers first: what is being started at this moment is
// found early.
func Each(see func(Stat)) {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for i := len(names) - 1; i >= 0; i-- {
		pid, err := strconv.Atoi(names[i])
		if err != nil {
			continue
		}
		if stat, ok := Read(pid); ok {
			see(stat)
		}
	}
}

// Table is all processes that can be seen.
func Table() (all []Stat) {
	Each(func(s Stat) { all = append(all, s) })
	return all
}

// Below are the processes of a table that the roots have started, and those that these have started, without the roots and
// without the dead.
func Below(all []Stat, roots ...int) (below []Stat) {
	children := make(map[int][]Stat, len(all))
	for _, s := range all {
		children[s.Parent] = append(children[s.Parent], s)
	}
	seen := make(map[int]bool, len(roots))
	for _, root := range roots {
		seen[root] = true
	}
	for next := roots; len(next) > 0; {
		var after []int
		for _, parent := range next {
			for _, child := range children[parent] {
				if seen[child.PID] {
					continue
				}
				seen[child.PID] = true
				after = append(after, child.PID)
				if !child.Dead() {
					below = append(below, child)
				}
			}
		}
		next = after
	}
	return below
}

// Variable is the value of a variable in the environment that a process was started with; "" if it has none, or if the environment may
// not be read. It is not known while a process is being given a program: the kernel shows neither environment nor arguments then.
func Variable(s Stat, name string) (value string, known bool) {
	const looks = 5 // at two files, so it may have got its program between them, and even one more
	for range looks {
		value, empty := lookUp(s.PID, name)
		if !empty || s.Kernel {
			return value, true
		}
		var first [1]byte
		if arguments, ok := readInto(first[:], "/proc/"+strconv.Itoa(s.PID)+"/cmdline"); ok && len(arguments) == 0 {
			now, there := Read(s.PID)
			return "", !there || now.Start != s.Start || now.Dead()
		}
	}
	return "", true
}

// lookUp finds a variable in the environment of a process, and tells whether that is empty. One that may not be read is not.
func lookUp(pid int, name string) (value string, empty bool) {
	// Most environments are small.
	for size := 64 << 10; ; size = maxEnviron {
		text, ok := readInto(make([]byte, size), "/proc/"+strconv.Itoa(pid)+"/environ")
		if !ok {
			return "", false
		}
		value, found := variable(text, name)
		if found || len(text) < size || size == maxEnviron {
			return value, len(text) == 0
		}
	}
}

// settlePatience is far longer than the kernel takes to give a process its program.
const settlePatience = time.Second

// UntilKnown looks again while a look says that it did not come to know all.
func UntilKnown(look func() (known bool)) {
	deadline := time.Now().Add(settlePatience)
	for pause := NextPause(0); !look() && time.Now().Before(deadline); pause = NextPause(pause) {
		time.Sleep(pause)
	}
}

// variable finds a variable in text such as "A=1\x00B=2\x00".
func variable(text []byte, name string) (value string, found bool) {
	for len(text) > 0 {
		end := 0
		for end < len(text) && text[end] != 0 {
			end++
		}
		if len(name) < end && text[len(name)] == '=' && string(text[:len(name)]) == name {
			return string(text[len(name)+1 : end]), true
		}
		if end == len(text) {
			break
		}
		text = text[end+1:]
	}
	return "", false
}
