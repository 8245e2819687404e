package oidc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
)

const (
	// fetchTime is how long it may take to fetch the keys of an issuer.
	fetchTime = 5 * time.Second

	// fetchInterval is the time between two fetches of the same keys, so that a flood of forged tokens makes no flood of requests.
	fetchInterval = 10 * time.Second

	// keysFresh is the age from which on keys are fetched again, and keysValid the age up to which they are used.
	keysFresh = time.Hour
	keysValid = 24 * time.Hour

	// maxWaiting is how many requests wait for the same fetch.
	maxWaiting = 1000
)

// Fetch gets a document of at most limit bytes.
type Fetch func(ctx context.Context, url string, limit int64) ([]byte, error)

// Issuers remembers the keys of issuers. It outlives reloads, so that keys are known while an issuer is away.
type Issuers struct {
	log     func() *zap.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	fetches sync.WaitGroup

	mu       sync.Mutex
	isClosed bool
	sets     map[[2]string]*keySet // by the issuer and the URL of its keys
}

// NewIssuers knows no keys yet.
func NewIssuers(log func() *zap.Logger) *Issuers {
	s := &Issuers{log: log, sets: make(map[[2]string]*keySet)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends fetches that are under way. Afterwards keys are not fetched any more.
func (s *Issuers) Close() {
	s.mu.Lock()
	s.isClosed = true
	s.mu.Unlock()
	s.cancel()
	s.fetches.Wait()
}

// start calls work on a goroutine of its own, unless Close was called.
func (s *Issuers) start(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isClosed {
		s.fetches.Go(work)
	}
	return !s.isClosed
}

// Keys are those of an issuer. Several Keys of the same issuer share what is known, and what is being fetched.
type Keys struct {
	set   *keySet
	fetch Fetch
}

// Of returns the keys of an issuer, which fetch gets when they are needed. keysURL is where they are, "" if the discovery document of
// the issuer tells. Nothing is fetched yet.
func (s *Issuers) Of(issuer, keysURL string, fetch Fetch) Keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := [2]string{issuer, keysURL}
	if s.sets[id] == nil {
		s.sets[id] = &keySet{issuers: s, issuer: issuer, url: keysURL}
	}
	return Keys{s.sets[id], fetch}
}

// keySet has the keys of an issuer.
type keySet struct {
	issuers     *Issuers
	issuer, url string

	mu        sync.Mutex
	keys      []jose.JSONWebKey // never changed in place
	fetchedAt time.Time         // when these keys were asked for
	triedAt   time.Time         // when keys were last asked for
	err       error             // of that
	underWay  chan struct{}     // closed when a fetch is over; nil if there is none
	waiting   int
}

// unavailable says why keys cannot be had now.
type unavailable struct {
	cause      error
	retryAfter time.Duration
}

// known returns the keys that are there. If they are not fresh, they are fetched again meanwhile.
func (k Keys) known(now time.Time) []jose.JSONWebKey {
	s := k.set
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys != nil && now.Sub(s.fetchedAt) >= keysFresh {
		s.begin(now, k.fetch)
	}
	return s.usable(now)
}

// usable returns the keys unless they are too old. It is called under the lock.
func (s *keySet) usable(now time.Time) []jose.JSONWebKey {
	if now.Sub(s.fetchedAt) >= keysValid {
		return nil
	}
	return s.keys
}

// refreshed returns the keys after another fetch. If it is too early for one after now, a key that is not among them may be a new one:
// stale says when to ask again. So nobody can use up the fetch that a new key needs.
func (k Keys) refreshed(now time.Time) (keys []jose.JSONWebKey, stale, away *unavailable) {
	s := k.set
	if s == nil {
		return nil, nil, &unavailable{errClosed, fetchInterval}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if done := s.begin(now, k.fetch); done != nil {
		if s.waiting >= maxWaiting {
			return nil, nil, &unavailable{errors.New("too many requests wait for them"), fetchTime}
		}
		s.waiting++
		s.mu.Unlock()
		<-done // for fetchTime at most
		s.mu.Lock()
		s.waiting--
	}
	rest := max(fetchInterval-now.Sub(s.triedAt), time.Second)
	if s.err != nil {
		return nil, nil, &unavailable{s.err, rest}
	}
	if s.triedAt.Before(now) {
		stale = &unavailable{errTooEarly, rest}
	}
	return s.usable(now), stale, nil
}

var errTooEarly = errors.New("they were fetched less than 10 seconds ago")

var errClosed = errors.New("keys are not fetched while Caddy starts or stops")

// begin starts a fetch, unless the last one was a moment ago. It returns what is closed when the fetch under way is over, nil if there is
// none. It is called under the lock.
func (s *keySet) begin(now time.Time, fetch Fetch) <-chan struct{} {
	if s.underWay != nil {
		return s.underWay
	}
	// Requests may come here in another order than they read the clock, which may also be set back.
	if !s.triedAt.IsZero() && now.Sub(s.triedAt).Abs() < fetchInterval {
		return nil
	}
	s.triedAt = now
	done := make(chan struct{})
	if !s.issuers.start(func() { s.load(now, fetch, done) }) {
		s.err = errClosed
		return nil
	}
	s.underWay = done
	return done
}

// load fetches the keys. Those that were known stay if it fails.
func (s *keySet) load(now time.Time, fetch Fetch, done chan struct{}) {
	ctx, stop := context.WithTimeout(s.issuers.ctx, fetchTime)
	defer stop()
	keys, err := fetchKeys(ctx, fetch, s.issuer, s.url)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.err == nil && s.keys != nil { // otherwise the requests that are refused tell
		s.issuers.log().Warn("the keys of an issuer cannot be fetched; those that are known are used for 24 hours",
			zap.String("issuer", s.issuer), zap.Time("fetched", s.fetchedAt), zap.Error(err))
	}
	if s.err = err; err == nil {
		s.keys, s.fetchedAt = slices.Clip(keys), now
	}
	s.underWay = nil
	close(done)
}
