// Command agent is an agent that speaks the Agent2Agent protocol. It keeps the notes of each conversation. Put a model of yours where
// it finds its words.
package main

import (
	"cmp"
	"context"
	"crypto/subtle"
	"iter"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// notes are what was said in each context, which is what A2A calls a conversation.
type notes struct {
	mu   sync.Mutex
	said map[string][]string
}

// Execute answers a message. What it yields reaches the caller at once.
func (n *notes) Execute(_ context.Context, ex *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		message := ""
		for _, part := range ex.Message.Parts {
			message += part.Text()
		}
		if !yield(a2a.NewSubmittedTask(ex, ex.Message), nil) {
			return
		}
		if strings.TrimSpace(message) == "help" {
			question := a2a.NewMessageForTask(a2a.MessageRoleAgent, ex, a2a.NewTextPart("Help with what?"))
			yield(a2a.NewStatusUpdateEvent(ex, a2a.TaskStateInputRequired, question), nil)
			return
		}
		n.mu.Lock()
		n.said[ex.ContextID] = append(n.said[ex.ContextID], message)
		answer := "Noted: " + strings.Join(n.said[ex.ContextID], ", ")
		n.mu.Unlock()
		artifact := a2a.NewArtifactID()
		for i, word := range strings.SplitAfter(answer, " ") {
			piece := a2a.NewArtifactUpdateEvent(ex, artifact, a2a.NewTextPart(word))
			piece.Append = i > 0
			if !yield(piece, nil) {
				return
			}
		}
		yield(a2a.NewStatusUpdateEvent(ex, a2a.TaskStateCompleted, nil), nil)
	}
}

// Cancel ends a task that its caller does not want any more.
func (n *notes) Cancel(_ context.Context, ex *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		log.Print("a task is cancelled")
		yield(a2a.NewStatusUpdateEvent(ex, a2a.TaskStateCanceled, nil), nil)
	}
}

// withToken lets in who has the token.
func withToken(token string, next http.Handler) http.Handler {
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func main() {
	address := "127.0.0.1:" + cmp.Or(os.Getenv("PORT"), "9000")
	card := &a2a.AgentCard{
		Name: "notes", Description: "Keeps the notes of each conversation.", Version: "1.0.0",
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Capabilities:        a2a.AgentCapabilities{Streaming: true},
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface("http://"+address+"/a2a", a2a.TransportProtocolJSONRPC)},
		Skills:              []a2a.AgentSkill{{ID: "notes", Name: "Notes", Description: "Notes what it is told.", Tags: []string{"notes"}}},
	}
	agent := &notes{said: make(map[string][]string)}
	mux := http.NewServeMux()
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
	mux.Handle("/a2a", withToken(cmp.Or(os.Getenv("AGENT_TOKEN"), "token-for-trying-it-out"),
		a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(agent))))
	const patience = 10 * time.Second
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: patience}
	log.Fatal(server.ListenAndServe())
}
