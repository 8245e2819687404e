package auth

import (
	"crypto/sha256"
	"strings"
)

// FirstSent verifies requests whose credential may be in one of several places. The first place that has one decides: a good
// credential elsewhere does not help a bad one. It is made of HMAC and HeaderToken.
type FirstSent []carried

// carried is a Verifier of a credential that is in one place.
type carried interface {
	Verifier

	// Sent reports whether a request has something in that place.
	Sent(req *Request) bool

	// place is the name of the header.
	place() string
}

// NewFirstSent returns a verifier that asks the first of these that finds a credential.
func NewFirstSent(verifiers ...carried) FirstSent { return verifiers }

// of returns the verifier of the credential that a request has, nil if it has none.
func (f FirstSent) of(req *Request) carried {
	for _, verifier := range f {
		if verifier.Sent(req) {
			return verifier
		}
	}
	return nil
}

// Verify asks the first verifier that finds a credential.
func (f FirstSent) Verify(req *Request) Verdict {
	if verifier := f.of(req); verifier != nil {
		return verifier.Verify(req)
	}
	names := make([]string, len(f))
	for i, verifier := range f {
		names[i] = verifier.place()
	}
	return RefuseMissing(SignatureMissing(strings.Join(names, " or ")))
}

// Content is that of the verifier that accepted the request.
func (f FirstSent) Content(req *Request) (digest [sha256.Size]byte, ok bool) {
	timed, isTimed := f.of(req).(Timed)
	if !isTimed {
		return digest, false
	}
	return timed.Content(req)
}

// Sign signs as the first of the verifiers that can.
func (f FirstSent) Sign(req *Request) (headers []Header, url string) {
	for _, verifier := range f {
		if signer, ok := verifier.(Signer); ok {
			return signer.Sign(req)
		}
	}
	return nil, ""
}

// isSent reports whether a header has a value.
func isSent(req *Request, header string) bool {
	for _, line := range req.Header[header] {
		if line != "" {
			return true
		}
	}
	return false
}

// Interface guards
var (
	_ Signer = FirstSent(nil)
	_ Timed  = FirstSent(nil)
)
