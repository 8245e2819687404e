package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// fakeEvents is a source of events whose rows are their ids.
type fakeEvents struct {
	mu        sync.Mutex
	listeners int
	ids       [api.Topics][]string
	read      int // rows that were asked for
}

func (f *fakeEvents) publish(t api.Topic, ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids[t] = append(f.ids[t], ids...)
}

func (f *fakeEvents) listen() func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.listeners--
	}
}

func (*fakeEvents) hear(context.Context, api.Topic) {}

func (f *fakeEvents) count(t api.Topic) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(len(f.ids[t]))
}

func (f *fakeEvents) changed(t api.Topic, after uint64) (ids []string, others int, count uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := slices.Compact(slices.Clone(f.ids[t][after:]))
	others = max(0, len(news)-maxRows)
	return news[others:], others, uint64(len(f.ids[t]))
}

func (f *fakeEvents) rows(_ context.Context, _ api.Topic, ids []string, v view) (json.RawMessage, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read += len(ids)
	shown := []string{}
	for _, id := range ids {
		if id != "gone" {
			shown = append(shown, fmt.Sprint(id, []string{"", " hidden"}[v]))
		}
	}
	return encodeRows(shown)
}

func (f *fakeEvents) totals(context.Context, api.Topic) json.RawMessage {
	return json.RawMessage(`{"n":1}`)
}

// sentEvent is an event of a stream.
type sentEvent struct {
	name, id string
	data     struct {
		Runs, Deliveries []string
		Skipped, N       int
		Revision         int64
		By               string
	}
}

func parseEvents(t *testing.T, text []byte) (events []sentEvent) {
	t.Helper()
	for block := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n\n"), "\n\n") {
		if block == "" {
			continue
		}
		var event sentEvent
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "event":
				event.name = value
			case "id":
				event.id = value
			case "data":
				if err := json.Unmarshal([]byte(value), &event.data); err != nil {
					t.Fatalf("the data of %q: %v", block, err)
				}
			}
		}
		events = append(events, event)
	}
	return events
}

// reader collects the events of a stream.
type reader struct {
	t      *testing.T
	stream *EventStream
	mu     sync.Mutex
	events []sentEvent
	stop   chan struct{}
	over   sync.WaitGroup
}

// openAs opens a stream of an account.
func openAs(t *testing.T, hub *eventHub, account string, v view, about ...api.Topic) *EventStream {
	t.Helper()
	stream, err := hub.Open(account, about, v)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func read(t *testing.T, hub *eventHub, v view, about ...api.Topic) *reader {
	t.Helper()
	r := &reader{t: t, stream: openAs(t, hub, "ops", v, about...), stop: make(chan struct{})}
	r.over.Go(func() {
		for {
			text, news := r.stream.Next()
			r.mu.Lock()
			r.events = append(r.events, parseEvents(t, text)...)
			r.mu.Unlock()
			select {
			case <-news:
			case <-r.stop:
				return
			}
		}
	})
	return r
}

func (r *reader) take() []sentEvent {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

func (r *reader) close() {
	close(r.stop)
	r.over.Wait()
	r.stream.Close()
}

// withHub runs a test with a hub, in virtual time.
func withHub(t *testing.T, test func(t *testing.T, hub *eventHub, source *fakeEvents)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		source := new(fakeEvents)
		hub := newEventHub(source)
		test(t, hub, source)
		hub.shut()
		if source.listeners != 0 {
			t.Errorf("%d still listen", source.listeners)
		}
	})
}

func TestAStreamHasFourFramesASecondAtMost(t *testing.T) {
	t.Parallel()
	withHub(t, func(t *testing.T, hub *eventHub, source *fakeEvents) {
		r := read(t, hub, WithTexts, api.TopicRuns, api.TopicDeliveries, api.TopicOverview, api.TopicSettings)
		other := read(t, hub, WithTexts, api.TopicRuns)
		for i := range 10_000 { // ten seconds
			source.publish(api.TopicRuns, fmt.Sprint("run ", i), fmt.Sprint("run ", i, " b"))
			source.publish(api.TopicDeliveries, fmt.Sprint("delivery ", i))
			hub.settingsChanged(int64(i), "ops")
			time.Sleep(time.Millisecond)
		}
		count, rows, skipped := map[string]int{}, 0, 0
		for _, event := range r.take() {
			count[event.name]++
			rows += len(event.data.Runs)
			skipped += event.data.Skipped
			if len(event.data.Runs) > maxRows || len(event.data.Deliveries) > maxRows {
				t.Errorf("a frame has %d runs and %d deliveries", len(event.data.Runs), len(event.data.Deliveries))
			}
		}
		if n := count["runs"] + count["deliveries"] + count["settings"] + count["overview"]; n > 40 || n < 38 {
			t.Errorf("there were %d frames in ten seconds: %v", n, count)
		}
		if count["runs"] < 10 || count["deliveries"] < 10 || count["settings"] < 10 || count["overview"] != 2 {
			t.Errorf("the topics do not share: %v", count)
		}
		if skipped < 25_000 {
			t.Errorf("%d rows were sent and %d skipped", rows, skipped)
		}
		if source.read > 50*40 {
			t.Errorf("%d rows were read: frames are not shared", source.read)
		}
		r.close()
		other.close()
	})
}

