package service

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Refusals remembers the requests that became no run, by their kind: those that were refused, and those that were ignored. The first of a
// kind is logged at once, and then how many more there were, each minute. It outlives reloads. A nil value has nothing to list or to
// report.
type Refusals struct {
	mu     sync.Mutex // one is enough: it is held for a fraction of a microsecond, and never while a line is written
	Kinds  map[RefusedKind]*list.Element
	Recent list.List // of *refusedRequests, the last seen first

	Minute   *time.Timer // ends the minute; nil if nothing was refused since the last one
	lines    int         // written at once in this minute
	unlogged int64       // of kinds that are not kept
	log      *zap.Logger // for counts: that of the newest instance
	closed   bool
}

// RefusedKind tells requests apart that are refused. Callers must not be able to make many of them: each part is configured, or
// one of a few.
type RefusedKind struct {
	Hook   string // "" for all names that no hook has
	Status int
	Reason string // for operators; of an ignored request its condition

	Ignored bool // it was not refused: the hook leaves such requests out
}

// RefusedRequest is a request that became no run.
type RefusedRequest struct {
	RefusedKind
	Message string // the answer to the caller
	Cause   string // what went wrong inside, if anything
	Chat    string // whose queue is full, if that is why
	Asked   string // the name in the URL, if no hook has it, or the run
	Client  string
	Size    int64
}

// RefusedRequests are all requests of a kind.
type RefusedRequests struct {
	Last            RefusedRequest
	FirstAt, LastAt time.Time
	Count           int64
	unlogged        int64 // in no line of the log yet
	Lately          recentCount
	Clients         []RefusedClient // the last ones, the latest first
	Asked           []string        // the last names, the latest first
}

// RefusedClient is one of the clients whose requests of a kind were refused.
type RefusedClient struct {
	Address string
	Count   int64 // since it is among the last ones
	LastAt  time.Time
}

const (
	// MaxRefusedKinds bounds the kinds that are kept, and the kinds that are logged at once in a minute.
	MaxRefusedKinds = 500

	// MaxRefusedMessage bounds the part of an answer that is kept. It may quote the caller.
	MaxRefusedMessage = 512

	// maxRecent bounds the clients and the names that are kept of a kind.
	maxRecent = 8

	// MaxCause bounds the part of an error that is kept.
	MaxCause = 512
)

// recorders has the refusals of the instances of all configurations, by the name of the instance.
var recorders = caddy.NewUsagePool()

// JoinRecorder shares the refusals of instances of the same name, which is how they outlive a reload.
func (in *Instance) JoinRecorder() {
	recorder, _, _ := recorders.LoadOrNew(in.Name, func() (caddy.Destructor, error) { return NewRefusals(), nil })
	in.Refused = recorder.(*Refusals)
	in.leaveRecorder = sync.OnceFunc(func() { _, _ = recorders.Delete(in.Name) })
}

// logTo has counts logged by the newest instance. The log of an older one may be closed.
func (r *Refusals) logTo(log *zap.Logger) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = log
}

func NewRefusals() *Refusals {
	return &Refusals{Kinds: make(map[RefusedKind]*list.Element)}
}

// Destruct logs what was not counted yet.
func (r *Refusals) Destruct() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.Report()
	return nil
}

// Note remembers a refused request, and logs it if it is the first of its kind.
func (r *Refusals) Note(log *zap.Logger, request RefusedRequest) {
	if r.add(log, request) {
		log.Log(request.level(), request.line(), request.fields()...)
	}
}

// add reports whether the request must be logged at once.
func (r *Refusals) add(log *zap.Logger, request RefusedRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.log == nil { // before the start
		r.log = log
	}
	if r.Minute == nil && !r.closed {
		r.Minute = time.AfterFunc(time.Minute, r.Report)
	}
	if known := r.Kinds[request.RefusedKind]; known != nil {
		r.Recent.MoveToFront(known)
		kind := known.Value.(*RefusedRequests)
		kind.add(request, now)
		kind.unlogged++
		return false
	}
	if len(r.Kinds) == MaxRefusedKinds {
		r.forgetOldest()
	}
	kind := &RefusedRequests{FirstAt: now}
	kind.add(request, now)
	r.Kinds[request.RefusedKind] = r.Recent.PushFront(kind)
	if r.lines == MaxRefusedKinds {
		r.unlogged++
		return false
	}
	r.lines++
	return true
}

// add counts one more request of the kind.
func (k *RefusedRequests) add(request RefusedRequest, now time.Time) {
	k.Last, k.LastAt = request, now
	k.Count++
	k.Lately.add(now)
	client := RefusedClient{Address: request.Client}
	at := slices.IndexFunc(k.Clients, func(c RefusedClient) bool { return c.Address == client.Address })
	if at >= 0 {
		client = k.Clients[at]
	}
	client.Count++
	client.LastAt = now
	k.Clients = toFront(k.Clients, at, client)
	if request.Asked != "" {
		k.Asked = toFront(k.Asked, slices.Index(k.Asked, request.Asked), request.Asked)
	}
}

