package outbound

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Signer signs requests as Standard Webhooks describe, once for every secret, so that receivers can replace a secret without
// haste. An empty Signer does not sign.
type Signer []*standardwebhooks.Webhook

// CheckSecrets checks secrets of a Caddyfile. A secret with a placeholder is passed over: its value depends on the machine that
// loads the configuration.
func CheckSecrets(secrets []string) error {
	for i, secret := range secrets {
		if strings.Contains(secret, "{") {
			continue
		}
		if _, err := decodeSecret(secret); err != nil {
			return fmt.Errorf("secret %d %w", i+1, err)
		}
	}
	return nil
}

// decodeSecret returns the key that a secret stands for. Its errors do not quote the secret.
func decodeSecret(secret string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(secret), "whsec_")
	if !ok {
		return nil, errors.New("does not begin with whsec_")
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, errors.New("has something after whsec_ that is not base64")
	}
	if len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("has %d bytes; Standard Webhooks ask for 24 to 64", len(key))
	}
	return key, nil
}

// NewSigner reads the secrets. Its errors name a secret by its place in the list, never by its text.
func NewSigner(secrets []string) (Signer, error) {
	var s Signer
	for i, secret := range secrets {
		key, err := decodeSecret(secret)
		if err != nil {
			return nil, fmt.Errorf("secret %d %w", i+1, err)
		}
		webhook, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, fmt.Errorf("secret %d: %w", i+1, err)
		}
		s = append(s, webhook)
	}
	return s, nil
}

// Sign sets the id, by which receivers know a repeat, and the signature headers if there is a secret to sign with.
func (s Signer) Sign(h http.Header, id string, at time.Time, body []byte) {
	h.Set(standardwebhooks.HeaderWebhookID, id)
	if len(s) == 0 {
		return
	}
	signatures := make([]string, len(s))
	for i, webhook := range s {
		signatures[i], _ = webhook.Sign(id, at, body) // never fails: HMAC takes everything
	}
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
}
