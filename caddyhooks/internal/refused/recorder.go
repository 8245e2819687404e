// Package refused remembers the requests that became no run: those that were refused, and those that were ignored. It counts them by
// kind, in the log and in the store, and keeps some of them without their secrets if that is asked for. It knows engine and api, and
// neither settings nor instances.
package refused

import (
	"container/list"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Recorder remembers requests by their kind. The first of a kind is logged at once, and then how many more there were, each minute. Counts
// go to the store each second, where those of all nodes are added up. It outlives reloads. A nil value has nothing to list or to report.
//
// Noting a request takes one lock for a fraction of a microsecond, and waits neither for the log of others nor for the store.
type Recorder struct {
	mu     sync.Mutex
	Kinds  map[Kind]*list.Element
	Recent list.List // of *kindNotes, the last seen first

	Minute   *time.Timer // ends the minute; nil if nothing was refused since the last one
	lines    int         // written at once in this minute
	unlogged int64       // of kinds that are not kept
	log      *zap.Logger // for counts: that of the newest instance
	closed   bool

	number uint64            // of the last change of a kind, here or in the store
	remote map[string]uint64 // the numbers of changes of other nodes, by the name of the document

	kept  keeper
	saver saver
}

// kindNotes are what is known here about a kind.
type kindNotes struct {
	kind     Kind
	unsaved  Requests // not in the store yet
	saved    Requests // of this process
	unlogged int64    // in no line of the log yet
	number   uint64   // of the last change
}

// requests are all of this process.
func (n *kindNotes) requests() Requests { return n.saved.plus(&n.unsaved) }

func NewRecorder() *Recorder {
	r := &Recorder{Kinds: make(map[Kind]*list.Element)}
	r.saver.recorder, r.saver.wake, r.saver.stop = r, make(chan struct{}, 1), make(chan struct{})
	return r
}

// LogTo has counts logged by the newest instance. The log of an older one may be closed.
func (r *Recorder) LogTo(log *zap.Logger) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = log
}

// Destruct logs what was not counted yet.
func (r *Recorder) Destruct() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.saver.end()
	r.Report()
	return nil
}

// Note remembers a request, and logs it if it is the first of its kind.
func (r *Recorder) Note(log *zap.Logger, request Request) {
	if r.add(log, request) {
		log.Log(request.level(), request.line(), request.fields()...)
	}
}

// add reports whether the request must be logged at once.
func (r *Recorder) add(log *zap.Logger, request Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.log == nil { // before the start
		r.log = log
	}
	if r.Minute == nil && !r.closed {
		r.Minute = time.AfterFunc(time.Minute, r.Report)
	}
	r.saver.changed()
	r.number++
	if known := r.Kinds[request.Kind]; known != nil {
		r.Recent.MoveToFront(known)
		notes := known.Value.(*kindNotes)
		notes.unsaved.add(request, now)
		notes.number = r.number
		notes.unlogged++
		return false
	}
	if len(r.Kinds) == MaxKinds {
		r.forgetOldest()
	}
	notes := &kindNotes{kind: request.Kind, number: r.number}
	notes.unsaved.add(request, now)
	r.Kinds[request.Kind] = r.Recent.PushFront(notes)
	if r.lines == MaxKinds {
		r.unlogged++
		return false
	}
	r.lines++
	return true
}

func (r *Recorder) forgetOldest() {
	oldest := r.Recent.Remove(r.Recent.Back()).(*kindNotes)
	delete(r.Kinds, oldest.kind)
	r.unlogged += oldest.unlogged
}

// Report ends the minute: it logs how many requests came of each kind after those that are logged already.
func (r *Recorder) Report() {
	if r == nil {
		return
	}
	r.mu.Lock()
	if r.Minute != nil {
		r.Minute.Stop()
	}
	type count struct {
		Requests
		more int64
	}
	var counts []count
	for e := r.Recent.Front(); e != nil; e = e.Next() {
		if notes := e.Value.(*kindNotes); notes.unlogged > 0 {
			counts = append(counts, count{notes.requests(), notes.unlogged})
			notes.unlogged = 0
		}
	}
	others, log := r.unlogged, r.log
	r.Minute, r.lines, r.unlogged = nil, 0, 0
	r.mu.Unlock()

	for _, kind := range counts {
		log.Log(kind.Last.level(), kind.Last.linePerMinute(), append(kind.fields(), zap.Int64("count", kind.more))...)
	}
	if others > 0 {
		log.Warn("requests of many other kinds refused", zap.Int64("count", others))
	}
}

// line is that of the log for the first request of the kind.
func (k Kind) line() string {
	if k.Ignored {
		return "request ignored"
	}
	return "request refused"
}

// linePerMinute is that for all that came in a minute.
func (k Kind) linePerMinute() string {
	if k.Ignored {
		return "requests ignored"
	}
	return "requests refused"
}

// fields are the facts of a request for the log.
func (q *Request) fields() []zap.Field {
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
	if q.RequestID != "" {
		fields = append(fields, zap.String("request_id", q.RequestID))
	}
	return append(fields, zap.String("client", q.Client), zap.Int64("size", q.Size))
}

// level is that of an error if something went wrong inside, and of a fact if nothing went wrong at all.
func (q *Request) level() zapcore.Level {
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
func (k *Requests) fields() []zap.Field {
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
