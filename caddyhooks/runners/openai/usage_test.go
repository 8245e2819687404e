package openai

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

const gptUsage = `{"prompt_tokens":1117,"completion_tokens":46,"total_tokens":1163,"prompt_tokens_details":{"cached_tokens":1024,"audio_tokens":0},` +
	`"completion_tokens_details":{"reasoning_tokens":30,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`

func TestCompletionsTellWhatWasUsed(t *testing.T) {
	t.Parallel()
	const stream, plain, gpt = "text/event-stream", "application/json", "gpt-5-2025-08-07: 1117 (1024 cached) in, 46 (30 reasoning) out"
	plainly := func(usage string) string { return strings.Replace(saysHello, `"id":"c"`, `"id":"c","usage":`+usage, 1) }
	for name, test := range map[string]struct{ contentType, body, want string }{
		"a document": {plain, strings.Replace(plainly(gptUsage), `"id":"c"`, `"id":"c","model":"gpt-5-2025-08-07"`, 1), gpt},
		"a stream": {stream, events(`{"model":"gpt-5-2025-08-07","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}],"usage":null}`,
			`{"model":"gpt-5-2025-08-07","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`,
			`{"model":"gpt-5-2025-08-07","choices":[],"usage":`+gptUsage+`}`, "[DONE]"), gpt},
		"each event of a stream": {stream, events(`{"model":"sonar","choices":[{"delta":{"content":"Hello"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`,
			`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, "[DONE]"),
			"sonar: 9 (0 cached) in, 2 (0 reasoning) out"},
		"no model":        {plain, plainly(`{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":null}`), "small: 9 (0 cached) in, 2 (0 reasoning) out"},
		"Grok":            {plain, plainly(`{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}}`), "small: 32 (0 cached) in, 103 (94 reasoning) out"},
		"embeddings":      {plain, plainly(`{"prompt_tokens":9,"total_tokens":9}`), "small: 9 (0 cached) in, 0 (0 reasoning) out"},
		"a total alone":   {plain, plainly(`{"total_tokens":9}`), ""},
		"a strange cost":  {plain, plainly(`{"cost":5}`), ""},
		"null":            {plain, plainly(`null`), ""},
		"no object":       {plain, plainly(`[{"prompt_tokens":9}]`), ""},
		"an empty object": {plain, plainly(`{}`), ""},
		"nothing":         {plain, saysHello, ""},
	} {
		model := newFakeModel(t, says(test.contentType, test.body))
		reply, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{Message: "hi"})
		if used := runnertest.Used(reply.Usage); err != nil || reply.Text != "Hello" || used != test.want {
			t.Errorf("%s: %q, %v used %s", name, reply.Text, err, used)
		}
	}
	for _, number := range runnertest.HostileNumbers {
		for _, name := range []string{"prompt_tokens", "completion_tokens", "prompt_tokens_details.cached_tokens"} {
			usage := `{"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":` + number + `}}`
			if !strings.Contains(name, ".") {
				usage = `{"` + name + `":` + number + `}`
			}
			model := newFakeModel(t, says(stream, events(piece("Hello"), stopPiece, `{"choices":[],"usage":`+usage+`}`, "[DONE]")))
			reply, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{Message: "hi"})
			if used := runnertest.Used(reply.Usage); err != nil || reply.Text != "Hello" || used != "refused" {
				t.Errorf("%s: %q, %v used %s", usage, reply.Text, err, used)
			}
		}
	}
}

func TestCompletionsThatAreRefusedTellWhatWasUsed(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"cut off":  strings.Replace(whole(`{"content":"Hel"}`, "length"), `{"total_tokens":3}`, gptUsage, 1),
		"an error": `{"error":{"message":"no"},"usage":` + gptUsage + `}`,
		"a broken stream": events(piece("Hel"), `{"choices":[],"usage":`+gptUsage+`}`) +
			"event: error\ndata: {\"error\":{\"message\":\"overloaded\"}}\n\n",
	} {
		model := newFakeModel(t, says("text/plain", body))
		reply, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{Message: "hi"})
		if used := runnertest.Used(reply.Usage); err == nil || used != "small: 1117 (1024 cached) in, 46 (30 reasoning) out" {
			t.Errorf("%s: %v used %s", name, err, used)
		}
	}
}

