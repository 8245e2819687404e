package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

func TestWhatIsSaidOnAnotherNodeIsTold(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		says := make(speaker)
		a := startOn(t, open(), longLease(acceptsOnly(config(echo))))
		b := startOn(t, open(), longLease(config(says)))
		blocker, run := newRun("chat", ""), newRun("chat", "")
		submit(t, a, blocker)
		submit(t, a, run)
		early := follow(t, a, run, 0)
		early.next("queued")
		says <- sayNoMore
		early.next("running")
		var want strings.Builder
		for i := range 1000 {
			text := fmt.Sprint(i, "é")
			want.WriteString(text)
			says <- text
		}
		there := follow(t, b, run, 0)
		for len(there.text) < want.Len() {
			if _, err := there.read(); err != nil {
				t.Fatal(err)
			}
		}
		for len(early.text) < want.Len() {
			if _, err := early.read(); err != nil {
				t.Fatal(err)
			}
		}
		if early.last != there.last {
			t.Errorf("the last events are %d and %d", early.last, there.last)
		}
		// Readers change nodes.
		for from, to := range map[*reader]*engine.Engine{early: b, there: a} {
			moved := follow(t, to, run, from.last)
			says <- "more"
			moved.next("+more")
			if moved.last != from.last+4 {
				t.Errorf("event %d comes after %d", moved.last, from.last)
			}
			moved.Close()
			if _, err := from.read(); err != nil {
				t.Fatal(err)
			}
			if other := early; from == early {
				other = there
				_, _ = other.read()
			} else {
				_, _ = other.read()
			}
		}
		says <- sayNoMore
		early.all()
		there.all()
		want.WriteString("moremore")
		if early.text != want.String() || there.text != want.String() {
			t.Errorf("%d and %d bytes were told, want %d", len(early.text), len(there.text), want.Len())
		}
		for _, r := range []*reader{early, there} {
			for _, sent := range r.log {
				if sent[0] == '=' {
					t.Errorf("there was a reset")
				}
			}
			r.Close()
		}
		atRestInABubble(t, a, b)
	})
}

// A node that follows gets a long text in many frames. A reader whose place is in one of the last is not sent back.
func TestAReaderGoesOnOnAnotherNodeFarBehindTheBeginning(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open func() engine.Store) {
		says := make(speaker)
		a := startOn(t, open(), longLease(acceptsOnly(config(echo))))
		b := startOn(t, open(), longLease(config(says)))
		run := newRun("chat", "")
		submit(t, a, run)
		for range 20 {
			says <- strings.Repeat("0123456789", 5000)
		}
		r := follow(t, b, run, 0)
		for len(r.text) < 1e6 {
			if _, err := r.read(); err != nil {
				t.Fatal(err)
			}
		}
		r.Close()
		moved := follow(t, a, run, r.last-5)
		moved.next("+56789")
		says <- sayNoMore
		moved.next("EOF")
		moved.Close()
		atRestInABubble(t, a, b)
	})
}

func TestARunThatGoesOnOnAnotherNodeBeginsAgainForItsFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		first, second := make(speaker), make(speaker)
		a := startOn(t, data.Store(), acceptsOnly(config(echo)))
		b := startOn(t, data.Store(), config(first))
		run := newRun("chat", "")
		submit(t, a, run)
		first <- "lost"
		r := follow(t, a, run, 0)
		r.next("running", "+lost")
		before := r.last
		go b.Stop()
		r.next("queued")
		c := startOn(t, data.Store(), config(second))
		r.next("running", "=")
		second <- "told"
		r.next("+told")
		for _, e := range []*engine.Engine{a, c} {
			back := follow(t, e, run, before)
			back.next("running", "=told")
			back.Close()
		}
		second <- sayNoMore
		r.next("EOF")
		r.Close()
		atRest(t, a, b, c)
	})
}

// A node whose lease is over may still have a turn that speaks.
func TestOnlyTheNewTurnIsToldWhenAClaimWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		first, second := make(chan string), make(speaker)
		deaf := runnerFunc(func(_ context.Context, turn engine.Turn) (engine.Reply, error) {
			for text := range first {
				turn.Emit(engine.Progress{Text: text})
			}
			return engine.Reply{Text: "lost"}, nil
		})
		var cut atomic.Bool // off from the store
		a := startOn(t, data.Store(), acceptsOnly(config(echo)))
		b := startOn(t, &tampered{Store: data.Store(), idle: cut.Load, renew: func(context.Context) error {
			if cut.Load() {
				return errors.New("no route to host")
			}
			return nil
		}}, config(deaf))
		run := newRun("chat", "")
		run.Timeout = time.Hour
		submit(t, a, run)
		first <- "lost"
		r := follow(t, a, run, 0)
		r.next("running", "+lost")
		cut.Store(true)
		c := startOn(t, data.Store(), config(second))
		second <- "told"
		synctest.Wait() // or the reader may be told of the new turn before it has said anything
		r.next("running", "=told")
		first <- "lost too"
		second <- " more"
		r.next("+ more")
		close(first)
		second <- sayNoMore
		r.next("EOF")
		r.Close()
		cut.Store(false)
		atRest(t, a, b, c)
	})
}

// lossyStore loses every third frame.
type lossyStore struct {
	engine.Store
	sent int
}

type lossyStreams struct {
	engine.Streams
	store *lossyStore
}

func (s *lossyStore) Streams() engine.Streams { return lossyStreams{s.Store.Streams(), s} }

func (s lossyStreams) Send(ctx context.Context, id string, frame engine.Frame) error {
	s.store.sent++
	if s.store.sent%3 == 0 && !frame.Over {
		return nil
	}
	return s.Streams.Send(ctx, id, frame)
}

func TestFramesThatAreLostAreAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.New()
		says := make(speaker)
		a := startOn(t, data.Store(), longLease(acceptsOnly(config(echo))))
		b := startOn(t, &lossyStore{Store: data.Store()}, longLease(config(says)))
		run := newRun("chat", "")
		run.Timeout = time.Hour
		submit(t, a, run)
		eventually(t, "it runs", isRunning(t, a, run))
		r := follow(t, a, run, 0)
		r.next("running")
		var want strings.Builder
		for i := range 100 {
			text := fmt.Sprint(i, " ")
			want.WriteString(text)
			says <- text
			time.Sleep(time.Second)
		}
		for len(r.text) < want.Len() {
			if _, err := r.read(); err != nil {
				t.Fatalf("after %d of %d bytes: %v", len(r.text), want.Len(), err)
			}
		}
		if r.text != want.String() {
			t.Errorf("told %q", r.text)
		}
		says <- sayNoMore
		r.all()
		r.Close()
		atRest(t, a, b)
	})
}

// atRestInABubble is atRest for engines that keep what was said for ten seconds: nobody waits for that in real time.
func atRestInABubble(t *testing.T, engines ...*engine.Engine) {
	t.Helper()
	if strings.HasSuffix(t.Name(), "/memory") {
		atRest(t, engines...)
	}
}
