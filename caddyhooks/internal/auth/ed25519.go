package auth

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/textproto"
	"strings"
)

// Ed25519 verifies requests that are signed with the private key of a sender. The zero value accepts nothing. It cannot sign.
type Ed25519 struct {
	header  string
	time    Timestamp
	keys    []ed25519.PublicKey
	missing Reason
}

// NewEd25519 returns a verifier of signatures, in hex, of the timestamp and the body after it. The keys are in hex.
func NewEd25519(header string, at Timestamp, keys ...string) (*Ed25519, error) {
	if len(keys) == 0 || len(keys) > maxSecrets {
		return nil, errors.New("must have 1 to 8 public keys")
	}
	e := &Ed25519{header: textproto.CanonicalMIMEHeaderKey(header), time: at, missing: SignatureMissing(header)}
	for _, text := range keys {
		key, err := hex.DecodeString(strings.TrimSpace(text))
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, errors.New("has a public key that is not 64 hex digits")
		}
		e.keys = append(e.keys, key)
	}
	return e, nil
}

// Verify accepts a request with a good signature, whose timestamp is not off.
func (e *Ed25519) Verify(req *Request) Verdict {
	var signature [ed25519.SignatureSize]byte
	lines := req.Header[e.header]
	switch {
	case len(lines) == 0 || lines[0] == "":
		return RefuseMissing(e.missing)
	case len(lines) > 1 || !decodeSignature(signature[:], strings.Trim(lines[0], " \t"), Hex):
		return Refuse(SignatureMalformed)
	}
	timestamp, verdict := e.time.checkHeaders(req, e.header)
	if !verdict.OK {
		return verdict
	}
	content := e.content(req, timestamp)
	for i, key := range e.keys {
		if ed25519.Verify(key, content, signature[:]) {
			return AcceptBy(i)
		}
	}
	return Refuse(SignatureWrong)
}

func (e *Ed25519) content(req *Request, timestamp string) []byte {
	return append([]byte(timestamp), req.Body...)
}

// Content returns a digest of what is signed in a request that Verify accepted.
func (e *Ed25519) Content(req *Request) (digest [sha256.Size]byte, ok bool) {
	timestamp, _ := e.time.text(req, e.header)
	return sha256.Sum256(e.content(req, timestamp)), true
}

// Interface guards
var _ Timed = (*Ed25519)(nil)
