package caddyhooks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestBadRequestsAre400(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n max_timeout 10m\n hook custom\n"))
	for _, c := range []struct {
		name, path, body string
		words            []string
	}{
		{"missing text", "wake", `{}`, []string{"text"}},
		{"message instead of text", "wake", `{"message":"a"}`, []string{"wake takes its event as text, not as message"}},
		{"missing message", "agent", `{}`, []string{"message"}},
		{"text instead of message", "agent", `{"text":"a"}`, []string{"message", "text"}},
		{"malformed JSON for wake", "wake", `{"text":"a"`, []string{"JSON"}},
		{"malformed JSON for agent", "agent", `{"message":"a",}`, []string{"JSON"}},
		{"malformed JSON for a custom hook", "custom", `{a:1}`, []string{"JSON"}},
		{"callback URL without a scheme", "agent", `{"message":"a","callbackUrl":"example.com/x"}`, []string{"callbackUrl", "http://"}},
		{"callback URL of another scheme", "agent", `{"message":"a","callbackUrl":"ftp://example.com/"}`, []string{"callbackUrl", "http://"}},
		{"callback URL without a host", "agent", `{"message":"a","callbackUrl":"http:///x"}`, []string{"callbackUrl", "host"}},
		{"callback URL with a password", "agent", `{"message":"a","callbackUrl":"http://u:p@example.com/"}`, []string{"callbackUrl", "password"}},
		{"callback URL that is empty", "agent", `{"message":"a","callbackUrl":""}`, []string{"callbackUrl", "empty"}},
		{"callback URL with a bad port", "agent", `{"message":"a","callbackUrl":"http://example.com:99999/"}`, []string{"callbackUrl", "port"}},
		{"callback URL with a port that is not allowed", "agent", `{"message":"a","callbackUrl":"http://example.com:22/"}`, []string{"callbackUrl", "443"}},
		{"callback URL to loopback", "agent", `{"message":"a","callbackUrl":"http://127.0.0.1/"}`, []string{"callbackUrl", "public"}},
		{"callback URL to IPv6 loopback", "agent", `{"message":"a","callbackUrl":"http://[::1]/"}`, []string{"callbackUrl", "public"}},
		{"callback URL to a mapped private address", "agent", `{"message":"a","callbackUrl":"http://[::ffff:10.0.0.1]/"}`, []string{"callbackUrl", "public"}},
		{"callback URL to a metadata service", "agent", `{"message":"a","callbackUrl":"http://169.254.169.254/latest"}`, []string{"callbackUrl", "public"}},
		{"callback URL in other digits", "agent", `{"message":"a","callbackUrl":"http://①②⑦.⓪.⓪.①/"}`, []string{"callbackUrl"}},
		{"callback URL with a number for a host", "agent", `{"message":"a","callbackUrl":"http://2130706433/"}`, []string{"callbackUrl"}},
		{"callback URL that is none", "agent", `{"message":"a","callbackUrl":"http://[::1"}`, []string{"callbackUrl"}},
		{"empty schema", "agent", `{"message":"a","syncResponse":true,"responseJsonSchema":{}}`, []string{"responseJsonSchema", "empty"}},
		{"invalid schema", "agent", `{"message":"a","syncResponse":true,"responseJsonSchema":{"type":7}}`, []string{"responseJsonSchema", "type"}},
		{"schema without syncResponse", "agent", `{"message":"a","responseJsonSchema":{"type":"object"}}`, []string{"responseJsonSchema", "syncResponse"}},
		{"unknown memoryPreset", "agent", `{"message":"a","memoryPreset":"elephant"}`, []string{"memoryPreset", "coding_balanced", "disabled"}},
		{"unknown model", "agent", `{"message":"a","model":"gpt-4"}`, []string{"model", "balanced", "smart", "coding", "deep", "special1", "special5"}},
		{"empty model", "agent", `{"message":"a","model":""}`, []string{"model"}},
		{"timeoutSeconds 0", "agent", `{"message":"a","timeoutSeconds":0}`, []string{"timeoutSeconds", "1"}},
		{"negative timeoutSeconds", "agent", `{"message":"a","timeoutSeconds":-5}`, []string{"timeoutSeconds", "1"}},
		{"timeoutSeconds over max_timeout", "agent", `{"message":"a","timeoutSeconds":601}`, []string{"timeoutSeconds", "600"}},
		{"timeoutSeconds with a fraction", "agent", `{"message":"a","timeoutSeconds":1.5}`, []string{"timeoutSeconds", "whole"}},
		{"timeoutSeconds beyond all numbers", "agent", `{"message":"a","timeoutSeconds":99999999999999999999}`, []string{"timeoutSeconds"}},
		{"timeoutSeconds that would overflow", "agent", `{"message":"a","timeoutSeconds":9223372036854775807}`, []string{"timeoutSeconds", "600"}},
		{"deliver without a channel", "agent", `{"message":"a","deliver":true}`, []string{"channel"}},
		{"chatId too long", "agent", `{"message":"a","chatId":"` + strings.Repeat("x", 300) + `"}`, []string{"chatId", "256"}},
		{"chatId with a control character", "wake", `{"text":"a","chatId":"a\u0000b"}`, []string{"chatId", "control"}},
		{"name too long", "agent", `{"message":"a","name":"` + strings.Repeat("x", 300) + `"}`, []string{"name", "256"}},
	} {
		t.Run(c.name, func(t *testing.T) { s.Post("/api/hooks/"+c.path, c.body).WantError(t, 400, c.words...) })
	}
	rn.WantNoTurn(s)
}

