//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// TestStoreThatIsDamagedWhileItIsOpen overwrites the file of a running process, as a bad disk does. From then on requests are
// refused and nobody waits, the process ends when it is told to, and the next one says what to do.
func TestStoreThatIsDamagedWhileItIsOpen(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	for name, damage := range map[string]func(t *testing.T, file *os.File, random *rand.Rand){
		"the meta pages are zeros": func(t *testing.T, file *os.File, _ *rand.Rand) { overwrite(t, file, 0, make([]byte, 2*4096)) },
		"all pages are zeros":      func(t *testing.T, file *os.File, _ *rand.Rand) { overwrite(t, file, 0, make([]byte, length(t, file))) },
		"all other pages are noise": func(t *testing.T, file *os.File, random *rand.Rand) {
			overwrite(t, file, 2*4096, noise(random, length(t, file)-2*4096))
		},
		"the file is cut short": func(t *testing.T, file *os.File, _ *rand.Rand) {
			if err := file.Truncate(2 * 4096); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breakStore(t, func(file *os.File) { damage(t, file, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func overwrite(t *testing.T, file *os.File, at int64, with []byte) {
	t.Helper()
	if _, err := file.WriteAt(with, at); err != nil {
		t.Fatal(err)
	}
}

func length(t *testing.T, file *os.File) int {
	t.Helper()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size())
}

// saidBroken is how the log speaks of a store that is broken.
const saidBroken = "the store is broken: nothing more is accepted"

func breakStore(t *testing.T, damage func(*os.File)) {
	rn, _, release := hookstest.HeldRunner(t)
	path := filepath.Join(t.TempDir(), "hooks.db")
	d := hookstest.NewBinary(t).Deploy(t, onlyWarnings, `hooks {
		enabled
		token `+hookstest.Token+`
		runner http `+rn.URL+`
		store bolt `+path+`
		workers 2
		drain_timeout 2s
	}`)
	p := d.Start(t)
	post := func(body string) hookstest.Response {
		resp, err := hookstest.TryRequest("POST", p.URL+"/api/hooks/agent", body, "Authorization", "Bearer "+hookstest.Token, "Content-Type", "application/json")
		if err != nil {
			t.Error(err)
		}
		return resp
	}
	first := post(`{"message":"before all","syncResponse":true}`)
	if first.Status != 200 {
		t.Fatalf("got %d %s", first.Status, first.Body)
	}
	rn.Next()
	held, queued := make(chan hookstest.Response, 1), make(chan hookstest.Response, 1)
	go func() { held <- post(`{"message":"hold","chatId":"held","syncResponse":true}`) }()
	rn.Next()
	post(`{"message":"hold","chatId":"in the background"}`)
	rn.Next()
	for i := range 20 {
		if resp := post(fmt.Sprintf(`{"message":"%d","chatId":"queue %d"}`, i, i)); resp.Status != 202 {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
	}
	go func() { queued <- post(`{"message":"later","chatId":"held","syncResponse":true}`) }()
	// A run is listed when its commit has written a meta page, which would mend the damage. Little is written after that.
	hookstest.Eventually(t, "all runs are in the file", func() bool {
		resp, err := hookstest.TryRequest("GET", p.Admin+"/hooks/runs?chatId=held&status=queued", "")
		return err == nil && strings.Contains(resp.Body, `"chatId":"held"`)
	})

	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	damage(file)
	hookstest.Eventually(t, "a request is refused", func() bool {
		if post(`{"message":"after that"}`).Status == 503 {
			return true
		}
		damage(file) // a commit that was under way, of leases for example, has mended it
		return false
	})
	before := readFile(t, path)
	hookstest.ReceiveWithin(t, "the caller whose run is queued is answered", queued).WantError(t, 503)
	began := time.Now()
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			for range 10 {
				post(`{"message":"again"}`).WantError(t, 503)
				post(`{"message":"again","syncResponse":true}`).WantError(t, 503)
				resp, err := hookstest.TryRequest("GET", p.URL+"/api/hooks/runs/"+first.Header.Get("X-Service-Run-Id"), "", "Authorization", "Bearer "+hookstest.Token)
				if err != nil {
					t.Error(err)
				}
				resp.WantError(t, 503)
			}
		})
	}
	callers.Wait()
	t.Logf("600 requests were refused in %s", time.Since(began))
	close(release)
	if resp := hookstest.ReceiveWithin(t, "the caller whose run is under way is answered", held); resp.Status != 200 || resp.Body != "hold" {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	p.Terminate(t)
	p.WantCleanExit(t)
	if !bytes.Equal(before, readFile(t, path)) {
		t.Error("something was written to the file after the damage was known")
	}
	if n := strings.Count(p.Log.All(), saidBroken); n != 1 {
		t.Errorf("that the store is broken was logged %d times", n)
	}
	if n := strings.Count(p.Log.All(), `"level":"error"`); n > 4 { // and of the runs under way that they are not stored
		t.Errorf("%d errors were logged:\n%s", n, p.Log.Last(20))
	}
	p.Over = true

	again := d.Launch(t)
	hookstest.ReceiveWithin(t, "Caddy exits", again.Exited)
	wantRefusal(t, again, "the next start", path, "nothing in it was changed", "backup")
	if !bytes.Equal(before, readFile(t, path)) {
		t.Error("the next start has changed the file")
	}
}
