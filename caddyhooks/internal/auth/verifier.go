package auth

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Verifier decides whether a request comes from a caller that knows a secret. Its methods are safe for concurrent use, and
// compare secrets in constant time.
type Verifier interface {
	Verify(req *Request) Verdict
}

// Request has the parts of an HTTP request that verifiers look at.
type Request struct {
	Method string // "" is POST
	Header http.Header
	URL    func() string     // the whole URL that the caller used; nil if nobody needs it
	Query  func() url.Values // of that URL; nil likewise
	Body   []byte            // as it was received
	Now    time.Time         // when it was received
}

// Verdict is the decision on a request. The zero value refuses.
type Verdict struct {
	OK      bool
	Missing bool   // no credential was sent; otherwise a refused request has a wrong one
	Reason  Reason // why the request is refused
	Secret  int    // which of several secrets an accepted request has, counted from 0

	// If nobody can say now whether the credential is good: when to ask again, and why that is so, for operators.
	RetryAfter time.Duration
	Cause      error
}

// Reason says why a request is refused, in words for an operator. It may name what is configured. It holds nothing that the
// caller sent. Callers are told what is missing, and not why a credential is wrong.
type Reason string

// calledURL is "" if nobody knows.
func (r *Request) calledURL() string {
	if r.URL == nil {
		return ""
	}
	return r.URL()
}

// The reasons of the verifiers in this package.
const (
	SignatureMalformed Reason = "the signature has the wrong length or encoding"
	SignatureWrong     Reason = "the signature does not match the body and the secret"
	SignatureUsed      Reason = "the signature, which is good for any body, was used with another one"
	TokenMissing       Reason = "no token was sent"                                             //nolint:gosec // a reason, and no token
	TokenNotBearer     Reason = "the header Authorization has no Bearer token, or an empty one" //nolint:gosec // likewise
	TokenUnknown       Reason = "the token is not one of the accepted tokens"

	TimestampMissing   Reason = "the signature has no timestamp"
	TimestampRepeated  Reason = "there is more than one timestamp"
	TimestampMalformed Reason = "the timestamp cannot be read: it has another format"

	URLSignatureWrong Reason = "the signature does not match the URL, the body and the secret; behind a proxy, trusted_proxies must name it"
	URLUnknown        Reason = "the URL that was called cannot be read"
	BodyHashWrong     Reason = "bodySHA256 in the URL is not the hash of the body"
	FormMalformed     Reason = "the URL has no bodySHA256, and the body is not a form of at most 1000 fields"
)

// TimestampIn is the reason if a timestamp has another format.
func TimestampIn(got, want TimeFormat) Reason {
	return Reason(fmt.Sprintf("the timestamp is in the format %s, and must be in %s", got, cmp.Or(want, Seconds)))
}

// SignedMissing is the reason if something that is signed was not sent, or was sent more than once.
func SignedMissing(header string) Reason {
	return Reason(fmt.Sprintf("the header %s, which is signed, is missing or repeated", header))
}

// SignedAmbiguous is the reason if a header that is signed holds the text that separates it from the rest.
func SignedAmbiguous(header, separator string) Reason {
	return Reason(fmt.Sprintf("the header %s, which is signed, holds %q, which separates what is signed", header, separator))
}

// SignatureMissing is the reason if no signature was sent.
func SignatureMissing(header string) Reason {
	return Reason(fmt.Sprintf("the header %s is missing or empty", header))
}

// PrefixMissing is the reason if no signature begins with the prefix.
func PrefixMissing(header, prefix string) Reason {
	return Reason(fmt.Sprintf("no signature in the header %s begins with %q", header, prefix))
}

// Accept is the verdict on a good request.
func Accept() Verdict { return Verdict{OK: true} }

// AcceptBy is the verdict on a good request that has one of several secrets.
func AcceptBy(secret int) Verdict { return Verdict{OK: true, Secret: secret} }

// Refuse is the verdict on a request with a wrong credential.
func Refuse(reason Reason) Verdict { return Verdict{Reason: reason} }

// RefuseMissing is the verdict on a request without a credential.
func RefuseMissing(reason Reason) Verdict { return Verdict{Missing: true, Reason: reason} }

// Undecided is the verdict on a request whose credential cannot be checked now. It is no bad credential, and the caller shall come again.
func Undecided(reason Reason, retryAfter time.Duration, cause error) Verdict {
	return Verdict{Reason: reason, RetryAfter: retryAfter, Cause: cause}
}

// Identifier is a Verifier whose callers may have different credentials.
type Identifier interface {
	Verifier

	// Credential returns a digest of the credential in the headers of a request that Verify accepted.
	Credential(h http.Header) [sha256.Size]byte
}

// Timed is a Verifier of signatures that have a timestamp.
type Timed interface {
	Verifier

	// Content returns a digest of what is signed in a request that Verify accepted: within the tolerance, the same again is a
	// replay. ok is false if there is no timestamp.
	Content(req *Request) (digest [sha256.Size]byte, ok bool)
}

// Signer is a Verifier of signatures that can make one itself.
type Signer interface {
	Verifier

	// Sign returns the headers with which Verify accepts a request of this URL and body at this time. The signature is the last
	// of them. The URL to be called is that of the request, unless the scheme adds to it. There are none if it cannot sign.
	Sign(req *Request) (headers []Header, url string)
}

// Header is a header of a request.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Interface guards
var _ Identifier = Tokens{}