func TestBadCredentialsAre401(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n hook custom\n hook signed {\n auth hmac X-Sig secret\n }"))
	for _, e := range endpoints {
		t.Run("missing token for "+e.name, func(t *testing.T) {
			s.Request("POST", e.path, e.body).WantError(t, 401, "Authorization: Bearer", "X-Service-Token")
		})
		t.Run("wrong token for "+e.name, func(t *testing.T) {
			s.Request("POST", e.path, e.body, "Authorization", "Bearer wrong").WantError(t, 401, "token")
		})
		t.Run("token that cannot be read for "+e.name, func(t *testing.T) {
			s.Request("POST", e.path, e.body, "Authorization", "Bearer").WantError(t, 401, "token")
		})
	}
	t.Run("missing signature", func(t *testing.T) { s.Request("POST", "/api/hooks/signed", `{}`).WantError(t, 401, "signature") })
	t.Run("failed signature", func(t *testing.T) {
		s.Request("POST", "/api/hooks/signed", `{}`, "X-Sig", signature("secret", "{ }")).WantError(t, 401, "signature")
	})
	rn.WantNoTurn(s)
}

func TestNotFoundLooksTheSameForEveryReason(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n runner echo\n token "+hookstest.Token+"\n hook custom\n}")
	var answers []hookstest.Response
	var names []string
	ask := func(name, method, path string, headers ...string) {
		resp := s.Request(method, path, `{"text":"a","message":"a"}`, headers...)
		resp.WantError(t, 404)
		resp.Header.Del("Date")
		answers, names = append(answers, resp), append(names, name)
	}
	good := []string{"Authorization", "Bearer " + hookstest.Token}
	ask("off, wake", "POST", "/api/hooks/wake", good...)
	ask("off, agent", "POST", "/api/hooks/agent", good...)
	ask("off, custom hook", "POST", "/api/hooks/custom", good...)
	ask("off, unknown", "POST", "/api/hooks/unknown", good...)
	ask("off, no token", "POST", "/api/hooks/wake")
	ask("off, wrong method", "GET", "/api/hooks/wake")
	s.PatchSettings(`{"enabled":true}`)
	ask("unknown", "POST", "/api/hooks/unknown", good...)
	ask("another case", "POST", "/api/hooks/Custom", good...)
	ask("unknown, no token", "POST", "/api/hooks/unknown")
	ask("unknown, wrong method", "DELETE", "/api/hooks/unknown")
	ask("the path itself", "POST", "/api/hooks", good...)
	ask("the path with a slash", "POST", "/api/hooks/", good...)
	for i, answer := range answers {
		if answer.Body != answers[0].Body || fmt.Sprint(answer.Header) != fmt.Sprint(answers[0].Header) {
			t.Errorf("%s: got %v %s\n%s: got %v %s", names[i], answer.Header, answer.Body, names[0], answers[0].Header, answers[0].Body)
		}
	}
}

func TestOtherMethodsAre405(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n hook custom\n hook signed {\n auth hmac X-Sig secret\n }\n}")
	for _, path := range []string{"wake", "agent", "custom", "signed"} {
		for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post", "PROPFIND"} {
			t.Run(method+" "+path, func(t *testing.T) {
				resp := s.Request(method, "/api/hooks/"+path, "")
				if got := resp.Header.Get("Allow"); got != "POST" {
					t.Errorf("Allow is %q", got)
				}
				if method == "HEAD" {
					if resp.Status != 405 {
						t.Errorf("got %d", resp.Status)
					}
					return
				}
				resp.WantError(t, 405, "POST")
			})
		}
	}
}

