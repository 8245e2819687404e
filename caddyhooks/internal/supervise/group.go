package supervise

import (
	"os"
	"syscall"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

// group is a program without a wrapper, in a process group where there are any.
type group struct {
	program *os.Process
	over    chan struct{} // closed when the program has ended
}

func (p *Process) beginGroup(order wrapper.Order, files []*os.File) (watch, error) {
	program, err := os.StartProcess(order.Path, order.Args, &os.ProcAttr{
		Dir: order.Dir, Env: order.Env, Files: files, Sys: groupAttributes(order),
	})
	if err != nil {
		return nil, notStarted(order, errnoOf(err))
	}
	g := &group{program: program, over: make(chan struct{})}
	go func() {
		state, err := program.Wait()
		endGroup(program)
		close(g.over)
		exit := Exit{Code: -1, Signal: syscall.SIGKILL}
		if err == nil {
			exit = exitOf(state)
		}
		p.finish(exit, nil)
	}()
	return g, nil
}

func (g *group) stop(grace time.Duration) {
	if grace == 0 {
		g.force()
		return
	}
	askGroup(g.program)
	go func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-g.over:
		case <-timer.C:
			g.force()
		}
	}()
}

func (g *group) force() {
	select {
	case <-g.over: // its number may be that of another one now
	default:
		endGroup(g.program)
	}
}

func (g *group) children() []Child { return nil }
func (g *group) kill([]Child)      {}
