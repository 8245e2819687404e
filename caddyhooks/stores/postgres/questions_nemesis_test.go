//go:build real

package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// The nodes of a trial of questions.
const (
	trialLease     = 2 * time.Second
	trialRuns      = 200
	trialQuestions = 3 // of each run
)

// trial has three nodes put runs aside, answer questions and end runs, while nodes are killed and cut off.
type trial struct {
	t     *testing.T
	plain *store // a node that has no trouble
	links []*link
	seed  uint64

	mu    sync.Mutex
	nodes []*store
	lives []context.CancelFunc // ends what a node does
	asked []string             // ids of questions
	taken map[string][]string  // by question: the answers that were taken, as those were told who gave them
	ended map[string]int       // by run: how often somebody was told that it has ended
	kills int
	cuts  int
}

func newTrial(t *testing.T, seed uint64) *trial {
	server := pgtest.New(t, pgtest.Config{Listen: "127.0.0.1"})
	server.Exec(t, "postgres", "CREATE ROLE hooks LOGIN PASSWORD 'a-secret' SUPERUSER")
	r := &trial{t: t, seed: seed, plain: openPostgresAt(t, server.DSN("postgres"), "trial"), taken: map[string][]string{}, ended: map[string]int{}}
	t.Cleanup(func() { _ = r.plain.Close() })
	for range 3 {
		r.links = append(r.links, newLink(t, net.JoinHostPort(server.Host, server.Port)))
		r.nodes, r.lives = append(r.nodes, nil), append(r.lives, func() {})
	}
	return r
}

// start opens a node behind its link, and gives it something to do until it dies.
func (r *trial) start(number int, group *sync.WaitGroup) {
	host, port, _ := net.SplitHostPort(r.links[number].listener.Addr().String())
	n, err := parseDSN(fmt.Sprintf("host=%s port=%s user=hooks password=a-secret dbname=postgres sslmode=disable", host, port))
	if err != nil {
		r.t.Error(err)
		return
	}
	d := newDatabase(n, r.plain.schema)
	if err := d.open(r.t.Context()); err != nil && !errors.Is(err, engine.ErrUnreachable) {
		r.t.Error(err)
		return
	}
	s := newStore(d)
	ctx, cancel := context.WithCancel(r.t.Context())
	r.mu.Lock()
	r.nodes[number], r.lives[number] = s, cancel
	generation := uint64(r.kills)
	r.mu.Unlock()
	for i := range uint64(2) {
		group.Go(func() { r.carryOut(ctx, s, rand.New(rand.NewPCG(r.seed+generation, uint64(number)*2+i))) })         //nolint:gosec // not secret
		group.Go(func() { r.answer(ctx, s, number, rand.New(rand.NewPCG(r.seed+generation, uint64(number)*2+i+6))) }) //nolint:gosec // likewise
	}
}

// expect passes over errors that calls have while there is trouble.
func (r *trial) expect(ctx context.Context, doing string, err error) {
	for _, known := range []error{engine.ErrClaimLost, engine.ErrUnreachable, engine.ErrAnswered, engine.ErrNotFound, errAnswerUnknown, errClosed} {
		if errors.Is(err, known) {
			return
		}
	}
	if err != nil && ctx.Err() == nil {
		r.t.Errorf("%s: %v", doing, err)
	}
}

