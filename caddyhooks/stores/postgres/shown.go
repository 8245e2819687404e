package postgres

import (
	"fmt"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// shownRun is a row of show_runs_1: a run, as the functions that read runs give it out.
type shownRun struct {
	place                         int64
	id                            string
	chat, hook, runner, status    *string
	acceptedAt                    *time.Time
	startedAt, finishedAt         *time.Time
	attempts, folded              *int
	waitingFor                    *string
	againAs, foldedInto           *string
	run, ending, input, delivered []byte
}

const shownColumns = "place, id, chat, hook, runner, accepted_at, status, attempts, started_at, finished_at, waiting_for, again_as, " +
	"folded_into, folded, " +
	"run, ending, told, deliveries"

// columns are where to put what the columns of shownColumns have.
func (s *shownRun) columns() []any {
	return []any{&s.place, &s.id, &s.chat, &s.hook, &s.runner, &s.acceptedAt, &s.status, &s.attempts, &s.startedAt, &s.finishedAt,
		&s.waitingFor, &s.againAs,
		&s.foldedInto, &s.folded, &s.run, &s.ending, &s.input, &s.delivered}
}

// record is the whole of what was read.
func (s *shownRun) record() (*engine.Record, error) {
	run := &engine.Run{ID: s.id, ChatID: codec.Unescape(*s.chat), Hook: codec.Unescape(*s.hook), Runner: codec.Unescape(*s.runner),
		AcceptedAt: *s.acceptedAt}
	if err := codec.DecodeRun(s.run, run); err != nil {
		return nil, fmt.Errorf("reading run %s: %w", s.id, err)
	}
	record := &engine.Record{Run: run, Status: engine.Status(*s.status), Attempts: *s.attempts,
		StartedAt: timeOrZero(s.startedAt), FinishedAt: timeOrZero(s.finishedAt), WaitingFor: codec.Unescape(textOrEmpty(s.waitingFor))}
	if s.delivered != nil {
		var err error
		if record.Deliveries, err = decodeDeliveries(s.delivered, s.id); err != nil {
			return nil, fmt.Errorf("reading the deliveries of run %s: %w", s.id, err)
		}
	}
	if !record.Status.Ended() {
		return record, nil
	}
	record.AgainAs, record.FoldedInto, record.Folded = textOrEmpty(s.againAs), textOrEmpty(s.foldedInto), *s.folded
	record.Outcome.Status = record.Status
	if s.ending != nil { // the run that it was folded into may have been forgotten
		var err error
		if record.Outcome, record.Steps, err = codec.DecodeEnding(s.ending); err != nil {
			return nil, fmt.Errorf("reading the end of run %s: %w", s.id, err)
		}
		if record.FoldedInto != "" {
			record.Outcome.Usage = nil // it is that of the other run
		}
	}
	if s.input != nil {
		input, err := codec.DecodeInput(s.input)
		if err != nil {
			return nil, fmt.Errorf("reading the input of run %s: %w", s.id, err)
		}
		record.SetInput(&input)
	}
	return record, nil
}

// size is about how many bytes were read.
func (s *shownRun) size() int { return len(s.run) + len(s.ending) + len(s.input) + len(s.delivered) }

func timeOrZero(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

func textOrEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
