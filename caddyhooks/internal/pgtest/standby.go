//go:build linux

package pgtest

import (
	"fmt"
	"testing"
	"time"
)

// Standby starts a server that follows this one. If it is synchronous, this one acknowledges from now on only what the standby has on its disk.
func (s *Server) Standby(t testing.TB, synchronous bool) *Server {
	t.Helper()
	standby, err := newServer(s.Host)
	mustWork(t, err)
	t.Cleanup(standby.remove)
	mustWork(t, standby.run("pg_basebackup", "-D", standby.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", s.DSN("")))
	if standby.Host == "" {
		standby.Port = s.Port
	}
	const name = "standby" // as which it follows
	mustWork(t, standby.configure("cluster_name = '"+name+"'\nhot_standby = on\n"))
	mustWork(t, standby.Start())
	state := "async"
	if synchronous {
		state = "sync"
		s.Exec(t, "postgres", "ALTER SYSTEM SET synchronous_standby_names = '"+name+"'")
		s.Exec(t, "postgres", "SELECT pg_reload_conf()")
	}
	deadline := time.Now().Add(time.Minute)
	for !Ask[bool](t, s, "postgres", "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '"+state+"')") {
		if time.Now().After(deadline) {
			t.Fatalf("the standby does not follow\n%s%s", s.log(), standby.log())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return standby
}

// Promote makes a standby the one that is written to, and returns when it can be.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if !Ask[bool](t, s, "postgres", "SELECT pg_promote(true, 60)") {
		t.Fatalf("the standby is not promoted\n%s", s.log())
	}
}

// AnyOf is how a role reaches whichever of some servers can be written to.
func AnyOf(role, password, database string, servers ...*Server) string {
	hosts, ports := "", ""
	for i, s := range servers {
		if i > 0 {
			hosts, ports = hosts+",", ports+","
		}
		hosts, ports = hosts+s.Host, ports+s.Port
	}
	return fmt.Sprintf("host=%s port=%s user=%s password=%s dbname=%s sslmode=disable target_session_attrs=read-write", hosts, ports, role, password, database)
}

// FallBehind has a standby get nothing new any more.
func (s *Server) FallBehind(t testing.TB) {
	t.Helper()
	s.Exec(t, "postgres", "ALTER SYSTEM SET primary_conninfo = ''")
	s.Exec(t, "postgres", "SELECT pg_reload_conf()")
	deadline := time.Now().Add(time.Minute)
	for Ask[bool](t, s, "postgres", "SELECT EXISTS (SELECT FROM pg_stat_wal_receiver)") {
		if time.Now().After(deadline) {
			t.Fatal("the standby still follows")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