// carryOut claims runs, has them ask their questions one after the other, and ends them.
func (r *trial) carryOut(ctx context.Context, s *store, chance *rand.Rand) {
	for ctx.Err() == nil && !r.t.Failed() {
		claims, _, err := s.Runs().Claim(ctx, engine.Batch{Max: 3, Lease: trialLease})
		r.expect(ctx, "claiming", err)
		for _, claim := range claims {
			r.step(ctx, s, chance, claim)
		}
		if len(claims) == 0 {
			select {
			case <-s.Watch().Claimable():
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// step takes a run one step on: to its next question, or to its end.
func (r *trial) step(ctx context.Context, s *store, chance *rand.Rand, claim *engine.Claim) {
	asked := len(claim.Questions)
	if asked > 0 && (claim.Questions[asked-1].AskedAt.IsZero() || claim.Questions[asked-1].Answer == nil) {
		asked-- // it is answered already, or the run was handed out since its pause was over
	}
	if asked == trialQuestions {
		_, err := s.Runs().End(ctx, claim, engine.End{Outcome: engine.Outcome{Status: engine.Completed}}, engine.Batch{})
		r.expect(ctx, "ending", err)
		if err == nil {
			r.mu.Lock()
			r.ended[claim.Run.ID]++
			r.mu.Unlock()
		}
		return
	}
	id := engine.QuestionID(claim.Run.ID, asked)
	r.mu.Lock()
	r.asked = append(r.asked, id)
	r.mu.Unlock()
	end := engine.End{Requeue: true, WaitingFor: "somebody", Question: &engine.Question{Number: asked, Kind: engine.AskInput, State: []byte(id)}}
	if chance.IntN(2) == 0 {
		end.Pause = 3 * time.Second
	}
	_, err := s.Runs().End(ctx, claim, end, engine.Batch{})
	r.expect(ctx, "putting aside", err)
}

// answer answers questions, also such as are just asked, or were answered long ago.
func (r *trial) answer(ctx context.Context, s *store, number int, chance *rand.Rand) {
	for n := 0; ctx.Err() == nil && !r.t.Failed(); n++ {
		r.mu.Lock()
		id := ""
		if len(r.asked) > 0 {
			id = r.asked[chance.IntN(len(r.asked))]
		}
		r.mu.Unlock()
		text := fmt.Sprintf("answer %d of node %d, %s", n, number, s.Node())
		question, err := s.Questions().Answer(ctx, id, engine.Answer{Text: text, Via: engine.AnsweredByLink})
		r.expect(ctx, "answering", err)
		switch {
		case err == nil:
			r.mu.Lock()
			r.taken[id] = append(r.taken[id], text)
			r.mu.Unlock()
		case errors.Is(err, engine.ErrAnswered) && question.Answer == nil:
			r.t.Errorf("question %s is said to be answered, and has no answer", id)
		}
		select {
		case <-time.After(time.Duration(chance.IntN(10)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// isOver reports whether all runs have ended.
func (r *trial) isOver() bool {
	backlog, err := r.plain.Runs().Backlog(r.t.Context())
	if err != nil {
		r.t.Error(err)
	}
	return backlog == engine.Backlog{}
}

// torment kills nodes and cuts them off, one after the other, until all runs have ended.
func (r *trial) torment(group *sync.WaitGroup) {
	chance := rand.New(rand.NewPCG(r.seed, 100)) //nolint:gosec // nothing here is secret
	for number := 0; (!r.isOver() || r.kills < 6 || r.cuts < 6) && !r.t.Failed(); number = chance.IntN(3) {
		link := r.links[number]
		if chance.IntN(2) == 0 { // silent for longer than a lease, or for a moment
			link.setSilent(true)
			time.Sleep(time.Duration(100+chance.IntN(3000)) * time.Millisecond)
			link.setSilent(false)
			r.cuts++
			continue
		}
		// Its connections break in the middle of what it does, and it does nothing more.
		r.mu.Lock()
		node, die := r.nodes[number], r.lives[number]
		r.kills++
		r.mu.Unlock()
		link.cut()
		die()
		group.Go(func() { _ = node.Close() })
		time.Sleep(time.Duration(chance.IntN(1000)) * time.Millisecond)
		r.start(number, group)
	}
}

// No question is answered twice, none is lost, and every run ends once, whatever happens to nodes.
func TestQuestionsSurviveKillsAndPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	r := newTrial(t, 1)
	plain := r.plain
	var runs []*engine.Run
	for i := range trialRuns {
		run := &engine.Run{ChatID: fmt.Sprint("chat ", i%40), Hook: "agent"}
		if err := plain.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	var group sync.WaitGroup
	for number := range 3 {
		r.start(number, &group)
	}
	r.torment(&group)
	for _, die := range r.lives {
		die()
	}
	for _, node := range r.nodes {
		_ = node.Close()
	}
	group.Wait()
	for _, run := range runs {
		record, err := plain.Runs().Get(t.Context(), run.ID)
		if err != nil || record.Status != engine.Completed || len(record.Questions) != trialQuestions {
			t.Fatalf("run %s: %+v, %v", run.ID, record, err)
		}
		if r.ended[run.ID] > 1 {
			t.Errorf("run %s ended %d times", run.ID, r.ended[run.ID])
		}
		for _, question := range record.Questions {
			taken := r.taken[question.ID()]
			if question.Answer == nil || question.Answer.Via != engine.AnsweredByLink {
				t.Errorf("question %s has the answer %+v", question.ID(), question.Answer)
			} else if len(taken) > 1 || len(taken) == 1 && taken[0] != question.Answer.Text {
				t.Errorf("question %s has the answer %q, and these were taken: %q", question.ID(), question.Answer.Text, taken)
			}
		}
	}
	checkQueue(t, plain, 0)
	if backlog, err := plain.Runs().Backlog(t.Context()); err != nil || backlog != (engine.Backlog{}) {
		t.Errorf("the backlog is %+v: %v", backlog, err)
	}
	t.Logf("%d kills, %d cuts", r.kills, r.cuts)
}
