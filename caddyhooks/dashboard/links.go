package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Links let the person in who reads a terminal: a link has a code that works once and for a minute. The browser that brings it
// gets a key that works as long as the process: a path of its own, below which the page is, and a cookie for that path. Only hashes
// of codes and keys are kept.
//
// Browsers send the cookies of a host to all of its ports, and so to every other server on this machine. They do not send one for a
// path that nobody else knows. A key is both, so neither a cookie nor an address opens the page alone.
type Links struct {
	// Renew tells how to get another link. It ends a sentence.
	Renew string

	mu   sync.Mutex
	code secretHash // zero, which is the hash of no code, if it was used
	made time.Time
	keys []secretHash
	now  func() time.Time // nil is time.Now
}

type secretHash [sha256.Size]byte

// is compares in constant time.
func (h secretHash) is(secret string) bool {
	other := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(h[:], other[:]) == 1
}

const (
	codeWorks = time.Minute

	// maxSecret bounds codes and keys from outside. Ours are shorter.
	maxSecret = 64

	// maxKeys bounds how many browsers are in at once. The oldest has to ask for a new link.
	maxKeys = 32

	codeParameter = "code"
	cookieName    = "hooks_dashboard"
)

// New returns the query of a new link. The code of the link before does not work any more.
func (l *Links) New() string {
	code := rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.code, l.made = sha256.Sum256([]byte(code)), l.time()
	return codeParameter + "=" + code
}

func (l *Links) time() time.Time {
	if l.now != nil {
		return l.now()
	}
	return time.Now()
}

// browserKey lets a browser in.
type browserKey struct {
	path   string // the first part of the path of every request
	cookie string
}

func (k browserKey) String() string { return k.path + "/" + k.cookie }

// trade takes a code and returns a key for it, unless the code does not work.
func (l *Links) trade(code string) (key browserKey, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(code) > maxSecret || !l.code.is(code) || l.time().Sub(l.made) >= codeWorks {
		return browserKey{}, false
	}
	l.code = secretHash{}
	key = browserKey{rand.Text(), rand.Text()}
	if len(l.keys) == maxKeys {
		l.keys = slices.Delete(l.keys, 0, 1)
	}
	l.keys = append(l.keys, sha256.Sum256([]byte(key.String())))
	return key, true
}

// knows reports whether a request has a key of ours.
func (l *Links) knows(r *http.Request) bool {
	path, _ := r.Context().Value(pathOfKey{}).(string)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cookie := range r.CookiesNamed(cookieName) {
		key := browserKey{path, cookie.Value}
		if len(path) <= maxSecret && len(cookie.Value) <= maxSecret &&
			slices.ContainsFunc(l.keys, func(known secretHash) bool { return known.is(key.String()) }) {
			return true
		}
	}
	return false
}

// pathOfKey is the key of the context for the part of the path that Handler took off.
type pathOfKey struct{}

// Enter refuses requests for other hosts than this machine, and those without a key of ours. The request must come from Handler.
func (l *Links) Enter(r *http.Request) error {
	if !IsLoopback(r) {
		return refuse(http.StatusForbidden, "The dashboard is at localhost and 127.0.0.1 only. From another machine, forward its port: ssh -L "+
			"8765:127.0.0.1:8765 host, with --port 8765.")
	}
	if !l.knows(r) {
		return refuse(http.StatusUnauthorized, "This browser is not let in yet; %s", l.Renew)
	}
	return nil
}

// Handler trades codes for keys, and passes all other requests on, without the part of the path that belongs to the key.
func (l *Links) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if r.Method != http.MethodGet || r.URL.Path != "/" || !query.Has(codeParameter) {
			if path, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); ok {
				r = withoutPrefix(r.WithContext(context.WithValue(r.Context(), pathOfKey{}, path)), "/"+path)
			}
			next.ServeHTTP(w, r)
			return
		}
		setHeaders(w.Header())
		if err := l.admit(w, r, query.Get(codeParameter)); err != nil {
			writeSentence(w, err)
		}
	})
}

func (l *Links) admit(w http.ResponseWriter, r *http.Request, code string) *Refusal {
	if !IsLoopback(r) {
		return refuse(http.StatusForbidden, "A link works at localhost and 127.0.0.1 only.")
	}
	if r.Header.Get("Sec-Purpose") != "" {
		return refuse(http.StatusServiceUnavailable, "A link is not opened ahead of time.") // a browser that guesses must not use it up
	}
	key, ok := l.trade(code)
	if !ok {
		return refuse(http.StatusForbidden, "This link was used already, or is older than a minute; %s", l.Renew)
	}
	page := "./" + key.path + "/"
	//nolint:gosec // not Secure: there is no TLS on this machine
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: key.cookie, Path: "/" + key.path + "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	// The code leaves the address bar. If a page of another site had the link, a browser would not send the cookie along with a
	// plain redirect; it does when this page is the one that leads on.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		w.Header().Set("Refresh", "0; url="+page)
		w.WriteHeader(http.StatusOK)
	} else {
		w.Header().Set("Location", page)
		w.WriteHeader(http.StatusSeeOther)
	}
	return nil
}
