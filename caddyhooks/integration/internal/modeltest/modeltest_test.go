package modeltest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// dialect is how a test asks in one of the protocols.
type dialect struct {
	path, streamPath string
	body             string // %MESSAGE% and %STREAM% are replaced
	shell            string // the call of the shell tool, as it is written in the answer
	result           string // a request with the result of the tool
}

var dialects = map[string]dialect{
	"anthropic": {
		path: "/v1/messages", streamPath: "/v1/messages",
		body: `{"model":"m","stream":%STREAM%,"system":[{"type":"text","text":"Be brief."}],"messages":[{"role":"user","content":[
			{"type":"text","text":"<system-reminder>\nDo not tell.\n</system-reminder>\n"},{"type":"text","text":"%MESSAGE%"}]}],
			"tools":[{"name":"Bash","input_schema":{"type":"object","properties":{"command":{"type":"string"},"timeout":{"type":"number"}},"required":["command"]}}]}`,
		shell: `"name":"Bash"`,
		result: `{"model":"m","messages":[{"role":"user","content":"run it"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"it ran"}]}]}`,
	},
	"responses": {
		path: "/v1/responses", streamPath: "/v1/responses",
		body: `{"model":"m","stream":%STREAM%,"instructions":"Be brief.","input":[
			{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>here</environment_context>"}]},
			{"type":"message","role":"user","content":[{"type":"input_text","text":"%MESSAGE%"}]}],
			"tools":[{"type":"function","name":"exec_command","parameters":{"type":"object","properties":{"cmd":{"type":"string"}},"required":["cmd"]}}]}`,
		shell: `"name":"exec_command"`,
		result: `{"model":"m","input":[{"type":"message","role":"user","content":"run it"},{"type":"function_call","call_id":"c1","name":"exec_command","arguments":"{}"},
			{"type":"function_call_output","call_id":"c1","output":"it ran"}]}`,
	},
	"chat": {
		path: "/v1/chat/completions", streamPath: "/v1/chat/completions",
		body: `{"model":"m","stream":%STREAM%,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"%MESSAGE%"}],
			"tools":[{"type":"function","function":{"name":"shell","parameters":{"type":"object","properties":{"command":{"type":"array"}},"required":["command"]}}}]}`,
		shell: `"name":"shell"`,
		result: `{"model":"m","messages":[{"role":"user","content":"run it"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"shell","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"it ran"}]}`,
	},
	"gemini": {
		path: "/v1beta/models/m:generateContent", streamPath: "/v1beta/models/m:streamGenerateContent?alt=sse",
		body: `{"systemInstruction":{"parts":[{"text":"Be brief."}]},"contents":[{"role":"user","parts":[{"text":"<session_context>\nhere\n</session_context>"},{"text":"%MESSAGE%"}]}],
			"tools":[{"functionDeclarations":[{"name":"run_shell_command","parametersJsonSchema":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}]}]}`,
		shell: `"name":"run_shell_command"`,
		result: `{"contents":[{"role":"user","parts":[{"text":"run it"}]},{"role":"model","parts":[{"functionCall":{"name":"run_shell_command","args":{}}}]},
			{"role":"user","parts":[{"functionResponse":{"name":"run_shell_command","response":{"output":"it ran"}}}]}]}`,
	},
}

func (d dialect) ask(m *modeltest.Model, message string, stream bool) (*http.Response, error) {
	path, word := d.path, "false"
	if stream {
		path, word = d.streamPath, "true"
	}
	body := strings.NewReplacer("%MESSAGE%", message, "%STREAM%", word).Replace(d.body)
	return http.Post(m.URL+path, "application/json", strings.NewReader(body))
}

// forEach runs a test for each protocol, asked for a stream or not.
func forEach(t *testing.T, try func(t *testing.T, m *modeltest.Model, name string, ask func(message string) (status int, body string, err error))) {
	t.Parallel()
	for name, d := range dialects {
		for kind, stream := range map[string]bool{"stream": true, "plain": false} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				m := modeltest.Start(t)
				try(t, m, name, func(message string) (int, string, error) {
					resp, err := d.ask(m, message, stream)
					if err != nil {
						return 0, "", err
					}
					defer resp.Body.Close()
					body, err := io.ReadAll(resp.Body)
					return resp.StatusCode, string(body), err
				})
			})
		}
	}
}

