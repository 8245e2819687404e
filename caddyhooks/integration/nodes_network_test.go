package integration

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

// The networks that nodes are on. The test has the first address of each.
const (
	front = "198.18.0." // to callers and to the runner
	back  = "198.19.0." // to the database
)

// inNodesNetwork runs the test once more, in a process with a network of its own, in which nodes can be put. Everything in it is gone
// with the process, whatever ends it. It reports whether this is that process. Such tests do not run beside others of this package:
// a node that gets no processor for the time of a lease loses it.
func inNodesNetwork(t testing.TB, args ...string) bool {
	t.Helper()
	if os.Getenv(ownNetwork) != "" {
		for bridge, address := range map[string]string{"front": front, "back": back} {
			command(t, "ip", "link", "add", bridge, "type", "bridge")
			command(t, "ip", "addr", "add", address+"1/24", "dev", bridge)
			command(t, "ip", "link", "set", bridge, "up")
		}
		command(t, "ip", "link", "set", "lo", "up")
		for _, callers := range []string{"64/26", "128/26"} { // addresses that they may have
			command(t, "ip", "route", "add", "local", front+callers, "dev", "lo")
		}
		return true
	}
	realtest.Root(t) // who alone can put Caddys into network namespaces
	which := []string{"-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=" + (*nodesDuration + 5*time.Minute).String()}
	benchmark, isBenchmark := t.(*testing.B)
	if isBenchmark {
		which = []string{"-test.run=^$", "-test.bench=^" + t.Name() + "$", "-test.benchtime=1x", "-test.timeout=0"}
	}
	cmd := exec.Command(os.Args[0], slices.Concat(which, []string{"-test.count=1"}, args)...)
	cmd.Env = append(os.Environ(), hookstest.NewBinary(t).ForOtherTests(), ownNetwork+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()+" "):
		t.Skipf("%s", out)
	case isBenchmark:
		reportAgain(benchmark, string(out))
		return false
	case !strings.Contains(string(out), "--- PASS: "+t.Name()+" "):
		t.Errorf("the test was not run:\n%s", out)
	}
	for _, line := range logLine.FindAllStringSubmatch(string(out), -1) {
		t.Log(line[1])
	}
	return false
}

// reportAgain reports what the parts of a benchmark have reported in another process.
func reportAgain(b *testing.B, out string) {
	parts := 0
	for line := range strings.Lines(out) {
		name, isPart := strings.CutPrefix(line, b.Name()+"/")
		fields := strings.Fields(name)
		if !isPart || len(fields) < 4 {
			continue
		}
		parts++
		part, _, _ := strings.Cut(fields[0], "-") // which the number of processors follows
		b.Run(part, func(b *testing.B) {
			for pair := range slices.Chunk(fields[2:], 2) { // what follows the number of rounds
				value, err := strconv.ParseFloat(pair[0], 64)
				if err != nil || len(pair) < 2 {
					b.Fatalf("reported as %q", line)
				}
				b.ReportMetric(value, pair[1])
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	if parts == 0 {
		b.Errorf("nothing is reported:\n%s", out)
	}
}

var logLine = regexp.MustCompile(`(?m)^    [a-z_]+_test\.go:\d+: (.*)$`)

// machine is a network namespace with two links, to callers and to the database.
type machine struct {
	t     testing.TB
	n     int
	front string // its addresses
	back  string
	pid   int // of a process that keeps it
}

// newMachine makes the nth machine, counted from 1.
func newMachine(t testing.TB, n int) *machine {
	t.Helper()
	m := &machine{t: t, n: n, front: fmt.Sprint(front, 10+n), back: fmt.Sprint(back, 10+n)}
	keeper := exec.Command("sleep", "infinity")
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = keeper.Process.Kill()
		_ = keeper.Wait()
		for _, bridge := range []string{"front", "back"} {
			_ = exec.Command("ip", "link", "del", m.link(bridge)).Run() // it may be gone with the other end
		}
	})
	m.pid = keeper.Process.Pid
	m.ipInside("link", "set", "lo", "up")
	for bridge, address := range map[string]string{"front": m.front, "back": m.back} {
		command(t, "ip", "link", "add", m.link(bridge), "type", "veth", "peer", "name", bridge, "netns", strconv.Itoa(m.pid))
		command(t, "ip", "link", "set", m.link(bridge), "master", bridge, "up")
		m.ipInside("addr", "add", address+"/24", "dev", bridge)
		m.ipInside("link", "set", bridge, "up")
	}
	return m
}

// link is the end of a link that is outside of the machine.
func (m *machine) link(bridge string) string { return fmt.Sprint(bridge, m.n) }

func (m *machine) ipInside(args ...string) {
	m.t.Helper()
	command(m.t, "nsenter", append([]string{"-t", strconv.Itoa(m.pid), "-n", "ip"}, args...)...)
}

// set puts a link up or down. While it is down, what is sent is lost without a word.
func (m *machine) set(bridge, state string) {
	m.t.Helper()
	command(m.t, "ip", "link", "set", m.link(bridge), state)
}

// keepNeighbour has the machine remember the hardware address of the database, and the other way round, as if a router were between them.
func (m *machine) keepNeighbour() {
	m.t.Helper()
	const here, there = "02:00:00:00:00:01", "02:00:00:00:00:02"
	command(m.t, "ip", "link", "set", "back", "address", here)
	command(m.t, "ip", "neigh", "replace", m.back, "lladdr", there, "dev", "back", "nud", "permanent")
	m.ipInside("link", "set", "back", "address", there)
	m.ipInside("neigh", "replace", back+"1", "lladdr", here, "dev", "back", "nud", "permanent")
}

// moveIn has a process run on the machine. It is killed if this one ends first.
func (m *machine) moveIn(cmd *exec.Cmd) {
	cmd.Args = append([]string{"nsenter", "-t", strconv.Itoa(m.pid), "-n", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = nsenter
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

const nsenter = "/usr/bin/nsenter"
