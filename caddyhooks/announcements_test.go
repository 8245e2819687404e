package caddyhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func init() {
	caddy.RegisterModule(new(eventRecorder))
}

// eventRecorder is an event handler as others write them: on <event> hooks_recorder <label>. It notes the events in the list that
// has its label.
type eventRecorder struct {
	Label string `json:"label"`
}

func (*eventRecorder) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.hooks_recorder", New: func() caddy.Module { return new(eventRecorder) }}
}

func (r *eventRecorder) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.AllArgs(&r.Label) {
		return d.ArgErr()
	}
	return nil
}

func (r *eventRecorder) Handle(ctx context.Context, event caddy.Event) error {
	list, ok := recordedEvents.Load(r.Label)
	if !ok {
		return nil
	}
	repl := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if id, _ := repl.GetString("event.data.run_id"); id != "" && id != event.Data["run_id"] {
		return fmt.Errorf("the placeholder is %s", id)
	}
	list.(*eventList).add(event)
	return nil
}

var recordedEvents sync.Map // by label

type eventList struct {
	mu     sync.Mutex
	events []caddy.Event
	hold   chan struct{} // if it is set, handlers wait until it is closed
	calls  atomic.Int32
}

// recordEvents returns the list of a label.
func recordEvents(t *testing.T, label string) *eventList {
	l := new(eventList)
	recordedEvents.Store(label, l)
	t.Cleanup(func() { recordedEvents.Delete(label) })
	return l
}

func (l *eventList) add(event caddy.Event) {
	l.calls.Add(1)
	if l.hold != nil {
		<-l.hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	event.Data = maps.Clone(event.Data) // which all handlers share
	l.events = append(l.events, event)
	if event.Data["hook"] == "panics" {
		panic("a handler that panics")
	}
}

func (l *eventList) all() []caddy.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// wait waits for n events, and returns them.
func (l *eventList) wait(t *testing.T, n int) []caddy.Event {
	t.Helper()
	hookstest.Eventually(t, fmt.Sprintf("%d events", n), func() bool { return len(l.all()) >= n })
	return l.all()
}

// wantEvent checks an event of this module.
func wantEvent(t *testing.T, event caddy.Event, name, data string) {
	t.Helper()
	if _, ok := event.Data["took_seconds"].(float64); ok {
		delete(event.Data, "took_seconds")
	}
	got, err := json.Marshal(event.Data)
	if err != nil {
		t.Fatal(err)
	}
	if event.Name() != name || event.Origin() == nil || event.Origin().CaddyModule().ID != "hooks.events" || string(got) != data {
		t.Errorf("got %s %s from %v\nwant %s %s", event.Name(), got, event.Origin(), name, data)
	}
}

// failOrReply is a runner that fails if the message says so.
func failOrReply(w http.ResponseWriter, r *http.Request, turn hookstest.Turn) {
	if strings.Contains(turn.Text("message"), "fail") {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	hookstest.ReplyText("a secret reply")(w, r, turn)
}

func TestCaddyEventsTellHowRunsEnded(t *testing.T) {
	rn, failed, all := hookstest.StartRunner(t, failOrReply), recordEvents(t, "failed"), recordEvents(t, "all")
	receiver := hookstest.StartReceiver(t)
	s := hookstest.NewServer(t)
	s.Globals = "events {\n on hooks.run.failed hooks_recorder failed\n on * hooks_recorder all\n}\n"
	s.Load(hookstest.Hooks(rn, hookstest.WithCallbacks+" workers 1\n hook panics"))
	good := s.Accept(`{"message":"a secret message","chatId":"a secret chat"}`)
	s.Ended(good)
	bad := s.Accept(`{"message":"fail","callbackUrl":"` + receiver.URL + `/a-secret-path"}`)
	s.Ended(bad)
	wantEvent(t, failed.wait(t, 1)[0], "hooks.run.failed",
		`{"action":"agent","failure":"runner_failed","hook":"agent","instance":"default","run_id":"`+bad+`","runner":"default","status":"failed","test":false}`)
	// A handler that panics takes nothing down, and others get the next events.
	s.Post("/api/hooks/panics", "{}")
	s.PatchSettings(`{"defaultTimeoutSeconds":60}`)
	var ours []caddy.Event
	hookstest.Eventually(t, "all events", func() bool {
		ours = slices.DeleteFunc(all.all(), func(e caddy.Event) bool { return !strings.HasPrefix(e.Name(), "hooks.") })
		return len(ours) >= 4
	})
	var names []string
	for _, event := range ours {
		names = append(names, event.Name())
		if text := fmt.Sprint(event.Data); strings.Contains(text, "secret") || strings.Contains(text, "fail ") {
			t.Errorf("the event has %s", text)
		}
	}
	if got := strings.Join(names, " "); len(ours) != 4 || !strings.HasPrefix(got, "hooks.run.finished hooks.run.failed") {
		t.Errorf("the events are %s", got)
	}
	wantEvent(t, ours[0], "hooks.run.finished",
		`{"action":"agent","failure":"","hook":"agent","instance":"default","run_id":"`+good+`","runner":"default","status":"completed","test":false}`)
	changed := ours[slices.Index(names, "hooks.settings.changed")]
	wantEvent(t, changed, "hooks.settings.changed", `{"by":"admin","instance":"default","more":0,"settings":"defaultTimeoutSeconds","via":"admin API"}`)
	if n := len(failed.all()); n != 1 {
		t.Errorf("%d failed runs were announced", n)
	}
}

func TestCaddyEventsTellOfCancelledAndExpiredRunsAndDeadDeliveries(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusBadRequest)
	})
	all := recordEvents(t, "all")
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(refuses.Close)
	receiver := refuses.URL
	s := hookstest.NewServer(t)
	s.Globals = "events {\n on hooks.run.failed hooks_recorder all\n on hooks.run.finished hooks_recorder all\n on hooks.delivery.dead hooks_recorder all\n}\n"
	s.Load(hookstest.Hooks(rn, hookstest.WithCallbacks+" workers 1\n queue_time 1s"))
	running := s.Accept(`{"message":"a","callbackUrl":"` + receiver + `/a-secret-path"}`)
	rn.Next()
	late := s.Accept(`{"message":"b"}`)
	s.Ended(late)
	s.CancelRun(running)
	close(release)
	s.Ended(running)
	events := all.wait(t, 3)
	shown := make(map[string]caddy.Event)
	for _, event := range events {
		shown[event.Name()] = event
	}
	if len(events) != 3 || len(shown) != 3 {
		t.Fatalf("the events are %v", events)
	}
	wantEvent(t, shown["hooks.run.failed"], "hooks.run.failed",
		`{"action":"agent","failure":"","hook":"agent","instance":"default","run_id":"`+late+`","runner":"default","status":"expired","test":false}`)
	wantEvent(t, shown["hooks.run.finished"], "hooks.run.finished",
		`{"action":"agent","failure":"","hook":"agent","instance":"default","run_id":"`+running+`","runner":"default","status":"cancelled","test":false}`)
	gone := shown["hooks.delivery.dead"]
	delete(gone.Data, "delivery_id")
	wantEvent(t, gone, "hooks.delivery.dead", `{"attempts":1,"channel":"","hook":"agent","host":"`+strings.TrimPrefix(receiver, "http://")+
		`","instance":"default","last_status":410,"run_id":"`+running+`"}`)
}

