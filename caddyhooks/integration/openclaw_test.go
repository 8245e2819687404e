//go:build agents

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// openclaw is a real OpenClaw gateway, whose models are a fake one.
type openclaw struct {
	URL   string // of the API, which ends in /v1
	Token string
	Model *modeltest.Model
	log   hookstest.ProcessLog
}

var installOpenClaw = npmtest.Packages("testdata/openclaw")

// startOpenClaw starts a gateway and waits until it has answered once. On a busy machine a gateway may give itself up while it
// starts: then there is another one.
func startOpenClaw(t *testing.T) *openclaw {
	t.Helper()
	packages := installOpenClaw(t)
	model := modeltest.Start(t)
	for range 5 {
		gw := &openclaw{Token: "token-of-the-gateway", Model: model}
		exited := gw.launch(t, packages)
		answers, gone := false, false
		hookstest.Within(t, slowly, "the gateway answers", func() bool {
			select {
			case <-exited:
				gone = true
			default:
				resp, err := gw.ask("warm up")
				answers = err == nil && resp.Status == http.StatusOK
			}
			return answers || gone
		})
		if answers {
			return gw
		}
	}
	t.Fatal("the gateway exits while it starts, again and again")
	return nil
}

// launch starts a gateway with a home of its own. The channel is closed when it has exited.
func (gw *openclaw) launch(t *testing.T, packages string) (exited chan struct{}) {
	t.Helper()
	home, port := t.TempDir(), hookstest.FreePort(t)
	gw.URL = "http://127.0.0.1:" + port + "/v1"
	config := filepath.Join(home, ".openclaw", "openclaw.json")
	if err := os.Mkdir(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(hookstest.AsJSON(t, gw.config(home))), 0o600); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(packages, "node_modules", "node-linux-"+map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH], "bin")
	cmd := exec.Command(filepath.Join(node, "node"), filepath.Join(packages, "node_modules", "openclaw", "openclaw.mjs"), "gateway", "run", "--port", port)
	cmd.Dir, cmd.Stdout, cmd.Stderr = home, &gw.log, &gw.log
	cmd.Env = []string{"PATH=" + node + ":" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // if a process of its own holds its output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Setpriority(syscall.PRIO_PGRP, cmd.Process.Pid, -10) // it is impatient with itself; only root may help it
	exited = make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the gateway logged at last:\n%s", gw.log.Last(40))
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
		hookstest.Eventually(t, "no process of the gateway is left", func() bool { return len(hookstest.ProcessesAtHome(home)) == 0 })
	})
	return exited
}

