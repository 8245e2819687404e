package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

// fakeResponses is a server with the Responses API. Each request gets the next of its answers, and all after the last one get that.
type fakeResponses struct {
	*fakeModel
	mu    sync.Mutex
	given []string // as "200 {…}"
	asks  []string // as "GET /v1/responses/…"
	heard chan string
}

const responseName = "resp_0123-abc"

func response(status, more string) string {
	return fmt.Sprintf(`200 {"id":%q,"object":"response","status":%q,"error":null,"output":[]%s}`, responseName, status, more)
}

func responseText(texts ...string) string {
	var output []string
	for _, text := range texts {
		output = append(output, fmt.Sprintf(`{"type":"message","role":"assistant","content":[{"type":"output_text","text":%q,"annotations":[]}]}`, text))
	}
	return fmt.Sprintf(`200 {"id":%q,"object":"response","status":"completed","output":[{"type":"reasoning","summary":[]},{"type":"web_search_call"},%s]}`,
		responseName, strings.Join(output, ","))
}

func newFakeResponses(t *testing.T, given ...string) *fakeResponses {
	t.Helper()
	f := &fakeResponses{given: given, heard: make(chan string, 100)}
	f.fakeModel = newFakeModel(t, func(w http.ResponseWriter, r *http.Request, _ askedModel) {
		f.mu.Lock()
		ask := r.Method + " " + r.URL.Path
		f.asks = append(f.asks, ask)
		status, body, _ := strings.Cut(f.given[0], " ")
		if len(f.given) > 1 {
			f.given = f.given[1:]
		}
		f.mu.Unlock()
		f.heard <- ask
		w.Header().Set("Content-Type", "application/json")
		code := 200
		_, _ = fmt.Sscan(status, &code)
		if code == 429 {
			w.Header().Set("Retry-After", "90")
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
	return f
}

func (f *fakeResponses) asked() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.asks, ", ")
}

func newBackground(t *testing.T, url string) *OpenAI {
	t.Helper()
	o := newOpenAI(t, url, func(o *OpenAI) { o.Background, o.Key = caddy.Duration(time.Hour), "sk-secret" })
	o.firstPause = time.Millisecond
	return o
}

// laterTurn is a turn that can be answered later.
func laterTurn() engine.Turn {
	return engine.Turn{RunID: "run", Message: "hi", MemoryPreset: engine.MemoryDisabled, Later: &engine.Later{Token: "t"}}
}

func takenOn(t *testing.T, err error) *engine.TakenOnError {
	t.Helper()
	var taken *engine.TakenOnError
	if !errors.As(err, &taken) {
		t.Fatalf("the turn was not taken on: %v", err)
	}
	return taken
}

func TestResponseInTheBackground(t *testing.T) {
	t.Parallel()
	f := newFakeResponses(t, response("queued", ""), response("in_progress", ""), responseText("Hel", "lo"))
	o := newBackground(t, f.URL)
	o.firstPause = 2 * time.Second
	turn := laterTurn()
	_, err := o.Run(t.Context(), turn)
	first := takenOn(t, err)
	if first.Again != 2*time.Second || first.For != time.Hour || first.Ask != nil {
		t.Errorf("got %+v", first)
	}
	asked := f.last(t)
	if want := `{"model":"small","input":[{"role":"user","content":"hi"}],"background":true,"store":true}`; asked.raw != want {
		t.Errorf("asked %s, want %s", asked.raw, want)
	}
	if got := asked.header.Get("Idempotency-Key"); got != "run:turn" {
		t.Errorf("the turn has the key %q", got)
	}

	// Another process goes on with it.
	o = newBackground(t, f.URL)
	turn.TakenOn = first.State
	_, err = o.Run(t.Context(), turn)
	second := takenOn(t, err)
	if second.Again != 4*time.Second || second.For != time.Hour {
		t.Errorf("got %+v", second)
	}
	var emitted strings.Builder
	turn.TakenOn, turn.Emit = second.State, func(p engine.Progress) { emitted.WriteString(p.Text) }
	reply, err := o.Run(t.Context(), turn)
	if err != nil || reply.Text != "Hello" || emitted.String() != "Hello" {
		t.Errorf("got %+v, %v, emitted %q", reply, err, emitted.String())
	}
	if want := "POST /v1/responses, GET /v1/responses/" + responseName + ", GET /v1/responses/" + responseName; f.asked() != want {
		t.Errorf("asked %s, want %s", f.asked(), want)
	}
	if got := f.last(t).header; got.Get("Authorization") != "Bearer sk-secret" || got.Get("Idempotency-Key") != "" {
		t.Errorf("the look has the headers %v", got)
	}
}

func TestPausesBetweenLooksGrow(t *testing.T) {
	t.Parallel()
	f := newFakeResponses(t, response("in_progress", ""))
	o := newBackground(t, f.URL)
	o.firstPause = 2 * time.Second
	turn := laterTurn()
	for _, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
		_, err := o.Run(t.Context(), turn)
		taken := takenOn(t, err)
		if taken.Again != want*time.Second {
			t.Errorf("asked again after %v, want %vs", taken.Again, int(want))
		}
		turn.TakenOn = taken.State
	}
}

