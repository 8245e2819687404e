package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/procs"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

// self is this program, also if its file was replaced meanwhile.
var self = "/proc/self/exe"

// startPatience is how long a wrapper may take to start its program, on a machine that has much else to do.
const startPatience = 30 * time.Second

// wrapped is a program with a wrapper.
type wrapped struct {
	wrapper *os.Process
	control *os.File
	turn    string
	program procs.Stat

	writing sync.Mutex // of control
}

func (p *Process) begin(order wrapper.Order, files []*os.File) (watch, error) {
	sockets, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket for the program: %w", err)
	}
	_ = syscall.SetNonblock(sockets[0], true)
	control, theirs := os.NewFile(uintptr(sockets[0]), "control"), os.NewFile(uintptr(sockets[1]), "control")
	arguments := []string{os.Args[0], wrapper.Verb[0], wrapper.Verb[1], order.Turn}
	process, err := os.StartProcess(self, arguments, &os.ProcAttr{ //nolint:gosec // this program itself, without a shell
		Dir:   "/",
		Env:   wrapperEnvironment(),
		Files: append(append([]*os.File{}, files...), theirs),
		Sys:   &syscall.SysProcAttr{Setsid: true}, // what a terminal sends to Caddy is not for the wrapper
	})
	_ = theirs.Close()
	if err != nil {
		_ = control.Close()
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			return p.beginGroup(order, files)
		}
		return nil, fmt.Errorf("starting this program once more: %w", err)
	}
	w := &wrapped{wrapper: process, control: control, turn: order.Turn}
	if err := w.handOver(order); err != nil {
		_ = process.Kill()
		_, _ = process.Wait()
		_ = control.Close()
		return nil, err
	}
	go w.follow(p)
	return w, nil
}

// wrapperEnvironment has nothing of the program's, and of ours only what a program needs to be loaded.
func wrapperEnvironment() []string {
	const libraries = "LD_LIBRARY_PATH"
	env := []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}
	if path, ok := os.LookupEnv(libraries); ok {
		env = append(env, libraries+"="+path)
	}
	return env
}

// handOver gives the order to the wrapper, and waits until the program runs. A program that runs may have killed the wrapper before
// that said so: this is then for follow.
func (w *wrapped) handOver(order wrapper.Order) error {
	_ = w.control.SetDeadline(time.Now().Add(startPatience))
	defer func() { _ = w.control.SetDeadline(time.Time{}) }()
	if err := w.send(wrapper.KindOrder, order.Text()); err != nil {
		return fmt.Errorf("the wrapper of the program did not take it: %w", err)
	}
	for starting := false; ; {
		kind, numbers, err := w.receive()
		switch {
		case err != nil && starting:
			_ = w.wrapper.Kill()
			return nil
		case err != nil:
			return fmt.Errorf("the wrapper of the program did not start it: %w", err)
		case kind == wrapper.KindStarting:
			starting = true
		case kind == wrapper.KindNotStarted && len(numbers) == 1:
			return notStarted(order, syscall.Errno(numbers[0]))
		case kind == wrapper.KindStarted && len(numbers) == 2:
			w.program = procs.Stat{PID: int(numbers[0]), Start: uint64(numbers[1])}
			return nil
		}
	}
}

// follow waits for the end.
func (w *wrapped) follow(p *Process) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = w.wrapper.Wait()
		// Whoever has got hold of the other end of the socket must not keep us waiting. What is in it can still be read.
		if raw, err := w.control.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RD) })
		}
	}()
	defer func() {
		<-gone
		_ = w.control.Close()
	}()
	for {
		kind, numbers, err := w.receive()
		switch {
		case err != nil: // the wrapper was killed
			_ = w.wrapper.Kill()
			<-gone
			p.finish(Exit{Code: -1, Signal: syscall.SIGKILL}, w.sweep())
			return
		case kind == wrapper.KindLeft && len(numbers) >= 2:
			p.finish(exitOfNumbers(numbers), pids(numbers[2:]))
			return
		case kind == wrapper.KindExit && len(numbers) == 2:
			<-gone
			p.finish(exitOfNumbers(numbers), nil)
			return
		}
	}
}

func exitOfNumbers(numbers []int64) Exit {
	return Exit{Code: int(numbers[0]), Signal: syscall.Signal(numbers[1])}
}

func pids(numbers []int64) (pids []int) {
	for _, n := range numbers {
		pids = append(pids, int(n))
	}
	return pids
}

// sweep ends what a wrapper that was killed has left: the program, and all that have its mark.
func (w *wrapped) sweep() (left []int) {
	find := func() (found []procs.Stat) {
		if now, ok := procs.Read(w.program.PID); ok && w.program.PID > 0 && now.Start == w.program.Start && !now.Dead() {
			found = append(found, now)
		}
		if w.turn != "" {
			found = append(found, wrapper.Marked(w.turn, w.program.Start)...)
		}
		return found
	}
	const emptyLooks = 3 // what starts another and ends, both during a look, is gone when its turn to be looked at comes
	deadline := time.Now().Add(wrapper.SweepPatience)
	for pause, empty := procs.NextPause(0), 0; ; pause = procs.NextPause(pause) {
		found := find()
		if len(found) > 0 {
			empty = 0
		} else if empty++; empty == emptyLooks {
			return nil
		}
		if time.Now().After(deadline) {
			for _, s := range found {
				left = append(left, s.PID)
			}
			return left
		}
		if len(found) > 0 {
			procs.EndTrees(found, time.Until(deadline))
		}
		time.Sleep(pause)
	}
}

func (w *wrapped) send(kind byte, text string) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	_, err := w.control.Write(wrapper.Message(kind, text))
	return err
}

func (w *wrapped) receive() (kind byte, numbers []int64, err error) {
	var header [wrapper.HeaderSize]byte
	if _, err := io.ReadFull(w.control, header[:]); err != nil {
		return 0, nil, err
	}
	kind, size, err := wrapper.Header(header)
	if err != nil {
		return 0, nil, err
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(w.control, text); err != nil {
		return 0, nil, err
	}
	numbers, err = wrapper.ReadNumbers(string(text))
	return kind, numbers, err
}

func (w *wrapped) stop(grace time.Duration) {
	_ = w.send(wrapper.KindStop, wrapper.Numbers(grace.Milliseconds()))
}

// force ends all that is below the wrapper, and the wrapper.
func (w *wrapped) force() {
	procs.EndAll(func() []procs.Stat { return procs.Below(procs.Table(), w.wrapper.Pid) }, wrapper.SweepPatience)
	_ = w.wrapper.Kill()
}

func (w *wrapped) children() (children []Child) {
	procs.UntilKnown(func() bool {
		children = nil
		allKnown := true
		for _, s := range procs.Below(procs.Table(), w.wrapper.Pid) {
			if s.PID == w.program.PID {
				continue
			}
			turn, known := procs.Variable(s, wrapper.Mark)
			children = append(children, Child{PID: s.PID, Start: s.Start, Turn: turn, Orphan: s.Parent == w.wrapper.Pid})
			allKnown = allKnown && known
		}
		return allKnown
	})
	return children
}

func (w *wrapped) kill(children []Child) {
	var roots []procs.Stat
	for _, child := range children {
		roots = append(roots, procs.Stat{PID: child.PID, Start: child.Start})
	}
	procs.EndTrees(roots, wrapper.SweepPatience)
}
