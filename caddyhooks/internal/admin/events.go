package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /events", serveEvents, "topics")
}

// serveEvents answers with server-sent events, until the client goes or the configuration is replaced.
func serveEvents(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	about, err := api.ParseTopics(r.URL.Query().Get("topics"))
	if err != nil {
		return err
	}
	who, shows := callerFrom(r), service.WithTexts
	if who.HideTexts {
		shows = service.WithoutTexts
	}
	stream, err := in.Service.Events.Open(who.account(), about, shows)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		return err
	}
	defer stream.Close()
	hello, err := json.Marshal(struct {
		Instance string     `json:"instance"`
		Now      *time.Time `json:"now"`
		Revision int64      `json:"revision"`

		StoreUnreachable string `json:"storeUnreachable,omitempty"`
	}{in.Name, text.JSONTime(time.Now()), in.Active.Load().Revision, in.Service.StoreTrouble()})
	if err != nil {
		return err
	}
	out := sse.NewEventWriter(w, in.StreamEnd)
	defer out.Close()
	out.Begin()
	first := stream.Hello(hello)
	if lastID := r.Header.Get("Last-Event-ID"); lastID != "" {
		first = append(first, stream.Resume(r.Context(), lastID)...)
	}
	if out.Write(first) != nil {
		return nil // the client is gone, and cannot be told
	}
	sendEvents(r.Context(), in, stream, out)
	return nil
}

// sendEvents sends frames as they are made.
func sendEvents(ctx context.Context, in *service.Instance, stream *service.EventStream, out *sse.EventWriter) {
	ping := time.NewTicker(api.PingEvery)
	defer ping.Stop()
	for {
		text, news := stream.Next()
		if len(text) > 0 && out.Write(text) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-in.StreamEnd.Over:
			_ = out.Write([]byte(`event: bye` + "\n" + `data: {"reason":"` + in.StreamEnd.Reason + `"}` + "\n\n"))
			return
		case <-news:
		case <-ping.C:
			if out.Write([]byte(": ping\n\n")) != nil {
				return
			}
		}
	}
}