// Each event is for the handlers of the newest configuration, and for no others. Those of a run that ends while Caddy stops are
// emitted, too.
func TestCaddyEventsFollowReloads(t *testing.T) {
	rn := hookstest.StartRunner(t, failOrReply)
	s := hookstest.NewServer(t)
	var want []string
	load := func(label string) *eventList {
		list := recordEvents(t, label)
		s.Globals = "events {\n on hooks.run.finished hooks_recorder " + label + "\n}\n"
		s.Load(hookstest.Hooks(rn, "drain_timeout 20s"))
		s.Settle()
		return list
	}
	first := load("first")
	for range 5 {
		want = append(want, s.Accept(`{"message":"a"}`))
	}
	first.wait(t, 5)
	second := load("second")
	s.Globals = "events {\n on hooks.run.finished hooks_recorder third\n}\n"
	if err := s.TryLoad(hookstest.Hooks(rn, "") + "\n bind 203.0.113.1"); err == nil {
		t.Fatal("a configuration was loaded that cannot be started")
	}
	for range 5 {
		want = append(want, s.Accept(`{"message":"a"}`))
	}
	second.wait(t, 5)
	want = append(want, s.Accept(`{"message":"a"}`))
	s.Stop()
	var got []string
	for _, event := range append(first.all(), second.all()...) {
		got = append(got, event.Data["run_id"].(string))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(first.all()) != 5 {
		t.Errorf("of %d runs %d were announced, %d of them by the first configuration", len(want), len(got), len(first.all()))
	}
}

// Handlers that hang hold up no run, and neither memory nor the end of Caddy.
func TestSlowHandlersOfCaddyEventsHoldUpNothing(t *testing.T) {
	slow := recordEvents(t, "slow")
	slow.hold = make(chan struct{})
	s := hookstest.NewServer(t)
	s.Globals = "events {\n on hooks.run.finished hooks_recorder slow\n}\n"
	s.Load("hooks {\n enabled\n runner echo\n token " + hookstest.Token + "\n store memory\n history off\n hook storm {\n each $[*]\n }\n}")
	for range 12 { // more than may wait
		if resp := s.Post("/api/hooks/storm", "["+strings.Repeat("1,", 99)+"1]"); resp.Status != 200 {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
	}
	hookstest.Eventually(t, "all runs have ended", func() bool {
		queued, _ := s.Listed("?status=queued&limit=1")
		running, _ := s.Listed("?status=running&limit=1")
		return len(queued)+len(running) == 0
	})
	if calls := slow.calls.Load(); calls != 1 {
		t.Errorf("%d events are being handled", calls)
	}
	close(slow.hold)
	handled := slow.wait(t, 1001)
	s.Stop()
	if n := len(slow.all()); n != 1001 {
		t.Errorf("%d events were handled, %d at first", n, len(handled))
	}
}
