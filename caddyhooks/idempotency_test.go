package caddyhooks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// scriptedRunner answers as messages say: "fail" fails, "hold" waits for the end of the turn, "mend" needs a repair for
// its schema, "unfit" cannot be repaired, and everything else is answered with the message.
func scriptedRunner(t testing.TB) *runner {
	var unfit sync.Map
	return startRunner(t, func(w http.ResponseWriter, r *http.Request, tn turn) {
		id, message := tn.text("runId"), tn.text("message")
		if tn.text("phase") == "repair" {
			if _, ok := unfit.Load(id); !ok {
				_, _ = io.WriteString(w, `{"n":7}`)
			}
			return
		}
		switch message {
		case "fail":
			w.WriteHeader(500)
		case "hold":
			<-r.Context().Done()
		case "unfit":
			unfit.Store(id, true)
		}
		_, _ = io.WriteString(w, message)
	})
}

// sameAnswer are the headers that a repeated request is answered with as the first one was.
var sameAnswer = []string{"Content-Type", "Location", "Retry-After", "X-Service-Run-Id", "X-Service-Chat-Id", "X-Service-Schema-Repair-Attempts"}

// wantReplay checks that an answer is the first one again, and says so.
func (r response) wantReplay(t testing.TB, first response) {
	t.Helper()
	if r.status != first.status || r.body != first.body {
		t.Errorf("got %d %s, want %d %s again", r.status, r.body, first.status, first.body)
	}
	for _, name := range sameAnswer {
		if got, want := r.header.Get(name), first.header.Get(name); got != want {
			t.Errorf("%s is %q, and was %q", name, got, want)
		}
	}
	if got := r.header.Get("Idempotent-Replayed"); got != "true" {
		t.Errorf("Idempotent-Replayed is %q", got)
	}
}

// wantNew checks that an answer is not that of an earlier request.
func (r response) wantNew(t testing.TB, status int) {
	t.Helper()
	if r.status != status || r.header["Idempotent-Replayed"] != nil {
		t.Errorf("got %d %v %s, want a new answer with %d", r.status, r.header["Idempotent-Replayed"], r.body, status)
	}
}

// key is a header that marks a request as one that may be repeated.
func key(k string) []string { return []string{"Idempotency-Key", k} }

func schemaBody(message string) string {
	return `{"message":"` + message + `","syncResponse":true,"responseJsonSchema":` + numberSchema + `}`
}

func TestRepeatedRequestIsAnsweredAsTheFirstAndCarriedOutOnce(t *testing.T) {
	const custom = `
		hook bell
		hook full {
			action agent
			template "{a}"
		}
		hook answering {
			action agent
			sync
			template "{a}"
		}`
	for _, store := range []string{"bolt", "memory"} {
		rn := scriptedRunner(t)
		s := startSite(t, hooks(rn, "workers 1\n store "+store+custom))
		for _, c := range []struct {
			name, path, body string
			status, turns    int
		}{
			{"wake", "wake", `{"text":"a","chatId":"w"}`, 200, 1},
			{"agent", "agent", `{"message":"a"}`, 202, 1},
			{"agent with a chat", "agent", `{"message":"a","chatId":"<é>"}`, 202, 1},
			{"custom wake hook", "bell", `{"a":"b"}`, 200, 1},
			{"custom agent hook", "full", `{"a":"b"}`, 202, 1},
			{"custom sync hook", "answering", `{"a":"b"}`, 200, 1},
			{"text", "agent", `{"message":"a","syncResponse":true,"chatId":"<é>"}`, 200, 1},
			{"JSON", "agent", schemaBody(`{\"n\":1}`), 200, 1},
			{"JSON after a repair", "agent", schemaBody("mend"), 200, 2},
			{"422", "agent", schemaBody("unfit"), 422, 4},
			{"502", "agent", `{"message":"fail","syncResponse":true}`, 502, 1},
			{"504", "agent", `{"message":"hold","syncResponse":true,"timeoutSeconds":1}`, 504, 1},
		} {
			if c.status == 504 && store == "memory" {
				continue // takes a second, and the other store has shown it
			}
			t.Run(store+" "+c.name, func(t *testing.T) {
				first := s.post("/api/hooks/"+c.path, c.body, key(c.name)...)
				first.wantNew(t, c.status)
				for range c.turns {
					rn.next()
				}
				for range 3 {
					s.post("/api/hooks/"+c.path, c.body, key(c.name)...).wantReplay(t, first)
				}
				rn.wantNoTurn(s)
			})
		}
	}
}

