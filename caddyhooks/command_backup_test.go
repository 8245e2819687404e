package caddyhooks_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

// variableOfFiles is what differs in what is said about the files of stores.
var variableOfFiles = []struct {
	pattern *regexp.Regexp
	golden  string
}{
	{regexp.MustCompile(`\b\d+(\.\d+)? (KB|MB)`), "214 MB"},
	{regexp.MustCompile(`(counted minutes +)\d+`), "${1}60"},
	{regexp.MustCompile(`before-\d{8}T\d{6}\.\d{3}Z`), "before-20261116T105912.000Z"},
}

// keeper is a Caddy with runs in all states in a file, and directories for what is made of it.
type keeper struct {
	*hookstest.Server
	store, dir    string
	release       chan struct{}
	directives    string
	ended, queued []string // ids of runs
}

func keep(t *testing.T) *keeper {
	t.Helper()
	rn, _, release := hookstest.HeldRunner(t)
	k := &keeper{dir: t.TempDir(), release: release}
	k.store = filepath.Join(k.dir, "store.db")
	k.directives = hookstest.Hooks(rn, hookstest.WithCallbacks+"workers 1\ndrain_timeout 1ms\nstore bolt "+k.store)
	k.Server = hookstest.StartSite(t, k.directives)
	k.PutMapping("saved", `{"action":"agent","messageTemplate":"got {a}"}`)
	for _, message := range []string{"fine", "fail"} {
		id := k.Accept(`{"message":"`+message+`"}`, hookstest.Key(message)...)
		k.Ended(id)
		k.ended = append(k.ended, id)
	}
	called := k.CallBack("dead letter", "http://127.0.0.1:1/")
	k.Ended(called)
	k.ended = append(k.ended, called)
	rn.Next()
	rn.Next()
	rn.Next()
	k.queued = append(k.queued, k.Accept(`{"message":"hold","chatId":"c"}`))
	rn.Next()
	k.queued = append(k.queued, k.Accept(`{"message":"after it","chatId":"c"}`))
	return k
}

// run runs a command about the Caddy.
func (k *keeper) run(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	return command(t, append([]string{"--address", k.Admin}, args...)...)
}

// golden compares what a command prints with a golden file: the answer, what is said beside it, and its error.
func (k *keeper) golden(t *testing.T, name string, args ...string) {
	t.Helper()
	out, errs, err := k.run(t, args...)
	if errs != "" && err == nil {
		out += "-- beside the answer --\n" + errs
	}
	if err != nil {
		out = "Error: " + err.Error() + "\n"
	}
	for _, v := range variableOfFiles {
		out = v.pattern.ReplaceAllString(out, v.golden)
	}
	wantGolden(t, name, "$ caddy hooks "+strings.Join(args, " ")+"\n"+out, k.store, "/var/lib/caddy/hooks.db", k.dir, "/backups", k.Admin, "localhost:2019")
}

