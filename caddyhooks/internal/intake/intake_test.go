package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// fuzzCompiler compiles the settings of fuzz tests.
func fuzzCompiler() *settings.Compiler {
	c := &settings.Compiler{Rules: settings.Rules{
		MaxTimeout:  time.Hour,
		Guard:       outbound.NewGuard(nil, nil, false),
		CheckSchema: settings.CheckSchema,
		Channels:    map[string]engine.Channel{"notes": nil},
	}}
	c.Pinned.Mappings = []settings.Mapping{
		{Name: "raw"},
		{Name: "paths", MessageTemplate: "{message} {b[0].c} {b[-1].c}"},
		{Name: "form", Action: engine.Agent, Body: "form", MessageTemplate: "{a} {b[1]} {@body}"},
		{Name: "each", Each: "$..d[*]", Only: []string{"$.a || $.d", "not header X-Test"}, Skip: []string{"$.skip == true"},
			MessageTemplate: "{c} {@root.a} {@run}"},
		{Name: "full", Action: engine.Agent, MessageTemplate: "{a} {b[0].c} {$..d}", Untrusted: "wrap",
			AgentFields: settings.AgentFields{ChatID: "c:{a}"}},
	}
	return c
}

// fuzzSettings has the settings that intake needs.
func fuzzSettings(f testing.TB) *settings.Active {
	active, err := fuzzCompiler().Compile(nil, settings.Settings{}, nil)
	if err != nil {
		f.Fatal(err)
	}
	return active
}

// Whatever comes in, intake makes a run that keeps the bounds, or says in a clean sentence why not.
func FuzzIntake(f *testing.F) {
	active := fuzzSettings(f)
	for _, body := range []string{
		`{"text":"x","chatId":"c","metadata":{"a":1}}`, `{"message":"x","syncResponse":true,"responseJsonSchema":{"type":"object"}}`,
		`{"message":"x","callbackUrl":"https://example.com","timeoutSeconds":5,"deliver":true,"channel":"notes","to":"y"}`,
		`{"a":"\ud83d\ude00","b":[{"c":1.10}],"x":{"d":null}}`, `null`, `[]`, ``, `{"message":1}`, `{"text":" "}`, `{"message":"x","model":""}`,
		`{"a":1,"d":[{"c":"x"},2]}`, `{"d":[],"skip":true}`, `a=1&b=2&b=3`, `a=%zz`,
		`payload=%7B%22text%22%3A1%7D`, "--x\r\nContent-Disposition: form-data; name=\"payload\"\r\n\r\n{}\r\n--x--",
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, name := range []string{"wake", "agent", "raw", "full", "form", "each"} {
			runs, err := Runs(active, name, active.Hooks[name], &Request{Body: []byte(body), Log: zap.NewNop()})
			if err != nil {
				var a *api.Error
				var field *settings.FieldError
				var ignored *IgnoredError
				if !errors.As(err, &a) && !errors.As(err, &field) && !errors.As(err, &ignored) {
					t.Errorf("%s: an error without an answer: %v", name, err)
				}
				if !utf8.ValidString(err.Error()) || len(err.Error()) > 2000 {
					t.Errorf("%s: the message is %q", name, err)
				}
				continue
			}
			if len(runs) > maxMatches {
				t.Errorf("%s: %d runs", name, len(runs))
			}
			run := runs[len(runs)-1]
			switch {
			case !utf8.ValidString(run.Message):
				t.Errorf("%s: the message is no text: %q", name, run.Message)
			case strings.TrimSpace(run.Message) == "" || run.ChatID == "" || run.Timeout <= 0 || run.Timeout > time.Hour:
				t.Errorf("%s: incomplete run %+v", name, run)
			case settings.CheckChatID(run.ChatID) != nil || !utf8.ValidString(run.ChatID):
				t.Errorf("%s: chat id %q", name, run.ChatID)
			case run.Metadata != nil && !json.Valid(run.Metadata), run.Schema != nil && (!json.Valid(run.Schema) || !run.Sync):
				t.Errorf("%s: metadata or schema of %+v", name, run)
			case run.Action == engine.Wake && !strings.HasPrefix(run.Message, "[EXTERNAL WEBHOOK DATA] id="):
				t.Errorf("%s: the message is not marked: %q", name, run.Message)
			}
		}
	})
}