// recentCount counts what happened in the last hour, or a little less.
type recentCount struct {
	began       time.Time // the half hour that is counted now
	now, before int64     // in it, and in the one before it
}

const halfAnHour = 30 * time.Minute

func (c *recentCount) add(now time.Time) {
	c.turn(now)
	c.now++
}

// At is the count at a time.
func (c recentCount) At(now time.Time) int64 {
	c.turn(now)
	return c.now + c.before
}

// turn begins another half hour if it is time.
func (c *recentCount) turn(now time.Time) {
	switch passed := now.Sub(c.began); {
	case passed >= 2*halfAnHour:
		*c = recentCount{began: now}
	case passed >= halfAnHour:
		*c = recentCount{began: c.began.Add(halfAnHour), before: c.now}
	}
}

// toFront puts an item at the front of a short list. at is where the list has it already, negative if it has not.
func toFront[T any](items []T, at int, item T) []T {
	if at < 0 {
		if len(items) < maxRecent {
			items = append(items, item)
		}
		at = len(items) - 1 // the last one of a full list goes
	}
	copy(items[1:], items[:at])
	items[0] = item
	return items
}

// snapshot is a copy that does not change any more.
func (k *RefusedRequests) snapshot() RefusedRequests {
	snapshot := *k
	snapshot.Clients, snapshot.Asked = slices.Clone(k.Clients), slices.Clone(k.Asked)
	return snapshot
}

func (r *Refusals) forgetOldest() {
	oldest := r.Recent.Remove(r.Recent.Back()).(*RefusedRequests)
	delete(r.Kinds, oldest.Last.RefusedKind)
	r.unlogged += oldest.unlogged
}

// Report ends the minute: it logs how many requests came of each kind after those that are logged already.
func (r *Refusals) Report() {
	if r == nil {
		return
	}
	r.mu.Lock()
	if r.Minute != nil {
		r.Minute.Stop()
	}
	var more []RefusedRequests
	for e := r.Recent.Front(); e != nil; e = e.Next() {
		kind := e.Value.(*RefusedRequests)
		if kind.unlogged > 0 {
			more = append(more, kind.snapshot())
			kind.unlogged = 0
		}
	}
	others, log := r.unlogged, r.log
	r.Minute, r.lines, r.unlogged = nil, 0, 0
	r.mu.Unlock()

	for _, kind := range more {
		log.Log(kind.Last.level(), kind.Last.linePerMinute(), append(kind.fields(), zap.Int64("count", kind.unlogged))...)
	}
	if others > 0 {
		log.Warn("requests of many other kinds refused", zap.Int64("count", others))
	}
}

// line is that of the log for the first request of the kind.
func (k RefusedKind) line() string {
	if k.Ignored {
		return "request ignored"
	}
	return "request refused"
}

// linePerMinute is that for all that came in a minute.
func (k RefusedKind) linePerMinute() string {
	if k.Ignored {
		return "requests ignored"
	}
	return "requests refused"
}

// fields are the facts of a request for the log.
func (q *RefusedRequest) fields() []zap.Field {
	fields := []zap.Field{zap.String("hook", q.Hook), zap.Int("status", q.Status), zap.String("reason", q.Reason)}
	if q.Message != q.Reason && q.Message != "" {
		fields = append(fields, zap.String("message", q.Message))
	}
	if q.Cause != "" {
		fields = append(fields, zap.String("error", q.Cause))
	}
	if q.Chat != "" {
		fields = append(fields, zap.String("chat", q.Chat))
	}
	if q.Asked != "" {
		fields = append(fields, zap.Strings("asked", []string{q.Asked}))
	}
	return append(fields, zap.String("client", q.Client), zap.Int64("size", q.Size))
}

// level is that of an error if something went wrong inside, and of a fact if nothing went wrong at all.
func (q *RefusedRequest) level() zapcore.Level {
	switch {
	case q.Ignored:
		return zapcore.InfoLevel
	case q.Cause != "":
		return zapcore.ErrorLevel
	default:
		return zapcore.WarnLevel
	}
}

// fields are the facts of the last request for the log, with the last clients and names.
func (k *RefusedRequests) fields() []zap.Field {
	last := k.Last
	last.Asked = ""
	fields := last.fields()
	if k.Asked != nil {
		fields = append(fields, zap.Strings("asked", k.Asked))
	}
	clients := make([]string, len(k.Clients))
	for i, c := range k.Clients {
		clients[i] = c.Address
	}
	return append(fields, zap.Strings("clients", clients))
}

// List returns the kinds that match, the last seen first.
func (r *Refusals) List(match func(RefusedKind) bool, limit int) []RefusedRequests {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var matching []RefusedRequests
	for e := r.Recent.Front(); e != nil && len(matching) < limit; e = e.Next() {
		if kind := e.Value.(*RefusedRequests); match(kind.Last.RefusedKind) {
			matching = append(matching, kind.snapshot())
		}
	}
	return matching
}
