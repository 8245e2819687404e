package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/account"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/stream"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
)

// workerPool carries out runs, as many at once as there are workers.
type workerPool struct {
	*node
	schemas *contract.Cache
	turns   *turns
	leases  *leases
	runners *runners
	ends    *runEnds
	streams *stream.Hub
	hooks   starts.HookWorkers
	free    chan struct{} // a worker has gone, or there may be work for a new one
	workers sync.WaitGroup
	adding  atomic.Int32 // calls of add that are under way

	mu     sync.Mutex
	active int  // workers that have a run, or are about to get one
	closed bool // no worker is started any more
}

// dispatch starts a worker for every run that can be claimed, as long as there are workers left.
func (p *workerPool) dispatch() {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.closed = true
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		p.resume()
		if wait := p.startWorkers(); wait < 0 {
			timer.Stop()
		} else {
			timer.Reset(wait)
		}
		select {
		case <-p.stopping:
			return
		case <-p.store.Watch().Claimable():
		case <-p.free:
		case <-timer.C:
		}
	}
}

// startWorkers returns how long until a run that waits is due, a runner that was unreachable can be tried again, or another run of what is
// paused may start; negative if that is not a question of time.
func (p *workerPool) startWorkers() (wait time.Duration) {
	for !p.isStopping() {
		config := p.config()
		p.mu.Lock()
		free := max(config.Workers-p.active, 0)
		p.active += free
		p.mu.Unlock()
		if free == 0 {
			return -1 // a worker that is free signals
		}
		var claims []*freshClaim
		claims, wait = p.claim(free)
		p.mu.Lock()
		p.active -= free - len(claims)
		p.mu.Unlock()
		for _, claim := range claims {
			p.workers.Go(func() { p.work(claim) })
		}
		if len(claims) < free {
			break
		}
	}
	for _, sooner := range []time.Duration{p.runners.outages.Wait(), p.pauses.Wait()} {
		if sooner >= 0 && (wait < 0 || sooner < wait) {
			wait = sooner
		}
	}
	return wait
}

// work carries out a run, and then what else can be claimed.
func (p *workerPool) work(claim *freshClaim) {
	for ; claim != nil; claim = claim.next {
		p.protect("carrying out a run", func() { p.carryOut(p.config(), claim) })
	}
	p.mu.Lock()
	p.active--
	p.mu.Unlock()
	signal(p.free)
}