func TestTooLargeBodiesAre413(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n max_payload 1KB\n max_request 2KB\n hook custom\n hook signed {\n auth hmac X-Sig secret\n }"))
	for _, c := range []struct {
		path  string
		limit int
	}{{"custom", 1024}, {"signed", 1024}, {"wake", 2048}, {"agent", 2048}} {
		t.Run(c.path, func(t *testing.T) {
			body := func(size int) string {
				start := `{"text":"a","message":"`
				return start + strings.Repeat("x", size-len(start)-2) + `"}`
			}
			over, fits := body(c.limit+1), body(c.limit)
			resp := s.Post("/api/hooks/"+c.path, over, "X-Sig", signature("secret", over))
			resp.WantError(t, 413, fmt.Sprint(c.limit))
			if c.path != "signed" {
				s.PostChunked("/api/hooks/"+c.path, over).WantError(t, 413, fmt.Sprint(c.limit))
			}
			rn.WantNoTurn(s)
			if resp := s.Post("/api/hooks/"+c.path, fits, "X-Sig", signature("secret", fits)); resp.Status/100 != 2 {
				t.Errorf("a body of %d bytes: got %d %s", c.limit, resp.Status, resp.Body)
			}
			if got := rn.Next().Text("hook"); got != c.path {
				t.Errorf("the runner got a turn of %s", got)
			}
		})
	}
	t.Run("1 MB is the default for built-in endpoints", func(t *testing.T) {
		s.Load(hookstest.Hooks(rn, "workers 1"))
		body := `{"text":"a","x":"` + strings.Repeat("x", 1<<20) + `"}`
		hookstest.Eventually(t, "the new configuration has taken over", func() bool {
			resp, err := hookstest.TryRequest("POST", s.URL+"/api/hooks/wake", `{"text":"`+strings.Repeat("x", 4096)+`"}`, "Authorization", "Bearer "+hookstest.Token)
			return err == nil && resp.Status == 200
		})
		s.Post("/api/hooks/wake", body).WantError(t, 413, "1048576")
		if resp := s.Post("/api/hooks/wake", `{"text":"a","x":"`+strings.Repeat("x", 1<<20-19)+`"}`); resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	})
}

// A request that is wrong in every way gets its errors in a fixed order: mending one brings up the next.
func TestOrderOfChecks(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(http.ResponseWriter, *http.Request, hookstest.Turn) { <-release })
	s := hookstest.StartSite(t, "hooks {\n token "+hookstest.Token+"\n runner http "+rn.URL+"\n workers 1\n queue_limit 1\n max_payload 1KB\n max_request 1KB\n hook signed {\n auth hmac X-Sig secret\n }\n}")
	defer close(release)

	long := `{"text":` + strings.Repeat(" ", 2000)
	const broken, wrong, good = `{"text":`, `{"text":"","message":""}`, `{"text":"a","message":"a"}`
	auth := "Bearer " + hookstest.Token
	for _, path := range []string{"wake", "agent"} {
		s.Request("GET", "/api/hooks/"+path, long).WantError(t, 404)
	}
	s.PatchSettings(`{"enabled":true}`)
	// One run is under way and one waits: the queue is full.
	s.Post("/api/hooks/wake", `{"text":"under way","chatId":"1"}`)
	rn.Next()
	s.Post("/api/hooks/wake", `{"text":"waits","chatId":"2"}`)

	for _, path := range []string{"wake", "agent"} {
		t.Run(path, func(t *testing.T) {
			s.Request("GET", "/api/hooks/"+path+"x", long).WantError(t, 404)
			s.Request("GET", "/api/hooks/"+path, long).WantError(t, 405)
			s.Request("POST", "/api/hooks/"+path, long).WantError(t, 401)
			s.Request("POST", "/api/hooks/"+path, long, "Authorization", auth).WantError(t, 413)
			s.Request("POST", "/api/hooks/"+path, broken, "Authorization", auth).WantError(t, 400, "JSON")
			s.Request("POST", "/api/hooks/"+path, wrong, "Authorization", auth).WantError(t, 400, "field")
			resp := s.Request("POST", "/api/hooks/"+path, good, "Authorization", auth)
			resp.WantError(t, 503)
			if resp.Header.Get("Retry-After") == "" {
				t.Error("there is no Retry-After")
			}
		})
	}
	t.Run("signed hook", func(t *testing.T) {
		s.Request("GET", "/api/hooks/signedx", long).WantError(t, 404)
		s.Request("GET", "/api/hooks/signed", long).WantError(t, 405)
		s.Request("POST", "/api/hooks/signed", long).WantError(t, 413)
		s.Request("POST", "/api/hooks/signed", broken).WantError(t, 401)
		s.Request("POST", "/api/hooks/signed", broken, "X-Sig", signature("secret", broken)).WantError(t, 400, "JSON")
		s.Request("POST", "/api/hooks/signed", good, "X-Sig", signature("secret", good)).WantError(t, 503)
	})
}

