package outbound

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Signer signs what is sent as Standard Webhooks describe, once for every secret, so that receivers can change theirs at
// leisure. An empty Signer does not sign.
type Signer []*standardwebhooks.Webhook

// CheckSecrets reports what is wrong with secrets to sign with.
func CheckSecrets(secrets []string) error {
	_, err := NewSigner(secrets)
	return err
}

// NewSigner reads the secrets. Its errors name a secret by its place in the list, never by its text.
func NewSigner(secrets []string) (Signer, error) {
	var s Signer
	for i, secret := range secrets {
		encoded, ok := strings.CutPrefix(strings.TrimSpace(secret), "whsec_")
		if !ok {
			return nil, fmt.Errorf("secret %d does not begin with whsec_", i+1)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, fmt.Errorf("secret %d: what follows whsec_ is not base64", i+1)
		}
		if len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("secret %d has %d bytes; Standard Webhooks ask for 24 to 64", i+1, len(key))
		}
		webhook, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, fmt.Errorf("secret %d: %w", i+1, err)
		}
		s = append(s, webhook)
	}
	return s, nil
}

// Sign sets the signature headers, if there is a secret to sign with.
func (s Signer) Sign(h http.Header, id string, at time.Time, body []byte) {
	if len(s) == 0 {
		return
	}
	signatures := make([]string, len(s))
	for i, webhook := range s {
		signatures[i], _ = webhook.Sign(id, at, body) // never fails: HMAC takes everything
	}
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
}
