package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt"
)

// recordedRun is all that a store has about a run.
type recordedRun struct {
	Record     *engine.Record
	Deliveries []*engine.Delivery
}

// recordsIn reads a file as a whole, run by run, and the live settings in it.
func recordsIn(t *testing.T, path string) (runs map[string]recordedRun, settings string, revision int64) {
	t.Helper()
	database, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := database.Store()
	defer s.Close()
	runs = make(map[string]recordedRun)
	for cursor := ""; ; {
		page, next, err := s.Runs().List(t.Context(), engine.Query{Limit: 500, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, listed := range page {
			record, err := s.Runs().Get(t.Context(), listed.Run.ID)
			if err != nil {
				t.Fatal(err)
			}
			run := recordedRun{Record: record}
			for _, d := range record.Deliveries {
				whole, err := s.Deliveries().Get(t.Context(), d.ID)
				if err != nil {
					t.Fatal(err)
				}
				run.Deliveries = append(run.Deliveries, whole)
			}
			runs[listed.Run.ID] = run
		}
		if next == "" {
			break
		}
		cursor = next
	}
	saved, revision, err := s.Settings().Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return runs, string(saved), revision
}

// busyHouse is a Caddy under load, with runs in all states and deliveries of all kinds.
type busyHouse struct {
	runner, receiver *httptest.Server
	open             chan struct{} // closed when held turns and refused callbacks may go through

	mu      sync.Mutex
	turns   map[string]int // by run
	ids     []string       // of accepted runs
	stop    chan struct{}
	senders sync.WaitGroup
}

func newBusyHouse(t *testing.T) *busyHouse {
	h := &busyHouse{open: make(chan struct{}), turns: make(map[string]int), stop: make(chan struct{})}
	h.runner = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var turn struct{ RunID, Message string }
		_ = json.NewDecoder(r.Body).Decode(&turn)
		_, _ = io.Copy(io.Discard, r.Body)
		h.mu.Lock()
		h.turns[turn.RunID]++
		h.mu.Unlock()
		switch {
		case strings.HasPrefix(turn.Message, "hold"):
			select {
			case <-h.open:
			case <-r.Context().Done():
			}
		case strings.HasPrefix(turn.Message, "fail"):
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "answer to "+turn.Message)
	}))
	h.receiver = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/later":
			select {
			case <-h.open:
			default:
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}))
	t.Cleanup(func() {
		for _, server := range []*httptest.Server{h.runner, h.receiver} {
			server.CloseClientConnections()
			server.Close()
		}
	})
	return h
}

func (h *busyHouse) directives(store string) string {
	return "hooks {\n\tenabled\n\ttoken " + hookstest.Token + "\n\tworkers 16\n\trunner http " + h.runner.URL + "\n\tstore bolt " + store + "\n\t" + hookstest.WithCallbacks + "}"
}

// send sends requests of all kinds until it is told to stop.
func (h *busyHouse) send(t *testing.T, url string, sender int) {
	kinds := []func(n int) (body string){
		func(n int) string { return fmt.Sprintf(`{"message":"fine %d-%d"}`, sender, n) },
		func(n int) string {
			return fmt.Sprintf(`{"message":"fail %d-%d","chatId":"chat %d"}`, sender, n, sender)
		},
		func(n int) string {
			return fmt.Sprintf(`{"message":"to be called back %d-%d","callbackUrl":"%s/fine"}`, sender, n, h.receiver.URL)
		},
		func(n int) string {
			return fmt.Sprintf(`{"message":"later %d-%d","callbackUrl":"%s/later"}`, sender, n, h.receiver.URL)
		},
		func(n int) string {
			return fmt.Sprintf(`{"message":"gone %d-%d","callbackUrl":"%s/gone"}`, sender, n, h.receiver.URL)
		},
		func(n int) string { // what is behind it waits
			if n > 100 {
				return fmt.Sprintf(`{"message":"fine again %d-%d"}`, sender, n)
			}
			return fmt.Sprintf(`{"message":"hold %d-%d","chatId":"held %d"}`, sender, n, sender)
		},
	}
	for n := 0; ; n++ {
		select {
		case <-h.stop:
			return
		default:
		}
		headers := []string{"Authorization", "Bearer " + hookstest.Token, "Content-Type", "application/json"}
		if n%2 == 0 {
			headers = append(headers, hookstest.Key(fmt.Sprintf("key %d-%d", sender, n))...)
		}
		resp, err := hookstest.TryRequest("POST", url+"/api/hooks/agent", kinds[n%len(kinds)](n), headers...)
		if err != nil {
			return // Caddy was killed
		}
		if resp.Status == http.StatusAccepted {
			h.mu.Lock()
			h.ids = append(h.ids, resp.Field(t, "runId").(string))
			h.mu.Unlock()
		}
	}
}

