package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

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
