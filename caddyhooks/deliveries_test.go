package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

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
		status, answer := rc.status.Load(), rc.answer.Load() // whoever waits for the body may change them
		rc.bodies <- string(body)
		w.WriteHeader(int(status))
		io.WriteString(w, *answer)
	}))
	t.Cleanup(rc.Close)
	return rc
}

func (rc *moodyReceiver) host() string { return strings.TrimPrefix(rc.URL, "http://") }

const echoWithCallbacks = `
	hooks {
		enabled
		token ` + hookstest.Token + `
		runner echo
		channel notes log
		callbacks {
			allow 127.0.0.0/8
			ports *
		}
	}`

func TestADeliveryThatFailedForGoodIsKeptAndCanBeSentAgain(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	rc := startMoodyReceiver(t, strings.Repeat("no such order ", 1000))
	begin := time.Now().Add(-time.Second)
	runID := s.CallBack("the answer", rc.URL+"/back?token=secret")
	hookstest.Eventually(t, "the delivery is given up", func() bool { return len(s.Deliveries("status=dead")) == 1 })

	listed := s.Deliveries("status=dead")[0]
	for query, want := range map[string]int{"since=yesterday": 1, "since=1h&until=0s": 1, "until=yesterday": 0, "since=0s": 0, "until=1h&status=dead": 0} {
		if got := s.Deliveries(query); len(got) != want {
			t.Errorf("%s lists %v", query, got)
		}
	}
	d := s.Delivery(listed.ID)
	if d.Body != "the answer" || listed.Body != "" {
		t.Errorf("shown with the body %q, listed with %q", d.Body, listed.Body)
	}
	if listed.Target != rc.URL+"/…" || listed.LastAnswer != "" {
		t.Errorf("listed with the target %q and the answer %q", listed.Target, listed.LastAnswer)
	}
	listed.Body, listed.Target, listed.LastAnswer = d.Body, d.Target, d.LastAnswer
	if listed != d {
		t.Errorf("listed as %+v and shown as %+v", listed, d)
	}
	if d.CreatedAt.Before(begin) || d.LastAttemptAt.Before(begin) || !d.NextAttemptAt.IsZero() {
		t.Errorf("made at %s, tried at %s, next at %s", d.CreatedAt, d.LastAttemptAt, d.NextAttemptAt)
	}
	d.CreatedAt, d.LastAttemptAt = time.Time{}, time.Time{}
	want := hookstest.DeliveryView{ID: "msg_" + strings.ReplaceAll(runID, "-", "") + "_0", Kind: "callback", Target: rc.URL + "/back", Status: "dead",
		Attempts: 1, LastError: "the receiver answered 410", RunID: runID, RunStatus: "completed", ChatID: "chat of the answer", Hook: "agent",
		LastStatus: 410, LastAnswer: strings.Repeat("no such order ", 1000)[:4096], ContentType: "text/plain; charset=utf-8", Body: "the answer"}
	if d != want {
		t.Errorf("got  %+v\nwant %+v", d, want)
	}

	// Not good enough yet, but the receiver may be better later.
	rc.status.Store(http.StatusServiceUnavailable)
	resp := s.AdminRequest("POST", "/hooks/deliveries/"+d.ID+"/retry", "")
	if resp.Status != 200 || resp.Field(t, "status") != "pending" {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	hookstest.Eventually(t, "it is tried once more", func() bool { return s.Delivery(d.ID).LastStatus == 503 })
	if d := s.Delivery(d.ID); d.Status != "pending" || d.Attempts != 2 || d.NextAttemptAt.IsZero() {
		t.Errorf("got %+v", d)
	}
	rc.status.Store(http.StatusOK)
	if resp := s.AdminRequest("POST", "/hooks/deliveries/"+d.ID+"/retry", ""); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	hookstest.Eventually(t, "it arrives", func() bool { return s.Delivery(d.ID).Status == "delivered" })
	got := s.Delivery(d.ID)
	if got.Attempts != 3 || got.LastError != "" || got.LastAnswer != "" || got.LastStatus != 200 || got.Body != "" || !got.NextAttemptAt.IsZero() {
		t.Errorf("got %+v", got)
	}
	for range 3 {
		if body := hookstest.ReceiveWithin(t, "a callback comes", rc.bodies); body != "the answer" {
			t.Errorf("received %q", body)
		}
	}
	for method, path := range map[string]string{"POST": "/retry?unsent=1", "DELETE": ""} {
		path = "/hooks/deliveries/" + d.ID + path
		if resp := s.AdminRequest(method, path, ""); resp.Status != http.StatusConflict || !strings.Contains(resp.Body, "arrived already") {
			t.Errorf("%s %s: %d %s", method, path, resp.Status, resp.Body)
		}
	}
	s.AdminRequest("POST", "/hooks/deliveries/"+d.ID+"/retry?unsent=yes", "").WantAdminError(t, 400, "unsent must be 1")
	resp = s.AdminRequest("POST", "/hooks/deliveries/"+d.ID+"/retry", "")
	if resp.Status != 200 || resp.Field(t, "status") != "pending" || resp.Field(t, "repeats") != 1.0 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	if body := hookstest.ReceiveWithin(t, "a callback comes", rc.bodies); body != "the answer" {
		t.Errorf("received %q", body)
	}
	hookstest.Eventually(t, "it arrives once more", func() bool { return s.Delivery(d.ID).Status == "delivered" })
	if got := s.AdminRequest("GET", "/hooks/deliveries/"+d.ID, ""); got.Field(t, "repeats") != 1.0 || got.Field(t, "attempts") != 4.0 {
		t.Errorf("got %s", got.Body)
	}
}

func TestADeliveryCanBeDropped(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	rc := startMoodyReceiver(t, "")
	dead := s.CallBack("dead", rc.URL)
	hookstest.Eventually(t, "the delivery is given up", func() bool { return len(s.Deliveries("status=dead")) == 1 })
	rc.status.Store(http.StatusInternalServerError)
	waiting := s.CallBack("waiting", rc.URL)
	hookstest.Eventually(t, "a delivery has failed for now", func() bool {
		pending := s.Deliveries("status=pending")
		return len(pending) == 1 && pending[0].Attempts == 1
	})
	for _, runID := range []string{dead, waiting} {
		id := "msg_" + strings.ReplaceAll(runID, "-", "") + "_0"
		if resp := s.AdminRequest("DELETE", "/hooks/deliveries/"+id, ""); resp.Status != http.StatusNoContent || resp.Body != "" {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		for method, path := range map[string]string{"GET": "", "DELETE": "", "POST": "/retry"} {
			if resp := s.AdminRequest(method, "/hooks/deliveries/"+id+path, ""); resp.Status != http.StatusNotFound {
				t.Errorf("%s: got %d %s", method, resp.Status, resp.Body)
			}
		}
		if resp := s.LookUp(runID, ""); resp.Status != 200 || strings.Contains(resp.Body, "msg_") {
			t.Errorf("the run is shown as %s", resp.Body)
		}
	}
	if left := s.Deliveries(""); len(left) > 0 {
		t.Errorf("left are %+v", left)
	}
}

func TestAllDeliveriesOfAFilterAreSentAgainOrDropped(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	one, other := startMoodyReceiver(t, ""), startMoodyReceiver(t, "")
	const each = 40
	for i := range each {
		s.CallBack(fmt.Sprint(i), one.URL)
		s.CallBack(fmt.Sprint(i), other.URL)
	}
	hookstest.Eventually(t, "all are given up", func() bool { return len(s.Deliveries("status=dead")) == 2*each })
	one.status.Store(http.StatusOK)
	other.status.Store(http.StatusOK)

	s.Bulk("do=retry&status=dead&host="+one.host(), "").WantMembers(t, fmt.Sprintf(`{"state":"done","matching":%d,"done":%[1]d}`, each))
	hookstest.Eventually(t, "they arrive", func() bool { return len(s.Deliveries("status=delivered&host="+one.host())) == each })
	if n := len(s.Deliveries("status=dead&host=127.0.0.1")); n != each {
		t.Errorf("%d are dead, want %d", n, each)
	}
	s.Bulk("do=drop&status=dead&host=http://"+other.host(), "").WantMembers(t, fmt.Sprintf(`{"done":%d}`, each)) // as in the log
	if n := len(s.Deliveries("")); n != each || len(other.bodies) != each {
		t.Errorf("%d are left, and %d were sent to the other", n, len(other.bodies))
	}
}

func TestDeliveryRequestsThatMakeNoSenseChangeNothing(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	rc := startMoodyReceiver(t, "")
	s.CallBack("dead", rc.URL)
	hookstest.Eventually(t, "the delivery is given up", func() bool { return len(s.Deliveries("status=dead")) == 1 })
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
		{"POST", "", 405, "use GET"},
		{"DELETE", "", 405, "use GET"},
		{"DROP", "", 400, "by status"},
		{"DROP", "?host=127.0.0.1", 400, "by status"},
		{"DROP", "?status=delivered", 400, "by status"},
		{"DROP", "?status=dead&limit=1", 400, `no parameter \"limit\"`},
		{"DROP", "?status=dead&host=", 400, "not be empty"},
		{"DROP", "?status=dead&channel=", 400, "not be empty"},
		{"DROP", "?status=dead&host=http://", 400, "host must be a host"},
		{"DROP", "?status=dead&host=http://example.com/a", 400, "without a path"},
		{"DROP", "?status=dead&host=50%off.example", 400, "cannot be read"},
		{"DROP", "?status=dead&host=other.example;x", 400, "cannot be read"},
		{"DROP", "?status=dead&host=example.com&host=127.0.0.1", 400, "once"},
		{"DROP", "?status=dead&hots=example.com", 400, "hots"},
		{"DROP", "?status=dead&since=soon", 400, "since must be a time"},
		{"DROP", "?status=dead&since=1h&until=2h", 400, "since must be before until"},
		{"GET", "/msg_1", 404, "msg_1"},
		{"GET", "/msg_0198c0de00007000800000000000000a_0", 404, "no delivery"},
		{"POST", "/msg_0198c0de00007000800000000000000a_0/retry", 404, "no delivery"},
		{"PUT", "/msg_0198c0de00007000800000000000000a_0", 405, "GET, DELETE"},
		{"GET", "/msg_0198c0de00007000800000000000000a_0/retry", 405, "POST"},
		{"GET", "/msg_0198c0de00007000800000000000000a_0/again", 404, "no such endpoint"},
	} {
		method, path := c.method, "/hooks/deliveries"+c.path
		if method == "DROP" {
			method, path = "POST", "/hooks/bulk?do=drop"+strings.Replace(c.path, "?", "&", 1)
		}
		resp := s.AdminRequest(method, path, "")
		if resp.Status != c.status || !strings.Contains(resp.Body, c.words) {
			t.Errorf("%s %s: %d %s", c.method, c.path, resp.Status, resp.Body)
		}
	}
	if n := len(s.Deliveries("status=dead")); n != 1 {
		t.Errorf("%d are dead", n)
	}
}

// There are 200 callbacks to a host that takes connections and never says anything, and one each to 200 that are not there.
// All of them are still pending when the others have arrived.
func TestADeadHostHoldsUpNoOther(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	rc := startMoodyReceiver(t, "")
	rc.status.Store(http.StatusOK)
	const dead, alive = 50, 20 // more than go to one host at once
	for i := range dead {
		s.CallBack(fmt.Sprint(i), "http://"+silent.Addr().String())
		s.CallBack(fmt.Sprint(i), "http://127.0.0.1:"+hookstest.FreePort(t))
	}
	for i := range alive {
		s.CallBack(fmt.Sprint(i), rc.URL)
	}
	hookstest.Eventually(t, "those to the host that answers arrive", func() bool {
		return len(s.Deliveries("status=delivered&host="+rc.host())) == alive
	})
	if n := len(s.Deliveries("status=pending&host=" + silent.Addr().String())); n != dead {
		t.Errorf("%d deliveries wait for the host that does not answer, want %d", n, dead)
	}
}

// For some receivers the path of their URL is all that keeps others from writing to them.
func TestThePathOfACallbackIsShownInOnePlaceAlone(t *testing.T) {
	const secret = "T0SECRET"
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/elsewhere/"+secret)
		switch strings.Split(r.URL.Path, "/")[1] {
		case "broken":
			panic(http.ErrAbortHandler)
		case "moved":
			w.WriteHeader(http.StatusFound)
		case "down":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "cannot POST "+r.URL.String())
	}))
	t.Cleanup(echo.Close)
	gone := "http://127.0.0.1:" + hookstest.FreePort(t)
	log := filepath.Join(t.TempDir(), "default.log")
	s := hookstest.NewServer(t)
	s.Globals = "log {\n output file " + log + "\n level DEBUG\n}"
	s.Load(echoWithCallbacks)
	for path, resp := range map[string]hookstest.Response{
		"a port of none": s.Post("/api/hooks/agent", `{"message":"x","callbackUrl":"https://example.com:99999/`+secret+`"}`),
		"no URL":         s.Post("/api/hooks/agent", `{"message":"x","callbackUrl":"https://example.com/%zz`+secret+`"}`),
		"no address":     s.Post("/api/hooks/agent", `{"message":"x","callbackUrl":"http://10.0.0.1/`+secret+`?`+secret+`"}`),
		"a mapping":      s.AdminRequest("PUT", "/hooks/mappings/bad", `{"action":"agent","callbackUrl":"http://10.0.0.1/`+secret+`"}`),
	} {
		if resp.Status != 400 || strings.Contains(resp.Body, secret) {
			t.Errorf("%s: got %d %s", path, resp.Status, resp.Body)
		}
	}
	targets := []string{echo.URL + "/moved/", echo.URL + "/down/", echo.URL + "/good/", echo.URL + "/broken/", gone + "/"}
	var runs []string
	for i, target := range targets {
		runs = append(runs, s.CallBack(fmt.Sprint("message ", i), target+secret+"?token="+secret))
	}
	hookstest.Eventually(t, "each was tried", func() bool {
		for _, id := range runs {
			if r := s.Run(id); len(r.Deliveries) != 1 || r.Deliveries[0].Attempts == 0 {
				return false
			}
		}
		return true
	})
	for i, runID := range runs {
		id := "msg_" + strings.ReplaceAll(runID, "-", "") + "_0"
		if d := s.Delivery(id); d.Target != targets[i]+secret {
			t.Errorf("the operator is shown the target %q", d.Target)
		}
		origin := strings.Join(strings.Split(targets[i], "/")[:3], "/")
		if r := s.Run(runID); r.Deliveries[0].Target != origin+"/…" {
			t.Errorf("the caller is shown the target %q", r.Deliveries[0].Target)
		}
		for _, resp := range []hookstest.Response{
			s.Request("GET", hookstest.RunPath(runID), "", "X-Service-Token", hookstest.Token),
			s.Request("POST", hookstest.RunPath(runID)+"/cancel", "", "X-Service-Token", hookstest.Token),
			s.AdminRequest("GET", "/hooks/runs/"+runID, ""),
			s.AdminRequest("POST", "/hooks/runs/"+runID+"/cancel", ""),
			s.AdminRequest("POST", "/hooks/deliveries/"+id+"/retry", ""),
			s.AdminRequest("DELETE", "/hooks/deliveries/"+id, ""),
		} {
			if strings.Contains(resp.Body, secret) {
				t.Errorf("the path of %s is shown: %s", targets[i], resp.Body)
			}
		}
	}
	for _, path := range []string{"runs", "deliveries", "deliveries?status=dead", "settings"} {
		if resp := s.AdminRequest("GET", "/hooks/"+path, ""); resp.Status != 200 || strings.Contains(resp.Body, secret) {
			t.Errorf("%s: got %d %s", path, resp.Status, resp.Body)
		}
	}
	s.Bulk("do=retry&status=dead", "")
	logged, err := os.ReadFile(log)
	if err != nil || strings.Contains(string(logged), secret) || !strings.Contains(string(logged), "delivery failed") {
		t.Errorf("%v: the log is\n%s", err, logged)
	}
}

