package terminal

import (
	"context"
	"os"
	"os/exec"
	"runtime"
)

// OpenBrowser opens a link in a browser, if there is a display. It does not wait, and does not say whether that worked.
func OpenBrowser(ctx context.Context, link string) {
	command := browserCommand()
	if command == nil {
		return
	}
	opener := exec.CommandContext(context.WithoutCancel(ctx), command[0], append(command[1:], link)...) //nolint:gosec // the link is ours
	if opener.Start() == nil {
		go func() { _ = opener.Wait() }()
	}
}

// browserCommand is nil if there is no display.
func browserCommand() []string {
	switch {
	case runtime.GOOS == "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	case os.Getenv("SSH_CONNECTION") != "":
		return nil
	case runtime.GOOS == "darwin":
		return []string{"open"}
	case os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "":
		return []string{"xdg-open"}
	}
	return nil
}
