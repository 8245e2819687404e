package caddyhooks_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// eventStream is an open stream of events.
type eventStream struct {
	t      testing.TB
	resp   *http.Response
	cancel context.CancelFunc
	events chan streamEvent // closed when the stream ends
}

type streamEvent struct {
	name, id, data string
}

// openEvents opens a stream.
func openEvents(t testing.TB, s *hookstest.Server, query, lastID string, headers ...string) *eventStream {
	t.Helper()
	return openEventsAt(t, s.Admin+"/hooks/events"+query, lastID, headers...)
}

// openEventsAt is openEvents for a URL.
func openEventsAt(t testing.TB, url, lastID string, headers ...string) *eventStream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", lastID)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	stream := &eventStream{t: t, resp: resp, cancel: cancel, events: make(chan streamEvent, 1000)}
	go func() {
		defer close(stream.events)
		var event streamEvent
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "event":
				event.name = value
			case "id":
				event.id = value
			case "data":
				event.data = value
			case "":
				if event.name != "" {
					stream.events <- event
				}
				event = streamEvent{}
			}
		}
	}()
	t.Cleanup(stream.close)
	return stream
}

func (s *eventStream) close() {
	s.cancel()
	s.resp.Body.Close()
}

// next waits for an event of a name, and passes others over.
func (s *eventStream) next(name string) streamEvent {
	s.t.Helper()
	for {
		event := hookstest.ReceiveWithin(s.t, "an event "+name, s.events)
		if event.name == name {
			return event
		}
		if event.name == "" {
			s.t.Fatalf("the stream ended before an event %s", name)
		}
	}
}

// runIs waits until a row of a run has a status.
func (s *eventStream) runIs(id, status string) streamEvent {
	s.t.Helper()
	for {
		event := s.next("runs")
		var data struct {
			Runs []struct {
				RunID, Status string
			}
			Counts map[string]int
		}
		if err := json.Unmarshal([]byte(event.data), &data); err != nil || data.Counts == nil {
			s.t.Fatalf("got %s, %v", event.data, err)
		}
		for _, run := range data.Runs {
			if run.RunID == id && run.Status == status {
				return event
			}
		}
	}
}

func TestEventsTellAboutRunsDeliveriesAndSettings(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks+"store memory"))
	rc := hookstest.StartReceiver(t)
	stream := openEvents(t, s, "?topics=runs,deliveries,overview,settings", "")
	if got := stream.resp.Header.Get("Content-Type"); stream.resp.StatusCode != 200 || got != "text/event-stream" {
		t.Fatalf("got %d %s", stream.resp.StatusCode, got)
	}
	var hello struct {
		Instance string
		Now      time.Time
		Revision int64
	}
	if err := json.Unmarshal([]byte(stream.next("hello").data), &hello); err != nil || hello.Instance != "default" || hello.Now.IsZero() {
		t.Errorf("got %+v, %v", hello, err)
	}
	overview := stream.next("overview").data
	for _, member := range []string{"running", "queued", "oldestSeconds", "pending", "dead", "acceptedLastMinute"} {
		if !strings.Contains(overview, `"`+member+`":0`) {
			t.Errorf("the overview has no %s: %s", member, overview)
		}
	}
	id := s.CallBack("hold", rc.URL)
	running := stream.runIs(id, "running")
	close(release)
	rc.Next()
	for ended, delivered := false, false; !ended || !delivered; {
		event := hookstest.ReceiveWithin(t, "the run and its delivery", stream.events)
		ended = ended || event.name == "runs" && strings.Contains(event.data, `"status":"completed"`)
		delivered = delivered || event.name == "deliveries" && strings.Contains(event.data, `"status":"delivered"`)
	}
	s.AdminRequest("PATCH", "/hooks/settings", `{"defaultTimeoutSeconds":7}`)
	if got := stream.next("settings").data; got != `{"revision":1,"by":"admin"}` {
		t.Errorf("got %s", got)
	}
	stream.close()

	again := openEvents(t, s, "?topics=runs,settings", running.id)
	again.next("hello")
	again.runIs(id, "completed")
	again.next("settings")
	if reset := openEvents(t, s, "?topics=runs", "other-1"); reset.next("reset").data != "{}" {
		t.Error("the reset has data")
	}
}

