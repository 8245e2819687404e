package bolt

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// documentKey is the key of a document. No kind has a zero byte, so that those of a kind stand together.
func documentKey(kind, name string) []byte { return []byte(kind + "\x00" + name) }

func encodeDocument(key []byte, d engine.Document) []byte {
	return seal(key, encodeFields(newEncoder(16+len(d.Value)), []any{&d.Revision, &d.Value}))
}

func decodeDocument(key, data []byte) (d engine.Document, err error) {
	kind, name, _ := bytes.Cut(key, []byte{0})
	d.Kind, d.Name = string(kind), string(name)
	if err := decodeFields(key, data, []any{&d.Revision, &d.Value}); err != nil {
		return engine.Document{}, fmt.Errorf("document %q: %w", key, err)
	}
	if d.Value == nil {
		d.Value = []byte{}
	}
	return d, nil
}

func (s documents) Load(ctx context.Context, kind string) ([]engine.Document, error) {
	prefix := documentKey(kind, "")
	if kind == "" {
		prefix = nil
	}
	var all []engine.Document // no result: a reader that nobody waits for any more goes on
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(documentsBucket).Cursor()
		for key, data := cursor.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, data = cursor.Next() {
			document, err := decodeDocument(key, data)
			if err != nil {
				return err
			}
			document.Value = bytes.Clone(document.Value)
			all = append(all, document)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (s documents) Save(ctx context.Context, changed ...engine.Document) error {
	size := 0
	for i := range changed {
		size += len(changed[i].Name) + len(changed[i].Value)
	}
	return s.committer.do(ctx, &change{size: size, apply: func(t *transaction) error {
		bucket := t.bucket(documentsBucket)
		for i := range changed {
			key := documentKey(changed[i].Kind, changed[i].Name)
			var last engine.Document
			if data := bucket.Get(key); data != nil {
				var err error
				if last, err = decodeDocument(key, data); err != nil {
					return err
				}
			}
			if last.Revision != changed[i].Revision {
				return engine.ErrDocumentChanged
			}
		}
		for _, document := range changed {
			key := documentKey(document.Kind, document.Name)
			if document.Value == nil {
				t.delete(documentsBucket, key)
				continue
			}
			document.Revision++
			t.put(documentsBucket, key, encodeDocument(key, document))
		}
		return nil
	}})
}
