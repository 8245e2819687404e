package integration

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

var (
	callbackRuns  = flag.Int("callback-runs", 5_000, "how many runs have a callback while Caddy is killed")
	callbackKills = flag.Int("callback-kills", 10, "how often Caddy is killed while callbacks are under way")
)

func TestKilledProcessLosesNoCallback(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	rs := newUnrulyReceivers(t, seed, *callbackRuns)
	d := hookstest.NewBinary(t).Deploy(t, onlyWarnings, rs.directives(filepath.Join(t.TempDir(), "hooks.db")))
	p := rs.start(t, d)
	rs.startCallers(t, d.URL)

	early := 0
	for kill := range *callbackKills {
		if kill > 0 && random.IntN(5) == 0 {
			early++ // perhaps before it serves, or has sent anything
		} else {
			// The last kill is to hit callbacks that have failed twice.
			enough := *callbackRuns * 98 / 100 * (kill + 1) / *callbackKills
			hookstest.Within(t, 3*time.Minute, fmt.Sprintf("%d callbacks are acknowledged", enough), func() bool { return rs.acknowledged() >= enough })
		}
		time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond)))) // any moment
		rs.end(t, p, p.Kill)
		p = rs.start(t, d)
	}
	p.WaitUntilServing(t)
	rs.waitForAll(t)
	rs.wantAllDelivered(t, d)

	// One more life has nothing to do but for one more callback to every host.
	rs.end(t, p, func() { p.Terminate(t); p.WantCleanExit(t) })
	c := rs.check(t)
	rs.nothingIsLeft()
	p = rs.start(t, d)
	p.WaitUntilServing(t)
	for _, host := range rs.hosts {
		body := hookstest.AsJSON(t, map[string]string{"message": "the last one", "callbackUrl": host.url + "/last"})
		resp, err := hookstest.TryRequest("POST", d.URL+"/api/hooks/agent", body, "Authorization", "Bearer "+hookstest.Token)
		if err != nil || resp.Status != http.StatusAccepted {
			t.Fatalf("got %d %s, %v", resp.Status, resp.Body, err)
		}
		hookstest.ReceiveWithin(t, "the last callback to a host comes", host.last)
	}
	http.DefaultClient.CloseIdleConnections() // a server that stops waits for those that were never used
	rs.end(t, p, func() { p.Terminate(t); p.WantCleanExit(t) })
	rs.reportFaults(t)

	t.Logf("%d kills, %d of them early: %s", *callbackKills, early, c)
	if len(c.behaviours) < len(behaviours) || c.unsettled < *callbackKills || c.proved < *callbackRuns/10 || c.said == 0 || c.highest < 3 {
		t.Error("that was not enough to tell")
	}
}

// unrulyReceivers are hosts that callbacks are sent to and that treat them badly, and callers that ask for them. They put
// down all that they see.
type unrulyReceivers struct {
	seed   uint64
	hosts  []*unrulyHost
	secret string
	verify *standardwebhooks.Webhook

	callers sync.WaitGroup
	stop    chan struct{}
	rough   atomic.Bool // new connections may be reset before anything was read

	mu       sync.Mutex
	life     int // which process is the current one, counted from 1
	ends     map[int]time.Time
	runs     []*calledBack
	accepted int // runs that the caller was told the id of
	tried    int // runs that an attempt was seen for
	arrived  int // runs that were acknowledged
	proved   int // runs that were said to be delivered while others were not
	unread   int // connections that were reset before anything was read
	cutOff   int // attempts whose body broke off
	idle     bool
	said     map[saidAttempt]saidFailure // what Caddy logged
	faults   []string
}

// calledBack is a run that has a callback.
type calledBack struct {
	number        int
	host          *unrulyHost
	uri           string // of the callback, on the host
	message, chat string

	runID, chatID string // as the caller was told
	attempts      []*callbackAttempt
	proved        bool // the API has said that it is delivered
}

// callbackAttempt is an attempt as the receiver sees it.
type callbackAttempt struct {
	header    http.Header
	number    int
	life      int
	began     time.Time
	behaviour *behaviour
	answering time.Time // just before a 2xx was sent
	answered  bool      // the 2xx was sent
}

