package storage

import (
	"context"
	"errors"
)

// Documents keeps small records by kind and name, in whatever form their owner gives them: of what is neither a run nor a setting, and
// must outlive the process and be the same on all nodes. Whoever writes documents bounds how many there are.
type Documents interface {
	// Load returns the documents of a kind, those of all kinds for "", by kind and name in ascending order.
	Load(ctx context.Context, kind string) ([]Document, error)

	// Save stores documents in one step, each in place of the one with its kind and name. ErrDocumentChanged says that one of them was made
	// from a revision that is not the last one any more, and then none is stored. Those that are stored have the next revision.
	Save(ctx context.Context, documents ...Document) error
}

// Document is a small record.
type Document struct {
	Kind, Name string // without zero bytes, at most MaxDocumentName bytes each
	Revision   int64  // that it was made from, 0 for a new one
	Value      []byte // at most MaxDocument bytes; nil removes the document
}

// The bounds of a document.
const (
	MaxDocument     = 256 << 10
	MaxDocumentName = 256
)

// ErrDocumentChanged says that somebody else has changed a document meanwhile.
var ErrDocumentChanged = errors.New("the document was changed meanwhile")