// carryOut brings a claimed run to its end.
func (p *workerPool) carryOut(config *Config, fresh *freshClaim) {
	claim, run := fresh.Claim, fresh.Run
	start := time.Now()
	ctx, cancel := context.WithCancelCause(p.base)
	defer cancel(nil)
	deadline, sent := newDeadline(claim, start, cancel)
	defer deadline.Stop()
	defer p.leave(fresh)
	if fresh.probe != nil {
		defer p.endProbe(*fresh.probe)
	}
	steps := account.NewSteps(start, claim.StartedAt, redactOf(config.Runners[config.runnerOf(run)]))
	release := p.leases.hold(claim, cancel)
	defer release()
	turn, alone := p.turns.begin(ctx, claim, steps, cancel)
	p.ends.publish(claim)
	defer p.turns.finish(turn)
	if !alone || time.Since(fresh.askedAt) > p.lease()/3 || p.leases.cancelWords.Load() != fresh.cancelWords {
		// There is an earlier turn of the run, the process stood still, or word of a cancelled run came before the turn was
		// known: the store tells. If it does not answer now, it will be asked again, as for all turns.
		_ = p.leases.renew()
		p.turns.awaitEarlier(ctx, turn)
	}
	if errors.Is(context.Cause(ctx), ErrClaimLost) || p.expireFolded(claim) {
		return
	}
	outcome, hopeless := p.hopelessOutcome(config, claim)
	chat := p.chatOf(config, run)
	a := &attempt{config: config, claim: claim, deadline: deadline, sent: sent, steps: steps, chat: chat, began: start}
	var err error
	var progress TurnProgress
	var v verdict
	if !hopeless {
		a.notes = newReplyNotes(config.Runners[config.runnerOf(run)], p.price)
		if v = p.checkBudgets(ctx, a); v.goesOn() {
			v = p.goOn(ctx, a)
		}
		if v.outcome != nil {
			outcome = *v.outcome
			a.notes.complete(&outcome)
		}
	}
	carriedOut := !hopeless && v.goesOn()
	if carriedOut {
		if claim.Attempt > 1 {
			config.Log.Info("run restarted", zap.String("run_id", run.ID), zap.String("hook", run.Hook), zap.Int("attempt", claim.Attempt))
		}
		a.writer = p.streams.Begin(start, claim.streamed()...)
		defer a.writer.Done()
		progress = config.beginProgress(claim)
		outcome, err = p.carryOutTurn(ctx, a)
		v = p.afterTurn(ctx, a, &outcome, err)
	}
	if err != nil && errors.Is(context.Cause(ctx), ErrClaimLost) {
		config.Log.Warn("turn cancelled; another node may have the run", zap.String("run_id", run.ID))
		return
	}
	if errors.Is(err, ErrStopping) && !p.onlyForCallerHere(claim) {
		p.ends.putBack(claim, End{Requeue: true, Session: chat.session(), Spent: p.spent(a)})
		p.turns.tell(run.ID, outcome)
		return
	}
	end, goesBack := v.end(config, run)
	if !goesBack {
		if end, goesBack = waitForRunner(ctx, claim, outcome, err); goesBack {
			p.runners.outages.Waits(config.runnerOf(run), end.Pause)
		} else {
			end, goesBack = p.startAgain(ctx, a, &outcome, err)
		}
	}
	if goesBack {
		end.Session, end.Spent = chat.session(), p.spent(a)
		err := p.storeEnd(config, fresh, end)
		switch {
		case err == nil:
			v.log(config, claim)
			if v.usedUp != nil && p.budgets.ResumeLater(v.changes) {
				signal(p.free)
			}
		case !errors.Is(err, ErrClaimLost):
			config.Log.Error("putting a run back failed", zap.String("run_id", run.ID), zap.Error(err))
		}
		p.ends.publish(claim)
		if cancelled, ok := errors.AsType[*cancelledError](context.Cause(ctx)); ok { // while it was put back, which forgets such a wish
			for run := range claim.eachRun {
				_ = p.ends.cancel(run, cancelledOutcome("The run was cancelled.", cancelled.by)) // a store that fails is in the log
			}
		}
		return
	}
	a.holdBack(&outcome)
	end = p.ends.newEnd(claim.runs(), outcome)
	end.Deliveries = append(end.Deliveries, config.closings(append(a.unanswered, claim.Questions...))...)
	if progress != nil {
		progress.Fill(end.Deliveries)
	}
	end.Unstarted, end.Steps, end.Session = hopeless || v.unstarted, steps.SoFar(), chat.session()
	end.Spent = p.spent(a)
	storeErr := p.storeEnd(config, fresh, end)
	if errors.Is(storeErr, ErrClaimLost) {
		config.Log.Warn("run outcome dropped; another node has the run", zap.String("run_id", run.ID))
		return
	}
	if storeErr != nil {
		config.Log.Error("run end not stored; the run will restart",
			zap.String("run_id", run.ID), zap.String("status", string(outcome.Status)), zap.Error(storeErr))
		return
	}
	took := time.Since(start)
	if end.Unstarted {
		took = 0
	}
	attempts, _ := end.Started(claim)
	switch {
	case progress != nil:
		progress.Done()
	case !carriedOut:
		for run := range claim.eachRun {
			p.endProgress(run)
		}
	}
	p.ends.concludeAll(claim, end, ending{took: took, attempts: attempts, err: err})
}

