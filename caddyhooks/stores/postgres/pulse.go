package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

const (
	pulseEvery = time.Second
	// pulseGap is the time between two pulses at least, however many words come.
	pulseGap = 10 * time.Millisecond
	// pulseAgain is after how long a pulse is tried again that failed.
	pulseAgain = 500 * time.Millisecond
	// pulseFrames is how many frames a pulse fetches at most. If there are more another one follows.
	pulseFrames = 250
	// followTime makes pulses rarer if others follow very many runs.
	followTime = 50 * time.Microsecond
	// sweepEvery is how often a node looks for nodes that are gone.
	sweepEvery = time.Minute
)

// pulse is what the node asks the database, again and again.
type pulse struct {
	mu     sync.Mutex
	asked  request
	wake   chan struct{}
	period time.Duration

	beating  sync.Mutex // there is one at a time
	joined   bool
	failed   bool
	revision int64  // of the settings
	others   string // as the last pulse had it
	followed int    // how many runs others followed, if they did so since the pulse before
}

// request is what a pulse is to look at, besides what every one does.
type request struct {
	full bool     // all there is
	runs []string // that may have ended
}

func (p *pulse) init() {
	p.wake, p.revision, p.period = make(chan struct{}, 1), -1, pulseEvery
}

// ask has a pulse come soon.
func (p *pulse) ask(more request) {
	p.mu.Lock()
	p.asked.full = p.asked.full || more.full
	if p.asked.runs = append(p.asked.runs, more.runs...); len(p.asked.runs) > mostWatched {
		p.asked.full, p.asked.runs = true, nil
	}
	p.mu.Unlock()
	signal(p.wake)
}

func (p *pulse) take() request {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = request{}
	return asked
}

// keepPulse beats once a second, and when somebody asks.
func (w *watch) keepPulse(ctx context.Context) {
	p := &w.pulse
	next := time.NewTimer(p.period)
	defer next.Stop()
	swept := time.Now()
	for {
		full := false
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			full = true
		case <-p.wake:
		}
		asked := p.take()
		asked.full = asked.full || full
		err := w.beat(ctx, asked)
		p.note(ctx, err)
		switch {
		case err != nil:
			next.Reset(min(pulseAgain, p.period))
		case asked.full:
			next.Reset(p.period)
		}
		if err == nil && time.Since(swept) > sweepEvery {
			swept = time.Now()
			_ = w.on(watchCalls).exec(ctx, "SELECT @.sweep_nodes_1()") // another node will do it
		}
		p.beating.Lock()
		gap := pulseGap + time.Duration(p.followed)*followTime
		p.beating.Unlock()
		if !sleepUnlessDone(ctx, gap) {
			return
		}
	}
}

// note logs that pulses fail, once, unless the database is unreachable: others tell that.
func (p *pulse) note(ctx context.Context, err error) {
	failed := err != nil && !errors.Is(err, engine.ErrUnreachable) && ctx.Err() == nil
	if failed && !p.failed {
		caddy.Log().Named("hooks.stores.postgres").Error("asking the database what other nodes did failed; trying again", zap.Error(err))
	}
	p.failed = failed
}

// beat asks the database what changed, and tells whom it concerns.
func (w *watch) beat(ctx context.Context, asked request) error {
	p := &w.pulse
	p.beating.Lock()
	defer p.beating.Unlock()
	if asked.full {
		w.streams.catchUp()
	}
	var (
		at                         time.Time
		isNew                      bool
		revision                   int64
		claimable, due, cancelled  bool
		ended, follows, frameRuns  []string
		others                     string
		numbers, turns, ats, saids []int64
		frames                     int
		texts                      [][]byte
		overs                      []bool
	)
	mostFrames := 0
	if w.streams.isFollowing() {
		mostFrames = pulseFrames
	}
	watched := w.watched(asked.full, asked.runs)
	sent := time.Now()
	err := w.on(watchCalls).query(ctx, func(rows pgx.Rows) error {
		return rows.Scan(&at, &isNew, &revision, &claimable, &due, &cancelled, &ended, &others, &follows, &numbers,
			&frames, &frameRuns, &turns, &ats, &saids, &texts, &overs)
	}, "SELECT * FROM @.pulse_1($1, $2, $3, $4, $5, $6, $7)", w.node, w.host, w.release.version(), asked.full, watched, p.others, mostFrames)
	if err != nil {
		return err // the next one is a full one
	}
	w.learnClock(sent, at)
	p.followed = len(follows)
	if claimable {
		signal(w.claimable)
	}
	if due {
		signal(w.due)
	}
	if cancelled {
		signal(w.cancelled)
	}
	if revision != p.revision {
		p.revision = revision
		signal(w.settingsChanged)
	}
	w.noteEnded(ended)
	if others != p.others || !p.joined {
		p.others = others
		w.isLone.Store(others == "")
		w.streams.setWanted(follows, numbers)
	}
	if isNew {
		// Others do not know that this node is there, and have forgotten what it follows.
		w.streams.mustStore()
		w.tellOthers("n")
	}
	p.joined = true
	for i := range frames {
		w.streams.receive(frameRuns[i], engine.Frame{Turn: turns[i], At: int(ats[i]), Said: int(saids[i]), Text: string(texts[i]),
			Over: overs[i]})
	}
	if frames == pulseFrames {
		p.ask(request{})
	}
	return nil
}

// mostNodes is how many nodes are listed.
const mostNodes = 100

// Nodes lists the nodes that work with the store.
func (s *store) Nodes(ctx context.Context) (nodes []engine.Node, err error) {
	err = s.on(readCalls).query(ctx, func(rows pgx.Rows) error {
		var n engine.Node
		err := rows.Scan(&n.Name, &n.Host, &n.JoinedAt, &n.SeenAt, &n.Silent, &n.Running)
		n.This = n.Name == s.node
		nodes = append(nodes, n)
		return err
	}, "SELECT * FROM @.nodes_1($1)", mostNodes)
	return nodes, err
}

var _ engine.Shared = (*store)(nil)
