package runners

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// replyTo is where the agent can send the answer to a turn later, nil if it cannot.
func (h *HTTP) replyTo(turn *engine.Turn) *turns.ReplyTo {
	if h.Async == 0 || turn.Later == nil || turn.Later.URL == "" {
		return nil
	}
	until := time.Now().Add(time.Duration(h.Async)).UTC().Truncate(time.Second)
	return &turns.ReplyTo{URL: turn.Later.URL, Token: turn.Later.Token, Until: until}
}

// accepted is the error of a turn that the agent answered with 202: it was taken on, or the agent should not have answered that.
func (h *HTTP) accepted(turn *engine.Turn, resp *http.Response) error {
	refused := &answers.Error{Problem: "the runner answered 202", Text: httpcall.Beginning(resp)}
	switch {
	case h.Async == 0:
		refused.Hint = "it must answer 200, unless there is a line such as: async 24h"
	case turn.Later == nil && len(turn.Folded) > 0:
		refused.Hint = "it must answer 200: a turn of several runs cannot be answered later"
	case turn.Later == nil:
		refused.Hint = "it must answer 200: this turn cannot be answered later"
	case turn.Later.URL == "":
		refused.Hint = "the agent got no address to send its answer to, since public_url is not set"
	default:
		place, ok := cancelPlace(h.requested(), resp.Header.Get("Location"))
		if !ok {
			h.log.Warn("agent's Location unusable; its turn cannot be cancelled", zap.String("run_id", turn.RunID))
		}
		return &engine.TakenOnError{State: place, For: time.Duration(h.Async)}
	}
	return refused
}

// stillTakenOn is the error of a turn that was taken on and has no answer yet. The agent cannot be asked.
func (h *HTTP) stillTakenOn(state string) error {
	if h.Async == 0 {
		return errors.New("the agent has taken the turn on, and async is not set any more")
	}
	return &engine.TakenOnError{State: state, For: time.Duration(h.Async)}
}

// requested is the URL of a turn as the agent sees it.
func (h *HTTP) requested() *url.URL {
	requested := *h.blank.URL
	if h.routes != nil {
		requested.Scheme, requested.Host = "http", routesHost
	}
	return &requested
}

const (
	// noPlace is the state of a turn that its agent cannot be told to give up.
	noPlace = "-"

	// maxLocation bounds the URL that an agent names for that.
	maxLocation = 4 << 10
)

// cancelPlace is the URL at which an agent can be told to give up a turn: that of the Location of its answer. Credentials are sent there,
// so it must be at the same place as the agent. It is noPlace without a Location, and not ok with one that cannot be used.
func cancelPlace(requested *url.URL, location string) (place string, ok bool) {
	if location == "" {
		return noPlace, true
	}
	if len(location) > maxLocation {
		return noPlace, false
	}
	to, err := url.Parse(location)
	if err != nil || to.User != nil || to.Opaque != "" {
		return noPlace, false
	}
	to = requested.ResolveReference(to)
	if httpcall.Origin(to) != httpcall.Origin(requested) {
		return noPlace, false
	}
	to.User, to.Fragment, to.RawFragment = nil, "", ""
	if place = to.String(); len(place) > maxLocation {
		return noPlace, false
	}
	return place, true
}

// abandonTimeout is how long an agent may take to hear that a turn is not wanted any more.
const abandonTimeout = 10 * time.Second

// AnswersLater reports whether the agent needs a URL to answer at.
func (h *HTTP) AnswersLater() bool { return h.Async > 0 }

// TakesOn reports whether the agent may answer later.
func (h *HTTP) TakesOn() bool { return h.Async > 0 }

// Abandon tells the agent to give up a turn that it has taken on, if it has said where.
func (h *HTTP) Abandon(ctx context.Context, state string) error {
	if state == noPlace {
		return nil
	}
	return h.Clean(h.abandon(ctx, state))
}

func (h *HTTP) abandon(ctx context.Context, state string) error {
	to, err := url.Parse(state)
	if err != nil || httpcall.Origin(to) != httpcall.Origin(h.requested()) {
		return errors.New("the turn was taken on by an agent at another URL")
	}
	ctx, end := context.WithTimeout(ctx, abandonTimeout)
	defer end()
	way := &httpcall.Sending{Heard: func() {}}
	defer way.End()
	if h.routes != nil { // handlers see a path, as with a turn
		to.Scheme, to.Host = "", ""
	}
	req := h.newRequest(way.WithTrace(ctx, h.routes != nil, false), to)
	req.Method, req.Body = http.MethodDelete, http.NoBody
	resp, err := h.send(req, way)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch status := resp.StatusCode; {
	case status/100 == 2, status == http.StatusNotFound, status == http.StatusConflict, status == http.StatusGone: // it has ended already
		return nil
	default:
		return &answers.Error{Problem: fmt.Sprintf("the runner answered %d to DELETE", status), Text: httpcall.Beginning(resp)}
	}
}
