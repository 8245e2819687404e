//go:build linux

package integration

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

// A kill leaves what was written with the kernel, synced or not. So Caddy works on a file system in an image here, and what
// is in the image at some moment is what a power cut would have left at that moment.
func TestPowerCutLosesNothing(t *testing.T) {
	t.Parallel()
	realtest.Root(t) // who alone can mount a file system
	seed := newSeed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	image, dir := newImage(t), t.TempDir()
	// What nobody syncs is not written on its own for five minutes.
	unmount := mount(t, dir, "-o", "loop,commit=300", image)

	w := newWitness(t, seed)
	d := hookstest.NewBinary(t).Deploy(t, onlyWarnings, w.directives(filepath.Join(dir, "data", "hooks", "hooks.db"), ""))
	p := w.start(t, d)
	p.WaitUntilServing(t)

	// The file is new, and so are its directories.
	l := newLoad(w, d.URL)
	first := l.add(&request{text: "load-0-0", path: "agent"})
	l.send(first)
	if first.answered == 0 {
		t.Fatal("the first request was not accepted")
	}
	cuts := []*powerCut{takeCut(t, p, l, image)}
	l.start(t, seed)
	for len(cuts) < 11 {
		enough := l.accepted() + 10
		hookstest.Within(t, time.Minute, "requests are accepted", func() bool { return l.accepted() > enough })
		time.Sleep(time.Duration(random.Int64N(int64(150 * time.Millisecond)))) // any moment
		cuts = append(cuts, takeCut(t, p, l, image))
	}
	l.halt()
	w.end(t, p, p.Kill)
	l.clients.Wait()
	unmount()

	w.hurry()
	acknowledged := 0
	for i, cut := range cuts {
		acknowledged += len(cut.acknowledged)
		unmount := mount(t, dir, "-o", "loop", cut.image)
		p := w.start(t, d)
		p.WaitUntilServing(t)
		cut.check(t, l)
		if t.Failed() {
			t.Fatalf("this was power cut %d", i)
		}
		w.end(t, p, p.Kill)
		unmount()
	}
	for _, fault := range w.faults {
		t.Error(fault)
	}
	t.Logf("%d requests were accepted, and %d acknowledged before one of %d power cuts", l.accepted(), acknowledged, len(cuts))
	if acknowledged < 50*len(cuts) {
		t.Error("that was not enough to tell")
	}
}

// powerCut is what is left of a file system, and what was known when the power was cut.
type powerCut struct {
	image        string
	acknowledged []*request
	ended        map[string]bool // runs that were known to have ended
}

