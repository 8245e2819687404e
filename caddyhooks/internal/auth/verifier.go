package auth

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"time"
)

// Verifier decides whether a request comes from a caller that knows a secret. Its methods are safe for concurrent use, and
// compare secrets in constant time.
type Verifier interface {
	Verify(req Request) Verdict
}

// Request has the parts of an HTTP request that verifiers look at.
type Request struct {
	Header http.Header
	Body   []byte    // as it was received
	Now    time.Time // when it was received
}

// Verdict is the decision on a request. The zero value refuses.
type Verdict struct {
	OK      bool
	Missing bool   // no credential was sent; otherwise a refused request has a wrong one
	Reason  Reason // why the request is refused
}

// Reason says why a request is refused, in words for an operator. It may name what is configured. It holds nothing that the
// caller sent, and callers are not told.
type Reason string

// The reasons of the verifiers in this package.
const (
	SignatureMalformed Reason = "no signature is well-formed hex or base64"
	SignatureWrong     Reason = "the signature does not match the body and the secret"
	TokenMissing       Reason = "no token was sent"                            //nolint:gosec // a reason, and no token
	TokenNotBearer     Reason = "the header Authorization has no Bearer token" //nolint:gosec // likewise
	TokenUnknown       Reason = "the token is not one of the accepted tokens"
)

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

// Refuse is the verdict on a request with a wrong credential.
func Refuse(reason Reason) Verdict { return Verdict{Reason: reason} }

// RefuseMissing is the verdict on a request without a credential.
func RefuseMissing(reason Reason) Verdict { return Verdict{Missing: true, Reason: reason} }

// Identifier is a Verifier whose callers may have different credentials.
type Identifier interface {
	Verifier

	// Credential returns a digest of the credential in the headers of a request that Verify accepted.
	Credential(h http.Header) [sha256.Size]byte
}

// Signer is a Verifier of signatures that can make one itself.
type Signer interface {
	Verifier

	// Sign returns a header, and a value for it with which Verify accepts the body at that time.
	Sign(body []byte, now time.Time) (header, value string)
}

// Interface guards
var (
	_ Verifier   = (*HMAC)(nil)
	_ Signer     = (*HMAC)(nil)
	_ Identifier = Tokens{}
)