func TestOpenRouterTellsTheCost(t *testing.T) {
	t.Parallel()
	model := newFakeModel(t, says("application/json", strings.Replace(saysHello, `"id":"c"`,
		`"id":"c","model":"openai/gpt-5","usage":{"prompt_tokens":194,"completion_tokens":2,"cost":0.00095,"cost_details":{"upstream_inference_cost":null}}`, 1)))
	o := newOpenAI(t, model.URL, nil)
	o.URL = serverPresets["openrouter"].url // by which the preset is known; requests go to the model
	reply, err := o.Run(t.Context(), engine.Turn{Message: "hi"})
	if used := runnertest.Used(reply.Usage); err != nil || used != "openai/gpt-5: 194 (0 cached) in, 2 (0 reasoning) out $0.00095" {
		t.Errorf("%v used %s", err, used)
	}
}

func TestResponsesTellWhatWasUsed(t *testing.T) {
	t.Parallel()
	const used = `,"model":"gpt-5-2025-08-07","usage":{"input_tokens":328,"input_tokens_details":{"cached_tokens":100},"output_tokens":52,` +
		`"output_tokens_details":{"reasoning_tokens":40},"total_tokens":380}`
	completed := strings.TrimSuffix(responseText("Hello"), "}") + used + "}"
	for name, answers := range map[string][]string{
		"at once":    {completed},
		"later":      {response("queued", `,"usage":null`), response("in_progress", ""), completed},
		"failed":     {response("queued", ""), response("failed", used)},
		"incomplete": {response("queued", ""), response("incomplete", used)},
	} {
		reply, err := newBackground(t, newFakeResponses(t, answers...).URL).Run(t.Context(), engine.Turn{Message: "hi"})
		if used := runnertest.Used(reply.Usage); (err == nil) != (reply.Text == "Hello") || used != "gpt-5-2025-08-07: 328 (100 cached) in, 52 (40 reasoning) out" {
			t.Errorf("%s: %q, %v used %s", name, reply.Text, err, used)
		}
	}
}

func TestStreamsAreAskedForWhatWasUsed(t *testing.T) {
	t.Parallel()
	const asks = `,"stream_options":{"include_usage":true}`
	for _, refusal := range []string{
		`400 {"error":{"message":"property 'stream_options' is unsupported, did you mean 'stream'?","type":"invalid_request_error"}}`,
		`400 {"error":{"message":"Unknown parameter: 'stream_options'.","type":"invalid_request_error","param":"stream_options","code":"unknown_parameter"}}`,
		`422 {"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"Extra inputs are not permitted","input":true}]},"type":"invalid_request_error"}`,
	} {
		model := newFakeModel(t, func(w http.ResponseWriter, _ *http.Request, asked askedModel) {
			if strings.Contains(asked.raw, "stream_options") {
				w.WriteHeader(map[string]int{"400": 400, "422": 422}[refusal[:3]])
				_, _ = io.WriteString(w, refusal[4:])
				return
			}
			_, _ = io.WriteString(w, events(piece("Hello"), "[DONE]"))
		})
		o := newOpenAI(t, model.URL, nil)
		for range 2 {
			if reply, err := o.Run(t.Context(), engine.Turn{Message: "hi"}); err != nil || reply.Text != "Hello" || reply.Usage != nil {
				t.Errorf("%s: %+v, %v", refusal, reply, err)
			}
		}
		if asked := model.all(); len(asked) != 3 || !strings.Contains(asked[0].raw, asks) {
			t.Errorf("%s: asked %d times, at first with %s", refusal, len(asked), asked[0].raw)
		}
	}
	model := newFakeModel(t, says("application/json", saysHello))
	for name, set := range map[string]func(*OpenAI){
		"in a document":     func(o *OpenAI) { o.Stream = new(false) },
		"by the operator":   func(o *OpenAI) { o.Body = []byte(`{"stream_options":{"include_obfuscation":false}}`) },
		"in other spelling": func(o *OpenAI) { o.Body = []byte(`{"Stream_Options":{}}`) },
	} {
		if _, err := newOpenAI(t, model.URL, set).Run(t.Context(), engine.Turn{Message: "hi"}); err != nil {
			t.Error(err)
		}
		if asked := model.last(t).raw; strings.Contains(asked, asks) {
			t.Errorf("%s: asked %s", name, asked)
		}
	}
}