// takeCut stops the process, copies the image and lets it go on.
func takeCut(t *testing.T, p *hookstest.Process, l *load, image string) *powerCut {
	t.Helper()
	cut := &powerCut{image: filepath.Join(t.TempDir(), "cut"), ended: make(map[string]bool)}
	now := l.w.now()
	p.Signal(t, syscall.SIGSTOP)
	hookstest.Within(t, time.Minute, "all threads stop", func() bool { return isStopped(t, p.Cmd.Process.Pid) })
	// The kernel must not be writing on its own either.
	data := readFile(t, image)
	hookstest.Within(t, time.Minute, "the image stays as it is", func() bool {
		before := data
		data = readFile(t, image)
		return bytes.Equal(before, data)
	})
	p.Signal(t, syscall.SIGCONT)
	writeSparse(t, cut.image, data)

	l.mu.Lock()
	defer l.mu.Unlock()
	for _, req := range l.requests {
		if req.answered > 0 && req.answered < now {
			cut.acknowledged = append(cut.acknowledged, req)
		}
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for id, proof := range l.w.proved {
		cut.ended[id] = cut.ended[id] || proof.at < now
	}
	for id, callbacks := range l.w.callbacks {
		cut.ended[id] = cut.ended[id] || callbacks[0].at < now
	}
	return cut
}

// check waits until all that was acknowledged before the power cut is completed in the process that serves now.
func (cut *powerCut) check(t *testing.T, l *load) {
	t.Helper()
	var lost []string
	deadline := time.Now().Add(30 * time.Second)
	for _, req := range cut.acknowledged {
		for !l.completed(req) {
			if time.Now().After(deadline) {
				lost = append(lost, req.text)
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if len(lost) > 0 {
		t.Errorf("%d of %d acknowledged requests are lost: %v", len(lost), len(cut.acknowledged), lost)
	}
	var again []string
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for id, turns := range l.w.turns {
		if turns[len(turns)-1].life == l.w.life && cut.ended[id] {
			again = append(again, id)
		}
	}
	if len(again) > 0 {
		t.Errorf("had ended, and were started again: %v", again)
	}
}

// completed reports whether one of the runs that are known to be a request's is completed.
func (l *load) completed(req *request) bool {
	l.mu.Lock()
	ids := []string{req.runID}
	l.mu.Unlock()
	if ids[0] == "" {
		l.w.mu.Lock()
		ids = slices.Clone(l.w.texts[req.text])
		l.w.mu.Unlock()
	}
	for _, id := range ids {
		resp, err := hookstest.TryRequest("GET", l.url+"/api/hooks/runs/"+id, "", "Authorization", "Bearer "+hookstest.Token)
		if err == nil && resp.Status == 200 && strings.HasPrefix(resp.Body, `{"status":"completed"`) {
			return true
		}
	}
	return false
}

func TestFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	realtest.Root(t) // who alone can mount a file system
	t.Run("tmpfs", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		mount(t, dir, "-t", "tmpfs", "-o", "size=48m", "tmpfs")
		fillsUp(t, dir)
	})
	t.Run("ext4", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		mount(t, dir, "-o", "loop", newImage(t))
		fillsUp(t, dir)
	})
}

// newImage makes an image of an empty file system.
func newImage(t *testing.T) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	writeSparse(t, image, make([]byte, 48<<20))
	command(t, "mkfs.ext4", "-q", "-F", image)
	return image
}

