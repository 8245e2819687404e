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

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// scriptedRunner answers as messages say: "fail" fails, "hold" waits for the end of the turn, "mend" needs a repair for
// its schema, "unfit" cannot be repaired, and everything else is answered with the message.
func scriptedRunner(t testing.TB) *hookstest.Runner {
	var unfit sync.Map
	return hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		id, message := tn.Text("runId"), tn.Text("message")
		if tn.Text("phase") == "repair" {
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
		s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n store "+store+custom))
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
				first := s.Post("/api/hooks/"+c.path, c.body, hookstest.Key(c.name)...)
				first.WantNew(t, c.status)
				for range c.turns {
					rn.Next()
				}
				for range 3 {
					s.Post("/api/hooks/"+c.path, c.body, hookstest.Key(c.name)...).WantReplay(t, first)
				}
				rn.WantNoTurn(s)
			})
		}
	}
}

func TestRepeatedRequestIsKnownByEveryFormOfItsKey(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1"))
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
		first := s.Post("/api/hooks/agent", `{"message":"a"}`, hookstest.Key(same[0])...)
		first.WantNew(t, 202)
		rn.Next()
		for _, again := range same {
			s.Post("/api/hooks/agent", `{"message":"a"}`, hookstest.Key(again)...).WantReplay(t, first)
		}
	}
	rn.WantNoTurn(s)
}

func TestRequestsWithoutAKeyAreNotRepeats(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	first := s.Accept(`{"message":"a"}`)
	if second := s.Accept(`{"message":"a"}`); second == first {
		t.Error("the second request was taken for the first")
	}
	rn.Next()
	rn.Next()
}

func TestKeysThatCannotBeUsedAre400(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n hook custom {\n idempotency_header X-Delivery\n }"))
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
				s.Post("/api/hooks/"+path, `{"message":"a","text":"a"}`, headers...).WantError(t, 400, http.CanonicalHeaderKey(header), "256")
			})
		}
	}
	rn.WantNoTurn(s)
}

func TestKeyIsTakenFromTheHeaderThatTheHookNames(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `
		workers 1
		hook pinned {
			action agent
			idempotency_header x-GitHub-delivery
		}
		hook plain {
			action agent
		}`))
	s.PutMapping("live", `{"action":"agent","idempotencyHeader":"X-GitHub-Delivery"}`)
	if got := s.AdminRequest("GET", "/hooks/mappings/live", "").Field(t, "idempotencyHeader"); got != "X-GitHub-Delivery" {
		t.Errorf("the mapping is shown with %v", got)
	}
	ask := func(hook string, headers ...string) hookstest.Response {
		return s.Post("/api/hooks/"+hook, `{}`, headers...)
	}
	// Operators see which header it was.
	wantHeader := func(t *testing.T, of hookstest.Response, want any) {
		t.Helper()
		if got := s.AdminRequest("GET", "/hooks/runs/"+of.Field(t, "runId").(string), "").Field(t, "keyHeader"); got != want {
			t.Errorf("the key came from %v, want %v", got, want)
		}
	}
	for _, hook := range []string{"pinned", "live"} {
		t.Run(hook, func(t *testing.T) {
			first := ask(hook, "X-GitHub-Delivery", "1", "Idempotency-Key", "a", "webhook-id", "x")
			first.WantNew(t, 202)
			ask(hook, "X-GitHub-Delivery", "1", "Idempotency-Key", "b").WantReplay(t, first)
			ask(hook, "X-GitHub-Delivery", `"1"`).WantReplay(t, first)
			ask(hook, "X-GitHub-Delivery", "2", "Idempotency-Key", "a").WantNew(t, 202)
			// Without it the usual ones count.
			second := ask(hook, "Idempotency-Key", "c", "webhook-id", "x")
			second.WantNew(t, 202)
			ask(hook, "Idempotency-Key", "c", "webhook-id", "y").WantReplay(t, second)
			third := ask(hook, "webhook-id", "msg_1")
			third.WantNew(t, 202)
			ask(hook, "webhook-id", "msg_1").WantReplay(t, third)
			wantHeader(t, first, "X-Github-Delivery")
			wantHeader(t, second, "Idempotency-Key")
			wantHeader(t, third, "Webhook-Id")
			for range 4 {
				rn.Next()
			}
		})
	}
	t.Run("and from no other", func(t *testing.T) {
		first := ask("plain", "X-GitHub-Delivery", "9")
		first.WantNew(t, 202)
		wantHeader(t, first, nil)
		ask("plain", "X-GitHub-Delivery", "9").WantNew(t, 202)
		rn.Next()
		rn.Next()
	})
	rn.WantNoTurn(s)
}