func TestFullQueueIs503AndStoresNothing(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, tn hookstest.Turn) { <-release })
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n queue_limit 1\n hook custom"))
	s.Post("/api/hooks/agent", `{"message":"first"}`)
	if got := rn.Next().Text("message"); got != "first" {
		t.Errorf("got turn %q", got)
	}
	if resp := s.Post("/api/hooks/agent", `{"message":"second"}`); resp.Status != 202 {
		t.Errorf("the run that fits in the queue: got %d", resp.Status)
	}
	for path, body := range map[string]string{
		"wake":   `{"text":"x"}`,
		"agent":  `{"message":"x"}`,
		"custom": `{}`,
	} {
		resp := s.Post("/api/hooks/"+path, body)
		resp.WantError(t, 503, "later")
		if resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: there is no Retry-After", path)
		}
	}
	resp := s.Post("/api/hooks/agent", `{"message":"x","syncResponse":true}`)
	resp.WantError(t, 503, "later")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("sync: there is no Retry-After")
	}
	close(release)
	if got := rn.Next().Text("message"); got != "second" {
		t.Errorf("got turn %q", got)
	}
	rn.WantNoTurn(s)
}

func TestFullChatIs503ForThatChatAlone(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(http.ResponseWriter, *http.Request, hookstest.Turn) { <-release })
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "chat_limit 1"))
	defer close(release)
	s.Post("/api/hooks/wake", `{"text":"a","chatId":"busy"}`)
	rn.Next()
	s.Post("/api/hooks/wake", `{"text":"a","chatId":"busy"}`)
	resp := s.Post("/api/hooks/wake", `{"text":"a","chatId":"busy"}`)
	resp.WantError(t, 503, "this chat", "later")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	if resp := s.Post("/api/hooks/wake", `{"text":"a","chatId":"other"}`); resp.Status != 200 {
		t.Errorf("another chat: got %d %s", resp.Status, resp.Body)
	}
}

// All wake hooks without a chat of their own share one: a burst of them takes a tenth of the queue, and no more.
func TestOneChatDoesNotFillTheQueueForOthers(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(http.ResponseWriter, *http.Request, hookstest.Turn) { <-release })
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "queue_limit 501\n hook custom"))
	defer close(release)
	s.Post("/api/hooks/wake", `{"text":"a"}`)
	rn.Next() // the chat has a turn, and all that follow wait for its end
	accepted := 0
	for range 600 {
		resp := s.Post("/api/hooks/wake", `{"text":"a"}`)
		if resp.Status == 200 {
			accepted++
			continue
		}
		resp.WantError(t, 503, "this chat", "later")
	}
	if accepted != 51 { // a tenth of 501, rounded up
		t.Errorf("%d wakes of one chat wait", accepted)
	}
	s.Post("/api/hooks/custom", `{}`).WantError(t, 503, "this chat")
	if resp := s.Post("/api/hooks/agent", `{"message":"x"}`); resp.Status != 202 {
		t.Errorf("another chat: got %d %s", resp.Status, resp.Body)
	}
}

func TestChatLimitOfZeroIsTheWholeQueue(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(http.ResponseWriter, *http.Request, hookstest.Turn) { <-release })
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "queue_limit 20\n chat_limit 0"))
	defer close(release)
	s.Post("/api/hooks/wake", `{"text":"a"}`)
	rn.Next()
	for range 20 {
		if resp := s.Post("/api/hooks/wake", `{"text":"a"}`); resp.Status != 200 {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
	}
	resp := s.Post("/api/hooks/wake", `{"text":"a"}`)
	resp.WantError(t, 503, "later")
	if strings.Contains(resp.Body, "chat") {
		t.Errorf("the whole queue is full, and the answer is %s", resp.Body)
	}
}

