package caddyhooks_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// following is a command that goes on until it is told to stop.
type following struct {
	t         *testing.T
	out, errs hookstest.ProcessLog
	stop      context.CancelFunc
	ended     chan error
}

func follow(t *testing.T, args ...string) *following {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := &following{t: t, stop: stop, ended: make(chan error, 1)}
	go func() {
		f.ended <- caddyhooks.RunCommandUntil(ctx, strings.NewReader(""), &f.out, &f.errs, args...)
	}()
	t.Cleanup(stop)
	return f
}

// want waits until the command has printed a text so often.
func (f *following) want(times int, text string) {
	f.t.Helper()
	hookstest.Eventually(f.t, "the command prints "+text, func() bool {
		select {
		case err := <-f.ended:
			f.t.Fatalf("the command ended: %v\n%s", err, f.errs.All())
		default:
		}
		return strings.Count(f.out.All(), text) >= times
	})
}

// wantNote waits until the command has said something beside its answer.
func (f *following) wantNote(text string) {
	f.t.Helper()
	hookstest.Eventually(f.t, "the command says "+text, func() bool { return strings.Contains(f.errs.All(), text) })
}

// end is Ctrl-C.
func (f *following) end() {
	f.t.Helper()
	f.stop()
	if err := hookstest.ReceiveWithin(f.t, "the command ends", f.ended); err != nil {
		f.t.Errorf("the command ended with %v", err)
	}
}

// streams waits until so many event streams are open.
func streams(s *hookstest.Server, n int) {
	s.T.Helper()
	hookstest.Eventually(s.T, "the streams are open", func() bool { return hookstest.GoroutinesIn(s, "admin.sendEvents(") == n })
}

func TestTailGoesOnOverReloadsAndRestarts(t *testing.T) {
	caddyhooks.Shorten(t, caddyhooks.LastReconnect, 510*time.Millisecond)
	rn := hookstest.StartRunner(t, hookstest.ReplyText("hello"))
	config := hookstest.Hooks(rn, "hook other {\naction agent\n}")
	s := hookstest.StartSite(t, config)
	address := strings.TrimPrefix(s.Admin, "http://")
	all := follow(t, "tail", "--address", address)
	other := follow(t, "tail", "--address", address, "--hook", "other", "--json")
	streams(s, 2)

	s.Ended(s.Accept(`{"message":"number one"}`))
	all.want(1, "number one")
	s.PatchSettings(`{"defaultTimeoutSeconds": 60}`)
	all.want(1, "changed by admin; caddy hooks changes shows how")

	s.Reload(hookstest.Hooks(rn, "hook other {\naction agent\n}\nworkers 3"))
	all.wantNote("Caddy reloads its configuration.\nConnected again.\n")
	streams(s, 2)
	s.Ended(s.Accept(`{"message":"number two"}`))
	all.want(1, "number two")

	s.Stop()
	all.wantNote("Waiting until Caddy is back")
	s.Load(config)
	s.Settle()
	s.Ended(s.Accept(`{"message":"number three"}`)) // accepted before the command is back, perhaps
	all.want(1, "number three")
	s.Post("/api/hooks/other", `{"door":"front"}`)
	other.want(1, `"status":"completed"`)
	all.end()
	other.end()

	lines := strings.Split(strings.TrimSpace(other.out.All()), "\n")
	for _, line := range lines {
		var event struct {
			Run struct {
				Hook   string `json:"hook"`
				Status string `json:"status"`
			} `json:"run"`
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil || event.Run.Hook != "other" {
			t.Errorf("a line of --json is %s: %v", line, err)
		}
	}
	for number, line := range strings.Split(strings.TrimSpace(all.out.All()), "\n") {
		if strings.Count(line, "completed") > 0 && strings.Count(all.out.All(), line) != 1 {
			t.Errorf("line %d is there twice:\n%s", number, all.out.All())
		}
	}
}

func TestRunsAreFollowed(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1"))
	address := strings.TrimPrefix(s.Admin, "http://")
	s.Ended(s.Accept(`{"message":"older"}`))
	s.Ended(s.Accept(`{"message":"old"}`))
	everything := follow(t, "runs", "--follow", "--address", address)
	failures := follow(t, "runs", "--follow", "--status", "failed", "--json", "--address", address)
	everything.want(2, "completed")
	streams(s, 2)
	held := s.Accept(`{"message":"hold on"}`)
	everything.want(1, "running")
	close(release)
	s.Ended(held)
	everything.want(3, "completed")
	failed := s.Accept(`{"message":"fail"}`)
	failures.want(1, failed)
	everything.want(1, "the runner answered 500: fail")
	everything.end()
	failures.end()

	out := everything.out.All()
	if older, old := strings.Index(out, "older"), strings.LastIndex(out, " old\n"); older < 0 || older > old {
		t.Errorf("the oldest is not the first:\n%s", out)
	}
	var run struct{ Status, RunID string }
	if err := json.Unmarshal([]byte(failures.out.All()), &run); err != nil || run.Status != "failed" || run.RunID != failed {
		t.Errorf("%v, got %s", err, failures.out.All())
	}
	if _, errs, err := command(t, "runs", "--follow", "--search", "x", "--address", address); err == nil || !strings.Contains(errs, "--follow does not go with --until and --search") {
		t.Errorf("got %v %s", err, errs)
	}
}