func TestTargetsOfCallbacks(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	rc := startMoodyReceiver(t, "")
	for url, want := range map[string]string{
		rc.URL: rc.URL, rc.URL + "/": rc.URL, rc.URL + "/#part": rc.URL,
		rc.URL + "?a=b": rc.URL + "/…", rc.URL + "/?a": rc.URL + "/…", rc.URL + "//a": rc.URL + "/…",
	} {
		id := s.CallBack("answer", url)
		hookstest.Eventually(t, "it was tried", func() bool { r := s.Run(id); return len(r.Deliveries) == 1 && r.Deliveries[0].Attempts == 1 })
		if got := s.Run(id).Deliveries[0].Target; got != want {
			t.Errorf("%s is shown as %s", url, got)
		}
	}
}

func TestDeliveriesAreCountedBeforeTheyAreChanged(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	rc := startMoodyReceiver(t, "")
	s.CallBack("dead", rc.URL)
	hookstest.Eventually(t, "the delivery is given up", func() bool { return len(s.Deliveries("status=dead")) == 1 })
	rc.status.Store(http.StatusInternalServerError)
	s.CallBack("waiting", rc.URL)
	hookstest.Eventually(t, "a delivery has failed for now", func() bool {
		pending := s.Deliveries("status=pending")
		return len(pending) == 1 && pending[0].Attempts == 1
	})
	rc.status.Store(http.StatusOK)
	s.CallBack("delivered", rc.URL)
	hookstest.Eventually(t, "a delivery arrives", func() bool { return len(s.Deliveries("status=delivered")) == 1 })

	if got := s.Deliveries("status=dead,pending"); len(got) != 2 || got[0].Status != "pending" || got[1].Status != "dead" || got[1].LastError == "" {
		t.Errorf("two statuses select %+v", got)
	}
	if got := len(s.Deliveries("")); got != 3 {
		t.Errorf("no status selects %d", got)
	}
	for query, want := range map[string]string{
		"do=retry&status=dead": `{"would":1}`, "do=retry&status=dead,pending": `{"would":2}`, "do=drop&status=dead,pending": `{"would":2}`,
		"do=drop&status=pending&host=" + rc.host(): `{"would":1}`, "do=drop&status=dead&host=other.example": `{"would":0}`,
	} {
		s.AdminRequest("POST", "/hooks/bulk?dry=1&"+query, "").WantJSON(t, want)
	}
	s.Bulk("do=drop&status=dead,pending", "").WantMembers(t, `{"done":2}`)
	s.AdminRequest("POST", "/hooks/bulk?do=drop&status=dead,pending&dry=1", "").WantJSON(t, `{"would":0}`)
	s.AdminRequest("POST", "/hooks/bulk?do=retry&status=dead&dry=yes", "").WantAdminError(t, 400, "dry must be 1")
	s.AdminRequest("POST", "/hooks/bulk?do=drop&status=dead,delivered", "").WantAdminError(t, 400, "by status")
	s.AdminRequest("POST", "/hooks/bulk?do=drop&status=dead", `{"deliver":true}`).WantAdminError(t, 400, "deliver is for runs")
	s.AdminRequest("POST", "/hooks/bulk?do=delete&status=dead", "").WantAdminError(t, 400, "again, cancel, retry and drop")
	s.AdminRequest("GET", "/hooks/deliveries?status=dead,", "").WantAdminError(t, 400, "status", "comma")
	s.AdminRequest("GET", "/hooks/deliveries?status=dead,gone", "").WantAdminError(t, 400, "one of pending, delivered and dead")
}

