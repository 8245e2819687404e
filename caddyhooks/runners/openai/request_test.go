package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// roles are the messages of a request, in short.
func (a askedModel) roles() string {
	var all []string
	for _, m := range a.body.Messages {
		all = append(all, m.Role+":"+m.Content)
	}
	return strings.Join(all, "|")
}

func longPast(turns int) (past []engine.PastTurn) {
	for i := range turns {
		past = append(past, engine.PastTurn{Message: fmt.Sprintf("q%d", i), Reply: fmt.Sprintf("a%d", i)})
	}
	return past
}

func TestHistoryIsSentAsTheMemoryPresetSays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		preset string
		set    func(*OpenAI)
		turns  int
	}{
		{"coding_fast", nil, 10}, {"general_chat", nil, 10}, {"ops_support", nil, 10},
		{"coding_balanced", nil, 20}, {"research_analyst", nil, 20}, {"coding_deep", nil, 50}, {"of_tomorrow", nil, 20},
		{"coding_deep", func(o *OpenAI) { o.History = new(15) }, 15},
		{"coding_fast", func(o *OpenAI) { o.History = new(15) }, 10},
		{"coding_deep", func(o *OpenAI) { o.History = new(0) }, 0},
		{"coding_fast", func(o *OpenAI) { o.Memory = map[string]Memory{"coding_fast": {History: new(30)}} }, 30},
		{"coding_fast", func(o *OpenAI) { o.Memory = map[string]Memory{"coding_fast": {History: new(0)}} }, 0},
		{"coding_fast", func(o *OpenAI) { o.SessionHeader = "X-Session" }, 0},
		{"coding_fast", func(o *OpenAI) { o.SessionFrom = "X-Session" }, 0},
	} {
		model := newFakeModel(t, says("application/json", saysHello))
		chat := &runnertest.Chat{History: longPast(100)}
		o := newOpenAI(t, model.URL, test.set)
		if _, err := o.Run(t.Context(), engine.Turn{ChatID: "c", Message: "now", MemoryPreset: test.preset, Chat: chat}); err != nil {
			t.Fatal(err)
		}
		messages := model.last(t).body.Messages
		if len(messages) != 2*test.turns+1 || messages[len(messages)-1] != (chatMessage{"user", "now"}) {
			t.Errorf("%s: %d messages were sent, want %d turns: %v", test.preset, len(messages), test.turns, messages)
		}
		if test.turns > 0 && (messages[0] != chatMessage{"user", fmt.Sprintf("q%d", 100-test.turns)} || messages[1].Role != "assistant" || chat.Bytes != 64<<10) {
			t.Errorf("%s: the history begins with %v, and has at most %d bytes", test.preset, messages[0], chat.Bytes)
		}
	}
}

func TestHalfTurnsAreNotSent(t *testing.T) {
	t.Parallel()
	model := newFakeModel(t, says("application/json", saysHello))
	o := newOpenAI(t, model.URL, func(o *OpenAI) { o.HistoryBytes = 100 })
	chat := &runnertest.Chat{History: []engine.PastTurn{{Message: "q0"}, {Message: "q1", Reply: "a1"}, {Message: " ", Reply: "a2"}}}
	if _, err := o.Run(t.Context(), engine.Turn{Message: "now", MemoryPreset: "general_chat", Chat: chat}); err != nil {
		t.Fatal(err)
	}
	if got := model.last(t).roles(); got != "user:q1|assistant:a1|user:now" || chat.Bytes != 100 {
		t.Errorf("sent %s, of at most %d bytes", got, chat.Bytes)
	}
}

