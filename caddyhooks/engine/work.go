package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

// dispatch starts a worker for every run that can be claimed, as long as there are workers left.
func (e *Engine) dispatch() {
	defer e.loops.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		e.resumeRuns()
		if wait := e.startWorkers(); wait < 0 {
			timer.Stop()
		} else {
			timer.Reset(wait)
		}
		select {
		case <-e.stopping:
			return
		case <-e.store.Watch().Claimable():
		case <-e.workerFree:
		case <-timer.C:
		}
	}
}

// startWorkers returns how long until a run that waits is due, or a runner that was away can be tried again; negative if
// that is not a question of time.
func (e *Engine) startWorkers() (wait time.Duration) {
	for !e.isStopping() {
		config := e.config.Load()
		e.mu.Lock()
		free := max(config.Workers-e.active, 0)
		e.active += free
		e.mu.Unlock()
		if free == 0 {
			return -1 // a worker that is free signals
		}
		var claims []*freshClaim
		claims, wait = e.claim(free)
		e.mu.Lock()
		e.active -= free - len(claims)
		e.mu.Unlock()
		for _, claim := range claims {
			e.workers.Add(1)
			go e.work(claim)
		}
		if len(claims) < free {
			break
		}
	}
	if probe := e.away.wait(); probe >= 0 && (wait < 0 || probe < wait) {
		wait = probe
	}
	return wait
}

// work carries out a run, and then what else can be claimed.
func (e *Engine) work(claim *freshClaim) {
	defer e.workers.Done()
	for claim != nil {
		var next *freshClaim
		e.protect("carrying out a run", func() { next = e.carryOut(e.config.Load(), claim) })
		claim = next
	}
	e.mu.Lock()
	e.active--
	e.mu.Unlock()
	signal(e.workerFree)
}

// protect keeps a panic, of a store say, from taking the process down.
func (e *Engine) protect(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			e.log().Error("panic", zap.String("while", what), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
		}
	}()
	f()
}

// turnUnderWay is a run that is being carried out, or several that are folded.
type turnUnderWay struct {
	claim     *Claim
	steps     *stepNotes
	cancel    context.CancelCauseFunc
	cancelled <-chan struct{}
	over      chan struct{} // closed when its end has been stored, or given up
	answer    *Outcome      // for a caller that was not known yet; under the engine's lock

	only [1]*turnUnderWay // itself: room for the list of turns of a run, of which there is mostly one
}

