package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/refused"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

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
		in := &service.Instance{Path: "/api/hooks", Refused: refused.NewRecorder(), Log: zap.New(core)}
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/api/hooks/wake", strings.NewReader("12345"))
		q := &hookRequest{in: in, name: "wake"}
		q.refuse(w, r, c.err)
		all := in.Refused.List(t.Context(), func(*refused.Requests) bool { return true }, 10)
		want := refused.Kind{Hook: "wake", Status: c.status, Reason: c.reason}
		if w.Code != c.status || len(all) != 1 || all[0].Last.Kind != want || all[0].Last.Size != 5 {
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
		in := &service.Instance{Path: "/api/hooks", Refused: refused.NewRecorder(), Log: zap.NewNop()}
		refuse(&hookRequest{in: in, name: "agent"}, httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
		if all := in.Refused.List(t.Context(), func(*refused.Requests) bool { return true }, 10); len(all) != 0 {
			t.Errorf("%s: noted %+v", name, all)
		}
	}
}

func TestRequestsAreAnsweredBeforeTheStart(t *testing.T) {
	t.Parallel()
	in := &service.Instance{Path: "/api/hooks", Refused: refused.NewRecorder(), Meters: observe.NewMeters("default"), Log: zap.NewNop(), Started: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that the start is not waited for

	w := httptest.NewRecorder()
	if err := Serve(in, w, httptest.NewRequest("POST", "/api/hooks/github", nil).WithContext(ctx), nil); err != nil || w.Code != 503 {
		t.Errorf("got %d, %v", w.Code, err)
	}
	all := in.Refused.List(t.Context(), func(*refused.Requests) bool { return true }, 10)
	if len(all) != 1 || all[0].Last.Kind != (refused.Kind{Status: 503, Reason: "the service is starting"}) || all[0].Last.Asked != "(6 bytes)" {
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
	for name, recorder := range map[string]*refused.Recorder{"noted": refused.NewRecorder(), "not noted": nil} {
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
