package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // Twilio has nothing better
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Twilio verifies requests that are signed as Twilio does: with HMAC-SHA1 over the URL and the fields of the form in the body.
// A body that is no form is signed by its hash, which is in the URL. The zero value accepts nothing.
type Twilio struct {
	keys [][]byte
}

const (
	twilioHeader   = "X-Twilio-Signature"
	twilioBodyHash = "bodySHA256"

	// maxFormFields bounds the fields of a form that is signed.
	maxFormFields = 1000
)

// NewTwilio returns a verifier of signatures that are made with one of the tokens.
func NewTwilio(tokens ...string) (*Twilio, error) {
	var keys [][]byte
	for _, token := range tokens {
		keys = append(keys, []byte(token))
	}
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	return &Twilio{keys}, nil
}

// Verify accepts a request with a good signature. Whether the port was among what is signed depends on Twilio's product, so a
// URL is tried with and without it.
func (t *Twilio) Verify(req *Request) Verdict {
	var signature [sha1.Size]byte
	lines := req.Header[twilioHeader]
	switch {
	case len(lines) == 0 || lines[0] == "":
		return RefuseMissing(SignatureMissing(twilioHeader))
	case len(lines) > 1 || !decodeSignature(signature[:], strings.Trim(lines[0], " \t"), Base64):
		return Refuse(SignatureMalformed)
	}
	called := req.calledURL()
	fields, reason := signedFields(called, req.Body)
	if reason != "" {
		return Refuse(reason)
	}
	matched, secret := 0, 0
	for _, address := range withAndWithoutPort(called) {
		for i, key := range t.keys {
			equal := subtle.ConstantTimeCompare(twilioSum(key, address, fields), signature[:])
			matched, secret = matched|equal, subtle.ConstantTimeSelect(equal, i, secret)
		}
	}
	if matched != 1 {
		return Refuse(URLSignatureWrong)
	}
	return AcceptBy(secret)
}

// Sign signs with the first token. A body in JSON adds its hash to the URL.
func (t *Twilio) Sign(req *Request) (headers []Header, called string) {
	called = req.calledURL()
	if len(t.keys) == 0 || called == "" {
		return nil, ""
	}
	if json.Valid(req.Body) {
		separator := "?"
		if strings.Contains(called, "?") {
			separator = "&"
		}
		sum := sha256.Sum256(req.Body)
		called += separator + twilioBodyHash + "=" + hex.EncodeToString(sum[:])
	}
	fields, reason := signedFields(called, req.Body)
	if reason != "" {
		return nil, ""
	}
	return []Header{{twilioHeader, base64.StdEncoding.EncodeToString(twilioSum(t.keys[0], called, fields))}}, called
}

func twilioSum(key []byte, address string, fields []byte) []byte {
	mac := hmac.New(sha1.New, key)
	mac.Write([]byte(address))
	mac.Write(fields)
	return mac.Sum(nil)
}

// signedFields returns what is signed after the URL: names and values of the form, sorted, each once. It is empty if the URL
// has the hash of the body.
func signedFields(called string, body []byte) (fields []byte, refused Reason) {
	address, err := url.Parse(called)
	if err != nil {
		return nil, URLUnknown
	}
	if sums := address.Query()[twilioBodyHash]; len(sums) > 0 {
		var sum [sha256.Size]byte
		got := sha256.Sum256(body)
		if len(sums) > 1 || !decodeSignature(sum[:], sums[0], Hex) || subtle.ConstantTimeCompare(sum[:], got[:]) != 1 {
			return nil, BodyHashWrong
		}
		return nil, ""
	}
	if bytes.Count(body, []byte("&")) >= maxFormFields {
		return nil, FormMalformed
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, FormMalformed
	}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		values := form[name]
		slices.Sort(values)
		for _, value := range slices.Compact(values) {
			fields = append(append(fields, name...), value...)
		}
	}
	return fields, ""
}

// withAndWithoutPort returns the spellings of a URL that may have been signed.
func withAndWithoutPort(called string) []string {
	scheme, rest, ok := strings.Cut(called, "://")
	if !ok {
		return []string{called}
	}
	host, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	colon := strings.LastIndexByte(host, ':')
	if colon > strings.LastIndexByte(host, ']') {
		return []string{called, scheme + "://" + host[:colon] + path}
	}
	port := ":443"
	if scheme == "http" {
		port = ":80"
	}
	return []string{called, scheme + "://" + host + port + path}
}

// Interface guards
var _ Signer = (*Twilio)(nil)
