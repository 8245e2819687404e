package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// adding accepts runs. Requests that come at the same time go to the database together. Those that have gates are apart: they take
// longer, which others need not wait for.
type adding struct {
	*runs
	batcher *batcher[addition]

	// Of the batch that is under way.
	ids       local.IDs
	claimCall int64 // the number of the last call that claims, counted down: others are counted up
}

// How much goes to the database at once. A request alone may have more.
const (
	mostRequests = 128
	mostChats    = 128 // and gates: each has a lock, of which the server has few
	mostRuns     = 512
	mostBytes    = 4 << 20
)

func (a *adding) init(r *runs) {
	a.runs = r
	a.batcher = newBatcher(mostRequests, a.addAll)
}

func (r *runs) Add(ctx context.Context, run *engine.Run, terms engine.Terms) error {
	return r.AddAll(ctx, []*engine.Run{run}, terms)
}

func (r *runs) AddAll(ctx context.Context, runs []*engine.Run, terms engine.Terms) error {
	return r.add(ctx, runs, terms, nil)
}

// add accepts a request, and claims what is wanted, if it is not nil.
func (r *runs) add(ctx context.Context, runs []*engine.Run, terms engine.Terms, wanted *turnover) error {
	if len(runs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	a, err := newAddition(runs, terms)
	if err != nil {
		return err
	}
	a.wanted = wanted
	adding := &r.adding
	if local.HasGates(runs) {
		adding = &r.gated
	}
	if err := adding.batcher.do(ctx, a); err != nil {
		return err
	}
	if a.err == nil {
		for i, run := range local.Passed(&a.passage, runs) {
			*run = *a.runs[i]
		}
	}
	return a.err
}

// addition is a request that is to be accepted.
type addition struct {
	asked   []engine.Run  // as the caller has them; nobody changes them
	runs    []*engine.Run // as they are stored
	encoded []string      // "" of those that have to wait for their ids
	terms   engine.Terms
	size    int
	passage local.Passage // of runs that have gates
	refuse  error         // why it is refused unless it is a repeated one: its terms or its gates
	wanted  *turnover     // the claims that it asks for, nil for none
	looks   int           // how often it was decided on by gates that had changed
	err     error         // the answer
}

func newAddition(runs []*engine.Run, terms engine.Terms) (*addition, error) {
	a := &addition{asked: make([]engine.Run, len(runs)), encoded: make([]string, len(runs)), terms: terms}
	for i, run := range runs {
		a.asked[i] = *run
		a.size += len(run.Message) + len(run.Metadata) + len(run.Schema)
		if len(runs) == 1 && run.IDPlaceholder == "" && run.Together == nil {
			var err error
			if a.encoded[i], err = codec.EncodeRun(run); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// prepare gives the runs ids that are made at a time, and takes them through their gates, if they have some.
func (a *addition) prepare(ids *local.IDs, at time.Time, gates *lookedGates) error {
	a.runs, a.refuse = make([]*engine.Run, len(a.asked)), a.terms.Refuse
	for i := range a.asked {
		run := a.asked[i]
		id, err := ids.Next(at)
		if err != nil {
			return err
		}
		run.ID = id.String()
		run.FillID()
		a.runs[i] = &run
	}
	if gates != nil {
		gates.pass(a)
	}
	local.JoinSiblings(a.runs)
	for i, run := range a.runs {
		if a.encoded[i] == "" || run.Together != nil || a.asked[i].IDPlaceholder != "" {
			var err error
			if a.encoded[i], err = codec.EncodeRun(run); err != nil {
				return err
			}
		}
	}
	return nil
}

// goesWith reports whether two requests can be accepted together.
func (a *addition) goesWith(other *addition) bool {
	return a.terms.Limits == other.terms.Limits && a.terms.Settings == other.terms.Settings
}

// addAll accepts the requests of a batch, in as many calls as it takes. The answers are in the additions.
func (a *adding) addAll(ctx context.Context, batch []*addition) error {
	for len(batch) > 0 {
		var together []*addition
		together, batch = takeTogether(batch)
		a.addTogether(ctx, together)
	}
	return nil
}

// takeTogether takes the first of some requests, and others that go to the database with it.
func takeTogether(batch []*addition) (together, rest []*addition) {
	runs, size, gates := 0, 0, 0
	chats := make(map[string]struct{}, len(batch))
	for _, a := range batch {
		more := 0
		for i := range a.asked {
			if _, isThere := chats[a.asked[i].ChatID]; !isThere || a.asked[i].IDPlaceholder != "" {
				more++
			}
			more += len(a.asked[i].Gates)
		}
		if len(together) > 0 && (!a.goesWith(together[0]) || runs+len(a.asked) > mostRuns || size+a.size > mostBytes ||
			len(chats)+gates+more > mostChats) {
			rest = append(rest, a)
			continue
		}
		together, runs, size = append(together, a), runs+len(a.asked), size+a.size
		for i := range a.asked {
			chats[a.asked[i].ChatID] = struct{}{}
			gates += len(a.asked[i].Gates)
		}
	}
	return together, rest
}

// addTogether accepts requests in one call, or in several if their gates change meanwhile. If the database does not like the values of one,
// the others do not suffer for it.
func (a *adding) addTogether(ctx context.Context, together []*addition) {
	var err error
	for len(together) > 0 && err == nil {
		var again []*addition
		if again, err = a.call(ctx, together); err == nil {
			together = again
		}
	}
	if err == nil {
		return
	}
	if len(together) > 1 && isAboutValues(err) {
		for _, one := range together {
			a.addTogether(ctx, []*addition{one})
		}
		return
	}
	for _, one := range together {
		one.err = err
	}
}

// isAboutValues reports whether the database refused what it was given, and not the call.
func isAboutValues(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && slices.Contains([]string{"22", "23", "54"}, refused.Code[:2])
}

// errClock says that the ids could not be made by the database's clock.
var errClock = errors.New("the clock of the database is unsteady")

// clockTolerances are by how many seconds ids may be off. If the link is slow or the clock is set time
// and again, they may be off by more; then runs were accepted when their ids were made.
var clockTolerances = [...]float64{.5, .5, 5, 3600}

// call has the database accept requests, and returns those that it has to be asked about again. The node first has to know what time it is
// there.
func (a *adding) call(ctx context.Context, together []*addition) ([]*addition, error) {
	for _, off := range clockTolerances {
		gates, err := a.look(ctx, together)
		if err != nil {
			return nil, err
		}
		made := a.now()
		for _, one := range together {
			if err := one.prepare(&a.ids, made, gates); err != nil {
				return nil, err
			}
		}
		answer := newAnswer(together)
		var claimed *turnoverAnswer // of a lone request: if several go together, the next end claims their runs with less work
		asked := time.Now()
		switch arguments := a.arguments(together, made, off); {
		case gates != nil:
			err = a.on(addCalls).query(ctx, answer.read, addGatedStatement, append(gates.arguments(together), arguments...)...)
		case len(together) == 1 && together[0].wanted != nil:
			claimed, err = a.askWithClaims(ctx, together[0], arguments)
			answer = claimed.added
		default:
			err = a.on(addCalls).query(ctx, answer.read, addStatement, arguments...)
		}
		if err != nil {
			return nil, err
		}
		a.commits.note(len(together), asked)
		a.learnClock(asked, answer.now)
		if answer.status == "clock" {
			a.ids = local.IDs{} // or all further ids would be greater
			continue
		}
		answer.tell()
		if claimed != nil {
			a.give(ctx, together[0], claimed)
		}
		if answer.ready {
			a.watch.tellClaimable()
			a.watch.tellOthers("r")
		}
		return answer.changed(), nil
	}
	return nil, errClock
}

// addAnswer is what add_runs_1 said, and what add_and_claim_2 said besides.
type addAnswer struct {
	together []*addition
	status   string
	now      time.Time // by the database's clock
	accepted time.Time
	ready    bool
	refused  map[int]error
	tokens   map[string]string // of the runs that are stored as claimed
}

func newAnswer(together []*addition) *addAnswer {
	return &addAnswer{together: together, refused: make(map[int]error), tokens: make(map[string]string)}
}

// read takes in a row.
func (a *addAnswer) read(rows pgx.Rows) error {
	var request int
	var status string
	var now, accepted time.Time
	var ready, same bool
	var first *string
	if err := rows.Scan(&request, &status, &now, &accepted, &ready, &first, &same); err != nil {
		return err
	}
	return a.note(request, status, now, accepted, ready, first, same)
}

// note takes in what a row says.
func (a *addAnswer) note(request int, status string, now, accepted time.Time, ready bool, first *string, same bool) error {
	if request == 0 {
		a.status, a.now, a.accepted, a.ready = status, now.UTC(), accepted.UTC(), ready
		return nil
	}
	var err error
	switch status {
	case "duplicate":
		err = duplicateError(first, same)
	case "refused":
		err = a.together[request-1].refuse
	case "gates_changed":
		err = errGatesChanged
	case "queue_full":
		err = engine.ErrQueueFull
	case "chat_full":
		err = engine.ErrChatFull
	case "again":
		err = engine.ErrRunAgain
	case "not_found":
		err = engine.ErrNotFound
	default:
		err = errors.New("the database answers with an unknown status: " + status)
	}
	a.refused[request-1] = err
	return nil
}

// tell passes the answer on to the requests.
func (a *addAnswer) tell() {
	for i, one := range a.together {
		one.err = a.refused[i]
		if a.status == "settings_changed" {
			one.err = engine.ErrSettingsChanged
		}
		for _, run := range one.runs {
			run.AcceptedAt = a.accepted
		}
	}
}
