package wrapper

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/procs"
)

func init() {
	if len(os.Args) >= 3 && os.Args[1] == Verb[0] && os.Args[2] == Verb[1] && startedByCaddy() {
		run()
		syscall.Exit(0)
	}
}

// These are newer than the package syscall. Their numbers are the same on all architectures.
const (
	sysCloseRange        = 436
	closeRangeCloexec    = 4
	prSetChildSubreaper  = 36
	waitForAllKinds      = 0x40000000 // __WALL
	noDescriptor         = ^uint32(0)
	nullFile             = "/dev/null"
	firstOtherDescriptor = Control + 1
)

// startedByCaddy reports whether there is a socket to the process that started this one, and that one made it.
func startedByCaddy() bool {
	peer, err := syscall.GetsockoptUcred(Control, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	return err == nil && peer.Pid != 0 && int(peer.Pid) == syscall.Getppid()
}

// run carries out one order.
func run() {
	// Nothing of Caddy's and nothing of this process may be handed on to the program: whoever holds the socket could give orders.
	syscall.CloseOnExec(Control)
	closeOthersOnExec()

	w := &wrapper{
		self:  syscall.Getpid(),
		ended: make(chan syscall.WaitStatus, 1),
		none:  make(chan struct{}),
		stops: make(chan time.Duration, 1),
	}
	kind, text, err := receive()
	if err != nil || kind != KindOrder {
		return
	}
	if w.order, err = ReadOrder(text); err != nil {
		send(KindNotStarted, Numbers(int64(syscall.EINVAL)))
		return
	}
	if errno := w.start(); errno != 0 {
		send(KindNotStarted, Numbers(int64(errno)))
		return
	}
	// What is sent to all processes of a terminal or a service, or to all that are called caddy, is caught and dropped: Caddy decides
	// what ends. Go takes no notice of other signals. A program does not inherit this, as it would if they were ignored. Each one
	// takes time, and the program runs already.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	send(KindStarted, Numbers(int64(w.program.PID), int64(w.program.Start)))
	w.supervise()
}

// closeOthersOnExec keeps from the program what Caddy was started with, such as the sockets of a service manager.
func closeOthersOnExec() {
	_, _, errno := syscall.RawSyscall(sysCloseRange, firstOtherDescriptor, uintptr(noDescriptor), closeRangeCloexec)
	if errno == 0 {
		return
	}
	// Before Linux 5.11.
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd >= firstOtherDescriptor {
			syscall.CloseOnExec(fd)
		}
	}
}

type wrapper struct {
	self    int
	order   Order
	program procs.Stat

	ended chan syscall.WaitStatus // of the program
	none  chan struct{}           // closed when nothing is below this process
	stops chan time.Duration      // the graces that Caddy gave
}

// start starts the program, in a session and a group of its own.
func (w *wrapper) start() syscall.Errno {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return errno
	}
	attributes := &syscall.SysProcAttr{
		Setsid: true,
		// If this process is killed, the program ends with it. This is bound to the thread, which in init is the first one, and
		// lives as long as the process.
		Pdeathsig: syscall.SIGKILL,
	}
	if w.order.AsUser {
		attributes.Credential = &syscall.Credential{Uid: w.order.UID, Gid: w.order.GID, Groups: w.order.Groups}
	}
	send(KindStarting, "")
	pid, err := syscall.ForkExec(w.order.Path, w.order.Args, &syscall.ProcAttr{ //nolint:gosec // the operator's program
		Dir: w.order.Dir, Env: w.order.Env, Files: []uintptr{0, 1, 2}, Sys: attributes,
	})
	if err != nil {
		errno := syscall.EINVAL
		errors.As(err, &errno)
		return errno
	}
	// Until now these were the program's own. They have to end with it.
	if null, err := syscall.Open(nullFile, syscall.O_RDWR|syscall.O_CLOEXEC, 0); err == nil {
		for fd := range Control {
			_ = syscall.Dup3(null, fd, 0)
		}
		_ = syscall.Close(null)
	} else {
		for fd := range Control {
			_ = syscall.Close(fd)
		}
	}
	w.program, _ = procs.Read(pid)
	w.program.PID = pid
	return 0
}

// supervise waits until the program has ended, or is to end, and ends all that is left.
func (w *wrapper) supervise() {
	go w.reap()
	go w.listen()
	exit := w.wait()
	w.sweep(exit)
	w.endMarked(exit)
	send(KindExit, exit)
}

// killed is the exit of a program of which is known only that it was killed.
var killed = Numbers(-1, int64(syscall.SIGKILL))

