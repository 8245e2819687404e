package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// The official SDK sends events in all three modes. They become the same messages, and are known by their ids.
func TestCloudEventsOfTheSDK(t *testing.T) {
	t.Parallel()
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartProcess(t, hookstest.Hooks(rn, `workers 1
	hook events {
		action agent
		body cloudevents
		chat_id all
		template "{id} {source} {type} {subject} {time} {dataschema} {ext}: {data.text | default '-'} {data_base64 | default '-'}"
	}`))
	address := s.URL + "/api/hooks/events"
	newEvent := func(id, contentType string, data any) cloudevents.Event {
		event := cloudevents.NewEvent()
		event.SetID(id)
		event.SetSource("https://example.com/shop?a=b") // without %41: the SDK does not encode headers, and receivers must decode them
		event.SetType("com.example.paid")
		event.SetSubject("Bestellung für 5 €, 100 %")
		event.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC))
		event.SetDataSchema("https://example.com/schema")
		event.SetExtension("ext", "an extension")
		if err := event.SetData(contentType, data); err != nil {
			t.Fatal(err)
		}
		return event
	}
	want := func(t *testing.T, id, data string) {
		t.Helper()
		const attributes = "https://example.com/shop?a=b com.example.paid Bestellung für 5 €, 100 % 2026-01-02T03:04:05.6Z https://example.com/schema an extension"
		if got := rn.Next().Text("message"); got != id+" "+attributes+": "+data {
			t.Errorf("the message is %q", got)
		}
	}
	client, err := cloudevents.NewClientHTTP(cehttp.WithTarget(address), cehttp.WithHeader("Authorization", "Bearer "+hookstest.Token))
	if err != nil {
		t.Fatal(err)
	}
	for mode, in := range map[string]func(context.Context) context.Context{
		"structured": cloudevents.WithEncodingStructured, "binary": cloudevents.WithEncodingBinary,
	} {
		t.Run(mode, func(t *testing.T) {
			send := func(event cloudevents.Event) {
				t.Helper()
				var answer *cehttp.Result
				if result := client.Send(in(t.Context()), event); !cloudevents.ResultAs(result, &answer) || answer.StatusCode != 202 {
					t.Errorf("%s is answered %v", event.ID(), result)
				}
			}
			for range 2 { // the second time it is known
				send(newEvent(mode, cloudevents.ApplicationJSON, map[string]any{"text": "grüß \"dich\""}))
			}
			want(t, mode, `grüß "dich" -`)
			send(newEvent(mode+"-bytes", "application/octet-stream", []byte{0, 255}))
			want(t, mode+"-bytes", "- AP8=")
		})
	}
	t.Run("batch", func(t *testing.T) {
		var events []cloudevents.Event
		for i := range 3 {
			events = append(events, newEvent(fmt.Sprint("batch-", i), cloudevents.ApplicationJSON, map[string]any{"text": fmt.Sprint("no. ", i)}))
		}
		var answers []string
		for range 2 {
			req, err := cehttp.NewHTTPRequestFromEvents(t.Context(), address, events)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+hookstest.Token)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != 202 {
				t.Fatalf("answered %d %s, %v", resp.StatusCode, body, err)
			}
			answers = append(answers, string(body))
		}
		if len(slices.Compact(answers)) != 1 {
			t.Errorf("the answers are %v", answers)
		}
		for i := range events {
			want(t, fmt.Sprint("batch-", i), fmt.Sprintf("no. %d -", i))
		}
	})
	rn.WantNoTurn(s)
}
