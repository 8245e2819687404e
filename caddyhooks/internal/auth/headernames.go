package auth

import "net/http"

// HeaderNames is a set of names of headers. Names that a CGI gateway cannot tell apart are the same: to it all signs are
// underscores, and so X_Service_Token, which some senders write, is X-Service-Token.
type HeaderNames map[string]struct{}

// Add adds names.
func (n HeaderNames) Add(names ...string) {
	for _, name := range names {
		n[string(gatewayName(nil, name))] = struct{}{}
	}
}

// Has reports whether the set has a name.
func (n HeaderNames) Has(name string) bool {
	var room [64]byte
	_, ok := n[string(gatewayName(room[:0], name))]
	return ok
}

// AnyIn reports whether a header has one of the names.
func (n HeaderNames) AnyIn(h http.Header) bool {
	for name := range h {
		if n.Has(name) {
			return true
		}
	}
	return false
}

// gatewayName appends the name of a header as CGI programs get it.
func gatewayName(to []byte, name string) []byte {
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		default:
			c = '_'
		}
		to = append(to, c)
	}
	return to
}