// Whoever opens and closes streams in turn must not make the frames of the others come faster.
func TestStreamsThatEndBringNoFrame(t *testing.T) {
	t.Parallel()
	withHub(t, func(t *testing.T, hub *eventHub, source *fakeEvents) {
		r := read(t, hub, WithTexts, api.TopicRuns)
		for i := range 100 {
			source.publish(api.TopicRuns, fmt.Sprint("run ", i))
			read(t, hub, WithTexts, api.TopicRuns).close()
			synctest.Wait()
		}
		time.Sleep(2 * frameEvery)
		if events := r.take(); len(events) != 1 || len(events[0].data.Runs)+events[0].data.Skipped != 100 {
			t.Errorf("got %d frames: %+v", len(events), events)
		}
		r.close()
	})
}

func TestAFrameTellsWhatHasChanged(t *testing.T) {
	t.Parallel()
	withHub(t, func(t *testing.T, hub *eventHub, source *fakeEvents) {
		r, hidden := read(t, hub, WithTexts, api.TopicRuns, api.TopicSettings), read(t, hub, WithoutTexts, api.TopicRuns)
		source.publish(api.TopicRuns, "a", "b", "gone")
		source.publish(api.TopicDeliveries, "not wanted")
		hub.settingsChanged(7, "ops@example.com")
		time.Sleep(time.Second)
		events := r.take()
		if len(events) != 2 || events[0].name != "runs" || events[1].name != "settings" {
			t.Fatalf("got %+v", events)
		}
		if data := events[0].data; !slices.Equal(data.Runs, []string{"a", "b"}) || data.Skipped != 1 || data.N != 1 {
			t.Errorf("got %+v", data)
		}
		if data := events[1].data; data.Revision != 7 || data.By != "ops@example.com" {
			t.Errorf("got %+v", data)
		}
		if events := hidden.take(); len(events) != 1 || !slices.Equal(events[0].data.Runs, []string{"a hidden", "b hidden"}) {
			t.Errorf("a stream without texts got %+v", events)
		}
		time.Sleep(time.Minute)
		if events := r.take(); len(events) != 0 {
			t.Errorf("nothing has happened, and there is %+v", events)
		}
		r.close()
		hidden.close()
	})
}

