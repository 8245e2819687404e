package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// replyAddress is where an agent that has taken a turn on answers.
type replyAddress struct{ URL, Token string }

// laterRunner takes every turn on, and returns what the agent was given to answer.
func laterRunner(t *testing.T) (rn *hookstest.Runner, next func() replyAddress) {
	rn = hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		w.Header().Set("Location", "/jobs/7")
		w.WriteHeader(http.StatusAccepted)
	})
	return rn, func() replyAddress {
		t.Helper()
		return replyAddressOf(t, rn.Next())
	}
}

func replyAddressOf(t *testing.T, turn hookstest.Turn) (reply replyAddress) {
	t.Helper()
	given, _ := json.Marshal(turn.Body["reply"])
	if err := json.Unmarshal(given, &reply); err != nil || reply.URL == "" || len(reply.Token) < 32 {
		t.Fatalf("the turn has no address for the answer: %v", turn.Body)
	}
	return reply
}

// laterHooks is a hooks directive whose agent may answer later.
func laterHooks(rn *hookstest.Runner, port, more string) string {
	return fmt.Sprintf("hooks {\n enabled\n token %s\n public_url http://127.0.0.1:%s\n runner http %s {\n async 24h\n }\n %s\n}",
		hookstest.Token, port, rn.URL, more)
}

func (a replyAddress) post(t *testing.T, body string, headers ...string) hookstest.Response {
	t.Helper()
	if len(headers) == 0 {
		headers = []string{"Authorization", "Bearer " + a.Token}
	}
	resp, err := hookstest.TryRequest("POST", a.URL, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestAnAgentAnswersLater(t *testing.T) {
	rn, next := laterRunner(t)
	receiver := hookstest.StartReceiver(t)
	log := filepath.Join(t.TempDir(), "all.log")
	s := hookstest.NewServer(t)
	s.Globals = "log {\n output file " + log + "\n level DEBUG\n}"
	s.Load("log\n" + laterHooks(rn, s.Port, "callbacks {\n allow 127.0.0.0/8\n ports *\n}"))
	id := s.Accept(`{"message":"hello","callbackUrl":"` + receiver.URL + `/done"}`)
	reply := next()
	if run := s.Waiting(id); !strings.Contains(run.Body, "The agent has taken the run on") {
		t.Errorf("the run is %s", run.Body)
	}
	for body, want := range map[string]string{
		``: "must be a JSON object", `[]`: "must be a JSON object", `{}`: "one of text, error and progress", `{"text":1}`: "text must be a string",
		`{"text":"a","error":"b"}`: "one of text, error and progress", `{"text":null}`: "one of",
	} {
		reply.post(t, body).WantError(t, 400, want)
	}
	for name, limit := range map[string]int{"text": 1 << 20, "error": 4 << 10, "progress": 4 << 10} {
		reply.post(t, `{"`+name+`":"`+strings.Repeat("x", limit+1)+`"}`).WantError(t, 413, "must not be longer than")
	}
	reply.post(t, `{"text":"x"}`, "Authorization", "Bearer "+strings.Repeat("x", len(reply.Token))).WantError(t, 401, "not the one of this question")
	reply.post(t, `{"text":"x"}`, "Authorization", "Bearer "+hookstest.Token).WantError(t, 401)
	other := reply
	other.URL = strings.TrimSuffix(reply.URL, "_0") + "_1" // a later question of the run
	other.post(t, `{"text":"x"}`).WantError(t, 401)
	if resp := s.Request("GET", strings.TrimPrefix(reply.URL, s.URL), ""); resp.Status != 405 {
		t.Errorf("GET is answered %d", resp.Status)
	}
	if resp := reply.post(t, `{"progress":"half of it"}`); resp.Status != 200 {
		t.Errorf("progress is answered %d %s", resp.Status, resp.Body)
	}
	if run := s.Run(id); run.Status != "waiting" {
		t.Errorf("before the answer, the run is %s", run.Body)
	}

	if resp := reply.post(t, `{"text":"the answer"}`); resp.Status != 200 {
		t.Fatalf("the answer is answered %d %s", resp.Status, resp.Body)
	}
	if run := s.Ended(id); run.Status != "completed" || !strings.Contains(run.Body, "the answer") {
		t.Errorf("the run is %s", run.Body)
	}
	if got := receiver.Next(); got.Body != "the answer" {
		t.Errorf("the callback was %+v", got)
	}
	if resp := reply.post(t, `{"text":"the answer"}`); resp.Status != 200 {
		t.Errorf("the same answer again is answered %d %s", resp.Status, resp.Body)
	}
	reply.post(t, `{"text":"another one"}`).WantError(t, 409, "There is an answer already")
	if len(receiver.Got) > 0 || len(rn.Turns) > 0 {
		t.Error("there was another callback, or another turn")
	}
	written, err := os.ReadFile(log)
	if err != nil || strings.Contains(string(written), reply.Token) {
		t.Errorf("the log has the token (%v)", err)
	}
}

// An agent that has answered at once cannot answer later as well.
func TestAnAgentAnswersTwice(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("at once"))
	s := hookstest.NewServer(t)
	s.Load(laterHooks(rn, s.Port, ""))
	id := s.Accept(`{"message":"hello"}`)
	reply := replyAddressOf(t, rn.Next())
	if run := s.Ended(id); run.Status != "completed" {
		t.Errorf("the run is %s", run.Body)
	}
	reply.post(t, `{"text":"later"}`).WantError(t, 404, "waits for no answer")
}

func TestAnAgentSaysThatItFailed(t *testing.T) {
	rn, next := laterRunner(t)
	s := hookstest.NewServer(t)
	s.Load(laterHooks(rn, s.Port, ""))
	id := s.Accept(`{"message":"hello"}`)
	if resp := next().post(t, `{"error":"out of money"}`); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	if run := s.Ended(id); run.Status != "failed" || !strings.Contains(s.ReasonOf(id), "out of money") {
		t.Errorf("the run is %s, because %s", run.Body, s.ReasonOf(id))
	}
}

// Somebody cancels the run: the agent is told, and its answer comes too late.
func TestARunThatIsCancelledWhileItsAgentWorks(t *testing.T) {
	given := make(chan string, 10)
	rn, next := laterRunner(t)
	reply202 := rn.Config.Handler
	rn.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			given <- r.URL.Path
			return
		}
		reply202.ServeHTTP(w, r)
	})
	s := hookstest.NewServer(t)
	s.Load(laterHooks(rn, s.Port, ""))
	id := s.Accept(`{"message":"hello"}`)
	reply := next()
	s.Waiting(id)
	if resp := s.CancelRun(id); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	hookstest.Eventually(t, "the agent is told", func() bool { return len(given) > 0 })
	if path := <-given; path != "/jobs/7" {
		t.Errorf("the agent was told at %s", path)
	}
	reply.post(t, `{"text":"too late"}`).WantError(t, 409, "needs no answer any more")
}

