package lastuse_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/lastuse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// watched counts what is saved, and fails if it is told to.
type watched struct {
	engine.Documents
	saves int
	fails error
}

func (w *watched) Save(ctx context.Context, documents ...engine.Document) error {
	if w.fails != nil {
		return w.fails
	}
	w.saves++
	return w.Documents.Save(ctx, documents...)
}

func inForce(all ...*lastuse.Secret) map[*lastuse.Secret]bool {
	set := make(map[*lastuse.Secret]bool)
	for _, s := range all {
		set[s] = true
	}
	return set
}

func TestLastUseIsKnownToAllNodesAndAfterARestart(t *testing.T) {
	t.Parallel()
	store := &watched{Documents: memory.New().Store().Documents()}
	var first, second lastuse.Book
	texts := []string{"the old token", "the new token"}
	one, two := first.FindAll(lastuse.OfAll, texts), second.FindAll(lastuse.OfAll, texts)
	ofHook := first.FindAll(lastuse.OfHook("github"), texts[:1])
	at := time.Now().UTC().Truncate(time.Second).Add(time.Hour)
	one[0].Note(at)
	two[1].Note(at.Add(time.Minute))
	for _, save := range []func() error{
		func() error { return first.Save(t.Context(), store, inForce(append(one, ofHook...)...)) },
		func() error { return second.Save(t.Context(), store, inForce(two...)) },
	} {
		if err := save(); err != nil {
			t.Fatal(err)
		}
	}
	var later lastuse.Book
	again := append(later.FindAll(lastuse.OfAll, texts), later.FindAll(lastuse.OfHook("github"), texts[:1])...)
	uses, err := later.Uses(t.Context(), store, again)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Time{at, at.Add(time.Minute), {}} {
		if !uses[i].Used.Equal(want) || uses[i].Since.IsZero() || len(uses[i].ID) != 8 {
			t.Errorf("%d: got %+v, want a use at %v", i, uses[i], want)
		}
	}
	if uses[0].ID == uses[1].ID || uses[0].ID == uses[2].ID {
		t.Errorf("ids do not tell secrets apart: %+v", uses)
	}
	before := store.saves
	if err := first.Save(t.Context(), store, inForce(one...)); err != nil || store.saves != before {
		t.Errorf("saved %d times without a use, %v", store.saves-before, err)
	}
	all, err := store.Load(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if strings.Contains(string(d.Value), "token\"") || strings.Contains(string(d.Value), "the old") {
			t.Errorf("%s has %s", d.Name, d.Value)
		}
	}
}

func TestAUseThatCouldNotBeSavedIsSavedLater(t *testing.T) {
	t.Parallel()
	store := &watched{Documents: memory.New().Store().Documents(), fails: errors.New("the disk is full")}
	var book lastuse.Book
	token := book.FindAll(lastuse.OfAll, []string{"a"})
	token[0].Note(time.Unix(1_800_000_000, 0))
	if err := book.Save(t.Context(), store, inForce(token...)); err == nil {
		t.Error("a failure is not told")
	}
	store.fails = nil
	if err := book.Save(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	var other lastuse.Book
	uses, err := other.Uses(t.Context(), store, other.FindAll(lastuse.OfAll, []string{"a"}))
	if err != nil || uses[0].Used.Unix() != 1_800_000_000 {
		t.Errorf("got %+v, %v", uses, err)
	}
}

func TestNodesThatSaveAtOnceLoseNothing(t *testing.T) {
	t.Parallel()
	documents := memory.New().Store().Documents()
	var texts []string
	for i := range 4 {
		texts = append(texts, fmt.Sprint("secret ", i))
	}
	var all sync.WaitGroup
	for i := range texts {
		all.Go(func() {
			var book lastuse.Book
			secrets := book.FindAll(lastuse.OfAll, texts)
			secrets[i].Note(time.Now().Add(time.Hour))
			for book.Save(t.Context(), documents, inForce(secrets...)) != nil && t.Context().Err() == nil {
				continue
			}
		})
	}
	all.Wait()
	var book lastuse.Book
	uses, err := book.Uses(t.Context(), documents, book.FindAll(lastuse.OfAll, texts))
	for i, use := range uses {
		if err != nil || use.Used.IsZero() {
			t.Errorf("the use of %d is lost: %+v, %v", i, use, err)
		}
	}
}

func TestSecretsThatAreGoneAreForgotten(t *testing.T) {
	t.Parallel()
	documents := memory.New().Store().Documents()
	var book lastuse.Book
	for i := range 100 {
		secrets := book.FindAll(lastuse.OfHook("a"), []string{fmt.Sprint(i)})
		secrets[0].Note(time.Unix(int64(1_900_000_000+i), 0))
		if err := book.Save(t.Context(), documents, inForce(secrets...)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := documents.Load(t.Context(), "secret-use")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.Name == "hook/a" && strings.Count(string(d.Value), `"used"`) != 32 {
			t.Errorf("%d secrets are remembered", strings.Count(string(d.Value), `"used"`))
		}
	}
	uses, err := book.Uses(t.Context(), documents, book.FindAll(lastuse.OfHook("a"), []string{"99"}))
	if err != nil || uses[0].Used.Unix() != 1_900_000_099 {
		t.Errorf("the last one: %+v, %v", uses, err)
	}
}

func TestADamagedDocumentIsBegunAnew(t *testing.T) {
	t.Parallel()
	documents := memory.New().Store().Documents()
	if err := documents.Save(t.Context(), engine.Document{Kind: "secret-use", Name: lastuse.OfAll, Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	var book lastuse.Book
	token := book.FindAll(lastuse.OfAll, []string{"a"})
	token[0].Note(time.Now())
	if err := book.Save(t.Context(), documents, inForce(token...)); err != nil {
		t.Fatal(err)
	}
}
