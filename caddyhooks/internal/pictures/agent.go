package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// agent is the pretend agent that all turns go to.
type agent struct {
	webServer
	busy    atomic.Bool   // from now on turns take until the end
	repairs atomic.Uint32 // so that they do not all take the same time
}

// startAgent starts the agent.
func startAgent(ctx context.Context) (*agent, error) {
	a := new(agent)
	err := a.serve(ctx, "127.0.0.1:0", a.answer)
	a.url += "/turn"
	return a, err
}

// answer answers a turn after the time that it takes.
func (a *agent) answer(w http.ResponseWriter, r *http.Request) {
	var turn struct{ Hook, Phase, Message string }
	if err := json.NewDecoder(r.Body).Decode(&turn); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// Read on, so that the server notices when the run ends.
	_, _ = io.Copy(io.Discard, r.Body)
	text, took := "Labelled `bug`, and linked to #1188, which looks alike.", 700*time.Millisecond
	switch {
	case a.busy.Load():
		took = time.Hour
	case turn.Hook == "invoices" && turn.Phase == "repair":
		text, took = wrongAnswer(turn.Message), 1500*time.Millisecond+time.Duration(a.repairs.Add(1)%5)*170*time.Millisecond
	case turn.Hook == "invoices":
		text, took = wrongAnswer(turn.Message), 5800*time.Millisecond
	case turn.Hook == "alertmanager":
		text = "Old logs fill the disk. I removed them: 41 % is free now."
	case turn.Hook == "agent":
		text = "Nothing unusual tonight."
	}
	select {
	case <-r.Context().Done():
		return
	case <-time.After(took):
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, text)
}

// wrongAnswer has the amount as a text, and no currency.
func wrongAnswer(message string) string {
	return fmt.Sprintf(`{
  "invoice": %q,
  "customer": %q,
  "amount": "49.90",
  "action": "send_receipt"
}`, invoiceID.FindString(message), customerID.FindString(message))
}

var invoiceID, customerID = regexp.MustCompile(`in_\d+`), regexp.MustCompile(`cus_\d+`)

// callbackAddress is one of this machine that others hardly use.
const callbackAddress = "127.0.12.8"

// startReceiver starts the receiver of callbacks. It has gone for invoices, and others have to try again later. Its name is one
// that the resolver of this process knows.
func startReceiver(ctx context.Context) (*webServer, error) {
	if err := answerNames(ctx, netip.MustParseAddr(callbackAddress)); err != nil {
		return nil, err
	}
	rc := new(webServer)
	answer := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasPrefix(r.URL.Path, "/invoices") {
			w.WriteHeader(http.StatusGone)
		} else {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	var err error
	for _, port := range []string{"80", "8080", "0"} { // the usual ones look better, but they may be taken or forbidden
		if err = rc.serve(ctx, net.JoinHostPort(callbackAddress, port), answer); err == nil {
			break
		}
	}
	rc.url = strings.TrimSuffix(strings.Replace(rc.url, callbackAddress, "callbacks.example.com", 1), ":80")
	return rc, err
}

// webServer is a web server on this machine.
type webServer struct {
	url    string
	server *http.Server
}

func (s *webServer) serve(ctx context.Context, address string, answer http.HandlerFunc) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	s.url = "http://" + l.Addr().String()
	s.server = &http.Server{Handler: answer, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(l) }() // until it is closed
	return nil
}

func (s *webServer) stop() { _ = s.server.Close() }