// wait returns when the program has ended.
func (w *wrapper) wait() (exit string) {
	var over <-chan time.Time // when its grace is
	var deadline time.Time
	for {
		select {
		case status := <-w.ended:
			return exitText(status)
		case grace := <-w.stops:
			if grace > 0 && over == nil {
				_ = syscall.Kill(-w.program.PID, syscall.SIGTERM)
			}
			if end := time.Now().Add(grace); over == nil || end.Before(deadline) {
				over, deadline = time.After(grace), end
			}
		case <-over:
			w.sweep(killed)
			return exitText(<-w.ended)
		}
	}
}

func exitText(status syscall.WaitStatus) string {
	if status.Exited() {
		return Numbers(int64(status.ExitStatus()), 0)
	}
	return Numbers(-1, int64(status.Signal()))
}

// reap waits for the program and for all that have become children of this process. When there are none any more, there is nothing
// below this process: whatever loses its parent there comes here.
func (w *wrapper) reap() {
	for running := true; ; {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, waitForAllKinds, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			close(w.none)
			return
		case running && pid == w.program.PID:
			running = false
			w.ended <- status
		}
	}
}

// listen takes the orders of Caddy to stop. When Caddy is gone, the program gets no grace.
func (w *wrapper) listen() {
	for {
		kind, text, err := receive()
		if err != nil {
			w.stops <- 0
			return
		}
		if kind != KindStop {
			continue
		}
		if grace, err := ReadNumbers(text); err == nil && len(grace) == 1 {
			w.stops <- time.Duration(grace[0]) * time.Millisecond
		}
	}
}

// sweep kills all below this process until nothing is left. If that takes long, it reports what is left to Caddy, and how the program
// ended.
func (w *wrapper) sweep(exit string) {
	deadline := time.Now().Add(SweepPatience)
	var reported bool
	for pause := procs.NextPause(0); ; pause = procs.NextPause(pause) {
		select {
		case <-w.none:
			return
		case <-time.After(pause):
		}
		left := w.killAll()
		if !reported && time.Now().After(deadline) {
			reported = true
			reportLeft(exit, left)
		}
	}
}

// killAll kills all that is below this process now.
func (w *wrapper) killAll() []procs.Stat {
	var all []procs.Stat
	procs.Each(func(s procs.Stat) {
		all = append(all, s)
		if s.Parent == w.self && !s.Dead() { // at once: it could be about to start the next one and end
			procs.Signal(s, syscall.SIGKILL)
		}
	})
	below := procs.Below(all, w.self)
	for _, s := range below {
		if s.Parent != w.self {
			procs.Signal(s, syscall.SIGKILL)
		}
	}
	if len(below) == 0 { // there are some, so they cannot be seen
		_ = syscall.Kill(-w.program.PID, syscall.SIGKILL)
	}
	return below
}

// endMarked kills what has the mark of the program and is not below this process, such as what another process started for it.
func (w *wrapper) endMarked(exit string) {
	if w.order.Turn == "" {
		return
	}
	if left := procs.EndAll(func() []procs.Stat { return Marked(w.order.Turn, w.program.Start) }, SweepPatience); len(left) > 0 {
		reportLeft(exit, left)
	}
}

// Marked are the processes with a mark, or one below it, that were started at a time or later.
func Marked(turn string, since uint64) (marked []procs.Stat) {
	procs.UntilKnown(func() bool {
		allKnown := true
		procs.Each(func(s procs.Stat) {
			if s.Start < since || s.Dead() {
				return
			}
			mark, known := procs.Variable(s, Mark)
			if Below(turn, mark) {
				marked = append(marked, s)
			}
			allKnown = allKnown && known
		})
		return allKnown || len(marked) > 0 // which its caller ends before it looks again
	})
	return marked
}

func reportLeft(exit string, left []procs.Stat) {
	const most = 100
	for _, s := range left[:min(len(left), most)] {
		exit += " " + Numbers(int64(s.PID))
	}
	send(KindLeft, exit)
}

// send sends a message to Caddy. It may be gone; then there is nobody to report to.
func send(kind byte, text string) {
	message := Message(kind, text)
	for len(message) > 0 {
		n, err := syscall.Write(Control, message)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		message = message[n:]
	}
}

// receive waits for a message of Caddy.
func receive() (kind byte, text string, err error) {
	var header [HeaderSize]byte
	if err := fill(header[:]); err != nil {
		return 0, "", err
	}
	kind, size, err := Header(header)
	if err != nil {
		return 0, "", err
	}
	body := make([]byte, size)
	if err := fill(body); err != nil {
		return 0, "", err
	}
	return kind, string(body), nil
}

func fill(space []byte) error {
	for len(space) > 0 {
		n, err := syscall.Read(Control, space)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return syscall.EPIPE
		}
		space = space[n:]
	}
	return nil
}
