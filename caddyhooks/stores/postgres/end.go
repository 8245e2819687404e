package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

func (r *runs) End(ctx context.Context, claim *engine.Claim, end engine.End, next engine.Batch) ([]*engine.Claim, error) {
	e, err := newEnding(claim, end)
	if err != nil {
		return nil, err
	}
	t := &turnover{end: e, next: next}
	err = r.claiming.do(ctx, t)
	return t.claims, err
}

// ending is the end of a claim, as it is stored.
type ending struct {
	claim  *engine.Claim
	end    engine.End
	ending string
	asked  string // the question for which the run is put aside, "" if it is not
	runs   []endedRun
	size   int // about how many bytes go to the database
}

// endedRun is a run that ends.
type endedRun struct {
	run         *engine.Run
	kept, input string
	inputBytes  int
	deliveries  []*engine.Delivery
	records     []string // of the deliveries
}

// newEnding writes an end down. ErrClaimLost says that there can be no such run.
func newEnding(claim *engine.Claim, end engine.End) (e *ending, err error) {
	e = &ending{claim: claim, end: end}
	for _, run := range append([]*engine.Run{claim.Run}, claim.Folded...) {
		if _, ok := local.ParseID(run.ID); !ok {
			return nil, engine.ErrClaimLost
		}
		ended := endedRun{run: run}
		if !end.Requeue {
			if err := ended.encode(); err != nil {
				return nil, err
			}
		}
		if !end.Requeue || end.Question != nil {
			if err := ended.encodeDeliveries(claim, &end); err != nil {
				return nil, err
			}
		}
		e.runs = append(e.runs, ended)
		e.size += len(ended.kept) + len(ended.input)
		for i, d := range ended.deliveries {
			e.size += len(d.Body) + len(ended.records[i])
		}
	}
	if !end.Requeue {
		e.ending, err = codec.EncodeEnding(&end.Outcome, end.Steps)
		e.size += len(e.ending)
	}
	if e.isPutAside() {
		if err := checkQuestion(claim.Run, end.Question); err != nil {
			return nil, err
		}
		e.asked, err = codec.EncodeQuestion(end.Question)
		e.size += len(e.asked) + len(end.Question.State)
	}
	return e, err
}

func (r *endedRun) encode() (err error) {
	if r.kept, err = codec.EncodeRun(r.run.Kept()); err != nil {
		return err
	}
	if r.run.History > 0 {
		input := r.run.Input()
		r.inputBytes = input.Size()
		if r.input, err = codec.EncodeInput(input); err != nil {
			return err
		}
	}
	return nil
}

func (r *endedRun) encodeDeliveries(claim *engine.Claim, end *engine.End) error {
	r.deliveries = end.DeliveriesOf(claim, r.run)
	for _, d := range r.deliveries {
		record, err := codec.EncodeDelivery(d)
		if err != nil {
			return err
		}
		r.records = append(r.records, record)
	}
	return nil
}

func (e *ending) id() string { return e.claim.Run.ID }

// ids are all runs that end.
func (e *ending) ids() (ids []string) {
	for i := range e.runs {
		ids = append(ids, e.runs[i].run.ID)
	}
	return ids
}

// isPutAside reports whether the run does not end, and is put aside for a question.
func (e *ending) isPutAside() bool { return e.end.Requeue && e.end.Question != nil }

func (e *ending) hasDeliveries() bool { return len(e.end.Deliveries) > 0 }

// longest is the longest time that is told to the database, whose times end somewhere.
const longest = 100 * 365 * 24 * time.Hour

func seconds(d time.Duration) float64 { return min(d, longest).Seconds() }

// isPlain reports whether end_plain_2 can end the run.
func (e *ending) isPlain() bool {
	run, end := e.claim.Run, &e.end
	return !end.Requeue && !end.Unstarted && e.claim.Token != "" && len(e.claim.Folded) == 0 && len(e.claim.Questions) == 0 &&
		len(e.runs[0].deliveries) == 0 && !forgetsKey(run, end)
}

// forgetsKey reports whether the key of a request can be used again. One that became several runs has an answer, whatever became of the
// first.
func forgetsKey(run *engine.Run, end *engine.End) bool {
	return end.Outcome.ForgetsKey() && len(run.Together) < 2 && (run.Key != nil || run.Replay != nil)
}

