package refused

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

// countedDocuments counts calls, and fails if it is told to.
type countedDocuments struct {
	engine.Documents
	loads, saves atomic.Int32
	fails        atomic.Pointer[error]
}

func (d *countedDocuments) Load(ctx context.Context, kind string) ([]engine.Document, error) {
	d.loads.Add(1)
	if err := d.fails.Load(); err != nil {
		return nil, *err
	}
	return d.Documents.Load(ctx, kind)
}

func (d *countedDocuments) Save(ctx context.Context, documents ...engine.Document) error {
	d.saves.Add(1)
	if err := d.fails.Load(); err != nil {
		return *err
	}
	return d.Documents.Save(ctx, documents...)
}

func newDocuments() *countedDocuments {
	return &countedDocuments{Documents: memory.New().Store().Documents()}
}

// nodeOn is the recorder of another node.
func nodeOn(documents engine.Documents, log *zap.Logger) (r *Recorder, leave func()) {
	r = NewRecorder()
	r.LogTo(log)
	unuse := r.Use(&Store{Documents: documents, Retention: 7 * 24 * time.Hour, Log: log})
	return r, func() {
		unuse()
		_ = r.Destruct()
	}
}

// counted are hooks with the counts of their kinds, the last seen first.
func counted(r *Recorder) string {
	var all []string
	for _, kind := range r.List(context.Background(), func(*Requests) bool { return true }, MaxKinds) {
		all = append(all, fmt.Sprintf("%s:%d", kind.Last.Hook, kind.Count))
	}
	return strings.Join(all, " ")
}

func wantCounted(t *testing.T, when string, r *Recorder, want string) {
	t.Helper()
	if got := counted(r); got != want {
		t.Errorf("%s: counted %q, want %q", when, got, want)
	}
}

func TestCountsOutliveTheProcessAndAreThoseOfAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, documents := zap.NewNop(), newDocuments()
		first, stopFirst := nodeOn(documents, log)
		second, stopSecond := nodeOn(documents, log)
		for range 3 {
			first.Note(log, refusedOf("a", "1"))
		}
		wantCounted(t, "before it is saved", first, "a:3")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantCounted(t, "on the other node", second, "a:3")
		second.Note(log, refusedOf("a", "2"))
		time.Sleep(time.Millisecond)
		second.Note(log, refusedOf("b", "2"))
		first.Note(log, refusedOf("a", "1"))
		wantCounted(t, "with what is not saved", second, "b:1 a:4")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		time.Sleep(2 * time.Second) // until the lists are read anew
		for _, r := range []*Recorder{first, second} {
			if got := counted(r); got != "b:1 a:5" && got != "a:5 b:1" {
				t.Errorf("counted %q", got)
			}
		}
		kind := second.List(context.Background(), func(k *Requests) bool { return k.Last.Hook == "a" }, 1)[0]
		if len(kind.Clients) != 2 || kind.Clients[0].Count+kind.Clients[1].Count != 5 || kind.Lately.At(time.Now()) != 5 {
			t.Errorf("got %+v", kind)
		}
		first.Note(log, refusedOf("c", "1"))
		stopFirst() // which saves the rest
		stopSecond()
		third, stopThird := nodeOn(documents, log)
		if got := counted(third); !strings.HasPrefix(got, "c:1 ") || len(strings.Fields(got)) != 3 {
			t.Errorf("after the restart %q", got)
		}
		stopThird()
	})
}

func TestNothingIsWrittenWhenNothingIsNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, documents := zap.NewNop(), newDocuments()
		r, stop := nodeOn(documents, log)
		r.Note(log, refusedOf("a", "1"))
		time.Sleep(time.Minute)
		synctest.Wait()
		loads, saves := documents.loads.Load(), documents.saves.Load()
		if saves != 1 {
			t.Errorf("one request was saved %d times", saves)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if documents.loads.Load() != loads || documents.saves.Load() != saves {
			t.Errorf("%d loads and %d saves for nothing", documents.loads.Load()-loads, documents.saves.Load()-saves)
		}
		for range 1000 {
			r.Note(log, refusedOf("a", "1"))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := documents.saves.Load() - saves; got != 1 {
			t.Errorf("1000 requests at once are saved %d times", got)
		}
		stop()
	})
}

func TestAStoreThatFailsLosesNoCounts(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"unreachable": engine.ErrUnreachable, "full": errors.New("no space left on device")} {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			log, documents := zap.NewNop(), newDocuments()
			r, stop := nodeOn(documents, zap.New(core))
			r.Note(log, refusedOf("a", "1"))
			time.Sleep(5 * time.Second)
			documents.fails.Store(&failure)
			for range 100 {
				r.Note(log, refusedOf("a", "1"))
				time.Sleep(time.Second)
			}
			synctest.Wait()
			wantCounted(t, name, r, "a:101")
			const line = "counts of refused requests could not be stored; trying again"
			if lines := logs.FilterMessage(line).Len(); lines != map[string]int{"full": 1}[name] {
				t.Errorf("%s: %d lines tell of it", name, lines)
			}
			documents.fails.Store(nil)
			time.Sleep(time.Minute)
			synctest.Wait()
			stop()
			after, stopAfter := nodeOn(documents, log)
			wantCounted(t, name+", after a restart", after, "a:101")
			stopAfter()
		})
	}
}

