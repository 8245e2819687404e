package openai

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// fakeModel is a server that speaks Chat Completions, and keeps what it was asked.
type fakeModel struct {
	*httptest.Server
	mu    sync.Mutex
	asked []askedModel
}

type askedModel struct {
	path   string
	header http.Header
	raw    string
	body   struct {
		Model          string          `json:"model"`
		Messages       []chatMessage   `json:"messages"`
		Stream         bool            `json:"stream"`
		ResponseFormat json.RawMessage `json:"response_format"`
	}
}

// newFakeModel answers with answer, which is told what was asked.
func newFakeModel(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, asked askedModel)) *fakeModel {
	t.Helper()
	f := new(fakeModel)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		asked := askedModel{path: r.URL.String(), header: r.Header, raw: string(data)}
		if err := json.Unmarshal(data, &asked.body); err != nil && len(data) > 0 {
			t.Errorf("the request is no JSON: %v\n%s", err, data)
		}
		f.mu.Lock()
		f.asked = append(f.asked, asked)
		f.mu.Unlock()
		answer(w, r, asked)
	}))
	t.Cleanup(f.Close)
	return f
}

// all returns what was asked.
func (f *fakeModel) all() []askedModel {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]askedModel(nil), f.asked...)
}

// last returns what was asked last.
func (f *fakeModel) last(t *testing.T) askedModel {
	t.Helper()
	all := f.all()
	if len(all) == 0 {
		t.Fatal("the model was not asked")
	}
	return all[len(all)-1]
}

// says answers every request with an answer of that type.
func says(contentType, body string) func(http.ResponseWriter, *http.Request, askedModel) {
	return func(w http.ResponseWriter, _ *http.Request, _ askedModel) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

const saysHello = `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}`

func newOpenAI(t *testing.T, url string, set func(*OpenAI)) *OpenAI {
	t.Helper()
	o := &OpenAI{URL: url + "/v1", Model: "small"}
	if set != nil {
		set(o)
	}
	if err := o.Provision(caddy.Context{Context: t.Context()}); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Cleanup() })
	return o
}

func TestOpenAIAnswersPlainly(t *testing.T) {
	t.Parallel()
	model := newFakeModel(t, says("application/json", saysHello))
	o := newOpenAI(t, model.URL, func(o *OpenAI) { o.Stream, o.Key = new(false), "sk-secret" })
	sent := 0
	reply, err := o.Run(t.Context(), engine.Turn{RunID: "run", ChatID: "c", Action: engine.Agent, Message: "<hi> & \u2028", MemoryPreset: engine.MemoryDisabled, Sent: func() { sent++ }})
	if err != nil || reply.Text != "Hello" || reply.Session != "" || sent != 1 {
		t.Fatalf("got %+v, %v, sent %d times", reply, err, sent)
	}
	asked := model.last(t)
	if want := `{"model":"small","messages":[{"role":"user","content":"<hi> & \u2028"}],"stream":false}`; asked.raw != want || asked.path != "/v1/chat/completions" {
		t.Errorf("asked %s %s, want %s", asked.path, asked.raw, want)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer sk-secret", "Content-Type": "application/json", "Accept": "application/json",
		"Idempotency-Key": "run:turn", "User-Agent": "caddyhooks",
	} {
		if got := asked.header.Get(name); got != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
}

func TestOpenAIAnswersAsAStream(t *testing.T) {
	t.Parallel()
	model := newFakeModel(t, says("text/event-stream", "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"+
		"data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n: still here\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"lo\"}}]}\n\n"+
		"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"total_tokens\":3}}\n\ndata: [DONE]\n\n"))
	o := newOpenAI(t, model.URL, nil)
	var emitted []string
	reply, err := o.Run(t.Context(), engine.Turn{RunID: "run", Message: "hi", Emit: func(p engine.Progress) { emitted = append(emitted, p.Text) }})
	if err != nil || reply.Text != "Hello" || strings.Join(emitted, "|") != "Hel|lo" {
		t.Fatalf("got %+v, %v, emitted %q", reply, err, emitted)
	}
	if !model.last(t).body.Stream {
		t.Error("no stream was asked for")
	}
}

func TestOpenAIThatIsNotThereIsUnavailable(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	o := newOpenAI(t, gone.URL, nil)
	_, err := o.Run(t.Context(), engine.Turn{Message: "hi"})
	var unavailable *engine.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Busy || !strings.HasPrefix(err.Error(), "reaching the runner: dial tcp ") {
		t.Errorf("got %v", err)
	}
}
