package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// witness is all that Caddy talks to. It carries out turns, receives callbacks, and puts down in which order things
// happened.
type witness struct {
	*httptest.Server
	connections   atomic.Int64
	receiverFails bool
	mayLogErrors  bool

	mu            sync.Mutex
	random        *rand.Rand
	hurries       bool
	receiverIsOff bool
	letGo         chan struct{} // closed when slow turns may end
	clock         int           // counts what happened
	life          int           // which process is the current one, counted from 1
	turns         map[string][]*seenTurn
	texts         map[string][]string // the runs with a text
	answered      map[string]bool     // texts that a turn was answered for
	callbacks     map[string][]*seenCallback
	proved        map[string]proof
	faults        []string
}

// seenTurn is a turn as the runner sees it. Times are those of the witness's clock.
type seenTurn struct {
	run, chat, text string
	life            int
	began           int
	ended           int // just before it was answered; 0 if it was cut off
}

type seenCallback struct {
	run, text, id string
	life, at      int
	taken         bool // answered 204
}

// proof is what the API said about a run that has ended.
type proof struct {
	life, at   int
	finishedAt string
	attempts   int
}

func newWitness(t *testing.T, seed uint64) *witness {
	w := &witness{
		random:    rand.New(rand.NewPCG(seed, 1)),
		letGo:     make(chan struct{}),
		turns:     make(map[string][]*seenTurn),
		texts:     make(map[string][]string),
		answered:  make(map[string]bool),
		callbacks: make(map[string][]*seenCallback),
		proved:    make(map[string]proof),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /turn", w.carryOut)
	mux.HandleFunc("POST /callback/{text}", w.receive)
	mux.HandleFunc("GET /fence", func(http.ResponseWriter, *http.Request) {})
	w.Server = httptest.NewUnstartedServer(mux)
	w.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			w.connections.Add(1)
		case http.StateClosed, http.StateHijacked:
			w.connections.Add(-1)
		}
	}
	w.Start()
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
	})
	return w
}

// onlyWarnings is a global option that leaves out what is logged about every run.
const onlyWarnings = "log {\nlevel WARN\n}"

// directives configure hooks to work with the witness.
func (w *witness) directives(store, more string) string {
	return `hooks {
		enabled
		token ` + hookstest.Token + `
		runner http ` + w.URL + `/turn
		store bolt ` + store + `
		max_attempts 1000
		callbacks {
			secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
			allow 127.0.0.0/8
			ports *
		}
		` + more + `
	}`
}

// start begins a life of Caddy.
func (w *witness) start(t *testing.T, d *hookstest.Deployment) *hookstest.Process {
	t.Helper()
	w.mu.Lock()
	w.life++
	w.mu.Unlock()
	return d.Launch(t)
}

func (w *witness) lives() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.life
}

// end ends a life of Caddy. When it returns, all that the process sent has been seen.
func (w *witness) end(t *testing.T, p *hookstest.Process, end func()) {
	t.Helper()
	end()
	if w.mayLogErrors {
		p.WantNoCrash(t)
	} else {
		p.WantQuietLog(t)
	}
	p.Over = true
	w.drain(t)
}

// drain waits until all that a process which is gone has sent has been seen.
func (w *witness) drain(t *testing.T) {
	t.Helper()
	// Connections are accepted in turn, so after this one all others have been counted.
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(w.URL + "/fence")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	hookstest.Within(t, time.Minute, "the connections of a process that is gone end", func() bool { return w.connections.Load() == 0 })
}

// settleDown ends the time in which the receiver fails now and then.
func (w *witness) settleDown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.receiverFails = false
}

// release lets the slow turns that are under way end.
func (w *witness) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.letGo)
	w.letGo = make(chan struct{})
}

// hurry lets turns take no time from now on.
func (w *witness) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hurries = true
}

// tick is the time of an event, under the lock.
func (w *witness) tick() int {
	w.clock++
	return w.clock
}

func (w *witness) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tick()
}

// fault puts down something that must not happen.
func (w *witness) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faultLocked(format, args...)
}

func (w *witness) faultLocked(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf("life %d: ", w.life)+fmt.Sprintf(format, args...))
}

// requestText finds the text of a request in what becomes of it.
var requestText = regexp.MustCompile(`\b(load|slow)-[0-9]+-[0-9]+\b`)

// replyTo is how a turn is answered. It takes much room if the turn was slow.
func replyTo(text string) string {
	reply := "This is about " + text + "."
	if strings.HasPrefix(text, "slow") {
		reply += strings.Repeat(" It took long.", 5_000)
	}
	return reply
}