// endArguments are those of end_runs_1 that are about ends.
type endArguments struct {
	ids, tokens         []string
	folded              []int32
	requeue, unstarted  []bool
	held                []bool
	pauses              []float64
	reasons             []string
	statuses, endings   []string
	runIDs              []string
	runEnds             []int32
	kept                []string
	past, forget        []bool
	history             []float64
	input               []string
	inputBytes          []int32
	deliveryEnds        []int32
	deliveryRuns        []string
	deliveryIndexes     []int32
	deliveryIDs         []string
	deliveryHosts       []string
	deliveryChats       []string
	records             []string
	bodies              [][]byte
	sessionEnds         []int32
	sessionRunners      []string
	sessionChats        []string
	sessionIDs          []string
	questions           questionArguments
	spent               spendings
	endAsks, endAskMost []int32
}

// add adds an end that asks a question.
func (a *endArguments) add(e *ending, ask int32, next *engine.Batch) {
	claim, end := e.claim, &e.end
	a.ids, a.tokens = append(a.ids, claim.Run.ID), append(a.tokens, codec.Escape(claim.Token))
	number := int32(len(a.ids)) //nolint:gosec // at most mostEnds
	a.folded = append(a.folded, int32(len(claim.Folded)))
	a.requeue, a.unstarted = append(a.requeue, end.Requeue), append(a.unstarted, end.Unstarted || end.Requeue && !end.Interrupted)
	a.held = append(a.held, end.Held)
	pause, reason := seconds(end.Pause), codec.Escape(end.WaitingFor)
	if e.isPutAside() {
		a.questions.add(number, e, pause, reason)
		pause, reason = 0, ""
	}
	a.pauses, a.reasons = append(a.pauses, pause), append(a.reasons, reason)
	a.statuses, a.endings = append(a.statuses, string(end.Outcome.Status)), append(a.endings, e.ending)
	a.endAsks, a.endAskMost = append(a.endAsks, ask), append(a.endAskMost, int32(max(next.Max, 0))) //nolint:gosec // workers
	for i := range e.runs {
		if !end.Requeue {
			a.addRun(number, i, &e.runs[i], end)
		}
		a.addDeliveries(number, &e.runs[i])
	}
	if end.Session.ID != "" {
		a.sessionEnds = append(a.sessionEnds, number)
		a.sessionRunners, a.sessionChats = append(a.sessionRunners, codec.Escape(end.Session.Runner)),
			append(a.sessionChats, codec.Escape(claim.Run.ChatID))
		a.sessionIDs = append(a.sessionIDs, codec.Escape(end.Session.ID))
	}
	a.spent.add(number, end.Spent)
}

func (a *endArguments) addRun(number int32, i int, r *endedRun, end *engine.End) {
	run := r.run
	a.runIDs, a.runEnds, a.kept = append(a.runIDs, run.ID), append(a.runEnds, number), append(a.kept, r.kept)
	a.past = append(a.past, i == 0 && run.IsRecalled(end.Outcome.Status))
	a.forget = append(a.forget, forgetsKey(run, end))
	a.history, a.input, a.inputBytes = append(a.history, seconds(run.History)), append(a.input, r.input),
		append(a.inputBytes, int32(r.inputBytes)) //nolint:gosec // at most MaxInput
}

func (a *endArguments) addDeliveries(number int32, r *endedRun) {
	for i, d := range r.deliveries {
		to := d.Destination()
		a.deliveryEnds, a.deliveryRuns = append(a.deliveryEnds, number), append(a.deliveryRuns, r.run.ID)
		a.deliveryIndexes = append(a.deliveryIndexes, int32(d.Index)) //nolint:gosec // few
		a.deliveryIDs = append(a.deliveryIDs, codec.Escape(d.ID))
		a.deliveryHosts, a.deliveryChats = append(a.deliveryHosts, codec.Escape(to.Host)), append(a.deliveryChats, codec.Escape(to.Chat))
		a.records, a.bodies = append(a.records, r.records[i]), append(a.bodies, []byte(d.Body))
	}
}