func TestManyNodesCountExactly(t *testing.T) {
	t.Parallel()
	log, documents := zap.NewNop(), newDocuments()
	var nodes sync.WaitGroup
	const each = 200
	for range 4 {
		nodes.Go(func() {
			r, stop := nodeOn(documents, log)
			for i := range each {
				r.Note(log, refusedOf(fmt.Sprint(i%3), "1"))
				if i%20 == 0 {
					for r.saver.save() != nil { // others change the documents all the time
						continue
					}
				}
			}
			for r.saver.save() != nil {
				continue
			}
			stop()
		})
	}
	nodes.Wait()
	r, stop := nodeOn(documents, log)
	total := int64(0)
	for _, kind := range r.List(t.Context(), func(*Requests) bool { return true }, 10) {
		total += kind.Count
	}
	if total != 4*each {
		t.Errorf("%d of %d are counted", total, 4*each)
	}
	stop()
}

func TestKindsInTheStoreAreBoundedAndForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, documents := zap.NewNop(), newDocuments()
		first, stopFirst := nodeOn(documents, log)
		second, stopSecond := nodeOn(documents, log)
		for i := range MaxKinds {
			first.Note(log, refusedOf(fmt.Sprint("first", i), "1"))
		}
		time.Sleep(5 * time.Second)
		for i := range 100 {
			second.Note(log, refusedOf(fmt.Sprint("second", i), "1"))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		all, _ := documents.Load(t.Context(), kindDocuments)
		if len(all) != MaxKinds {
			t.Errorf("%d kinds are stored", len(all))
		}
		if got := counted(first); strings.Count(got, "second") != 100 || strings.Count(got, "first") != MaxKinds-100 {
			t.Errorf("listed are %d of the second node", strings.Count(got, "second"))
		}
		time.Sleep(7*24*time.Hour - 5*time.Minute)
		second.Note(log, refusedOf("late", "1"))
		time.Sleep(time.Hour)
		synctest.Wait()
		wantCounted(t, "after a week", second, "late:1")
		if all, _ := documents.Load(t.Context(), kindDocuments); len(all) != 1 {
			t.Errorf("%d kinds are stored after a week", len(all))
		}
		stopFirst()
		stopSecond()
	})
}

func TestDocumentsOfOthersAreReplaced(t *testing.T) {
	t.Parallel()
	log, documents := zap.NewNop(), newDocuments()
	kind := refusedOf("a", "1").Kind
	for _, value := range []string{"", "{}", "null", `{"count":"x"}`, `{"count":-1}`} {
		_ = documents.Save(t.Context(), engine.Document{Kind: kindDocuments, Name: kind.name(), Value: []byte(value)},
			engine.Document{Kind: requestDocuments, Name: "x" + value, Value: []byte(value)})
	}
	r, stop := nodeOn(documents, log)
	r.Keep(time.Hour)
	wantCounted(t, "at first", r, "")
	r.Note(log, refusedOf("a", "1"))
	r.KeepRequest(Kept{Request: refusedOf("a", "1")})
	if err := r.saver.save(); err != nil {
		t.Fatal(err)
	}
	wantCounted(t, "after a request", r, "a:1")
	all, _ := documents.Load(t.Context(), "")
	if len(all) != 2 {
		t.Errorf("stored are %+v", all)
	}
	stop()
}

func TestChangesAreNumberedForStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, documents := zap.NewNop(), newDocuments()
		first, stopFirst := nodeOn(documents, log)
		second, stopSecond := nodeOn(documents, log)
		second.Hear(t.Context())
		at := second.Number()
		changed := func() string {
			names, others, number := second.Changed(at, 2)
			at = number
			var hooks []string
			for _, kind := range second.Named(t.Context(), names) {
				hooks = append(hooks, fmt.Sprintf("%s:%d", kind.Last.Hook, kind.Count))
			}
			return fmt.Sprint(strings.Join(hooks, " "), " +", others)
		}
		first.Note(log, refusedOf("a", "1"))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		second.Hear(t.Context())
		if got := changed(); got != "a:1 +0" {
			t.Errorf("of another node: %s", got)
		}
		second.Note(log, refusedOf("b", "1"))
		if got := changed(); got != "b:1 +0" {
			t.Errorf("of this node: %s", got)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		second.Hear(t.Context())
		if got := changed(); got != " +0" {
			t.Errorf("after saving: %s", got)
		}
		for _, hook := range []string{"c", "d", "e"} {
			second.Note(log, refusedOf(hook, "1"))
		}
		if got := changed(); !strings.HasSuffix(got, " +1") {
			t.Errorf("of many: %s", got)
		}
		stopFirst()
		stopSecond()
	})
}