func (w *witness) carryOut(rw http.ResponseWriter, r *http.Request) {
	var body struct{ RunID, ChatID, Message string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return // the process was killed while it wrote
	}
	_, _ = io.Copy(io.Discard, r.Body) // so that we notice when it goes away
	text := requestText.FindString(body.Message)
	w.mu.Lock()
	turn := &seenTurn{run: body.RunID, chat: body.ChatID, text: text, life: w.life, began: w.tick()}
	w.turns[turn.run] = append(w.turns[turn.run], turn)
	if !slices.Contains(w.texts[text], turn.run) {
		w.texts[text] = append(w.texts[text], turn.run)
	}
	takes := time.Duration(w.random.Int64N(int64(30 * time.Millisecond)))
	if w.hurries {
		takes = 0
	}
	var letGo chan struct{}
	if strings.HasPrefix(text, "slow") && len(w.turns[turn.run]) == 1 {
		takes = time.Hour // until it is cut off or let go
		letGo = w.letGo
	}
	w.mu.Unlock()
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-letGo:
	case <-r.Context().Done():
		return
	}
	w.mu.Lock()
	turn.ended = w.tick()
	w.answered[text] = true
	w.mu.Unlock()
	_, _ = io.WriteString(rw, replyTo(text))
}

func (w *witness) receive(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	cb := &seenCallback{run: r.Header.Get("X-Service-Run-Id"), text: r.PathValue("text"), id: r.Header.Get("Webhook-Id"), life: w.life, at: w.tick()}
	if string(body) != replyTo(cb.text) || r.Header.Get("X-Service-Run-Status") != "completed" || cb.id == "" {
		w.faultLocked("the callback for %s has the headers %v and the body %q", cb.text, r.Header, body)
	}
	cb.taken = !w.receiverIsOff && (!w.receiverFails || w.random.IntN(50) > 0)
	w.callbacks[cb.run] = append(w.callbacks[cb.run], cb)
	if cb.taken {
		rw.WriteHeader(http.StatusNoContent)
	} else {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
}

// began reports whether there was a turn for a text.
func (w *witness) began(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.texts[text]) > 0
}

// counts is how much there was to look at.
type counts struct {
	requests, accepted, dropped, refused, runs, syncs, repeated, callbacks, repeatedCallbacks, replays, proved int
}

func (c counts) String() string {
	return fmt.Sprintf("%d requests, %d accepted (%d of callers who waited), %d dropped, %d refused, %d replayed; %d runs, %d repeated, %d seen to have ended; %d callbacks, %d repeated",
		c.requests, c.accepted, c.syncs, c.dropped, c.refused, c.replays, c.runs, c.repeated, c.proved, c.callbacks, c.repeatedCallbacks)
}

// check goes over all that was seen, after finish. Ids of runs can be compared: they are in order of acceptance.
func (w *witness) check(t *testing.T, l *load) counts {
	t.Helper()
	runs := w.allRuns(l)
	w.mu.Lock()
	defer w.mu.Unlock()
	c := counts{requests: len(l.requests), accepted: l.taken, replays: l.replays, runs: len(w.turns), proved: len(w.proved)}
	for _, req := range l.requests {
		c.dropped += req.dropped
		c.refused += req.refused
		if req.answered > 0 && req.sync {
			c.syncs++
		}
		w.checkRequest(l, req, runs[req.text])
	}
	w.checkAcceptance(l.requests, runs)
	w.checkRepeats(l, &c)
	w.checkOrder(l)
	w.checkCallbacks(l, &c)
	for text := range w.texts {
		if l.byText[text] == nil {
			w.faultLocked("the runner was told of %q, which nobody sent", text)
		}
	}
	for i, fault := range w.faults {
		if i == 20 {
			t.Errorf("and %d more", len(w.faults)-i)
			break
		}
		t.Error(fault)
	}
	return c
}

// checkRequest checks that a request became one run, if any.
func (w *witness) checkRequest(l *load, req *request, runs []string) {
	if req.answered > 0 && len(runs) == 0 {
		w.faultLocked("%+v was accepted and never carried out", *req)
	}
	if req.runID != "" && len(w.turns[req.runID]) == 0 {
		w.faultLocked("%+v was accepted and not carried out as this run", *req)
	}
	if l.endsGently && req.key == "" && req.dropped > 0 && len(runs) > 0 {
		w.faultLocked("%+v was accepted, and its caller not told", *req)
	}
	if len(runs) < 2 {
		return
	}
	// A caller who waited, lost the connection and came back with the same key begins anew. Once it was answered it does not.
	if req.key == "" || !req.sync || req.callback {
		w.faultLocked("%+v became the runs %v", *req, runs)
	}
	if req.answered > 0 && runs[len(runs)-1] != req.runID {
		w.faultLocked("%+v became the run %s after it was answered", *req, runs[len(runs)-1])
	}
	for i := range runs[1:] {
		before, after := w.turns[runs[i]], w.turns[runs[i+1]]
		if len(before) > 0 && len(after) > 0 && before[len(before)-1].life >= after[0].life {
			w.faultLocked("%+v became the runs %v in one life", *req, runs)
		}
	}
}