func (a *callbackAttempt) id() string { return a.header.Get("Webhook-Id") }

type saidAttempt struct {
	id     string
	number int
}

type saidFailure struct {
	life int
	at   time.Time
	why  string
}

// unrulyHost is one host that receives callbacks.
type unrulyHost struct {
	url         string
	listener    net.Listener
	connections atomic.Int64
	last        chan struct{}
}

func newUnrulyReceivers(t *testing.T, seed uint64, runs int) *unrulyReceivers {
	rs := &unrulyReceivers{
		seed:   seed,
		secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		stop:   make(chan struct{}),
		ends:   make(map[int]time.Time),
		said:   make(map[saidAttempt]saidFailure),
	}
	var err error
	if rs.verify, err = standardwebhooks.NewWebhook(rs.secret); err != nil {
		t.Fatal(err)
	}
	rs.rough.Store(true)
	for _, address := range []string{"127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		rs.startHost(t, address)
	}
	for n := range runs {
		rs.runs = append(rs.runs, rs.composeRun(n))
	}
	return rs
}

func (rs *unrulyReceivers) startHost(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	host := &unrulyHost{url: "http://" + listener.Addr().String(), last: make(chan struct{}, 1)}
	random := rand.New(rand.NewPCG(rs.seed, uint64(1)<<32|uint64(len(rs.hosts))))
	host.listener = &resettingListener{listener, func() bool {
		reset := rs.rough.Load() && random.IntN(10) == 0
		if reset {
			rs.mu.Lock()
			rs.unread++
			rs.mu.Unlock()
		}
		return reset
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /callback/{number}", func(w http.ResponseWriter, r *http.Request) { rs.receive(host, w, r) })
	mux.HandleFunc("POST /last", func(http.ResponseWriter, *http.Request) { host.last <- struct{}{} })
	mux.HandleFunc("GET /fence", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { rs.fault("there was a %s of %s", r.Method, r.URL) })
	server := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0), ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			host.connections.Add(1)
		case http.StateClosed, http.StateHijacked:
			host.connections.Add(-1)
		}
	}}
	go func() { _ = server.Serve(host.listener) }()
	t.Cleanup(func() { server.Close() })
	rs.hosts = append(rs.hosts, host)
}

// resettingListener resets some of the connections that it accepts.
type resettingListener struct {
	net.Listener
	resets func() bool
}

func (l *resettingListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || !l.resets() {
			return conn, err
		}
		reset(conn)
	}
}