func TestEventsRefuseWhatTheyCannotServe(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "store memory"))
	for query, want := range map[string]string{
		"topics=runs,none": `there is no topic \"none\"; use runs, deliveries, overview, settings and refused`,
		"topics=,":         `there is no topic \"\"`,
		"topic=runs":       `there is no parameter \"topic\"`,
	} {
		if got := s.AdminRequest("GET", "/hooks/events?"+query, ""); got.Status != 400 || !strings.Contains(got.Body, want) {
			t.Errorf("%s is answered %d %s", query, got.Status, got.Body)
		}
	}
	for i := range 64 {
		openEvents(t, s, "", "", "Hooks-Operator", fmt.Sprint("ops-", i%4)).next("hello")
	}
	if got := s.AdminRequest("GET", "/hooks/events", ""); got.Status != 503 || !strings.Contains(got.Body, "there are 64 event streams of this instance already") {
		t.Errorf("the 65th stream is answered %d %s", got.Status, got.Body)
	}
}

// Nobody who may only look can take the streams of all others.
func TestEveryUserHasAShareOfTheStreams(t *testing.T) {
	s := hookstest.NewServer(t)
	s.Globals = behindProxy
	s.Load("hooks {\nrunner echo\nstore memory\n}\nhandle_path /dashboard/* {\n" + basicAuth + "hooks_dashboard {\nread_only alice\n}\n}\n" +
		"handle_path /open/* {\nhooks_dashboard {\nuser operator\nhosts localhost\n}\n}")
	refuses := func(page dashboardPage) {
		t.Helper()
		resp := page.with("X-Hooks-Dashboard", "1").open("GET", "api/events", "")
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
			t.Fatalf("one more stream is answered %d %v", resp.StatusCode, resp.Header)
		}
		if said, _ := io.ReadAll(resp.Body); !strings.Contains(string(said), "you have 16 event streams of this instance open") {
			t.Errorf("one more stream is answered %s", said)
		}
	}
	take := func(page dashboardPage) {
		t.Helper()
		for range 16 {
			openEventsAt(t, page.url+"api/events", "", page.with("X-Hooks-Dashboard", "1").headers...).next("hello")
		}
		refuses(page)
		if overview := page.api("GET", "overview", ""); overview.Status != 200 {
			t.Errorf("and the overview is answered %d %s", overview.Status, overview.Body)
		}
	}
	dashboard := dashboardPage{t: t, url: s.URL + "/dashboard/"}
	take(dashboard.as("alice"))
	take(dashboard.as("ops"))
	// Where everybody has the same name, addresses tell them apart, and a customer of a provider has a /64.
	open := dashboardPage{t: t, url: s.URL + "/open/"}
	take(open.with("X-Forwarded-For", "2001:db8:0:1::1"))
	refuses(open.with("X-Forwarded-For", "2001:db8:0:1::2"))
	openEventsAt(t, open.url+"api/events", "", "X-Hooks-Dashboard", "1", "X-Forwarded-For", "2001:db8:0:2::1").next("hello")
	openEvents(t, s, "", "").next("hello")
}

// Caddy's servers wait for requests when they shut down.
func TestAReloadEndsStreamsAtOnceAndTheyGoOn(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "store memory"))
	openEvents(t, s, "", "").next("hello")
	before := runtime.NumGoroutine()
	var streams []*eventStream
	for range 15 {
		stream := openEvents(t, s, "?topics=runs", "")
		stream.next("hello")
		streams = append(streams, stream)
	}
	s.Load(hookstest.Hooks(rn, "store memory\nworkers 3"))
	for _, stream := range streams {
		if got := stream.next("bye").data; got != `{"reason":"reload"}` {
			t.Errorf("got %s", got)
		}
		if event, more := <-stream.events; more {
			t.Errorf("after the bye there is %+v", event)
		}
		stream.close()
	}
	s.Settle()
	stream := openEvents(t, s, "?topics=runs", "")
	stream.next("hello")
	id := s.Accept(`{"message":"hello"}`)
	stream.runIs(id, "completed")
	stream.close()
	http.DefaultClient.CloseIdleConnections()
	hookstest.Eventually(t, "the goroutines of the streams are gone", func() bool { return runtime.NumGoroutine() <= before+8 })
}

// overviewOf asks for the overview.
func overviewOf(t testing.TB, s *hookstest.Server, query string) (o overviewView) {
	t.Helper()
	resp := s.AdminRequest("GET", "/hooks/overview"+query, "")
	if err := json.Unmarshal([]byte(resp.Body), &o); err != nil || resp.Status != 200 {
		t.Fatalf("got %d %s, %v", resp.Status, resp.Body, err)
	}
	return o
}

type overviewView struct {
	Range       string
	StepSeconds int
	Now         time.Time
	Figures     map[string]*float64
	Attention   []needView `json:"attention"`
	Series      []struct {
		Name, Unit string
		Points     [][2]*float64
	}
	Hooks []struct {
		Name, Action              string
		Accepted, Ended, Failed   int
		MedianSeconds, P95Seconds *float64
		LastAt                    time.Time
		Points                    [][2]*float64
	}
}

type needView struct{ Kind, Text, Detail, Link, Severity string }