// config is the gateway's configuration.
func (gw *openclaw) config(home string) any {
	type object = map[string]any
	var models []any
	for _, id := range []string{"small", "large"} {
		models = append(models, object{"id": id, "name": id, "reasoning": false, "input": []string{"text"}, "contextWindow": 128000, "maxTokens": 4096,
			"cost": object{"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}})
	}
	provider := object{"baseUrl": gw.Model.URL + "/v1", "apiKey": "key-of-the-model", "api": "openai-completions", "models": models}
	return object{
		"gateway": object{"mode": "local", "bind": "loopback", "auth": object{"mode": "token", "token": gw.Token},
			"http": object{"endpoints": object{"chatCompletions": object{"enabled": true}}}},
		"models":  object{"mode": "merge", "providers": object{"fake": provider, "broken": provider}},
		"agents":  object{"defaults": object{"model": object{"primary": "fake/small"}, "skipBootstrap": true, "maxConcurrent": 16}},
		"plugins": object{"enabled": false}, // they take long to start
		"logging": object{"file": filepath.Join(home, "gateway.log")},
	}
}

// ask has the gateway carry out a turn, without Caddy.
func (gw *openclaw) ask(message string, headers ...string) (hookstest.Response, error) {
	body, err := json.Marshal(map[string]any{"model": "openclaw", "messages": []any{map[string]string{"role": "user", "content": message}}})
	if err != nil {
		return hookstest.Response{}, err
	}
	return hookstest.TryRequest("POST", gw.URL+"/chat/completions", string(body), append(headers, "Authorization", "Bearer "+gw.Token, "Content-Type", "application/json")...)
}

// hooks is a hooks directive whose turns go to the gateway.
func (gw *openclaw) hooks(lines ...string) string {
	return fmt.Sprintf("hooks {\n enabled\n token %s\n runner openai openclaw {\n url %s\n key {env.OPENCLAW_GATEWAY_TOKEN}\n tier deep fake/large\n %s\n }\n }",
		hookstest.Token, gw.URL, strings.Join(lines, "\n"))
}

// TestOpenClaw tries the openai runner with the real OpenClaw, which takes long to install and to start: so there is one for all.
// What is said of it in README.md and in examples/openclaw is tried here.
func TestOpenClaw(t *testing.T) {
	t.Parallel()
	gw := startOpenClaw(t)
	// These have the gateway for themselves: the one for the times it takes, the other since its commands have a minute.
	t.Run("is not slowed down much", func(t *testing.T) { isNotSlowedDown(t, gw) })
	t.Run("does what the example says", func(t *testing.T) { doesWhatTheExampleSays(t, gw) })
	for name, try := range map[string]func(*testing.T, *openclaw){
		"answers a caller who waits, and one who does not": answersThroughOpenClaw,
		"repairs an answer that does not match":            repairsThroughOpenClaw,
		"streams":                                          streamsThroughOpenClaw,
		"cancels":                                          cancelsThroughOpenClaw,
		"times out":                                        timesOutThroughOpenClaw,
		"keeps the session of a chat":                      keepsSessionsInOpenClaw,
		"keeps no session without memory":                  keepsNoSessionInOpenClaw,
		"keeps chats apart":                                keepsChatsApartInOpenClaw,
		"is refused with a wrong token":                    isRefusedByOpenClaw,
		"fails when the model does":                        failsWithTheModelOfOpenClaw,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try(t, gw)
		})
	}
}

// caddy starts a Caddy whose turns go to the gateway.
func (gw *openclaw) caddy(t *testing.T, directives string) *hookstest.Server {
	t.Helper()
	return hookstest.StartProcess(t, directives, "OPENCLAW_GATEWAY_TOKEN="+gw.Token)
}

func answersThroughOpenClaw(t *testing.T, gw *openclaw) {
	s := gw.caddy(t, gw.hooks())
	if resp := s.Post("/api/hooks/agent", `{"message":"Is anybody there?","syncResponse":true}`); resp.Status != 200 || resp.Body != "You said: Is anybody there?" {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	if call := gw.Model.WaitFor(t, "Is anybody there?"); call.Model != "small" {
		t.Errorf("the model was %s", call.Model)
	}
	// The tier's model.
	if r := s.EndedWithin(slowly, s.Accept(`{"message":"Think hard.","model":"deep"}`)); r.Status != "completed" || r.Reply != "You said: Think hard." {
		t.Errorf("got %s", r.Body)
	}
	if call := gw.Model.WaitFor(t, "Think hard."); call.Model != "large" {
		t.Errorf("the model was %s", call.Model)
	}
	// Words that are commands elsewhere.
	for _, message := range []string{"/status", "/new", "@/etc/passwd", "!ls"} {
		if resp := s.Post("/api/hooks/agent", hookstest.AsJSON(t, map[string]any{"message": message, "syncResponse": true})); resp.Status != 200 || resp.Body != "You said: "+message {
			t.Errorf("%s: got %d %s", message, resp.Status, resp.Body)
		}
	}
}

func repairsThroughOpenClaw(t *testing.T, gw *openclaw) {
	s := gw.caddy(t, gw.hooks())
	gw.Model.Answer("How urgent is the fire?", modeltest.Step{Text: "Very urgent, fire number 4711."})
	gw.Model.Answer("fire number 4711", modeltest.Step{Text: `{"urgency":5}`})
	resp := s.Post("/api/hooks/agent", `{"message":"How urgent is the fire?","syncResponse":true,"memoryPreset":"general_chat","chatId":"fires",
		"responseJsonSchema":{"type":"object","properties":{"urgency":{"type":"integer"}},"required":["urgency"],"additionalProperties":false}}`)
	if resp.Status != 200 || strings.TrimSpace(resp.Body) != `{"urgency":5}` || resp.Header.Get("X-Service-Schema-Repair-Attempts") != "1" {
		t.Errorf("got %d %s %v", resp.Status, resp.Body, resp.Header)
	}
	if call := gw.Model.WaitFor(t, "How urgent is the fire?"); !call.Schema || !strings.Contains(call.System, "urgency") {
		t.Errorf("the model was not told of the schema: %v", call.Schema)
	}
	// A repair has a session of its own.
	if call := gw.Model.WaitFor(t, "fire number 4711"); len(call.Messages) != 1 {
		t.Errorf("the repair was sent with %+v", call.Messages)
	}
}

func streamsThroughOpenClaw(t *testing.T, gw *openclaw) {
	s := gw.caddy(t, gw.hooks())
	goOn := make(chan struct{})
	gw.Model.Answer("Tell me a story", modeltest.Step{Text: "Once upon a time.", Wait: goOn})
	id := s.Accept(`{"message":"Tell me a story."}`)
	text, told := "", sync.OnceFunc(func() { close(goOn) })
	defer told()
	var last hookstest.RunEvent
	for event := range s.Follow("GET", hookstest.RunPath(id)+"/events", "") {
		switch last = event; event.Name {
		case "delta":
			text += event.Data["text"].(string)
		case "reset":
			text = event.Data["text"].(string)
		}
		if strings.HasPrefix(text, "Once") { // while the model has more to say
			told()
		}
	}
	if text != "Once upon a time." || last.Name != "result" || last.Data["reply"] != text {
		t.Errorf("the events told %q, and at last came %+v", text, last)
	}
}

func cancelsThroughOpenClaw(t *testing.T, gw *openclaw) {
	s := gw.caddy(t, gw.hooks())
	gw.Model.Answer("Count to a million", modeltest.Step{Text: "One, two", Hang: true})
	id := s.Accept(`{"message":"Count to a million.","memoryPreset":"general_chat","chatId":"numbers"}`)
	call := gw.Model.WaitFor(t, "Count to a million")
	began := time.Now()
	s.CancelRun(id)
	hookstest.ReceiveWithin(t, "the call of the model ends", call.Gone)
	t.Logf("the model's call was closed %v after the cancel began", call.GoneAt.Sub(began).Round(time.Millisecond))
	if r := s.EndedWithin(slowly, id); r.Status != "cancelled" || r.Reply != "" {
		t.Errorf("got %s", r.Body)
	}
	// OpenClaw keeps the message, and puts it in front of the next one of the session.
	gw.Model.Answer("Count to three", modeltest.Step{Text: "One, two, three."})
	if r := s.EndedWithin(slowly, s.Accept(`{"message":"Count to three.","memoryPreset":"general_chat","chatId":"numbers"}`)); r.Status != "completed" || r.Reply != "One, two, three." {
		t.Errorf("got %s", r.Body)
	}
	if next := gw.Model.WaitFor(t, "Count to three"); len(next.Messages) != 1 || !strings.Contains(next.Asked, "Count to a million") {
		t.Errorf("the next turn was sent with %+v", next.Messages)
	}
	if r := s.Run(id); r.Status != "cancelled" {
		t.Errorf("later: %s", r.Body)
	}
}

func timesOutThroughOpenClaw(t *testing.T, gw *openclaw) {
	s := gw.caddy(t, gw.hooks())
	gw.Model.Answer("Wait for me", modeltest.Step{Text: "I", Hang: true})
	for timeout := 5; ; timeout *= 2 { // until it is enough for the gateway to ask the model
		r := s.EndedWithin(slowly, s.Accept(fmt.Sprintf(`{"message":"Wait for me.","timeoutSeconds":%d}`, timeout)))
		if r.Status != "timed_out" || r.Reply != "" {
			t.Fatalf("got %s", r.Body)
		}
		if calls := gw.Model.CallsFor("Wait for me"); len(calls) > 0 {
			hookstest.ReceiveWithin(t, "the call of the model ends", calls[0].Gone)
			t.Logf("the model's call was closed %v after the end of the run", calls[0].GoneAt.Sub(r.FinishedAt).Round(time.Millisecond))
			return
		}
	}
}

func keepsSessionsInOpenClaw(t *testing.T, gw *openclaw) {
	witness := gw.witness(t)
	config := strings.ReplaceAll(gw.hooks(), gw.URL, witness.URL)
	s := gw.caddy(t, config)
	for i, message := range []string{"My name is Bob.", "What is my name?"} {
		if i > 0 {
			s.Restart(config)
		}
		r := s.EndedWithin(slowly, s.Accept(hookstest.AsJSON(t, map[string]any{"message": message, "chatId": "Bob's chat", "memoryPreset": "general_chat"})))
		if r.Status != "completed" || r.Reply != "You said: "+message {
			t.Errorf("got %s", r.Body)
		}
	}
	call := gw.Model.WaitFor(t, "What is my name?")
	want := []modeltest.Message{modeltest.User("My name is Bob."), modeltest.Assistant("You said: My name is Bob."), modeltest.User("What is my name?")}
	if !slices.Equal(call.Messages, want) {
		t.Errorf("the model was sent %+v", call.Messages)
	}
	// That is the gateway's doing: Caddy sent it one message at a time.
	sent := witness.all()
	if len(sent) != 2 || sent[0].session == "" || sent[0].session != sent[1].session {
		t.Fatalf("Caddy sent %+v", sent)
	}
	for i, message := range []string{"My name is Bob.", "What is my name?"} {
		if !slices.Equal(sent[i].messages, []modeltest.Message{modeltest.User(message)}) {
			t.Errorf("Caddy sent %+v", sent[i])
		}
	}
}

func keepsNoSessionInOpenClaw(t *testing.T, gw *openclaw) {
	witness := gw.witness(t)
	s := gw.caddy(t, strings.ReplaceAll(gw.hooks(), gw.URL, witness.URL))
	for _, message := range []string{"The secret is 1234.", "What is the secret?"} {
		r := s.EndedWithin(slowly, s.Accept(hookstest.AsJSON(t, map[string]any{"message": message, "chatId": "forgetful", "memoryPreset": "disabled"})))
		if r.Status != "completed" {
			t.Errorf("got %s", r.Body)
		}
		if call := gw.Model.WaitFor(t, message); !slices.Equal(call.Messages, []modeltest.Message{modeltest.User(message)}) {
			t.Errorf("the model was sent %+v", call.Messages)
		}
	}
	for i, sent := range witness.all() {
		if sent.session != "" || len(sent.messages) != 1 {
			t.Errorf("request %d is %+v", i, sent)
		}
	}
}

func keepsChatsApartInOpenClaw(t *testing.T, gw *openclaw) {
	s := gw.caddy(t, gw.hooks())
	chats := []string{"team", "Team", "team%20", "team é", "cron:team", strings.Repeat("LONG", 63), strings.Repeat("LONG", 63) + "er"}
	var ids []string
	for i, chat := range chats {
		ids = append(ids, s.Accept(hookstest.AsJSON(t, map[string]any{"message": fmt.Sprintf("I am chat %d.", i), "chatId": chat, "memoryPreset": "coding_fast"})))
	}
	for i, id := range ids {
		if r := s.EndedWithin(slowly, id); r.Status != "completed" {
			t.Errorf("chat %q: %s", chats[i], r.Body)
		}
	}
	ids = nil
	for i, chat := range chats {
		ids = append(ids, s.Accept(hookstest.AsJSON(t, map[string]any{"message": fmt.Sprintf("Which one is chat %d?", i), "chatId": chat, "memoryPreset": "coding_fast"})))
	}
	for i, id := range ids {
		if r := s.EndedWithin(slowly, id); r.Status != "completed" {
			t.Errorf("chat %q: %s", chats[i], r.Body)
		}
		call := gw.Model.WaitFor(t, fmt.Sprintf("Which one is chat %d?", i))
		if len(call.Messages) != 3 || call.Messages[0].Text != fmt.Sprintf("I am chat %d.", i) {
			t.Errorf("the model was sent %+v", call.Messages)
		}
	}
}

func isRefusedByOpenClaw(t *testing.T, gw *openclaw) {
	witness := gw.witness(t)
	s := hookstest.StartProcess(t, strings.ReplaceAll(gw.hooks(), gw.URL, witness.URL), "OPENCLAW_GATEWAY_TOKEN=another-token")
	r := s.EndedWithin(slowly, s.Accept(`{"message":"Let me in."}`))
	if r.Status != "failed" || strings.Contains(r.Body, "another-token") {
		t.Errorf("got %s", r.Body)
	}
	if reason := s.ReasonOf(r.RunID); !strings.Contains(reason, "401") || !strings.Contains(reason, "key") {
		t.Errorf("the reason is %q", reason)
	}
	if n := len(witness.all()); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
	if calls := gw.Model.CallsFor("Let me in."); len(calls) > 0 {
		t.Error("the model was asked")
	}
}

func failsWithTheModelOfOpenClaw(t *testing.T, gw *openclaw) {
	s := gw.caddy(t, gw.hooks("tier special1 broken/small"))
	for _, status := range []int{400, 500} {
		words := fmt.Sprintf("Fail with %d.", status)
		gw.Model.Answer(words, modeltest.Step{Status: status})
		r := s.EndedWithin(slowly, s.Accept(hookstest.AsJSON(t, map[string]any{"message": words, "model": "special1", "timeoutSeconds": 200})))
		reason := s.ReasonOf(r.RunID)
		t.Logf("%d: %s after %v, because %s", status, r.Status, r.FinishedAt.Sub(r.StartedAt), reason)
		if r.Status != "failed" || r.Reply != "" || reason == "" {
			t.Errorf("got %s", r.Body)
		}
	}
}

const openclawPage = root + "/examples/openclaw/README.md"

func doesWhatTheExampleSays(t *testing.T, gw *openclaw) {
	gw.Model.Answer("My name is Ada.", modeltest.Step{Text: "Hello, Ada."})
	gw.Model.Answer("Which name did I tell you?", modeltest.Step{Text: "You told me Ada."})
	runPage(t, openclawPage, []string{"OPENCLAW_GATEWAY_TOKEN=" + gw.Token}, "http://127.0.0.1:18789/v1", gw.URL)
	call := gw.Model.WaitFor(t, "Which name did I tell you?")
	if want := []modeltest.Message{modeltest.User("My name is Ada."), modeltest.Assistant("Hello, Ada."), modeltest.User("Which name did I tell you?")}; !slices.Equal(call.Messages, want) {
		t.Errorf("the model was sent %+v", call.Messages)
	}
}

func isNotSlowedDown(t *testing.T, gw *openclaw) {
	s := gw.caddy(t, gw.hooks())
	const turns = 3
	var direct, through time.Duration
	for range turns {
		began := time.Now()
		if resp, err := gw.ask("How long?"); err != nil || resp.Status != 200 {
			t.Fatalf("got %d %s, %v", resp.Status, resp.Body, err)
		}
		direct += time.Since(began)
		began = time.Now()
		if resp := s.Post("/api/hooks/agent", `{"message":"How long?","syncResponse":true}`); resp.Status != 200 {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
		through += time.Since(began)
	}
	t.Logf("a turn takes %v, and %v through Caddy", (direct / turns).Round(time.Millisecond), (through / turns).Round(time.Millisecond))
}

// gatewayWitness stands between Caddy and the gateway, and keeps what Caddy sends.
type gatewayWitness struct {
	URL string

	mu   sync.Mutex
	sent []sentTurn
}

// sentTurn is a turn as Caddy sends it.
type sentTurn struct {
	session  string
	messages []modeltest.Message
}

func (gw *openclaw) witness(t *testing.T) *gatewayWitness {
	t.Helper()
	target, err := url.Parse(strings.TrimSuffix(gw.URL, "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	w := new(gatewayWitness)
	// It adds no X-Forwarded-For, with which the gateway would refuse the request.
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
		var body struct {
			Messages []struct{ Role, Content string }
		}
		_ = json.Unmarshal(data, &body)
		turn := sentTurn{session: r.Header.Get("X-Openclaw-Session-Key")}
		for _, message := range body.Messages {
			turn.messages = append(turn.messages, modeltest.Message{Role: message.Role, Text: message.Content})
		}
		w.mu.Lock()
		w.sent = append(w.sent, turn)
		w.mu.Unlock()
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	w.URL = server.URL + "/v1"
	return w
}

// all are the turns so far.
func (w *gatewayWitness) all() []sentTurn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sent)
}
