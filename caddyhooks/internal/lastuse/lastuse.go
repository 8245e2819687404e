// Package lastuse remembers when each token and secret was first seen, and when a request last used it. It keeps this in documents of the
// store, over restarts and for all nodes, without the secrets: a secret is known there by a keyed digest. It imports engine.
package lastuse

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// OfAll is the place of the tokens that all hooks take.
const OfAll = "token"

// OfHook is the place of the secrets of a hook.
func OfHook(name string) string { return "hook/" + name }

// Secret is one of the secrets in force.
type Secret struct {
	place  string
	digest [sha256.Size]byte
	seen   time.Time
	used   atomic.Int64 // in seconds since 1970; 0 if it was not used in this process
}

// Note remembers a use of the secret. It costs one write to memory.
func (s *Secret) Note(at time.Time) { s.used.Store(at.Unix()) }

// Book has the secrets in force. Its methods are safe for concurrent use. A nil Book remembers nothing.
type Book struct {
	mu      sync.Mutex
	secrets map[secretKey]*Secret
	saved   map[*Secret]int64 // the use that was saved last
	key     []byte            // of digests; nil if it was not read
}

type secretKey struct {
	place  string
	digest [sha256.Size]byte
}

// FindAll returns the secrets of a place, and remembers that they were seen.
func (b *Book) FindAll(place string, secrets []string) (found []*Secret) {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.secrets == nil {
		b.secrets, b.saved = make(map[secretKey]*Secret), make(map[*Secret]int64)
	}
	for _, text := range secrets {
		key := secretKey{place, sha256.Sum256([]byte(text))}
		s := b.secrets[key]
		if s == nil {
			s = &Secret{place: place, digest: key.digest, seen: time.Now().UTC().Truncate(time.Second)}
			b.secrets[key] = s
		}
		found = append(found, s)
	}
	return found
}

// Use is what is known about a secret.
type Use struct {
	ID    string    `json:"-"`
	Since time.Time `json:"since"`         // when it was first seen, by whatever node
	Used  time.Time `json:"used,omitzero"` // when a request last used it
}

const (
	documents   = "secret-use"
	keyDocument = "key"
	// maxRemembered bounds the secrets of a place that are remembered.
	maxRemembered = 32
	// saveTries is how often a document is saved that other nodes change at the same time.
	saveTries = 5
)

// Save stores what has changed since the last time: what was seen first, and uses. In force are the secrets in force; others are forgotten
// here once they are saved.
func (b *Book) Save(ctx context.Context, store engine.Documents, inForce map[*Secret]bool) error {
	if err := b.readKey(ctx, store); err != nil {
		return err
	}
	b.mu.Lock()
	changed := make(map[string]map[*Secret]int64)
	for _, s := range b.secrets {
		used := s.used.Load()
		if last, ok := b.saved[s]; !ok || used > last {
			if changed[s.place] == nil {
				changed[s.place] = make(map[*Secret]int64)
			}
			changed[s.place][s] = used
		} else if !inForce[s] {
			delete(b.secrets, secretKey{s.place, s.digest})
			delete(b.saved, s)
		}
	}
	b.mu.Unlock()
	for _, place := range slices.Sorted(maps.Keys(changed)) {
		if err := b.savePlace(ctx, store, place, changed[place]); err != nil {
			return err
		}
	}
	return nil
}

func (b *Book) savePlace(ctx context.Context, store engine.Documents, place string, changed map[*Secret]int64) error {
	for try := 0; ; try++ {
		all, err := load(ctx, store)
		if err != nil {
			return err
		}
		d := all[place]
		if d == nil {
			d = &placeUses{Uses: make(map[string]Use)}
		}
		ids := make(map[string]bool)
		for s, used := range changed {
			id := b.id(s)
			ids[id], d.Uses[id] = true, merge(d.Uses[id], s, used)
		}
		d.forget(func(id string) bool { return ids[id] })
		value, err := json.Marshal(d)
		if err != nil {
			return err
		}
		err = store.Save(ctx, engine.Document{Kind: documents, Name: place, Revision: d.revision, Value: value})
		if errors.Is(err, engine.ErrDocumentChanged) && try < saveTries {
			continue
		}
		if err != nil {
			return fmt.Errorf("saving the last use of secrets: %w", err)
		}
		b.mu.Lock()
		maps.Copy(b.saved, changed)
		b.mu.Unlock()
		return nil
	}
}

