package refused

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// refusedOf is a request of a kind of its own for every hook.
func refusedOf(hook, client string) Request {
	return Request{Kind: Kind{Hook: hook, Status: 401, Reason: "no token was sent"}, Message: "No token was sent.", Client: client, Size: 7}
}

// linesOf are lines of a log, without their fixed parts.
func linesOf(logs *observer.ObservedLogs) (lines []string) {
	for _, entry := range logs.TakeAll() {
		fields := entry.ContextMap()
		lines = append(lines, fmt.Sprint(entry.Message, " ", fields["hook"], " ", fields["client"], " ", fields["count"]))
	}
	return lines
}

func wantLines(t *testing.T, when string, logs *observer.ObservedLogs, want ...string) {
	t.Helper()
	if got := linesOf(logs); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s: logged %q, want %q", when, got, want)
	}
}

func TestFirstOfAKindIsLoggedAtOnceAndThenACountEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		log := zap.New(core)
		r := NewRecorder()
		start := time.Now()

		r.Note(log, refusedOf("a", "1"))
		wantLines(t, "the first", logs, "request refused a 1 <nil>")
		r.Note(log, refusedOf("a", "2"))
		r.Note(log, refusedOf("a", "3"))
		r.Note(log, refusedOf("b", "4"))
		wantLines(t, "the first of another kind", logs, "request refused b 4 <nil>")
		time.Sleep(time.Minute)
		synctest.Wait()
		wantLines(t, "after a minute", logs, "requests refused a 3 2")
		time.Sleep(time.Hour)
		synctest.Wait()
		wantLines(t, "nothing more", logs)

		again := time.Now()
		r.Note(log, refusedOf("b", "5"))
		time.Sleep(59 * time.Second)
		r.Note(log, refusedOf("b", "6"))
		wantLines(t, "a second before the minute is over", logs)
		time.Sleep(time.Second)
		synctest.Wait()
		wantLines(t, "the minute after", logs, "requests refused b 6 2")

		r.Note(log, refusedOf("a", "7"))
		if err := r.Destruct(); err != nil {
			t.Fatal(err)
		}
		wantLines(t, "at the end", logs, "requests refused a 7 1")
		r.Note(log, refusedOf("a", "8"))
		if r.Minute != nil {
			t.Error("a timer was started after the end")
		}

		all := r.List(context.Background(), func(*Requests) bool { return true }, 10)
		if len(all) != 2 || all[0].Last.Hook != "a" || all[0].Count != 5 || !all[0].FirstAt.Equal(start) ||
			all[1].Count != 3 || all[1].Last.Client != "6" || !all[1].LastAt.Equal(again.Add(59*time.Second)) {
			t.Errorf("got %+v", all)
		}
	})
}

func TestRefusalsAreBoundedInMemoryAndInTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		r := NewRecorder()
		const kinds = 3 * MaxKinds
		r.Note(zap.New(core), refusedOf("kept", "1"))
		for i := range kinds {
			r.Note(zap.New(core), refusedOf(fmt.Sprint(i), "1"))
			time.Sleep(time.Microsecond)
			r.Note(zap.New(core), refusedOf("kept", "1"))
		}
		if got := logs.Len(); got != MaxKinds {
			t.Errorf("%d lines were written at once", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		counted := int64(0)
		for _, entry := range logs.TakeAll() {
			if n, ok := entry.ContextMap()["count"].(int64); ok {
				counted += n
			} else {
				counted++
			}
		}
		if counted != 2*kinds+1 {
			t.Errorf("the log counts %d requests, and there were %d", counted, 2*kinds+1)
		}
		all := r.List(context.Background(), func(*Requests) bool { return true }, 2*kinds)
		if len(all) != MaxKinds || r.Recent.Len() != MaxKinds || len(r.Kinds) != MaxKinds {
			t.Fatalf("%d kinds are kept", len(all))
		}
		if all[0].Last.Hook != "kept" || all[0].Count != kinds+1 {
			t.Errorf("the kind that was seen last is %+v", all[0])
		}
		if oldest := all[MaxKinds-1].Last.Hook; oldest != fmt.Sprint(kinds-MaxKinds+1) {
			t.Errorf("the oldest kind is that of %s", oldest)
		}
		r.Note(zap.New(core), refusedOf("another", "1"))
		wantLines(t, "a new minute", logs, "request refused another 1 <nil>")
		_ = r.Destruct()
	})
}

func TestTheLastClientsAndNamesOfAKindAreKept(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := NewRecorder()
	for _, request := range []struct{ client, asked string }{
		{"1", "a"}, {"2", "b"}, {"1", "a"}, {"1", ""}, {"3", "c"}, {"2", "b"},
	} {
		r.Note(zap.New(core), Request{Client: request.client, Asked: request.asked})
	}
	show := func() string {
		kind := r.List(context.Background(), func(*Requests) bool { return true }, 1)[0]
		text := ""
		for _, c := range kind.Clients {
			text += fmt.Sprintf("%s:%d ", c.Address, c.Count)
		}
		return text + strings.Join(kind.Asked, " ")
	}
	if got := show(); got != "2:2 3:1 1:3 b c a" {
		t.Errorf("got %s", got)
	}
	_ = r.Destruct()
	line := logs.FilterMessage("requests refused").All()[0].ContextMap()
	if fmt.Sprintf("%v %v %v", line["clients"], line["asked"], line["client"]) != "[2 3 1] [b c a] 2" {
		t.Errorf("logged %v", line)
	}
	for i := range 100 {
		r.Note(zap.New(core), Request{Client: fmt.Sprint("c", i), Asked: fmt.Sprint("n", i)})
	}
	if got := show(); got != "c99:1 c98:1 c97:1 c96:1 c95:1 c94:1 c93:1 c92:1 n99 n98 n97 n96 n95 n94 n93 n92" {
		t.Errorf("got %s", got)
	}
}

func TestRefusalsAreCountedExactlyUnderConcurrency(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := NewRecorder()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for i := range 1000 {
				r.Note(zap.New(core), refusedOf(fmt.Sprint(i%10), "1"))
				if i%100 == 0 {
					r.Report()
					r.List(context.Background(), func(*Requests) bool { return true }, 10)
				}
			}
		})
	}
	callers.Wait()
	_ = r.Destruct()
	total := int64(0)
	for _, kind := range r.List(context.Background(), func(*Requests) bool { return true }, 100) {
		total += kind.Count
	}
	logged := int64(0)
	for _, entry := range logs.All() {
		if n, ok := entry.ContextMap()["count"].(int64); ok {
			logged += n
		} else {
			logged++
		}
	}
	if total != 8000 || logged != 8000 {
		t.Errorf("%d are counted, and %d are in the log", total, logged)
	}
}

func BenchmarkNoteRefusal(b *testing.B) {
	for name, hooks := range map[string]int{"one kind": 1, "500 kinds": 500, "1000 kinds": 1000} {
		b.Run(name, func(b *testing.B) {
			r, log := NewRecorder(), zap.NewNop()
			requests := make([]Request, hooks)
			for i := range requests {
				requests[i] = refusedOf(fmt.Sprint(i), "127.0.0.1")
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					r.Note(log, requests[i%hooks])
				}
			})
			_ = r.Destruct()
		})
	}
}
