//go:build linux

package pgtest

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Pgbouncer is a pgbouncer in front of a server, in transaction mode: each transaction may get another connection.
type Pgbouncer struct {
	Host, Port string
}

// NewPgbouncer starts a pgbouncer with at most so many connections to the server for each database and role. It listens where the server
// does, or on loopback. Roles besides postgres have their names as passwords. It is gone when the test ends.
func NewPgbouncer(t testing.TB, s *Server, connections int, roles ...string) *Pgbouncer {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program = "/usr/sbin/pgbouncer"; !isFile(program) { // not every user's path has it
			t.Fatal("there is no pgbouncer on this machine: install the package pgbouncer")
		}
	}
	dir, owner, err := ownDir()
	mustWork(t, err)
	b := &Pgbouncer{Host: cmp.Or(s.Host, "127.0.0.1")}
	b.Port, err = freePort(b.Host)
	mustWork(t, err)
	files := &Server{user: owner}
	users := filepath.Join(dir, "users")
	passwords := fmt.Sprintf("\"postgres\" \"%s\"\n", Password)
	for _, role := range roles {
		passwords += fmt.Sprintf("\"%s\" \"%[1]s\"\n", role)
	}
	mustWork(t, files.write(users, passwords))
	config := filepath.Join(dir, "pgbouncer.ini")
	mustWork(t, files.write(config, fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
pool_mode = transaction
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
max_client_conn = 2000
default_pool_size = %d
server_login_retry = 1
`, s.Dir, s.Port, b.Host, b.Port, users, connections)))
	log, err := os.Create(filepath.Join(dir, "log"))
	mustWork(t, err)
	defer log.Close()
	cmd := exec.Command(program, config)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	exited, err := startBound(cmd, owner, syscall.SIGKILL)
	mustWork(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("what pgbouncer logged at last:\n%s", text[max(0, len(text)-2000):])
		}
		_ = os.RemoveAll(dir)
	})
	deadline := time.Now().Add(time.Minute)
	for {
		conn, err := net.Dial("tcp", net.JoinHostPort(b.Host, b.Port))
		if err == nil {
			_ = conn.Close()
			return b
		}
		select {
		case <-exited:
			err = fmt.Errorf("pgbouncer does not start")
		default:
			if time.Now().Before(deadline) {
				time.Sleep(5 * time.Millisecond)
				continue
			}
		}
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("%v\n%s", err, text)
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// DSN is how postgres reaches a database through it.
func (b *Pgbouncer) DSN(database string) string { return b.TCP("postgres", Password, database) }

// TCP is how a role reaches a database through it. It knows no prepared statements: they belong to a connection.
func (b *Pgbouncer) TCP(role, password, database string) string {
	return fmt.Sprintf("host=%s port=%s user=%s password=%s dbname=%s sslmode=disable default_query_exec_mode=exec", b.Host, b.Port, role, password, database)
}
