//go:build unix

package supervise

import (
	"os"
	"syscall"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

func groupAttributes(order wrapper.Order) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setsid: true}
	if order.AsUser {
		attributes.Credential = &syscall.Credential{Uid: order.UID, Gid: order.GID, Groups: order.Groups}
	}
	return attributes
}

func askGroup(program *os.Process) { _ = syscall.Kill(-program.Pid, syscall.SIGTERM) }
func endGroup(program *os.Process) { _ = syscall.Kill(-program.Pid, syscall.SIGKILL) }

func exitOf(state *os.ProcessState) Exit {
	status, ok := state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return Exit{Code: -1, Signal: status.Signal()}
	}
	return Exit{Code: state.ExitCode()}
}