func (h *busyHouse) accepted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ids)
}

// hooks runs `caddy hooks` as a process.
func hooks(t *testing.T, d *hookstest.Deployment, args ...string) string {
	t.Helper()
	out, err := d.Command(nil, append([]string{"hooks", "--address", d.Admin}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("caddy hooks %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestABackupUnderLoadRestoresIntoAnEqualState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newBusyHouse(t)
	binary := hookstest.NewBinary(t)
	d := binary.Deploy(t, onlyWarnings, h.directives(filepath.Join(dir, "first.db")))
	p := d.Start(t)
	for sender := range 6 {
		h.senders.Go(func() { h.send(t, d.URL, sender) })
	}
	var saved atomic.Int64 // settings
	h.senders.Go(func() {
		for n := int64(1); ; n++ {
			select {
			case <-h.stop:
				return
			default:
			}
			resp, err := hookstest.TryRequest("PUT", d.Admin+"/hooks/mappings/saved", fmt.Sprintf(`{"action":"agent","authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"secret-%d"}`, n), "Content-Type", "application/json")
			if err != nil {
				return
			}
			if resp.Status == http.StatusOK {
				saved.Store(n)
			}
		}
	})
	const enough = 600
	hookstest.Within(t, time.Minute, "there is something to back up", func() bool { return len(h.accepted()) > enough && saved.Load() > 20 })
	before, savedBefore := h.accepted(), saved.Load()
	backup := filepath.Join(dir, "backup.db")
	printed := hooks(t, d, "backup", backup)
	later := len(before) + 50
	hookstest.Within(t, time.Minute, "Caddy goes on", func() bool { return len(h.accepted()) > later })
	p.Over = true
	p.Kill()
	close(h.stop)
	h.senders.Wait()
	if !strings.Contains(printed, "checked.") || strings.Contains(printed, "cannot be read") {
		t.Errorf("printed %s", printed)
	}

	// The restored file has what the backup has, which is what was accepted before it began.
	restored := filepath.Join(dir, "elsewhere", "second.db")
	hooks(t, d, "restore", backup, "--to", restored, "--yes")
	copied := filepath.Join(dir, "copied.db")
	data, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, data, 0o600); err != nil { // a backup is a file of a store with something behind it
		t.Fatal(err)
	}
	want, settings, revision := recordsIn(t, copied)
	got, gotSettings, gotRevision := recordsIn(t, restored)
	if gotSettings != settings || gotRevision != revision || !strings.Contains(settings, "secret-") || revision < savedBefore {
		t.Errorf("the settings are %s in revision %d, want %s in %d", gotSettings, gotRevision, settings, revision)
	}
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		t.Fatalf("%d runs were restored, want %d", len(got), len(want))
	}
	tally := make(map[string]int)
	for id, run := range want {
		if restored, backedUp := hookstest.AsJSON(t, got[id]), hookstest.AsJSON(t, run); restored != backedUp {
			t.Errorf("run %s is\n%s\nwant\n%s", id, restored, backedUp)
		}
		tally[string(run.Record.Status)]++
		for _, d := range run.Deliveries {
			tally[string(d.Status)]++
		}
	}
	for _, id := range before {
		if _, isThere := want[id]; !isThere {
			t.Errorf("run %s was accepted before the backup, and is not in it", id)
		}
	}
	for _, kind := range []string{"queued", "completed", "failed", "pending", "delivered", "dead"} {
		if tally[kind] == 0 {
			t.Errorf("there was nothing that is %s to restore: %v", kind, tally)
		}
	}

	// A new Caddy carries out what was not, and leaves the rest as it was.
	h.mu.Lock()
	h.turns = make(map[string]int)
	h.mu.Unlock()
	close(h.open)
	second := binary.Deploy(t, onlyWarnings, h.directives(restored))
	p = second.Start(t)
	hookstest.Within(t, 2*time.Minute, "all runs end", func() bool {
		resp, err := hookstest.TryRequest("GET", second.Admin+"/hooks/runs?status=queued,running&limit=1", "")
		return err == nil && resp.Status == 200 && strings.Contains(resp.Body, `"runs":[]`)
	})
	p.WantNoCrash(t)
	p.Terminate(t)
	p.WantCleanExit(t)
	after, _, _ := recordsIn(t, restored)
	for id, run := range want {
		now, isThere := after[id]
		switch {
		case !isThere:
			t.Errorf("run %s is gone", id)
		case !run.Record.Status.Ended():
			if now.Record.Status != engine.Completed && now.Record.Status != engine.Failed || h.turns[id] == 0 || now.Record.Run.ChatID != run.Record.Run.ChatID {
				t.Errorf("run %s was %s, and is %s after %d turns", id, run.Record.Status, now.Record.Status, h.turns[id])
			}
		default:
			if h.turns[id] > 0 {
				t.Errorf("run %s had ended, and was carried out again", id)
			}
			// What was pending may have been sent.
			now.Record.Deliveries, run.Record.Deliveries = nil, nil
			if restored, backedUp := hookstest.AsJSON(t, now.Record), hookstest.AsJSON(t, run.Record); restored != backedUp {
				t.Errorf("run %s is\n%s\nwant\n%s", id, restored, backedUp)
			}
			for i, d := range run.Deliveries {
				if d.Status != engine.Pending && hookstest.AsJSON(t, now.Deliveries[i]) != hookstest.AsJSON(t, d) {
					t.Errorf("delivery %s is another one", d.ID)
				}
			}
		}
	}
	t.Logf("%d runs in the backup, %d accepted before it, %d in all: %v", len(want), len(before), len(h.accepted()), tally)
}

// fileOfSize makes the file of a store that has about so many megabytes.
func fileOfSize(t *testing.T, path string, megabytes int) {
	t.Helper()
	database, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := database.Store()
	for range megabytes {
		run := &engine.Run{ChatID: "c", Hook: "agent", Message: strings.Repeat("m", 1<<20), Timeout: time.Minute}
		if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAFullDiskLeavesNoHalfFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	small, readOnly := filepath.Join(dir, "small"), filepath.Join(dir, "read-only")
	for _, place := range []string{small, readOnly} {
		if err := os.Mkdir(place, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mount(t, small, "-t", "tmpfs", "-o", "size=12m", "tmpfs")
	mount(t, readOnly, "-t", "tmpfs", "-o", "ro", "tmpfs")
	large, onSmall := filepath.Join(dir, "large.db"), filepath.Join(small, "store.db")
	fileOfSize(t, large, 20)
	fileOfSize(t, onSmall, 4)
	before, err := os.ReadFile(onSmall)
	if err != nil {
		t.Fatal(err)
	}
	binary := hookstest.NewBinary(t)
	good := filepath.Join(dir, "good.db")
	if out, err := binary.Command(nil, "hooks", "backup", "--from", large, good).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"not enough space", []string{"backup", "--from", large, filepath.Join(small, "backup.db")}},
		{"not enough space", []string{"restore", good, "--to", onSmall, "--force", "--yes"}},
		{"not enough space", []string{"compact", onSmall}},
		{"read-only file system", []string{"backup", "--from", large, filepath.Join(readOnly, "backup.db")}},
		{"read-only file system", []string{"restore", good, "--to", filepath.Join(readOnly, "store.db"), "--yes"}},
	} {
		out, err := binary.Command(nil, append([]string{"hooks"}, c.args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("caddy hooks %s: %v\n%s", strings.Join(c.args, " "), err, out)
		}
	}
	for place, want := range map[string][]string{small: {small, onSmall}, readOnly: {readOnly}} {
		if files := hookstest.FilesIn(t, place); !slices.Equal(files, want) {
			t.Errorf("there are %q, want %q", files, want)
		}
	}
	if after, err := os.ReadFile(onSmall); err != nil || string(after) != string(before) {
		t.Errorf("the store is another one, %v", err)
	}
}

func TestAKilledBackupLeavesNoHalfFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := filepath.Join(dir, "store.db")
	fileOfSize(t, store, 40)
	binary := hookstest.NewBinary(t)
	killed := 0
	for _, verb := range []string{"backup", "restore", "compact"} {
		for n := range 3 {
			place := filepath.Join(dir, fmt.Sprint(verb, n))
			if err := os.Mkdir(place, 0o700); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(place, "file.db")
			args := map[string][]string{
				"backup":  {"hooks", "backup", "--from", store, file},
				"restore": {"hooks", "restore", store, "--to", file, "--yes"},
				"compact": {"hooks", "compact", file},
			}[verb]
			if verb == "compact" {
				fileOfSize(t, file, 40)
			}
			cmd := binary.Command(nil, args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			hookstest.Within(t, time.Minute, "the new file is begun", func() bool {
				partial, _ := filepath.Glob(filepath.Join(place, ".*"))
				_, err := os.Stat(file)
				return len(partial) > 0 || verb != "compact" && err == nil
			})
			_ = cmd.Process.Signal(syscall.SIGKILL)
			if err := cmd.Wait(); err != nil {
				killed++
			}
			if _, err := os.Stat(file); verb != "compact" && err != nil {
				continue // it never got its name
			}
			if checked, err := bolt.Check(file); err != nil || checked.Summary.Unfinished != 40 {
				t.Errorf("after %s there is %+v, %v", verb, checked, err)
			}
		}
	}
	if killed == 0 {
		t.Error("none was killed in time")
	}
}
