package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// backgroundTurn is a turn that the server carries out in the background, by OpenAI's Responses API. It is found again by its State, also
// after a restart.
type backgroundTurn struct {
	*modelRequest
	backgroundState
	again time.Duration // the least pause that the server asked for
}

// backgroundState is the State of a *engine.TakenOnError.
type backgroundState struct {
	ID    string        `json:"id"`    // of the response
	Pause time.Duration `json:"pause"` // the last one before the server was asked
	For   time.Duration `json:"for"`   // how long the response may take
}

// askInBackground carries out the turn, or looks how it goes on. Its errors may show a secret.
func (o *OpenAI) askInBackground(ctx context.Context, turn *engine.Turn) (reply engine.Reply, err error) {
	b := &backgroundTurn{modelRequest: &modelRequest{runner: o, turn: turn}}
	var response *modelResponse
	if turn.TakenOn == "" {
		response, err = b.create(ctx)
	} else if b.backgroundState, err = readBackgroundState(turn.TakenOn); err == nil {
		response, err = b.look(ctx)
	}
	for {
		switch {
		case err != nil:
			return reply, err
		case response.ended():
			reply.Usage = o.used(turn, response.used)
			reply.Text, err = response.result(turn.Emit)
			return reply, err
		}
		pause := b.nextPause()
		if turn.Later != nil {
			return reply, b.takenOn(pause)
		}
		if err := turns.Wait(ctx, pause); err != nil {
			_ = b.cancel(context.WithoutCancel(ctx)) // nothing depends on whether the server does
			return reply, err
		}
		response, err = b.look(ctx)
	}
}

// nextPause is the pause before the server is asked again.
func (b *backgroundTurn) nextPause() time.Duration {
	b.Pause = turns.NextPause(b.Pause, b.runner.firstPause)
	return max(b.Pause, b.again)
}

// takenOn is the error of a turn that goes on.
func (b *backgroundTurn) takenOn(pause time.Duration) error {
	state, err := json.Marshal(&b.backgroundState)
	if err != nil {
		return err
	}
	return &engine.TakenOnError{State: string(state), For: b.For, Again: pause}
}

var errBackgroundState = errors.New("what is kept about the response cannot be read")

func readBackgroundState(text string) (state backgroundState, err error) {
	if err := json.Unmarshal([]byte(text), &state); err != nil || !validResponseID(state.ID) || state.Pause < 0 || state.For < 0 {
		return state, errBackgroundState
	}
	return state, nil
}

const (
	// namePatience is how long a server may take to name the response to a turn that is not wanted any more, so that it can be cancelled.
	namePatience = 2 * time.Second

	// cancelTimeout is how long a server may take to hear that a response is not wanted any more.
	cancelTimeout = 5 * time.Second
)

// create has the server take the turn on. A server may refuse a part of the request, and is then asked again without it.
func (b *backgroundTurn) create(ctx context.Context) (response *modelResponse, err error) {
	o := b.runner
	if b.modelRequest, err = o.newRequest(ctx, b.turn); err != nil {
		return nil, err
	}
	b.For = time.Duration(o.Background)
	body, err := b.responseBody()
	for again := true; again && err == nil; {
		again = false
		b.tries++
		err = turns.Patiently(ctx, namePatience, func(ctx context.Context) error {
			encode := func(ctx context.Context) (*http.Request, error) {
				return b.newRequest(ctx, http.MethodPost, o.responses.String(), body)
			}
			return b.do(ctx, encode, func(resp *http.Response, from io.Reader, _ context.CancelCauseFunc) (err error) {
				if resp.StatusCode == http.StatusOK {
					response, err = readResponse(resp, from)
					var reported *answers.Error
					if errors.As(err, &reported) && reported.Status != 0 {
						err = o.refusal(reported.Status, 0, err)
					}
					return err
				}
				failure := refusedAnswer(resp, o.key != "")
				if again = b.mend(resp.StatusCode, failure.Text); again {
					return nil
				}
				if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed {
					failure.Hint = "background needs a server with OpenAI's Responses API"
				}
				return o.refusal(resp.StatusCode, outbound.RetryAfter(resp.Header.Get("Retry-After"), time.Now()), failure)
			})
		}, func() {})
		if again {
			body, err = b.responseBody()
		}
	}
	if err != nil {
		return nil, err
	}
	b.ID = response.id
	return response, nil
}

