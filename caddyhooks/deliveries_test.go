package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// deliveryView is all that the admin API shows of a delivery.
type deliveryView struct {
	ID            string    `json:"id"`
	Kind          string    `json:"kind"`
	Target        string    `json:"target"`
	Status        string    `json:"status"`
	Attempts      int       `json:"attempts"`
	LastError     string    `json:"lastError"`
	RunID         string    `json:"runId"`
	RunStatus     string    `json:"runStatus"`
	ChatID        string    `json:"chatId"`
	CreatedAt     time.Time `json:"createdAt"`
	LastAttemptAt time.Time `json:"lastAttemptAt"`
	NextAttemptAt time.Time `json:"nextAttemptAt"`
	LastStatus    int       `json:"lastStatus"`
	LastAnswer    string    `json:"lastAnswer"`
	ContentType   string    `json:"contentType"`
	Body          string    `json:"body"`
}

// moodyReceiver takes callbacks, and answers them as it is told, which is 410 at first.
type moodyReceiver struct {
	*httptest.Server
	status atomic.Int32
	answer atomic.Pointer[string]
	bodies chan string
}

func startMoodyReceiver(t *testing.T, answer string) *moodyReceiver {
	t.Helper()
	rc := &moodyReceiver{bodies: make(chan string, 10_000)}
	rc.status.Store(http.StatusGone)
	rc.answer.Store(&answer)
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rc.bodies <- string(body)
		w.WriteHeader(int(rc.status.Load()))
		io.WriteString(w, *rc.answer.Load())
	}))
	t.Cleanup(rc.Close)
	return rc
}

func (rc *moodyReceiver) host() string { return strings.TrimPrefix(rc.URL, "http://") }

// deliveries lists what a query selects, page by page.
func (s *server) deliveries(query string) (all []deliveryView) {
	s.t.Helper()
	for cursor := ""; ; {
		resp := s.adminRequest("GET", "/hooks/deliveries?limit=7&"+query+cursor, "")
		var page struct {
			Deliveries []deliveryView `json:"deliveries"`
			Cursor     string         `json:"cursor"`
		}
		if err := json.Unmarshal([]byte(resp.body), &page); err != nil || resp.status != 200 {
			s.t.Fatalf("listing deliveries: %d %s", resp.status, resp.body)
		}
		if len(page.Deliveries) > 7 {
			s.t.Fatalf("%d deliveries on a page", len(page.Deliveries))
		}
		all = append(all, page.Deliveries...)
		if page.Cursor == "" {
			return all
		}
		cursor = "&cursor=" + page.Cursor
	}
}

// delivery shows one.
func (s *server) delivery(id string) (d deliveryView) {
	s.t.Helper()
	resp := s.adminRequest("GET", "/hooks/deliveries/"+id, "")
	if err := json.Unmarshal([]byte(resp.body), &d); err != nil || resp.status != 200 {
		s.t.Fatalf("showing a delivery: %d %s", resp.status, resp.body)
	}
	return d
}

// callBack has an agent answer to a URL.
func (s *server) callBack(message, url string) (runID string) {
	s.t.Helper()
	resp := s.post("/api/hooks/agent", asJSON(s.t, map[string]any{"message": message, "chatId": "chat of " + message, "callbackUrl": url}))
	if resp.status != http.StatusAccepted {
		s.t.Fatalf("got %d %s", resp.status, resp.body)
	}
	return resp.field(s.t, "runId").(string)
}

const echoWithCallbacks = `
	hooks {
		enabled
		token ` + token + `
		runner echo
		channel notes log
		callbacks {
			allow 127.0.0.0/8
			ports *
		}
	}`

