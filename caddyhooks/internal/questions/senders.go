package questions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Senders remembers who was approved to write to a hook. There are as many as somebody has approved.
type Senders struct{ documents engine.Documents }

// NewSenders are those that a store remembers.
func NewSenders(documents engine.Documents) Senders { return Senders{documents} }

// Knows reports whether a sender was approved. Nobody knows one without a name.
func (s Senders) Knows(ctx context.Context, hook, sender string) (bool, error) {
	if sender == "" {
		return false, nil
	}
	kept, err := s.documents.Load(ctx, senderKind(hook, sender))
	return len(kept) > 0, err
}

// Remember notes that a sender was approved.
func (s Senders) Remember(ctx context.Context, hook, sender string) error {
	if sender == "" {
		return nil
	}
	err := s.documents.Save(ctx, engine.Document{Kind: senderKind(hook, sender), Name: "approved", Value: []byte("{}")})
	if errors.Is(err, engine.ErrDocumentChanged) { // it was approved before
		return nil
	}
	return err
}

// senderKind is the kind of a sender's document: each has its own, since documents are found by their kind.
func senderKind(hook, sender string) string {
	digest := sha256.Sum256([]byte(sender))
	return "sender " + hook + " " + hex.EncodeToString(digest[:16])
}