// checkAcceptance checks that a run comes after all that had been accepted when it was sent.
func (w *witness) checkAcceptance(requests []*request, runs map[string][]string) {
	type event struct {
		at    int
		first string // the lowest id that a request that is sent now may have got
		last  string // the id that is accepted now
		req   *request
	}
	var events []event
	for _, req := range requests {
		if ids := runs[req.text]; len(ids) > 0 {
			events = append(events, event{at: req.sent, first: ids[0], req: req})
			if req.answered > 0 {
				events = append(events, event{at: req.answered, last: ids[len(ids)-1], req: req})
			}
		}
	}
	slices.SortFunc(events, func(a, b event) int { return a.at - b.at })
	latest := event{}
	for _, e := range events {
		if e.first != "" && e.first <= latest.last {
			w.faultLocked("%+v became run %s although %+v, sent later, became run %s", *latest.req, latest.last, *e.req, e.first)
		}
		if e.last > latest.last {
			latest = e
		}
	}
}

// checkRepeats checks that runs were started again only if they were running when a life ended.
func (w *witness) checkRepeats(l *load, c *counts) {
	cutOff := make(map[int]int) // runs that were started again, by the life that they were cut off in
	for id, turns := range w.turns {
		req := l.byText[turns[0].text]
		if len(turns) > 1 {
			c.repeated++
		}
		for i, turn := range turns[1:] {
			before := turns[i]
			cutOff[before.life]++
			if turn.life <= before.life {
				w.faultLocked("run %s was started twice in life %d", id, turn.life)
			}
			if l.endsGently && before.ended > 0 {
				w.faultLocked("run %s was answered in life %d, and started again in life %d", id, before.life, turn.life)
			}
			if req != nil && req.sync && !req.callback {
				w.faultLocked("run %s was started again without its caller", id)
			}
		}
		last := turns[len(turns)-1]
		if proof, known := w.proved[id]; known && last.life > proof.life {
			w.faultLocked("run %s had ended in life %d, and was started in life %d", id, proof.life, last.life)
		}
		for _, cb := range w.callbacks[id] {
			if last.life > cb.life {
				w.faultLocked("run %s sent its callback in life %d, and was started in life %d", id, cb.life, last.life)
			}
		}
	}
	for life, n := range cutOff {
		if n > workers {
			w.faultLocked("%d runs were started again that had been started in life %d, which had %d workers", n, life, workers)
		}
	}
}

const workers = 16 // the default

// checkOrder checks that the runs of a chat were carried out one after the other.
func (w *witness) checkOrder(l *load) {
	chats := make(map[string][]*seenTurn)
	for _, turns := range w.turns {
		for _, turn := range turns {
			chats[turn.chat] = append(chats[turn.chat], turn)
		}
	}
	for chat, turns := range chats {
		slices.SortFunc(turns, func(a, b *seenTurn) int { return a.began - b.began })
		for i, turn := range turns[1:] {
			before := turns[i]
			if turn.run < before.run {
				w.faultLocked("chat %s: run %s was started after run %s", chat, turn.run, before.run)
			}
			if turn.run == before.run || before.ended > 0 && before.ended < turn.began {
				continue
			}
			if req := l.byText[before.text]; req == nil || !req.sync || req.callback || turn.life == before.life && req.answered+req.refused > 0 {
				w.faultLocked("chat %s: run %s was started before run %s had ended", chat, turn.run, before.run)
			}
		}
	}
}

// checkCallbacks checks that callbacks tell of the right run, and were repeated only if they could not be taken or a life
// ended.
func (w *witness) checkCallbacks(l *load, c *counts) {
	for id, callbacks := range w.callbacks {
		c.callbacks++
		if len(callbacks) > 1 {
			c.repeatedCallbacks++
		}
		for i, cb := range callbacks {
			if req := l.byText[cb.text]; req == nil || !req.callback || !slices.Contains(w.texts[cb.text], id) {
				w.faultLocked("a callback for %s tells of run %s", cb.text, id)
			}
			if cb.id != callbacks[0].id {
				w.faultLocked("the callback of run %s has the ids %s and %s", id, callbacks[0].id, cb.id)
			}
			if i > 0 && callbacks[i-1].taken && callbacks[i-1].life == cb.life {
				w.faultLocked("the callback of run %s was taken, and repeated in life %d", id, cb.life)
			}
		}
	}
}
