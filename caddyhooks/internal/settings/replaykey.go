package settings

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
)

// KeyID is the digest of some texts.
func KeyID(parts ...string) [32]byte {
	scope := sha256.New()
	WriteParts(scope, parts...)
	return [32]byte(scope.Sum(nil))
}

// WriteParts writes texts so that different lists of texts are different.
func WriteParts(scope hash.Hash, parts ...string) {
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		scope.Write(length[:])
		scope.Write([]byte(part))
	}
}

// ReplayKey returns the key by which a request is known again that was recorded and is sent once more, nil if the scheme has
// no timestamp. The request is authenticated already.
func (a Authentication) ReplayKey(hook string, req *auth.Request) *engine.Key {
	timed, ok := a.Verifier.(auth.Timed)
	if !ok {
		return nil
	}
	content, ok := timed.Content(req)
	if !ok {
		return nil
	}
	return &engine.Key{ID: KeyID("signed", hook, string(content[:])), AnyBody: true}
}
