package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/textproto"
	"strings"
	"sync"
	"time"
)

// HMAC verifies requests that are signed with HMAC-SHA256 over the raw body. The zero value accepts nothing.
type HMAC struct {
	header string // in canonical form
	prefix string
	macs   sync.Pool // of *keyedMAC: setting up the key anew would double the cost of a short body

	missing, unprefixed Reason
}

type keyedMAC struct {
	hash hash.Hash
	sum  [sha256.Size]byte
}

// maxSignatures bounds how many signatures of one request are looked at.
const maxSignatures = 8

// NewHMAC returns a verifier that reads the signature from the named header. A prefix, such as "sha256=", must then
// stand before every signature.
func NewHMAC(header, secret, prefix string) (*HMAC, error) {
	if err := CheckHeaderName(header); err != nil {
		return nil, err
	}
	if strings.TrimSpace(secret) == "" {
		return nil, errors.New("the HMAC secret is empty")
	}
	key := []byte(secret)
	prefix = strings.TrimSpace(prefix)
	return &HMAC{
		header:     textproto.CanonicalMIMEHeaderKey(header),
		prefix:     prefix,
		macs:       sync.Pool{New: func() any { return &keyedMAC{hash: hmac.New(sha256.New, key)} }},
		missing:    SignatureMissing(header),
		unprefixed: PrefixMissing(header, prefix),
	}, nil
}

// CheckHeaderName refuses names under which no signature can ever arrive. Caddy drops headers with an underscore, so
// a hook that waits for one would answer 401 for ever.
func CheckHeaderName(name string) error {
	if name == "" {
		return errors.New("the HMAC header name is empty")
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '_':
			return fmt.Errorf("the HMAC header name %q has an underscore: such headers are dropped on arrival", name)
		case strings.IndexByte("!#$%&'*+-.^`|~", c) < 0:
			return fmt.Errorf("the HMAC header name %q is not a valid header name", name)
		}
	}
	return nil
}

// Verify accepts a request whose headers carry a signature of its body. A signature is 64 hex digits in any case, or 43
// or 44 characters of base64 or base64url, without or with padding.
//
// The header may hold a comma-separated list and may be repeated: one good signature is enough, which is how senders
// rotate their secrets. The first eight entries of all lines together are looked at, and an entry without the prefix
// counts as one of them.
func (m *HMAC) Verify(req Request) Verdict {
	var candidates [maxSignatures][sha256.Size]byte
	n, seen, prefixed := 0, 0, 0
	for _, line := range req.Header[m.header] {
		for seen < maxSignatures && line != "" {
			var entry string
			var ok bool
			entry, line, ok = m.nextEntry(line)
			seen++
			if ok {
				prefixed++
			}
			if ok && decodeSignature(&candidates[n], entry) {
				n++
			}
		}
	}
	switch { // without a candidate the body need not be hashed
	case seen == 0:
		return RefuseMissing(m.missing)
	case prefixed == 0:
		return Refuse(m.unprefixed)
	case n == 0:
		return Refuse(SignatureMalformed)
	case !m.matchesAny(candidates[:n], req.Body):
		return Refuse(SignatureWrong)
	}
	return Accept()
}

// matchesAny reports whether one of the candidates is the signature of the body. It compares all of them.
func (m *HMAC) matchesAny(candidates [][sha256.Size]byte, body []byte) bool {
	mac, ok := m.macs.Get().(*keyedMAC)
	if !ok { // the zero value has no key
		return false
	}
	mac.hash.Reset()
	mac.hash.Write(body)
	sum := mac.hash.Sum(mac.sum[:0])
	matched := false
	for i := range candidates {
		if hmac.Equal(sum, candidates[i][:]) {
			matched = true
		}
	}
	m.macs.Put(mac)
	return matched
}

// Sign returns the header and the signature of a body, in hex. The zero value has no key, and signs nothing.
func (m *HMAC) Sign(body []byte, _ time.Time) (header, value string) {
	mac, ok := m.macs.Get().(*keyedMAC)
	if !ok {
		return "", ""
	}
	defer m.macs.Put(mac)
	mac.hash.Reset()
	mac.hash.Write(body)
	return m.header, m.prefix + hex.EncodeToString(mac.hash.Sum(mac.sum[:0]))
}

// nextEntry cuts the first entry off a list and takes its prefix away; ok is false if the prefix is not there. The
// prefix is looked for before the comma, so that it may hold one itself.
func (m *HMAC) nextEntry(list string) (entry, rest string, ok bool) {
	entry, ok = strings.CutPrefix(strings.TrimLeft(list, " \t"), m.prefix)
	entry, rest, _ = strings.Cut(entry, ",")
	return strings.Trim(entry, " \t"), rest, ok
}

// The strict decoders refuse stray bits after the last byte, so that every signature has one spelling in an encoding.
var (
	rawStdBase64 = base64.RawStdEncoding.Strict()
	rawURLBase64 = base64.RawURLEncoding.Strict()
)

// decodeSignature decodes s into dst and reports whether it was a well-formed signature.
func decodeSignature(dst *[sha256.Size]byte, s string) bool {
	var in [2 * sha256.Size]byte
	if len(s) > len(in) {
		return false
	}
	text := in[:copy(in[:], s)]
	switch len(text) {
	case 64:
		_, err := hex.Decode(dst[:], text)
		return err == nil
	case 44:
		if text[43] != '=' {
			return false
		}
		text = text[:43]
	case 43:
	default:
		return false
	}
	n, err := rawStdBase64.Decode(dst[:], text)
	if err != nil {
		n, err = rawURLBase64.Decode(dst[:], text)
	}
	return err == nil && n == sha256.Size
}
