package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

var (
	kills    = flag.Int("kills", 20, "how often Caddy is killed in a row")
	seedFlag = flag.Uint64("seed", 0, "where chance begins in tests that leave something to it; 0: somewhere new")
)

// newSeed makes and logs the seed of a test. With the same one the same requests are sent; the moments differ.
func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d", seed)
	return seed
}

func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWitness(t, seed)
	w.receiverFails = true
	d := hookstest.NewBinary(t).Deploy(t, onlyWarnings, w.directives(filepath.Join(t.TempDir(), "hooks.db"), ""))
	p := w.start(t, d)
	l := newLoad(w, d.URL)
	l.start(t, seed)

	early := 0
	for range *kills {
		if random.IntN(5) == 0 && w.lives() > 1 {
			early++ // perhaps before it serves
		} else {
			p.WaitUntilServing(t)
			enough := l.accepted() + 25
			hookstest.Within(t, time.Minute, "requests are accepted", func() bool { return l.accepted() > enough })
		}
		time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond)))) // any moment
		w.end(t, p, p.Kill)
		p = w.start(t, d)
	}
	w.settleDown()
	p.WaitUntilServing(t)
	l.finish(t)
	p.WantQuietLog(t)
	p.Terminate(t)
	p.WantCleanExit(t)

	c := w.check(t, l)
	t.Logf("%d kills, %d of them early: %s", *kills, early, c)
	if c.repeated == 0 || c.callbacks == 0 || c.replays == 0 || c.syncs == 0 || c.proved == 0 || c.accepted < 20*(*kills-early) {
		t.Error("that was not enough to tell")
	}
}

func TestTerminatedProcessLosesNothing(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWitness(t, seed)
	d := hookstest.NewBinary(t).Deploy(t, onlyWarnings, w.directives(filepath.Join(t.TempDir(), "hooks.db"), "drain_timeout 2s"))
	p := w.start(t, d)
	l := newLoad(w, d.URL)
	l.endsGently, l.mayRefuse = true, true
	l.start(t, seed)

	for round := range 6 {
		p.WaitUntilServing(t)
		enough := l.accepted() + 50 + random.IntN(100)
		hookstest.Within(t, time.Minute, "requests are accepted", func() bool { return l.accepted() > enough })
		// Beside the load: a run that is cut off, a caller that waits for one, and a caller that waits in the queue.
		chat := fmt.Sprintf("slow-%d", round)
		cut := l.add(&request{text: fmt.Sprintf("slow-%d-0", round), path: "agent", chat: chat})
		l.send(cut)
		held := l.add(&request{text: fmt.Sprintf("slow-%d-1", round), path: "agent", sync: true})
		queued := l.add(&request{text: fmt.Sprintf("slow-%d-2", round), path: "agent", chat: chat, sync: true, key: chat, once: true})
		var callers sync.WaitGroup
		callers.Go(func() { l.send(held) })
		callers.Go(func() { l.send(queued) })
		hookstest.Within(t, time.Minute, "the slow turns are under way", func() bool { return w.began(cut.text) && w.began(held.text) })
		hookstest.Within(t, time.Minute, "the caller waits in the queue", func() bool {
			// If this came first it would be held too, and the caller told to come back. It gives up then.
			resp, err := l.post(&http.Client{Timeout: time.Second}, queued)
			return err == nil && resp.Status == http.StatusConflict
		})

		w.end(t, p, func() {
			p.Terminate(t)
			p.WantCleanExit(t)
		})
		callers.Wait()
		for _, req := range []*request{held, queued} {
			if req.refused == 0 {
				t.Errorf("a caller who waited was not told to come back: %+v", *req)
			}
		}
		p = w.start(t, d)
	}
	p.WaitUntilServing(t)
	l.finish(t)
	p.WantQuietLog(t)
	p.Terminate(t)
	p.WantCleanExit(t)

	c := w.check(t, l)
	t.Log(c)
	if c.repeated < 6 || c.callbacks == 0 || c.replays == 0 || c.syncs == 0 || c.refused < 12 {
		t.Error("that was not enough to tell")
	}
}

// What goes to a channel survives a kill, and no secret gets into the log on the way, however much of it there is.
func TestChannelDeliveriesSurviveAKill(t *testing.T) {
	t.Parallel()
	port := hookstest.FreePort(t)
	d := hookstest.NewBinary(t).Deploy(t, "log {\n\tlevel DEBUG\n}", `
	hooks {
		enabled
		token `+hookstest.Token+`
		runner echo
		channel own webhook http://127.0.0.1:`+port+`/answers {
			token {env.ANSWERS_TOKEN}
			secret {env.ANSWERS_SECRET}
		}
	}`)
	d.Env = []string{"ANSWERS_TOKEN=a-secret-token", "ANSWERS_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	p := d.Start(t)
	resp, err := hookstest.TryRequest("POST", d.URL+"/api/hooks/agent", `{"message":"the answer","deliver":true,"channel":"own","to":"somebody"}`, "Authorization", "Bearer "+hookstest.Token)
	if err != nil || resp.Status != http.StatusAccepted {
		t.Fatalf("got %+v, %v", resp, err)
	}
	hookstest.Within(t, time.Minute, "it has been tried in vain", func() bool {
		_, found := p.Log.Find("will be tried again")
		return found
	})
	p.Kill()

	type message struct {
		authorization, id, body string
	}
	got := make(chan message, 10)
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- message{r.Header.Get("Authorization"), r.Header.Get("webhook-id"), string(body)}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	second := d.Start(t)
	select {
	case m := <-got:
		runID := resp.Field(t, "runId").(string)
		want := message{"Bearer a-secret-token", "msg_" + strings.ReplaceAll(runID, "-", "") + "_0", m.body}
		var body map[string]string
		if err := json.Unmarshal([]byte(m.body), &body); err != nil || m != want || body["text"] != "the answer" || body["to"] != "somebody" ||
			body["runId"] != runID || body["status"] != "completed" {
			t.Errorf("got %+v", m)
		}
	case <-time.After(time.Minute):
		t.Fatal("it did not arrive")
	}
	second.Terminate(t)
	second.WantCleanExit(t)
	for _, secret := range []string{"a-secret-token", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		for _, p := range []*hookstest.Process{p, second} {
			if strings.Contains(p.Log.All(), secret) {
				t.Errorf("the log has %s in it", secret)
			}
		}
	}
}
