package ingress

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
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// refusedOf is a request of a kind of its own for every hook.
func refusedOf(hook, client string) service.RefusedRequest {
	return service.RefusedRequest{RefusedKind: service.RefusedKind{Hook: hook, Status: 401, Reason: "no token was sent"}, Message: "No token was sent.", Client: client, Size: 7}
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
		r := service.NewRefusals()
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

		all := r.List(func(service.RefusedKind) bool { return true }, 10)
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
		r := service.NewRefusals()
		const kinds = 3 * service.MaxRefusedKinds
		r.Note(zap.New(core), refusedOf("kept", "1"))
		for i := range kinds {
			r.Note(zap.New(core), refusedOf(fmt.Sprint(i), "1"))
			r.Note(zap.New(core), refusedOf("kept", "1"))
		}
		if got := logs.Len(); got != service.MaxRefusedKinds {
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
		all := r.List(func(service.RefusedKind) bool { return true }, 2*kinds)
		if len(all) != service.MaxRefusedKinds || r.Recent.Len() != service.MaxRefusedKinds || len(r.Kinds) != service.MaxRefusedKinds {
			t.Fatalf("%d kinds are kept", len(all))
		}
		if all[0].Last.Hook != "kept" || all[0].Count != kinds+1 {
			t.Errorf("the kind that was seen last is %+v", all[0])
		}
		if oldest := all[service.MaxRefusedKinds-1].Last.Hook; oldest != fmt.Sprint(kinds-service.MaxRefusedKinds+1) {
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
	r := service.NewRefusals()
	for _, request := range []struct{ client, asked string }{
		{"1", "a"}, {"2", "b"}, {"1", "a"}, {"1", ""}, {"3", "c"}, {"2", "b"},
	} {
		r.Note(zap.New(core), service.RefusedRequest{Client: request.client, Asked: request.asked})
	}
	show := func() string {
		kind := r.List(func(service.RefusedKind) bool { return true }, 1)[0]
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
		r.Note(zap.New(core), service.RefusedRequest{Client: fmt.Sprint("c", i), Asked: fmt.Sprint("n", i)})
	}
	if got := show(); got != "c99:1 c98:1 c97:1 c96:1 c95:1 c94:1 c93:1 c92:1 n99 n98 n97 n96 n95 n94 n93 n92" {
		t.Errorf("got %s", got)
	}
}

func TestRefusalsAreCountedExactlyUnderConcurrency(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := service.NewRefusals()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for i := range 1000 {
				r.Note(zap.New(core), refusedOf(fmt.Sprint(i%10), "1"))
				if i%100 == 0 {
					r.Report()
					r.List(func(service.RefusedKind) bool { return true }, 10)
				}
			}
		})
	}
	callers.Wait()
	_ = r.Destruct()
	total := int64(0)
	for _, kind := range r.List(func(service.RefusedKind) bool { return true }, 100) {
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

// Errors that a test cannot easily cause in a real Caddy.
func TestErrorsOfTheServiceAreRefusalsWithTheirReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		reason string
	}{
		{service.ErrStarting, 503, "the service is starting"},
		{engine.ErrStopping, 503, "Caddy is shutting down"},
		{&engine.StoreBrokenError{}, 503, "the store is broken"},
		{errors.New("storing a run: no space left inside"), 503, "the store failed"},
		{&engine.RunnerUnreachableError{RetryAfter: time.Second}, 503, "the agent is unreachable"},
		{fmt.Errorf("asking: %w", engine.ErrNotFound), 404, "there is no such run"},
		{errCutBody, 400, "the body broke off before its end"},
	} {
		core, logs := observer.New(zap.WarnLevel)
		in := &service.Instance{Path: "/api/hooks", Refused: service.NewRefusals(), Log: zap.New(core)}
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/api/hooks/wake", strings.NewReader("12345"))
		q := &hookRequest{in: in, name: "wake"}
		q.refuse(w, r, c.err)
		all := in.Refused.List(func(service.RefusedKind) bool { return true }, 10)
		want := service.RefusedKind{Hook: "wake", Status: c.status, Reason: c.reason}
		if w.Code != c.status || len(all) != 1 || all[0].Last.RefusedKind != want || all[0].Last.Size != 5 {
			t.Errorf("%v: got %d and %+v", c.err, w.Code, all)
		}
		if n := logs.FilterMessage("request refused").FilterField(zap.String("reason", c.reason)).Len(); n != 1 {
			t.Errorf("%v: logged %v", c.err, logs.All())
		}
		if strings.Contains(w.Body.String(), "inside") {
			t.Errorf("%v: the caller is told %s", c.err, w.Body)
		}
		if c.reason == "the store failed" && (all[0].Last.Cause != c.err.Error() || logs.FilterLevelExact(zap.ErrorLevel).Len() != 1) {
			t.Errorf("%v: the cause is %q, logged %v", c.err, all[0].Last.Cause, logs.All())
		}
		_ = in.Refused.Destruct()
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
		in := &service.Instance{Path: "/api/hooks", Refused: service.NewRefusals(), Log: zap.NewNop()}
		refuse(&hookRequest{in: in, name: "agent"}, httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
		if all := in.Refused.List(func(service.RefusedKind) bool { return true }, 10); len(all) != 0 {
			t.Errorf("%s: noted %+v", name, all)
		}
	}
}

func TestRequestsAreAnsweredBeforeTheStart(t *testing.T) {
	t.Parallel()
	in := &service.Instance{Path: "/api/hooks", Refused: service.NewRefusals(), Meters: observe.NewMeters("default"), Log: zap.NewNop(), Started: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that the start is not waited for

	w := httptest.NewRecorder()
	if err := Serve(in, w, httptest.NewRequest("POST", "/api/hooks/github", nil).WithContext(ctx), nil); err != nil || w.Code != 503 {
		t.Errorf("got %d, %v", w.Code, err)
	}
	all := in.Refused.List(func(service.RefusedKind) bool { return true }, 10)
	if len(all) != 1 || all[0].Last.RefusedKind != (service.RefusedKind{Status: 503, Reason: "the service is starting"}) || all[0].Last.Asked != "(6 bytes)" {
		t.Errorf("noted %+v", all)
	}
	_ = in.Refused.Destruct()
}

func TestNamesAreShownWithoutTokens(t *testing.T) {
	t.Parallel()
	active := &settings.Active{Tokens: auth.NewTokens("s3cret", "two-words", "Zm9v/YmFy+Zg==", strings.Repeat("long", 16)), Hooks: map[string]*settings.Hook{"github": {}}}
	for name, want := range map[string]string{
		"":                                  "",
		"gihub":                             "gihub",
		"gi-hub.v2":                         "gi-hub.v2",
		"runs/0193-ab":                      "runs/0193-ab",
		"agent/":                            "agent/ (a slash at the end)",
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
	for name, recorder := range map[string]*service.Refusals{"noted": service.NewRefusals(), "not noted": nil} {
		b.Run(name, func(b *testing.B) {
			in := &service.Instance{Refused: recorder, Log: zap.NewNop()}
			in.Active.Store(&settings.Active{Bearer: settings.Authentication{Scheme: settings.BearerScheme, Verifier: auth.NewTokens("s3cret")}})
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
			r, log := service.NewRefusals(), zap.NewNop()
			requests := make([]service.RefusedRequest, hooks)
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
