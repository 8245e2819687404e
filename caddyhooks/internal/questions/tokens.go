// Package questions writes the questions that people are asked about runs, and makes the tokens with which agents and people answer. It
// imports engine, and knows neither HTTP nor settings.
package questions

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"sync"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Tokens are the secrets with which questions are answered. Each is made from the id of its question and a key that the store keeps, so
// that all nodes know it, and nobody has to store it. One that has been used is worth nothing: a question is answered once.
type Tokens struct {
	documents engine.Documents

	mu  sync.Mutex
	key []byte // nil until it was read
}

// NewTokens are those of the questions in a store.
func NewTokens(documents engine.Documents) *Tokens { return &Tokens{documents: documents} }

// Who answers with a token. That of an agent does not let people answer, nor the other way round.
type Who string

const (
	Agent  Who = "agent"
	Person Who = "person"
)

const (
	keyKind, keyName = "questions", "key"
	keySize          = 32
	tokenSize        = 24 // bytes, of which nobody can guess enough
)

// Of is the token of a question.
func (t *Tokens) Of(ctx context.Context, who Who, question string) (string, error) {
	key, err := t.load(ctx)
	if err != nil {
		return "", err
	}
	digest := hmac.New(sha256.New, key)
	_, _ = digest.Write([]byte(string(who) + " " + question))
	return base64.RawURLEncoding.EncodeToString(digest.Sum(nil)[:tokenSize]), nil
}

// Fits reports whether a token is that of a question.
func (t *Tokens) Fits(ctx context.Context, who Who, question, token string) (bool, error) {
	right, err := t.Of(ctx, who, question)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare([]byte(right), []byte(token)) == 1, nil
}

// load reads the key. The first node that needs one makes it.
func (t *Tokens) load(ctx context.Context) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range 3 {
		if t.key != nil {
			return t.key, nil
		}
		kept, err := t.documents.Load(ctx, keyKind)
		if err != nil {
			return nil, err
		}
		for _, document := range kept {
			if document.Name == keyName && len(document.Value) == keySize {
				t.key = document.Value
			}
		}
		if t.key != nil {
			return t.key, nil
		}
		key := make([]byte, keySize)
		_, _ = rand.Read(key) // which never fails
		err = t.documents.Save(ctx, engine.Document{Kind: keyKind, Name: keyName, Value: key})
		if err != nil && !errors.Is(err, engine.ErrDocumentChanged) { // by another node, which has made one
			return nil, err
		}
	}
	return nil, errors.New("the key of questions cannot be read")
}
