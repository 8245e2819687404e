package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// speaker says what it is told to say, until it is told to end the turn.
type speaker chan string

const (
	sayNoMore = "."
	sayBusy   = "?"
)

func (s speaker) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	if turn.Repair > 0 {
		if turn.Emit != nil {
			turn.Emit(engine.Progress{Text: "a repair is not for those who follow"})
		}
		return engine.Reply{Text: "{}"}, nil
	}
	var all strings.Builder
	for {
		select {
		case text := <-s:
			switch text {
			case sayNoMore:
				return engine.Reply{Text: all.String()}, nil
			case sayBusy:
				return engine.Reply{}, &engine.UnavailableError{Busy: true, Err: errors.New("busy")}
			}
			all.WriteString(text)
			turn.Emit(engine.Progress{Text: text})
		case <-ctx.Done():
			return engine.Reply{}, ctx.Err()
		}
	}
}

// reader follows a run, and puts together what it says.
type reader struct {
	*engine.Follower
	t    *testing.T
	last int64 // event
	text string
	log  []string
}

func follow(t *testing.T, e *engine.Engine, run *engine.Run, after int64) *reader {
	r := &reader{Follower: e.Follow(run.ID, after), t: t, last: after}
	t.Cleanup(r.Close)
	return r
}

// next expects that there is news, in real time or in a bubble.
func (r *reader) next(want ...string) {
	r.t.Helper()
	var got []string
	for len(got) < max(len(want), 1) {
		events, err := r.read()
		if err != nil {
			got = append(got, err.Error())
			break
		}
		got = append(got, events...)
	}
	if !slices.Equal(got, want) {
		r.t.Fatalf("got %q, want %q", got, want)
	}
}

// all reads on until the run has ended.
func (r *reader) all() {
	r.t.Helper()
	for {
		if _, err := r.read(); err != nil {
			if !errors.Is(err, io.EOF) {
				r.t.Errorf("got %v instead of the end", err)
			}
			return
		}
	}
}

// read notes news.
func (r *reader) read() (got []string, err error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	events, err := r.Next(ctx)
	for _, event := range events {
		if event.ID != 0 && event.ID <= r.last && r.last < 1<<53 {
			r.t.Errorf("event %+v comes after %d", event, r.last)
		}
		if event.ID != 0 {
			r.last = event.ID
		}
		switch event.Kind {
		case engine.EventStatus:
			got = append(got, event.Status)
		case engine.EventDelta:
			r.text += event.Text
			got = append(got, "+"+event.Text)
		case engine.EventReset:
			r.text = event.Text
			got = append(got, "="+event.Text)
		}
	}
	r.log = append(r.log, got...)
	return got, err
}

func TestWhatARunnerSaysIsToldToThoseWhoFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		first, second := newRun("chat", ""), newRun("chat", "")
		second.Schema = json.RawMessage(`{"type":"object"}`)
		submit(t, e, first)
		submit(t, e, second)
		r := follow(t, e, second, 0)
		r.next("queued")
		says <- sayNoMore
		r.next("running")
		says <- "Let me "
		r.next("+Let me ")
		late := follow(t, e, second, 0)
		late.next("running", "+Let me ")
		says <- "think."
		r.next("+think.")
		again := follow(t, e, second, r.last)
		late.next("+think.")
		says <- sayNoMore
		for _, r := range []*reader{r, late, again} {
			r.next("EOF")
			r.next("EOF")
			r.Close()
			r.Close()
		}
		follow(t, e, second, r.last).next("EOF")
		if record := found(t, e, second); record.Status != engine.Completed || record.Outcome.Repairs != 1 {
			t.Errorf("got %+v", record)
		}
	})
}

func TestARunThatIsNotKnownCannotBeFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, config(echo))
		for _, id := range []string{"", "no id", "01a1e17b-9bcf-75a4-a00a-177800959d66"} {
			follow(t, e, &engine.Run{ID: id}, 0).next(engine.ErrNotFound.Error())
		}
	})
}

