package intake

import (
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// Samples has the last requests to custom hooks, for previews. They had a good credential; some were ignored because of a condition.
// They are kept without their secrets and in memory alone, as long as the messages of the hook's runs are kept at all. They
// outlive reloads.
//
// Most requests cost a look at a map and at the time: no more than one request a second is kept of a hook.
type Samples struct {
	ByHook   atomic.Pointer[map[string]*hookSamples] // replaced as a whole, under mu
	replaced atomic.Int64                            // when a hook last took the place of another one, in nanoseconds since 1970

	mu      sync.Mutex
	inForce *settings.Active // of the newest configuration
}

// hookSamples are the last requests to one hook.
type hookSamples struct {
	LastAt atomic.Int64 // when one was kept, in nanoseconds since 1970
	last   []Sample     // the newest first; under mu of samples
}

// Sample is a request as it was received, but for its secrets.
type Sample struct {
	At          time.Time
	ContentType string
	Header      http.Header
	Query       url.Values
	Payload     []byte
	bytes       int // that it takes of sampleBytes
}

const (
	samplesOfHook   = 10
	sampleBytes     = 192 << 10 // of all samples of a hook together
	maxSample       = 64 << 10
	maxSampleFields = 8 << 10 // of the headers and the query of one; more are left out
	sampledHooks    = 64      // those that were sampled last
	sampleInterval  = time.Second
	maxContentType  = 128
)

// Note keeps a request, unless it is large or another one came just before it. query may be nil.
func (s *Samples) Note(hook string, header http.Header, query func() url.Values, payload []byte) {
	s.noteAt(time.Now(), hook, header, query, payload)
}

func (s *Samples) noteAt(now time.Time, hook string, header http.Header, query func() url.Values, payload []byte) {
	if len(payload) > maxSample || !s.wants(hook, now.UnixNano()) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wants(hook, now.UnixNano()) || !keepsSamplesOf(s.inForce, hook) {
		return
	}
	of := s.named(hook, now)
	of.LastAt.Store(now.UnixNano())
	of.keep(sampleOf(s.inForce.Hooks[hook], now, header, query, payload))
}

// keep adds a sample, and forgets the oldest ones for which there is no room any more.
func (of *hookSamples) keep(newest Sample) {
	kept, room := []Sample{newest}, sampleBytes-newest.bytes
	for _, older := range of.last {
		if room -= older.bytes; room < 0 || len(kept) == samplesOfHook {
			break
		}
		kept = append(kept, older)
	}
	of.last = kept
}

// sampleOf copies what may be kept of a request.
func sampleOf(h *settings.Hook, at time.Time, header http.Header, query func() url.Values, payload []byte) Sample {
	made := Sample{
		At: at, ContentType: oneline.Of(header.Get("Content-Type"), maxContentType),
		Header: make(http.Header), Query: make(url.Values), Payload: bytes.Clone(payload),
	}
	room := maxSampleFields
	keep := func(from, to map[string][]string, kept func(name string) bool) {
		for _, name := range slices.Sorted(maps.Keys(from)) {
			size := len(name)
			for _, value := range from[name] {
				size += len(value)
			}
			if size > room || !kept(name) {
				continue
			}
			room -= size
			for _, value := range from[name] {
				to[strings.Clone(name)] = append(to[name], strings.Clone(value))
			}
		}
	}
	keep(header, made.Header, func(name string) bool {
		return !h.HidesHeader(name) && (readsParameter(h, "header", name) || tellsKind(name) || isAttribute(h, name))
	})
	if query != nil {
		keep(query(), made.Query, func(name string) bool { return readsParameter(h, "query", name) || tellsKind(name) })
	}
	made.bytes = len(made.Payload) + maxSampleFields - room
	return made
}

// ShowsQuery reports whether the values of a query parameter can be shown to operators. h is nil if it is not known whose request it is.
func ShowsQuery(h *settings.Hook, name string) bool {
	return tellsKind(name) || h != nil && readsParameter(h, "query", name)
}

// MayHoldSecret reports whether the name of a header reads as if it had a secret.
func MayHoldSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}

// readsParameter reports whether a template or a condition of the hook reads a header or a query parameter.
func readsParameter(h *settings.Hook, kind, name string) bool {
	is := func(s template.Source) bool { return s.Kind == kind && strings.EqualFold(s.Name, name) }
	return slices.ContainsFunc(h.Template.Sources(), is) || slices.ContainsFunc(h.ChatTemplate.Sources(), is) ||
		slices.ContainsFunc(h.Filters, func(f settings.Filter) bool { return is(f.Source()) })
}

// tellsKind reports whether the name of a header or of a query parameter reads as if its value told requests of a sender apart. All
// others may carry a secret, which nobody but the sender knows.
func tellsKind(name string) bool {
	name = strings.ToLower(name)
	return !MayHoldSecret(name) && slices.ContainsFunc(kindWords, func(word string) bool { return strings.Contains(name, word) })
}

var (
	kindWords   = []string{"action", "content-type", "event", "kind", "resource", "source", "team", "topic", "trigger", "user-agent"}
	secretWords = []string{"auth", "cookie", "credential", "hmac", "jwt", "key", "passw", "pwd", "secret", "session", "sig", "token"}
)

// wants reports whether a payload of a hook would be kept now.
func (s *Samples) wants(hook string, now int64) bool {
	all := s.ByHook.Load()
	if all == nil {
		return true
	}
	if of := (*all)[hook]; of != nil {
		return isIntervalOver(now - of.LastAt.Load())
	}
	return len(*all) < sampledHooks || isIntervalOver(now-s.replaced.Load())
}

// isIntervalOver reports whether the interval is over after so many nanoseconds. They are negative if the clock was set back.
func isIntervalOver(elapsed int64) bool { return elapsed >= int64(sampleInterval) || elapsed < 0 }

// named finds the samples of a hook, or makes room for it.
func (s *Samples) named(hook string, now time.Time) *hookSamples {
	all := s.all()
	if of := all[hook]; of != nil {
		return of
	}
	if len(all) >= sampledHooks {
		oldest := ""
		for name, of := range all {
			if oldest == "" || of.LastAt.Load() < all[oldest].LastAt.Load() {
				oldest = name
			}
		}
		delete(all, oldest)
		s.replaced.Store(now.UnixNano())
	}
	of := new(hookSamples)
	all[hook] = of
	s.ByHook.Store(&all)
	return of
}

// all is a copy of the map, to be changed and stored.
func (s *Samples) all() map[string]*hookSamples {
	if all := s.ByHook.Load(); all != nil {
		return maps.Clone(*all)
	}
	return make(map[string]*hookSamples)
}

// Of returns the samples of a hook, the newest first.
func (s *Samples) Of(hook string) []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.all()[hook]; of != nil {
		return slices.Clone(of.last)
	}
	return nil
}

// Follow forgets the samples of hooks that are gone, or whose messages are not kept any more. Requests that were checked against
// earlier settings add none.
func (s *Samples) Follow(active *settings.Active) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inForce = active
	all := s.all()
	maps.DeleteFunc(all, func(hook string, _ *hookSamples) bool { return !keepsSamplesOf(active, hook) })
	s.ByHook.Store(&all)
}

// keepsSamplesOf reports whether there is such a custom hook, and whether messages of its runs are kept.
func keepsSamplesOf(a *settings.Active, name string) bool {
	h := a.Hooks[name]
	return h != nil && a.HistoryOf(h) > 0
}