func TestRepeatedRequestIsKnownByEveryFormOfItsKey(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, "workers 1"))
	long := strings.Repeat("k", 256)
	for _, same := range [][]string{
		{`k`, `"k"`, ` k `, "\t\"k\" "},
		{`a"b\c`, `"a\"b\\c"`},
		{`a b`, `"a b"`},
		{`a,b;c=d`, `"a,b;c=d"`},
		{long, `"` + long + `"`},
		{strings.Repeat(`\`, 256), `"` + strings.Repeat(`\\`, 256) + `"`},
		{"ké", `"ké"`},
		{"'k'"},
		{"K"},
	} {
		first := s.post("/api/hooks/agent", `{"message":"a"}`, key(same[0])...)
		first.wantNew(t, 202)
		rn.next()
		for _, again := range same {
			s.post("/api/hooks/agent", `{"message":"a"}`, key(again)...).wantReplay(t, first)
		}
	}
	rn.wantNoTurn(s)
}

func TestRequestsWithoutAKeyAreNotRepeats(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, ""))
	first := s.accept(`{"message":"a"}`)
	if second := s.accept(`{"message":"a"}`); second == first {
		t.Error("the second request was taken for the first")
	}
	rn.next()
	rn.next()
}

func TestKeysThatCannotBeUsedAre400(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, "workers 1\n hook custom {\n idempotency_header X-Delivery\n }"))
	for name, values := range map[string][]string{
		"empty":                 {""},
		"blank":                 {"  "},
		"empty string":          {`""`},
		"too long":              {strings.Repeat("k", 257)},
		"too long, quoted":      {`"` + strings.Repeat("k", 257) + `"`},
		"two":                   {"k", "k"},
		"two different":         {"k", "l"},
		"not closed":            {`"k`},
		"a quote alone":         {`"`},
		"closed too early":      {`"k"l`},
		"two strings":           {`"k", "l"`},
		"with parameters":       {`"k";a=1`},
		"unknown escape":        {`"\n"`},
		"escape without an end": {`"k\`},
	} {
		for header, path := range map[string]string{"Idempotency-Key": "agent", "webhook-id": "wake", "X-Delivery": "custom"} {
			t.Run(header+" "+name, func(t *testing.T) {
				var headers []string
				for _, value := range values {
					headers = append(headers, header, value)
				}
				s.post("/api/hooks/"+path, `{"message":"a","text":"a"}`, headers...).wantError(t, 400, http.CanonicalHeaderKey(header), "256")
			})
		}
	}
	rn.wantNoTurn(s)
}

func TestKeyIsTakenFromTheHeaderThatTheHookNames(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, `
		workers 1
		hook pinned {
			action agent
			idempotency_header x-GitHub-delivery
		}
		hook plain {
			action agent
		}`))
	s.putMapping("live", `{"action":"agent","idempotencyHeader":"X-GitHub-Delivery"}`)
	if got := s.adminRequest("GET", "/hooks/mappings/live", "").field(t, "idempotencyHeader"); got != "X-GitHub-Delivery" {
		t.Errorf("the mapping is shown with %v", got)
	}
	ask := func(hook string, headers ...string) response { return s.post("/api/hooks/"+hook, `{}`, headers...) }
	for _, hook := range []string{"pinned", "live"} {
		t.Run(hook, func(t *testing.T) {
			first := ask(hook, "X-GitHub-Delivery", "1", "Idempotency-Key", "a", "webhook-id", "x")
			first.wantNew(t, 202)
			ask(hook, "X-GitHub-Delivery", "1", "Idempotency-Key", "b").wantReplay(t, first)
			ask(hook, "X-GitHub-Delivery", `"1"`).wantReplay(t, first)
			ask(hook, "X-GitHub-Delivery", "2", "Idempotency-Key", "a").wantNew(t, 202)
			// Without it the usual ones count.
			second := ask(hook, "Idempotency-Key", "c", "webhook-id", "x")
			second.wantNew(t, 202)
			ask(hook, "Idempotency-Key", "c", "webhook-id", "y").wantReplay(t, second)
			third := ask(hook, "webhook-id", "msg_1")
			third.wantNew(t, 202)
			ask(hook, "webhook-id", "msg_1").wantReplay(t, third)
			for range 4 {
				rn.next()
			}
		})
	}
	t.Run("and from no other", func(t *testing.T) {
		ask("plain", "X-GitHub-Delivery", "9").wantNew(t, 202)
		ask("plain", "X-GitHub-Delivery", "9").wantNew(t, 202)
		rn.next()
		rn.next()
	})
	rn.wantNoTurn(s)
}

func TestSameKeyWithAnotherBodyIs409(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, "workers 1\n hook custom"))
	for _, c := range []struct{ path, body, other string }{
		{"wake", `{"text":"a"}`, `{"text":"b"}`},
		{"agent", `{"message":"a"}`, `{"message":"a"} `},
		{"agent", `{"message":"c","syncResponse":true}`, `{"message":"c"}`},
		{"custom", `{"a":1}`, `{"a":1.0}`},
	} {
		k := key("key of " + c.body)
		first := s.post("/api/hooks/"+c.path, c.body, k...)
		first.wantNew(t, first.status)
		rn.next()
		for range 2 {
			resp := s.post("/api/hooks/"+c.path, c.other, k...)
			resp.wantError(t, 409, "another body")
			if resp.header["Retry-After"] != nil || resp.header["Idempotent-Replayed"] != nil || resp.header["Location"] != nil {
				t.Errorf("got the headers %v", resp.header)
			}
		}
		s.post("/api/hooks/"+c.path, c.body, k...).wantReplay(t, first)
	}
	rn.wantNoTurn(s)
}

// hold sends a sync request whose answer is handed over when it comes.
func (s *server) hold(ctx context.Context, body string, headers ...string) <-chan response {
	answer := make(chan response, 1)
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/api/hooks/agent", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answer <- response{body: err.Error()}
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		answer <- response{resp.StatusCode, resp.Header, string(data)}
	}()
	return answer
}

func TestSyncRunThatIsStillGoingIs409(t *testing.T) {
	rn, _, release := heldRunner(t)
	s := startSite(t, hooks(rn, ""))
	const body = `{"message":"hold","chatId":"c","syncResponse":true}`
	answer := s.hold(t.Context(), body, key("running")...)
	rn.next()
	queued := s.hold(t.Context(), body, key("queued")...)
	eventually(t, "both callers wait", func() bool { return goroutinesIn(s, "engine.(*Engine).Do(") == 2 })
	for _, k := range []string{"running", "queued"} {
		resp := s.post("/api/hooks/agent", body, key(k)...)
		resp.wantError(t, 409, "still")
		if resp.header.Get("Retry-After") == "" || resp.header["Idempotent-Replayed"] != nil {
			t.Errorf("%s: got the headers %v", k, resp.header)
		}
		s.post("/api/hooks/agent", strings.Replace(body, "hold", "other", 1), key(k)...).wantError(t, 409, "another body")
	}
	close(release)
	for k, answer := range map[string]<-chan response{"running": answer, "queued": queued} {
		first := receiveWithin(t, "the first caller is answered", answer)
		first.wantNew(t, 200)
		s.post("/api/hooks/agent", body, key(k)...).wantReplay(t, first)
	}
}

func TestKeyCanBeUsedAgainAfterNothingCameOfIt(t *testing.T) {
	t.Run("the runner was not there", func(t *testing.T) {
		rn := startRunner(t, nil)
		s := startSite(t, hooks(rn, ""))
		const body = `{"message":"a","syncResponse":true}`
		away := strings.Replace(hooks(rn, ""), rn.URL, "http://127.0.0.1:"+freePort(t), 1)
		s.reload(away)
		for range 2 {
			s.post("/api/hooks/agent", body, key("k")...).wantNew(t, 503)
		}
		s.reload(hooks(rn, ""))
		first := s.post("/api/hooks/agent", body, key("k")...)
		first.wantNew(t, 200)
		s.post("/api/hooks/agent", body, key("k")...).wantReplay(t, first)
	})
	t.Run("the runner asked for more time than there was", func(t *testing.T) {
		rn := startRunner(t, func(w http.ResponseWriter, _ *http.Request, _ turn) {
			w.Header().Set("Retry-After", "77")
			w.WriteHeader(503)
		})
		s := startSite(t, hooks(rn, ""))
		const body = `{"message":"a","syncResponse":true,"timeoutSeconds":5}`
		for range 2 {
			resp := s.post("/api/hooks/agent", body, key("k")...)
			resp.wantNew(t, 503)
			rn.next()
		}
	})
	t.Run("the caller went away", func(t *testing.T) {
		rn, gone, release := heldRunner(t)
		s := startSite(t, hooks(rn, ""))
		const body = `{"message":"hold","syncResponse":true}`
		ctx, leave := context.WithCancel(t.Context())
		answer := s.hold(ctx, body, key("k")...)
		id := rn.next().text("runId")
		leave()
		receiveWithin(t, "the caller is gone", answer)
		receiveWithin(t, "the turn ends", gone)
		if r := s.ended(id); r.Status != "cancelled" {
			t.Fatalf("got %s", r.body)
		}
		close(release)
		resp := s.post("/api/hooks/agent", body, key("k")...)
		resp.wantNew(t, 200)
		if resp.header.Get("X-Service-Run-Id") == id {
			t.Error("it is the same run")
		}
	})
	t.Run("it was cancelled", func(t *testing.T) {
		rn, _, _ := heldRunner(t)
		s := startSite(t, hooks(rn, ""))
		first := s.post("/api/hooks/agent", `{"message":"hold"}`, key("k")...)
		s.cancelRun(first.field(t, "runId").(string)).shown(t)
		second := s.post("/api/hooks/agent", `{"message":"other"}`, key("k")...)
		second.wantNew(t, 202)
		s.post("/api/hooks/agent", `{"message":"other"}`, key("k")...).wantReplay(t, second)
	})
	t.Run("it was refused", func(t *testing.T) {
		rn := startRunner(t, nil)
		s := startSite(t, hooks(rn, ""))
		s.post("/api/hooks/agent", `{"message":""}`, key("k")...).wantNew(t, 400)
		s.request("POST", "/api/hooks/agent", `{"message":"a"}`, key("k")...).wantNew(t, 401)
		s.post("/api/hooks/agent", `{"message":"a"}`, key("k")...).wantNew(t, 202)
	})
}

func TestKeysAreApartByEndpointAndCredential(t *testing.T) {
	rn := startRunner(t, nil)
	s := newServer(t)
	config := func(tokens string) string {
		return "hooks {\n enabled\n token " + tokens + "\n workers 1\n runner http " + rn.URL + `
		hook one
		hook two
		hook signed {
			auth hmac X-Sig secret
		}
		hook resigned {
			auth hmac X-Sig secret
		}
		}`
	}
	s.load(config(token + " second"))
	const body = `{"text":"a","message":"a"}`
	send := func(path string, credential ...string) response {
		return s.request("POST", "/api/hooks/"+path, body, append(credential, key("k")...)...)
	}
	bearer := []string{"Authorization", "Bearer " + token}
	firsts := make(map[string]response)
	for _, path := range []string{"wake", "agent", "one", "two"} {
		firsts[path] = send(path, bearer...)
		firsts[path].wantNew(t, firsts[path].status)
		firsts[path+" second"] = send(path, "Authorization", "Bearer second")
		firsts[path+" second"].wantNew(t, firsts[path].status)
		rn.next()
		rn.next()
	}
	for _, path := range []string{"signed", "resigned"} {
		firsts[path] = send(path, "X-Sig", signature("secret", body))
		firsts[path].wantNew(t, 200)
		rn.next()
		send(path, "X-Sig", signature("secret", body)).wantReplay(t, firsts[path])
	}
	if a, b := firsts["agent"].field(t, "runId"), firsts["agent second"].field(t, "runId"); a == b {
		t.Error("two tokens share a run")
	}
	// The same token in another header, and one among others, is the same credential.
	for _, path := range []string{"wake", "agent", "one", "two"} {
		send(path, bearer...).wantReplay(t, firsts[path])
		send(path, "X-Service-Token", token).wantReplay(t, firsts[path])
		send(path, "X-Service-Token", "wrong", "Authorization", "bearer "+token).wantReplay(t, firsts[path])
		send(path, "X-Service-Token", "second").wantReplay(t, firsts[path+" second"])
	}
	// Which tokens there are besides, and in which order, is no matter.
	s.reload(config("second third " + token))
	send("agent", bearer...).wantReplay(t, firsts["agent"])
	send("agent", "Authorization", "Bearer second").wantReplay(t, firsts["agent second"])
	rn.wantNoTurn(s)
}

func TestOneOfManyRequestsWithTheSameKeyIsCarriedOut(t *testing.T) {
	const requests = 64
	for _, c := range []struct {
		name, path, body string
		status           int
	}{
		{"wake", "wake", `{"text":"a"}`, 200},
		{"agent", "agent", `{"message":"a"}`, 202},
		{"sync", "agent", `{"message":"a","syncResponse":true}`, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			rn := startRunner(t, nil)
			s := startSite(t, hooks(rn, "workers 1"))
			start := make(chan struct{})
			answers := make(chan response, requests)
			for range requests {
				go func() {
					<-start
					resp, err := tryRequest("POST", s.url+"/api/hooks/"+c.path, c.body, "Authorization", "Bearer "+token, "Idempotency-Key", "k")
					if err != nil {
						resp.body = err.Error()
					}
					answers <- resp
				}()
			}
			close(start)
			var first response
			var others []response
			for range requests {
				resp := receiveWithin(t, "a request is answered", answers)
				switch {
				case resp.status == 409 && c.name == "sync":
					resp.wantError(t, 409, "still")
				case resp.status == c.status && resp.header["Idempotent-Replayed"] == nil:
					if first.status != 0 {
						t.Error("two requests were new")
					}
					first = resp
				default:
					others = append(others, resp)
				}
			}
			first.wantNew(t, c.status)
			for _, other := range others {
				other.wantReplay(t, first)
			}
			rn.next()
			rn.wantNoTurn(s)
		})
	}
}

func TestKeysSurviveReloadsAndRestarts(t *testing.T) {
	rn := scriptedRunner(t)
	config := func(workers int) string { return hooks(rn, fmt.Sprintf("workers %d\n hook custom", workers)) }
	s := startSite(t, config(1))
	bodies := map[string]string{
		`{"text":"a"}`:                           "wake",
		`{"message":"a"}`:                        "agent",
		`{"message":"b","syncResponse":true}`:    "agent",
		`{"message":"fail","syncResponse":true}`: "agent",
		schemaBody("mend"):                       "agent",
		`{"a":1}`:                                "custom",
	}
	firsts := make(map[string]response)
	for body, path := range bodies {
		firsts[body] = s.post("/api/hooks/"+path, body, key(body)...)
		firsts[body].wantNew(t, firsts[body].status)
	}
	wantReplays := func(t *testing.T) {
		t.Helper()
		for body, path := range bodies {
			s.post("/api/hooks/"+path, body, key(body)...).wantReplay(t, firsts[body])
			s.post("/api/hooks/"+path, strings.Replace(body, "}", " }", 1), key(body)...).wantError(t, 409)
		}
	}
	for range len(bodies) + 1 { // one needs a repair
		rn.next()
	}
	t.Run("reload", func(t *testing.T) {
		s.reload(config(2))
		wantReplays(t)
	})
	t.Run("restart", func(t *testing.T) {
		s.restart(config(1))
		wantReplays(t)
	})
	s.reload(config(1))
	rn.wantNoTurn(s)
}

func TestRepeatedRequestNeedsNoRoomInTheQueue(t *testing.T) {
	rn, _, release := heldRunner(t)
	s := startSite(t, hooks(rn, "workers 1\n queue_limit 1\n chat_limit 1"))
	running := s.post("/api/hooks/agent", `{"message":"hold"}`, key("running")...)
	rn.next()
	queued := s.post("/api/hooks/agent", `{"message":"queued"}`, key("queued")...)
	s.post("/api/hooks/agent", `{"message":"new"}`, key("new")...).wantNew(t, 503)
	s.post("/api/hooks/agent", `{"message":"hold"}`, key("running")...).wantReplay(t, running)
	s.post("/api/hooks/agent", `{"message":"queued"}`, key("queued")...).wantReplay(t, queued)
	s.post("/api/hooks/agent", `{"message":"other"}`, key("queued")...).wantError(t, 409)
	close(release)
	s.ended(queued.field(t, "runId").(string))
	// The key of the request that was not taken is still free.
	s.post("/api/hooks/agent", `{"message":"another"}`, key("new")...).wantNew(t, 202)
}

func TestKnownKeyIsNoExcuse(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, "workers 1\n hook custom"))
	for path, body := range map[string]string{"wake": `{"text":"a"}`, "agent": `{"message":"a"}`, "custom": `{}`} {
		first := s.post("/api/hooks/"+path, body, key("k")...)
		rn.next()
		s.post("/api/hooks/"+path, `{"broken`, key("k")...).wantError(t, 400, "JSON")
		s.request("POST", "/api/hooks/"+path, body, key("k")...).wantError(t, 401)
		s.request("PUT", "/api/hooks/"+path, body, key("k")...).wantError(t, 405)
		s.post("/api/hooks/"+path, body, key("k")...).wantReplay(t, first)
	}
	s.post("/api/hooks/wake", `{}`, key("k")...).wantError(t, 400, "text")
	s.post("/api/hooks/agent", `{"message":"a","model":"none"}`, key("k")...).wantError(t, 400, "model")
	s.post("/api/hooks/custom", strings.Repeat("[", 70_000), key("k")...).wantError(t, 413)
	rn.wantNoTurn(s)
}

// A run is told about as long as its key is known, however short it is kept.
func TestKeysAreNotKeptLongerThanRuns(t *testing.T) {
	rn := startRunner(t, nil)
	s := startSite(t, hooks(rn, "retention 1s"))
	first := s.post("/api/hooks/agent", `{"message":"a","syncResponse":true}`, key("k")...)
	first.wantNew(t, 200)
	var again response
	within(t, 5*time.Second, "the key is forgotten", func() bool {
		again = s.post("/api/hooks/agent", `{"message":"a","syncResponse":true}`, key("k")...)
		return again.header["Idempotent-Replayed"] == nil
	})
	again.wantNew(t, 200)
}
