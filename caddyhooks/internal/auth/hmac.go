package auth

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // some senders have nothing better; whoever chooses it is warned
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/textproto"
	"slices"
	"strings"
	"sync"
)

// HMAC verifies requests that are signed with a secret. The zero value accepts nothing.
type HMAC struct {
	Signature
	size int       // of a signature, in bytes
	macs sync.Pool // of *keyedMACs: setting up the key anew would double the cost of a short body

	missing, unprefixed, wrong Reason
	written                    string // the prefix, with the spaces after it
}

// Signature describes how requests are signed with HMAC.
type Signature struct {
	// The header with the signature. It may hold a list, and may be repeated.
	Header string

	// The text before every signature, such as "sha256=".
	Prefix string

	// The text between the signatures of a list. Default: a comma.
	Separator string

	// Default: SHA256.
	Algorithm Algorithm

	// How the bytes of a signature are written. Default: in hex, base64 or base64url.
	Encoding Encoding

	// What is signed. Default: the body.
	Signed []Part

	// Where the time of the signature is, if it has one.
	Time Timestamp
}

// Algorithm is the hash of a signature.
type Algorithm string

// The algorithms.
const (
	SHA256 Algorithm = "sha256"
	SHA512 Algorithm = "sha512"
	SHA1   Algorithm = "sha1"
)

var hashes = map[Algorithm]func() hash.Hash{SHA256: sha256.New, SHA512: sha512.New, SHA1: sha1.New}

// Encoding is a way to write bytes.
type Encoding int

// The encodings. Hex is read in any case. Padding of base64 may be left out.
const (
	AnyEncoding Encoding = iota
	Hex
	Base64
)

// keyedMACs has the room in which requests are signed, with all secrets.
type keyedMACs struct {
	hashes  []hash.Hash
	content []byte
	sum     [maxSize]byte
}

const (
	// maxSecrets bounds the secrets that are tried.
	maxSecrets = 8

	// maxSignatures bounds how many signatures of one request are looked at.
	maxSignatures = 8

	// maxSize is the size of the longest signature, in bytes.
	maxSize = sha512.Size

	// keptContent bounds the room that is kept for the next request.
	keptContent = 64 << 10
)

// NewHMAC returns a verifier of signatures that are made with one of the keys.
func NewHMAC(signature Signature, keys ...[]byte) (*HMAC, error) {
	if err := CheckHeaderName(signature.Header); err != nil {
		return nil, err
	}
	if signature.Algorithm == "" {
		signature.Algorithm = SHA256
	}
	newHash := hashes[signature.Algorithm]
	if newHash == nil {
		return nil, errors.New("the algorithm is unknown")
	}
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	if signature.Separator == "" {
		signature.Separator = ","
	}
	if len(signature.Signed) == 0 {
		signature.Signed = []Part{Body}
	}
	m := &HMAC{
		Signature: signature, size: newHash().Size(),
		missing: SignatureMissing(signature.Header), unprefixed: PrefixMissing(signature.Header, strings.TrimSpace(signature.Prefix)),
		wrong: SignatureWrong, written: signature.Prefix,
	}
	if slices.ContainsFunc(signature.Signed, func(p Part) bool { return p.kind == urlPart }) {
		m.wrong = URLSignatureWrong
	}
	m.Header = textproto.CanonicalMIMEHeaderKey(signature.Header)
	m.Prefix = strings.TrimSpace(signature.Prefix)
	m.macs.New = func() any {
		macs := &keyedMACs{hashes: make([]hash.Hash, len(keys))}
		for i, key := range keys {
			macs.hashes[i] = hmac.New(newHash, key)
		}
		return macs
	}
	return m, nil
}

func checkKeys(keys [][]byte) error {
	if len(keys) == 0 || len(keys) > maxSecrets {
		return fmt.Errorf("there must be 1 to %d secrets", maxSecrets)
	}
	for _, key := range keys {
		if strings.TrimSpace(string(key)) == "" {
			return errors.New("a secret is empty")
		}
	}
	return nil
}

