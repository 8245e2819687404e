//go:build !unix

package supervise

import (
	"os"
	"syscall"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

func groupAttributes(wrapper.Order) *syscall.SysProcAttr { return nil }

// askGroup ends the program: there is no way to ask it.
func askGroup(program *os.Process) { _ = program.Kill() }
func endGroup(program *os.Process) { _ = program.Kill() }

func exitOf(state *os.ProcessState) Exit { return Exit{Code: state.ExitCode()} }
