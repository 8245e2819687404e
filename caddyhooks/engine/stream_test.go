package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
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
func (r *reader) read() (told []string, err error) {
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
			told = append(told, string(event.Status))
		case engine.EventDelta:
			r.text += event.Text
			told = append(told, "+"+event.Text)
		case engine.EventReset:
			r.text = event.Text
			told = append(told, "="+event.Text)
		}
	}
	r.log = append(r.log, told...)
	return told, err
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
		follow(t, e, second, 0).next("EOF")
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
