package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
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
	end := make([]byte, min(size, maxManifest+int64(manifestTail)))
	if _, err := io.ReadFull(io.NewSectionReader(file, size-int64(len(end)), int64(len(end))), end); err != nil {
		return nil, err
	}
	return parseManifest(end, size)
}

// parseManifest is readManifest for the last bytes of a file, or all.
func parseManifest(end []byte, size int64) (*Manifest, error) {
	before, ok := bytes.CutSuffix(end, []byte(manifestMagic))
	if !ok || len(before) < 8 {
		return nil, nil
	}
	before, length := before[:len(before)-8], binary.BigEndian.Uint64(before[len(before)-8:])
	if length > uint64(len(before)) {
		return nil, fmt.Errorf("the end of the backup: %w", errDamaged)
	}
	text := before[uint64(len(before))-length:]
	m := new(Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("the end of the backup: %w", errDamaged)
	}
	if m.Format > manifestFormat {
		return nil, errNewerBackup
	}
	if m.Format < 1 || m.Bytes != size-int64(len(text)+manifestTail) || len(m.SHA256) != 32 {
		return nil, fmt.Errorf("the end of the backup does not go with the rest: %w", errDamaged)
	}
	return m, nil
}

// StreamCheck checks a backup that is passed on and is in no file here. All of it is written to the check.
type StreamCheck struct {
	digest hash.Hash
	size   int64
	end    []byte // that may be the manifest
}

// NewStreamCheck begins a check.
func NewStreamCheck() *StreamCheck { return &StreamCheck{digest: sha256.New()} }

func (c *StreamCheck) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	c.end = append(c.end, p...)
	if more := len(c.end) - maxManifest - manifestTail; more > 0 {
		_, _ = c.digest.Write(c.end[:more]) // never fails
		c.end = append(c.end[:0], c.end[more:]...)
	}
	return len(p), nil
}

// Manifest is that of the backup, if all of it was written and nothing is wrong with it.
func (c *StreamCheck) Manifest() (*Manifest, error) {
	m, err := parseManifest(c.end, c.size)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, errNoEnd
	}
	_, _ = c.digest.Write(c.end[:int64(len(c.end))-(c.size-m.Bytes)])
	if !bytes.Equal(c.digest.Sum(nil), m.SHA256) {
		return nil, fmt.Errorf("%w: its checksum is wrong", errDamaged)
	}
	return m, nil
}

var errNoEnd = errors.New("the copy has no end: it broke off")
