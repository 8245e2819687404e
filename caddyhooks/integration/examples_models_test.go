package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// startsModel matches the lines of a page that start a server of models. Those are too large for a test: startModels stands in
// for them.
var startsModel = regexp.MustCompile(`(?m)^(ollama|litellm) .+$`)

// startModels serves Chat Completions on a port, with answers as the pages of the examples have them.
func startModels(t *testing.T, port string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(serveModels)}}
	server.Start()
	t.Cleanup(server.Close)
}

func serveModels(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Model    string
		Messages []struct{ Role, Content string }
		Stream   bool
		Format   *struct{} `json:"response_format"`
	}
	if r.URL.Path != "/v1/chat/completions" || json.NewDecoder(r.Body).Decode(&asked) != nil || len(asked.Messages) == 0 || !asked.Stream {
		http.Error(w, `{"error":"bad request"}`, http.StatusBadRequest)
		return
	}
	var all strings.Builder
	for _, message := range asked.Messages {
		all.WriteString(message.Content + "\n")
	}
	last := asked.Messages[len(asked.Messages)-1].Content
	var answer string
	switch {
	case asked.Model != "llama3.2" && r.Header.Get("Authorization") != "Bearer sk-only-for-trying-it-out":
		http.Error(w, `{"error":{"message":"Authentication Error"}}`, http.StatusUnauthorized)
		return
	case asked.Model != "llama3.2":
		answer = asked.Model + ": a bug in the upload of photos."
	case asked.Format != nil:
		answer = `{"sentiment":"good"}`
	case last == "What is my name?" && strings.Contains(all.String(), "My name is Ada."):
		answer = "Your name is Ada."
	case last == "What is my name?":
		answer = "I do not know your name."
	case last == "My name is Ada.":
		answer = "Hello Ada!"
	default:
		answer = "Caddy is a web server that gets its certificates by itself."
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, word := range strings.SplitAfter(answer, " ") {
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":%q},\"finish_reason\":null}]}\n\n", word)
	}
	_, _ = fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}