func TestHostsThatAreLeftAloneAreTold(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	rc := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1800")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(rc.Close)
	first := s.AdminRequest("GET", "/hooks/deliveries", "")
	first.WantJSON(t, `{"deliveries":[]}`)
	s.CallBack("one", rc.URL+"/secret?a=b")
	closed := "http://127.0.0.1:" + hookstest.FreePort(t)
	for range 6 {
		s.CallBack("unreachable", closed+"/secret?a=b")
	}
	var page struct {
		Paused []struct {
			Host  string    `json:"host"`
			Until time.Time `json:"until"`
		} `json:"paused"`
	}
	hookstest.Eventually(t, "a host is left alone", func() bool {
		resp := s.AdminRequest("GET", "/hooks/deliveries?limit=1", "")
		if err := json.Unmarshal([]byte(resp.Body), &page); err != nil {
			t.Fatal(err)
		}
		return len(page.Paused) > 0
	})
	if page.Paused[0].Host != closed || !page.Paused[0].Until.After(time.Now().Add(-time.Minute)) {
		t.Errorf("got %+v, want %s", page.Paused, closed)
	}
	hookstest.Eventually(t, "all go to it", func() bool { return len(s.Deliveries("host="+page.Paused[0].Host)) == 6 })
}

func TestOperatorsSeeWhatAPendingDeliveryWaitsFor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(server.Close)
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, hookstest.ReplyText("hello")), chatChannels(t, server.URL)))
	type row struct {
		RunID         string    `json:"runId"`
		Attempts      int       `json:"attempts"`
		NextAttemptAt time.Time `json:"nextAttemptAt"`
		WaitsFor      string    `json:"waitsFor"`
	}
	list := func() []row {
		t.Helper()
		var page struct{ Deliveries []row }
		if err := json.Unmarshal([]byte(s.AdminRequest("GET", "/hooks/deliveries?status=pending", "").Body), &page); err != nil {
			t.Fatal(err)
		}
		return page.Deliveries
	}
	first := s.Accept(`{"message":"a","deliver":true,"channel":"own","to":"anybody"}`)
	hookstest.Eventually(t, "the first one is tried", func() bool {
		rows := list()
		return len(rows) == 1 && rows[0].Attempts > 0
	})
	s.Accept(`{"message":"b","deliver":true,"channel":"own","to":"anybody"}`)
	hookstest.Eventually(t, "both wait", func() bool {
		rows := list()
		return len(rows) == 2 && rows[1].RunID == first && rows[1].NextAttemptAt.After(time.Now()) && rows[1].WaitsFor == "" &&
			rows[0].WaitsFor == "an earlier delivery to the same chat" && rows[0].NextAttemptAt.IsZero()
	})
}