// A caller waits, so the runner is called again in the same turn.
func TestATurnThatBeginsAgainTakesBackWhatWasSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		run := syncRun("chat", "")
		outcomes := waitFor(t, e, run)
		says <- "lost"
		r := follow(t, e, run, 0)
		r.next("running", "+lost")
		silent := follow(t, e, run, 0)
		says <- sayBusy
		r.next("running", "=")
		silent.next("running")
		says <- "told"
		r.next("+told")
		silent.next("+told")
		says <- sayNoMore
		r.next("EOF")
		if outcome := <-outcomes; outcome.Text != "told" {
			t.Errorf("got %+v", outcome)
		}
	})
}

// Nobody waits, so the run goes back to the queue.
func TestARunThatGoesBackToTheQueueIsToldToFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		run := newRun("chat", "")
		submit(t, e, run)
		says <- "lost"
		r := follow(t, e, run, 0)
		r.next("running", "+lost")
		says <- sayBusy
		r.next("queued")
		back := follow(t, e, run, r.last)
		back.next("queued")
		r.next("running", "=")
		back.next("running", "=")
		says <- "told"
		r.next("+told")
		back.next("+told")
		says <- sayNoMore
		r.next("EOF")
	})
}

func TestAFollowerGoesOnAtAnyPlaceOfTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		run := newRun("chat", "")
		submit(t, e, newRun("chat", ""))
		submit(t, e, run)
		time.Sleep(time.Second)
		says <- sayNoMore
		const text = "aé漢🙂z"
		says <- text
		r := follow(t, e, run, 0)
		r.next("running", "+"+text)
		begin := r.last - int64(len(text))
		for at := range int64(len(text)) {
			back := follow(t, e, run, begin+at)
			back.last = 0
			if utf8.RuneStart(text[at]) {
				back.next("+" + text[at:])
			} else {
				back.next("running", "="+text)
			}
			back.Close()
		}
		for _, after := range []int64{-1, 1, begin - 2, r.last + 1, 1<<53 - 1, math.MaxInt64, math.MinInt64, -begin} {
			back := follow(t, e, run, after)
			events, err := back.Next(t.Context())
			if err != nil || len(events) != 2 || events[0].Status != string(engine.Running) || events[1].Kind != engine.EventReset || events[1].Text != text || events[1].ID != r.last {
				t.Errorf("after %d: got %+v, %v", after, events, err)
			}
			back.Close()
		}
		end := follow(t, e, run, r.last)
		says <- "!"
		end.next("+!")
		says <- sayNoMore
	})
}

func TestCharactersAreToldAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		run := newRun("chat", "")
		submit(t, e, run)
		r := follow(t, e, run, 0)
		const text = "aé漢🙂z"
		for i := range len(text) {
			says <- text[i : i+1]
			time.Sleep(time.Second)
		}
		says <- "\xf0\x9f" // never becomes one
		says <- sayNoMore
		r.all()
		if r.text != text+"\xf0\x9f" {
			t.Errorf("told %q", r.text)
		}
		for _, got := range r.log[:len(r.log)-1] {
			if !utf8.ValidString(got) {
				t.Errorf("told %q", got)
			}
		}
	})
}

func TestNoMoreThanAMegabyteIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		run := newRun("chat", "")
		submit(t, e, run)
		r := follow(t, e, run, 0)
		for range 1<<20/1000 + 10 {
			says <- strings.Repeat("x", 1000)
		}
		says <- sayNoMore
		r.all()
		if len(r.text) != 1<<20 {
			t.Errorf("%d bytes were told", len(r.text))
		}
		for _, got := range r.log {
			if len(got) > 32<<10+1 {
				t.Errorf("an event has %d bytes", len(got))
			}
		}
	})
}

