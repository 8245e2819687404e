//go:build real && linux

package pgtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestServerKeepsWhatItSaidThroughAKill(t *testing.T) {
	t.Parallel()
	s := New(t, Config{Settings: "wal_sync_method = fdatasync", Listen: "127.0.0.1"})
	s.Exec(t, "postgres", "CREATE TABLE a (n int); CREATE ROLE guest LOGIN PASSWORD 'of-guest'; GRANT SELECT ON a TO guest")
	for i, end := range []func(){s.Kill, func() { s.Stop("immediate") }, func() { s.Stop("fast") }} {
		s.Exec(t, "postgres", fmt.Sprintf("INSERT INTO a VALUES (%d)", i))
		end()
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if n := Ask[int](t, s, "postgres", "SELECT count(*) FROM a"); n != 3 {
		t.Errorf("%d of 3 rows are there", n)
	}
	if got := Ask[string](t, s, "postgres", "SHOW wal_sync_method"); got != "fdatasync" {
		t.Errorf("the server syncs by %s", got)
	}
	for password, isRight := range map[string]bool{"of-guest": true, "wrong": false} {
		conn, err := pgx.Connect(t.Context(), s.TCP("guest", password, "postgres"))
		if isRight != (err == nil) {
			t.Errorf("with the password %q: %v", password, err)
		}
		if err == nil {
			_ = conn.Close(t.Context())
		}
	}
}

func TestProcessorTimeIsAlsoOfSessionsThatAreOver(t *testing.T) {
	t.Parallel()
	s := NewDurable(t)
	before := s.ProcessorTime(t)
	const atLeast = 100 * time.Millisecond
	deadline := time.Now().Add(time.Minute)
	for s.ProcessorTime(t)-before < atLeast {
		if time.Now().After(deadline) {
			t.Fatal("the time of sessions is lost")
		}
		s.Exec(t, "postgres", "SELECT count(*) FROM generate_series(1, 100000)") // each in a session of its own
	}
}

func TestStandbyHasWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	for _, synchronous := range []bool{true, false} {
		t.Run(fmt.Sprintf("synchronous %v", synchronous), func(t *testing.T) {
			t.Parallel()
			s := New(t, Config{Listen: "127.0.0.1"})
			s.Exec(t, "postgres", "CREATE TABLE a (n int)")
			standby := s.Standby(t, synchronous)
			s.Exec(t, "postgres", "INSERT INTO a VALUES (1)")
			s.Kill()
			standby.Promote(t)
			conn, err := pgx.Connect(t.Context(), AnyOf("postgres", Password, "postgres", s, standby))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(context.Background()) }()
			if n := Ask[int](t, standby, "postgres", "SELECT count(*) FROM a"); synchronous && n != 1 {
				t.Error("the row is lost")
			}
		})
	}
}

func TestPgbouncerHandsOutConnectionsByTransaction(t *testing.T) {
	t.Parallel()
	b := NewPgbouncer(t, New(t, Config{}), 1)
	for range 2 { // neither of which closes its connection
		conn, err := pgx.Connect(t.Context(), b.DSN("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		var mode string
		if err := conn.QueryRow(t.Context(), "SELECT $1::text", "both").Scan(&mode); err != nil || mode != "both" {
			t.Fatal(mode, err)
		}
	}
}

// A test that runs out of time, or panics, leaves no server behind.
func TestServerIsGoneWithTheTestProcess(t *testing.T) {
	if os.Getenv("PGTEST_IS_KILLED") != "" {
		s := New(t, Config{})
		fmt.Printf("pid %d dir %s\n", s.process.Process.Pid, s.Dir)
		<-t.Context().Done() // until it is killed
		return
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "PGTEST_IS_KILLED=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	exited, err := startBound(cmd, nil, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "pid %d dir %s", &pid, &dir)
	}
	_ = cmd.Process.Kill()
	<-exited
	if pid == 0 {
		t.Fatal("the other process did not start a server")
	}
	defer os.RemoveAll(dir)
	deadline := time.Now().Add(time.Minute)
	for isAlive(pid) {
		if time.Now().After(deadline) {
			t.Fatal("the server is still there")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func isAlive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(status), ") Z ") // nobody may be there to bury it
}