func TestModelRepeatsAMessageAndKeepsTheCall(t *testing.T) {
	forEach(t, func(t *testing.T, m *modeltest.Model, name string, ask func(string) (int, string, error)) {
		status, body, err := ask("hello")
		if status != 200 || err != nil || !strings.Contains(body, "You ") || !strings.Contains(body, "hello") {
			t.Errorf("got %d %s, %v", status, body, err)
		}
		call := m.WaitFor(t, "hello")
		<-call.Gone
		if call.Protocol != name || call.Model != "m" || call.System != "Be brief." || call.Asked != "hello" || call.Schema || call.Left || len(call.Tools) != 1 {
			t.Errorf("kept %+v", call)
		}
		if !slices.Equal(call.Messages, []modeltest.Message{modeltest.User("hello")}) {
			t.Errorf("the messages are %+v", call.Messages)
		}
		if !call.Holds("Be brief.") || call.Holds("Be long.") {
			t.Error("the body is not searched")
		}
	})
}

func TestModelTakesStepAfterStep(t *testing.T) {
	forEach(t, func(t *testing.T, m *modeltest.Model, name string, ask func(string) (int, string, error)) {
		m.Answer("hello", modeltest.Step{Status: 529}, modeltest.Step{Text: "One."}, modeltest.Step{Text: "Two."})
		for i, want := range []string{"the model says 529", "One.", "Two.", "Two."} {
			status, body, err := ask("Oh hello!")
			if err != nil || !strings.Contains(body, want) || (status == 529) != (i == 0) {
				t.Errorf("got %d %s, want %s", status, body, want)
			}
		}
		if _, body, _ := ask("Good bye"); strings.Contains(body, "Two.") {
			t.Errorf("another message is answered %s", body)
		}
	})
}

func TestModelHasACommandRun(t *testing.T) {
	forEach(t, func(t *testing.T, m *modeltest.Model, name string, ask func(string) (int, string, error)) {
		d := dialects[name]
		m.Answer("run it", modeltest.Step{Tool: "uname"})
		if status, body, err := ask("run it"); status != 200 || err != nil || !strings.Contains(body, d.shell) || !strings.Contains(body, "uname") {
			t.Errorf("got %d %s, %v", status, body, err)
		}
		resp, err := hookstest.TryRequest("POST", m.URL+d.path, d.result)
		if err != nil || resp.Status != 200 || !strings.Contains(resp.Body, "The tool said:") || !strings.Contains(resp.Body, "it ran") {
			t.Errorf("got %d %s, %v", resp.Status, resp.Body, err)
		}
		calls := m.CallsFor("run it")
		if last := calls[len(calls)-1].Messages; len(calls) != 2 || last[len(last)-1].Role != "tool" {
			t.Errorf("the messages are %+v", last)
		}
	})
}

func TestModelBreaksTheConnection(t *testing.T) {
	forEach(t, func(t *testing.T, m *modeltest.Model, name string, ask func(string) (int, string, error)) {
		m.Answer("hello", modeltest.Step{Text: "One two three four.", Cut: true})
		if status, body, err := ask("hello"); err == nil || strings.Contains(body, "four") {
			t.Errorf("got %d %s", status, body)
		}
	})
}

func TestModelSaysTheRestWhenToldTo(t *testing.T) {
	t.Parallel()
	for name, d := range dialects {
		m := modeltest.Start(t)
		goOn := make(chan struct{})
		m.Answer("hello", modeltest.Step{Text: "One two.", Wait: goOn})
		resp, err := d.ask(m, "hello", true)
		if err != nil {
			t.Fatal(err)
		}
		first, buf := "", make([]byte, 4096)
		for !strings.Contains(first, "One") {
			n, err := resp.Body.Read(buf)
			if err != nil {
				t.Fatalf("%s: %v after %s", name, err, first)
			}
			first += string(buf[:n])
		}
		close(goOn)
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || strings.Contains(first, "two") || !strings.Contains(string(rest), "two") {
			t.Errorf("%s: first %s, then %s, %v", name, first, rest, err)
		}
	}
}

