package bolt

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/bbolt"
)

// Manifest stands at the end of a backup, behind the pages of the file, where the database does not look. It says what the backup is, and how to
// know that nothing of it is missing or was altered.
type Manifest struct {
	Format      int       `json:"format"`
	Instance    string    `json:"instance"`
	TakenAt     time.Time `json:"takenAt"`
	Layout      int       `json:"layout"` // of the buckets
	Revision    int64     `json:"revision"`
	Transaction int       `json:"transaction"`
	Bytes       int64     `json:"bytes"`  // of the pages
	SHA256      digestHex `json:"sha256"` // of the pages
}

type digestHex []byte

func (d digestHex) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d), nil }

func (d *digestHex) UnmarshalText(text []byte) (err error) {
	*d, err = hex.DecodeString(string(text))
	return err
}

const (
	manifestFormat = 1
	// manifestMagic ends every backup. Before it stands the length of the manifest, in 8 bytes.
	manifestMagic = "hooksbak"
	manifestTail  = 8 + len(manifestMagic)
	maxManifest   = 4 << 10
)

// newManifest describes the pages that a transaction sees.
func newManifest(tx *bbolt.Tx, instance string, now time.Time) (Manifest, error) {
	layout, err := versionOf(tx)
	return Manifest{
		Format: manifestFormat, Instance: instance, TakenAt: now.UTC().Truncate(time.Second), Layout: layout, Revision: revisionOf(tx),
		Transaction: tx.ID(), Bytes: tx.Size(), SHA256: make([]byte, 32),
	}, err
}

// encode is the manifest as it is written. Its length does not depend on the digest.
func (m Manifest) encode() []byte {
	text, _ := json.Marshal(m) // which always encodes
	return append(binary.BigEndian.AppendUint64(text, uint64(len(text))), manifestMagic...)
}

var errNewerBackup = errors.New("the backup was made by a newer version of caddyhooks: restore it with that one")

// readManifest reads the end of a file of the given size. A file without a manifest is no backup that we made: nil.
func readManifest(file io.ReaderAt, size int64) (*Manifest, error) {
	tail := make([]byte, manifestTail)
	if size < int64(manifestTail) {
		return nil, nil
	}
	if _, err := file.ReadAt(tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	if string(tail[8:]) != manifestMagic {
		return nil, nil
	}
	length := binary.BigEndian.Uint64(tail)
	rest := size - int64(len(tail))
	if length > maxManifest || int64(length) > rest {
		return nil, fmt.Errorf("the end of the backup: %w", errDamaged)
	}
	text := make([]byte, length)
	if _, err := file.ReadAt(text, rest-int64(length)); err != nil {
		return nil, err
	}
	m := new(Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("the end of the backup: %w", errDamaged)
	}
	if m.Format > manifestFormat {
		return nil, errNewerBackup
	}
	if m.Format < 1 || m.Bytes != rest-int64(length) || len(m.SHA256) != 32 {
		return nil, fmt.Errorf("the end of the backup does not go with the rest: %w", errDamaged)
	}
	return m, nil
}
