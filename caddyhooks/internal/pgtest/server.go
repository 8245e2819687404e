//go:build linux

package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says how a server differs from one with PostgreSQL's own settings.
type Config struct {
	Settings string // lines of postgresql.conf
	Listen   string // an IP address to listen on besides the Unix socket, at a free port, "" for none
}

// Password is that of the role postgres. Connections over TCP are asked for it, those to the Unix socket are not.
const Password = "password-of-all-tests"

// Server is a PostgreSQL server.
type Server struct {
	Dir  string // with its data and its socket
	Host string // as in Config.Listen
	Port string // of the Unix socket and of TCP

	bin  string
	user *syscall.Credential // nil if we are no root ourselves

	mu      sync.Mutex
	process *exec.Cmd
	exited  chan struct{}
}

// initServer makes the data of a server.
func initServer(config Config) (*Server, error) {
	s, err := newServer(config.Listen)
	if err != nil {
		return nil, err
	}
	password := filepath.Join(s.Dir, "password")
	if err := s.write(password, Password); err != nil {
		return nil, err
	}
	if err := s.run("initdb", "-D", s.data(), "-U", "postgres", "--pwfile", password, "--encoding=UTF8", "--no-locale", "--no-sync"); err != nil {
		return nil, err
	}
	const access = "local all all trust\nlocal replication all trust\nhost all all all scram-sha-256\nhost replication all all scram-sha-256\n"
	if err := s.write(filepath.Join(s.data(), "pg_hba.conf"), access); err != nil {
		return nil, err
	}
	return s, s.configure("max_connections = 500\nlog_min_messages = warning\nautovacuum_naptime = 5s\n" + config.Settings)
}

// newServer is a server without data.
func newServer(listen string) (s *Server, err error) {
	bin, err := installed()
	if err != nil {
		return nil, err
	}
	s = &Server{bin: bin, Host: listen, Port: "5432"}
	if listen != "" {
		if s.Port, err = freePort(listen); err != nil {
			return nil, err
		}
	}
	s.Dir, s.user, err = ownDir()
	return s, err
}

// installed is the folder with the programs of the newest version that is installed.
func installed() (bin string, err error) {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	bins = slices.DeleteFunc(bins, func(bin string) bool { return !isFile(filepath.Join(bin, "postgres")) })
	if len(bins) == 0 {
		return "", errNotInstalled
	}
	return slices.MaxFunc(bins, func(a, b string) int { return versionOf(a) - versionOf(b) }), nil
}

func versionOf(bin string) int {
	version, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return version
}

// ownDir makes a folder for a program that refuses to be run by root, and tells as whom to run it.
func ownDir() (dir string, owner *syscall.Credential, err error) {
	if dir, err = os.MkdirTemp("", "pg"); err != nil || os.Geteuid() != 0 {
		return dir, nil, err
	}
	somebody, err := user.Lookup("postgres")
	if err != nil {
		return "", nil, err
	}
	uid, _ := strconv.Atoi(somebody.Uid)
	gid, _ := strconv.Atoi(somebody.Gid)
	return dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, uid, gid)
}

func freePort(address string) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// configure adds to postgresql.conf what the server is to be like, and where it listens. Of two lines the last one counts.
func (s *Server) configure(settings string) error {
	settings += fmt.Sprintf("\nlisten_addresses = '%s'\nport = %s\nunix_socket_directories = '%s'\n", s.Host, s.Port, s.Dir)
	file, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(settings)
	return errors.Join(err, file.Close())
}

// write writes a file that the server may read.
func (s *Server) write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil || s.user == nil {
		return err
	}
	return os.Chown(path, int(s.user.Uid), int(s.user.Gid))
}

// Start starts the server, and waits until it answers.
func (s *Server) Start() error {
	const patience = time.Minute
	deadline := time.Now().Add(patience)
	for {
		if err := s.launch(); err != nil {
			return err
		}
		for !s.isReady() {
			if !s.isRunning() {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("PostgreSQL does not start within %v\n%s", patience, s.log())
			}
			time.Sleep(5 * time.Millisecond)
		}
		if s.isRunning() {
			return nil
		}
		// After a kill -9 its children need a moment to notice, and hold its memory until then.
		if log := s.log(); !strings.Contains(log, "still in use") && !strings.Contains(log, "already in use") || time.Now().After(deadline) {
			return fmt.Errorf("PostgreSQL does not start\n%s", log)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// launch starts the process. It is stopped by the kernel if this one ends first.
func (s *Server) launch() error {
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data())
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, log, log
	exited, err := startBound(cmd, s.user, syscall.SIGQUIT)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process, s.exited = cmd, exited
	return nil
}

// startBound starts a process that gets a signal when this one ends. exited is closed when it is over.
func startBound(cmd *exec.Cmd, as *syscall.Credential, last syscall.Signal) (exited chan struct{}, err error) {
	// With a group of its own it is spared by the Ctrl-C that is meant for the tests, and is told by their end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Pdeathsig: last, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited = make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return exited, nil
}

func (s *Server) isRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// isReady reports whether the server says that it takes connections, where pg_ctl looks for it.
func (s *Server) isReady() bool {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	return err == nil && len(lines) >= 8 && lines[0] == strconv.Itoa(s.process.Process.Pid) && strings.TrimSpace(lines[7]) == "ready"
}

func (s *Server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	return string(text)
}

// Stop stops the server, and returns when it is gone. The mode is that of pg_ctl: fast ends its sessions first, immediate stops as in a crash.
func (s *Server) Stop(mode string) {
	s.signal(map[string]syscall.Signal{"smart": syscall.SIGTERM, "fast": syscall.SIGINT, "immediate": syscall.SIGQUIT}[mode])
}

// Kill is kill -9 of the server itself. Its children end when they notice.
func (s *Server) Kill() { s.signal(syscall.SIGKILL) }

func (s *Server) signal(signal syscall.Signal) {
	if !s.isRunning() {
		return
	}
	_ = s.process.Process.Signal(signal)
	<-s.exited
}

// remove stops the server, and removes its data.
func (s *Server) remove() {
	s.Stop("immediate")
	for range 100 { // children that still write
		if os.RemoveAll(s.Dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *Server) run(program string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user}
	cmd.Dir = s.Dir
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s%s", program, strings.Join(args, " "), err, output.String(), s.log())
	}
	return nil
}

// DSN is how to reach a database of the server on this machine.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("host=%s port=%s user=postgres dbname=%s", s.Dir, s.Port, database)
}

// TCP is how a role reaches a database of the server over the network.
func (s *Server) TCP(role, password, database string) string {
	return fmt.Sprintf("host=%s port=%s user=%s password=%s dbname=%s sslmode=disable", s.Host, s.Port, role, password, database)
}

// Exec carries out statements as the role postgres.
func (s *Server) Exec(t testing.TB, database, statements string) {
	t.Helper()
	s.connected(t, database, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
		return err
	})
}

// Ask returns the only value of the only row of the answer.
func Ask[T any](t testing.TB, s *Server, database, question string) (answer T) {
	t.Helper()
	s.connected(t, database, func(ctx context.Context, conn *pgx.Conn) error { return conn.QueryRow(ctx, question).Scan(&answer) })
	return answer
}

func (s *Server) connected(t testing.TB, database string, do func(context.Context, *pgx.Conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := do(ctx, conn); err != nil {
		t.Fatal(err)
	}
}