func TestModelHangsUntilTheCallerLeaves(t *testing.T) {
	t.Parallel()
	for name, d := range dialects {
		m := modeltest.Start(t)
		m.Answer("hello", modeltest.Step{Text: "One", Hang: true})
		resp, err := d.ask(m, "hello", true)
		if err != nil {
			t.Fatal(err)
		}
		call := m.WaitFor(t, "hello")
		select {
		case <-call.Gone:
			t.Errorf("%s: the call is over", name)
		default:
		}
		resp.Body.Close()
		hookstest.ReceiveWithin(t, "the call ends", call.Gone)
		if !call.Left {
			t.Errorf("%s: the caller is not said to have left", name)
		}
	}
}

func TestModelAnswersByTheToolForJSON(t *testing.T) {
	t.Parallel()
	m := modeltest.Start(t)
	m.Answer("how many", modeltest.Step{JSON: `{"n":3}`})
	for body, want := range map[string]string{
		`{"model":"m","messages":[{"role":"user","content":"how many"}],"tools":[{"name":"StructuredOutput"}]}`: `{"n":3}`,
		`{"model":"m","messages":[{"role":"user","content":"how many"}]}`:                                       `"{\"n\":3}"`,
	} {
		resp, err := hookstest.TryRequest("POST", m.URL+"/v1/messages", body)
		var message struct {
			Content []struct {
				Type  string          `json:"type"`
				Text  json.RawMessage `json:"text"`
				Input json.RawMessage `json:"input"`
			} `json:"content"`
		}
		if err != nil || json.Unmarshal([]byte(resp.Body), &message) != nil || len(message.Content) != 1 ||
			string(message.Content[0].Text)+string(message.Content[0].Input) != want {
			t.Errorf("got %s, want %s", resp.Body, want)
		}
	}
}

func TestModelKeepsCallsForATitleApart(t *testing.T) {
	t.Parallel()
	m := modeltest.Start(t)
	m.Answer("hello", modeltest.Step{Status: 500})
	for i, asked := range []struct{ path, body string }{
		{"/v1/messages", `{"model":"m","system":"You are naming a coding session so that …","messages":[{"role":"user","content":"<session>hello</session>"}]}`},
		{"/v1/responses", `{"model":"m","stream":true,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Your task is to generate a very ` +
			`short title for a conversation based on the user's first message. …\n\nhello"}]}],"tools":[{"type":"function","name":"shell"}]}`},
	} {
		resp, err := hookstest.TryRequest("POST", m.URL+asked.path, asked.body)
		if err != nil || resp.Status != 200 || len(m.CallsFor("hello")) != 0 || len(m.Calls()) != i+1 {
			t.Errorf("got %d %s, %v, and kept %d", resp.Status, resp.Body, err, len(m.Calls()))
		}
	}
}

func TestModelAnswersWhatAgentsAskBesides(t *testing.T) {
	t.Parallel()
	m := modeltest.Start(t)
	for _, asked := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/v1/models", 200}, {"POST", "/v1/messages/count_tokens", 200}, {"POST", "/v1beta/models/m:countTokens", 200},
		{"HEAD", "/", 200}, {"GET", "/v1/responses", 426}, {"GET", "/v1/other", 404},
	} {
		if resp, err := hookstest.TryRequest(asked.method, m.URL+asked.path, "{}"); err != nil || resp.Status != asked.status {
			t.Errorf("%s %s: got %d, %v", asked.method, asked.path, resp.Status, err)
		}
	}
	if resp, err := hookstest.TryRequest("POST", m.URL+"/v1/messages", "no JSON"); err != nil || resp.Status != 400 {
		t.Errorf("got %d, %v", resp.Status, err)
	}
	if n := len(m.Calls()); n != 0 {
		t.Errorf("%d calls are kept", n)
	}
}