// carryOut brings a claimed run to its end, and returns the run that was claimed in its place, if any.
func (e *Engine) carryOut(config *Config, fresh *freshClaim) (next *freshClaim) {
	claim, run := fresh.Claim, fresh.Run
	start := time.Now()
	ctx, cancel := context.WithCancelCause(e.base)
	defer cancel(nil)
	deadline := newDeadline(claim, start, cancel)
	defer deadline.stop()
	defer e.leave(fresh)
	if fresh.probe != nil {
		defer e.endProbe(*fresh.probe)
	}
	steps := newStepNotes(claim, start, config.Runners[config.runnerOf(run)])
	turn, alone := e.begin(ctx, claim, steps, cancel)
	e.publishRuns(claim)
	defer e.finish(turn)
	if !alone || time.Since(fresh.askedAt) > e.lease()/3 || e.leases.cancelWords.Load() != fresh.cancelWords {
		// There is an earlier turn of the run, the process stood still, or word of a cancelled run came before the turn was
		// known: the store tells. If it does not answer now, it will be asked again, as for all turns.
		_ = e.renewLeases()
		e.awaitEarlierTurns(ctx, turn)
	}
	if errors.Is(context.Cause(ctx), ErrClaimLost) {
		return nil
	}

	if e.expireFolded(claim) {
		return nil
	}
	outcome, hopeless := e.hopelessOutcome(config, claim)
	chat := e.chatOf(config, run)
	a := &attempt{config: config, claim: claim, deadline: deadline, steps: steps, chat: chat, began: start}
	var err error
	if !hopeless {
		if claim.Attempt > 1 {
			config.Log.Info("a run is started again, since whoever had it went down or fell silent", zap.String("run_id", run.ID), zap.Int("attempt", claim.Attempt))
		}
		a.notes = newReplyNotes(config.Runners[config.runnerOf(run)])
		a.writer = e.streams.Begin(start, claim.streamed()...)
		defer a.writer.Done()
		outcome, err = e.carryOutTurn(ctx, a)
	}
	if err != nil && errors.Is(context.Cause(ctx), ErrClaimLost) {
		config.Log.Warn("a turn was cancelled, since its run may be carried out elsewhere", zap.String("run_id", run.ID))
		return nil
	}
	if errors.Is(err, ErrStopping) && !e.onlyForCallerHere(run) {
		e.putBack(claim, chat.session())
		e.tell(run.ID, outcome)
		return nil
	}
	end, goesBack := waitForRunner(ctx, claim, outcome, err)
	if goesBack {
		e.away.waits(config.runnerOf(run), end.Pause)
	} else {
		end, goesBack = e.startAgain(ctx, a, &outcome, err)
	}
	if goesBack {
		end.Session = chat.session()
		next, err := e.storeEnd(config, fresh, end)
		if err != nil && !errors.Is(err, ErrClaimLost) {
			config.Log.Error("putting a run back failed", zap.String("run_id", run.ID), zap.Error(err))
		}
		e.publishRuns(claim)
		var cancelled *cancelledError
		if errors.As(context.Cause(ctx), &cancelled) { // while it was put back, which forgets such a wish
			for run := range claim.eachRun {
				_ = e.cancel(run, cancelledOutcome("The run was cancelled.", cancelled.by)) // a store that fails is in the log
			}
		}
		return next
	}
	end = e.newEnd(claim.runs(), outcome)
	end.Unstarted, end.Steps, end.Session = hopeless, steps.soFar(), chat.session()
	next, storeErr := e.storeEnd(config, fresh, end)
	if errors.Is(storeErr, ErrClaimLost) {
		config.Log.Warn("the outcome of a run is thrown away, since it is carried out elsewhere", zap.String("run_id", run.ID))
		return nil
	}
	if storeErr != nil {
		config.Log.Error("the end of a run is not stored, so it will be started again",
			zap.String("run_id", run.ID), zap.String("status", string(outcome.Status)), zap.Error(storeErr))
		return nil
	}
	took := time.Since(start)
	if hopeless {
		took = 0
	}
	attempts, _ := end.Started(claim)
	e.concludeAll(claim, end, ending{took: took, attempts: attempts, err: err})
	return next
}

// publishRuns tells that the runs of a claim have changed.
func (e *Engine) publishRuns(claim *Claim) {
	for run := range claim.eachRun {
		e.events.Runs.publish(run.ID)
	}
}

// onlyForCallerHere reports whether nobody would be told about a run when this engine has stopped.
func (e *Engine) onlyForCallerHere(run *Run) bool {
	return run.Sync && !run.hasDeliveries() && run.Owner == e.store.Node()
}

// putBack lets another node, or the next start, carry out a run.
func (e *Engine) putBack(claim *Claim, session Session) {
	ctx, stop := e.storeContext()
	defer stop()
	_, err := e.store.Runs().End(ctx, claim, End{Requeue: true, Session: session}, Batch{})
	e.writes.note(writeBack, err)
	if err != nil {
		e.storeFailed("putting a run back failed", err, zap.String("run_id", claim.Run.ID))
	}
	e.publishRuns(claim)
}

// begin makes a turn known, and reports whether it is the only one of its runs. There are two of a run if this engine lost its
// claim on it and then got it again.
func (e *Engine) begin(ctx context.Context, claim *Claim, steps *stepNotes, cancel context.CancelCauseFunc) (turn *turnUnderWay, alone bool) {
	turn = &turnUnderWay{claim: claim, steps: steps, cancel: cancel, cancelled: ctx.Done(), over: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	alone = true
	for run := range claim.eachRun {
		earlier := e.running[run.ID]
		alone = alone && len(earlier) == 0
		if earlier == nil {
			earlier = turn.only[:0]
		}
		e.running[run.ID] = append(earlier, turn)
	}
	return turn, alone
}

// turnOf is the newest turn of a run that is under way here, nil if there is none. It is called under the lock.
func (e *Engine) turnOf(id string) *turnUnderWay {
	if turns := e.running[id]; len(turns) > 0 {
		return turns[len(turns)-1]
	}
	return nil
}

// earlierTurn is a turn of one of the same runs that is not over yet, nil if there is none.
func (e *Engine) earlierTurn(turn *turnUnderWay) *turnUnderWay {
	e.mu.Lock()
	defer e.mu.Unlock()
	for run := range turn.claim.eachRun {
		if first := e.running[run.ID][0]; first != turn {
			return first
		}
	}
	return nil
}

// awaitEarlierTurns waits until a turn is the oldest one of its runs, or ctx is done. Both have their leases renewed, and the
// store tells which of them is to be cancelled.
func (e *Engine) awaitEarlierTurns(ctx context.Context, turn *turnUnderWay) {
	for {
		earlier := e.earlierTurn(turn)
		if earlier == nil {
			return
		}
		select {
		case <-earlier.over:
		case <-ctx.Done():
			return
		}
	}
}

func (e *Engine) finish(turn *turnUnderWay) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for run := range turn.claim.eachRun {
		turns := e.running[run.ID]
		if len(turns) == 1 {
			delete(e.running, run.ID)
		} else {
			e.running[run.ID] = slices.DeleteFunc(turns, func(other *turnUnderWay) bool { return other == turn })
		}
	}
	close(turn.over)
}

