package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var documentChecks = []check{
	{"documents of a kind are loaded by name", loadedDocuments},
	{"a document made from another revision is not saved, nor those with it", staleDocuments},
	{"of many who change a document from one revision, one does", documentsAtOnce},
}

// documentsAre expects the documents of a kind, written as name=value@revision.
func (s *store) documentsAre(kind string, want ...string) {
	s.t.Helper()
	all, err := s.Documents().Load(s.t.Context(), kind)
	var got []string
	for _, d := range all {
		got = append(got, fmt.Sprintf("%s=%s@%d", d.Name, d.Value, d.Revision))
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("documents of kind %q: %.200q, %v; want %.200q", kind, got, err, want)
	}
}

func (s *store) saveDocuments(documents ...engine.Document) {
	s.t.Helper()
	if err := s.Documents().Save(s.t.Context(), documents...); err != nil {
		s.t.Fatalf("saving documents: %v", err)
	}
}

func loadedDocuments(_ *testing.T, s *store) {
	s.documentsAre("a")
	s.documentsAre("")
	name := `back\slash ü` + strings.Repeat("n", engine.MaxDocumentName-14)
	s.saveDocuments(engine.Document{Kind: "b", Name: "z", Value: []byte("3")}, engine.Document{Kind: "a", Name: name, Value: []byte{}},
		engine.Document{Kind: "a", Name: "B", Value: []byte("1")}, engine.Document{Kind: "ab", Name: "", Value: []byte("2")})
	s.documentsAre("a", "B=1@1", name+"=@1")
	s.documentsAre("", "B=1@1", name+"=@1", "=2@1", "z=3@1")
	value := strings.Repeat("\x00", engine.MaxDocument)
	s.saveDocuments(engine.Document{Kind: "a", Name: "B", Revision: 1, Value: []byte(value)}, engine.Document{Kind: "a", Name: name, Revision: 1},
		engine.Document{Kind: "a", Name: "not there"})
	s.documentsAre("a", "B="+value+"@2")
	if s.options.Reopen != nil {
		s.reopen()
		s.documentsAre("", "B="+value+"@2", "=2@1", "z=3@1")
	}
}

func staleDocuments(t *testing.T, s *store) {
	s.saveDocuments(engine.Document{Kind: "a", Name: "x", Value: []byte("1")})
	s.saveDocuments(engine.Document{Kind: "a", Name: "x", Revision: 1, Value: []byte("2")})
	for _, stale := range []engine.Document{{Revision: 0}, {Revision: 1}, {Revision: 3}, {Revision: 1, Value: []byte("new")}, {Value: []byte("new")}} {
		stale.Kind, stale.Name = "a", "x"
		err := s.Documents().Save(t.Context(), engine.Document{Kind: "a", Name: "other", Value: []byte("new")}, stale)
		if !errors.Is(err, engine.ErrDocumentChanged) {
			t.Errorf("saving %+v: %v, want ErrDocumentChanged", stale, err)
		}
	}
	if err := s.Documents().Save(t.Context(), engine.Document{Kind: "a", Name: "gone", Revision: 1, Value: []byte("new")}); !errors.Is(err, engine.ErrDocumentChanged) {
		t.Errorf("saving one that is gone: %v, want ErrDocumentChanged", err)
	}
	s.documentsAre("a", "x=2@2")
}

func documentsAtOnce(t *testing.T, s *store) {
	s.saveDocuments(engine.Document{Kind: "a", Name: "x", Value: []byte("0")}, engine.Document{Kind: "a", Name: "y", Value: []byte("0")})
	var saved atomic.Int32
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			documents := []engine.Document{{Kind: "a", Name: "x", Revision: 1, Value: []byte("1")}, {Kind: "a", Name: "y", Revision: 1, Value: []byte("1")}}
			if n%2 == 0 { // in another order
				documents[0], documents[1] = documents[1], documents[0]
			}
			switch err := s.Documents().Save(t.Context(), documents...); {
			case err == nil:
				saved.Add(1)
			case !errors.Is(err, engine.ErrDocumentChanged):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if saved.Load() != 1 {
		t.Errorf("%d of them were saved", saved.Load())
	}
	s.documentsAre("a", "x=1@2", "y=1@2")
}
