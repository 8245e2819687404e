package caddyhooks

import (
	"cmp"
	"container/list"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// refusals remembers the requests that became no run, by their kind: those that were refused, and those that were ignored. The first of a kind is logged at once, and then how many
// more there were, each minute. It outlives reloads. A nil value has nothing to list or to report.
type refusals struct {
	mu     sync.Mutex // one is enough: it is held for a fraction of a microsecond, and never while a line is written
	kinds  map[refusedKind]*list.Element
	recent list.List // of *refusedRequests, the last seen first

	minute   *time.Timer // ends the minute; nil if nothing was refused since the last one
	lines    int         // written at once in this minute
	unlogged int64       // of kinds that are not kept
	log      *zap.Logger // for counts: that of the newest instance
	closed   bool
}

// refusedKind tells requests apart that are refused. Callers must not be able to make many of them: each part is configured, or
// one of a few.
type refusedKind struct {
	hook   string // "" for all names that no hook has
	status int
	reason string // for operators; of an ignored request its condition

	ignored bool // it was not refused: the hook leaves such requests out
}

// refusedRequest is a request that became no run.
type refusedRequest struct {
	refusedKind
	message string // the answer to the caller
	cause   string // what went wrong inside, if anything
	chat    string // whose queue is full, if that is why
	asked   string // the name in the URL, if no hook has it, or the run
	client  string
	size    int64
}

// refusedRequests are all requests of a kind.
type refusedRequests struct {
	last            refusedRequest
	firstAt, lastAt time.Time
	count           int64
	unlogged        int64 // in no line of the log yet
	lately          recentCount
	clients         []refusedClient // the last ones, the latest first
	asked           []string        // the last names, the latest first
}

// refusedClient is one of the clients whose requests of a kind were refused.
type refusedClient struct {
	address string
	count   int64 // since it is among the last ones
	lastAt  time.Time
}

const (
	// maxRefusedKinds bounds the kinds that are kept, and the kinds that are logged at once in a minute.
	maxRefusedKinds = 500

	// maxRefusedMessage bounds the part of an answer that is kept. It may quote the caller.
	maxRefusedMessage = 512

	// maxRecent bounds the clients and the names that are kept of a kind.
	maxRecent = 8

	// maxCause bounds the part of an error that is kept.
	maxCause = 512
)

// recorders has the refusals of the instances of all configurations, by the name of the instance.
var recorders = caddy.NewUsagePool()

// joinRecorder shares the refusals of instances of the same name, which is how they outlive a reload.
func (in *instance) joinRecorder() {
	recorder, _, _ := recorders.LoadOrNew(in.name, func() (caddy.Destructor, error) { return newRefusals(), nil })
	in.refused = recorder.(*refusals)
	in.leaveRecorder = sync.OnceFunc(func() { _, _ = recorders.Delete(in.name) })
}

// logTo has counts logged by the newest instance. The log of an older one may be closed.
func (r *refusals) logTo(log *zap.Logger) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = log
}

func newRefusals() *refusals {
	return &refusals{kinds: make(map[refusedKind]*list.Element)}
}

// Destruct logs what was not counted yet.
func (r *refusals) Destruct() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.report()
	return nil
}

// note remembers a refused request, and logs it if it is the first of its kind.
func (r *refusals) note(log *zap.Logger, request refusedRequest) {
	if r.add(log, request) {
		log.Log(request.level(), request.line(), request.fields()...)
	}
}

// add reports whether the request must be logged at once.
func (r *refusals) add(log *zap.Logger, request refusedRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.log == nil { // before the start
		r.log = log
	}
	if r.minute == nil && !r.closed {
		r.minute = time.AfterFunc(time.Minute, r.report)
	}
	if known := r.kinds[request.refusedKind]; known != nil {
		r.recent.MoveToFront(known)
		kind := known.Value.(*refusedRequests)
		kind.add(request, now)
		kind.unlogged++
		return false
	}
	if len(r.kinds) == maxRefusedKinds {
		r.forgetOldest()
	}
	kind := &refusedRequests{firstAt: now}
	kind.add(request, now)
	r.kinds[request.refusedKind] = r.recent.PushFront(kind)
	if r.lines == maxRefusedKinds {
		r.unlogged++
		return false
	}
	r.lines++
	return true
}