// hopelessOutcome is the end of a run that must not be started again after the process died.
func (e *Engine) hopelessOutcome(config *Config, claim *Claim) (outcome Outcome, hopeless bool) {
	run := claim.Run
	switch {
	case run.Sync && !claim.Awaited && !run.hasDeliveries():
		return e.callerGoneOutcome(), true
	case claim.overdue():
		return e.expired(run), true
	case config.MaxAttempts > 0 && claim.Attempt > config.MaxAttempts:
		return Outcome{Status: Failed, Failure: Interrupted,
			Message: capital(startedInVain(config.MaxAttempts)) + ".", Account: Account{Reason: startedInVain(config.MaxAttempts)}}, true
	}
	return Outcome{}, false
}

// callerGoneOutcome is the end of a run whose caller, by all that the store knows, waits no more. A store of several nodes only knows that the caller's
// node has not renewed its lease; if the clock of the store was set, the caller is still there, and hears this.
func (e *Engine) callerGoneOutcome() Outcome {
	if !e.isRemote() {
		return Outcome{Status: Failed, Failure: Interrupted, Message: "The service was restarted before the run ended.",
			Account: Account{Reason: "the service was restarted before the run ended, and its caller is gone"}}
	}
	return Outcome{Status: Failed, Failure: Interrupted, Message: "The run was given up: the node that took the request seemed to be down.",
		Account: Account{Reason: fmt.Sprintf("the node that the caller waited at seemed to be down: its lease of %v was over. "+
			"It went down or was cut off, or the clock of the database was set", e.lease())}}
}

// storeEnd stores the end of a turn, and claims another run.
func (e *Engine) storeEnd(config *Config, ended *freshClaim, end End) (next *freshClaim, err error) {
	claim := ended.Claim
	e.leave(ended)
	kind := writeEnd
	if end.Requeue {
		kind = writeBack
	}
	err = e.insist(config, kind, claim.Run.ID, func(ctx context.Context) error {
		asked := e.claiming(e.another())
		var claims []*Claim
		var err error
		defer func() {
			if fresh := asked.got(claims); len(fresh) > 0 {
				next = fresh[0]
			}
		}()
		claims, err = e.store.Runs().End(ctx, claim, end, asked.batch)
		switch {
		case err == nil, errors.Is(err, ErrClaimLost), end.Requeue:
		case e.isRemote():
			e.tell(claim.Run.ID, awayOutcome()) // another node may end the run otherwise before this end can be stored
		default:
			e.tell(claim.Run.ID, end.Outcome) // a caller who waits need not wait for this
		}
		return err
	})
	return next, err
}

// insist does something again and again until the store, whose disk may be full, can do it, or the store is broken, or the
// engine is stopped. What is not stored by then is done again after the next start.
func (e *Engine) insist(config *Config, kind writeKind, runID string, do func(context.Context) error) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		ctx, stop := e.storeContext()
		err := do(ctx)
		stop()
		e.writes.note(kind, err)
		if err == nil || errors.Is(err, ErrClaimLost) || e.base.Err() != nil || e.noteBroken(err) {
			return err
		}
		var changed <-chan struct{}
		if errors.Is(err, ErrAway) {
			pause = min(pause, time.Second)
			_, changed, _ = e.StoreAway()
		} else {
			config.Log.Error("the store failed, trying again",
				zap.Stringer("while", kind), zap.String("run_id", runID), zap.Duration("pause", pause), zap.Error(err))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-changed:
		case <-e.base.Done():
		}
		timer.Stop()
	}
}

// newEnd is the end of runs that share an outcome.
func (e *Engine) newEnd(runs []*Run, outcome Outcome) End {
	outcome.Account = outcome.Account.bounded()
	return End{Outcome: outcome, Deliveries: e.config.Load().deliveriesOfAll(runs, outcome)}
}