// The pace depends on the number of all followers, also of other runs. What a runner says is merged meanwhile.
func TestFollowersArePaced(t *testing.T) {
	for followers, beat := range map[int]time.Duration{1: 20 * time.Millisecond, 100: 100 * time.Millisecond, 5000: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			says := make(speaker)
			e := start(t, config(says))
			run := newRun("chat", "")
			run.Timeout = time.Hour
			submit(t, e, run)
			synctest.Wait()
			r := follow(t, e, run, 0)
			r.next("running")
			for range followers - 1 {
				follow(t, e, run, 0)
			}
			time.Sleep(time.Minute)
			said := time.Now()
			says <- "x"
			r.next("+x")
			if took := time.Since(said); took != 0 {
				t.Errorf("%d followers: the first news came after %v", followers, took)
			}
			quick := time.NewTicker(time.Millisecond)
			defer quick.Stop()
			var ended sync.WaitGroup
			ended.Go(func() {
				for range 2000 {
					<-quick.C
					says <- "x"
				}
				says <- sayNoMore
			})
			last := time.Now()
			beats := 0
			for {
				got, err := r.read()
				if err != nil {
					break
				}
				if pause := time.Since(last); pause < beat && len(r.text) < 2001 {
					t.Errorf("%d followers: %q came %v after the news before", followers, got, pause)
				}
				last = time.Now()
				beats++
			}
			if want := int(2 * time.Second / beat); beats < want-1 || beats > want+2 || len(r.text) != 2001 {
				t.Errorf("%d followers: told %d bytes in %d times, want %d", followers, len(r.text), beats, want)
			}
			ended.Wait()
		})
	}
}

// Followers come, go on and leave while the runner speaks, each at its own pace.
func TestManyFollowersComeAndGo(t *testing.T) {
	says := make(speaker)
	e := start(t, config(says))
	run := newRun("chat", "")
	submit(t, e, run)
	const words = 3000
	var want strings.Builder
	var readers sync.WaitGroup
	said := make(chan struct{})
	for i := range 1000 {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			ctx := t.Context()
			var text strings.Builder
			after := int64(0)
			for {
				f := e.Follow(run.ID, after)
				for reads := random.IntN(20); reads >= 0 || i%10 == 0; reads-- {
					events, err := f.Next(ctx)
					for _, event := range events {
						if event.Status == string(engine.Queued) {
							continue // it has no position
						}
						if event.ID <= after {
							t.Errorf("event %d comes after %d", event.ID, after)
						}
						after = event.ID
						if event.Kind == engine.EventReset {
							text.Reset()
						}
						text.WriteString(event.Text)
					}
					if err != nil {
						f.Close()
						<-said
						if !errors.Is(err, io.EOF) {
							t.Errorf("got %v", err)
						} else if i%10 == 0 && text.String() != want.String() {
							t.Errorf("reader %d was told %d bytes, want %d", i, text.Len(), want.Len())
						} else if !strings.HasPrefix(want.String(), text.String()) {
							t.Errorf("reader %d was told something else", i)
						}
						return
					}
				}
				if i%3 == 0 {
					go f.Close()
					_, _ = f.Next(ctx) // is not held up
				}
				f.Close()
				if i%7 == 1 {
					return
				}
			}
		})
	}
	for i := range 50 { // some never read
		f := e.Follow(run.ID, int64(i))
		defer f.Close()
	}
	for i := range words {
		word := fmt.Sprint(i, "é ")
		want.WriteString(word)
		says <- word
	}
	says <- sayNoMore
	close(said)
	readers.Wait()
}

func TestStreamsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		run := newRun("chat", "")
		submit(t, e, run)
		says <- "hello"
		if n := e.Streams(); n != 1 {
			t.Errorf("there are %d streams while the run is carried out", n)
		}
		f := e.Follow(run.ID, 0)
		says <- sayNoMore
		synctest.Wait()
		if n := e.Streams(); n != 1 {
			t.Errorf("there are %d streams while somebody follows", n)
		}
		f.Close()
		for i := range 100 {
			e.Follow(fmt.Sprint("no run ", i), 0).Close()
		}
		atRest(t, e)
	})
}