// figure is one of the figures, -1 if it is null.
func (o overviewView) figure(name string) float64 {
	if value := o.Figures[name]; value != nil {
		return *value
	}
	return -1
}

// need finds a need by its kind.
func (o overviewView) need(t testing.TB, kind string) needView {
	t.Helper()
	for _, need := range o.Attention {
		if need.Kind == kind {
			return need
		}
	}
	t.Fatalf("there is no need %s: %+v", kind, o.Attention)
	return needView{}
}

// sum adds up a series.
func (o overviewView) sum(t testing.TB, name string) (sum float64) {
	t.Helper()
	for _, series := range o.Series {
		if series.Name == name {
			for _, point := range series.Points {
				if point[1] != nil {
					sum += *point[1]
				}
			}
			return sum
		}
	}
	t.Fatalf("there is no series %s", name)
	return 0
}

func TestTheOverviewTellsWhatHappened(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	defer gone.Close()
	rc := hookstest.StartReceiver(t)
	refusing := "http://127.0.0.1:" + hookstest.FreePort(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks+`
		workers 2
		hook failing {
			action agent
			template fail
			chat_id fail
		}
		hook idle {
			action agent
			template hello
		}
	`))
	empty := overviewOf(t, s, "")
	if empty.Range != "1h" || empty.StepSeconds != 60 || empty.figure("accepted") != 0 || empty.figure("medianSeconds") != -1 || len(empty.Attention) != 0 {
		t.Errorf("at first there is %+v", empty)
	}
	ended := func(id, status string) {
		t.Helper()
		if run := s.Ended(id); run.Status != status {
			t.Errorf("a run is %s, want %s", run.Status, status)
		}
	}
	for range 3 {
		ended(s.Accept(`{"message":"fine"}`), "completed")
	}
	for range 12 {
		ended(s.Post("/api/hooks/failing", `{}`).Field(t, "runId").(string), "failed")
	}
	ended(s.CallBack("delivered", rc.URL), "completed")
	rc.Next()
	for i := range 3 {
		ended(s.CallBack(fmt.Sprint("dead ", i), gone.URL), "completed")
	}
	ended(s.CallBack("pending", refusing), "completed")
	for range 25 {
		if resp := s.Request("POST", "/api/hooks/agent", "{}", "Authorization", "Bearer wrong"); resp.Status != 401 && resp.Status != 429 {
			t.Errorf("got %d", resp.Status)
		}
	}
	isHeld := func() {
		t.Helper()
		for rn.Next().Text("message") != "hold" {
		}
	}
	s.Accept(`{"message":"hold","chatId":"a"}`)
	isHeld()
	tooLong := s.Accept(`{"message":"hold","timeoutSeconds":1}`)
	isHeld()
	s.Accept(`{"message":"hold","chatId":"b"}`)
	expired := s.Accept(`{"message":"never","queueTimeSeconds":1}`)
	cancelled := s.Accept(`{"message":"never"}`)
	s.CancelRun(cancelled)
	ended(tooLong, "timed_out")
	ended(expired, "expired")
	isHeld()
	queued := s.Accept(`{"message":"waits"}`)
	hookstest.Eventually(t, "the deliveries are settled", func() bool {
		return len(s.Deliveries("status=dead")) == 3 && len(s.Deliveries("status=delivered")) == 1
	})

	hookstest.Eventually(t, "every end is counted, which is soon after it is stored", func() bool {
		return overviewOf(t, s, "").figure("ended") == 23
	})
	o := overviewOf(t, s, "?range=1h")
	for name, want := range map[string]float64{
		"accepted": 26, "ended": 23, "completed": 8, "failed": 12, "timedOut": 1, "expired": 1, "cancelled": 1, "running": 2, "workers": 2, "queued": 1,
		"delivered": 1, "pending": 1, "dead": 3,
	} {
		if got := o.figure(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	median, p95, p99 := o.figure("medianSeconds"), o.figure("p95Seconds"), o.figure("p99Seconds")
	if median < 0 || median > 5 || p95 < median || p95 > 10 || p99 < p95 || p99 > 10 {
		t.Errorf("the median is %v, 95 %% take %v and 99 %% take %v", median, p95, p99)
	}
	for name, want := range map[string]float64{"accepted": 26, "ended.completed": 8, "ended.failed": 12, "ended.timed_out": 1, "ended.cancelled": 1,
		"ended.expired": 1, "requests.4xx": 25, "requests.5xx": 0, "queue.depth": 1} {
		if got := o.sum(t, name); got != want && name != "queue.depth" || name == "queue.depth" && got < want {
			t.Errorf("the series %s comes to %v, want %v", name, got, want)
		}
	}
	if o.sum(t, "requests.2xx") < 25 {
		t.Errorf("%v requests were answered well", o.sum(t, "requests.2xx"))
	}
	if len(o.Series) != 17 || len(o.Series[0].Points) != 60 || *o.Series[0].Points[59][0] > float64(o.Now.Unix()) || *o.Series[0].Points[59][0] < float64(o.Now.Unix()-60) {
		t.Errorf("there are %d series of %d points, now is %v", len(o.Series), len(o.Series[0].Points), o.Now)
	}
	hooks := map[string]string{}
	for _, hook := range o.Hooks {
		hooks[hook.Name] = fmt.Sprint(hook.Action, hook.Accepted, hook.Ended, hook.Failed, hook.LastAt.IsZero(), hook.MedianSeconds == nil, len(hook.Points))
	}
	if got, want := fmt.Sprint(hooks), "map[agent:agent14 11 2false false60 failing:agent12 12 12false false60 idle:agent0 0 0true true60]"; strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("the hooks are %s", got)
	}

	dead := o.need(t, "dead_deliveries")
	host := strings.TrimPrefix(gone.URL, "http://")
	if dead.Text != "3 deliveries to "+host+" were given up" || !strings.Contains(dead.Detail, "410") || dead.Severity != "bad" ||
		dead.Link != "#/deliveries?host="+strings.ReplaceAll(host, ":", "%3A")+"&status=dead" {
		t.Errorf("got %+v", dead)
	}
	if !slices.ContainsFunc(o.Attention, func(n needView) bool {
		return n.Kind == "failing_hook" && n.Text == "12 of 12 runs of failing did not complete" && strings.Contains(n.Detail, "500")
	}) {
		t.Errorf("the failing hook is not among %+v", o.Attention)
	}
	refused := o.need(t, "refused_burst")
	if !strings.Contains(refused.Text, "requests to agent were refused within an hour") || refused.Severity != "late" {
		t.Errorf("got %+v", refused)
	}
	if o.Attention[0].Severity != "bad" || o.Attention[len(o.Attention)-1].Severity != "late" {
		t.Errorf("the worst is not the first: %+v", o.Attention)
	}
	for query, points := range map[string]int{"?range=6h": 72, "?range=24h": 72, "?range=7d": 84} {
		if o := overviewOf(t, s, query); len(o.Series[0].Points) != points || o.figure("accepted") != 26 {
			t.Errorf("%s has %d points, and %v runs", query, len(o.Series[0].Points), o.figure("accepted"))
		}
	}
	if got := s.AdminRequest("GET", "/hooks/overview?range=2h", ""); got.Status != 400 || !strings.Contains(got.Body, "range must be one of 1h, 6h, 24h and 7d") {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	close(release)
	ended(queued, "completed")

	s.Restart(hookstest.Hooks(rn, hookstest.WithCallbacks))
	o = overviewOf(t, s, "")
	if o.figure("accepted") != 26 || o.figure("completed") != 11 || o.figure("dead") != 3 || o.figure("failed") != 12 {
		t.Errorf("after a restart %v were accepted, %v completed, %v failed and %v deliveries are dead", o.figure("accepted"), o.figure("completed"), o.figure("failed"), o.figure("dead"))
	}
}

func TestTheOverviewTellsWhatIsNotInForce(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, "hooks {\nrunner http "+rn.URL+"\nchannel ops log\n}")
	o := overviewOf(t, s, "")
	if off := o.need(t, "off"); off.Text != "webhooks are off: enabled is not set, and no token is set" || off.Severity != "late" || off.Link != "#/settings" {
		t.Errorf("got %+v", off)
	}
	s.AdminRequest("PATCH", "/hooks/settings", `{"enabled":true,"token":"short"}`)
	o = overviewOf(t, s, "")
	if warning := o.need(t, "warning"); warning.Text != "token: the token has fewer than 16 characters and can be guessed" || !strings.HasPrefix(warning.Detail, "use a long random one") {
		t.Errorf("got %+v", warning)
	}
	if slices.ContainsFunc(o.Attention, func(n needView) bool { return n.Kind == "off" }) {
		t.Errorf("webhooks are on: %+v", o.Attention)
	}
	if resp := s.AdminRequest("PUT", "/hooks/mappings/old-alerts", `{"action":"agent","messageTemplate":"x","deliver":true,"channel":"ops","to":"1"}`); resp.Status/100 != 2 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	s.Restart("hooks {\nrunner http " + rn.URL + "\n}")
	o = overviewOf(t, s, "")
	if left := o.need(t, "not_in_force"); left.Text != "hook old-alerts is saved and not in force" || left.Link != "#/settings/hooks/old-alerts" || left.Detail == "" || left.Severity != "bad" {
		t.Errorf("got %+v", left)
	}
}
