package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

type documentKey struct{ kind, name string }

func (s documents) Load(_ context.Context, kind string) (all []engine.Document, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, document := range s.Data.documents {
		if kind == "" || key.kind == kind {
			document.Value = bytes.Clone(document.Value)
			all = append(all, document)
		}
	}
	slices.SortFunc(all, func(a, b engine.Document) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

func (s documents) Save(_ context.Context, changed ...engine.Document) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changed {
		if s.Data.documents[documentKey{changed[i].Kind, changed[i].Name}].Revision != changed[i].Revision {
			return engine.ErrDocumentChanged
		}
	}
	for _, document := range changed {
		key := documentKey{document.Kind, document.Name}
		if document.Value == nil {
			delete(s.Data.documents, key)
			continue
		}
		document.Revision++
		document.Value = bytes.Clone(document.Value)
		s.Data.documents[key] = document
	}
	return nil
}