func TestASlowStreamIsToldHowManyRowsItMissed(t *testing.T) {
	t.Parallel()
	withHub(t, func(t *testing.T, hub *eventHub, source *fakeEvents) {
		slow := openAs(t, hub, "ops", WithTexts, api.TopicRuns)
		for i := range 8 {
			source.publish(api.TopicRuns, fmt.Sprint("run ", i), fmt.Sprint("run ", i, " b"))
			time.Sleep(frameEvery)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		text, _ := slow.Next()
		events := parseEvents(t, text)
		if len(events) != 1 || len(events[0].data.Runs)+events[0].data.Skipped != 16 {
			t.Errorf("got %+v, want one frame that tells of 16 rows", events)
		}
		if text, _ := slow.Next(); len(text) > 0 {
			t.Errorf("and then %s", text)
		}
		slow.Close()
	})
}

func TestAStreamGoesOnWhereItBrokeOff(t *testing.T) {
	t.Parallel()
	withHub(t, func(t *testing.T, hub *eventHub, source *fakeEvents) {
		r := read(t, hub, WithTexts, api.TopicRuns, api.TopicDeliveries, api.TopicSettings)
		hello := parseEvents(t, r.stream.Hello([]byte(`{}`)))
		source.publish(api.TopicRuns, "seen")
		time.Sleep(time.Second)
		events := r.take()
		lastID := events[len(events)-1].id
		for i := range 30 {
			source.publish(api.TopicRuns, fmt.Sprint("run ", i), fmt.Sprint("run ", i, " b"), "busy")
			time.Sleep(frameEvery)
		}
		hub.settingsChanged(8, "ops")
		source.publish(api.TopicDeliveries, "delivery")
		time.Sleep(time.Second)
		r.take()

		resume := func(id string, about ...api.Topic) []sentEvent {
			again := openAs(t, hub, "ops", WithTexts, about...)
			defer again.Close()
			return parseEvents(t, again.Resume(t.Context(), id))
		}
		missed := resume(lastID, api.TopicRuns, api.TopicDeliveries, api.TopicSettings)
		if len(missed) != 3 || missed[0].name != "runs" || missed[1].name != "deliveries" || missed[2].name != "settings" {
			t.Fatalf("got %+v", missed)
		}
		runs := missed[0].data
		if len(runs.Runs) != maxRows || runs.Skipped != 61-maxRows || slices.Contains(runs.Runs, "seen") || !slices.Contains(runs.Runs, "busy") {
			t.Errorf("got %d runs and %d skipped: %q", len(runs.Runs), runs.Skipped, runs.Runs)
		}
		if missed[2].data.Revision != 8 || !slices.Equal(missed[1].data.Deliveries, []string{"delivery"}) {
			t.Errorf("got %+v", missed)
		}
		if again := resume(missed[2].id, api.TopicRuns, api.TopicDeliveries, api.TopicSettings); len(again) != 0 {
			t.Errorf("and then %+v", again)
		}
		if all := resume(hello[0].id, api.TopicDeliveries); len(all) != 1 || all[0].name != "deliveries" {
			t.Errorf("after the hello there is %+v", all)
		}
		for _, unknown := range []string{"", "x", "other-1", hub.epoch + "-9999", hub.epoch + "--1", hub.epoch} {
			if got := resume(unknown, api.TopicRuns); len(got) != 1 || got[0].name != "reset" {
				t.Errorf("after %q there is %+v, want a reset", unknown, got)
			}
		}
		for i := range 2 * rememberedFrames {
			source.publish(api.TopicRuns, fmt.Sprint("more ", i))
			time.Sleep(frameEvery)
		}
		time.Sleep(time.Second)
		if got := resume(lastID, api.TopicRuns); len(got) != 1 || got[0].name != "reset" {
			t.Errorf("long after there is %+v, want a reset", got)
		}
		if len(hub.recent) > rememberedFrames {
			t.Errorf("%d frames are remembered", len(hub.recent))
		}
		r.close()
	})
}

func TestEventsAreRememberedForAMinuteWithoutStreams(t *testing.T) {
	t.Parallel()
	withHub(t, func(t *testing.T, hub *eventHub, source *fakeEvents) {
		r := read(t, hub, WithTexts, api.TopicRuns)
		lastID := parseEvents(t, r.stream.Hello([]byte(`{}`)))[0].id
		r.close()
		time.Sleep(eventLinger / 2)
		source.publish(api.TopicRuns, "meanwhile")
		read1 := source.read
		time.Sleep(time.Second)
		if source.read != read1 {
			t.Error("rows are read though nobody is there")
		}
		r = read(t, hub, WithTexts, api.TopicRuns)
		if got := r.stream.Resume(t.Context(), lastID); len(got) != 0 {
			t.Errorf("got %s at once", got)
		}
		time.Sleep(time.Second)
		if events := r.take(); len(events) != 1 || !slices.Equal(events[0].data.Runs, []string{"meanwhile"}) {
			t.Errorf("got %+v", events)
		}
		r.close()
		time.Sleep(2 * eventLinger)
		synctest.Wait()
		if source.listeners != 0 || hub.listening() {
			t.Error("it still listens")
		}
		r = read(t, hub, WithTexts, api.TopicRuns)
		if got := parseEvents(t, r.stream.Resume(t.Context(), lastID)); len(got) != 1 || got[0].name != "reset" {
			t.Errorf("got %+v, want a reset", got)
		}
		r.close()
	})
}

func TestThereAreSixtyFourStreamsAtMost(t *testing.T) {
	t.Parallel()
	withHub(t, func(t *testing.T, hub *eventHub, _ *fakeEvents) {
		var all []*EventStream
		refused := func(account string, want error) {
			t.Helper()
			if _, err := hub.Open(account, []api.Topic{api.TopicRuns}, WithTexts); err == nil || err.Error() != want.Error() {
				t.Errorf("%s: got %v, want %v", account, err, want)
			}
		}
		for i := range maxStreams {
			account := fmt.Sprint("user ", i/maxStreamShare)
			all = append(all, openAs(t, hub, account, WithTexts, api.TopicRuns))
			if i%maxStreamShare == maxStreamShare-1 {
				refused(account, errStreamShare)
			}
		}
		refused("another", errManyStreams)
		all[0].Close()
		refused("user 1", errStreamShare)
		all[0] = openAs(t, hub, "another", WithTexts, api.TopicRuns)
		for _, stream := range all {
			stream.Close()
		}
		if len(hub.shares) != 0 {
			t.Errorf("the hub remembers %v", hub.shares)
		}
	})
}

func FuzzParseTopics(f *testing.F) {
	f.Add("runs,overview")
	f.Add(",")
	f.Fuzz(func(t *testing.T, names string) {
		about, err := api.ParseTopics(names)
		if err == nil && (len(about) == 0 || len(about) > int(api.Topics)) {
			t.Errorf("%q is %v", names, about)
		}
	})
}