// fillsUp has Caddy work in a directory that has 48 MB.
func fillsUp(t *testing.T, dir string) {
	seed := newSeed(t)
	reserve, ballast := filepath.Join(dir, "reserve"), filepath.Join(dir, "ballast")
	if err := os.WriteFile(reserve, make([]byte, 32<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWitness(t, seed)
	w.mayLogErrors = true
	d := hookstest.NewBinary(t).Deploy(t, onlyWarnings, w.directives(filepath.Join(dir, "hooks.db"), "drain_timeout 300ms"))
	p := w.start(t, d)
	p.WaitUntilServing(t)
	l := newLoad(w, d.URL)
	l.mayRefuse = true

	// Runs under way when the disk fills end, and that is kept when there is room.
	slow := []*request{
		{text: "slow-1-0", path: "wake"},
		{text: "slow-1-1", path: "agent", callback: true},
		{text: "slow-1-2", path: "agent", sync: true},
		{text: "slow-1-3", path: "agent", sync: true, callback: true},
	}
	var callers sync.WaitGroup
	for _, req := range slow {
		callers.Go(func() { l.send(l.add(req)) })
	}
	for _, req := range slow {
		hookstest.Within(t, time.Minute, req.text+" is under way", func() bool { return w.began(req.text) })
	}
	fill(t, ballast)
	l.sendUntilRefused(t, 1, 1)
	w.release()
	hookstest.Within(t, time.Minute, "the end of a run cannot be stored", func() bool {
		_, found := p.Log.Find("storing the end of a run")
		return found
	})
	for _, req := range slow {
		if l.completed(req) {
			t.Errorf("%s is said to be completed, and that is not kept", req.text)
		}
	}
	wantPatience(t, p)
	empty(t, ballast)
	callers.Wait()
	for _, req := range slow {
		hookstest.Within(t, time.Minute, req.text+" is completed when there is room", func() bool { return l.completed(req) })
	}

	// The disk fills under load.
	l.start(t, seed)
	for round := range 3 {
		enough := l.accepted() + 50
		hookstest.Within(t, time.Minute, "requests are accepted", func() bool { return l.accepted() > enough })
		fill(t, ballast)
		l.sendUntilRefused(t, 10+round, 8)
		wantModesty(t, p)
		empty(t, ballast)
	}
	enough := l.accepted() + 50
	hookstest.Within(t, time.Minute, "requests are accepted when there is room", func() bool { return l.accepted() > enough })
	l.finish(t)

	// The load itself fills the disk, and then Caddy is started anew.
	for n := range workers {
		l.send(l.add(&request{text: fmt.Sprintf("slow-2-%d", n), path: "agent"}))
	}
	hookstest.Within(t, time.Minute, "all workers are busy", func() bool { return w.began(fmt.Sprintf("slow-2-%d", workers-1)) })
	l.sendUntilRefused(t, 2, 8)
	wantModesty(t, p)
	w.end(t, p, func() {
		p.Terminate(t)
		p.WantCleanExit(t)
	})
	p = w.start(t, d)
	p.WaitUntilServing(t)
	l.sendUntilRefused(t, 3, 5)
	empty(t, reserve)
	l.send(l.add(&request{text: "load-200-0", path: "agent", callback: true, key: "last"}))
	l.finish(t)
	w.end(t, p, func() {
		p.Terminate(t)
		p.WantCleanExit(t)
	})
	p = w.start(t, d)
	p.WaitUntilServing(t)
	l.finish(t)

	c := w.check(t, l)
	t.Log(c)
	if c.refused < 30 || c.callbacks == 0 || c.syncs == 0 {
		t.Error("that was not enough to tell")
	}
	p.WantNoCrash(t)
}

// sendUntilRefused sends large requests until so many in a row are refused.
func (l *load) sendUntilRefused(t *testing.T, series, inARow int) {
	t.Helper()
	for n, row := 0, 0; row < inARow; n++ {
		if n == 10_000 {
			t.Fatal("the disk does not fill up")
		}
		req := l.add(&request{text: fmt.Sprintf("load-%d-%d", 100+series, n), path: "agent", padding: 50_000})
		l.send(req)
		row++
		if req.refused == 0 {
			row = 0
		}
	}
}

// fill leaves no room on a disk.
func fill(t *testing.T, ballast string) {
	t.Helper()
	file, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// empty makes room again.
func empty(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// wantModesty checks that a process that cannot do its work does not take more and more of the machine.
func wantModesty(t *testing.T, p *hookstest.Process) {
	t.Helper()
	resp, err := hookstest.TryRequest("GET", p.Admin+"/debug/pprof/goroutine?debug=1", "")
	var goroutines int
	if _, scanErr := fmt.Sscanf(resp.Body, "goroutine profile: total %d", &goroutines); err != nil || scanErr != nil {
		t.Fatalf("asking for goroutines: %v %v", err, scanErr)
	}
	if goroutines > 300 {
		t.Errorf("there are %d goroutines", goroutines)
	}
	status := string(readFile(t, fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid)))
	var kilobytes int
	_, rest, _ := strings.Cut(status, "RssAnon:")
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		t.Fatalf("%v: %s", err, status)
	}
	if kilobytes > 512<<10 {
		t.Errorf("it takes %d KB of memory", kilobytes)
	}
	p.WantNoCrash(t)
}

// wantPatience checks that a process that nobody asks anything neither spins nor floods its log.
func wantPatience(t *testing.T, p *hookstest.Process) {
	t.Helper()
	wantModesty(t, p)
	logged, used := p.Log.Size(), cpuTime(t, p)
	const window = time.Second
	time.Sleep(window) // is what is measured
	if used = cpuTime(t, p) - used; used > window/2 {
		t.Errorf("used the processor for %v of %v", used, window)
	}
	if logged = p.Log.Size() - logged; logged > 64<<10 {
		t.Errorf("logged %d bytes in %v", logged, window)
	}
}

// cpuTime is how long a process has been computing.
func cpuTime(t *testing.T, p *hookstest.Process) time.Duration {
	t.Helper()
	stat := string(readFile(t, fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid)))
	_, rest, _ := strings.Cut(stat, ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err != nil || err2 != nil {
		t.Fatalf("%v %v: %s", err, err2, stat)
	}
	return time.Duration(user+system) * time.Second / 100
}

var tornPages = flag.Int("torn", 6, "how many pages of a file are damaged one at a time")

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	t.Run("as a whole", func(t *testing.T) {
		t.Parallel()
		random := rand.New(rand.NewPCG(seed, 0))
		s := newSpecimen(t, seed, false, false)
		s.wantNoStart(t, "empty", nil)
		for _, length := range []int{1, 4096, 5000, 8192, 16384, s.used / 2, s.used - 4096, s.used - 1} {
			s.wantNoStart(t, fmt.Sprintf("cut to %d bytes", length), s.file[:length])
		}
		for _, length := range []int{s.used, max(s.used, len(s.file)-4096), max(s.used, len(s.file)-1)} {
			s.wantStart(t, fmt.Sprintf("cut to %d bytes, of which none is missing", length), s.file[:length])
		}
		s.wantNoStart(t, "noise", noise(random, len(s.file)))
		s.wantNoStart(t, "noise of one page", noise(random, 4096))
		s.wantNoStart(t, "zeros", make([]byte, len(s.file)))
		s.wantNoStart(t, "text", []byte(strings.Repeat("This is not a database.\n", 1000)))
		s.wantNoStart(t, "no meta pages", damage(s.file, 0, make([]byte, 2*4096)))
		s.wantStart(t, "no first meta page", damage(s.file, 0, make([]byte, 4096)))
		s.wantStart(t, "no second meta page", damage(s.file, 4096, make([]byte, 4096)))
	})
	for i, name := range []string{"killed", "terminated", "killed with much free space"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, uint64(10+i)))
			s := newSpecimen(t, seed, name == "terminated", name == "killed with much free space")
			// The pages stay as they are, but for a key that is not in order any more.
			for _, bucket := range slices.Sorted(maps.Keys(s.keys)) {
				keys := s.keys[bucket]
				some := []int{0, len(keys) / 2, len(keys) - 1}
				if bucket == "ended" {
					some = append(some, random.Perm(len(keys))[:min(*tornPages, len(keys))]...)
				}
				for _, n := range some {
					name := fmt.Sprintf("key %d of the %d of %s is zeros", n, len(keys), bucket)
					data := damage(s.file, keys[n], make([]byte, 16))
					switch bucket {
					case "ended", "settled", "keys", "key_runs", "starts":
						s.wantEither(t, name, data)
					case "runs", "outbox":
						s.wantNoStart(t, name, data)
					}
				}
			}
			for _, page := range s.pages(random, *tornPages) {
				what, kind := make([]byte, 4096), "zeros"
				if random.IntN(2) == 0 {
					what, kind = noise(random, 4096), "noise"
				}
				data := damage(s.file, page*4096, what)
				switch owner := s.owners[page]; owner {
				case "":
					s.wantStart(t, fmt.Sprintf("%s in page %d, which is free", kind, page), data)
				case "ended", "settled", "keys", "key_runs":
					s.wantEither(t, fmt.Sprintf("%s in page %d of %s", kind, page, owner), data)
				default:
					s.wantNoStart(t, fmt.Sprintf("%s in page %d of %s", kind, page, owner), data)
				}
				// Disks write sectors. One may be in a part of the page that is not in use.
				sector := page*8 + random.IntN(8)
				data = damage(s.file, sector*512, what[:512])
				s.wantEither(t, fmt.Sprintf("%s in sector %d, which is of page %d of %s", kind, sector, page, s.owners[page]), data)
			}
		})
	}
}

