package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/textproto"
	"strings"
)

// PublicKeys verifies requests that are signed with the private key of a sender, over the timestamp and the body after it. The zero value
// accepts nothing. It cannot sign.
type PublicKeys struct {
	header  string
	time    Timestamp
	decode  func(text string) (signature []byte, ok bool)
	keys    []func(content, signature []byte) bool
	missing Reason
}

// NewEd25519 returns a verifier of signatures in hex. The keys are in hex.
func NewEd25519(header string, at Timestamp, keys ...string) (*PublicKeys, error) {
	p := newPublicKeys(header, at)
	p.decode = func(text string) ([]byte, bool) {
		signature := make([]byte, ed25519.SignatureSize)
		return signature, decodeSignature(signature, text, Hex)
	}
	return p, p.add(keys, func(text string) (func(content, signature []byte) bool, error) {
		key, err := hex.DecodeString(text)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, errors.New("has a public key that is not 64 hex digits")
		}
		return func(content, signature []byte) bool { return ed25519.Verify(key, content, signature) }, nil
	})
}

// NewECDSA returns a verifier of signatures with SHA-256 on the curve P-256, in ASN.1 and base64. The keys are those of a PEM file, without
// its first and last line.
func NewECDSA(header string, at Timestamp, keys ...string) (*PublicKeys, error) {
	const mostSignature = 72 // bytes
	p := newPublicKeys(header, at)
	p.decode = func(text string) ([]byte, bool) {
		if len(text) > base64.StdEncoding.EncodedLen(mostSignature) {
			return nil, false
		}
		signature, err := base64.StdEncoding.Strict().DecodeString(text)
		return signature, err == nil
	}
	return p, p.add(keys, func(text string) (func(content, signature []byte) bool, error) {
		der, _ := base64.StdEncoding.DecodeString(text)
		parsed, err := x509.ParsePKIXPublicKey(der)
		key, ok := parsed.(*ecdsa.PublicKey)
		if err != nil || !ok || key.Curve != elliptic.P256() {
			return nil, errors.New("has a public key that is not one of ECDSA on P-256, in base64")
		}
		return func(content, signature []byte) bool {
			digest := sha256.Sum256(content)
			return ecdsa.VerifyASN1(key, digest[:], signature)
		}, nil
	})
}

func newPublicKeys(header string, at Timestamp) *PublicKeys {
	return &PublicKeys{header: textproto.CanonicalMIMEHeaderKey(header), time: at, missing: SignatureMissing(header)}
}

func (p *PublicKeys) add(keys []string, read func(text string) (func(content, signature []byte) bool, error)) error {
	if len(keys) == 0 || len(keys) > maxSecrets {
		return errors.New("must have 1 to 8 public keys")
	}
	for _, text := range keys {
		key, err := read(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		p.keys = append(p.keys, key)
	}
	return nil
}

// Verify accepts a request with a good signature, whose timestamp is not off.
func (p *PublicKeys) Verify(req *Request) Verdict {
	lines := req.Header[p.header]
	if len(lines) == 0 || lines[0] == "" {
		return RefuseMissing(p.missing)
	}
	signature, ok := p.decode(strings.Trim(lines[0], " \t"))
	if len(lines) > 1 || !ok {
		return Refuse(SignatureMalformed)
	}
	timestamp, verdict := p.time.checkHeaders(req, p.header)
	if !verdict.OK {
		return verdict
	}
	content := p.content(req, timestamp)
	for i, isGood := range p.keys {
		if isGood(content, signature) {
			return AcceptBy(i)
		}
	}
	return Refuse(SignatureWrong)
}

func (p *PublicKeys) content(req *Request, timestamp string) []byte {
	return append([]byte(timestamp), req.Body...)
}

// Content returns a digest of what is signed in a request that Verify accepted.
func (p *PublicKeys) Content(req *Request) (digest [sha256.Size]byte, ok bool) {
	timestamp, _ := p.time.text(req, p.header)
	return sha256.Sum256(p.content(req, timestamp)), true
}

// Interface guards
var _ Timed = (*PublicKeys)(nil)
