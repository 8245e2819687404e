package integration

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

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
	d := hookstest.NewBinary(t).Deploy(t, onlyWarnings, w.directives(filepath.Join(t.TempDir(), "hooks.db"), "drain_timeout 300ms"))
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
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
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

// load is clients that send all kinds of requests, and what they were answered.
type load struct {
	w          *witness
	url        string
	mayRefuse  bool // callers may be told to come back later
	endsGently bool // Caddy is not killed: whoever it has taken a request from is answered, and what was answered is kept

	mu       sync.Mutex
	requests []*request
	byText   map[string]*request
	taken    int // requests answered 2xx
	replays  int

	clients sync.WaitGroup
	stop    chan struct{}
}

// request is what a client sends until it is answered. Times are those of the witness's clock.
type request struct {
	text, path, chat, key string
	sync, callback        bool
	once                  bool // not sent again after it was refused
	padding               int  // how long it is beyond what it has to be

	sent     int // for the first time
	answered int // 2xx
	dropped  int // how often the connection broke
	refused  int // how often it was told to come back
	runID    string
}

const loadClients = 8

func newLoad(w *witness, url string) *load {
	return &load{w: w, url: url, byText: make(map[string]*request), stop: make(chan struct{})}
}

// start lets clients begin. Most of the time there are a few hundred runs in the queue.
func (l *load) start(t *testing.T, seed uint64) {
	for n := range loadClients {
		random := rand.New(rand.NewPCG(seed, uint64(100+n)))
		l.clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
			defer client.CloseIdleConnections()
			for i := 0; l.mayGoOn(); i++ {
				l.sendWith(client, l.add(compose(random, fmt.Sprintf("load-%d-%d", n+1, i))))
				if random.IntN(10) == 0 {
					l.repeat(client, random)
				}
			}
		})
	}
	l.clients.Go(func() { l.lookUp(rand.New(rand.NewPCG(seed, 99))) })
	t.Cleanup(l.halt)
}

func (l *load) halt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
}