func TestSameKeyWithAnotherBodyIs409(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n hook custom"))
	for _, c := range []struct{ path, body, other string }{
		{"wake", `{"text":"a"}`, `{"text":"b"}`},
		{"agent", `{"message":"a"}`, `{"message":"a"} `},
		{"agent", `{"message":"c","syncResponse":true}`, `{"message":"c"}`},
		{"custom", `{"a":1}`, `{"a":1.0}`},
	} {
		k := hookstest.Key("key of " + c.body)
		first := s.Post("/api/hooks/"+c.path, c.body, k...)
		first.WantNew(t, first.Status)
		rn.Next()
		for range 2 {
			resp := s.Post("/api/hooks/"+c.path, c.other, k...)
			resp.WantError(t, 409, "another body")
			if resp.Header["Retry-After"] != nil || resp.Header["Idempotent-Replayed"] != nil || resp.Header["Location"] != nil {
				t.Errorf("got the headers %v", resp.Header)
			}
		}
		s.Post("/api/hooks/"+c.path, c.body, k...).WantReplay(t, first)
	}
	rn.WantNoTurn(s)
}

func TestSyncRunThatIsStillGoingIs409(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	const body = `{"message":"hold","chatId":"c","syncResponse":true}`
	answer := s.Hold(t.Context(), body, hookstest.Key("running")...)
	rn.Next()
	queued := s.Hold(t.Context(), body, hookstest.Key("queued")...)
	hookstest.Eventually(t, "both callers wait", func() bool { return hookstest.GoroutinesIn(s, "engine.(*Engine).Do(") == 2 })
	for _, k := range []string{"running", "queued"} {
		resp := s.Post("/api/hooks/agent", body, hookstest.Key(k)...)
		resp.WantError(t, 409, "still")
		if resp.Header.Get("Retry-After") == "" || resp.Header["Idempotent-Replayed"] != nil {
			t.Errorf("%s: got the headers %v", k, resp.Header)
		}
		s.Post("/api/hooks/agent", strings.Replace(body, "hold", "other", 1), hookstest.Key(k)...).WantError(t, 409, "another body")
	}
	close(release)
	for k, answer := range map[string]<-chan hookstest.Response{"running": answer, "queued": queued} {
		first := hookstest.ReceiveWithin(t, "the first caller is answered", answer)
		first.WantNew(t, 200)
		s.Post("/api/hooks/agent", body, hookstest.Key(k)...).WantReplay(t, first)
	}
}