// CheckHeaderName refuses names under which nothing can ever arrive. Caddy drops headers with an underscore, so a hook that
// waits for one would answer 401 for ever. Its errors do not quote the name, which may be a secret in a wrong place.
func CheckHeaderName(name string) error {
	if name == "" {
		return errors.New("the name of the header is empty")
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '_':
			return errors.New("the name of the header has an underscore: such headers are dropped on arrival")
		case strings.IndexByte("!#$%&'*+-.^`|~", c) < 0:
			return errors.New("the name of the header has characters that no header can have")
		}
	}
	return nil
}

// Verify accepts a request whose headers carry a signature of it, and whose timestamp is not off.
//
// The header may hold a list and may be repeated: one good signature is enough, which is how senders replace their secrets.
// The first eight entries of all lines together are looked at, and an entry without the prefix counts as one of them. The entry
// of the timestamp does not.
func (m *HMAC) Verify(req *Request) Verdict {
	var candidates [maxSignatures][maxSize]byte
	n, seen, prefixed, timed := 0, 0, 0, false
	for _, line := range req.Header[m.Header] {
		for seen < maxSignatures && line != "" {
			var entry string
			var ok bool
			entry, line, ok = m.nextEntry(line)
			if !ok && !timed && m.Time.isEntry(entry) {
				timed = true
				continue
			}
			seen++
			if ok {
				prefixed++
			}
			if ok && m.decode(&candidates[n], entry) {
				n++
			}
		}
	}
	switch { // without a candidate the request need not be hashed
	case seen == 0 && !timed:
		return RefuseMissing(m.missing)
	case prefixed == 0:
		return Refuse(m.unprefixed)
	case n == 0:
		return Refuse(SignatureMalformed)
	}
	timestamp, verdict := m.Time.checkHeaders(req, m.Header)
	if !verdict.OK {
		return verdict
	}
	matched := m.match(candidates[:n], req, timestamp)
	if !matched.OK {
		return matched
	}
	if verdict = m.Time.checkBody(req); !verdict.OK {
		return verdict
	}
	return matched
}

// match accepts the request if one of the candidates is the signature of it.
func (m *HMAC) match(candidates [][maxSize]byte, req *Request, timestamp string) Verdict {
	macs, ok := m.macs.Get().(*keyedMACs)
	if !ok { // the zero value has no key
		return Refuse(SignatureWrong)
	}
	defer m.release(macs)
	content, verdict := m.content(macs, req, timestamp)
	if !verdict.OK {
		return verdict
	}
	for nth, mac := range macs.hashes {
		sum := macs.of(mac, content)
		matched := false
		for i := range candidates {
			if hmac.Equal(sum, candidates[i][:m.size]) {
				matched = true
			}
		}
		if matched {
			return AcceptBy(nth)
		}
	}
	return Refuse(m.wrong)
}

// content is what is signed, or the verdict on a request that lacks some of it. It is good until the room is released.
func (m *HMAC) content(macs *keyedMACs, req *Request, timestamp string) (content []byte, verdict Verdict) {
	if len(m.Signed) == 1 && m.Signed[0].isBody() {
		return req.Body, Accept()
	}
	macs.content, verdict = appendParts(macs.content[:0], m.Signed, req, timestamp)
	return macs.content, verdict
}

func (k *keyedMACs) of(mac hash.Hash, content []byte) []byte {
	mac.Reset()
	mac.Write(content)
	return mac.Sum(k.sum[:0])
}

func (m *HMAC) release(macs *keyedMACs) {
	if cap(macs.content) > keptContent {
		macs.content = nil
	}
	m.macs.Put(macs)
}

