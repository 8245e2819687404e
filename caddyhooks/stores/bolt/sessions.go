package bolt

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// Sessions have a record each, with the time when they were last named. They are found by age through another bucket: when a
// session is named for the first time, its key is left there. Pruning looks at what was left longest ago. If the session was named
// again since, its key is left anew, for then. So a session that is named with every turn of its chat costs one record a turn.

// sessionKey is a digest of a runner and a chat. The length of the name keeps pairs apart whatever is in them.
type sessionKey [sha256.Size]byte

func newSessionKey(runner, chat string) sessionKey {
	pair := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen64+len(runner)+len(chat)), uint64(len(runner)))
	return sha256.Sum256(append(append(pair, runner...), chat...))
}

// sessionAge is when a session was named, or found to have been named, and its key.
type sessionAge [8 + sha256.Size]byte

func newSessionAge(at time.Time, key sessionKey) (age sessionAge) {
	binary.BigEndian.PutUint64(age[:8], uint64(at.UnixNano()))
	copy(age[8:], key[:])
	return age
}

func (a *sessionAge) at() time.Time   { return time.Unix(0, int64(binary.BigEndian.Uint64(a[:8]))) }
func (a *sessionAge) key() sessionKey { return sessionKey(a[8:]) }

func encodeSession(key sessionKey, id string, at time.Time) []byte {
	return seal(key[:], encodeFields(newEncoder(32+len(id)), []any{&id, &at}))
}

// readSession reports false if there is no session, or one that is damaged.
func readSession(tx *bbolt.Tx, key sessionKey) (id string, namedAt time.Time, ok bool) {
	if decodeFields(key[:], tx.Bucket(sessionsBucket).Get(key[:]), []any{&id, &namedAt}) != nil {
		return "", time.Time{}, false
	}
	return id, namedAt, true
}

// nameSession keeps the session that an end names.
func (t *transaction) nameSession(chat string, session engine.Session) {
	if session.ID == "" {
		return
	}
	key := newSessionKey(session.Runner, chat)
	if _, before, ok := readSession(t.tx, key); !ok || before.After(t.now) { // the clock was set back: pruning would not look soon enough
		age := newSessionAge(t.now, key)
		t.append(sessionAgesBucket, age[:], nil)
	}
	t.put(sessionsBucket, key[:], encodeSession(key, session.ID, t.now))
}

func (s sessions) Get(ctx context.Context, runner, chat string) (string, error) {
	key := newSessionKey(runner, chat)
	var id string
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		id, _, _ = readSession(tx, key)
		return nil
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// oldSessions are keys of sessions that were left long ago.
type oldSessions struct {
	ages   []sessionAge
	before time.Time // a session is old that was named then or earlier
}

// findOldSessions finds the keys that a step of pruning looks at.
func findOldSessions(tx *bbolt.Tx, before time.Time) (old oldSessions, more bool) {
	old.before = before
	cursor := tx.Bucket(sessionAgesBucket).Cursor()
	for key, _ := cursor.First(); len(key) == len(sessionAge{}); key, _ = cursor.Next() {
		age := sessionAge(key)
		if age.at().After(before) {
			return old, false
		}
		if len(old.ages) == local.PruneStep {
			return old, true
		}
		old.ages = append(old.ages, age)
	}
	return old, false
}

// forget forgets the sessions that are old, and leaves the keys of the others anew.
func (o *oldSessions) forget(t *transaction) {
	for _, age := range o.ages {
		key := age.key()
		_, namedAt, ok := readSession(t.tx, key)
		t.delete(sessionAgesBucket, age[:])
		if ok && namedAt.After(o.before) {
			again := newSessionAge(namedAt, key)
			t.put(sessionAgesBucket, again[:], nil)
		} else {
			t.delete(sessionsBucket, key[:])
		}
	}
}