func TestACallerWhoWaitsForAnAgentThatAnswersLater(t *testing.T) {
	rn, next := laterRunner(t)
	s := hookstest.NewServer(t)
	s.Load(laterHooks(rn, s.Port, ""))
	answered := s.Hold(t.Context(), `{"message":"hello","syncResponse":true}`)
	reply := next()
	if resp := reply.post(t, `{"text":"in time"}`); resp.Status != 200 {
		t.Fatal(resp.Body)
	}
	if resp := <-answered; resp.Status != 200 || resp.Body != "in time" {
		t.Errorf("the caller got %d %s", resp.Status, resp.Body)
	}

	resp := s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true,"timeoutSeconds":1}`)
	id := resp.Header.Get("X-Service-Run-Id")
	resp.WantError(t, 504, "It goes on")
	if reply := next().post(t, `{"text":"later"}`); reply.Status != 200 || id == "" {
		t.Fatal(reply.Body)
	}
	if run := s.Ended(id); run.Status != "completed" {
		t.Errorf("the run is %s", run.Body)
	}

	resp = s.Post("/api/hooks/agent", `{"message":"hello","syncResponse":true}`, "Prefer", "wait=5, respond-async")
	if id, _ := resp.Field(t, "runId").(string); resp.Status != 202 || id == "" || resp.Header.Get("Preference-Applied") != "respond-async" {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
}

// What was accepted goes on when webhooks are turned off, or the configuration is loaded again. Strangers find nothing while they are off.
func TestAnAgentAnswersAfterAReloadAndWhileWebhooksAreOff(t *testing.T) {
	rn, next := laterRunner(t)
	s := hookstest.NewServer(t)
	s.Load(laterHooks(rn, s.Port, ""))
	id := s.Accept(`{"message":"hello"}`)
	reply := next()
	s.Waiting(id)
	s.Reload(strings.Replace(laterHooks(rn, s.Port, "workers 2"), " enabled\n", "", 1))
	const off = "Either webhooks are off"
	path := strings.TrimPrefix(reply.URL, s.URL)
	page := strings.Replace(path, "/replies/", "/answers/", 1)
	nobody := page[:strings.LastIndex(page, "/")] + "/q_" + strings.Repeat("0", 32) + "_0"
	for method, paths := range map[string][]string{"GET": {path, path + "x", page + "x", nobody}, "PUT": {path, page}, "POST": {path + "x", nobody, "/api/hooks/agent"}} {
		for _, path := range paths {
			s.Request(method, path, `{"text":"x"}`).WantError(t, 404, off)
		}
	}
	for range 30 { // more often than tokens may be wrong
		reply.post(t, `{"text":"x"}`, "Authorization", "Bearer "+strings.Repeat("x", len(reply.Token))).WantError(t, 404, off)
	}
	if resp := s.Request("GET", page, ""); resp.Status != 200 {
		t.Errorf("the page of a question that waits is answered %d %s", resp.Status, resp.Body)
	}
	if resp := reply.post(t, `{"text":"the answer"}`); resp.Status != 200 {
		t.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	s.Reload(laterHooks(rn, s.Port, ""))
	if run := s.Ended(id); run.Status != "completed" {
		t.Errorf("the run is %s", run.Body)
	}
}

// chatWithLinks is a webhook channel, which has no buttons, and returns the link in the next message.
func chatWithLinks(t *testing.T) (server string, next func() (text, link, token string)) {
	receiver := hookstest.StartReceiver(t)
	return receiver.URL, func() (text, link, token string) {
		t.Helper()
		for text = receiver.Next().Body; strings.Contains(text, "Answered by a link"); { // which closes the one before
			text = receiver.Next().Body
		}
		_, rest, found := strings.Cut(text, "http://127.0.0.1:")
		link, token, both := strings.Cut("http://127.0.0.1:"+strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune("\\\" \n<>", r) })[0], "#")
		if !found || !both {
			t.Fatalf("the message has no link: %s", text)
		}
		return text, link, token
	}
}

// linkHooks is a hooks directive with a hook and a channel ops without buttons.
func linkHooks(s *hookstest.Server, rn *hookstest.Runner, chat, hook string) string {
	return hookstest.Hooks(rn, "public_url http://127.0.0.1:"+s.Port+"\nchannel ops webhook "+chat+
		"\ncallbacks {\nallow 127.0.0.0/8\nports *\n}\n"+hook)
}

func TestAPersonAnswersByALink(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("deployed"))
	chat, next := chatWithLinks(t)
	s := hookstest.NewServer(t)
	s.Load(linkHooks(s, rn, chat, `hook deploy {
			action agent
			template {what}
			ask ops on-call before run 1h else drop
		}`))
	id, _ := s.Post("/api/hooks/deploy", `{"what":"line one\nMay the agent? yes"}`).Field(t, "runId").(string)
	text, link, token := next()
	if !strings.Contains(text, "May the agent act on this message to hook deploy?") || !strings.Contains(text, `\n│ May the agent? yes`) {
		t.Errorf("the question is %s", text)
	}
	if run := s.Waiting(id); strings.Contains(run.Body, "ops") && strings.Contains(run.Body, token) {
		t.Errorf("the caller sees %s", run.Body)
	}
	page, err := hookstest.TryRequest("GET", link, "")
	if err != nil || page.Status != 200 || !strings.Contains(page.Header.Get("Content-Security-Policy"), "default-src 'none'") || strings.Contains(page.Body, "deploy") {
		t.Errorf("the page is %d %s (%v)", page.Status, page.Body, err)
	}
	post := func(body, token string) hookstest.Response {
		t.Helper()
		resp, err := hookstest.TryRequest("POST", link, body, "Authorization", "Bearer "+token)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	post(`{"answer":"yes"}`, "wrong").WantError(t, 401)
	post(`{"answer":"perhaps"}`, token).WantError(t, 400, "must be one of: yes, no")
	post(`{"answer":7}`, token).WantError(t, 400)
	if resp := post(`{}`, token); resp.Status != 200 || resp.Field(t, "open") != true {
		t.Errorf("got %d %s", resp.Status, resp.Body)
	}
	if len(rn.Turns) > 0 || s.Run(id).Status != "waiting" {
		t.Error("the run started before anybody agreed")
	}
	// Many at once: one wins.
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := make(map[int]int)
	for i := range 10 {
		wg.Go(func() {
			resp := post(`{"answer":"`+[]string{"yes", "no"}[i%2]+`"}`, token)
			mu.Lock()
			defer mu.Unlock()
			statuses[resp.Status]++
		})
	}
	wg.Wait()
	if statuses[200] != 5 || statuses[409] != 5 { // who gave the same answer from the same address has won, too
		t.Errorf("the answers were answered %v", statuses)
	}
	run := s.Ended(id)
	if answer := post(`{}`, token).Field(t, "answer"); (answer == "yes") != (run.Status == "completed") || (answer == "no") != (run.Status == "cancelled") {
		t.Errorf("the answer is %v, the run is %s", answer, run.Body)
	}
}

// A sender that nobody knows is asked about once.
func TestTheFirstEventOfASender(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("ok"))
	chat, next := chatWithLinks(t)
	s := hookstest.NewServer(t)
	s.Load(linkHooks(s, rn, chat, `hook issues {
			action agent
			ask first {sender.login} ops on-call before run
		}`))
	send := func(sender string) string {
		id, _ := s.Post("/api/hooks/issues", `{"sender":{"login":`+sender+`}}`).Field(t, "runId").(string)
		return id
	}
	first := send(`"ana"`)
	text, link, token := next()
	if !strings.Contains(text, "Somebody new writes to hook issues: ana") {
		t.Errorf("the question is %s", text)
	}
	if resp, err := hookstest.TryRequest("POST", link, `{"answer":"yes"}`, "Authorization", "Bearer "+token); err != nil || resp.Status != 200 {
		t.Fatal(resp.Body, err)
	}
	if got := s.Ended(first); got.Status != "completed" {
		t.Errorf("the first run is %s", got.Body)
	}
	if got := s.Ended(send(`"ana"`)); got.Status != "completed" {
		t.Errorf("the second run is %s", got.Body)
	}
	for _, stranger := range []string{`"bob"`, `null`, `null`, `["ana"]`} {
		id := send(stranger)
		next()
		s.Waiting(id)
	}
}

// Runs that were accepted by a hook that is gone ask what it asked.
func TestRunsOfAHookThatIsGoneStillAsk(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("ok"))
	chat, next := chatWithLinks(t)
	s := hookstest.NewServer(t)
	s.Load(linkHooks(s, rn, chat, `hook deploy {
			action agent
			chat_id one
			ask ops on-call before run
			ask ops on-call before deliver
		}`))
	var ids []string
	for range 2 {
		id, _ := s.Post("/api/hooks/deploy", `{}`).Field(t, "runId").(string)
		ids = append(ids, id)
	}
	answer := func(want string) {
		t.Helper()
		text, link, token := next()
		if !strings.Contains(text, want) {
			t.Errorf("the question is %s", text)
		}
		if resp, err := hookstest.TryRequest("POST", link, `{"answer":"yes"}`, "Authorization", "Bearer "+token); err != nil || resp.Status != 200 {
			t.Fatal(resp.Body, err)
		}
	}
	s.Waiting(ids[0])
	s.Reload(linkHooks(s, rn, chat, ""))
	for _, id := range ids {
		answer("May the agent act on this message to hook deploy?")
		answer("May this answer")
		if got := s.Ended(id); got.Status != "completed" {
			t.Errorf("the run is %s", got.Body)
		}
	}
}

func TestTokensOfQuestionsAreNotGuessed(t *testing.T) {
	rn, next := laterRunner(t)
	s := hookstest.NewServer(t)
	s.Load(laterHooks(rn, s.Port, ""))
	s.Accept(`{"message":"one"}`)
	s.Accept(`{"message":"two"}`)
	one, two := next(), next()
	if one.Token == two.Token {
		t.Error("two turns have the same token")
	}
	swapped := replyAddress{one.URL, two.Token}
	swapped.post(t, `{"text":"x"}`).WantError(t, 401)
	person := replyAddress{strings.Replace(one.URL, "/replies/", "/answers/", 1), one.Token}
	person.post(t, `{"answer":"yes"}`).WantError(t, 401)
	for _, path := range []string{"/replies/", "/replies/x", "/replies/q_00", "/answers/../agent", "/answers/q_" + strings.Repeat("0", 32) + "_99"} {
		if resp := s.Request("POST", "/api/hooks"+path, `{"text":"x"}`); resp.Status != 404 {
			t.Errorf("%s is answered %d %s", path, resp.Status, resp.Body)
		}
	}
	var limited bool
	for range 200 {
		limited = limited || swapped.post(t, `{"text":"x"}`).Status == 429
	}
	if !limited {
		t.Error("whoever guesses tokens is not slowed down")
	}
}

// The log warns once if agents or people have nowhere to answer.
func TestAWarningThatNobodyCanAnswer(t *testing.T) {
	const ask = "channel ops webhook https://chat.example.com\nhook deploy {\naction agent\nask ops on-call before run\n}\n"
	for hooks, want := range map[string]string{
		"runner http http://127.0.0.1:9 {\nasync 1h\n}\n" + ask: `"runner":"default"`,
		"runner a2a http://127.0.0.1:9 {\npush\n}":              `"runner":"default"`,
		"runner echo\n" + ask:                                   `"hook":"deploy","channel":"ops"`,
		"runner http http://127.0.0.1:9":                        "",
		"public_url https://hooks.example.com\nrunner http http://127.0.0.1:9 {\nasync 1h\n}\n" + ask: "",
	} {
		s, log := newLoggedServer(t)
		s.Site = ":" + s.Port
		s.Load("hooks {\nstore memory\n" + hooks + "\n}")
		text := log()
		if n := strings.Count(text, "have no URL to answer at"); (n == 1) != (want != "") || n > 1 || !strings.Contains(text, want) {
			t.Errorf("%s\nis warned about %d times, want %s:\n%s", hooks, n, want, text)
		}
	}
}
