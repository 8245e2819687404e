package integration

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// exitCode runs the program, and returns its exit code and what it prints.
func exitCode(t *testing.T, b *hookstest.Binary, env []string, args ...string) (code int, out, errs string) {
	t.Helper()
	cmd := b.Command(env, args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code tells
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func TestExitCodesOfVerbsThatLook(t *testing.T) {
	t.Parallel()
	p := hookstest.NewBinary(t).Serve(t, onlyWarnings, "hooks {\nenabled\nrunner echo\ntoken "+hookstest.Token+"\nstore memory\n}")
	address := "CADDY_ADMIN=" + strings.TrimPrefix(p.Admin, "http://")
	for _, c := range []struct {
		args string
		code int
		out  string
		errs string
	}{
		{"health", 0, "default  ready\n", ""},
		{"status", 0, "default   on   " + p.URL + "/api/hooks", ""},
		{"runs", 0, "", "There are no runs yet."},
		{"show nothing", 1, "", `Error: there is no hook "nothing"`},
		{"health --address 127.0.0.1:1", 1, "", "Error: the admin endpoint 127.0.0.1:1 of Caddy cannot be reached"},
		{"health --instance other", 1, "", `Error: there is no hooks instance "other"`},
		{"runs --limit -1", 2, "", "Error: --limit must be a number of rows, or 0 for all\nMore: caddy hooks runs --help\n"},
		{"show", 2, "", "More: caddy hooks show --help\n"},
		{"export --of nothing", 2, "", "Error: say what to export: --of must be one of runs, chat and deliveries"},
		{"export --of runs -o " + filepath.Join(t.TempDir(), "a", "b"), 1, "", "Error: there is no folder "},
		{"status --help", 0, "Shows whether webhooks are on, the queue", ""},
	} {
		code, out, errs := exitCode(t, p.Binary, []string{address}, append([]string{"hooks"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || strings.Contains(out+errs, "\x1b") {
			t.Errorf("caddy hooks %s exits with %d, and prints %q and %q; want %d, %q and %q", c.args, code, out, errs, c.code, c.out, c.errs)
		}
	}
}

func TestTailOutlivesAKilledCaddy(t *testing.T) {
	t.Parallel()
	d := hookstest.NewBinary(t).Deploy(t, onlyWarnings, "hooks {\nenabled\nrunner echo\ntoken "+hookstest.Token+"\nstore bolt\n}")
	p := d.Start(t)
	tail := d.Command(nil, "hooks", "tail", "--address", strings.TrimPrefix(d.Admin, "http://"))
	lines, said := printedBy(t, tail)
	post := func(message string) {
		resp, err := hookstest.TryRequest("POST", d.URL+"/api/hooks/agent", `{"message":"`+message+`"}`, "Authorization", "Bearer "+hookstest.Token)
		if err != nil || resp.Status != 202 {
			t.Errorf("got %d, %v", resp.Status, err)
		}
	}
	// There is no word from the command that it listens: so runs are sent until it has heard of one.
	heard := func(message string) {
		t.Helper()
		hookstest.Eventually(t, "a line about "+message, func() bool {
			post(message)
			return strings.Contains(lines.All(), message)
		})
	}
	heard("before the kill")
	p.Kill()
	hookstest.Eventually(t, "the command says that Caddy is gone", func() bool { return strings.Contains(said.All(), "The connection to Caddy ") })
	p = d.Start(t)
	hookstest.Eventually(t, "the command says that Caddy is back", func() bool { return strings.Contains(said.All(), "Connected again.") })
	heard("after the kill")
	if err := tail.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := tail.Wait(); err != nil {
		t.Errorf("after Ctrl-C the command ends with %v", err)
	}
	p.WantNoCrash(t)
}

// printedBy starts a command, and keeps what it prints, and what it says beside that.
func printedBy(t *testing.T, cmd *exec.Cmd) (lines, said *hookstest.ProcessLog) {
	t.Helper()
	lines, said = new(hookstest.ProcessLog), new(hookstest.ProcessLog)
	cmd.Stdout, cmd.Stderr = lines, said
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if it is still there
	return lines, said
}
