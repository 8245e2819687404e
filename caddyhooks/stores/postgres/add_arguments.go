package postgres

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/postgres/codec"
)

// addArguments are the arrays that add_runs_1 is given.
type addArguments struct {
	odd bool

	places []string
	counts []int32

	firsts                 []string
	numbers                []int32
	replays, keys          []int32
	refuse                 []bool
	again                  []*string
	once                   []bool
	keyIDs, keyBodies      [][]byte
	keyAny                 []bool
	keyRuns, keyFirsts     []string
	kindRunners, kindHooks []string
	order                  []int32
	ids, chats             []string
	at, states             []int32
	kinds                  []int32
	hooks, runners         []string
	queueTimes, windows    []float64
	foldMaxes              []int32
	alikes                 []int64
	sizes                  []int32
	named                  []bool
	owners, requests       []string
	encoded                []string
}

// arguments are those of addStatement.
func (a *adding) arguments(together []*addition, made time.Time, off float64) []any {
	var args addArguments
	args.setRequests(together)
	args.setKeys(together)
	args.setRuns(together)
	limits := together[0].terms.Limits
	return []any{
		a.node, made, off,
		together[0].terms.Settings, int64(limits.Queue), int64(limits.Chat), int64(limits.Keys), limits.KeyAge.Seconds(), args.odd,
		args.places, args.counts,
		args.firsts, args.numbers, args.replays, args.keys, args.refuse, args.again, args.once,
		args.keyIDs, args.keyBodies, args.keyAny, args.keyRuns, args.keyFirsts,
		args.kindRunners, args.kindHooks,
		args.order, args.ids, args.chats, args.at, args.states, args.kinds, args.hooks, args.runners, args.queueTimes, args.windows,
		args.foldMaxes, args.alikes,
		args.sizes, args.named, args.owners, args.requests, args.encoded,
	}
}

// addStatement accepts requests.
var addStatement = callStatement("add_runs_1", addParameters)

const addParameters = 42

func callStatement(function string, parameters int) string {
	var b strings.Builder
	for i := range parameters {
		fmt.Fprintf(&b, ", $%d", i+1)
	}
	return "SELECT * FROM @." + function + "(" + b.String()[2:] + ")"
}

func (args *addArguments) setRequests(together []*addition) {
	for _, one := range together {
		first := one.runs[0]
		args.firsts, args.numbers = append(args.firsts, first.ID), append(args.numbers, int32(len(one.runs)))
		args.refuse, args.once = append(args.refuse, one.refuse != nil), append(args.once, one.terms.Once && first.AgainOf != "")
		var again *string
		if first.AgainOf != "" {
			again = &first.AgainOf
			if _, isID := local.ParseID(first.AgainOf); !isID {
				again = &noRun
			}
		}
		args.again = append(args.again, again)
		args.odd = args.odd || one.refuse != nil || again != nil
	}
}

// noRun is an id that no run has.
var noRun = uuid.Nil.String()

// setKeys fills in the keys of requests, in the order of their ids.
func (args *addArguments) setKeys(together []*addition) {
	type use struct {
		key      *engine.Key
		request  int
		isReplay bool
	}
	var uses []use
	for i, one := range together {
		if replay := one.runs[0].Replay; replay != nil {
			uses = append(uses, use{replay, i, true})
		}
		if key := one.runs[0].Key; key != nil {
			uses = append(uses, use{key, i, false})
		}
	}
	args.replays, args.keys = make([]int32, len(together)), make([]int32, len(together))
	args.keyIDs, args.keyBodies, args.keyAny = make([][]byte, 0, len(uses)), make([][]byte, 0, len(uses)), make([]bool, 0, len(uses))
	args.keyRuns, args.keyFirsts = make([]string, 0, len(uses)), make([]string, 0, len(uses))
	slices.SortStableFunc(uses, func(a, b use) int { return bytes.Compare(a.key.ID[:], b.key.ID[:]) })
	for i, use := range uses {
		first := together[use.request].runs[0]
		args.keyIDs, args.keyBodies = append(args.keyIDs, use.key.ID[:]), append(args.keyBodies, use.key.Body[:])
		args.keyAny, args.keyRuns = append(args.keyAny, use.key.AnyBody), append(args.keyRuns, first.ID)
		args.keyFirsts = append(args.keyFirsts, codec.EncodeFirst(first))
		if use.isReplay {
			args.replays[use.request] = int32(i + 1)
		} else {
			args.keys[use.request] = int32(i + 1)
		}
	}
}