func TestADeliveryThatFailedForGoodIsKeptAndCanBeSentAgain(t *testing.T) {
	s := startSite(t, echoWithCallbacks)
	rc := startMoodyReceiver(t, strings.Repeat("no such order ", 1000))
	begin := time.Now().Add(-time.Second)
	runID := s.callBack("the answer", rc.URL+"/back?token=secret")
	eventually(t, "the delivery is given up", func() bool { return len(s.deliveries("status=dead")) == 1 })

	listed := s.deliveries("status=dead")[0]
	d := s.delivery(listed.ID)
	if d.Body != "the answer" || listed.Body != "" {
		t.Errorf("shown with the body %q, listed with %q", d.Body, listed.Body)
	}
	listed.Body = d.Body
	if listed != d {
		t.Errorf("listed as %+v and shown as %+v", listed, d)
	}
	if d.CreatedAt.Before(begin) || d.LastAttemptAt.Before(begin) || !d.NextAttemptAt.IsZero() {
		t.Errorf("made at %s, tried at %s, next at %s", d.CreatedAt, d.LastAttemptAt, d.NextAttemptAt)
	}
	d.CreatedAt, d.LastAttemptAt = time.Time{}, time.Time{}
	want := deliveryView{ID: "msg_" + strings.ReplaceAll(runID, "-", "") + "_0", Kind: "callback", Target: rc.URL + "/back", Status: "dead",
		Attempts: 1, LastError: "the receiver answered 410", RunID: runID, RunStatus: "completed", ChatID: "chat of the answer",
		LastStatus: 410, LastAnswer: strings.Repeat("no such order ", 1000)[:4096], ContentType: "text/plain; charset=utf-8", Body: "the answer"}
	if d != want {
		t.Errorf("got  %+v\nwant %+v", d, want)
	}

	// Not good enough yet, but the receiver may be better later.
	rc.status.Store(http.StatusServiceUnavailable)
	resp := s.adminRequest("POST", "/hooks/deliveries/"+d.ID+"/retry", "")
	if resp.status != 200 || resp.field(t, "status") != "pending" {
		t.Fatalf("got %d %s", resp.status, resp.body)
	}
	eventually(t, "it is tried once more", func() bool { return s.delivery(d.ID).LastStatus == 503 })
	if d := s.delivery(d.ID); d.Status != "pending" || d.Attempts != 2 || d.NextAttemptAt.IsZero() {
		t.Errorf("got %+v", d)
	}
	rc.status.Store(http.StatusOK)
	if resp := s.adminRequest("POST", "/hooks/deliveries/"+d.ID+"/retry", ""); resp.status != 200 {
		t.Fatalf("got %d %s", resp.status, resp.body)
	}
	eventually(t, "it arrives", func() bool { return s.delivery(d.ID).Status == "delivered" })
	got := s.delivery(d.ID)
	if got.Attempts != 3 || got.LastError != "" || got.LastAnswer != "" || got.LastStatus != 200 || got.Body != "" || !got.NextAttemptAt.IsZero() {
		t.Errorf("got %+v", got)
	}
	for range 3 {
		if body := <-rc.bodies; body != "the answer" {
			t.Errorf("received %q", body)
		}
	}
	for _, method := range []string{"POST", "DELETE"} {
		path := "/hooks/deliveries/" + d.ID + map[string]string{"POST": "/retry"}[method]
		if resp := s.adminRequest(method, path, ""); resp.status != http.StatusConflict || !strings.Contains(resp.body, "arrived already") {
			t.Errorf("%s %s: %d %s", method, path, resp.status, resp.body)
		}
	}
}

func TestADeliveryCanBeDropped(t *testing.T) {
	s := startSite(t, echoWithCallbacks)
	rc := startMoodyReceiver(t, "")
	dead := s.callBack("dead", rc.URL)
	eventually(t, "the delivery is given up", func() bool { return len(s.deliveries("status=dead")) == 1 })
	rc.status.Store(http.StatusInternalServerError)
	waiting := s.callBack("waiting", rc.URL)
	eventually(t, "a delivery has failed for now", func() bool {
		pending := s.deliveries("status=pending")
		return len(pending) == 1 && pending[0].Attempts == 1
	})
	for _, runID := range []string{dead, waiting} {
		id := "msg_" + strings.ReplaceAll(runID, "-", "") + "_0"
		if resp := s.adminRequest("DELETE", "/hooks/deliveries/"+id, ""); resp.status != http.StatusNoContent || resp.body != "" {
			t.Errorf("got %d %s", resp.status, resp.body)
		}
		for method, path := range map[string]string{"GET": "", "DELETE": "", "POST": "/retry"} {
			if resp := s.adminRequest(method, "/hooks/deliveries/"+id+path, ""); resp.status != http.StatusNotFound {
				t.Errorf("%s: got %d %s", method, resp.status, resp.body)
			}
		}
		if resp := s.lookUp(runID, ""); resp.status != 200 || strings.Contains(resp.body, "msg_") {
			t.Errorf("the run is shown as %s", resp.body)
		}
	}
	if left := s.deliveries(""); len(left) > 0 {
		t.Errorf("left are %+v", left)
	}
}