// reset closes a connection in a way that the other side takes for a failure.
func reset(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// composeRun makes up a run. It depends on the seed and its number alone.
func (rs *unrulyReceivers) composeRun(n int) *calledBack {
	random := rand.New(rand.NewPCG(rs.seed, uint64(2)<<32|uint64(n)))
	run := &calledBack{number: n, host: rs.hosts[random.IntN(len(rs.hosts))], uri: fmt.Sprintf("/callback/%d", n)}
	words := []string{"plain", "Grüße", "日本語", "😀👩‍👩‍👧", `"quoted" \n`, "<b>&amp;</b>", "%41", "\r\n", "\t", "\u2028", "\x00", "[INST]", "{json.path}", "whsec_"}
	length := 1 + random.IntN(40)
	if random.IntN(100) == 0 {
		length = 20_000
	}
	message := []string{fmt.Sprintf("run %d:", n)}
	for range length {
		message = append(message, words[random.IntN(len(words))])
	}
	run.message = strings.Join(message, " ")
	switch random.IntN(4) {
	case 0:
		run.chat = fmt.Sprintf("chat-%d", random.IntN(50))
	case 1:
		run.chat = fmt.Sprintf("Gruppe %d%% ☎", n)
	}
	if random.IntN(2) == 0 {
		run.uri += fmt.Sprintf("?of=%d&x=a%%20b%%2F+%%C3%%BC&x=", n)
	}
	return run
}

// directives configure hooks to send callbacks to the hosts.
func (rs *unrulyReceivers) directives(store string) string {
	return `hooks {
		enabled
		token ` + hookstest.Token + `
		runner echo
		store bolt ` + store + `
		max_attempts 1000
		callbacks {
			secret ` + rs.secret + `
			allow 127.0.0.0/8
			ports *
			timeout 1s
		}
	}`
}

// start begins a life of Caddy.
func (rs *unrulyReceivers) start(t *testing.T, d *hookstest.Deployment) *hookstest.Process {
	t.Helper()
	rs.mu.Lock()
	rs.life++
	rs.mu.Unlock()
	return d.Launch(t)
}

// end ends a life of Caddy. When it returns, all that the process sent has been seen, and what it logged been read.
func (rs *unrulyReceivers) end(t *testing.T, p *hookstest.Process, end func()) {
	t.Helper()
	rs.mu.Lock()
	rs.ends[rs.life] = time.Now()
	rs.mu.Unlock()
	end()
	p.WantQuietLog(t)
	for _, secret := range []string{rs.secret, hookstest.Token} {
		if line, found := p.Log.Find(secret); found {
			t.Errorf("a secret is logged: %s", line)
		}
	}
	p.Over = true
	for _, host := range rs.hosts {
		host.drain(t)
	}
	rs.readLog(p.Log.All())
}

// drain waits until all that a process which is gone has sent has been seen.
func (h *unrulyHost) drain(t *testing.T) {
	t.Helper()
	// Connections are accepted in turn, so after this one all others have been counted.
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	hookstest.Within(t, time.Minute, "a host answers", func() bool {
		resp, err := client.Get(h.url + "/fence")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	hookstest.Within(t, time.Minute, "the connections of a process that is gone end", func() bool { return h.connections.Load() == 0 })
}

// readLog notes which attempts Caddy says have failed. That is said before it is written down.
func (rs *unrulyReceivers) readLog(text string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for line := range strings.Lines(text) {
		var entry struct {
			Time    float64 `json:"ts"` // in seconds
			ID      string  `json:"delivery_id"`
			Attempt int     `json:"attempt"`
			Error   string  `json:"error"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.ID != "" && entry.Error != "" {
			rs.said[saidAttempt{entry.ID, entry.Attempt}] = saidFailure{rs.life, time.UnixMicro(int64(entry.Time * 1e6)), entry.Error}
		}
	}
}

// fault puts down something that must not happen.
func (rs *unrulyReceivers) fault(format string, args ...any) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.faultLocked(format, args...)
}

func (rs *unrulyReceivers) faultLocked(format string, args ...any) {
	rs.faults = append(rs.faults, fmt.Sprintf("life %d: ", rs.life)+fmt.Sprintf(format, args...))
}

func (rs *unrulyReceivers) reportFaults(t *testing.T) {
	t.Helper()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i, fault := range rs.faults {
		if i == 20 {
			t.Errorf("and %d more", len(rs.faults)-i)
			break
		}
		t.Error(fault)
	}
	rs.faults = nil
}

// acknowledged is how many callbacks have been acknowledged.
func (rs *unrulyReceivers) acknowledged() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.arrived
}

// nothingIsLeft says that no callback is to come any more.
func (rs *unrulyReceivers) nothingIsLeft() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.idle = true
}

// receive takes an attempt, and does to it whatever chance says.
func (rs *unrulyReceivers) receive(host *unrulyHost, w http.ResponseWriter, r *http.Request) {
	run, attempt := rs.begin(host, r)
	if attempt == nil {
		return
	}
	if attempt.behaviour.reads {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			rs.mu.Lock()
			rs.cutOff++
			rs.mu.Unlock()
			return
		}
		rs.checkRequest(run, r, body)
	}
	taken := func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		attempt.answered = true
	}
	if attempt.behaviour.acknowledges {
		rs.mu.Lock()
		attempt.answering = time.Now()
		if !slices.ContainsFunc(run.attempts, func(a *callbackAttempt) bool { return a != attempt && !a.answering.IsZero() }) {
			rs.arrived++
		}
		rs.mu.Unlock()
	}
	attempt.behaviour.act(w, r, taken)
}

// begin notes that there is an attempt.
func (rs *unrulyReceivers) begin(host *unrulyHost, r *http.Request) (*calledBack, *callbackAttempt) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	n, err := strconv.Atoi(r.PathValue("number"))
	if err != nil || n < 0 || n >= len(rs.runs) || rs.runs[n].host != host || rs.runs[n].uri != r.RequestURI {
		rs.faultLocked("there is a callback to %s%s, which nobody asked for", host.url, r.RequestURI)
		return nil, nil
	}
	run := rs.runs[n]
	number, err := strconv.Atoi(r.Header.Get("X-Service-Attempt"))
	if err != nil || number < 1 {
		rs.faultLocked("a callback has the headers %v", r.Header)
		return nil, nil
	}
	if rs.idle {
		rs.faultLocked("attempt %d at the callback of run %d was left", number, n)
	}
	if run.proved {
		rs.faultLocked("the callback of run %d was said to be delivered, and there is attempt %d now", n, number)
	}
	if number >= 3 {
		rs.rough.Store(false) // no more failures that chance does not choose by attempt
	}
	if len(run.attempts) == 0 {
		rs.tried++
	}
	random := rand.New(rand.NewPCG(rs.seed, uint64(3+len(run.attempts))<<32|uint64(n)))
	attempt := &callbackAttempt{header: r.Header.Clone(), number: number, life: rs.life, began: time.Now(), behaviour: chooseBehaviour(random, number)}
	run.attempts = append(run.attempts, attempt)
	return run, attempt
}

// checkRequest checks an attempt that has been received whole, as far as can be told by itself.
func (rs *unrulyReceivers) checkRequest(run *calledBack, r *http.Request, body []byte) {
	if string(body) != run.message || r.ContentLength != int64(len(body)) {
		rs.fault("the callback of run %d has the body %.200q of length %d, want %.200q", run.number, body, r.ContentLength, run.message)
	}
	if got := "http://" + r.Host; got != run.host.url {
		rs.fault("the callback of run %d is for %s, want %s", run.number, got, run.host.url)
	}
	for name, want := range map[string]string{"Content-Type": "text/plain; charset=utf-8", "X-Service-Run-Status": "completed"} {
		if got := r.Header.Values(name); len(got) != 1 || got[0] != want {
			rs.fault("the callback of run %d has the %s %q", run.number, name, got)
		}
	}
	if signatures := strings.Fields(r.Header.Get("Webhook-Signature")); len(signatures) != 1 {
		rs.fault("the callback of run %d has the signatures %q", run.number, signatures)
	}
	if err := rs.verify.Verify(body, r.Header); err != nil {
		rs.fault("the signature of the callback of run %d does not verify: %v", run.number, err)
	}
}

// behaviour is what a receiver does to an attempt.
type behaviour struct {
	name         string
	reads        bool // the body
	acknowledges bool // with a 2xx, whatever comes after it
	lingers      bool // goes on with the answer for long
	// How long the receiver asks to be left alone.
	retryAfter time.Duration
	// act answers, and says so when a 2xx has been sent.
	act func(w http.ResponseWriter, r *http.Request, taken func())
}

var behaviours = []*behaviour{
	{name: "204", reads: true, acknowledges: true, act: func(w http.ResponseWriter, _ *http.Request, taken func()) {
		sendHead(w, http.StatusNoContent, taken)
	}},
	{name: "200 and a body that never ends", reads: true, acknowledges: true, act: func(w http.ResponseWriter, _ *http.Request, taken func()) {
		sendHead(w, http.StatusOK, taken)
		for _, err := io.WriteString(w, strings.Repeat("more ", 200)); err == nil; {
			_, err = io.WriteString(w, strings.Repeat("and more ", 200))
		}
	}},
	{name: "200 and a slow body", reads: true, acknowledges: true, lingers: true, act: func(w http.ResponseWriter, r *http.Request, taken func()) {
		sendHead(w, http.StatusOK, taken)
		drip(r, w)
	}},
	{name: "201 and half a body", reads: true, acknowledges: true, act: func(w http.ResponseWriter, _ *http.Request, taken func()) {
		w.Header().Set("Content-Length", "1000")
		sendHead(w, http.StatusCreated, taken)
		_, _ = io.WriteString(w, "half of it")
		panic(http.ErrAbortHandler)
	}},
	{name: "reset before the body is read", act: func(w http.ResponseWriter, _ *http.Request, _ func()) { reset(hijack(w)) }},
	{name: "reset after the body was read", reads: true, act: func(w http.ResponseWriter, _ *http.Request, _ func()) { reset(hijack(w)) }},
	{name: "no answer", reads: true, act: func(w http.ResponseWriter, _ *http.Request, _ func()) { hijack(w).Close() }},
	{name: "half a head", reads: true, act: func(w http.ResponseWriter, _ *http.Request, _ func()) {
		conn := hijack(w)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Le")
		conn.Close()
	}},
	{name: "slow head", reads: true, act: func(w http.ResponseWriter, r *http.Request, _ func()) {
		conn := hijack(w)
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Slow: ")
		drip(r, conn)
	}},
	{name: "hang", reads: true, act: func(_ http.ResponseWriter, r *http.Request, _ func()) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}},
	{name: "500", reads: true, act: answerWith(http.StatusInternalServerError, 0)},
	{name: "500 and a slow body", reads: true, act: func(w http.ResponseWriter, r *http.Request, _ func()) {
		sendHead(w, http.StatusInternalServerError, func() {})
		drip(r, w)
	}},
	{name: "408", reads: true, act: answerWith(http.StatusRequestTimeout, 0)},
	{name: "503 with Retry-After", reads: true, retryAfter: time.Second, act: answerWith(http.StatusServiceUnavailable, time.Second)},
	{name: "429 with Retry-After", reads: true, retryAfter: 7 * time.Second, act: answerWith(http.StatusTooManyRequests, 7*time.Second)},
}

var (
	acknowledging = slices.DeleteFunc(slices.Clone(behaviours), func(b *behaviour) bool { return !b.acknowledges })
	failing       = slices.DeleteFunc(slices.Clone(behaviours), func(b *behaviour) bool { return b.acknowledges })
)

// chooseBehaviour lets attempts fail less and less often, because Caddy leaves more and more time between them.
func chooseBehaviour(random *rand.Rand, attempt int) *behaviour {
	chance := map[int]float64{1: 0.4, 2: 0.1}[attempt]
	switch {
	case random.Float64() < chance:
		return failing[random.IntN(len(failing))]
	case random.IntN(8) == 0:
		return acknowledging[random.IntN(len(acknowledging))]
	default:
		return acknowledging[0]
	}
}

func answerWith(status int, retryAfter time.Duration) func(http.ResponseWriter, *http.Request, func()) {
	return func(w http.ResponseWriter, _ *http.Request, _ func()) {
		if retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "not now")
	}
}

// sendHead sends all of an answer but its body.
func sendHead(w http.ResponseWriter, status int, sent func()) {
	w.WriteHeader(status)
	if http.NewResponseController(w).Flush() == nil {
		sent()
	}
}

// drip writes a byte now and then, for longer than Caddy waits, until the other side goes away.
func drip(r *http.Request, w io.Writer) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for range 300 {
		if _, err := io.WriteString(w, "."); err != nil {
			return
		}
		if rw, ok := w.(http.ResponseWriter); ok && http.NewResponseController(rw).Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

func hijack(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	return conn
}

// startCallers lets clients send the requests, and one look up what became of them.
func (rs *unrulyReceivers) startCallers(t *testing.T, url string) {
	next := make(chan *calledBack)
	rs.callers.Go(func() {
		defer close(next)
		for _, run := range rs.runs {
			if !rs.waitForRoom() {
				return
			}
			select {
			case next <- run:
			case <-rs.stop:
				return
			}
		}
	})
	for range loadClients {
		rs.callers.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
			defer client.CloseIdleConnections()
			for run := range next {
				rs.send(client, url, run)
			}
		})
	}
	var looker sync.WaitGroup
	looker.Go(func() { rs.lookUp(url) })
	t.Cleanup(func() {
		rs.halt()
		rs.callers.Wait()
		looker.Wait()
		rs.reportFaults(t) // of a test that came to no end
	})
}

func (rs *unrulyReceivers) halt() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !rs.halted() {
		close(rs.stop)
	}
}

func (rs *unrulyReceivers) halted() bool {
	select {
	case <-rs.stop:
		return true
	default:
		return false
	}
}

// waitForRoom waits while many callbacks have yet to be tried, so that there are first attempts in most of the lives.
func (rs *unrulyReceivers) waitForRoom() bool {
	for !rs.halted() {
		rs.mu.Lock()
		room := rs.accepted < rs.tried+300
		rs.mu.Unlock()
		if room {
			return true
		}
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

// send sends the request for a run until it is accepted.
func (rs *unrulyReceivers) send(client *http.Client, url string, run *calledBack) {
	fields := map[string]string{"message": run.message, "callbackUrl": run.host.url + run.uri}
	if run.chat != "" {
		fields["chatId"] = run.chat
	}
	body, err := json.Marshal(fields)
	if err != nil {
		rs.fault("%v", err)
		return
	}
	for !rs.halted() {
		status, answer, err := rs.ask(client, "POST", url+"/api/hooks/agent", string(body), fmt.Sprintf("key-%d", run.number))
		if err != nil {
			if errors.Is(err, syscall.ECONNREFUSED) {
				time.Sleep(5 * time.Millisecond) // for its next try
			}
			continue
		}
		var told struct{ Status, RunID, ChatID string }
		err = json.Unmarshal(answer, &told)
		if err != nil || status != http.StatusAccepted || told.Status != "accepted" || run.chat != "" && told.ChatID != run.chat {
			rs.fault("run %d was answered %d %s", run.number, status, answer)
			return
		}
		rs.mu.Lock()
		run.runID, run.chatID = told.RunID, told.ChatID
		rs.accepted++
		rs.mu.Unlock()
		return
	}
}

// ask sends one request with the token. The error is that of a connection.
func (rs *unrulyReceivers) ask(client *http.Client, method, url, body, key string) (status int, answer []byte, err error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+hookstest.Token)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// lookUp asks about runs whose callback was acknowledged, and notes those that are said to be delivered.
func (rs *unrulyReceivers) lookUp(url string) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	random := rand.New(rand.NewPCG(rs.seed, 1))
	for !rs.halted() {
		time.Sleep(2 * time.Millisecond) // not to be in the way of the others
		if run := rs.unproved(random); run != nil {
			delivered, err := rs.shownDelivery(client, url, run)
			if err != nil {
				time.Sleep(5 * time.Millisecond)
			}
			if delivered {
				rs.mu.Lock()
				rs.proved++
				rs.mu.Unlock()
			}
		}
	}
}

// unproved picks a run whose callback was acknowledged not long ago, if there is one.
func (rs *unrulyReceivers) unproved(random *rand.Rand) *calledBack {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for range 20 {
		run := rs.runs[random.IntN(len(rs.runs))]
		if len(run.attempts) > 0 && run.runID != "" && !run.proved && !run.attempts[len(run.attempts)-1].answering.IsZero() {
			return run
		}
	}
	return nil
}

// shownDelivery asks about the delivery of a run that was accepted. What is delivered stays so. The error is that of a
// connection.
func (rs *unrulyReceivers) shownDelivery(client *http.Client, url string, run *calledBack) (delivered bool, err error) {
	status, answer, err := rs.ask(client, "GET", url+hookstest.RunPath(run.runID), "", "")
	if err != nil {
		return false, err
	}
	var shown hookstest.RunView
	if err := json.Unmarshal(answer, &shown); err != nil || status != http.StatusOK || len(shown.Deliveries) > 1 {
		rs.fault("GET of run %d was answered %d %s", run.number, status, answer)
		return false, nil
	}
	if len(shown.Deliveries) == 0 {
		if shown.Status == "completed" {
			rs.fault("run %d is completed and has no delivery: %s", run.number, answer)
		}
		return false, nil
	}
	d := shown.Deliveries[0]
	if shown.Status != "completed" || d.Kind != "callback" || d.Status != "pending" && d.Status != "delivered" {
		rs.fault("run %d is %s", run.number, answer)
	}
	if d.Status != "delivered" {
		return false, nil
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	run.proved = true
	last := run.attempts[len(run.attempts)-1]
	if shown.Reply != run.message || d.ID != last.id() || d.Attempts != last.number || d.LastError != "" {
		rs.faultLocked("run %d, whose last attempt was %d with the id %s, is %s", run.number, last.number, last.id(), answer)
	}
	return true, nil
}

// waitForAll waits until every run is accepted, and its callback acknowledged. Caddy must be serving.
func (rs *unrulyReceivers) waitForAll(t *testing.T) {
	t.Helper()
	missing := func() (open []int) {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		for _, run := range rs.runs {
			if run.runID == "" || !slices.ContainsFunc(run.attempts, func(a *callbackAttempt) bool { return a.answered }) {
				open = append(open, run.number)
			}
		}
		return open
	}
	deadline := time.Now().Add(4 * time.Minute) // the second failure is followed by half a minute, the third by two
	for open := missing(); len(open) > 0; open = missing() {
		if time.Now().After(deadline) {
			t.Fatalf("%d callbacks do not arrive, among them those of the runs %v", len(open), open[:min(len(open), 10)])
		}
		time.Sleep(20 * time.Millisecond)
	}
	rs.callers.Wait()
}

// wantAllDelivered checks that every run is delivered, and that there are no others.
func (rs *unrulyReceivers) wantAllDelivered(t *testing.T, d *hookstest.Deployment) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for _, run := range rs.runs {
		hookstest.Within(t, time.Minute, fmt.Sprintf("run %d is shown as delivered", run.number), func() bool {
			delivered, err := rs.shownDelivery(client, d.URL, run)
			if err != nil {
				t.Fatal(err)
			}
			return delivered
		})
	}
	rs.halt()
	listed := &hookstest.Server{T: t, Admin: d.Admin}
	all := make(map[string]bool)
	for cursor := ""; ; {
		ids, next := listed.Listed("?limit=100&cursor=" + url.QueryEscape(cursor))
		for _, id := range ids {
			all[id] = true
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	for _, run := range rs.runs {
		if !all[run.runID] {
			t.Errorf("run %s is not listed", run.runID)
		}
		delete(all, run.runID)
	}
	if len(all) > 0 {
		t.Errorf("there are %d runs that no caller knows of", len(all))
	}
}

// callbackCounts is how much there was to look at.
type callbackCounts struct {
	runs, attempts, unread, cutOff, said, proved, highest int
	behaviours                                            map[string]int

	unsettled int           // attempts that were made again because a kill came before their outcome was stored …
	underWay  int           // … and how many of them had been acknowledged while the answer still went on, …
	repeated  int           // … or were wholly answered, …
	window    time.Duration // … how long before the kill at most
	late      int           // acknowledgements that came after Caddy had given up waiting
}

func (c callbackCounts) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.behaviours)) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, c.behaviours[name]))
	}
	return fmt.Sprintf("%d runs, %d attempts seen, %d said to have failed, %d connections reset unread, %d bodies cut off, highest attempt %d; %d seen to be delivered while others were not; "+
		"%d attempts repeated after a kill, %d of them acknowledged with the answer under way, %d acknowledged at most %v before; %d acknowledged too late; %s",
		c.runs, c.attempts, c.said, c.unread, c.cutOff, c.highest, c.proved, c.unsettled, c.underWay, c.repeated, c.window, c.late, strings.Join(parts, ", "))
}

// unsettledAtOnce is how many attempts one process has under way at most, with those whose outcome is being stored.
const unsettledAtOnce = 1024

// retryPauses are the shortest pauses after the first failures.
var retryPauses = []time.Duration{4 * time.Second, 24 * time.Second, 96 * time.Second, 8 * time.Minute}

// check goes over all that was seen, after all lives have ended.
func (rs *unrulyReceivers) check(t *testing.T) callbackCounts {
	t.Helper()
	rs.mu.Lock()
	c := callbackCounts{runs: len(rs.runs), proved: rs.proved, unread: rs.unread, cutOff: rs.cutOff, said: len(rs.said), behaviours: make(map[string]int)}
	byID := make(map[string]*calledBack)
	unsettled := make(map[int]int) // by the life that they began in
	for _, run := range rs.runs {
		id := run.attempts[0].id()
		if other := byID[id]; other != nil {
			rs.faultLocked("the callbacks of the runs %d and %d have the same id %s", run.number, other.number, id)
		}
		byID[id] = run
		for i, a := range run.attempts {
			c.attempts++
			c.highest = max(c.highest, a.number)
			c.behaviours[a.behaviour.name]++
			rs.checkHeader(run, id, a)
			if i > 0 {
				rs.checkRepeat(run, run.attempts[i-1], a, unsettled, &c)
			}
		}
		// Every number before the last was used up by an attempt that failed, and by nothing else.
		for number := 1; number < run.attempts[len(run.attempts)-1].number; number++ {
			if _, ok := rs.said[saidAttempt{id, number}]; !ok {
				rs.faultLocked("attempt %d at the callback of run %d is not said to have failed", number, run.number)
			}
		}
	}
	for life, n := range unsettled {
		c.unsettled += n
		if n > unsettledAtOnce {
			rs.faultLocked("%d attempts of life %d were made again; it cannot have had more than %d under way", n, life, unsettledAtOnce)
		}
	}
	rs.mu.Unlock()
	rs.reportFaults(t)
	return c
}

func (rs *unrulyReceivers) checkHeader(run *calledBack, id string, a *callbackAttempt) {
	chat, err := url.PathUnescape(a.header.Get("X-Service-Chat-Id"))
	if err != nil || chat != run.chatID || a.header.Get("X-Service-Run-Id") != run.runID {
		rs.faultLocked("the callback of run %d, which is %s of chat %q, has the headers %v", run.number, run.runID, run.chatID, a.header)
	}
	if a.id() != id || id == "" {
		rs.faultLocked("the callback of run %d has the ids %q and %q", run.number, id, a.id())
	}
}

// checkRepeat checks that there was a reason for an attempt after another one, and that it took its time.
func (rs *unrulyReceivers) checkRepeat(run *calledBack, before, after *callbackAttempt, unsettled map[int]int, c *callbackCounts) {
	acknowledged := !before.answering.IsZero()
	failure, failed := rs.said[saidAttempt{before.id(), before.number}]
	switch {
	case after.number < before.number:
		rs.faultLocked("the callback of run %d had attempt %d, and then %d", run.number, before.number, after.number)
	case after.number == before.number && after.life == before.life:
		rs.faultLocked("attempt %d at the callback of run %d was made twice in life %d", after.number, run.number, after.life)
	case after.number == before.number || failure.life > before.life:
		// What became of it was not stored before the kill.
		unsettled[before.life]++
		switch {
		case acknowledged && before.behaviour.lingers:
			c.underWay++
		case acknowledged:
			c.repeated++
			c.window = max(c.window, rs.ends[before.life].Sub(before.answering))
		}
	case acknowledged && strings.HasPrefix(failure.why, "no answer within"):
		c.late++
	case acknowledged:
		rs.faultLocked("attempt %d at the callback of run %d was acknowledged in life %d, and said to have failed: %q; there was attempt %d in life %d",
			before.number, run.number, before.life, failure.why, after.number, after.life)
	}
	if after.number != before.number+1 || !failed {
		return
	}
	pause := retryPauses[min(before.number, len(retryPauses))-1]
	if strings.Contains(failure.why, "answered") && failure.life == before.life {
		pause = max(pause, before.behaviour.retryAfter)
	}
	since := before.began
	if failure.at.Before(since) {
		since = failure.at // the receiver had not even come to it when Caddy gave up
	}
	// Time that is read twice at once may differ a little.
	if got := after.began.Sub(since); got < pause-50*time.Millisecond {
		rs.faultLocked("attempt %d at the callback of run %d came %v after the last one, %q", after.number, run.number, got, before.behaviour.name)
	}
}
