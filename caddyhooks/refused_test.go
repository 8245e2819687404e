package caddyhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// refusedOf is a request of a kind of its own for every hook.
func refusedOf(hook, client string) refusedRequest {
	return refusedRequest{refusedKind: refusedKind{hook: hook, status: 401, reason: "no token was sent"}, message: "No token was sent.", client: client, size: 7}
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
		r := newRefusals()
		start := time.Now()

		r.note(log, refusedOf("a", "1"))
		wantLines(t, "the first", logs, "request refused a 1 <nil>")
		r.note(log, refusedOf("a", "2"))
		r.note(log, refusedOf("a", "3"))
		r.note(log, refusedOf("b", "4"))
		wantLines(t, "the first of another kind", logs, "request refused b 4 <nil>")
		time.Sleep(time.Minute)
		synctest.Wait()
		wantLines(t, "after a minute", logs, "requests refused a 3 2")
		time.Sleep(time.Hour)
		synctest.Wait()
		wantLines(t, "nothing more", logs)

		again := time.Now()
		r.note(log, refusedOf("b", "5"))
		time.Sleep(59 * time.Second)
		r.note(log, refusedOf("b", "6"))
		wantLines(t, "a second before the minute is over", logs)
		time.Sleep(time.Second)
		synctest.Wait()
		wantLines(t, "the minute after", logs, "requests refused b 6 2")

		r.note(log, refusedOf("a", "7"))
		if err := r.Destruct(); err != nil {
			t.Fatal(err)
		}
		wantLines(t, "at the end", logs, "requests refused a 7 1")
		r.note(log, refusedOf("a", "8"))
		if r.minute != nil {
			t.Error("a timer was started after the end")
		}

		all := r.list(func(refusedKind) bool { return true }, 10)
		if len(all) != 2 || all[0].last.hook != "a" || all[0].count != 5 || !all[0].firstAt.Equal(start) ||
			all[1].count != 3 || all[1].last.client != "6" || !all[1].lastAt.Equal(again.Add(59*time.Second)) {
			t.Errorf("got %+v", all)
		}
	})
}

func TestRefusalsAreBoundedInMemoryAndInTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		r := newRefusals()
		const kinds = 3 * maxRefusedKinds
		r.note(zap.New(core), refusedOf("kept", "1"))
		for i := range kinds {
			r.note(zap.New(core), refusedOf(fmt.Sprint(i), "1"))
			r.note(zap.New(core), refusedOf("kept", "1"))
		}
		if got := logs.Len(); got != maxRefusedKinds {
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
		all := r.list(func(refusedKind) bool { return true }, 2*kinds)
		if len(all) != maxRefusedKinds || r.recent.Len() != maxRefusedKinds || len(r.kinds) != maxRefusedKinds {
			t.Fatalf("%d kinds are kept", len(all))
		}
		if all[0].last.hook != "kept" || all[0].count != kinds+1 {
			t.Errorf("the kind that was seen last is %+v", all[0])
		}
		if oldest := all[maxRefusedKinds-1].last.hook; oldest != fmt.Sprint(kinds-maxRefusedKinds+1) {
			t.Errorf("the oldest kind is that of %s", oldest)
		}
		r.note(zap.New(core), refusedOf("another", "1"))
		wantLines(t, "a new minute", logs, "request refused another 1 <nil>")
		_ = r.Destruct()
	})
}

func TestTheLastClientsAndNamesOfAKindAreKept(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := newRefusals()
	for _, request := range []struct{ client, asked string }{
		{"1", "a"}, {"2", "b"}, {"1", "a"}, {"1", ""}, {"3", "c"}, {"2", "b"},
	} {
		r.note(zap.New(core), refusedRequest{client: request.client, asked: request.asked})
	}
	show := func() string {
		kind := r.list(func(refusedKind) bool { return true }, 1)[0]
		text := ""
		for _, c := range kind.clients {
			text += fmt.Sprintf("%s:%d ", c.address, c.count)
		}
		return text + strings.Join(kind.asked, " ")
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
		r.note(zap.New(core), refusedRequest{client: fmt.Sprint("c", i), asked: fmt.Sprint("n", i)})
	}
	if got := show(); got != "c99:1 c98:1 c97:1 c96:1 c95:1 c94:1 c93:1 c92:1 n99 n98 n97 n96 n95 n94 n93 n92" {
		t.Errorf("got %s", got)
	}
}