// Followers that are unreachable when a run ends are told the rest when they come back, if that is soon.
func TestWhatWasSaidIsKeptForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		run, unfollowed, long := newRun("chat", ""), newRun("chat", ""), newRun("chat", "")
		submit(t, e, run)
		says <- "one "
		r := follow(t, e, run, 0)
		r.next("running", "+one ")
		r.Close()
		says <- "two "
		says <- sayNoMore
		synctest.Wait()
		for range 2 {
			back := follow(t, e, run, r.last)
			back.next("+two ")
			back.next("EOF")
			back.Close()
			time.Sleep(9 * time.Second / 2)
		}
		late := follow(t, e, run, r.last)
		time.Sleep(1001 * time.Millisecond) // coming back keeps nothing for longer
		follow(t, e, run, r.last).next("EOF")
		late.next("+two ")
		late.Close()
		submit(t, e, unfollowed)
		says <- "three"
		says <- sayNoMore
		submit(t, e, long)
		says <- "four"
		follow(t, e, long, 0).Close()
		time.Sleep(10*time.Second + 1)
		says <- sayNoMore
		synctest.Wait()
		if n := e.Streams(); n != 1 { // that of the follower which got its EOF
			t.Errorf("there are %d streams that nobody followed lately", n)
		}
	})
}

func TestLittleIsKeptOfRunsThatHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		said := func(text string) {
			run := newRun("chat", "")
			submit(t, e, run)
			says <- text
			f := e.Follow(run.ID, 0)
			says <- sayNoMore
			synctest.Wait()
			f.Close()
		}
		for range 300 {
			said("word")
		}
		if n := e.Streams(); n != 256 {
			t.Errorf("%d streams are kept", n)
		}
		for range 20 {
			said(strings.Repeat("0123456789abcdef", 1<<16))
		}
		if n := e.Streams(); n > 8 {
			t.Errorf("%d large streams are kept", n)
		}
		atRest(t, e)
	})
}

// A follower that got no more than the status of the first turn needs no reset.
func TestAFollowerThatHasNoTextGetsNoReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		run := newRun("chat", "")
		submit(t, e, run)
		synctest.Wait()
		r := follow(t, e, run, 0)
		r.next("running")
		says <- "one "
		back := follow(t, e, run, r.last)
		back.next("+one ")
		says <- sayBusy
		back.next("queued")
		back.next("running", "=")
		says <- "two "
		back.next("+two ")
		says <- sayNoMore
	})
}

// What a runner says when it has returned is not told, nor does it do harm.
func TestWhatIsSaidTooLateIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var emit func(engine.Progress)
		returned := make(chan struct{})
		e := start(t, config(runnerFunc(func(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
			if turn.Repair > 0 {
				emit(engine.Progress{Text: "late"})
				<-returned
				return engine.Reply{Text: "{}"}, nil
			}
			emit = turn.Emit
			emit(engine.Progress{Text: "in time"})
			return engine.Reply{Text: "no JSON"}, nil
		})))
		run := newRun("chat", "")
		run.Schema = json.RawMessage(`{"type":"object"}`)
		submit(t, e, run)
		synctest.Wait()
		r := follow(t, e, run, 0)
		r.next("running", "+in time")
		close(returned)
		r.next("EOF")
		emit(engine.Progress{Text: "too late"})
		r.next("EOF")
		r.Close()
		emit(engine.Progress{Text: "too late"})
		atRest(t, e)
	})
}

func TestFollowersAreLetGoWhenTheEngineStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		e := start(t, config(says))
		running, queued := newRun("chat", ""), newRun("chat", "")
		submit(t, e, running)
		submit(t, e, queued)
		says <- "hello"
		here, waits, never := follow(t, e, running, 0), follow(t, e, queued, 0), follow(t, e, running, 0)
		here.next("running", "+hello")
		waits.next("queued")
		e.BeginStop()
		waits.next(engine.ErrStopping.Error())
		waits.Close()
		says <- " world" // it has the drain time
		here.next("+ world")
		says <- sayNoMore
		here.next("EOF")
		e.Stop()
		follow(t, e, queued, 0).next(engine.ErrStopping.Error())
		never.all()
	})
}

// The store answers nothing for a while.
func TestARunIsFollowedAlthoughTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		says := make(speaker)
		var silent atomic.Bool
		e := startOn(t, &tampered{Store: memory.New().Store(), silent: &silent}, acceptsOnly(config(says)))
		run := newRun("chat", "")
		submit(t, e, run)
		silent.Store(true)
		r := follow(t, e, run, 0)
		time.Sleep(time.Minute)
		silent.Store(false)
		r.next("queued")
	})
}
