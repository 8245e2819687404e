package openai

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
)

// events joins the data of server-sent events.
func events(data ...string) string {
	var all strings.Builder
	for _, one := range data {
		all.WriteString("data: " + one + "\n\n")
	}
	return all.String()
}

// piece is a chunk with some text.
func piece(text string) string {
	return `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":` + strconv.Quote(text) + `},"finish_reason":null}]}`
}

const stopPiece = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

// whole is an answer in one document.
func whole(message, finish string) string {
	return `{"object":"chat.completion","choices":[{"index":0,"message":` + message + `,"finish_reason":` + strconv.Quote(finish) + `}],"usage":{"total_tokens":3}}`
}

func TestCompletionsThatAreTaken(t *testing.T) {
	t.Parallel()
	const stream, plain = "text/event-stream", "application/json"
	large := strings.Repeat("x", answers.MaxReply)
	for name, test := range map[string]struct{ contentType, body, want string }{
		"a text":                          {plain, saysHello, "Hello"},
		"text as it is":                   {plain, whole(`{"content":" a\n\u00e9\ud83d\ude00\u0000 "}`, "stop"), " a\né😀\x00 "},
		"parts":                           {plain, whole(`{"content":[{"type":"text","text":"Hel"},{"type":"image_url","image_url":{}},{"type":"text","text":"lo"}]}`, "stop"), "Hello"},
		"parts with thinking":             {plain, whole(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"Hello"}]}`, "stop"), "Hello"},
		"reasoning is dropped":            {plain, whole(`{"content":"Hello","reasoning":"hm","reasoning_content":"hm","thinking":"hm","reasoning_details":[{"text":"hm"}]}`, "stop"), "Hello"},
		"no finish reason":                {plain, `{"choices":[{"message":{"content":"Hello"}}]}`, "Hello"},
		"another finish reason":           {plain, whole(`{"content":"Hello"}`, "eos"), "Hello"},
		"empty tool calls":                {plain, whole(`{"content":"Hello","tool_calls":[],"function_call":null,"refusal":null}`, "stop"), "Hello"},
		"the first of two choices":        {plain, `{"choices":[{"index":1,"message":{"content":"No"}},{"index":0,"message":{"content":"Hello"}}]}`, "Hello"},
		"two choices without an index":    {plain, `{"choices":[{"message":{"content":"Hello"}},{"message":{"content":"No"}}]}`, "Hello"},
		"null errors":                     {plain, `{"error":null,"choices":[{"message":{"content":"Hello"}}]}`, "Hello"},
		"a byte order mark":               {plain, "\ufeff\r\n " + saysHello + "\n", "Hello"},
		"the largest":                     {plain, whole(`{"content":"`+large+`"}`, "stop"), large},
		"JSON of another type":            {"text/plain", saysHello, "Hello"},
		"an event stream of another type": {"text/plain", events(piece("Hello"), "[DONE]"), "Hello"},
		"an event stream as JSON":         {plain, "\n\n" + events(piece("Hello"), "[DONE]"), "Hello"},
		"JSON as an event stream":         {stream, saysHello, "Hello"},

		"OpenAI": {stream, events(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}`,
			piece("Hel"), piece("lo"), stopPiece, `{"choices":[],"usage":{"prompt_tokens":1}}`, "[DONE]"), "Hello"},
		"Azure": {stream, events(`{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false}}}]}`,
			piece("Hello"), stopPiece, "[DONE]"), "Hello"},
		"OpenRouter": {stream, ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n" + events(piece("Hello"), stopPiece, "[DONE]"), "Hello"},
		"Ollama with reasoning": {stream, events(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"hm"},"finish_reason":null}]}`,
			piece("Hello"), stopPiece, "[DONE]"), "Hello"},
		"a gateway's own events":               {stream, "event: hermes.tool.progress\ndata: {\"tool\":\"ls\",\"error\":\"exit 1\"}\n\nevent: ping\ndata: pong\n\n" + events(piece("Hello"), "[DONE]"), "Hello"},
		"named events":                         {stream, "event: message\ndata: " + piece("Hel") + "\n\nevent: chunk\ndata: " + piece("lo") + "\n\n" + events("[DONE]"), "Hello"},
		"no [DONE]":                            {stream, events(piece("Hello"), stopPiece), "Hello"},
		"no finish reason, but [DONE]":         {stream, events(piece("Hello"), "[DONE]"), "Hello"},
		"finish reason and text at once":       {stream, events(piece("Hel"), `{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}`), "Hello"},
		"no blank line at the end":             {stream, events(piece("Hello")) + "data: [DONE]", "Hello"},
		"a finish reason without a blank line": {stream, events(piece("Hello")) + "data: " + stopPiece, "Hello"},
		"no blank lines":                       {stream, "data: " + piece("Hel") + "\ndata: " + piece("lo") + "\ndata: [DONE]\n", "Hello"},
		"no space":                             {stream, "data:" + piece("Hello") + "\n\ndata:[DONE]\n\n", "Hello"},
		"CRLF":                                 {stream, strings.ReplaceAll(events(piece("Hel"), piece("lo"), "[DONE]"), "\n", "\r\n"), "Hello"},
		"CR":                                   {stream, strings.ReplaceAll(events(piece("Hel"), piece("lo"), "[DONE]"), "\n", "\r"), "Hello"},
		"a byte order mark in front of events": {stream, "\ufeff" + events(piece("Hello"), "[DONE]"), "Hello"},
		"data in several lines":                {stream, "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"Hello\"}}]}\n\n" + events("[DONE]"), "Hello"},
		"empty data and other fields":          {stream, "id: 1\nretry: 5\n\ndata\n\ndata:\n\n" + events("{}", piece("Hello"), "[DONE]"), "Hello"},
		"another choice":                       {stream, events(`{"choices":[{"index":1,"delta":{"content":"No"},"finish_reason":"length"}]}`, piece("Hello"), stopPiece, "[DONE]"), "Hello"},
		"content of null":                      {stream, events(`{"choices":[{"delta":{"role":"assistant","content":null}}]}`, piece("Hello"), "[DONE]"), "Hello"},
		"deltas in parts":                      {stream, events(`{"choices":[{"delta":{"content":[{"type":"text","text":"Hel"},{"type":"text","text":"lo"}]}}]}`, "[DONE]"), "Hello"},
		"a message in place of a delta":        {stream, events(`{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}`, "[DONE]"), "Hello"},
		"an emoji in two pieces, as Node cuts": {stream, events(`{"choices":[{"delta":{"content":"a\ud83d"}}]}`, `{"choices":[{"delta":{"content":"\ude00b"}}]}`, "[DONE]"), "a😀b"},
		"half an emoji":                        {stream, events(`{"choices":[{"delta":{"content":"a\ud83d"}}]}`, piece("b"), "[DONE]"), "a\ufffdb"},
		"half an emoji at the end":             {stream, events(`{"choices":[{"delta":{"content":"a\ud83d"}}]}`, "[DONE]"), "a\ufffd"},
		"the other half of an emoji":           {plain, whole(`{"content":"a\\ud83d\ude00\ud83db\ude00"}`, "stop"), "a\\ud83d\ufffd\ufffdb\ufffd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := newFakeModel(t, says(test.contentType, test.body))
			var emitted strings.Builder
			reply, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{Message: "hi", Emit: func(p engine.Progress) { emitted.WriteString(p.Text) }})
			if err != nil || reply.Text != test.want {
				t.Errorf("got %.80q, %v, want %.80q", reply.Text, err, test.want)
			}
			if emitted.String() != test.want {
				t.Errorf("emitted %.80q, want %.80q", emitted.String(), test.want)
			}
		})
	}
}

func TestCompletionsThatAreRefused(t *testing.T) {
	t.Parallel()
	const stream, plain, reading = "text/event-stream", "application/json", "reading the runner's answer: "
	const tooLarge = reading + "the answer is larger than 1048576 bytes"
	const urlHint = "; url must end before /chat/completions, as in http://127.0.0.1:11434/v1"
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for name, test := range map[string]struct{ contentType, body, want string }{
		"an empty answer":               {plain, "", reading + "it is empty"},
		"blank":                         {plain, " \n\n", reading + "it is empty"},
		"a page":                        {"text/html; charset=utf-8", "\n<title>Log in</title>", "the runner answered 200 with text/html: <title>Log in</title>" + urlHint},
		"a page of another type":        {"text/plain", "<html>", reading + "it is not a JSON object: …: <html>" + urlHint},
		"another JSON":                  {plain, `["a"]`, reading + `it is not a JSON object: it is another value: ["a"]` + urlHint},
		"broken JSON":                   {plain, `{"choices":[`, reading + `it is not a JSON object: …`},
		"a key that stands twice":       {plain, `{"choices":[],"choices":[]}`, reading + "it is not a JSON object: a key stands twice in one object…"},
		"deep nesting":                  {plain, `{"choices":` + deep + `}`, reading + "it is not a JSON object: …"},
		"invalid UTF-8":                 {plain, "{\"choices\":[{\"message\":{\"content\":\"\xff\"}}]}", reading + "it is not a JSON object: …"},
		"no choices":                    {plain, `{"choices":[]}`, reading + `it has no choices: {"choices":[]}`},
		"choices of null":               {plain, `{"choices":null}`, reading + `it has no choices: {"choices":null}`},
		"FastAPI's details":             {plain, `{"detail":"Not Found"}`, reading + `it has no choices: {"detail":"Not Found"}`},
		"choices of another kind":       {plain, `{"choices":["a"]}`, reading + `it has no choices: {"choices":["a"]}`},
		"no message":                    {plain, `{"choices":[{}]}`, reading + "it has no text"},
		"blank text":                    {plain, whole(`{"content":" \n"}`, "stop"), reading + "it has no text"},
		"content of null":               {plain, whole(`{"content":null}`, "stop"), reading + "it has no text"},
		"content of another kind":       {plain, whole(`{"content":{"a":1}}`, "stop"), reading + "its content is neither a text nor a list of parts"},
		"reasoning alone":               {plain, whole(`{"content":"","reasoning_content":"hm"}`, "stop"), reading + "it has reasoning and no text; max_tokens in body can allow for more"},
		"tool calls alone":              {plain, whole(`{"content":null,"tool_calls":[{"id":"1","function":{"name":"ls"}}]}`, "tool_calls"), reading + "the model wants to call tools, and this runner has none"},
		"text beside tool calls":        {plain, whole(`{"content":"Let me look.","tool_calls":[{"id":"1"}]}`, "tool_calls"), reading + "the model wants to call tools, and this runner has none: Let me look."},
		"text beside calls that stop":   {plain, whole(`{"content":"Let me look.","tool_calls":[{"id":"1"}]}`, "stop"), reading + "the model wants to call tools, and this runner has none: Let me look."},
		"a function call":               {plain, whole(`{"content":"","function_call":{"name":"ls"}}`, "function_call"), reading + "the model wants to call tools, and this runner has none"},
		"a refusal":                     {plain, whole(`{"content":null,"refusal":"I can't\nhelp"}`, "stop"), reading + "the model refused: I can't"},
		"a refusal beside text":         {plain, whole(`{"content":"Well","refusal":"No"}`, "stop"), reading + "the model refused: No"},
		"a refusal as a part":           {plain, whole(`{"content":[{"type":"refusal","refusal":"No"}]}`, "stop"), reading + "the model refused: No"},
		"too long":                      {plain, whole(`{"content":"Hel"}`, "length"), reading + "it was cut off at the largest number of tokens (finish_reason length); max_tokens in body can allow for more"},
		"filtered":                      {plain, whole(`{"content":"Hel"}`, "content_filter"), reading + "a content filter stopped it (finish_reason content_filter)"},
		"aborted":                       {plain, whole(`{"content":"Hel"}`, "abort"), reading + "the server broke it off (finish_reason abort)"},
		"an error in a 200":             {plain, `{"error":{"message":"Insufficient credits","code":402}}`, reading + "the runner sent an error: Insufficient credits"},
		"an error and choices":          {plain, `{"choices":[{"message":{"content":"Hello"}}],"error":{"message":"No"}}`, reading + "the runner sent an error: No"},
		"Ollama's error":                {plain, `{"error":"model \"x\" not found"}`, reading + `the runner sent an error: model "x" not found`},
		"an error that says nothing":    {plain, `{"error":{}}`, reading + "the runner sent an error: {}"},
		"an older vLLM":                 {plain, `{"object":"error","message":"The model is overloaded","code":503}`, reading + "the runner sent an error: The model is overloaded"},
		"a text that is too large":      {plain, whole(`{"content":"`+strings.Repeat("x", answers.MaxReply+1)+`"}`, "stop"), tooLarge},
		"a document that is too large":  {plain, `{"x":"` + strings.Repeat("x", maxDocument), tooLarge},
		"a cut stream":                  {stream, events(piece("Hel")), reading + "the stream ended without [DONE] or a finish reason"},
		"a cut event":                   {stream, events(piece("Hel")) + "data: " + stopPiece[:20], reading + "the stream ended without [DONE] or a finish reason"},
		"a stream of nothing":           {stream, ": hi\n\n", reading + "the stream ended without [DONE] or a finish reason"},
		"[DONE] alone":                  {stream, events("[DONE]"), reading + "it has no choices"},
		"roles and [DONE]":              {stream, events(`{"choices":[{"delta":{"role":"assistant"}}]}`, "[DONE]"), reading + "it has no text"},
		"OpenClaw's error":              {stream, events(`{"error":{"message":"internal error","type":"api_error"}}`, "[DONE]"), reading + "the runner sent an error: internal error"},
		"an error after text":           {stream, events(piece("Hel"), `{"error":"broken"}`, "[DONE]"), reading + "the runner sent an error: broken"},
		"an error after the finish":     {stream, events(piece("Hel"), stopPiece, `{"error":"broken"}`, "[DONE]"), reading + "the runner sent an error: broken"},
		"OpenRouter's error":            {stream, events(piece("Hel"), `{"error":{"code":"server_error","message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`), reading + "the runner sent an error: Provider disconnected"},
		"a finish reason of error":      {stream, events(piece("Hel"), `{"choices":[{"delta":{},"finish_reason":"error"}]}`, "[DONE]"), reading + "the server broke it off (finish_reason error)"},
		"an error event":                {stream, events(piece("Hel")) + "event: error\ndata: {\"message\":\"overloaded\"}\n\n", reading + "the runner sent an error: overloaded"},
		"an error event of text":        {stream, "event: error\ndata: overloaded\n\n", reading + "the runner sent an error: overloaded"},
		"an error event of nothing":     {stream, "event: error\n\n", reading + "the runner sent an error"},
		"a stream that is too long":     {stream, events(piece("Hel"), `{"choices":[{"delta":{},"finish_reason":"length"}]}`, "[DONE]"), reading + "it was cut off at the largest number of tokens (finish_reason length); max_tokens in body can allow for more"},
		"a refusal in pieces":           {stream, events(`{"choices":[{"delta":{"refusal":"I "}}]}`, `{"choices":[{"delta":{"refusal":"can't"}}]}`, stopPiece, "[DONE]"), reading + "the model refused: I can't"},
		"text before calls in pieces":   {stream, events(`{"choices":[{"delta":{"content":"Let me look."}}]}`, `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"ls"}}]}}]}`, `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]"), reading + "the model wants to call tools, and this runner has none: Let me look."},
		"tool calls in pieces":          {stream, events(`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"ls"}}]}}]}`, `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]"), reading + "the model wants to call tools, and this runner has none"},
		"an event that is no JSON":      {stream, events("hello"), reading + "an event is not a JSON object: …: hello"},
		"an event of broken JSON":       {stream, events(piece("Hel"), `{"choices":`), reading + `an event is not a JSON object: …`},
		"pieces that are too large":     {stream, strings.Repeat(events(piece(strings.Repeat("x", 1<<16))), 20), tooLarge},
		"a line that does not end":      {stream, "data: " + strings.Repeat("x", maxDocument+1), tooLarge},
		"data that does not end":        {stream, strings.Repeat("data: "+strings.Repeat("x", 1<<16)+"\n", 260), tooLarge},
		"another status in the 200s":    {"201", saysHello, "the runner answered 201…; it must answer 200"},
		"a redirect":                    {"302", "", "the runner answered 302; it must answer 200, and redirects are not followed"},
		"an unknown model":              {"404", `{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error"}}`, `the runner answered 404: model "x" not found, try pulling it first`},
		"an unknown path":               {"404", "404 page not found", "the runner answered 404: 404 page not found" + urlHint},
		"FastAPI's 404":                 {"404", `{"detail":"Not Found"}`, "the runner answered 404: Not Found"},
		"a server error":                {"500", `{"error":"out of memory"}`, "the runner answered 500: out of memory"},
		"a bad gateway":                 {"502", "<html>\n<h1>Bad Gateway</h1>", "the runner answered 502: <html>"},
		"no key":                        {"401", `{"error":{"message":"No auth credentials found"}}`, "the runner answered 401: No auth credentials found; key is not set"},
		"a status that says no more":    {"500", "", "the runner answered 500"},
		"an error with a message alone": {"400", `{"message":"bad"}`, "the runner answered 400: bad"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := says(test.contentType, test.body)
			if status, err := strconv.Atoi(test.contentType); err == nil {
				answer = func(w http.ResponseWriter, _ *http.Request, _ askedModel) {
					w.Header().Set("Content-Type", plain)
					w.WriteHeader(status)
					_, _ = io.WriteString(w, test.body)
				}
			}
			model := newFakeModel(t, answer)
			reply, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{Message: "hi"})
			if err == nil {
				t.Fatalf("got %.80q", reply.Text)
			}
			start, end, cut := strings.Cut(test.want, "…")
			if got := err.Error(); got != test.want && (!cut || !strings.HasPrefix(got, start) || !strings.HasSuffix(got, end)) {
				t.Errorf("got  %.300s\nwant %s", got, test.want)
			}
			var unavailable *engine.UnavailableError
			waits := strings.HasPrefix(test.contentType, "5") || name == "an older vLLM" // which tells of 503
			if errors.As(err, &unavailable) != waits {
				t.Errorf("the turn counts as not begun: %t", !waits)
			}
			if len(model.all()) != 1 {
				t.Errorf("the model was asked %d times", len(model.all()))
			}
		})
	}
}

