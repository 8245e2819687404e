package api

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

// Signature has the headers of a signed request. There are none if the payload cannot be signed here, as where the hook takes
// a token of the sender, or where the sender signs a URL that is not known.
type Signature struct {
	Headers []auth.Header `json:"headers"`
	URL     string        `json:"url"`    // that is called; "" if it is not known here
	Header  string        `json:"header"` // the last one, which has the signature
	Value   string        `json:"value"`
}