func TestKeyCanBeUsedAgainAfterNothingCameOfIt(t *testing.T) {
	t.Run("the runner was not there", func(t *testing.T) {
		rn := hookstest.StartRunner(t, nil)
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		const body = `{"message":"a","syncResponse":true}`
		away := strings.Replace(hookstest.Hooks(rn, ""), rn.URL, "http://127.0.0.1:"+hookstest.FreePort(t), 1)
		s.Reload(away)
		for range 2 {
			s.Post("/api/hooks/agent", body, hookstest.Key("k")...).WantNew(t, 503)
		}
		s.Reload(hookstest.Hooks(rn, ""))
		first := s.Post("/api/hooks/agent", body, hookstest.Key("k")...)
		first.WantNew(t, 200)
		s.Post("/api/hooks/agent", body, hookstest.Key("k")...).WantReplay(t, first)
	})
	t.Run("the runner asked for more time than there was", func(t *testing.T) {
		rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
			w.Header().Set("Retry-After", "77")
			w.WriteHeader(503)
		})
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		const body = `{"message":"a","syncResponse":true,"timeoutSeconds":5}`
		for range 2 {
			resp := s.Post("/api/hooks/agent", body, hookstest.Key("k")...)
			resp.WantNew(t, 503)
			rn.Next()
		}
	})
	t.Run("the caller went away", func(t *testing.T) {
		rn, gone, release := hookstest.HeldRunner(t)
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		const body = `{"message":"hold","syncResponse":true}`
		ctx, leave := context.WithCancel(t.Context())
		answer := s.Hold(ctx, body, hookstest.Key("k")...)
		id := rn.Next().Text("runId")
		leave()
		hookstest.ReceiveWithin(t, "the caller is gone", answer)
		hookstest.ReceiveWithin(t, "the turn ends", gone)
		if r := s.Ended(id); r.Status != "cancelled" {
			t.Fatalf("got %s", r.Body)
		}
		close(release)
		resp := s.Post("/api/hooks/agent", body, hookstest.Key("k")...)
		resp.WantNew(t, 200)
		if resp.Header.Get("X-Service-Run-Id") == id {
			t.Error("it is the same run")
		}
	})
	t.Run("it was cancelled", func(t *testing.T) {
		rn, _, _ := hookstest.HeldRunner(t)
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		first := s.Post("/api/hooks/agent", `{"message":"hold"}`, hookstest.Key("k")...)
		s.CancelRun(first.Field(t, "runId").(string)).Shown(t)
		second := s.Post("/api/hooks/agent", `{"message":"other"}`, hookstest.Key("k")...)
		second.WantNew(t, 202)
		s.Post("/api/hooks/agent", `{"message":"other"}`, hookstest.Key("k")...).WantReplay(t, second)
	})
	t.Run("it was refused", func(t *testing.T) {
		rn := hookstest.StartRunner(t, nil)
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		s.Post("/api/hooks/agent", `{"message":""}`, hookstest.Key("k")...).WantNew(t, 400)
		s.Request("POST", "/api/hooks/agent", `{"message":"a"}`, hookstest.Key("k")...).WantNew(t, 401)
		s.Post("/api/hooks/agent", `{"message":"a"}`, hookstest.Key("k")...).WantNew(t, 202)
	})
}