func TestBusyServersAreAskedLater(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 500, 502, 503, 529} {
		model := newFakeModel(t, func(w http.ResponseWriter, _ *http.Request, _ askedModel) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":{"message":"slow down"}}`)
		})
		_, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{Message: "hi"})
		var unavailable *engine.UnavailableError
		if !errors.As(err, &unavailable) || !unavailable.Busy || unavailable.RetryAfter != 7*time.Second ||
			err.Error() != "the runner answered "+strconv.Itoa(status)+": slow down" {
			t.Errorf("%d: got %+v, %v", status, unavailable, err)
		}
	}
}

func TestCompressedCompletionIsRefused(t *testing.T) {
	t.Parallel()
	model := newFakeModel(t, func(w http.ResponseWriter, r *http.Request, _ askedModel) {
		if asked := r.Header.Get("Accept-Encoding"); asked != "" {
			t.Errorf("the model was asked for %s", asked)
		}
		w.Header().Set("Content-Encoding", "gzip")
		zipped := gzip.NewWriter(w)
		_, _ = io.WriteString(zipped, saysHello)
		_ = zipped.Close()
	})
	reply, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{Message: "hi"})
	if !errors.Is(err, httpcall.ErrEncoded) || reply.Text != "" {
		t.Errorf("got %q, %v", reply.Text, err)
	}
}