func TestRefusalsAreCountedExactlyUnderConcurrency(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := newRefusals()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for i := range 1000 {
				r.note(zap.New(core), refusedOf(fmt.Sprint(i%10), "1"))
				if i%100 == 0 {
					r.report()
					r.list(func(refusedKind) bool { return true }, 10)
				}
			}
		})
	}
	callers.Wait()
	_ = r.Destruct()
	total := int64(0)
	for _, kind := range r.list(func(refusedKind) bool { return true }, 100) {
		total += kind.count
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

// Errors that a test cannot easily cause in a real Caddy.
func TestErrorsOfTheServiceAreRefusalsWithTheirReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		reason string
	}{
		{errStarting, 503, "the service is starting"},
		{engine.ErrStopping, 503, "Caddy is shutting down"},
		{&engine.StoreBrokenError{}, 503, "the store is broken"},
		{errors.New("storing a run: no space left inside"), 503, "the store failed"},
		{&engine.AwayError{RetryAfter: time.Second}, 503, "the agent is away"},
		{fmt.Errorf("asking: %w", engine.ErrNotFound), 404, "there is no such run"},
		{errCutBody, 400, "the body broke off before its end"},
	} {
		core, logs := observer.New(zap.WarnLevel)
		in := &instance{path: "/api/hooks", refused: newRefusals(), log: zap.New(core)}
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/api/hooks/wake", strings.NewReader("12345"))
		q := &hookRequest{in: in, name: "wake"}
		q.refuse(w, r, c.err)
		all := in.refused.list(func(refusedKind) bool { return true }, 10)
		want := refusedKind{hook: "wake", status: c.status, reason: c.reason}
		if w.Code != c.status || len(all) != 1 || all[0].last.refusedKind != want || all[0].last.size != 5 {
			t.Errorf("%v: got %d and %+v", c.err, w.Code, all)
		}
		if n := logs.FilterMessage("request refused").FilterField(zap.String("reason", c.reason)).Len(); n != 1 {
			t.Errorf("%v: logged %v", c.err, logs.All())
		}
		if strings.Contains(w.Body.String(), "inside") {
			t.Errorf("%v: the caller is told %s", c.err, w.Body)
		}
		if c.reason == "the store failed" && (all[0].last.cause != c.err.Error() || logs.FilterLevelExact(zap.ErrorLevel).Len() != 1) {
			t.Errorf("%v: the cause is %q, logged %v", c.err, all[0].last.cause, logs.All())
		}
		_ = in.refused.Destruct()
	}
}