func TestAllDeliveriesOfAFilterAreSentAgainOrDropped(t *testing.T) {
	s := startSite(t, echoWithCallbacks)
	one, other := startMoodyReceiver(t, ""), startMoodyReceiver(t, "")
	const each = 40
	for i := range each {
		s.callBack(fmt.Sprint(i), one.URL)
		s.callBack(fmt.Sprint(i), other.URL)
	}
	eventually(t, "all are given up", func() bool { return len(s.deliveries("status=dead")) == 2*each })
	one.status.Store(http.StatusOK)
	other.status.Store(http.StatusOK)

	resp := s.adminRequest("POST", "/hooks/deliveries/retry?status=dead&host="+one.host(), "")
	if resp.status != 200 || resp.body != fmt.Sprintf("{\"retried\":%d}\n", each) {
		t.Fatalf("got %d %s", resp.status, resp.body)
	}
	eventually(t, "they arrive", func() bool { return len(s.deliveries("status=delivered&host="+one.host())) == each })
	if n := len(s.deliveries("status=dead&host=127.0.0.1")); n != each {
		t.Errorf("%d are dead, want %d", n, each)
	}
	resp = s.adminRequest("DELETE", "/hooks/deliveries?status=dead&host="+other.host(), "")
	if resp.status != 200 || resp.body != fmt.Sprintf("{\"dropped\":%d}\n", each) {
		t.Fatalf("got %d %s", resp.status, resp.body)
	}
	if n := len(s.deliveries("")); n != each || len(other.bodies) != each {
		t.Errorf("%d are left, and %d were sent to the other", n, len(other.bodies))
	}
}

func TestDeliveryRequestsThatMakeNoSenseChangeNothing(t *testing.T) {
	s := startSite(t, echoWithCallbacks)
	rc := startMoodyReceiver(t, "")
	s.callBack("dead", rc.URL)
	eventually(t, "the delivery is given up", func() bool { return len(s.deliveries("status=dead")) == 1 })
	for _, c := range []struct {
		method, path string
		status       int
		words        string
	}{
		{"GET", "?status=lost", 400, "pending, delivered and dead"},
		{"GET", "?limit=0", 400, "from 1 to 1000"},
		{"GET", "?limit=1001", 400, "from 1 to 1000"},
		{"GET", "?cursor=x", 400, "cursor"},
		{"GET", "?chanel=notes", 400, `no parameter \"chanel\"`},
		{"GET", "?host=", 400, "not be empty"},
		{"POST", "", 405, "GET, DELETE"},
		{"DELETE", "", 400, "status=dead"},
		{"DELETE", "?host=127.0.0.1", 400, "status=dead"},
		{"DELETE", "?status=delivered", 400, "status=dead"},
		{"DELETE", "?status=dead&limit=1", 400, "leave out"},
		{"DELETE", "?status=dead&host=", 400, "not be empty"},
		{"DELETE", "?status=dead&channel=", 400, "not be empty"},
		{"DELETE", "?status=dead&host=50%off.example", 400, "cannot be read"},
		{"DELETE", "?status=dead&host=other.example;x", 400, "cannot be read"},
		{"DELETE", "?status=dead&host=example.com&host=127.0.0.1", 400, "once"},
		{"DELETE", "?status=dead&hots=example.com", 400, "hots"},
		{"POST", "/retry", 400, "status=dead"},
		{"POST", "/retry?status=delivered", 400, "status=dead"},
		{"GET", "/retry", 405, "POST"},
		{"GET", "/msg_1", 404, "msg_1"},
		{"GET", "/msg_0198c0de00007000800000000000000a_0", 404, "no delivery"},
		{"POST", "/msg_0198c0de00007000800000000000000a_0/retry", 404, "no delivery"},
		{"PUT", "/msg_0198c0de00007000800000000000000a_0", 405, "GET, DELETE"},
		{"GET", "/msg_0198c0de00007000800000000000000a_0/retry", 405, "POST"},
		{"GET", "/msg_0198c0de00007000800000000000000a_0/again", 404, "no such endpoint"},
	} {
		resp := s.adminRequest(c.method, "/hooks/deliveries"+c.path, "")
		if resp.status != c.status || !strings.Contains(resp.body, c.words) {
			t.Errorf("%s %s: %d %s", c.method, c.path, resp.status, resp.body)
		}
	}
	if n := len(s.deliveries("status=dead")); n != 1 {
		t.Errorf("%d are dead", n)
	}
}