// merge adds what this node knows about a secret.
func merge(known Use, s *Secret, used int64) Use {
	if known.Since.IsZero() || s.seen.Before(known.Since) {
		known.Since = s.seen
	}
	if at := time.Unix(used, 0).UTC(); used > 0 && at.After(known.Used) {
		known.Used = at
	}
	return known
}

// placeUses is the document of a place.
type placeUses struct {
	Uses     map[string]Use `json:"secrets"`
	revision int64
}

// forget removes the secrets that have been out of use for longest, if there are too many.
func (p *placeUses) forget(keep func(id string) bool) {
	ids := slices.SortedFunc(maps.Keys(p.Uses), func(a, b string) int {
		return cmp.Or(lastOf(p.Uses[a]).Compare(lastOf(p.Uses[b])), cmp.Compare(a, b))
	})
	for _, id := range ids {
		if len(p.Uses) > maxRemembered && !keep(id) {
			delete(p.Uses, id)
		}
	}
}

func lastOf(u Use) time.Time {
	if u.Used.After(u.Since) {
		return u.Used
	}
	return u.Since
}

// load reads the documents of all places. One that is damaged is begun anew.
func load(ctx context.Context, store engine.Documents) (map[string]*placeUses, error) {
	all, err := store.Load(ctx, documents)
	if err != nil {
		return nil, fmt.Errorf("reading the last use of secrets: %w", err)
	}
	places := make(map[string]*placeUses)
	for _, d := range all {
		p := &placeUses{revision: d.Revision}
		if json.Unmarshal(d.Value, p) != nil || p.Uses == nil {
			p.Uses = make(map[string]Use)
		}
		places[d.Name] = p
	}
	return places, nil
}

// readKey reads the key of digests, or makes one for all nodes.
func (b *Book) readKey(ctx context.Context, store engine.Documents) error {
	b.mu.Lock()
	key := b.key
	b.mu.Unlock()
	for try := 0; key == nil; try++ {
		all, err := store.Load(ctx, documents)
		if err != nil {
			return fmt.Errorf("reading the last use of secrets: %w", err)
		}
		if at := slices.IndexFunc(all, func(d engine.Document) bool { return d.Name == keyDocument }); at >= 0 {
			key = all[at].Value
			break
		}
		const size = 32
		made := make([]byte, size)
		if _, err := rand.Read(made); err != nil {
			return err
		}
		err = store.Save(ctx, engine.Document{Kind: documents, Name: keyDocument, Value: made})
		if err != nil && (!errors.Is(err, engine.ErrDocumentChanged) || try == saveTries) {
			return fmt.Errorf("saving the last use of secrets: %w", err)
		}
	}
	b.mu.Lock()
	b.key = key
	b.mu.Unlock()
	return nil
}

// id is a short digest of a secret. Without the key of the store nobody can test a guess of the secret by it.
func (b *Book) id(s *Secret) string {
	const shown = 4
	b.mu.Lock()
	mac := hmac.New(sha256.New, b.key)
	b.mu.Unlock()
	mac.Write([]byte(s.place + "\n"))
	mac.Write(s.digest[:])
	return hex.EncodeToString(mac.Sum(nil)[:shown])
}

// Uses tells of each of some secrets when it was used, on whatever node. Other nodes save their uses once a minute.
func (b *Book) Uses(ctx context.Context, store engine.Documents, secrets []*Secret) ([]Use, error) {
	if err := b.readKey(ctx, store); err != nil {
		return nil, err
	}
	places, err := load(ctx, store)
	if err != nil {
		return nil, err
	}
	uses := make([]Use, len(secrets))
	for i, s := range secrets {
		id := b.id(s)
		var known Use
		if place := places[s.place]; place != nil {
			known = place.Uses[id]
		}
		uses[i] = merge(known, s, s.used.Load())
		uses[i].ID = id
	}
	return uses, nil
}
