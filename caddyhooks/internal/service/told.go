package service

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

const (
	// toldKind is the kind of the documents with secrets that senders told, one for each hook.
	toldKind = "told"
	// toldFor is how long such a secret is shown.
	toldFor = 24 * time.Hour
	// toldStays is how long no other one takes its place.
	toldStays = 10 * time.Minute
)

// ToldSecret is a secret that a sender told a hook which has none. Operators enter it at the sender and in the hook.
type ToldSecret struct {
	Hook   string    `json:"-"`
	Title  string    `json:"-"` // of the sender
	Secret string    `json:"secret"`
	At     time.Time `json:"at"`
}

// KeepTold keeps a secret that a sender told a hook, for operators at all nodes. It reports false if another one came shortly before.
func (in *Instance) KeepTold(ctx context.Context, hook, secret string, now time.Time) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, StorePatience)
	defer stop()
	documents := in.Service.Store.Documents()
	saved, err := documents.Load(ctx, toldKind)
	if err != nil {
		return false, err
	}
	kept := engine.Document{Kind: toldKind, Name: hook}
	for _, d := range saved {
		if d.Name != hook {
			continue
		}
		if before := readTold(d); now.Sub(before.At) < toldStays {
			return subtle.ConstantTimeCompare([]byte(before.Secret), []byte(secret)) == 1, nil
		}
		kept.Revision = d.Revision
	}
	if kept.Value, err = json.Marshal(ToldSecret{Secret: secret, At: now}); err != nil { //nolint:gosec // it is kept for operators to see
		return false, err
	}
	err = documents.Save(ctx, kept)
	if errors.Is(err, engine.ErrDocumentChanged) {
		return false, nil
	}
	return err == nil, err
}

// Told returns the secrets that senders told hooks which still have none.
func (in *Instance) Told(ctx context.Context, active *settings.Active, now time.Time) (told []ToldSecret, err error) {
	awaiting := make(map[string]string) // the titles of their schemes, by hook
	for name, hook := range active.Hooks {
		if hook.Auth.AwaitsSecret() {
			awaiting[name] = hook.Auth.Title
		}
	}
	if len(awaiting) == 0 {
		return nil, nil
	}
	saved, err := in.Service.Store.Documents().Load(ctx, toldKind)
	for _, d := range saved {
		secret := readTold(d)
		if secret.Title = awaiting[d.Name]; secret.Title != "" && now.Sub(secret.At) < toldFor {
			told = append(told, secret)
		}
	}
	return told, err
}

// forgetTold removes the secrets that are shown no longer. One that a hook has by now stays for a day: another node may still need it.
func (s *Service) forgetTold(ctx context.Context, now time.Time) error {
	documents := s.Store.Documents()
	saved, err := documents.Load(ctx, toldKind)
	if err != nil {
		return err
	}
	for _, d := range saved {
		if now.Sub(readTold(d).At) < toldFor {
			continue
		}
		d.Value = nil
		if err := documents.Save(ctx, d); err != nil && !errors.Is(err, engine.ErrDocumentChanged) {
			return err
		}
	}
	return nil
}

// readTold reads a document. One that cannot be read is as old as can be.
func readTold(d engine.Document) (told ToldSecret) {
	_ = json.Unmarshal(d.Value, &told)
	told.Hook = d.Name
	return told
}