// There are 200 callbacks to a host that takes connections and never says anything, and one each to 200 that are not there.
// All of them are still pending when the others have arrived.
func TestADeadHostHoldsUpNoOther(t *testing.T) {
	s := startSite(t, echoWithCallbacks)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	rc := startMoodyReceiver(t, "")
	rc.status.Store(http.StatusOK)
	const dead, alive = 200, 100
	for i := range dead {
		s.callBack(fmt.Sprint(i), "http://"+silent.Addr().String())
		s.callBack(fmt.Sprint(i), "http://127.0.0.1:"+freePort(t))
	}
	for i := range alive {
		s.callBack(fmt.Sprint(i), rc.URL)
	}
	eventually(t, "those to the host that answers arrive", func() bool {
		return len(s.deliveries("status=delivered&host="+rc.host())) == alive
	})
	if n := len(s.deliveries("status=pending&host=" + silent.Addr().String())); n != dead {
		t.Errorf("%d deliveries wait for the host that does not answer, want %d", n, dead)
	}
}

// What goes to a channel survives a kill, and no secret gets into the log on the way, however much of it there is.
func TestChannelDeliveriesSurviveAKill(t *testing.T) {
	t.Setenv("ANSWERS_TOKEN", "a-secret-token")
	t.Setenv("ANSWERS_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	port := freePort(t)
	d := newBinary(t).deploy(t, "log {\n\tlevel DEBUG\n}", `
	hooks {
		enabled
		token `+token+`
		runner echo
		channel own webhook http://127.0.0.1:`+port+`/answers {
			token {env.ANSWERS_TOKEN}
			secret {env.ANSWERS_SECRET}
		}
	}`)
	p := d.start(t)
	resp, err := tryRequest("POST", d.url+"/api/hooks/agent", `{"message":"the answer","deliver":true,"channel":"own","to":"somebody"}`, "Authorization", "Bearer "+token)
	if err != nil || resp.status != http.StatusAccepted {
		t.Fatalf("got %+v, %v", resp, err)
	}
	within(t, time.Minute, "it has been tried in vain", func() bool {
		_, found := p.log.find("will be tried again")
		return found
	})
	p.kill()

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
	second := d.start(t)
	select {
	case m := <-got:
		runID := resp.field(t, "runId").(string)
		want := message{"Bearer a-secret-token", "msg_" + strings.ReplaceAll(runID, "-", "") + "_0", m.body}
		var body map[string]string
		if err := json.Unmarshal([]byte(m.body), &body); err != nil || m != want || body["text"] != "the answer" || body["to"] != "somebody" ||
			body["runId"] != runID || body["status"] != "completed" {
			t.Errorf("got %+v", m)
		}
	case <-time.After(time.Minute):
		t.Fatal("it did not arrive")
	}
	second.terminate(t)
	second.wantCleanExit(t)
	for _, secret := range []string{"a-secret-token", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		for _, p := range []*process{p, second} {
			if strings.Contains(p.log.all(), secret) {
				t.Errorf("the log has %s in it", secret)
			}
		}
	}
}