func TestFailedRunnerIs502(t *testing.T) {
	const leak = "secret words of the upstream"
	for name, reply := range map[string]func(http.ResponseWriter, *http.Request, hookstest.Turn){
		"status 500": func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) { http.Error(w, leak, 500) },
		"status 404": func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) { http.Error(w, leak, 404) },
		"status 204": func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) { w.WriteHeader(204) },
		"a redirect": func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"bad JSON": func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"answer":"`+leak+`"}`)
		},
		"an error event": func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: error\ndata: "+leak+"\n\n")
		},
		"a stream cut off": func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: delta\ndata: "+leak+"\n\n")
		},
		"a broken connection": func(http.ResponseWriter, *http.Request, hookstest.Turn) { panic(http.ErrAbortHandler) },
		"too long a reply":    func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) { _, _ = w.Write(make([]byte, 1<<20+1)) },
		"invalid UTF-8":       func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) { _, _ = w.Write([]byte{0xff, 0xfe}) },
	} {
		t.Run(name, func(t *testing.T) {
			rn := hookstest.StartRunner(t, reply)
			s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1"))
			for _, body := range []string{`{"message":"a","syncResponse":true}`, schemaRequest} {
				resp := s.Post("/api/hooks/agent", body)
				resp.WantError(t, 502)
				if strings.Contains(resp.Body, leak) {
					t.Errorf("the answer holds what the upstream said: %s", resp.Body)
				}
				if id := rn.Next().Text("runId"); resp.Header.Get("X-Service-Run-Id") != id {
					t.Errorf("X-Service-Run-Id is %q, want %s", resp.Header.Get("X-Service-Run-Id"), id)
				}
			}
			if len(rn.Turns) != 0 {
				t.Error("the turn was tried again")
			}
		})
	}
}

func TestUnreachableRunnerIs503(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	rn.Close()
	resp := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true}`)
	resp.WantError(t, 503, "later")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
}

