// Package supervise runs programs of which nothing is left when they end: no child, and no child of a child that left its group
// or its session.
//
// On Linux this program is started once more for each of them, as `caddy hooks exec`, which becomes the parent of all that lose
// theirs: see package wrapper. It ends them when the program ends, when Stop is called, and when this process is gone, however it
// ended. A process that kills the wrapper ends the program too, and the rest is found by the mark in its environment. To be sure
// of hostile programs, run them as another user: they cannot kill the wrapper then.
//
// Where there is no /proc, or this program may not be started once more, and on other systems, the program runs in a process group
// that is killed when it ends: what has left the group goes on, and so does everything when this process is killed. On Windows the
// program alone is killed.
package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

// Program is what is to be run.
type Program struct {
	Args []string // the program, which is looked up in the PATH of Env, and its arguments; never a shell's line
	Env  []string // all of its environment
	Dir  string   // its working directory
	User string   // the user it runs as, by name or number, "" for that of this process; only root may use another one

	// Turn marks all processes of the program in their environment, as HOOKS_TURN. No other program that runs has the same one.
	// The program may put more behind it, after a slash.
	Turn string
}

// Process is a program that runs, with all that it starts.
type Process struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser // must be read to its end, or closed

	watch  watch
	stderr *tail
	ours   []*os.File // ends of pipes, in the order input, output, errors
	done   chan struct{}
	exit   Exit
	left   []int
}

// watch is a way to look after a program.
type watch interface {
	// stop begins to end the program.
	stop(grace time.Duration)
	// force ends it if stop did not.
	force()
	children() []Child
	kill(children []Child)
}

// Exit is how a program ended.
type Exit struct {
	Code   int            // -1 if it was ended by a signal
	Signal syscall.Signal // 0 if it ended by itself
}

// NotStartedError says why a program could not be started. Nothing of it ran.
type NotStartedError struct{ Err error }

func (e *NotStartedError) Error() string { return e.Err.Error() }
func (e *NotStartedError) Unwrap() error { return e.Err }

// Start starts a program. An error is a *NotStartedError.
func Start(p Program) (*Process, error) {
	process, err := start(p)
	if err != nil {
		return nil, &NotStartedError{err}
	}
	return process, nil
}

func start(p Program) (*Process, error) {
	order, err := p.order()
	if err != nil {
		return nil, err
	}
	theirs, ours, err := pipes(order)
	if err != nil {
		return nil, fmt.Errorf("making pipes for the program: %w", err)
	}
	defer closeAll(theirs)
	process := &Process{stderr: newTail(ours[2]), ours: ours, done: make(chan struct{})}
	process.Stdin, process.Stdout = ours[0], &output{file: ours[1]}
	if process.watch, err = process.begin(order, theirs); err != nil {
		closeAll(ours)
		return nil, err
	}
	return process, nil
}

// order checks what can be checked before anything is started.
func (p Program) order() (wrapper.Order, error) {
	if len(p.Args) == 0 || p.Args[0] == "" {
		return wrapper.Order{}, errors.New("there is no program")
	}
	for _, text := range slices.Concat(p.Args, p.Env, []string{p.Dir, p.Turn}) {
		if strings.ContainsRune(text, 0) {
			return wrapper.Order{}, errors.New("an argument or a variable of the program holds a NUL character")
		}
	}
	order := wrapper.Order{Args: p.Args, Env: environment(p.Env, p.Turn), Turn: p.Turn}
	var err error
	if order.Dir, err = folder(p.Dir); err != nil {
		return wrapper.Order{}, err
	}
	if order.Path, err = lookUp(p.Args[0], order.Env, order.Dir); err != nil {
		return wrapper.Order{}, err
	}
	if p.User != "" {
		if err := asUser(&order, p.User); err != nil {
			return wrapper.Order{}, err
		}
	}
	return order, nil
}

// environment is an environment in which each name has one value, the last one, and the mark stands first.
func environment(env []string, turn string) []string {
	last := make(map[string]int, len(env))
	for i, variable := range env {
		name, _, _ := strings.Cut(variable, "=")
		last[name] = i
	}
	delete(last, wrapper.Mark)
	var all []string
	if turn != "" {
		all = append(all, wrapper.Mark+"="+turn)
	}
	for i, variable := range env {
		if name, _, _ := strings.Cut(variable, "="); last[name] == i && name != wrapper.Mark {
			all = append(all, variable)
		}
	}
	return all
}

// folder is a working directory, with its whole path.
func folder(dir string) (string, error) {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	// A folder that only the user of the program may see is tried when the program is started.
	switch info, err := os.Stat(whole); {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("the folder %s does not exist", whole)
	case err == nil && !info.IsDir():
		return "", fmt.Errorf("%s is not a folder", whole)
	}
	return whole, nil
}

// stderrPatience is how long the end of the standard error is waited for where a pipe that someone holds has no end.
const stderrPatience = 2 * time.Second

// finish tells how the program ended. Nothing of it runs any more, but for those that could not be ended.
func (p *Process) finish(exit Exit, left []int) {
	p.exit, p.left = exit, left
	_ = p.ours[0].Close()
	endReading(p.ours[1])
	endReading(p.ours[2])
	select {
	case <-p.stderr.read:
	case <-time.After(stderrPatience):
	}
	close(p.done)
}

// Done is closed when the program has ended and nothing that it started is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how the program ended. It is called after Done.
func (p *Process) Exit() Exit { return p.exit }

// Left are numbers of processes that could not be ended within some seconds, such as those of another user or those that wait for a
// broken disk. The wrapper goes on trying. It is called after Done.
func (p *Process) Left() []int { return p.left }

// stopPatience is how long Stop waits in addition to the grace and to the time that the wrapper has for itself. Tests shorten it.
var stopPatience = wrapper.SweepPatience + 5*time.Second

// Stop ends the program and all that it started. The program is asked to end, and has as long as grace for that. Stop returns
// when nothing is left.
func (p *Process) Stop(grace time.Duration) {
	grace = max(grace, 0)
	p.watch.stop(grace)
	timer := time.NewTimer(grace + stopPatience)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C: // something keeps the wrapper from its work
		p.watch.force()
	}
	<-p.done
}

// Alone reports whether the program has no wrapper: when it ends, only its group does, or on Windows nothing else.
func (p *Process) Alone() bool {
	_, alone := p.watch.(*group)
	return alone
}

// Stderr is the end of what the program wrote to its standard error, a few kilobytes at most.
func (p *Process) Stderr() string { return p.stderr.String() }

// A Child is a process that a program started, or one that was started by such a one.
type Child struct {
	PID   int
	Start uint64 // when it was started, in ticks: tells it from another one that gets the same number
	Turn  string // the HOOKS_TURN in its environment, "" if that cannot be read

	// Orphan tells that the process which started it has ended.
	Orphan bool
}

// Children are the processes of the program, without the program itself. Not on all systems is there a way to know them.
func (p *Process) Children() []Child {
	select {
	case <-p.done: // the number of the wrapper may be that of another process
		return nil
	default:
		return p.watch.children()
	}
}

// Kill ends some of the children, and all that they have started, and returns when they are gone.
func (p *Process) Kill(children []Child) { p.watch.kill(children) }