// add counts one more request of the kind.
func (k *refusedRequests) add(request refusedRequest, now time.Time) {
	k.last, k.lastAt = request, now
	k.count++
	k.lately.add(now)
	client := refusedClient{address: request.client}
	at := slices.IndexFunc(k.clients, func(c refusedClient) bool { return c.address == client.address })
	if at >= 0 {
		client = k.clients[at]
	}
	client.count++
	client.lastAt = now
	k.clients = toFront(k.clients, at, client)
	if request.asked != "" {
		k.asked = toFront(k.asked, slices.Index(k.asked, request.asked), request.asked)
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

// at is the count at a time.
func (c recentCount) at(now time.Time) int64 {
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
func (k *refusedRequests) snapshot() refusedRequests {
	snapshot := *k
	snapshot.clients, snapshot.asked = slices.Clone(k.clients), slices.Clone(k.asked)
	return snapshot
}

func (r *refusals) forgetOldest() {
	oldest := r.recent.Remove(r.recent.Back()).(*refusedRequests)
	delete(r.kinds, oldest.last.refusedKind)
	r.unlogged += oldest.unlogged
}

// report ends the minute: it logs how many requests came of each kind after those that are logged already.
func (r *refusals) report() {
	if r == nil {
		return
	}
	r.mu.Lock()
	if r.minute != nil {
		r.minute.Stop()
	}
	var more []refusedRequests
	for e := r.recent.Front(); e != nil; e = e.Next() {
		kind := e.Value.(*refusedRequests)
		if kind.unlogged > 0 {
			more = append(more, kind.snapshot())
			kind.unlogged = 0
		}
	}
	others, log := r.unlogged, r.log
	r.minute, r.lines, r.unlogged = nil, 0, 0
	r.mu.Unlock()

	for _, kind := range more {
		log.Log(kind.last.level(), kind.last.linePerMinute(), append(kind.fields(), zap.Int64("count", kind.unlogged))...)
	}
	if others > 0 {
		log.Warn("requests of many other kinds refused", zap.Int64("count", others))
	}
}

// line is that of the log for the first request of the kind.
func (k refusedKind) line() string {
	if k.ignored {
		return "request ignored"
	}
	return "request refused"
}

// linePerMinute is that for all that came in a minute.
func (k refusedKind) linePerMinute() string {
	if k.ignored {
		return "requests ignored"
	}
	return "requests refused"
}

// fields are the facts of a request for the log.
func (q *refusedRequest) fields() []zap.Field {
	fields := []zap.Field{zap.String("hook", q.hook), zap.Int("status", q.status), zap.String("reason", q.reason)}
	if q.message != q.reason && q.message != "" {
		fields = append(fields, zap.String("message", q.message))
	}
	if q.cause != "" {
		fields = append(fields, zap.String("error", q.cause))
	}
	if q.chat != "" {
		fields = append(fields, zap.String("chat", q.chat))
	}
	if q.asked != "" {
		fields = append(fields, zap.Strings("asked", []string{q.asked}))
	}
	return append(fields, zap.String("client", q.client), zap.Int64("size", q.size))
}

// level is that of an error if something went wrong inside, and of a fact if nothing went wrong at all.
func (q *refusedRequest) level() zapcore.Level {
	switch {
	case q.ignored:
		return zapcore.InfoLevel
	case q.cause != "":
		return zapcore.ErrorLevel
	default:
		return zapcore.WarnLevel
	}
}

// fields are the facts of the last request for the log, with the last clients and names.
func (k *refusedRequests) fields() []zap.Field {
	last := k.last
	last.asked = ""
	fields := last.fields()
	if k.asked != nil {
		fields = append(fields, zap.Strings("asked", k.asked))
	}
	clients := make([]string, len(k.clients))
	for i, c := range k.clients {
		clients[i] = c.address
	}
	return append(fields, zap.Strings("clients", clients))
}

// list returns the kinds that match, the last seen first.
func (r *refusals) list(match func(refusedKind) bool, limit int) []refusedRequests {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var matching []refusedRequests
	for e := r.recent.Front(); e != nil && len(matching) < limit; e = e.Next() {
		if kind := e.Value.(*refusedRequests); match(kind.last.refusedKind) {
			matching = append(matching, kind.snapshot())
		}
	}
	return matching
}

// refuse answers a request that failed, and returns the status of the answer. It is noted unless it became a run.
func (q *hookRequest) refuse(w http.ResponseWriter, r *http.Request, err error) (status int) {
	in := q.in
	answer := answerTo(err, in.log)
	if answer == nil {
		observe.NoteStatus(r, observe.RequestGone)
		w.WriteHeader(statusCallerGone) // for the access log
		return statusCallerGone
	}
	switch {
	case answer.OfRun: // its status is known
	case q.stored:
		observe.NoteStatus(r, observe.RequestAccepted)
	default:
		observe.NoteStatus(r, observe.RequestRefused)
		in.noteRefusal(q, r, answer)
	}
	writeError(w, r, answer)
	return answer.Status
}

func (in *instance) noteRefusal(q *hookRequest, r *http.Request, answer *api.Error) {
	if in.refused == nil {
		return
	}
	active := in.active.Load() // nil before the start
	refused := refusedRequest{
		refusedKind: refusedKind{hook: hookNamed(active, q.name), status: answer.Status, reason: cmp.Or(answer.Reason, answer.Message)},
		message:     oneline.Of(answer.Message, maxRefusedMessage),
		client:      intake.ClientAddress(r),
		size:        int64(q.received.Count),
	}
	if answer.Cause != nil {
		refused.cause = oneline.Of(answer.Cause.Error(), maxCause)
	}
	if answer.OfChat {
		refused.chat = oneline.Of(q.chat, maxRefusedMessage)
	}
	if refused.size == 0 {
		refused.size = max(r.ContentLength, 0)
	}
	if refused.hook != q.name {
		refused.asked = showName(active, q.name)
	}
	in.refused.note(in.log, refused)
}

// noteIgnored notes a request that a condition of its hook leaves out.
func (in *instance) noteIgnored(q *hookRequest, status int, condition string) {
	if in.refused == nil {
		return
	}
	in.refused.note(in.log, refusedRequest{
		refusedKind: refusedKind{hook: q.name, status: status, reason: condition, ignored: true},
		client:      q.incoming.Client,
		size:        int64(q.received.Count),
	})
}

// hookNamed returns the name of a hook, of which there are as many as are configured, or were. It is "" for a name that no hook
// has or had.
func hookNamed(a *settings.Active, name string) string {
	switch {
	case name == "wake", name == "agent", a != nil && a.Hooks[name] != nil:
		return name
	case strings.HasPrefix(name, "runs/"):
		return "runs"
	case a != nil && whyNoHook(a, name) != errUnknownHook:
		return name
	default:
		return ""
	}
}

// showName returns what an operator may see of a name in a URL. Some callers put their token there, alone or in other text, so
// only what can be the name of a hook or the id of a run is shown, and not if a token is in it.
func showName(a *settings.Active, name string) string {
	first, rest, more := strings.Cut(name, "/")
	switch {
	case name == "":
		return ""
	case a == nil || more && hookNamed(a, first+"/") == "" && hookNamed(a, first) == "": // both parts may be those of a token
		return hiddenName(name)
	case !more:
		return showPart(a, first)
	case first == "runs":
		return "runs/" + showPart(a, rest)
	default:
		return first + "/" + hiddenName(rest)
	}
}

// showPart returns a part of a path if it has the form of a name and there is no token in it.
func showPart(a *settings.Active, part string) string {
	const mostWords = 8
	starts, ends := []int{0}, []int(nil) // of its words
	for i, c := range []byte(part) {
		if c == '.' || c == '_' || c == '-' {
			starts, ends = append(starts, i+1), append(ends, i)
		}
	}
	ends = append(ends, len(part))
	if !settings.HookName.MatchString(part) || len(starts) > mostWords {
		return hiddenName(part)
	}
	for i, start := range starts {
		for _, end := range ends[i:] {
			if a.Tokens.Has(part[start:end]) {
				return "(a token)"
			}
		}
	}
	return part
}

func hiddenName(name string) string { return fmt.Sprintf("(%d bytes)", len(name)) }
