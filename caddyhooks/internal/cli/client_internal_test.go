package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

// clientOf is a client of a server that stands where Caddy should be.
func clientOf(t *testing.T, answer http.HandlerFunc) *client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	cmd := new(cobra.Command)
	cmd.Flags().String("address", server.URL, "")
	client, err := newClient(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestAnswersWithoutAnEnd(t *testing.T) {
	t.Parallel()
	client := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	})
	if client.MaxAnswer != adminclient.MaxAnswer {
		t.Errorf("an answer may have %d bytes", client.MaxAnswer)
	}
	client.MaxAnswer = 1 << 20
	s := &session{ctx: context.Background(), client: client, instance: "default"}
	for name, ask := range map[string]func() error{
		"call":      func() error { _, err := s.get("runs", nil, nil); return err },
		"long call": func() error { _, err := s.call(adminclient.Call{Path: "runs/again", IsLong: true}, nil); return err },
		"with ETag": func() error { _, err := s.call(adminclient.Call{Path: "settings", ETag: new(string)}, nil); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "is longer than 1 MB: ask for less") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestFollowingWhatTellsNoEvents(t *testing.T) {
	t.Parallel()
	client := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`["default"]`)) })
	s := &session{ctx: context.Background(), client: client, instance: "default"}
	if err := s.follow([]api.Topic{api.TopicRuns}, func(streamEvent) error { return nil }); err == nil || !strings.Contains(err.Error(), "has no hooks") {
		t.Errorf("got %v", err)
	}
}

func TestDownloadsThatNeverBegin(t *testing.T) {
	t.Parallel()
	client := clientOf(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	client.Silence = time.Millisecond
	s := &session{ctx: t.Context(), client: client, instance: "default", screen: printer{terminal.New(nil, io.Discard, io.Discard)}}
	if err := s.downloadBackup(s.ctx, io.Discard, func(int64) {}); !errors.Is(err, adminclient.ErrSilent) {
		t.Errorf("a backup: %v", err)
	}
	if _, err := s.export(adminclient.Call{}, "csv", io.Discard); err == nil || !strings.Contains(err.Error(),
		"the admin endpoint stopped responding") {
		t.Errorf("an export: %v", err)
	}
}

func TestRunsAreSortedByHowLongTheyTook(t *testing.T) {
	t.Parallel()
	client := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"cursor":"more","runs":[{"runId":"waits","status":"queued"},
			{"runId":"short","status":"completed","startedAt":"2026-11-16T10:00:00Z","finishedAt":"2026-11-16T10:00:01Z"},
			{"runId":"long","status":"completed","startedAt":"2026-11-16T10:00:00Z","finishedAt":"2026-11-16T10:00:09Z"}]}`))
	})
	var out, errs strings.Builder
	s := &session{ctx: t.Context(), client: client, instance: "default", screen: printer{terminal.New(nil, &out, &errs)}}
	cmd := runsVerb()
	if err := errors.Join(cmd.Flags().Set("limit", "3"), s.listLongest(cmd, runsOf(""))); err != nil {
		t.Fatal(err)
	}
	long, short, waits := strings.Index(out.String(), "long"), strings.Index(out.String(), "short"), strings.Index(out.String(), "waits")
	if long < 0 || long > short || short > waits || !strings.Contains(errs.String(), "the newest 3 that match, sorted: use --limit 0") {
		t.Errorf("printed %s%s", out.String(), errs.String())
	}
}