// setRuns fills in the runs of requests, in the order of their chats.
func (args *addArguments) setRuns(together []*addition) {
	type place struct {
		run     *engine.Run
		chat    string
		encoded string
		number  int // in the order of requests
	}
	var places []place
	for _, one := range together {
		for i, run := range one.runs {
			places = append(places, place{run, codec.Escape(run.ChatID), one.encoded[i], len(places)})
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.chat, b.chat) })
	n := len(places)
	args.order = make([]int32, n)
	args.ids, args.chats, args.at, args.states = make([]string, n), make([]string, n), make([]int32, n), make([]int32, n)
	args.kinds, args.hooks, args.runners = make([]int32, n), make([]string, n), make([]string, n)
	args.queueTimes, args.windows, args.foldMaxes, args.alikes = make([]float64, n), make([]float64, n), make([]int32, n), make([]int64, n)
	args.sizes, args.named, args.owners = make([]int32, n), make([]bool, n), make([]string, n)
	args.requests, args.encoded = make([]string, n), make([]string, n)
	for i, p := range places {
		run := p.run
		args.order[p.number] = int32(i + 1)
		args.states[i] = 2
		if i == 0 || p.chat != places[i-1].chat {
			args.states[i] = 1
			args.places, args.counts = append(args.places, p.chat), append(args.counts, 0)
		}
		args.counts[len(args.counts)-1]++
		args.ids[i], args.chats[i], args.at[i] = run.ID, p.chat, int32(len(args.places))
		args.hooks[i], args.runners[i] = codec.Escape(run.Hook), codec.Escape(run.Runner)
		args.kinds[i] = args.kindOf(args.runners[i], args.hooks[i])
		const forEver = 100 * 365 * 24 * time.Hour
		if run.QueueTime > 0 && run.QueueTime < forEver {
			args.queueTimes[i] = run.QueueTime.Seconds()
		}
		args.windows[i] = -1
		if run.Fold.IsSet() && !run.Sync && run.AgainOf == "" {
			args.windows[i] = min(max(run.Fold.Window, 0), forEver).Seconds()
			args.foldMaxes[i], args.alikes[i] = int32(run.Fold.Max), int64(run.Fold.Alike)
		}
		args.sizes[i], args.named[i], args.owners[i] = int32(len(run.Message)), !run.NewChat, codec.Escape(run.Owner)
		args.requests[i], args.encoded[i] = codec.Escape(run.RequestID), p.encoded
	}
}

// kindOf is the number of a kind, of which there are few.
func (args *addArguments) kindOf(runner, hook string) int32 {
	for i := range args.kindHooks {
		if args.kindHooks[i] == hook && args.kindRunners[i] == runner {
			return int32(i + 1)
		}
	}
	args.kindRunners, args.kindHooks = append(args.kindRunners, runner), append(args.kindHooks, hook)
	return int32(len(args.kindHooks))
}

// duplicateError is the answer to a repeated request.
func duplicateError(stored *string, same bool) error {
	if stored == nil {
		return fmt.Errorf("the database does not say what a repeated request was answered")
	}
	run, err := codec.DecodeFirst([]byte(*stored))
	if err != nil {
		return fmt.Errorf("reading the answer to a repeated request: %w", err)
	}
	return &engine.DuplicateError{First: run, SameBody: same}
}