// Content returns a digest of what is signed in a request that Verify accepted, and of its time, which need not be signed. ok is
// false if signatures have no timestamp.
func (m *HMAC) Content(req *Request) (digest [sha256.Size]byte, ok bool) {
	if !m.Time.isSet() {
		return digest, false
	}
	macs, ok := m.macs.Get().(*keyedMACs)
	if !ok {
		return digest, false
	}
	defer m.release(macs)
	timestamp, _ := m.Time.text(req, m.Header)
	content, _ := m.content(macs, req, timestamp)
	hash := sha256.New()
	hash.Write([]byte(timestamp + "\n"))
	hash.Write(content)
	return [sha256.Size]byte(hash.Sum(nil)), true
}

// Sent reports whether a request carries anything that may be a signature.
func (m *HMAC) Sent(req *Request) bool { return isSent(req, m.Header) }

func (m *HMAC) place() string { return m.Header }

// Sign returns the headers of a request with the signature, which is made with the first secret. The zero value has no key, and
// signs nothing.
func (m *HMAC) Sign(req *Request) (headers []Header, url string) {
	macs, ok := m.macs.Get().(*keyedMACs)
	if !ok {
		return nil, ""
	}
	defer m.release(macs)
	timestamp := m.Time.Format.write(req.Now)
	signed, headers := completed(req, m.Signed, m.Time, timestamp)
	content, verdict := m.content(macs, signed, timestamp)
	if !verdict.OK {
		return nil, ""
	}
	value := m.written + m.encode(macs.of(macs.hashes[0], content))
	if m.Time.Entry != "" {
		value = m.Time.Entry + timestamp + m.Separator + value
	}
	return append(headers, Header{m.Header, value}), req.calledURL()
}

// Name is that of the algorithm, as in "HMAC-SHA256".
func (m *HMAC) Name() string { return "HMAC-" + strings.ToUpper(string(m.Algorithm)) }

// nextEntry cuts the first entry off a list and takes its prefix away; ok is false if the prefix is not there. The
// prefix is looked for before the separator, so that it may hold one itself.
func (m *HMAC) nextEntry(list string) (entry, rest string, ok bool) {
	entry, ok = strings.CutPrefix(strings.TrimLeft(list, " \t"), m.Prefix)
	entry, rest, _ = strings.Cut(entry, m.Separator)
	return strings.Trim(entry, " \t"), rest, ok
}

// decode decodes the bytes of a signature and reports whether it was well-formed.
func (m *HMAC) decode(dst *[maxSize]byte, s string) bool {
	return decodeSignature(dst[:m.size], s, m.Encoding)
}

func (m *HMAC) encode(sum []byte) string {
	if m.Encoding == Base64 {
		return base64.StdEncoding.EncodeToString(sum)
	}
	return hex.EncodeToString(sum)
}

// The strict decoders refuse stray bits after the last byte, so that every signature has one spelling in an encoding.
var (
	rawStdBase64 = base64.RawStdEncoding.Strict()
	rawURLBase64 = base64.RawURLEncoding.Strict()
)

// decodeSignature decodes s, which must fill dst, and reports whether it did.
func decodeSignature(dst []byte, s string, encoding Encoding) bool {
	var in [2 * maxSize]byte
	if len(s) > len(in) {
		return false
	}
	text := in[:copy(in[:], s)]
	if len(text) == hex.EncodedLen(len(dst)) {
		if encoding == Base64 {
			return false
		}
		_, err := hex.Decode(dst, text)
		return err == nil
	}
	if encoding == Hex {
		return false
	}
	if short := rawStdBase64.EncodedLen(len(dst)); len(text) == base64.StdEncoding.EncodedLen(len(dst)) {
		if strings.Trim(s[short:], "=") != "" {
			return false
		}
		text = text[:short]
	} else if len(text) != short {
		return false
	}
	n, err := rawStdBase64.Decode(dst, text)
	if err != nil {
		n, err = rawURLBase64.Decode(dst, text)
	}
	return err == nil && n == len(dst)
}

// Interface guards
var (
	_ Signer  = (*HMAC)(nil)
	_ Timed   = (*HMAC)(nil)
	_ carried = (*HMAC)(nil)
)
