package storefile

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

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/pages"
)

// Manifest stands at the end of a backup, behind the pages of the file, where the database does not look. It says what the backup is, and
// how to know that nothing of it is missing or was altered.
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
	// ManifestFormat is the number of the newest format.
	ManifestFormat = 1
	// ManifestMagic ends every backup. Before it stands the length of the manifest, in 8 bytes.
	ManifestMagic = "hooksbak"
	ManifestTail  = 8 + len(ManifestMagic)
	maxManifest   = 4 << 10
)

// Encode is the manifest as it is written. Its length does not depend on the digest.
func (m Manifest) Encode() []byte {
	text, _ := json.Marshal(m) // which always encodes
	return append(binary.BigEndian.AppendUint64(text, uint64(len(text))), ManifestMagic...)
}

var errNewerBackup = errors.New("the backup was made by a newer version of caddyhooks: restore it with that one")

// ReadManifest reads the end of a file of the given size. A file without a manifest is no backup that we made: nil.
func ReadManifest(file io.ReaderAt, size int64) (*Manifest, error) {
	end := make([]byte, min(size, maxManifest+int64(ManifestTail)))
	if _, err := io.ReadFull(io.NewSectionReader(file, size-int64(len(end)), int64(len(end))), end); err != nil {
		return nil, err
	}
	return parseManifest(end, size)
}

// parseManifest is ReadManifest for the last bytes of a file, or all.
func parseManifest(end []byte, size int64) (*Manifest, error) {
	before, ok := bytes.CutSuffix(end, []byte(ManifestMagic))
	if !ok || len(before) < 8 {
		return nil, nil
	}
	before, length := before[:len(before)-8], binary.BigEndian.Uint64(before[len(before)-8:])
	if length > uint64(len(before)) {
		return nil, fmt.Errorf("the end of the backup: %w", pages.ErrDamaged)
	}
	text := before[uint64(len(before))-length:]
	m := new(Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("the end of the backup: %w", pages.ErrDamaged)
	}
	if m.Format > ManifestFormat {
		return nil, errNewerBackup
	}
	if m.Format < 1 || m.Bytes != size-int64(len(text)+ManifestTail) || len(m.SHA256) != 32 {
		return nil, fmt.Errorf("the end of the backup does not go with the rest: %w", pages.ErrDamaged)
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
	if more := len(c.end) - maxManifest - ManifestTail; more > 0 {
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
		return nil, ErrNoEnd
	}
	_, _ = c.digest.Write(c.end[:int64(len(c.end))-(c.size-m.Bytes)])
	if !bytes.Equal(c.digest.Sum(nil), m.SHA256) {
		return nil, fmt.Errorf("%w: its checksum is wrong", pages.ErrDamaged)
	}
	return m, nil
}

// ErrNoEnd says that the end of a backup is missing.
var ErrNoEnd = errors.New("the copy has no end: it broke off")
