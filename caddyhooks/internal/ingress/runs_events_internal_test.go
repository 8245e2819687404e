package ingress

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// slowRunner says one word after a while, and answers much later.
type slowRunner struct{}

func (slowRunner) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	for _, pause := range []time.Duration{20 * time.Second, 40 * time.Second} {
		select {
		case <-time.After(pause):
			turn.Emit(engine.Progress{Text: "word"})
		case <-ctx.Done():
			return engine.Reply{}, ctx.Err()
		}
	}
	return engine.Reply{Text: "wordword"}, nil
}

func TestASilentRunGivesASignOfLifeEvery15Seconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(memory.New().Store())
		defer e.Stop()
		detach := e.Attach(engine.Config{
			Runners: map[string]engine.Runner{"slow": slowRunner{}}, DefaultRunner: "slow", Workers: 1, MaxAttempts: 1,
			Limits: engine.Limits{Queue: 10, Chat: 10, Retention: time.Hour}, Log: zap.NewNop(),
		})
		defer detach()
		run := &engine.Run{ChatID: "c", Hook: "agent", Action: engine.Agent, Message: "a", Timeout: time.Hour, Runner: "slow"}
		if err := e.Submit(t.Context(), run, 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until it is running
		w := httptest.NewRecorder()
		stream := newRunStream(w, sse.NewStreamEnd())
		defer stream.close()
		if err := stream.begin(); err != nil {
			t.Fatal(err)
		}
		if err := stream.follow(t.Context(), e, run.ID, 0); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for frame := range strings.SplitSeq(strings.TrimSpace(w.Body.String()), "\n\n") {
			first, _, _ := strings.Cut(frame, "\n")
			kinds = append(kinds, first)
		}
		want := "retry: 1000,event: status,: ping,event: delta,: ping,: ping,event: delta"
		if got := strings.Join(kinds, ","); got != want {
			t.Errorf("the stream is %s, want %s", got, want)
		}
	})
}

func TestTheNumberOfRunStreamsIsBounded(t *testing.T) {
	t.Parallel()
	var streams service.RunStreams
	var open []*service.RunReaders
	for i := range service.MaxRunStreams {
		readers := streams.Open(strconv.Itoa(i % 7))
		if readers == nil {
			t.Fatalf("stream %d is refused", i)
		}
		open = append(open, readers)
	}
	if streams.Open("8") != nil {
		t.Fatal("there can be more streams than the bound")
	}
	streams.Close(open[0])
	open[0] = streams.Open("8")
	if open[0] == nil {
		t.Fatal("a stream that ended still counts")
	}
	for _, readers := range open {
		streams.Close(readers)
	}
	if streams.Count != 0 || len(streams.Readers) != 0 {
		t.Errorf("without streams there are %d, of %d runs", streams.Count, len(streams.Readers))
	}
}

func TestReadersShareTheResult(t *testing.T) {
	t.Parallel()
	var streams service.RunStreams
	a, b := streams.Open("x"), streams.Open("x")
	if _, err := a.Result(func() ([]byte, error) { return nil, errors.New("not now") }); err == nil {
		t.Error("an error got lost")
	}
	made := 0
	show := func() ([]byte, error) { made++; return []byte("frame"), nil }
	first, _ := a.Result(show)
	second, _ := b.Result(show)
	if made != 1 || &first[0] != &second[0] {
		t.Errorf("the result was made %d times", made)
	}
}

func FuzzLastEventID(f *testing.F) {
	for _, seed := range []string{"", "0", "1", "-1", "+1", "9007199254740991", "9007199254740992", "1e3", " 1", "0x10", "1_000", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id := lastEventID([]string{text})
		if id < 0 || id > resultID {
			t.Errorf("%q is %d", text, id)
		}
		if id != 0 && strings.TrimLeft(text, "0") != strconv.FormatInt(id, 10) {
			t.Errorf("%q is %d", text, id)
		}
	})
}

func FuzzEventsAreOneLineEach(f *testing.F) {
	f.Add("a\nb\r\n\u2028<&>\x00\xff", int64(7))
	f.Fuzz(func(t *testing.T, text string, id int64) {
		var frame bytes.Buffer
		service.WriteEvent(&frame, "delta", id, struct {
			Text string `json:"text"`
		}{text})
		want := 4
		if id == 0 {
			want = 3
		}
		if got := strings.Count(frame.String(), "\n"); got != want || strings.Contains(frame.String(), "\r") {
			t.Errorf("the frame is %q", frame.String())
		}
	})
}