func TestKeysAreApartByEndpointAndCredential(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.NewServer(t)
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
	s.Load(config(hookstest.Token + " second"))
	const body = `{"text":"a","message":"a"}`
	send := func(path string, credential ...string) hookstest.Response {
		return s.Request("POST", "/api/hooks/"+path, body, append(credential, hookstest.Key("k")...)...)
	}
	bearer := []string{"Authorization", "Bearer " + hookstest.Token}
	firsts := make(map[string]hookstest.Response)
	for _, path := range []string{"wake", "agent", "one", "two"} {
		firsts[path] = send(path, bearer...)
		firsts[path].WantNew(t, firsts[path].Status)
		firsts[path+" second"] = send(path, "Authorization", "Bearer second")
		firsts[path+" second"].WantNew(t, firsts[path].Status)
		rn.Next()
		rn.Next()
	}
	for _, path := range []string{"signed", "resigned"} {
		firsts[path] = send(path, "X-Sig", signature("secret", body))
		firsts[path].WantNew(t, 200)
		rn.Next()
		send(path, "X-Sig", signature("secret", body)).WantReplay(t, firsts[path])
	}
	if a, b := firsts["agent"].Field(t, "runId"), firsts["agent second"].Field(t, "runId"); a == b {
		t.Error("two tokens share a run")
	}
	// The same token in another header, and one among others, is the same credential.
	for _, path := range []string{"wake", "agent", "one", "two"} {
		send(path, bearer...).WantReplay(t, firsts[path])
		send(path, "X-Service-Token", hookstest.Token).WantReplay(t, firsts[path])
		send(path, "X-Service-Token", "wrong", "Authorization", "bearer "+hookstest.Token).WantReplay(t, firsts[path])
		send(path, "X-Service-Token", "second").WantReplay(t, firsts[path+" second"])
	}
	// Which tokens there are besides, and in which order, is no matter.
	s.Reload(config("second third " + hookstest.Token))
	send("agent", bearer...).WantReplay(t, firsts["agent"])
	send("agent", "Authorization", "Bearer second").WantReplay(t, firsts["agent second"])
	rn.WantNoTurn(s)
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
			rn := hookstest.StartRunner(t, nil)
			s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1"))
			start := make(chan struct{})
			answers := make(chan hookstest.Response, requests)
			for range requests {
				go func() {
					<-start
					resp, err := hookstest.TryRequest("POST", s.URL+"/api/hooks/"+c.path, c.body, "Authorization", "Bearer "+hookstest.Token, "Idempotency-Key", "k")
					if err != nil {
						resp.Body = err.Error()
					}
					answers <- resp
				}()
			}
			close(start)
			var first hookstest.Response
			var others []hookstest.Response
			for range requests {
				resp := hookstest.ReceiveWithin(t, "a request is answered", answers)
				switch {
				case resp.Status == 409 && c.name == "sync":
					resp.WantError(t, 409, "still")
				case resp.Status == c.status && resp.Header["Idempotent-Replayed"] == nil:
					if first.Status != 0 {
						t.Error("two requests were new")
					}
					first = resp
				default:
					others = append(others, resp)
				}
			}
			first.WantNew(t, c.status)
			for _, other := range others {
				other.WantReplay(t, first)
			}
			rn.Next()
			rn.WantNoTurn(s)
		})
	}
}

func TestKeysSurviveReloadsAndRestarts(t *testing.T) {
	rn := scriptedRunner(t)
	config := func(workers int) string { return hookstest.Hooks(rn, fmt.Sprintf("workers %d\n hook custom", workers)) }
	s := hookstest.StartSite(t, config(1))
	bodies := map[string]string{
		`{"text":"a"}`:                           "wake",
		`{"message":"a"}`:                        "agent",
		`{"message":"b","syncResponse":true}`:    "agent",
		`{"message":"fail","syncResponse":true}`: "agent",
		schemaBody("mend"):                       "agent",
		`{"a":1}`:                                "custom",
	}
	firsts := make(map[string]hookstest.Response)
	for body, path := range bodies {
		firsts[body] = s.Post("/api/hooks/"+path, body, hookstest.Key(body)...)
		firsts[body].WantNew(t, firsts[body].Status)
	}
	wantReplays := func(t *testing.T) {
		t.Helper()
		for body, path := range bodies {
			s.Post("/api/hooks/"+path, body, hookstest.Key(body)...).WantReplay(t, firsts[body])
			s.Post("/api/hooks/"+path, strings.Replace(body, "}", " }", 1), hookstest.Key(body)...).WantError(t, 409)
		}
	}
	for range len(bodies) + 1 { // one needs a repair
		rn.Next()
	}
	t.Run("reload", func(t *testing.T) {
		s.Reload(config(2))
		wantReplays(t)
	})
	t.Run("restart", func(t *testing.T) {
		s.Restart(config(1))
		wantReplays(t)
	})
	s.Reload(config(1))
	rn.WantNoTurn(s)
}