// questionArguments are those of end_runs_1 that are about questions for which runs are put aside.
type questionArguments struct {
	ends, numbers []int32
	people        []bool
	fors          []float64
	records       []string
	states        [][]byte
	pauses        []float64
	reasons       []string
}

func (a *questionArguments) add(number int32, e *ending, pause float64, reason string) {
	q := e.end.Question
	a.ends, a.numbers = append(a.ends, number), append(a.numbers, int32(q.Number)) //nolint:gosec // at most MaxQuestions
	a.people, a.fors = append(a.people, q.Kind.ForPeople()), append(a.fors, seconds(q.For))
	a.records, a.states = append(a.records, e.asked), append(a.states, q.State)
	a.pauses, a.reasons = append(a.pauses, pause), append(a.reasons, reason)
}

func (a *endArguments) list() []any {
	q := &a.questions
	return []any{ // those of all ends are never nil
		a.ids, a.tokens, a.folded, a.requeue, a.unstarted, a.held, a.pauses, a.reasons, a.statuses, a.endings,
		notNull(a.runIDs), notNull(a.runEnds), notNull(a.kept), notNull(a.past), notNull(a.forget), notNull(a.history), notNull(a.input),
		notNull(a.inputBytes),
		notNull(a.deliveryEnds), notNull(a.deliveryRuns), notNull(a.deliveryIndexes), notNull(a.deliveryIDs), notNull(a.deliveryHosts),
		notNull(a.deliveryChats), notNull(a.records), notNull(a.bodies),
		notNull(a.sessionEnds), notNull(a.sessionRunners), notNull(a.sessionChats), notNull(a.sessionIDs),
		notNull(q.ends), notNull(q.numbers), notNull(q.people), notNull(q.fors), notNull(q.records), notNull(q.states), notNull(q.pauses),
		notNull(q.reasons), a.spent.argument(), a.endAsks, a.endAskMost,
	}
}

// plainList is that of end_plain_2, for ends that are in the order of their chats.
func (a *endArguments) plainList(chats []string) []any {
	return []any{
		chats, a.ids, a.tokens, a.statuses, a.endings, a.kept, a.past, a.history, a.input, a.inputBytes,
		notNull(a.sessionRunners), notNull(a.sessionChats), notNull(a.sessionIDs), a.spent.argument(),
	}
}

// care is with how much care ends are carried out. If an attempt says 'retry', the next one has more.
type care int

const (
	careOfPlain care = iota // by end_plain_2, which wants all of them as they should be
	careOfAny
	careOfLocked // with the chats of all of them locked, so that nobody adds to one meanwhile
)

// careFor is how the first attempt is made.
func careFor(together []*turnover) care {
	for _, t := range together {
		if t.end != nil && !t.end.isPlain() {
			return careOfAny
		}
	}
	return careOfPlain
}

// plainEnds are the ends of calls in the order of their chats, and these.
func plainEnds(together []*turnover) (ends []*ending, chats []string) {
	for _, t := range together {
		if t.end != nil {
			ends = append(ends, t.end)
		}
	}
	slices.SortFunc(ends, func(a, b *ending) int {
		return cmp.Compare(codec.Escape(a.claim.Run.ChatID), codec.Escape(b.claim.Run.ChatID))
	})
	for _, e := range ends {
		chats = append(chats, codec.Escape(e.claim.Run.ChatID))
	}
	return ends, chats
}

