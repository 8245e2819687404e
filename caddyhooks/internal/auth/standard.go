package auth

import (
	"encoding/base64"
	"errors"
	"strings"
	"time"
)

// StandardPrefix begins the secrets of Standard Webhooks.
const StandardPrefix = "whsec_"

// NewStandard returns a verifier of requests that are signed as Standard Webhooks say. They have three headers, whose names
// begin with the prefix of a family: "Webhook-", or "Svix-" for those of Svix. An id with a
// dot is refused: what is signed is the id, the timestamp and the body, with dots between them.
func NewStandard(family string, tolerance time.Duration, secrets ...string) (*HMAC, error) {
	var keys [][]byte
	for _, secret := range secrets {
		key, ok := DecodeKey(secret)
		if !ok {
			return nil, errors.New("has a secret that is not base64 after whsec_")
		}
		keys = append(keys, key)
	}
	return NewHMAC(Signature{
		Header: family + "Signature", Prefix: "v1,", Separator: " ", Encoding: Base64,
		Signed: []Part{HeaderWithout(".", family+"Id"), Literal("."), Time, Literal("."), Body},
		Time:   Timestamp{Header: family + "Timestamp", Tolerance: tolerance},
	}, keys...)
}

// DecodeKey returns the key that a secret in base64 stands for. The secret may begin with StandardPrefix.
func DecodeKey(secret string) (key []byte, ok bool) {
	encoded := strings.TrimPrefix(strings.TrimSpace(secret), StandardPrefix)
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
	return key, err == nil && len(key) > 0
}