func TestTurnThatCannotBePutAsideWaitsForTheResponse(t *testing.T) {
	t.Parallel()
	f := newFakeResponses(t, response("queued", ""), response("in_progress", ""), "503 {}", response("in_progress", ""), responseText("Hello"))
	turn := laterTurn()
	turn.Later = nil
	sent := 0
	turn.Sent = func() { sent++ }
	reply, err := newBackground(t, f.URL).Run(t.Context(), turn)
	if err != nil || reply.Text != "Hello" || sent != 1 {
		t.Errorf("got %+v, %v, sent %d times", reply, err, sent)
	}
}

func TestResponseIsCancelled(t *testing.T) {
	t.Parallel()
	f := newFakeResponses(t, response("in_progress", ""))
	o := newBackground(t, f.URL)
	const cancelled = "POST /v1/responses/" + responseName + "/cancel"

	ctx, cancel := context.WithCancel(t.Context())
	turn := laterTurn()
	turn.Later = nil
	done := make(chan error, 1)
	go func() {
		_, err := o.Run(ctx, turn)
		done <- err
	}()
	for ask := range f.heard {
		if strings.HasPrefix(ask, "GET ") {
			break
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !strings.HasSuffix(f.asked(), cancelled) {
		t.Errorf("got %v after %s", err, f.asked())
	}

	_, err := o.Run(t.Context(), laterTurn())
	if err := o.Abandon(t.Context(), takenOn(t, err).State); err != nil || !strings.HasSuffix(f.asked(), cancelled) {
		t.Errorf("got %v after %s", err, f.asked())
	}
	if got := f.last(t); got.raw != "" || got.header.Get("Authorization") != "Bearer sk-secret" {
		t.Errorf("cancelled with %+v", got)
	}
	refuses := newFakeResponses(t, `500 {"error":{"message":"no sk-secret"}}`)
	err = newBackground(t, refuses.URL).Abandon(t.Context(), `{"id":"resp_1"}`)
	if err == nil || !strings.Contains(err.Error(), "500: no REDACTED") {
		t.Errorf("got %v", err)
	}
	for _, state := range []string{"", "{}", "https://a.example/", `{"id":"../models"}`, `{"id":"a","pause":-1}`} {
		if err := o.Abandon(t.Context(), state); !errors.Is(err, errBackgroundState) {
			t.Errorf("%s: %v", state, err)
		}
	}
}

// A run is cancelled while the server is about to name the response: the name is waited for, so that the response can be cancelled.
func TestResponseIsNamedThoughTheTurnIsOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f := newFakeModel(t, func(w http.ResponseWriter, _ *http.Request, _ askedModel) {
		cancel()
		<-ctx.Done()
		_, _ = io.WriteString(w, strings.TrimPrefix(response("queued", ""), "200 "))
	})
	_, err := newBackground(t, f.URL).Run(ctx, laterTurn())
	if state := takenOn(t, err).State; !strings.Contains(state, responseName) {
		t.Errorf("got %s", state)
	}
}

func TestLooksThatFail(t *testing.T) {
	t.Parallel()
	const state = `{"id":"` + responseName + `","pause":4000000000,"for":60000000000}`
	for name, test := range map[string]struct {
		given string
		want  string // the error, "" if the server is asked again
		again time.Duration
	}{
		"busy":         {given: "429 {}", again: 90 * time.Second},
		"down":         {given: "503 down", again: 8 * time.Second},
		"broken":       {given: "500 {}", again: 8 * time.Second},
		"gone":         {given: `404 {"error":{"message":"no such response"}}`, want: "the response is gone, and with it the answer to the turn: the runner answered 404: no such response"},
		"another key":  {given: "401 {}", want: "asking for the response: the runner answered 401: {}; check the line key"},
		"another one":  {given: strings.Replace(response("completed", ""), responseName, "resp_2", 1), want: "another response than the one that was asked for"},
		"no response":  {given: `200 {"choices":[]}`, want: "it is not a response with an id and a status"},
		"no JSON":      {given: "200 hello", want: "it is not a JSON object"},
		"an error":     {given: `200 {"error":{"message":"boom"}}`, want: "the runner sent an error: boom"},
		"a list":       {given: "200 []", want: "it is not a JSON object"},
		"another path": {given: `200 {"id":"../x","status":"queued"}`, want: "it is not a response with an id"},
	} {
		f := newFakeResponses(t, test.given)
		turn := laterTurn()
		turn.TakenOn = state
		_, err := newBackground(t, f.URL).Run(t.Context(), turn)
		if test.want != "" {
			var taken *engine.TakenOnError
			var unavailable *engine.UnavailableError
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.As(err, &taken) || errors.As(err, &unavailable) {
				t.Errorf("%s: got %v, want %s", name, err, test.want)
			}
			continue
		}
		if taken := takenOn(t, err); taken.Again != test.again || taken.For != time.Minute || !strings.Contains(taken.State, responseName) {
			t.Errorf("%s: got %+v", name, taken)
		}
	}
	gone := newFakeResponses(t, "")
	gone.Close()
	turn := laterTurn()
	turn.TakenOn = state
	_, err := newBackground(t, gone.URL).Run(t.Context(), turn)
	takenOn(t, err)

	over, end := context.WithCancel(t.Context())
	end()
	_, err = newBackground(t, newFakeResponses(t, response("queued", "")).URL).Run(over, turn)
	takenOn(t, err) // so that whoever cancelled the run can abandon it

	turn.TakenOn = "https://another.runner/"
	if _, err := newBackground(t, gone.URL).Run(t.Context(), turn); !errors.Is(err, errBackgroundState) {
		t.Errorf("got %v", err)
	}
}

func TestResponsesThatAreNoAnswer(t *testing.T) {
	t.Parallel()
	output := func(items string) string {
		return fmt.Sprintf(`200 {"id":%q,"status":"completed","output":[%s]}`, responseName, items)
	}
	for given, want := range map[string]string{
		response("failed", `,"error":{"code":"server_error","message":"boom"}`): "the server says that the response failed: boom",
		response("failed", ""):    "the server says that the response failed",
		response("cancelled", ""): "the response was cancelled at the server",
		response("incomplete", `,"incomplete_details":{"reason":"max_output_tokens"}`): "cut off at the largest number of tokens (incomplete, max_output_tokens); max_output_tokens in body",
		response("incomplete", `,"incomplete_details":{"reason":"content_filter"}`):    "a content filter stopped it",
		response("incomplete", ""):         "the response is incomplete",
		response("thinking", ""):           `the response has the status "thinking", which the runner does not know`,
		response("completed", ""):          "it has no text",
		output(`{"type":"reasoning"}`):     "it has reasoning and no text",
		output(`{"type":"function_call"}`): "the model wants to call tools",
		output(`{"type":"message","content":[{"type":"refusal","refusal":"I will not"}]}`):       "the model refused: I will not",
		output(`{"type":"message","content":3}`):                                                 "its content is neither a text nor a list of parts",
		output(`{"type":"message","content":"` + strings.Repeat("a", answers.MaxReply+1) + `"}`): answers.ErrTooLarge.Error(),
		"400 {}":             "the runner answered 400",
		"404 page not found": "the runner answered 404: page not found; background needs a server with OpenAI's Responses API",
		`200 {"object":"chat.completion","choices":[]}`: "it is not a response with an id and a status",
	} {
		given = strings.Replace(given, `"error":null,"output":[],"error"`, `"output":[],"error"`, 1)
		_, err := newBackground(t, newFakeResponses(t, given).URL).Run(t.Context(), laterTurn())
		if err == nil || !strings.Contains(err.Error(), want) || runnertest.WaitOf(err) != "ends" {
			t.Errorf("%.80s: got %v, want %s", given, err, want)
		}
	}
	runnertest.WantModelWaits(t, func(t *testing.T, status int) error {
		_, err := newBackground(t, newFakeResponses(t, fmt.Sprintf("%d {}", status)).URL).Run(t.Context(), laterTurn())
		return err
	})
}

func TestSchemaOfAResponse(t *testing.T) {
	t.Parallel()
	f := newFakeResponses(t, `400 {"error":{"message":"text.format is not supported"}}`, responseText("{}"))
	o := newOpenAI(t, f.URL, func(o *OpenAI) {
		o.Background, o.Body = caddy.Duration(time.Hour), json.RawMessage(`{"reasoning":{"effort":"low"},"text":{"verbosity":"low"}}`)
	})
	turn := laterTurn()
	turn.ResponseSchema = json.RawMessage(`{"type":"object"}`)
	if reply, err := o.Run(t.Context(), turn); err != nil || reply.Text != "{}" {
		t.Fatalf("got %+v, %v", reply, err)
	}
	turn.ResponseSchema = nil
	if _, err := o.Run(t.Context(), turn); err != nil {
		t.Fatal(err)
	}
	const start, end = `{"model":"small","input":[{"role":"user","content":"hi"}],"background":true,"store":true`, `,"reasoning":{"effort":"low"}}`
	for i, want := range []string{
		start + `,"text":{"format":{"type":"json_schema","name":"answer","strict":false,"schema":{"type":"object"}}}` + end,
		start + end,
		start + `,"text":{"verbosity":"low"}` + end,
	} {
		if got := f.all()[i].raw; got != want {
			t.Errorf("asked\n%s\nwant\n%s", got, want)
		}
	}
	if first, second := f.all()[0], f.all()[1]; first.header.Get("Idempotency-Key") == second.header.Get("Idempotency-Key") {
		t.Error("two different requests have the same key")
	}
}

func TestOptionsThatDoNotGoWithBackground(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]func(*OpenAI){
		"background must not be negative":                       func(o *OpenAI) { o.Background = -1 },
		"and ollama answers Chat Completions alone":             func(o *OpenAI) { o.URL = serverPresets["ollama"].url },
		"and openclaw answers Chat Completions alone":           func(o *OpenAI) { o.URL = serverPresets["openclaw"].url },
		"session_header, session_from and model_header go with": func(o *OpenAI) { o.SessionHeader = "X-Session" },
		"model_header go with Chat Completions":                 func(o *OpenAI) { o.ModelHeader = "X-Model" },
		"leave stream out":                                      func(o *OpenAI) { o.Stream = new(false) },
		"with background, body must not set":                    func(o *OpenAI) { o.Body = json.RawMessage(`{"store":false}`) },
	} {
		o := &OpenAI{URL: "https://a.example/v1", Model: "m", Background: caddy.Duration(time.Hour)}
		set(o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, preset := range []string{"openai", "litellm"} {
		o := &OpenAI{URL: serverPresets[preset].url, Model: "m", Background: caddy.Duration(time.Hour)}
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", preset, err)
		}
	}
}

// Whatever a server sends for a response, its id can stand in a URL, and its answer is good text.
func FuzzResponse(f *testing.F) {
	for _, given := range []string{
		response("queued", ""), responseText("a", "b"), response("failed", `,"x":1`), `200 {"error":"no"}`, "200 []", "200 {", `200 {"id":"..","status":"queued"}`,
		`200 {"id":"a","status":"completed","output":[{"type":"message","content":["a",{"text":"b"},{"type":"refusal","refusal":"c"}]},3,{"type":7}]}`,
	} {
		f.Add([]byte(strings.TrimPrefix(given, "200 ")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseResponse(data)
		if err == nil {
			if strings.ContainsAny(r.id, "/?#% ") || strings.Trim(r.id, ".") == "" || len(r.id) > 1024 {
				t.Errorf("the id is %q", r.id)
			}
			var text string
			if text, err = r.result(nil); err == nil && (strings.TrimSpace(text) == "" || len(text) > answers.MaxReply) {
				t.Errorf("the text is %q", text)
			}
		}
		if err != nil && strings.ContainsAny(err.Error(), "\r\n\x00\x1b") {
			t.Errorf("the error has several lines: %q", err)
		}
	})
}

func FuzzBackgroundState(f *testing.F) {
	f.Add(`{"id":"resp_1","pause":1,"for":2}`)
	f.Add(`{"id":"../x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		state, err := readBackgroundState(text)
		if err == nil && (!validResponseID(state.ID) || state.Pause < 0 || state.For < 0) {
			t.Errorf("%q is %+v", text, state)
		}
	})
}