// pages chooses some pages that are in use, and a few that are not.
func (s *specimen) pages(random *rand.Rand, n int) (chosen []int) {
	free := 0
	for _, page := range random.Perm(s.used / 4096) {
		switch {
		case page < 2: // a meta page
		case s.owners[page] == "" && free < 3:
			chosen = append(chosen, page)
			free++
		case s.owners[page] != "" && len(chosen)-free < n:
			chosen = append(chosen, page)
		}
	}
	return chosen
}

func TestFileThatIsNoStore(t *testing.T) {
	t.Parallel()
	realtest.Root(t) // who alone can mount a file system
	inFile := func(t *testing.T, path string, change func(*bolt.Tx) error) {
		t.Helper()
		db, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(change), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, words string
		prepare     func(t *testing.T, path string)
	}{
		{"a database of somebody else", "not a store of hooks", func(t *testing.T, path string) {
			inFile(t, path, func(tx *bolt.Tx) error {
				_, err := tx.CreateBucket([]byte("other"))
				return err
			})
		}},
		{"a database of somebody else that has a meta bucket", "not a store of hooks", func(t *testing.T, path string) {
			inFile(t, path, func(tx *bolt.Tx) error {
				_, err := tx.CreateBucket([]byte("meta"))
				return err
			})
		}},
		{"a later layout", "newer version", func(t *testing.T, path string) {
			b := hookstest.NewBinary(t)
			p := b.Serve(t, onlyWarnings, "hooks {\nstore bolt "+path+"\n}")
			p.Terminate(t)
			p.WantCleanExit(t)
			inFile(t, path, func(tx *bolt.Tx) error {
				return tx.Bucket([]byte("meta")).Put([]byte("version"), []byte{99})
			})
		}},
		{"a directory", "is a directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		{"a file where a directory should be", "not a directory", func(t *testing.T, path string) {
			dir := filepath.Dir(path)
			if err := errors.Join(os.Remove(dir), os.WriteFile(dir, []byte("a file"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}},
		{"a new file where nothing can be written", "read-only", func(t *testing.T, path string) {
			mount(t, filepath.Dir(path), "-t", "tmpfs", "-o", "ro", "tmpfs")
		}},
		{"a file where nothing can be written", "read-only", func(t *testing.T, path string) {
			mount(t, filepath.Dir(path), "-t", "tmpfs", "tmpfs")
			p := hookstest.NewBinary(t).Serve(t, onlyWarnings, "hooks {\nstore bolt "+path+"\n}")
			p.Terminate(t)
			p.WantCleanExit(t)
			command(t, "mount", "-o", "remount,ro", filepath.Dir(path))
		}},
		{"no room for a new file", "no space", func(t *testing.T, path string) {
			mount(t, filepath.Dir(path), "-t", "tmpfs", "-o", "size=1m", "tmpfs")
			fill(t, filepath.Join(filepath.Dir(path), "ballast"))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "hooks.db")
			test.prepare(t, path)
			files, before := hookstest.FilesIn(t, dir), contentsOf(path)
			p := hookstest.NewBinary(t).Deploy(t, onlyWarnings, "hooks {\nstore bolt "+path+"\n}").Launch(t)
			select {
			case <-p.Exited:
			case <-time.After(time.Minute):
				t.Fatal("Caddy does not exit")
			}
			wantRefusal(t, p, test.name, path, test.words)
			if after := hookstest.FilesIn(t, dir); !slices.Equal(files, after) {
				t.Errorf("there were the files %v, and now %v", files, after)
			}
			if !bytes.Equal(before, contentsOf(path)) {
				t.Error("the file was changed")
			}
		})
	}
}

// contentsOf is what is in a file, nil if it is none.
func contentsOf(path string) []byte {
	data, _ := os.ReadFile(path)
	return data
}

func TestSecondProcessLeavesTheFirstAlone(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	w := newWitness(t, seed)
	path := filepath.Join(t.TempDir(), "hooks.db")
	first := hookstest.NewBinary(t).Deploy(t, onlyWarnings, w.directives(path, ""))
	p := w.start(t, first)
	p.WaitUntilServing(t)
	l := newLoad(w, first.URL)
	l.start(t, seed)
	wantLoad := func() {
		t.Helper()
		enough := l.accepted() + 20
		hookstest.Within(t, time.Minute, "requests are accepted", func() bool { return l.accepted() > enough })
	}
	wantLoad()
	second := hookstest.NewBinary(t).Deploy(t, onlyWarnings, w.directives(path, "")).Launch(t)
	select {
	case <-second.Exited:
	case <-time.After(time.Minute):
		t.Fatal("the second process does not exit")
	}
	wantRefusal(t, second, "the second process", path, "another process", "Another Caddy")
	wantLoad()
	if out, err := first.Command(nil, "validate", "--adapter", "caddyfile", "--config", first.Config).CombinedOutput(); err != nil {
		t.Errorf("validate: %v\n%s", err, out)
	}
	wantLoad()
	l.finish(t)
	p.WantQuietLog(t)
	p.Terminate(t)
	p.WantCleanExit(t)
	if c := w.check(t, l); c.repeated > 0 || c.dropped > 0 {
		t.Errorf("the first process was disturbed: %s", c)
	}
}

// specimen is a file with all there can be in it.
type specimen struct {
	w          *witness
	l          *load
	d          *hookstest.Deployment
	path       string
	file       []byte
	used       int              // how much of it is in use
	owners     map[int]string   // the bucket that a page belongs to
	keys       map[string][]int // where the keys of a bucket are
	ended      []*request
	unfinished []*request
}

func newSpecimen(t *testing.T, seed uint64, terminated, muchFree bool) *specimen {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	s := &specimen{w: newWitness(t, seed), path: filepath.Join(t.TempDir(), "data", "hooks.db")}
	s.w.mayLogErrors = true
	options := "drain_timeout 100ms"
	if muchFree {
		options += "\nhistory off" // or what runs were told would stay
	}
	s.d = hookstest.NewBinary(t).Deploy(t, onlyWarnings, s.w.directives(s.path, options))
	s.w.hurry()
	s.l = newLoad(s.w, s.d.URL)
	p := s.w.start(t, s.d)
	p.WaitUntilServing(t)
	add := func(req *request) {
		s.l.send(s.l.add(req))
		if req.answered == 0 {
			t.Fatalf("was not accepted: %+v", *req)
		}
	}
	if muchFree {
		held := &request{text: "slow-0-0", path: "agent", chat: "large"}
		add(held)
		hookstest.Within(t, 3*time.Minute, "a run is under way", func() bool { return s.w.began(held.text) })
		for n := range 250 {
			add(&request{text: fmt.Sprintf("load-0-%d", n), path: "agent", chat: "large", padding: 60_000})
		}
		s.w.release()
	}
	for n := range 60 {
		req := compose(random, fmt.Sprintf("load-1-%d", n))
		add(req)
		s.ended = append(s.ended, req)
	}
	hookstest.Within(t, 3*time.Minute, "these have ended", func() bool { return s.l.open() == "" })
	s.w.mu.Lock()
	s.w.receiverIsOff = true // deliveries stay pending
	s.w.mu.Unlock()
	for n := range 5 {
		req := &request{text: fmt.Sprintf("load-2-%d", n), path: "agent", callback: true}
		add(req)
		s.ended = append(s.ended, req)
		hookstest.Within(t, 3*time.Minute, "a callback is refused", func() bool {
			s.w.mu.Lock()
			defer s.w.mu.Unlock()
			return len(s.w.callbacks[req.runID]) > 0
		})
	}
	for n := range 4 {
		chat := fmt.Sprintf("slow-%d", n)
		held := &request{text: fmt.Sprintf("slow-3-%d", n), path: "agent", chat: chat}
		add(held)
		hookstest.Within(t, 3*time.Minute, "a run is under way", func() bool { return s.w.began(held.text) })
		s.unfinished = append(s.unfinished, held)
		for m := range 5 {
			queued := &request{text: fmt.Sprintf("load-%d-%d", 4+n, m), path: "agent", chat: chat, callback: m == 0, padding: m * 4000}
			if m%2 == 0 {
				queued.key = queued.text
			}
			add(queued)
			s.unfinished = append(s.unfinished, queued)
		}
	}
	for range 2 { // so that it does not matter which meta page is the newer one
		resp, err := hookstest.TryRequest("PUT", p.Admin+"/hooks/mappings/live", `{"action":"agent"}`, "Content-Type", "application/json")
		if err != nil || resp.Status != 200 {
			t.Fatalf("saving a mapping: %v %v", resp, err)
		}
	}
	s.w.end(t, p, func() {
		if terminated {
			p.Terminate(t)
			p.WantCleanExit(t)
		} else {
			p.Kill()
		}
	})
	s.file = readFile(t, s.path)
	s.dissect()
	if listed := slices.Contains(slices.Collect(maps.Values(s.owners)), "freelist"); listed == muchFree {
		t.Fatalf("the list of free pages is in the file: %v", listed)
	}
	return s
}

// boot starts Caddy with a file. It returns when Caddy serves or has exited.
func (s *specimen) boot(t *testing.T, data []byte) (p *hookstest.Process, serves bool) {
	t.Helper()
	if err := os.WriteFile(s.path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	p = s.w.start(t, s.d)
	hookstest.Within(t, time.Minute, "Caddy starts or exits", func() bool {
		select {
		case <-p.Exited:
			return true
		default:
		}
		resp, err := hookstest.TryRequest("POST", p.URL+"/api/hooks/none", "")
		serves = err == nil && resp.Status == 404
		return serves
	})
	return p, serves
}

func (s *specimen) stop(t *testing.T, p *hookstest.Process) {
	t.Helper()
	p.Kill()
	p.Over = true
	s.w.drain(t)
}

func (s *specimen) wantNoStart(t *testing.T, name string, data []byte) {
	t.Helper()
	p, serves := s.boot(t, data)
	defer s.stop(t, p)
	if serves {
		t.Errorf("%s: Caddy starts", name)
		return
	}
	wantRefusal(t, p, name, s.path)
	s.wantUntouched(t, name, data)
}

// wantRefusal checks how Caddy exited.
func wantRefusal(t *testing.T, p *hookstest.Process, name, path string, words ...string) {
	t.Helper()
	if code := p.Cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("%s: exited with %d", name, code)
	}
	line, found := p.Log.Find(`"level":"error"`)
	for _, word := range append(words, "opening store "+path+": ") {
		if !found || !strings.Contains(line, word) {
			t.Errorf("%s: the error does not speak of %q: %s", name, word, line)
		}
	}
	for _, sign := range hookstest.SignsOfACrash {
		if line, found := p.Log.Find(sign); found {
			t.Errorf("%s: Caddy logged:\n%s", name, line)
		}
	}
}

func (s *specimen) wantUntouched(t *testing.T, name string, data []byte) {
	t.Helper()
	if !bytes.Equal(readFile(t, s.path), data) {
		t.Errorf("%s: the file was changed", name)
	}
	if files := hookstest.FilesIn(t, filepath.Dir(s.path)); len(files) != 2 {
		t.Errorf("%s: there are the files %v", name, files)
	}
}

// wantStart checks that Caddy starts with all runs.
func (s *specimen) wantStart(t *testing.T, name string, data []byte) {
	t.Helper()
	p, serves := s.boot(t, data)
	defer s.stop(t, p)
	if !serves {
		t.Errorf("%s: Caddy does not start: %s", name, p.Log.Last(2))
		return
	}
	s.wantRuns(t, name, p, false)
}

// wantEither checks that Caddy either does not start, or starts with all unfinished runs and does not deny the others.
func (s *specimen) wantEither(t *testing.T, name string, data []byte) {
	t.Helper()
	p, serves := s.boot(t, data)
	defer s.stop(t, p)
	if !serves {
		wantRefusal(t, p, name, s.path)
		s.wantUntouched(t, name, data)
		return
	}
	s.wantRuns(t, name, p, true)
}

// wantRuns checks that all unfinished runs are carried out, and that everything is answered: with an error only if there is
// damage to what is known about others.
func (s *specimen) wantRuns(t *testing.T, name string, p *hookstest.Process, damaged bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for _, req := range s.unfinished {
		for !s.w.carriedOut(req.text) && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
		if !s.w.carriedOut(req.text) {
			t.Errorf("%s: %s is not carried out", name, req.text)
			return
		}
	}
	for _, req := range append(s.ended, s.unfinished...) {
		resp := s.lookUp(t, p, req)
		mayFail := func() bool {
			return damaged && (resp.Status == 503 || resp.Status == 404 && slices.Contains(s.ended, req))
		}
		for !strings.HasPrefix(resp.Body, `{"status":"completed"`) && !mayFail() && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond) // the end is written down a little later
			resp = s.lookUp(t, p, req)
		}
		if mayFail() {
			resp.WantError(t, resp.Status)
		} else if !strings.HasPrefix(resp.Body, `{"status":"completed"`) {
			t.Errorf("%s: GET of %s is answered %d %s", name, req.text, resp.Status, resp.Body)
			return
		}
	}
	for _, key := range []string{"", "new"} {
		resp, err := s.l.post(http.DefaultClient, &request{text: "load-9-9", path: "agent", key: key})
		if damaged && key != "" && resp.Status == 503 {
			resp.WantError(t, 503)
		} else if err != nil || resp.Status != 202 {
			t.Errorf("%s: a request with the key %q is answered %d %s %v", name, key, resp.Status, resp.Body, err)
		}
	}
	if !damaged {
		p.WantNoCrash(t)
	}
}