// A turn without a Chat has no memory: the preset is disabled, or it is a repair.
func TestTurnsWithoutMemorySendNoneOfIt(t *testing.T) {
	t.Parallel()
	for _, turn := range []engine.Turn{
		{ChatID: "c", Message: "now", MemoryPreset: engine.MemoryDisabled},
		{ChatID: "c", Message: "now", MemoryPreset: engine.MemoryDisabled, Repair: 1},
	} {
		model := newFakeModel(t, func(w http.ResponseWriter, _ *http.Request, _ askedModel) {
			w.Header().Set("X-Conversation", "made-by-the-server")
			_, _ = io.WriteString(w, saysHello)
		})
		for _, set := range []func(*OpenAI){
			func(o *OpenAI) { o.SessionHeader, o.SessionPrefix = "X-Session", "hooks:" },
			func(o *OpenAI) { o.SessionFrom = "X-Conversation" },
			func(o *OpenAI) { o.SessionFrom, o.SessionHeader = "X-Conversation", "X-Session" },
			nil,
		} {
			o := newOpenAI(t, model.URL, func(o *OpenAI) {
				o.Memory = map[string]Memory{"general_chat": {Model: "large", Headers: map[string]string{"X-Scope": "general"}}}
				if set != nil {
					set(o)
				}
			})
			reply, err := o.Run(t.Context(), turn)
			if err != nil {
				t.Fatal(err)
			}
			asked := model.last(t)
			if asked.roles() != "user:now" || asked.body.Model != "small" || reply.Session != "" ||
				asked.header.Get("X-Session")+asked.header.Get("X-Conversation")+asked.header.Get("X-Scope") != "" {
				t.Errorf("sent %s %v, session %q", asked.raw, asked.header, reply.Session)
			}
		}
	}
}

func TestHistoryThatCannotBeReadFailsTheTurn(t *testing.T) {
	t.Parallel()
	for what, set := range map[string]func(*OpenAI){"history": nil, "session": func(o *OpenAI) { o.SessionFrom = "X-Session" }} {
		model := newFakeModel(t, says("application/json", saysHello))
		_, err := newOpenAI(t, model.URL, set).Run(t.Context(), engine.Turn{MemoryPreset: "general_chat", Chat: &runnertest.Chat{Err: errors.New("disk")}})
		if err == nil || err.Error() != "reading the "+what+" of the chat: disk" || len(model.all()) > 0 {
			t.Errorf("got %v, after %d requests", err, len(model.all()))
		}
	}
}

func TestModelOfATurn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tier, preset, header string
		body, inHeader       string
	}{
		{"", "general_chat", "", "small", ""},
		{"deep", "general_chat", "", "large", ""},
		{"smart", "general_chat", "", "small", ""},
		{"smart", "coding_deep", "", "medium", ""},
		{"deep", "coding_deep", "", "large", ""},
		{"", "coding_deep", "X-Model", "small", "medium"},
		{"deep", "coding_deep", "X-Model", "small", "large"},
		{"", "general_chat", "X-Model", "small", ""},
	} {
		model := newFakeModel(t, says("application/json", saysHello))
		o := newOpenAI(t, model.URL, func(o *OpenAI) {
			o.Tiers = map[string]string{"deep": "large"}
			o.Memory = map[string]Memory{"coding_deep": {Model: "medium"}}
			o.ModelHeader = test.header
		})
		if _, err := o.Run(t.Context(), engine.Turn{Message: "hi", Tier: test.tier, MemoryPreset: test.preset, Chat: &runnertest.Chat{}}); err != nil {
			t.Fatal(err)
		}
		asked := model.last(t)
		if asked.body.Model != test.body || asked.header.Get("X-Model") != test.inHeader {
			t.Errorf("%+v: got %s and %q", test, asked.body.Model, asked.header.Get("X-Model"))
		}
	}
}

