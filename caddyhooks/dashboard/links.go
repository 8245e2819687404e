package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Links let the person in who reads a terminal: a link has a code that works once and for a minute. The browser that brings it
// gets a cookie that works as long as the process. Only hashes of both are kept.
type Links struct {
	// Renew tells how to get another link. It ends a sentence.
	Renew string

	mu      sync.Mutex
	code    secretHash // zero, which is the hash of no code, if it was used
	made    time.Time
	cookies []secretHash
	now     func() time.Time // nil is time.Now
}

type secretHash [sha256.Size]byte

// is compares in constant time.
func (h secretHash) is(secret string) bool {
	other := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(h[:], other[:]) == 1
}

const (
	codeWorks = time.Minute

	// maxSecret bounds codes and cookies from outside. Ours are shorter.
	maxSecret = 64

	// maxCookies bounds how many browsers are in at once. The oldest has to ask for a new link.
	maxCookies = 32

	codeParameter = "code"
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

// trade takes a code and returns a cookie for it, "" if the code does not work.
func (l *Links) trade(code string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(code) > maxSecret || !l.code.is(code) || l.time().Sub(l.made) >= codeWorks {
		return ""
	}
	l.code = secretHash{}
	cookie := rand.Text()
	if len(l.cookies) == maxCookies {
		l.cookies = slices.Delete(l.cookies, 0, 1)
	}
	l.cookies = append(l.cookies, sha256.Sum256([]byte(cookie)))
	return cookie
}

// knows reports whether a request has a cookie of ours.
func (l *Links) knows(r *http.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cookie := range r.CookiesNamed(cookieName(r)) {
		if len(cookie.Value) <= maxSecret && slices.ContainsFunc(l.cookies, func(known secretHash) bool { return known.is(cookie.Value) }) {
			return true
		}
	}
	return false
}

// cookieName has the port that the browser sees. Browsers send the cookies of a host to all of its ports, and one dashboard
// must not replace the cookie of another.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil || port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "" {
		port = "80"
	}
	return "hooks_desk_" + port
}

// Enter refuses requests for other hosts than this machine, and those without a cookie of ours.
func (l *Links) Enter(r *http.Request) error {
	if !IsLoopback(r) {
		return refuse(http.StatusForbidden, "The dashboard is at localhost and 127.0.0.1 only. From another machine, forward its port: ssh -L 8765:127.0.0.1:8765 host, with --port 8765.")
	}
	if !l.knows(r) {
		return refuse(http.StatusUnauthorized, "This browser is not let in yet; %s", l.Renew)
	}
	return nil
}

// Handler trades codes for cookies, and passes all other requests on.
func (l *Links) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if r.Method != http.MethodGet || r.URL.Path != "/" || !query.Has(codeParameter) {
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
	if cookie := l.trade(code); cookie != "" {
		//nolint:gosec // not Secure: there is no TLS on this machine
		http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	} else if !l.knows(r) {
		return refuse(http.StatusForbidden, "This link was used already, or is older than a minute; %s", l.Renew)
	}
	// The code leaves the address bar. If a page of another site had the link, a browser would not send the cookie along with a
	// plain redirect; it does when this page is the one that leads on.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		w.Header().Set("Refresh", "0; url=./")
		w.WriteHeader(http.StatusOK)
	} else {
		w.Header().Set("Location", "./")
		w.WriteHeader(http.StatusSeeOther)
	}
	return nil
}