// notNull is a list that the database does not take for NULL.
func notNull[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// turnoverAnswer is the answer of end_runs_1, end_plain_2, claim_runs_1 and add_and_claim_2.
type turnoverAnswer struct {
	retry    bool
	at       time.Time
	ends     []string // what became of each
	ready    int      // how many chats became ready
	opened   int      // in how many chats a run waits for others
	claims   map[string]*engine.Claim
	byAsk    map[int32][]*engine.Claim
	lastTurn int64
	wait     time.Duration
	added    *addAnswer // of add_and_claim_2
}

func newTurnoverAnswer(ends int) *turnoverAnswer {
	return &turnoverAnswer{
		ends: make([]string, ends), claims: make(map[string]*engine.Claim), byAsk: make(map[int32][]*engine.Claim), wait: -1,
	}
}

var (
	plainStatement = "SELECT * FROM @.end_plain_2(" + placeholders(27) + ")"
	endStatement   = "SELECT * FROM @.end_runs_1(" + placeholders(55) + ")"
	claimStatement = "SELECT * FROM @.claim_runs_1(" + placeholders(13) + ")"
)

// placeholders are those of so many arguments.
func placeholders(n int) (list string) {
	for i := range n {
		if i > 0 {
			list += ", "
		}
		list += fmt.Sprint("$", i+1)
	}
	return list
}

// ask has the database carry out calls.
func (c *claiming) ask(ctx context.Context, together []*turnover, asks *asks, care care) (*turnoverAnswer, error) {
	var ends endArguments
	var chats []string
	if care == careOfPlain { // all of them end in the same way, or none
		var plain []*ending
		plain, chats = plainEnds(together)
		for _, end := range plain {
			ends.add(end, 0, &engine.Batch{})
		}
	} else {
		for _, t := range together {
			if t.end != nil {
				ends.add(t.end, asks.ofCall[t], &t.next)
			}
		}
	}
	answer := newTurnoverAnswer(len(ends.ids))
	statement, arguments := claimStatement, []any{c.node, c.call}
	switch {
	case len(ends.ids) == 0:
	case care == careOfPlain:
		statement, arguments = plainStatement, append(arguments, ends.plainList(chats)...)
	default:
		statement, arguments = endStatement, append([]any{c.node, c.call, care == careOfLocked}, ends.list()...)
	}
	arguments = append(arguments, asks.arguments(c.behind.from())...)
	err := c.on(claimCalls).query(ctx, func(row pgx.Rows) error { return c.read(row, answer) }, statement, arguments...)
	return answer, err
}

// read reads a row of the answer.
func (c *claiming) read(row pgx.Rows, answer *turnoverAnswer) error {
	var (
		kind                          string
		number, attempt, waits        int32
		id, token, chat, hook, runner *string
		at, accepted                  *time.Time
		secs                          *float64
		alive                         bool
		turn                          *int64
		data, state                   []byte
	)
	if err := row.Scan(&kind, &number, &id, &token, &attempt, &at, &secs, &waits, &alive, &turn, &accepted, &chat, &hook, &runner,
		&data, &state); err != nil {
		return err
	}
	answer.at = *at
	switch kind {
	case "retry":
		answer.retry = true
	case "end":
		answer.ends[number-1] = *token
	case "added":
		return answer.added.note(int(number), *token, *at, *accepted, alive, chat, waits == 1)
	case "started":
		answer.added.tokens[*id] = *token
	case "offered":
		answer.ready += int(number)
		answer.opened += int(waits)
	case "clock":
		answer.ready += int(number)
		answer.lastTurn = *turn
		if secs != nil {
			answer.wait = max(time.Duration(*secs*float64(time.Second)), 0)
		}
	case "question":
		var answeredAt *time.Time
		if secs != nil {
			exact := time.UnixMicro(int64(math.Round(*secs * 1e6)))
			answeredAt = &exact
		}
		question := &engine.Question{RunID: *id, Number: int(number), State: state}
		if err := codec.DecodeQuestion(question, data, []byte(textOrEmpty(chat)), accepted, answeredAt); err != nil {
			return fmt.Errorf("reading question %s: %w", question.ID(), err)
		}
		claim := answer.claims[*token]
		claim.Questions = append(claim.Questions, question)
	default:
		run := &engine.Run{ID: *id, ChatID: codec.Unescape(*chat), Hook: codec.Unescape(*hook), Runner: codec.Unescape(*runner),
			AcceptedAt: accepted.UTC()}
		if err := codec.DecodeRun(data, run); err != nil {
			return fmt.Errorf("reading run %s: %w", *id, err)
		}
		if kind == "folded" {
			leader := answer.claims[*token]
			leader.Folded = append(leader.Folded, run)
			break
		}
		claim := &engine.Claim{Run: run, Token: *token, Attempt: int(attempt), StartedAt: at.UTC(),
			Waited: time.Duration(*secs * float64(time.Second)), Waits: int(waits),
			Awaited: run.Sync && run.Owner != "" && (alive || run.Owner == c.node)}
		answer.claims[*token] = claim
		answer.byAsk[number] = append(answer.byAsk[number], claim)
	}
	return nil
}
