package caddyhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/push"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// pushingAgent is an agent of the A2A project's own server, which does not stream and says when there is news.
type pushingAgent struct {
	begun, done chan struct{}
}

func (p *pushingAgent) Execute(_ context.Context, ex *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if !yield(a2a.NewSubmittedTask(ex, ex.Message), nil) {
			return
		}
		p.begun <- struct{}{}
		<-p.done
		message := a2a.NewMessageForTask(a2a.MessageRoleAgent, ex, a2a.NewTextPart("the answer"))
		yield(a2a.NewStatusUpdateEvent(ex, a2a.TaskStateCompleted, message), nil)
	}
}

func (p *pushingAgent) Cancel(_ context.Context, ex *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(ex, a2a.TaskStateCanceled, nil), nil)
	}
}

// A run is put aside for a task of an A2A agent. Its push notification ends that, long before the agent would be asked again.
func TestAnA2AAgentSaysThatThereIsNews(t *testing.T) {
	agent := &pushingAgent{make(chan struct{}, 1), make(chan struct{})}
	sender := push.NewHTTPPushSender(&push.HTTPSenderConfig{AllowPrivateNetworks: true})
	handler := a2asrv.NewHandler(agent, a2asrv.WithLogger(slog.New(slog.DiscardHandler)), a2asrv.WithPushNotifications(push.NewInMemoryStore(), sender))
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	mux.HandleFunc("/.well-known/agent-card.json", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(&a2a.AgentCard{
			Name: "agent", Version: "1", Capabilities: a2a.AgentCapabilities{PushNotifications: true},
			SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface("http://"+r.Host+"/rpc", a2a.TransportProtocolJSONRPC)},
		})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s := hookstest.NewServer(t)
	s.Load(fmt.Sprintf("hooks {\n enabled\n token %s\n public_url http://127.0.0.1:%s\n runner a2a %s {\n push 1h\n }\n}",
		hookstest.Token, s.Port, server.URL))
	id := s.Accept(`{"message":"hello"}`)
	<-agent.begun
	s.Waiting(id)
	close(agent.done)
	if run := s.Ended(id); run.Status != "completed" || !strings.Contains(run.Body, "the answer") {
		t.Errorf("the run is %s", run.Body)
	}
}