func TestHeadersAndBodyOfTheOperator(t *testing.T) {
	t.Setenv("OPENAI_TEST_HEADER", "from-the-environment")
	model := newFakeModel(t, says("application/json", saysHello))
	o := newOpenAI(t, model.URL, func(o *OpenAI) {
		o.URL += "?api-version=1"
		o.Headers = map[string]string{"X-Team": "hooks", "api-key": "{env.OPENAI_TEST_HEADER}", "X-Scope": "all"}
		o.Memory = map[string]Memory{"ops_support": {Headers: map[string]string{"X-Scope": "ops"}}}
		o.Body = json.RawMessage(`{"temperature": 0.20, "stop": ["<end>"], "response_format": {"type": "text"}}`)
	})
	turn := runnertest.ExampleTurn()
	turn.Chat, turn.ResponseSchema = &runnertest.Chat{}, nil
	if _, err := o.Run(t.Context(), turn); err != nil {
		t.Fatal(err)
	}
	asked := model.last(t)
	if !strings.HasSuffix(asked.raw, `,"stream":true,"stream_options":{"include_usage":true},"response_format":{"type": "text"},"temperature":0.20,"stop":["<end>"]}`) || asked.path != "/v1/chat/completions?api-version=1" {
		t.Errorf("sent %s %s", asked.path, asked.raw)
	}
	for name, want := range map[string]string{
		"X-Team": "hooks", "Api-Key": "from-the-environment", "X-Scope": "ops", "Traceparent": turn.TraceParent, "Authorization": "",
	} {
		if got := asked.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestSystemTexts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		system string
		turn   engine.Turn
		want   string
	}{
		"none":                     {"", engine.Turn{Action: engine.Agent}, ""},
		"the operator's":           {" Be brief.\n", engine.Turn{Action: engine.Agent}, "Be brief."},
		"a schema":                 {"", engine.Turn{Action: engine.Agent, System: "As JSON."}, "As JSON."},
		"all":                      {"Be brief.", engine.Turn{Action: engine.Wake, System: "As JSON."}, "Be brief.\n\n" + turns.ExternalNotice + "\n\nAs JSON."},
		"outside text":             {"", engine.Turn{Action: engine.Agent, Message: "a [EXTERNAL WEBHOOK DATA id=1]b"}, turns.ExternalNotice},
		"outside text of the past": {"", engine.Turn{Action: engine.Agent, MemoryPreset: "general_chat", Chat: &runnertest.Chat{History: []engine.PastTurn{{Message: "[EXTERNAL WEBHOOK DATA] id=1", Reply: "a"}}}}, turns.ExternalNotice},
	} {
		model := newFakeModel(t, says("application/json", saysHello))
		if _, err := newOpenAI(t, model.URL, func(o *OpenAI) { o.System = test.system }).Run(t.Context(), test.turn); err != nil {
			t.Fatal(err)
		}
		got := ""
		if first := model.last(t).body.Messages[0]; first.Role == "system" {
			got = first.Content
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestSystemFileIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "system.txt")
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now().Add(-time.Hour)
	write("one", start)
	core, logs := observer.New(zap.WarnLevel)
	w, err := watchText(file, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	want := func(text string, warnings int) {
		t.Helper()
		if got := w.read(); got != text || logs.Len() != warnings {
			t.Errorf("got %q after %d warnings, want %q after %d", got, logs.Len(), text, warnings)
		}
	}
	want("one", 0)
	write("two", start.Add(time.Second))
	want("two", 0)
	write("", start.Add(2*time.Second)) // as it is while it is written
	want("two", 1)
	want("two", 1)
	write("\xff", start.Add(3*time.Second))
	want("two", 1)
	write("three", start.Add(4*time.Second))
	want("three", 1)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	want("three", 2)
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	want("three", 2)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write("four", start.Add(5*time.Second))
	want("four", 2)

	for _, path := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		o := &OpenAI{URL: "http://127.0.0.1:1/v1", Model: "m", SystemFile: path}
		if err := o.Provision(caddy.Context{Context: t.Context()}); err == nil || !strings.HasPrefix(err.Error(), "runner openai: the system_file ") {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestSessionsOfTwoChatsDiffer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	chats := []string{"", "a", "A", "%41", "%61", "a b", "a%20b", "a%2520b", "ä", "\u00e4", "a\u0308", "%c3%a4", "Ä", "hooks:a", "a:", ":a", "%",
		"%25", "a\u00a0b", "a\xff", "a\xfe", "webhook:default", "Webhook:Default", long, long + "y", strings.ToUpper(long), strings.Repeat("ä", 120), strings.Repeat("Ä", 120), " a", "a ", "😀"}
	chats = append(chats, sessionKey("", long), sessionKey("", strings.Repeat("Ä", 120)))
	seen := make(map[string]string)
	for _, chat := range chats {
		key := sessionKey("hooks:", chat)
		if before, ok := seen[strings.ToLower(key)]; ok && before != chat {
			t.Errorf("%q and %q are both called %q", before, chat, key)
		}
		seen[strings.ToLower(key)] = chat
		if !sendable(key) || !strings.HasPrefix(key, "hooks:") || len(key) > 256 {
			t.Errorf("%q is called %q", chat, key)
		}
	}
	for chat, want := range map[string]string{"webhook:default": "hooks:webhook:default", "GH #1": "hooks:%47%48%20#1", "ä": "hooks:%c3%a4"} {
		if got := sessionKey("hooks:", chat); got != want {
			t.Errorf("%s is called %s, want %s", chat, got, want)
		}
	}
}

func FuzzSessionKey(f *testing.F) {
	f.Add("a", "A")
	f.Add("%41", "A")
	f.Add(strings.Repeat("x", 300), "%sha256:")
	f.Fuzz(func(t *testing.T, a, b string) {
		one, other := sessionKey("p:", a), sessionKey("p:", b)
		if (a == b) != strings.EqualFold(one, other) || !sendable(one) || len(one) > 256 {
			t.Errorf("%q is called %q, %q is called %q", a, one, b, other)
		}
	})
}

func TestSessionHeaderNamesTheChat(t *testing.T) {
	t.Parallel()
	model := newFakeModel(t, says("application/json", saysHello))
	o := newOpenAI(t, model.URL, func(o *OpenAI) { o.SessionHeader, o.SessionPrefix = "X-Session", "hooks:" })
	for _, chat := range []string{"one", "two"} {
		reply, err := o.Run(t.Context(), engine.Turn{ChatID: chat, Message: "now", MemoryPreset: "general_chat", Chat: &runnertest.Chat{History: longPast(3), SessionID: "kept"}})
		if err != nil || reply.Session != "" {
			t.Fatalf("got %+v, %v", reply, err)
		}
		asked := model.last(t)
		if asked.header.Get("X-Session") != "hooks:"+chat || asked.roles() != "user:now" {
			t.Errorf("sent %q, %s", asked.header.Get("X-Session"), asked.roles())
		}
	}
}

func TestSessionThatTheServerNamesIsSentBack(t *testing.T) {
	t.Parallel()
	for back, set := range map[string]func(*OpenAI){
		"X-Conversation": func(o *OpenAI) { o.SessionFrom = "x-conversation" },
		"X-Session": func(o *OpenAI) {
			o.SessionFrom, o.SessionHeader, o.SessionPrefix = "X-Conversation", "X-Session", "hooks:"
		},
	} {
		names := []string{"first", "second", strings.Repeat("x", 2000), ""}
		model := newFakeModel(t, func(w http.ResponseWriter, _ *http.Request, _ askedModel) {
			w.Header().Set("X-Conversation", names[0])
			_, _ = io.WriteString(w, saysHello)
		})
		o := newOpenAI(t, model.URL, set)
		chat := &runnertest.Chat{History: longPast(3)}
		for i, kept := range []string{"first", "second", "", ""} {
			sent := chat.SessionID
			reply, err := o.Run(t.Context(), engine.Turn{ChatID: "c", Message: "now", MemoryPreset: "general_chat", Chat: chat})
			if err != nil || reply.Session != kept {
				t.Errorf("%d: got session %q, %v, want %q", i, reply.Session, err, kept)
			}
			asked := model.last(t)
			if asked.header.Get(back) != sent || asked.header.Get("X-Session")+asked.header.Get("X-Conversation") != sent || asked.roles() != "user:now" {
				t.Errorf("%d: sent %v %s, want the session %q", i, asked.header, asked.roles(), sent)
			}
			if kept != "" {
				chat.SessionID = kept
			}
			names = names[1:]
		}
	}
}

// A server may have lost the session that it named: it is asked again as in a new chat.
func TestSessionThatTheServerHasLostIsRenewed(t *testing.T) {
	t.Parallel()
	model := newFakeModel(t, func(w http.ResponseWriter, r *http.Request, _ askedModel) {
		if r.Header.Get("X-Conversation") != "" {
			w.WriteHeader(404)
			return
		}
		w.Header().Set("X-Conversation", "new")
		_, _ = io.WriteString(w, saysHello)
	})
	o := newOpenAI(t, model.URL, func(o *OpenAI) { o.SessionFrom = "X-Conversation" })
	reply, err := o.Run(t.Context(), engine.Turn{RunID: "r", MemoryPreset: "general_chat", Chat: &runnertest.Chat{SessionID: "old"}})
	if err != nil || reply.Session != "new" || len(model.all()) != 2 {
		t.Errorf("got %+v, %v after %d requests", reply, err, len(model.all()))
	}
}

// The session that a server made is kept though the turn fails: it holds what was asked.
func TestSessionOfATurnThatFailsIsKept(t *testing.T) {
	t.Parallel()
	model := newFakeModel(t, func(w http.ResponseWriter, _ *http.Request, _ askedModel) {
		w.Header().Set("X-Conversation", "new")
		_, _ = io.WriteString(w, whole(`{"content":"Hel"}`, "length"))
	})
	o := newOpenAI(t, model.URL, func(o *OpenAI) { o.SessionFrom = "X-Conversation" })
	if reply, err := o.Run(t.Context(), engine.Turn{MemoryPreset: "general_chat", Chat: &runnertest.Chat{}}); err == nil || reply.Session != "new" {
		t.Errorf("got %+v, %v", reply, err)
	}
}

func TestResponseFormat(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type": "object"}`)
	for _, test := range []struct {
		format string
		turn   engine.Turn
		want   string
	}{
		{"", engine.Turn{ResponseSchema: schema}, `{"type":"json_schema","json_schema":{"name":"answer","schema":{"type": "object"}}}`},
		{"json_schema", engine.Turn{ResponseSchema: schema, Repair: 1}, `{"type":"json_schema","json_schema":{"name":"answer","schema":{"type": "object"}}}`},
		{"json_object", engine.Turn{ResponseSchema: schema}, `{"type":"json_object"}`},
		{"off", engine.Turn{ResponseSchema: schema}, ""},
		{"json_schema", engine.Turn{}, ""},
	} {
		model := newFakeModel(t, says("application/json", saysHello))
		if _, err := newOpenAI(t, model.URL, func(o *OpenAI) { o.ResponseFormat = test.format }).Run(t.Context(), test.turn); err != nil {
			t.Fatal(err)
		}
		if got := string(model.last(t).body.ResponseFormat); got != test.want {
			t.Errorf("%s: got %s, want %s", test.format, got, test.want)
		}
	}
}

func TestServerThatRefusesTheFormatIsAskedWithoutIt(t *testing.T) {
	t.Parallel()
	model := newFakeModel(t, func(w http.ResponseWriter, _ *http.Request, asked askedModel) {
		if asked.body.ResponseFormat != nil {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":{"message":"Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.","param":"response_format"}}`)
			return
		}
		_, _ = io.WriteString(w, saysHello)
	})
	o := newOpenAI(t, model.URL, func(o *OpenAI) { o.Tiers = map[string]string{"deep": "large"} })
	ask := func(tier string, requests int) {
		t.Helper()
		before, sent := len(model.all()), 0
		turn := engine.Turn{RunID: "r", Tier: tier, ResponseSchema: json.RawMessage(`{}`), Sent: func() { sent++ }}
		if reply, err := o.Run(t.Context(), turn); err != nil || reply.Text != "Hello" || sent != 1 {
			t.Errorf("got %+v, %v, sent %d times", reply, err, sent)
		}
		if got := len(model.all()) - before; got != requests {
			t.Errorf("%d requests were made, want %d", got, requests)
		}
	}
	ask("", 2)
	if first, second := model.all()[0].header.Get("Idempotency-Key"), model.all()[1].header.Get("Idempotency-Key"); first != "r:turn" || second != "r:turn:2" {
		t.Errorf("the keys are %s and %s", first, second)
	}
	ask("", 1) // which is remembered
	ask("deep", 2)
	o.formats.mu.Lock()
	o.formats.until["small"] = time.Now().Add(-time.Second) // for some minutes
	o.formats.mu.Unlock()
	ask("", 2)
}

func TestOtherRefusalsAreNotAskedAgain(t *testing.T) {
	t.Parallel()
	for status, body := range map[int]string{400: `{"error":"context is too long"}`, 500: `{"error":"response_format"}`} {
		model := newFakeModel(t, func(w http.ResponseWriter, _ *http.Request, _ askedModel) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
		_, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{ResponseSchema: json.RawMessage(`{}`)})
		if err == nil || len(model.all()) != 1 {
			t.Errorf("%d: got %v after %d requests", status, err, len(model.all()))
		}
	}
}

func TestSecretsOfOpenAIAreInNoError(t *testing.T) {
	t.Parallel()
	const key, header, password = "sk-key-0123456789", "header-secret/1", "pass-word-1"
	for _, status := range []int{200, 401, 500, 503} {
		model := newFakeModel(t, func(w http.ResponseWriter, r *http.Request, _ askedModel) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"error":{"message":"bad key %s, %s and %s","raw":%q}}`, key, header, password, r.Header)
		})
		o := newOpenAI(t, strings.Replace(model.URL, "://", "://user:"+password+"@", 1), func(o *OpenAI) {
			o.Key = key
			o.Headers = map[string]string{"X-A": "Token " + header}
			o.Memory = map[string]Memory{"ops_support": {Headers: map[string]string{"X-B": header + "2"}}}
		})
		_, err := o.Run(t.Context(), engine.Turn{MemoryPreset: "ops_support", Chat: &runnertest.Chat{}})
		if err == nil {
			t.Fatal("no error")
		}
		all := err.Error()
		var answer engine.AnswerError
		if errors.As(err, &answer) {
			all += answer.Answer()
		}
		for _, secret := range []string{key, header, password, "header-secret"} {
			if strings.Contains(all, secret) || strings.Contains(o.Redact("x"+secret+"x"), key) {
				t.Errorf("%d: the error has %s: %s", status, secret, all)
			}
		}
		if status == 401 && !strings.HasSuffix(err.Error(), "; check the line key: the server does not accept it") {
			t.Errorf("got %v", err)
		}
		var unavailable *engine.UnavailableError
		if errors.As(err, &unavailable) != (status >= 500) {
			t.Errorf("%d: got %T", status, err)
		}
		if o.Address() != model.URL {
			t.Errorf("the address is %s", o.Address())
		}
	}
}

func TestOpenAIConfigurationsThatAreRefused(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]func(*OpenAI){
		"runner openai: the key names the environment variable NOT_SET_X, which is not set":                 func(o *OpenAI) { o.Key = "{env.NOT_SET_X}" },
		"runner openai: the key has spaces or other characters in it that cannot be sent":                   func(o *OpenAI) { o.Key = "a b" },
		"runner openai: the value of header X-A names the environment variable NOT_SET_X, which is not set": func(o *OpenAI) { o.Headers = map[string]string{"X-A": "{env.NOT_SET_X}"} },
		"runner openai: the value of header X-A is blank, or has characters in it that cannot be sent":      func(o *OpenAI) { o.Headers = map[string]string{"X-A": "a\nb"} },
		"runner openai needs a URL that starts with http:// or https:// and names a host":                   func(o *OpenAI) { o.URL = "" },
		"runner openai: a model is missing, as in: model llama3.2":                                          func(o *OpenAI) { o.Model = "" },
		"runner openai: body must not set model, messages or stream":                                        func(o *OpenAI) { o.Body = json.RawMessage(`{"Mod\u0065l":"x"}`) },
		"runner openai: history must not be negative":                                                       func(o *OpenAI) { o.History = new(-1) },
		"runner openai: idle_timeout must not be negative":                                                  func(o *OpenAI) { o.IdleTimeout = -1 },
		"runner openai: session_prefix needs session_header":                                                func(o *OpenAI) { o.SessionPrefix = "a" },
		"runner openai: system and system_file cannot both be set":                                          func(o *OpenAI) { o.System, o.SystemFile = "a", os.DevNull },
		"runner openai: response_format must be json_schema, json_object or off":                            func(o *OpenAI) { o.ResponseFormat = "xml" },
		"runner openai: the model of tier deep is empty":                                                    func(o *OpenAI) { o.Tiers = map[string]string{"deep": ""} },
		"runner openai: memory disabled never sends a history or a session, and takes no options":           func(o *OpenAI) { o.Memory = map[string]Memory{"disabled": {}} },
		"runner openai: the history of memory ops_support must not be negative":                             func(o *OpenAI) { o.Memory = map[string]Memory{"ops_support": {History: new(-1)}} },
		"runner openai: the name of a header must consist of letters, digits and dashes":                    func(o *OpenAI) { o.Headers = map[string]string{"a b": "c"} },
		"runner openai: header X-S has another value in each chat or tier":                                  func(o *OpenAI) { o.SessionFrom, o.Headers = "x-s", map[string]string{"X-S": "c"} },
		"the URL of runner openai must end before /chat/completions":                                        func(o *OpenAI) { o.URL += "/chat/completions/" },
	} {
		o := &OpenAI{URL: "http://127.0.0.1:1/v1", Model: "m"}
		set(o)
		err := o.Provision(caddy.Context{Context: t.Context()})
		if err == nil || o.System != "" {
			err = o.Validate()
		}
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// hang is a server that says something and then nothing until it is released.
func hang(said string) (answer func(http.ResponseWriter, *http.Request, askedModel), gone chan struct{}) {
	gone = make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request, _ askedModel) {
		w.Header().Set("Content-Type", "text/event-stream")
		if said != "" {
			_, _ = io.WriteString(w, said)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		close(gone)
	}, gone
}

func TestSilentServerFailsTheTurn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ said, want string }{
		"from the start": {"", "the runner was silent for 50ms"},
		"after a while":  {events(piece("Hel")), "the runner was silent for 50ms"},
	} {
		answer, gone := hang(test.said)
		model := newFakeModel(t, answer)
		o := newOpenAI(t, model.URL, func(o *OpenAI) { o.IdleTimeout = caddy.Duration(50 * time.Millisecond) })
		_, err := o.Run(t.Context(), engine.Turn{})
		var unavailable *engine.UnavailableError
		if err == nil || err.Error() != test.want || errors.As(err, &unavailable) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
		<-gone // the connection is closed
	}
}

// Comments are a sign of life, for as long as they come.
func TestCommentsKeepATurnAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		defer end(nil)
		quiet := &httpcall.Silence{Limit: time.Minute, End: end}
		defer quiet.Stop()
		quiet.Heard()
		body, server := io.Pipe()
		defer context.AfterFunc(ctx, func() { _ = body.CloseWithError(context.Cause(ctx)) })()
		go func() {
			for range 10 {
				time.Sleep(40 * time.Second)
				_, _ = io.WriteString(server, ": at work\n\n")
			}
			_, _ = io.WriteString(server, events(piece("Hello"), "[DONE]"))
			_ = server.Close()
		}()
		text, _, err := readCompletion(quiet.Listen(body), func() {}, nil)
		if err != nil || text != "Hello" || ctx.Err() != nil {
			t.Errorf("got %q, %v, %v", text, err, context.Cause(ctx))
		}
		_ = body.Close()
	})
}

// A server that keeps the connection open after the answer holds up nobody.
func TestEndOfTheAnswerIsTheEndOfTheTurn(t *testing.T) {
	before := afterFinish
	afterFinish = 200 * time.Millisecond // no other test runs meanwhile
	t.Cleanup(func() { afterFinish = before })
	for name, said := range map[string]string{"[DONE]": events(piece("Hello"), stopPiece, "[DONE]"), "no [DONE]": events(piece("Hello"), stopPiece)} {
		t.Run(name, func(t *testing.T) {
			answer, gone := hang(said)
			model := newFakeModel(t, answer)
			reply, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{})
			if err != nil || reply.Text != "Hello" {
				t.Errorf("got %q, %v", reply.Text, err)
			}
			wantGone(t, gone)
		})
	}
	answer, gone := hang(events(piece("Hel"), `{"choices":[{"delta":{},"finish_reason":"length"}]}`, "[DONE]"))
	model := newFakeModel(t, answer)
	if _, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{}); err == nil || !strings.Contains(err.Error(), "finish_reason length") {
		t.Errorf("got %v", err)
	}
	wantGone(t, gone)
}

// wantGone waits until the turn has left the server.
func wantGone(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("the connection is kept")
	}
}

func TestCancelClosesTheConnection(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]string{"before the answer": "", "within it": events(piece("Hel")), "after the finish reason": events(piece("Hello"), stopPiece)} {
		answer, gone := hang(said)
		model := newFakeModel(t, answer)
		o := newOpenAI(t, model.URL, nil)
		ctx, cancel := context.WithCancel(t.Context())
		emitted, sent := make(chan struct{}, 9), make(chan struct{}, 9)
		ended := make(chan error, 1)
		go func() {
			_, err := o.Run(ctx, engine.Turn{Sent: func() { sent <- struct{}{} }, Emit: func(engine.Progress) { emitted <- struct{}{} }})
			ended <- err
		}()
		<-sent
		if said != "" {
			<-emitted
		}
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("%s: the turn has an answer", name)
		}
		<-gone
	}
}

// Connections are used again: a new one for each turn would cost a handshake.
func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	for _, body := range []string{saysHello, events(piece("Hello"), stopPiece, "[DONE]")} {
		var from []string
		model := newFakeModel(t, func(w http.ResponseWriter, r *http.Request, _ askedModel) {
			from = append(from, r.RemoteAddr)
			_, _ = io.WriteString(w, body)
		})
		o := newOpenAI(t, model.URL, nil)
		for range 3 {
			if _, err := o.Run(t.Context(), engine.Turn{}); err != nil {
				t.Fatal(err)
			}
		}
		if from[0] != from[1] || from[1] != from[2] {
			t.Errorf("three turns came from %v", from)
		}
	}
}

func TestServerThatClosesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{"": "the runner closed the connection without an answer", events(piece("Hel")): "the runner's answer broke off"} {
		model := newFakeModel(t, func(w http.ResponseWriter, _ *http.Request, _ askedModel) {
			if said != "" {
				_, _ = io.WriteString(w, said)
				_ = http.NewResponseController(w).Flush()
			}
			panic(http.ErrAbortHandler)
		})
		_, err := newOpenAI(t, model.URL, nil).Run(t.Context(), engine.Turn{})
		var unavailable *engine.UnavailableError
		if err == nil || err.Error() != want || errors.As(err, &unavailable) {
			t.Errorf("got %v, want %s", err, want)
		}
		if len(model.all()) != 1 {
			t.Errorf("the server was asked %d times", len(model.all()))
		}
	}
}