// onlyForCallerHere reports whether nobody would be told about a run when this engine has stopped.
func (p *workerPool) onlyForCallerHere(claim *Claim) bool {
	run := claim.Run
	return run.Sync && !run.hasDeliveries() && run.Owner == p.store.Node() && len(claim.Questions) == 0
}

// hopelessOutcome is the end of a run that must not be started again after the process died.
func (p *workerPool) hopelessOutcome(config *Config, claim *Claim) (outcome Outcome, hopeless bool) {
	run := claim.Run
	switch {
	case run.Sync && !claim.Awaited && !run.hasDeliveries() && len(claim.Questions) == 0:
		return p.callerGoneOutcome(), true
	case claim.overdue():
		return p.runners.expired(run), true
	case config.MaxAttempts > 0 && claim.Attempt > config.MaxAttempts && !claim.isWithAgent():
		return Outcome{Status: Failed, Failure: Interrupted,
			Message: capital(startedInVain(config.MaxAttempts)) + ".", Account: Account{Reason: startedInVain(config.MaxAttempts)}}, true
	case run.Replaces && len(claim.Questions) == 0:
		return p.ends.replacedOutcome(run)
	}
	return Outcome{}, false
}

// callerGoneOutcome is the end of a run whose caller, by all that the store knows, waits no more. A store of several nodes only knows that
// the caller's node has not renewed its lease; if the clock of the store was set, the caller is still there, and hears this.
func (p *workerPool) callerGoneOutcome() Outcome {
	if !p.store.isRemote() {
		return Outcome{Status: Failed, Failure: Interrupted, Message: "The service was restarted before the run ended.",
			Account: Account{Reason: "the service was restarted before the run ended, and its caller is gone"}}
	}
	return Outcome{Status: Failed, Failure: Interrupted, Message: "The run was given up: the node that took the request seemed to be down.",
		Account: Account{Reason: fmt.Sprintf("the node that the caller waited at seemed to be down: its lease of %v was over. "+
			"It went down or was cut off, or the clock of the database was set", p.lease())}}
}

// storeEnd stores the end of a turn, and claims another run.
func (p *workerPool) storeEnd(config *Config, ended *freshClaim, end End) error {
	claim := ended.Claim
	p.leave(ended)
	kind := writeEnd
	if end.Requeue {
		kind = writeBack
	}
	err := p.store.insist(config, kind, claim.Run.ID, func(ctx context.Context) error {
		asked := p.claiming(p.another())
		var claims []*Claim
		var err error
		defer func() { ended.next = asked.gotOne(claims) }()
		claims, err = p.store.Runs().End(ctx, claim, end, asked.batch)
		switch {
		case err == nil, errors.Is(err, ErrClaimLost), end.Requeue:
		case p.store.isRemote():
			p.turns.tell(claim.Run.ID, unreachableOutcome()) // another node may end the run otherwise before this end can be stored
		default:
			p.turns.tell(claim.Run.ID, end.Outcome) // a caller who waits need not wait for this
		}
		return err
	})
	if err == nil && !p.budgets.IsEmpty() {
		p.budgets.Changed(end.Spent)
		p.workers.Go(func() { p.protect("looking at budgets", func() { p.noteSpent(config, claim.Run, &end) }) })
	}
	return err
}

// resume lets runs start whose runner is back.
func (p *workerPool) resume() {
	runners, any := p.runners.outages.TakeResumed()
	if p.budgets.TakeResume() {
		runners, any = nil, true // those of all
	}
	if !any {
		return
	}
	err := errors.New("the store panicked")
	p.protect("resuming runs", func() {
		ctx, stop := p.store.context()
		defer stop()
		err = p.store.Runs().Resume(ctx, p.config().namesOf(runners...)...)
	})
	if err != nil && !p.store.noteBroken(err) {
		p.store.failed("runs whose runner is back could not be resumed, trying again in a second", err)
		p.runners.outages.ResumeLater(runners)
		if runners == nil {
			p.budgets.ResumeLater(-1)
		}
		time.AfterFunc(time.Second, func() { signal(p.free) })
	}
}