func (l *load) halted() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// mayGoOn waits while there is enough in the queue, and reports whether there is more to send.
func (l *load) mayGoOn() bool {
	for !l.halted() {
		l.w.mu.Lock()
		done := len(l.w.answered)
		l.w.mu.Unlock()
		if l.accepted() < done+300 {
			return true
		}
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

// accepted is how many requests were answered 2xx.
func (l *load) accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// compose makes up a request.
func compose(random *rand.Rand, text string) *request {
	req := &request{text: text, path: "agent"}
	switch random.IntN(8) {
	case 0, 1, 2:
		req.path = "wake"
	case 3, 4:
	case 5:
		req.callback = true
	case 6:
		req.sync = true
	case 7:
		req.sync, req.callback = true, true
	}
	if random.IntN(2) == 0 {
		req.chat = fmt.Sprintf("chat-%d", random.IntN(8))
	}
	if random.IntN(3) == 0 {
		req.key = "key-" + text
	}
	return req
}

func (l *load) add(req *request) *request {
	req.sent = l.w.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byText[req.text] != nil {
		l.w.fault("the test has two requests with the text %s", req.text)
	}
	l.requests = append(l.requests, req)
	l.byText[req.text] = req
	return req
}

func (l *load) post(client *http.Client, req *request) (hookstest.Response, error) {
	body := map[string]any{"message": "Please see to " + req.text + " now."}
	if req.path == "wake" {
		body = map[string]any{"text": "There was " + req.text + " today."}
	}
	if req.padding > 0 {
		body["metadata"] = map[string]any{"padding": strings.Repeat("x", req.padding)}
	}
	if req.chat != "" {
		body["chatId"] = req.chat
	}
	if req.sync {
		body["syncResponse"] = true
	}
	if req.callback {
		body["callbackUrl"] = l.w.URL + "/callback/" + req.text
	}
	data, err := json.Marshal(body)
	if err != nil {
		return hookstest.Response{}, err
	}
	r, err := http.NewRequest(http.MethodPost, l.url+"/api/hooks/"+req.path, strings.NewReader(string(data)))
	if err != nil {
		return hookstest.Response{}, err
	}
	r.GetBody = nil // what is sent again is ours to say
	r.Header.Set("Authorization", "Bearer "+hookstest.Token)
	if req.key != "" {
		r.Header.Set("Idempotency-Key", req.key)
	}
	resp, err := client.Do(r)
	if err != nil {
		return hookstest.Response{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return hookstest.Response{Status: resp.StatusCode, Header: resp.Header, Body: string(answer)}, err
}

func (l *load) send(req *request) { l.sendWith(http.DefaultClient, req) }

// sendWith sends a request. One that has a key is sent again until it is answered 2xx.
func (l *load) sendWith(client *http.Client, req *request) {
	for giveUp := time.Now().Add(2 * time.Minute); time.Now().Before(giveUp); {
		resp, err := l.post(client, req)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			if l.halted() {
				return // the test has failed
			}
		case err != nil:
			l.mu.Lock()
			req.dropped++
			l.mu.Unlock()
			if req.key == "" {
				return
			}
		case resp.Status < 300:
			l.noteAnswer(req, resp)
			return
		case !l.noteRefusal(req, resp):
			return
		}
		time.Sleep(5 * time.Millisecond) // for its next try
	}
	l.w.fault("%s is still not answered", req.text)
}

func (l *load) noteAnswer(req *request, resp hookstest.Response) {
	runID, ok := l.runOf(req, resp)
	if !ok {
		l.w.fault("%+v was answered %d %v %s", *req, resp.Status, resp.Header, resp.Body)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	req.answered, req.runID = l.w.now(), runID
	l.taken++
}

// runOf returns the id of the run in an answer, "" for wake. The answer must be the right one.
func (l *load) runOf(req *request, resp hookstest.Response) (id string, ok bool) {
	if req.sync {
		return resp.Header.Get("X-Service-Run-Id"), resp.Status == 200 && resp.Body == replyTo(req.text)
	}
	var body struct{ Status, RunID, ChatID string }
	err := json.Unmarshal([]byte(resp.Body), &body)
	wantStatus := http.StatusAccepted
	if req.path == "wake" {
		wantStatus = http.StatusOK
	}
	ok = err == nil && resp.Status == wantStatus && body.Status == "accepted" && (body.RunID == "") == (req.path == "wake") &&
		(req.chat == "" || body.ChatID == req.chat)
	return body.RunID, ok
}

// noteRefusal reports whether the client shall come back.
func (l *load) noteRefusal(req *request, resp hookstest.Response) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var body struct{ Status, ErrorMessage string }
	err := json.Unmarshal([]byte(resp.Body), &body)
	fine := err == nil && body.Status == "error" && body.ErrorMessage != "" && resp.Header.Get("Retry-After") != ""
	switch {
	case fine && resp.Status == http.StatusConflict && req.sync && (req.dropped+req.refused > 0 || req.once):
		return true // an earlier try is still under way
	case fine && resp.Status == http.StatusServiceUnavailable && l.mayRefuse:
		req.refused++
		return req.key != "" && !req.once
	}
	l.w.fault("%+v was answered %d %v %s", *req, resp.Status, resp.Header, resp.Body)
	return false
}

// repeat sends a request again that was answered before.
func (l *load) repeat(client *http.Client, random *rand.Rand) {
	l.mu.Lock()
	req := l.requests[random.IntN(len(l.requests))]
	known := req.key != "" && req.answered > 0
	l.mu.Unlock()
	if !known {
		return
	}
	resp, err := l.post(client, req)
	if err != nil || l.mayRefuse && resp.Header.Get("Retry-After") != "" {
		return
	}
	if id, ok := l.runOf(req, resp); !ok || id != req.runID || resp.Header.Get("Idempotent-Replayed") != "true" {
		l.w.fault("%+v was answered %d %v %s when it was sent again", *req, resp.Status, resp.Header, resp.Body)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replays++
}

// lookUp asks about runs, and notes those that have ended.
func (l *load) lookUp(random *rand.Rand) {
	for !l.halted() {
		time.Sleep(time.Millisecond) // not to be in the way of the others
		l.mu.Lock()
		recent := l.requests[max(0, len(l.requests)-500):]
		var id string
		if len(recent) > 0 {
			id = recent[random.IntN(len(recent))].runID
		}
		l.mu.Unlock()
		if id == "" {
			continue
		}
		if _, err := l.lookUpRun(id); err != nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// shownRun is a run as the API shows it.
type shownRun struct {
	Status, Reply, ErrorMessage, FinishedAt string
	Attempts                                int
	Deliveries                              []struct{ Status string }
}

// lookUpRun asks about a run that is known to exist. The error is that of a connection.
func (l *load) lookUpRun(id string) (run shownRun, err error) {
	resp, err := hookstest.TryRequest("GET", l.url+"/api/hooks/runs/"+id, "", "Authorization", "Bearer "+hookstest.Token)
	if err != nil || l.mayRefuse && resp.Status == http.StatusServiceUnavailable {
		return run, err
	}
	if err := json.Unmarshal([]byte(resp.Body), &run); err != nil || resp.Status != 200 {
		l.w.fault("GET of run %s was answered %d %s", id, resp.Status, resp.Body)
		return run, nil
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	before, known := l.w.proved[id]
	switch {
	case known && (run.FinishedAt != before.finishedAt || run.Attempts != before.attempts):
		l.w.faultLocked("run %s had ended, and now it is %s", id, resp.Body)
	case !known && run.FinishedAt != "":
		l.w.proved[id] = proof{l.w.life, l.w.tick(), run.FinishedAt, run.Attempts}
	}
	return run, nil
}

// finish lets the clients end, and waits until all that was accepted has been carried out. Caddy must be serving.
func (l *load) finish(t *testing.T) {
	t.Helper()
	l.halt()
	l.clients.Wait()
	deadline := time.Now().Add(2 * time.Minute)
	open := l.open()
	for ; open != "" && time.Now().Before(deadline); open = l.open() {
		time.Sleep(20 * time.Millisecond)
	}
	if open != "" {
		l.w.fault("did not end: %s", open)
		return
	}
	var lookers sync.WaitGroup
	runs := make(chan [2]string)
	for range loadClients {
		lookers.Go(func() {
			for run := range runs {
				l.wantEnded(run[0], l.byText[run[1]], deadline)
			}
		})
	}
	for text, ids := range l.w.allRuns(l) {
		for _, id := range ids {
			runs <- [2]string{id, text}
		}
	}
	close(runs)
	lookers.Wait()
	http.DefaultClient.CloseIdleConnections() // a server that stops waits for those that were never used
}

// wantEnded checks what the API says about a run in the end.
func (l *load) wantEnded(id string, req *request, deadline time.Time) {
	for {
		run, err := l.lookUpRun(id)
		switch {
		case err != nil:
			l.w.fault("GET of run %s: %v", id, err)
			return
		case run.Status == "completed" && run.Reply == replyTo(req.text):
		case run.Status == "failed" && req.sync && !req.callback && req.runID != id:
			return // its caller was gone
		case run.Status == "running" && time.Now().Before(deadline):
			time.Sleep(20 * time.Millisecond) // its end is tried to be stored every few seconds after a disk was full
			continue
		default:
			l.w.fault("run %s of %+v is %+v in the end", id, *req, run)
			return
		}
		delivered := len(run.Deliveries) == 1 && run.Deliveries[0].Status == "delivered"
		if delivered || !req.callback && len(run.Deliveries) == 0 {
			return
		}
		if time.Now().After(deadline) {
			l.w.fault("run %s of %+v has the deliveries %+v", id, *req, run.Deliveries)
			return
		}
		time.Sleep(5 * time.Millisecond) // that it was delivered is written down a little later
	}
}

// allRuns are the runs that the clients or the runner know of, by the texts of their requests.
func (w *witness) allRuns(l *load) map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[string][]string)
	for _, req := range l.requests {
		ids := slices.Clone(w.texts[req.text])
		if req.runID != "" && !slices.Contains(ids, req.runID) {
			ids = append(ids, req.runID)
		}
		slices.Sort(ids)
		all[req.text] = ids
	}
	return all
}

// open names something that is not done yet.
func (l *load) open() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for _, req := range l.requests {
		if req.answered > 0 && !l.w.answered[req.text] {
			return fmt.Sprintf("%+v", *req)
		}
		for _, run := range l.w.texts[req.text] {
			if req.sync && !req.callback {
				continue // not carried out again if it was cut off
			}
			turns := l.w.turns[run]
			if turns[len(turns)-1].ended == 0 {
				return fmt.Sprintf("run %s of %+v", run, *req)
			}
			if req.callback && !slices.ContainsFunc(l.w.callbacks[run], func(cb *seenCallback) bool { return cb.taken }) {
				return fmt.Sprintf("the callback of run %s of %+v", run, *req)
			}
		}
	}
	return ""
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
