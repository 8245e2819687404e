package procs

// Stat is a process as /proc/<pid>/stat shows it.
type Stat struct {
	PID     int
	State   byte // such as 'S' for sleeping, 'Z' for one that has ended and was not waited for
	Parent  int
	Kernel  bool // a thread of the kernel, which runs no program
	Threads int
	Start   uint64 // when it was started, in ticks since the machine was: tells it from another one that gets the same number
}

// Dead reports whether the process has ended, and only its number is left. One whose first thread has ended looks like that too, but
// its other threads go on.
func (s Stat) Dead() bool {
	return (s.State == 'Z' || s.State == 'X' || s.State == 'x') && s.Threads <= 1
}

// The fields of /proc/<pid>/stat after the name of the program, counted from 0.
const (
	fieldState   = 0
	fieldParent  = 1
	fieldFlags   = 6
	fieldThreads = 17
	fieldStart   = 19
)

const flagKernel = 0x00200000 // PF_KTHREAD of the kernel's sched.h

// ParseStat reads the content of /proc/<pid>/stat. The name of the program stands in parentheses and may hold anything: blanks,
// newlines, and parentheses too.
func ParseStat(text []byte) (s Stat, ok bool) {
	open, end := -1, -1
	for i, c := range text {
		if c == '(' && open < 0 {
			open = i
		}
		if c == ')' {
			end = i
		}
	}
	if open < 2 || end < open || text[open-1] != ' ' {
		return Stat{}, false
	}
	pid, ok := number(text[:open-1])
	if !ok {
		return Stat{}, false
	}
	s.PID = int(pid)
	rest := text[end+1:]
	for field := 0; field <= fieldStart; field++ {
		var word []byte
		word, rest = nextWord(rest)
		switch field {
		case fieldState:
			if len(word) != 1 {
				return Stat{}, false
			}
			s.State = word[0]
		case fieldParent:
			parent, ok := number(word)
			if !ok {
				return Stat{}, false
			}
			s.Parent = int(parent)
		case fieldFlags:
			flags, ok := number(word)
			if !ok {
				return Stat{}, false
			}
			s.Kernel = flags&flagKernel != 0
		case fieldThreads:
			threads, ok := number(word)
			if !ok {
				return Stat{}, false
			}
			s.Threads = int(threads)
		case fieldStart:
			if s.Start, ok = number(word); !ok {
				return Stat{}, false
			}
		}
	}
	return s, true
}

// nextWord is what stands before the next blank, and what follows.
func nextWord(text []byte) (word, rest []byte) {
	for len(text) > 0 && text[0] == ' ' {
		text = text[1:]
	}
	for i, c := range text {
		if c == ' ' || c == '\n' {
			return text[:i], text[i:]
		}
	}
	return text, nil
}

// number reads a decimal number that fits into 63 bits.
func number(text []byte) (n uint64, ok bool) {
	const most = 1<<63 - 1
	if len(text) == 0 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' || n > (most-9)/10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}