// ending is what an engine knows about an end that is not part of it.
type ending struct {
	took     time.Duration // 0 of a run that was not started
	attempts int           // how often it was started
	err      error         // why it failed, if it was carried out

	folded int           // how many runs its turn had, if it led them
	leader *Run          // the run that led its turn, if that is another one
	waited time.Duration // until it was last started
}

// concludeAll is conclude for all runs of a turn.
func (e *Engine) concludeAll(claim *Claim, end End, how ending) {
	if len(claim.Folded) > 0 {
		how.folded = 1 + len(claim.Folded)
	}
	how.waited = claim.Waited
	e.conclude(claim.Run, end, how)
	end.Deliveries = nil // they have been told about
	how.folded, how.leader = 0, claim.Run
	for _, run := range claim.Folded {
		how.waited = claim.waitedOf(run)
		e.conclude(run, end, how)
	}
}

// conclude notes how a run ended, after it was stored.
func (e *Engine) conclude(run *Run, end End, how ending) {
	e.tell(run.ID, end.Outcome)
	e.streams.End(run.ID)
	e.noteTold(run)
	e.metrics().RunEnded(run, end.Outcome, how.took)
	e.traceRun(run, &end.Outcome, &how)
	e.minutes.RunEnded(run.Hook, string(end.Outcome.Status), how.took)
	e.announceEnd(run, end.Outcome, how.took)
	e.events.Runs.publish(run.ID)
	for _, d := range end.Deliveries {
		e.events.Deliveries.publish(d.ID)
	}
	level := zap.InfoLevel
	if status := end.Outcome.Status; status != Completed && status != Cancelled {
		level = zap.WarnLevel
	}
	if c := e.log().Check(level, "run finished"); c != nil {
		c.Write(how.fields(run, &end.Outcome)...)
	}
}

// fields tell operators about a run that has ended, and nothing of what it was told.
func (how *ending) fields(run *Run, outcome *Outcome) []zap.Field {
	account := &outcome.Account
	answer := ""
	if outcome.Failure == SchemaUnmet { // of other answers the reason has the first line
		answer = oneline.Of(account.LastAnswer, maxLastAnswer)
	}
	fields := append(make([]zap.Field, 0, 16), // room for all that most runs have
		zap.String("run_id", run.ID), zap.String("hook", run.Hook), zap.String("name", oneline.Of(run.Name, maxLabel)),
		zap.String("chat", oneline.Of(run.ChatID, maxLabel)),
		zap.String("action", string(run.Action)), zap.String("client", run.Client), zap.String("status", string(outcome.Status)),
		zap.Int("repairs", outcome.Repairs), zap.Duration("took", how.took), zap.Int("attempts", how.attempts),
	)
	for _, optional := range []struct{ name, text string }{
		{"runner", run.Runner}, {"traceID", run.traceID()}, {"key_header", run.KeyHeader}, {"again_of", run.AgainOf}, {"folded_into", how.foldedInto()}, {"cancelled_by", account.CancelledBy}, {"reason", account.Reason}, {"last_answer", answer},
	} {
		if optional.text != "" {
			fields = append(fields, zap.String(optional.name, optional.text))
		}
	}
	if how.folded > 0 {
		fields = append(fields, zap.Int("folded", how.folded))
	}
	if outcome.SessionRenewed {
		fields = append(fields, zap.Bool("session_renewed", true))
	}
	if run.Test {
		fields = append(fields, zap.Bool("test", true))
	}
	if account.ValidationErrors != nil {
		fields = append(fields, zap.Strings("validation_errors", account.ValidationErrors))
	}
	var panicked *PanicError
	if errors.As(how.err, &panicked) {
		fields = append(fields, zap.ByteString("stack", panicked.Stack))
	}
	return fields
}

// foldedInto is the id of the run that led the turn, "" if that is the run itself.
func (how *ending) foldedInto() string {
	if how.leader == nil {
		return ""
	}
	return how.leader.ID
}

// maxLabel bounds names and chats in the log. They come from callers.
const maxLabel = 512

// attemptsOf is how often a run was started that has ended, 0 if the store does not tell.
func (e *Engine) attemptsOf(run *Run) int {
	ctx, stop := e.storeContext()
	defer stop()
	record, err := e.store.Runs().Get(ctx, run.ID)
	if err != nil {
		return 0
	}
	return record.Attempts
}