func TestRepeatedRequestNeedsNoRoomInTheQueue(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n queue_limit 1\n chat_limit 1"))
	running := s.Post("/api/hooks/agent", `{"message":"hold"}`, hookstest.Key("running")...)
	rn.Next()
	queued := s.Post("/api/hooks/agent", `{"message":"queued"}`, hookstest.Key("queued")...)
	s.Post("/api/hooks/agent", `{"message":"new"}`, hookstest.Key("new")...).WantNew(t, 503)
	s.Post("/api/hooks/agent", `{"message":"hold"}`, hookstest.Key("running")...).WantReplay(t, running)
	s.Post("/api/hooks/agent", `{"message":"queued"}`, hookstest.Key("queued")...).WantReplay(t, queued)
	s.Post("/api/hooks/agent", `{"message":"other"}`, hookstest.Key("queued")...).WantError(t, 409)
	close(release)
	s.Ended(queued.Field(t, "runId").(string))
	// The key of the request that was not taken is still free.
	s.Post("/api/hooks/agent", `{"message":"another"}`, hookstest.Key("new")...).WantNew(t, 202)
}

func TestKnownKeyIsNoExcuse(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n hook custom"))
	for path, body := range map[string]string{"wake": `{"text":"a"}`, "agent": `{"message":"a"}`, "custom": `{}`} {
		first := s.Post("/api/hooks/"+path, body, hookstest.Key("k")...)
		rn.Next()
		s.Post("/api/hooks/"+path, `{"broken`, hookstest.Key("k")...).WantError(t, 400, "JSON")
		s.Request("POST", "/api/hooks/"+path, body, hookstest.Key("k")...).WantError(t, 401)
		s.Request("PUT", "/api/hooks/"+path, body, hookstest.Key("k")...).WantError(t, 405)
		s.Post("/api/hooks/"+path, body, hookstest.Key("k")...).WantReplay(t, first)
	}
	s.Post("/api/hooks/wake", `{}`, hookstest.Key("k")...).WantError(t, 400, "text")
	s.Post("/api/hooks/agent", `{"message":"a","model":"none"}`, hookstest.Key("k")...).WantError(t, 400, "model")
	s.Post("/api/hooks/custom", strings.Repeat("[", 70_000), hookstest.Key("k")...).WantError(t, 413)
	rn.WantNoTurn(s)
}

// A key protects its request for a day, and a signature for as long as that is good. Its run may be forgotten much earlier.
func TestKeysOutliveTheirRuns(t *testing.T) { keysOutliveTheirRuns(t, "bolt", true) }

func TestKeysInMemoryOutliveTheirRuns(t *testing.T) { keysOutliveTheirRuns(t, "memory", false) }

func keysOutliveTheirRuns(t *testing.T, store string, restart bool) {
	rn := hookstest.StartRunner(t, nil)
	site := hookstest.Hooks(rn, "retention 1s\nstore "+store+"\nhook slack {\naction agent\nauth slack "+loudSecret+"\n}")
	s := hookstest.StartSite(t, site)
	now := time.Now()
	signed := func(body string) hookstest.Response {
		return s.Request("POST", "/api/hooks/slack", body, slackHeaders(loudSecret, body, now)...)
	}
	waited := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true}`, hookstest.Key("k")...)
	waited.WantNew(t, 200)
	named, unnamed := signed(`{"event_id":"Ev1"}`), signed(`{"no":"id"}`)
	for _, id := range []string{waited.Header.Get("X-Service-Run-Id"), acceptedRun(t, named), acceptedRun(t, unnamed)} {
		waitUntilForgotten(s, id)
	}
	if restart {
		s.Restart(site)
	}
	signed(`{"event_id":"Ev1"}`).WantReplay(t, named)
	signed(`{"no":"id"}`).WantReplay(t, unnamed)
	s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true}`, hookstest.Key("k")...).WantError(t, 409, "no longer kept")
}

// waitUntilForgotten waits until a run is pruned. Whenever the history gets shorter, the engine looks for what is too old.
func waitUntilForgotten(s *hookstest.Server, id string) {
	s.T.Helper()
	hookstest.Eventually(s.T, "the run is forgotten", func() bool {
		s.PatchSettings(`{"historySeconds":1}`)
		s.PatchSettings(`{"historySeconds":0}`)
		return s.LookUp(id, "").Status == 404
	})
}