func TestBackupRestoreAndCompactOnTheCommandLine(t *testing.T) {
	caddyhooks.Shorten(t, caddyhooks.LockTimeout, 100*time.Millisecond)
	k := keep(t)
	file := filepath.Join(k.dir, "monday.db")
	k.golden(t, "backup", "backup", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is %v, %v", info, err)
	}
	k.golden(t, "backup-exists", "backup", file)
	var told struct {
		File, Instance              string
		Bytes                       int64
		Unfinished, Ended, Keys     int
		Restored                    bool
		Kept                        string
		BytesBefore, BytesAfter     int64
		ByStatus                    map[string]int
		Pending, History, FreeBytes int
	}
	tell := func(args ...string) {
		t.Helper()
		out, errs, err := k.run(t, append(args, "--json")...)
		if err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
		if err := json.Unmarshal([]byte(out), &told); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
	}
	tell("backup", file, "--force")
	if told.File != file || told.Instance != "default" || told.Unfinished != 2 || told.ByStatus["completed"] != 2 || told.Keys != 2 || told.Bytes == 0 {
		t.Errorf("told %+v", told)
	}

	// To another program.
	out, errs, err := k.run(t, "backup", "-")
	if err != nil || !strings.Contains(errs, "checksum checked. There are secrets in it") {
		t.Errorf("%v\n%s", err, errs)
	}
	passedOn := filepath.Join(k.dir, "passed-on.db")
	if err := os.WriteFile(passedOn, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if checked, err := bolt.Check(passedOn); err != nil || checked.Manifest == nil || checked.Summary.Unfinished != 2 {
		t.Errorf("passed on %+v, %v", checked, err)
	}
	if _, _, err := k.run(t, "backup", "-", "--json"); err == nil {
		t.Error("a backup and JSON went to the same place")
	}

	// While Caddy runs, nobody touches its file.
	k.golden(t, "backup-from-in-use", "backup", "--from", k.store, file+".2")
	k.golden(t, "restore-in-use", "restore", file, "--to", k.store, "--force", "--yes")
	k.golden(t, "restore-dry-run-in-use", "restore", file, "--to", k.store, "--dry-run")
	k.golden(t, "compact-in-use", "compact", k.store)

	k.Stop()
	k.golden(t, "backup-from", "backup", "--from", k.store, file+".2")
	k.golden(t, "restore-exists", "restore", file, "--to", k.store, "--yes")
	_, errs, err = k.run(t, "restore", file, "--to", k.store, "--force")
	wantExit(t, 2, errs, err, "It will be restored to "+k.store+". But there is no terminal to ask at: say --yes")
	k.golden(t, "restore-dry-run", "restore", file, "--to", k.store, "--force", "--dry-run")
	k.golden(t, "restore", "restore", file, "--to", k.store, "--force", "--yes")
	tell("restore", file, "--to", k.store, "--force", "--yes")
	if !told.Restored || told.Unfinished != 2 || told.Kept == "" {
		t.Errorf("told %+v", told)
	}
	k.golden(t, "compact", "compact", k.store)
	tell("compact", k.store)
	if told.BytesBefore == 0 || told.BytesAfter > told.BytesBefore || told.Unfinished != 2 {
		t.Errorf("told %+v", told)
	}
	damaged, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged[len(damaged)/2] ^= 4
	if err := os.WriteFile(file, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.run(t, "restore", file, "--to", k.store, "--dry-run"); err == nil {
		t.Error("a damaged backup is found to be good")
	}
	k.golden(t, "restore-damaged", "restore", file, "--to", k.store, "--force", "--yes")
	k.golden(t, "restore-no-backup", "restore", "command_backup_test.go", "--to", k.store, "--force", "--yes")
	if _, _, err := k.run(t, "restore", k.store, "--to", k.store, "--force", "--yes"); err == nil {
		t.Error("a store was restored from itself")
	}

	close(k.release)
	k.Load(k.directives)
	k.Settle()
	for _, id := range append(k.queued, k.ended...) {
		k.Ended(id)
	}
	if resp := k.Post("/api/hooks/saved", `{"a":1}`); resp.Status != 202 {
		t.Errorf("a saved hook answers %d %s", resp.Status, resp.Body)
	}
	if left, _ := filepath.Glob(filepath.Join(k.dir, ".*")); left != nil {
		t.Errorf("%q were left", left)
	}
}

func TestBackupOverAUnixSocket(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "admin.sock")
	s := hookstest.NewServer(t)
	s.Admin = "http://unix/" + socket
	s.Load("hooks {\nrunner echo\n}\nhooks ops {\npath /ops\n}")
	file := filepath.Join(dir, "backup.db")
	out, errs, err := command(t, "--address", "unix/"+socket, "--instance", "ops", "backup", file)
	if err != nil || !strings.Contains(out, "Backed up the hooks instance ops to "+file) || !strings.Contains(errs, "secrets") {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	// Restored where the instance of the backup has its store.
	t.Setenv("XDG_DATA_HOME", filepath.Join(dir, "data"))
	if _, errs, err := command(t, "restore", file, "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	if _, err := bolt.Check(filepath.Join(dir, "data", "caddy", "hooks", "ops.db")); err != nil {
		t.Error(err)
	}
	if _, _, err := command(t, "--address", "unix/"+socket+".none", "backup", file+".2"); err == nil || !strings.Contains(err.Error(), "--from") {
		t.Errorf("no socket: %v", err)
	}
}