func TestBusyRunnerIsTriedAgainWithinTheRunsTime(t *testing.T) {
	for _, status := range []int{429, 503} {
		t.Run(fmt.Sprintf("after %d", status), func(t *testing.T) {
			calls := 0
			rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
				if calls++; calls == 1 {
					w.WriteHeader(status)
					return
				}
				_, _ = io.WriteString(w, "now")
			})
			s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
			if resp := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true}`); resp.Status != 200 || resp.Body != "now" {
				t.Errorf("got %d %s", resp.Status, resp.Body)
			}
			if first, second := rn.Next(), rn.Next(); first.Header.Get("Idempotency-Key") != second.Header.Get("Idempotency-Key") {
				t.Error("the second call has another Idempotency-Key")
			}
		})
	}
	t.Run("503 if it asks for more time than there is", func(t *testing.T) {
		rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) {
			w.Header().Set("Retry-After", "77")
			w.WriteHeader(503)
		})
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		resp := s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true,"timeoutSeconds":5}`)
		resp.WantError(t, 503, "later")
		if got := resp.Header.Get("Retry-After"); got != "77" {
			t.Errorf("Retry-After is %q", got)
		}
	})
	t.Run("504 if it is busy until the time is up", func(t *testing.T) {
		rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, _ hookstest.Turn) { w.WriteHeader(429) })
		s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
		s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true,"timeoutSeconds":1}`).WantError(t, 504, "1 second")
	})
}

// hang holds a turn until the caller gives up, and then tells of it.
func hang(gone chan<- string) func(http.ResponseWriter, *http.Request, hookstest.Turn) {
	return func(_ http.ResponseWriter, r *http.Request, tn hookstest.Turn) {
		<-r.Context().Done()
		gone <- tn.Text("runId")
	}
}

func TestSyncRunThatDoesNotFinishInTimeIs504(t *testing.T) {
	gone := make(chan string, 10)
	rn := hookstest.StartRunner(t, hang(gone))
	callbacks := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks+"hook custom {\n action agent\n sync\n timeout 1s\n }"))
	cases := []struct{ name, path, body string }{
		{"plain", "agent", `{"message":"a","syncResponse":true,"timeoutSeconds":1}`},
		{"schema", "agent", strings.Replace(schemaRequest, `"message"`, `"timeoutSeconds":1,"message"`, 1)},
		{"custom hook", "custom", `{}`},
		{"with a callback", "agent", `{"message":"a","syncResponse":true,"timeoutSeconds":1,"callbackUrl":"` + callbacks.URL + `"}`},
	}
	answers := make([]hookstest.Response, len(cases))
	var callers sync.WaitGroup
	for i, c := range cases {
		callers.Go(func() { answers[i] = s.Post("/api/hooks/"+c.path, c.body) })
	}
	callers.Wait()
	turns, cancelled := make(map[string]int), make(map[string]int)
	for range cases {
		turns[rn.Next().Text("runId")]++
		cancelled[hookstest.ReceiveWithin(t, "the turn is cancelled", gone)]++
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			answers[i].WantError(t, 504, "1 second")
			if id := answers[i].Header.Get("X-Service-Run-Id"); turns[id] != 1 || cancelled[id] != 1 {
				t.Errorf("X-Service-Run-Id is %q; there were the turns %v, and cancelled were %v", id, turns, cancelled)
			}
		})
	}
	got := callbacks.Next()
	if got.Header.Get("X-Service-Run-Status") != "timed_out" || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the callback is %+v", got)
	}
	hookstest.Response{Status: 504, Header: got.Header, Body: got.Body}.WantError(t, 504, "1 second")
}

func TestTimeIsUpForAQueuedSyncRunToo(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(http.ResponseWriter, *http.Request, hookstest.Turn) { <-release })
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1"))
	s.Post("/api/hooks/agent", `{"message":"first"}`)
	rn.Next()
	s.Post("/api/hooks/agent", `{"message":"second","syncResponse":true,"timeoutSeconds":1}`).WantError(t, 504, "1 second")
	close(release)
	rn.WantNoTurn(s)
}

func TestTimeIsUpForAsyncRunsToo(t *testing.T) {
	gone := make(chan string, 10)
	rn := hookstest.StartRunner(t, hang(gone))
	callbacks := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks))
	resp := s.Post("/api/hooks/agent", `{"message":"a","timeoutSeconds":1,"callbackUrl":"`+callbacks.URL+`"}`)
	id := resp.WantBody(t, 202, "status", "runId", "chatId")["runId"]
	if got := hookstest.ReceiveWithin(t, "the turn is cancelled", gone); got != id {
		t.Errorf("run %s was cancelled, want %s", got, id)
	}
	if got := callbacks.Next(); got.Header.Get("X-Service-Run-Status") != "timed_out" || got.Header.Get("X-Service-Run-Id") != id {
		t.Errorf("the callback is %+v", got)
	}
}

// leave sends a webhook and goes away once the runner has its turn.
func leave(t *testing.T, s *hookstest.Server, rn *hookstest.Runner, body string) hookstest.Turn {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/api/hooks/agent", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+hookstest.Token)
	left := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	tn := rn.Next()
	cancel()
	if err := hookstest.ReceiveWithin(t, "the caller is cut off", left); err == nil {
		t.Error("the caller got an answer")
	}
	return tn
}

func TestRunIsCancelledWhenItsCallerGoesAway(t *testing.T) {
	gone := make(chan string, 1)
	rn := hookstest.StartRunner(t, hang(gone))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	tn := leave(t, s, rn, `{"message":"a","syncResponse":true}`)
	if got := hookstest.ReceiveWithin(t, "the turn is cancelled", gone); got != tn.Text("runId") {
		t.Errorf("run %s was cancelled, want %s", got, tn.Text("runId"))
	}
}

func TestRunWithACallbackGoesOnWhenItsCallerGoesAway(t *testing.T) {
	release := make(chan struct{})
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		select {
		case <-release:
			_, _ = io.WriteString(w, "for the callback")
		case <-r.Context().Done():
		}
	})
	callbacks := hookstest.StartReceiver(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "workers 1\n"+hookstest.WithCallbacks))
	tn := leave(t, s, rn, `{"message":"a","syncResponse":true,"callbackUrl":"`+callbacks.URL+`"}`)
	close(release)
	got := callbacks.Next()
	if got.Body != "for the callback" || got.Header.Get("X-Service-Run-Status") != "completed" || got.Header.Get("X-Service-Run-Id") != tn.Text("runId") {
		t.Errorf("the callback is %+v", got)
	}
}

func TestThrottledCredentialsAre429(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n}")
	for range 20 {
		s.Request("POST", "/api/hooks/wake", `{"text":"a"}`).WantError(t, 401)
	}
	resp := s.Request("POST", "/api/hooks/wake", `{"text":"a"}`)
	resp.WantError(t, 429, "address")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	if resp := s.Post("/api/hooks/wake", `{"text":"a"}`); resp.Status != 200 {
		t.Errorf("a good credential: got %d", resp.Status)
	}
}