func (s *specimen) lookUp(t *testing.T, p *hookstest.Process, req *request) hookstest.Response {
	t.Helper()
	s.w.mu.Lock()
	id := s.w.texts[req.text][0]
	s.w.mu.Unlock()
	resp, err := hookstest.TryRequest("GET", p.URL+"/api/hooks/runs/"+id, "", "Authorization", "Bearer "+hookstest.Token)
	if err != nil {
		resp.Body = err.Error()
	}
	return resp
}

// carriedOut reports whether a turn for a text was answered in this life.
func (w *witness) carriedOut(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, run := range w.texts[text] {
		for _, turn := range w.turns[run] {
			if turn.life == w.life && turn.ended > 0 {
				return true
			}
		}
	}
	return false
}

func noise(random *rand.Rand, length int) []byte {
	data := make([]byte, length)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// damage is a copy of data with something else at a place.
func damage(data []byte, at int, with []byte) []byte {
	data = bytes.Clone(data)
	copy(data[at:], with)
	return data
}

// dissect finds out how much of the file is in use, and what for.
func (s *specimen) dissect() {
	const page = 4096
	u16, u32, u64 := binary.LittleEndian.Uint16, binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	meta := s.file[16:]
	if other := s.file[page+16:]; u64(other[48:]) > u64(meta[48:]) { // that of the later transaction
		meta = other
	}
	root, free := int(u64(meta[16:])), u64(meta[32:])
	s.used, s.owners, s.keys = int(u64(meta[40:]))*page, make(map[int]string), make(map[string][]int)
	claim := func(id int, owner string) {
		for n := range int(u32(s.file[id*page+12:])) + 1 {
			s.owners[id+n] = owner
		}
	}
	var visit func(id int, owner string)
	visit = func(id int, owner string) {
		claim(id, owner)
		const header, branch, bucket = 16, 1, 1
		isBranch := u16(s.file[id*page+8:]) == branch
		for i := range int(u16(s.file[id*page+10:])) {
			at := id*page + header + 16*i
			element := s.file[at:]
			if isBranch {
				visit(int(u64(element[8:])), owner)
				continue
			}
			position, size := int(u32(element[4:])), int(u32(element[8:]))
			s.keys[owner] = append(s.keys[owner], at+position)
			if u32(element) == bucket {
				if child := int(u64(element[position+size:])); child != 0 {
					visit(child, string(element[position:][:size]))
				}
			}
		}
	}
	visit(root, "root")
	if free != 1<<64-1 {
		claim(int(free), "freelist")
	}
}

// isStopped reports whether no thread of a process is doing anything, be it in the kernel.
func isStopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err != nil || len(threads) == 0 {
		t.Fatalf("found no threads: %v", err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		_, state, ok := strings.Cut(string(stat), ") ")
		if err != nil || !ok || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// writeSparse writes a file that takes no room where there are zeros.
func writeSparse(t *testing.T, path string, data []byte) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const block = 4096
	zeros := make([]byte, block)
	for at := 0; at < len(data); at += block {
		piece := data[at:min(at+block, len(data))]
		if bytes.Equal(piece, zeros[:len(piece)]) {
			continue
		}
		if _, err := file.WriteAt(piece, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Truncate(int64(len(data))); err != nil {
		t.Fatal(err)
	}
}

func command(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// mount mounts a file system until unmount is called, or until the test ends.
func mount(t *testing.T, dir string, args ...string) (unmount func()) {
	t.Helper()
	realtest.Root(t)
	command(t, "mount", append(args, dir)...)
	mounted := true
	t.Cleanup(func() {
		if mounted {
			_ = exec.Command("umount", "-l", dir).Run()
		}
	})
	return func() {
		t.Helper()
		hookstest.Within(t, time.Minute, "the file system is let go", func() bool { return exec.Command("umount", dir).Run() == nil })
		mounted = false
	}
}