// look asks the server for the response. It is nil if that is not known for now: the server goes on, whether it can be reached or not.
func (b *backgroundTurn) look(ctx context.Context) (response *modelResponse, err error) {
	o := b.runner
	status := 0
	b.again = 0
	encode := func(ctx context.Context) (*http.Request, error) {
		return b.newRequest(ctx, http.MethodGet, o.responses.JoinPath(b.ID).String(), nil)
	}
	err = b.do(ctx, encode, func(resp *http.Response, from io.Reader, _ context.CancelCauseFunc) (err error) {
		if status = resp.StatusCode; status == http.StatusOK {
			response, err = readResponse(resp, from)
			return err
		}
		b.again = outbound.RetryAfter(resp.Header.Get("Retry-After"), time.Now())
		return refusedAnswer(resp, o.key != "")
	})
	var unusable *answers.Error
	switch {
	case err == nil && response.id != b.ID:
		return nil, errors.New("the server answered with another response than the one that was asked for")
	case err == nil:
		return response, nil
	case ctx.Err() != nil:
		return nil, nil //nolint:nilerr // nobody asks any more, and the server goes on
	case status == http.StatusNotFound || status == http.StatusGone:
		return nil, fmt.Errorf("the response is gone, and with it the answer to the turn: %w", err)
	case errors.Is(err, answers.ErrTooLarge), errors.Is(err, httpcall.ErrEncoded),
		errors.As(err, &unusable) && status < http.StatusInternalServerError && status != http.StatusTooManyRequests:
		return nil, fmt.Errorf("asking for the response: %w", err)
	}
	o.log.Warn("asking how a turn goes on failed; asking again", zap.String("run_id", b.turn.RunID), zap.Error(o.Clean(err)))
	return nil, nil
}

// TakesOn reports whether responses are made in the background.
func (o *OpenAI) TakesOn() bool { return o.Background > 0 }

// Abandon tells the server to give up a response.
func (o *OpenAI) Abandon(ctx context.Context, state string) error {
	b := &backgroundTurn{modelRequest: &modelRequest{runner: o, turn: new(engine.Turn)}}
	var err error
	if b.backgroundState, err = readBackgroundState(state); err != nil {
		return err
	}
	return o.Clean(b.cancel(ctx))
}

func (b *backgroundTurn) cancel(ctx context.Context) error {
	ctx, end := context.WithTimeout(ctx, cancelTimeout)
	defer end()
	o := b.runner
	encode := func(ctx context.Context) (*http.Request, error) {
		return b.newRequest(ctx, http.MethodPost, o.responses.JoinPath(b.ID, "cancel").String(), nil)
	}
	return b.do(ctx, encode, func(resp *http.Response, _ io.Reader, _ context.CancelCauseFunc) error {
		if resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusConflict {
			return nil
		}
		return refusedAnswer(resp, o.key != "")
	})
}

// responseMembers are those of a request of the Responses API.
var responseMembers = &reservedMembers{
	[]string{"model", "input", "messages", "stream", "background", "store", "response_format"}, "text",
	errors.New("with background, body must not set model, input, messages, stream, background, store or response_format"),
}

// responseBody is the request as JSON.
func (r *modelRequest) responseBody() ([]byte, error) {
	o := r.runner
	model, err := turns.EncodeJSON(r.model)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, len(r.messages)+len(r.format)+len(o.more.others)+len(o.more.format)+len(model)+128)
	body = append(append(body, `{"model":`...), model...)
	body = append(append(body, `,"input":`...), r.messages...)
	body = append(body, `,"background":true,"store":true`...)
	if r.format != nil {
		body = append(append(append(body, `,"text":{"format":`...), r.format...), '}')
	} else if r.turn.ResponseSchema == nil {
		body = append(body, o.more.format...)
	}
	return append(append(body, o.more.others...), '}'), nil
}

// checkBackground finds options that do not go with background.
func (o *OpenAI) checkBackground() error {
	switch preset, known := serverPresets[o.PresetName()]; {
	case o.Background == 0:
		return nil
	case o.Background < 0:
		return errors.New("background must not be negative")
	case known && !preset.background:
		return fmt.Errorf("background needs OpenAI's Responses API, and %s answers Chat Completions alone: leave background out", o.PresetName())
	case o.serverKeepsChat() || o.ModelHeader != "":
		return errors.New("background uses OpenAI's Responses API; session_header, session_from and model_header go with Chat Completions")
	case o.Stream != nil:
		return errors.New("with background, the answer does not come as a stream: leave stream out")
	}
	return nil
}

// readResponse reads a response of the server.
func readResponse(resp *http.Response, from io.Reader) (*modelResponse, error) {
	if form := httpcall.MediaType(resp.Header.Get("Content-Type")); httpcall.IsPage(form) {
		return nil, &answers.Error{Problem: "the runner answered 200 with " + form, Text: httpcall.Beginning(resp), Hint: hintURL}
	}
	if httpcall.IsEncoded(resp.Header) {
		return nil, httpcall.ErrEncoded
	}
	data, err := httpcall.ReadBounded(from, resp.ContentLength, maxDocument)
	if err != nil {
		return nil, httpcall.ReadingError(err)
	}
	return parseResponse(data)
}