// A body of any shape takes a few times its size, whatever is in the members that no field and no template asks for.
func TestHostileBodiesTakeLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	active := fuzzSettings(t)
	fill := func(head, item, tail string) string {
		return head + strings.Repeat(item+",", (1<<20)/(len(item)+1)) + item + tail
	}
	var keys strings.Builder
	for i := 0; keys.Len() < 1<<20; i++ {
		fmt.Fprintf(&keys, `"%x":0,`, i)
	}
	for name, body := range map[string]string{
		"unknown array of objects":  fill(`{"text":"x","message":"x","z":[`, `{}`, `]}`),
		"unknown array of arrays":   fill(`{"text":"x","message":"x","z":[`, `[]`, `]}`),
		"unknown array of members":  fill(`{"text":"x","message":"x","z":[`, `{"a":0}`, `]}`),
		"unknown members":           `{"text":"x","message":"x",` + keys.String() + `"z":0}`,
		"metadata with many keys":   `{"text":"x","message":"x","metadata":{` + keys.String() + `"z":0}}`,
		"metadata with many values": fill(`{"text":"x","message":"x","metadata":{"z":[`, `{}`, `]}}`),
		"metadata that is an array": fill(`{"text":"x","message":"x","metadata":[`, `{}`, `]}`),
		"items before the last":     fill(`{"text":"x","message":"x","b":[`, `{}`, `]}`),
		"numbers before the last":   fill(`{"text":"x","message":"x","b":[`, `0`, `]}`),
		"text that is an array":     fill(`{"text":[`, `{}`, `],"message":1}`),
		"large schema":              fill(`{"text":"x","message":"x","syncResponse":true,"responseJsonSchema":{"z":[`, `{}`, `]}}`),
	} {
		for _, hook := range []string{"wake", "agent", "paths"} {
			var before, after runtime.MemStats
			data := []byte(body)
			runtime.ReadMemStats(&before)
			_, err := Runs(active, hook, active.Hooks[hook], &Request{Body: data, Log: zap.NewNop()})
			runtime.ReadMemStats(&after)
			if took := int(after.TotalAlloc - before.TotalAlloc); took > 4*len(body) {
				t.Errorf("%s, %s (%v): %d bytes for a body of %d, %.1f times its size", hook, name, err, took, len(body),
					float64(took)/float64(len(body)))
			}
		}
	}
}

func TestChatIDsFromTemplatesFit(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain": "plain", " a\nb\x00c\u0085 ": "abc", strings.Repeat("x", 256): strings.Repeat("x", 256),
	} {
		if got := fitChatID(in); got != want {
			t.Errorf("%q became %q", in, got)
		}
	}
	long := "x" + strings.Repeat("😀", 100)
	first, second := fitChatID(long+"1"), fitChatID(long+"2")
	if first == second || settings.CheckChatID(first) != nil || !utf8.ValidString(first) || !strings.HasPrefix(first, long[:200]) {
		t.Errorf("long ids became %q and %q", first, second)
	}
}

func TestTraceParentIsPassedOnOnlyIfItIsOne(t *testing.T) {
	t.Parallel()
	good := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	zero := func(digits string) string { return strings.Replace(good, digits, strings.Repeat("0", len(digits)), 1) }
	for value, want := range map[string]string{
		zero("0af7651916cd43dd8448eb211c80319c"): "", zero("b7ad6b7169203331"): "", "ff" + good[2:]: "", "00-" + strings.Repeat("-", 32) +
			good[35:]: "",
		strings.Repeat("-", 53) + "01": "", good[:53] + "03": good[:53] + "03", "01" + good[2:]: "01" + good[2:],
		good: good, "": "", "00-x": "", strings.ToUpper(good): "", good + "x": "", strings.Replace(good, "-b", "b-", 1): "",
	} {
		if got := observe.CallersTraceParent(map[string][]string{"Traceparent": {value}}); got != want {
			t.Errorf("%q gives %q", value, got)
		}
	}
}