func TestARequestThatBecameARunIsNoRefusal(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(q *hookRequest, w http.ResponseWriter, r *http.Request){
		"the store fails afterwards": func(q *hookRequest, w http.ResponseWriter, r *http.Request) {
			q.stored = true
			q.refuse(w, r, errors.New("reading a run"))
		},
		"the run failed": func(q *hookRequest, w http.ResponseWriter, r *http.Request) {
			q.refuse(w, r, writeOutcome(w, new(engine.Run), engine.Outcome{Status: engine.Failed, Message: "It failed."}))
		},
		"the caller is gone": func(q *hookRequest, w http.ResponseWriter, r *http.Request) { q.refuse(w, r, context.Canceled) },
	} {
		in := &instance{path: "/api/hooks", refused: newRefusals(), log: zap.NewNop()}
		refuse(&hookRequest{in: in, name: "agent"}, httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
		if all := in.refused.list(func(refusedKind) bool { return true }, 10); len(all) != 0 {
			t.Errorf("%s: noted %+v", name, all)
		}
	}
}

func TestRequestsAreAnsweredBeforeTheStart(t *testing.T) {
	t.Parallel()
	in := &instance{path: "/api/hooks", refused: newRefusals(), meters: observe.NewMeters("default"), log: zap.NewNop(), started: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that the start is not waited for
	h := &Handler{instance: in}
	w := httptest.NewRecorder()
	if err := h.ServeHTTP(w, httptest.NewRequest("POST", "/api/hooks/github", nil).WithContext(ctx), nil); err != nil || w.Code != 503 {
		t.Errorf("got %d, %v", w.Code, err)
	}
	all := in.refused.list(func(refusedKind) bool { return true }, 10)
	if len(all) != 1 || all[0].last.refusedKind != (refusedKind{status: 503, reason: "the service is starting"}) || all[0].last.asked != "(6 bytes)" {
		t.Errorf("noted %+v", all)
	}
	_ = in.refused.Destruct()
}

func TestNamesAreShownWithoutTokens(t *testing.T) {
	t.Parallel()
	active := &settings.Active{Tokens: auth.NewTokens("s3cret", "two-words", "Zm9v/YmFy+Zg==", strings.Repeat("long", 16)), Hooks: map[string]*settings.Hook{"github": {}}}
	for name, want := range map[string]string{
		"":                                  "",
		"gihub":                             "gihub",
		"gi-hub.v2":                         "gi-hub.v2",
		"runs/0193-ab":                      "runs/0193-ab",
		"agent/":                            "agent/(0 bytes)",
		"github/push":                       "github/(4 bytes)",
		"no/path":                           "(7 bytes)",
		"a b":                               "(3 bytes)",
		"s3cret":                            "(a token)",
		"agent-s3cret":                      "(a token)",
		"s3cret.json":                       "(a token)",
		"my-two-words-2":                    "(a token)",
		strings.Repeat("long", 16):          "(a token)",
		"wake/s3cret":                       "wake/(6 bytes)",
		"runs/s3cret":                       "runs/(a token)",
		"Zm9v/YmFy+Zg==":                    "(14 bytes)",
		"agent/Zm9v/YmFy+Zg==":              "agent/(14 bytes)",
		"token=s3cret":                      "(12 bytes)",
		"agent:s3cret":                      "(12 bytes)",
		strings.Repeat("x", 64):             strings.Repeat("x", 64),
		strings.Repeat("x", 65):             "(65 bytes)",
		strings.Repeat("x-", 10) + "s3cret": "(26 bytes)",
		"a\xff":                             "(2 bytes)",
	} {
		if got := showName(active, name); got != want {
			t.Errorf("%.100q is shown as %q, want %q", name, got, want)
		}
	}
}

func FuzzShownNames(f *testing.F) {
	const token = "s3cret-token"
	active := &settings.Active{Tokens: auth.NewTokens(token)}
	for _, name := range []string{"gihub", token, "wake/" + token, "/" + token + "/", "a\xff", strings.Repeat("é", 40), strings.Repeat("/", 300)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := showName(active, name)
		if !utf8.ValidString(got) || len(got) > 80 {
			t.Errorf("%q is shown as %q", name, got)
		}
		for part := range strings.SplitSeq(name, "/") {
			if part == token && strings.Contains(got, token) {
				t.Errorf("%q is shown as %q", name, got)
			}
		}
	})
}

// BenchmarkRefuse shows what noting adds to the answer to a request for an unknown hook.
func BenchmarkRefuse(b *testing.B) {
	for name, recorder := range map[string]*refusals{"noted": newRefusals(), "not noted": nil} {
		b.Run(name, func(b *testing.B) {
			in := &instance{refused: recorder, log: zap.NewNop()}
			in.active.Store(&settings.Active{Bearer: settings.Authentication{Scheme: settings.BearerScheme, Verifier: auth.NewTokens("s3cret")}})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r, w := httptest.NewRequest("POST", "/api/hooks/unknown", nil), httptest.NewRecorder()
				for pb.Next() {
					w.Body.Reset()
					(&hookRequest{in: in, name: "unknown"}).refuse(w, r, errUnknownHook)
				}
			})
		})
	}
}

func BenchmarkNoteRefusal(b *testing.B) {
	for name, hooks := range map[string]int{"one kind": 1, "500 kinds": 500, "1000 kinds": 1000} {
		b.Run(name, func(b *testing.B) {
			r, log := newRefusals(), zap.NewNop()
			requests := make([]refusedRequest, hooks)
			for i := range requests {
				requests[i] = refusedOf(fmt.Sprint(i), "127.0.0.1")
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					r.note(log, requests[i%hooks])
				}
			})
			_ = r.Destruct()
		})
	}
}
