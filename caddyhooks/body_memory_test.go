package caddyhooks_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func wantBytesOfBodies(t *testing.T, want int64) {
	t.Helper()
	hookstest.Eventually(t, fmt.Sprintf("%d bytes of bodies are counted", want), func() bool { return caddyhooks.BytesOfBodies() == want })
}

func TestBodiesBeyondMaxMemoryAreRefused(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "max_memory 8MB\n max_request 1MB\n max_payload 1MB\n hook signed {\n auth hmac X-Sig secret\n }"))
	large := `{"text":"` + strings.Repeat("x", 900_000) + `"}`
	conn := dial(t, s)
	_, _ = fmt.Fprintf(conn, "POST /api/hooks/wake HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		hookstest.Token, len(large), large[:1000])
	wantBytesOfBodies(t, 1000) // what was announced does not count
	if got := s.Post("/api/hooks/wake", large); got.Status != 200 {
		t.Errorf("beside a thousand bytes: got %d %s", got.Status, got.Body)
	}
	rn.Next()
	_, _ = io.WriteString(conn, large[1000:len(large)-2])
	wantBytesOfBodies(t, int64(len(large)-2))

	other := large[:200_000]
	for _, post := range []func() hookstest.Response{
		func() hookstest.Response { return s.Post("/api/hooks/wake", other) },
		func() hookstest.Response { return s.PostChunked("/api/hooks/agent", other) },
		func() hookstest.Response { return s.Post("/api/hooks/signed", other) },
	} {
		refused := post()
		refused.WantError(t, 503, "other requests are being read")
		if refused.Header.Get("Retry-After") != "1" {
			t.Errorf("the headers are %v", refused.Header)
		}
	}
	if got := s.Post("/api/hooks/wake", `{"text":"small"}`); got.Status != 200 {
		t.Errorf("a small one: got %d %s", got.Status, got.Body)
	}
	rn.Next()
	_, _ = io.WriteString(conn, large[len(large)-2:])
	if got := readAnswer(t, conn); got.Status != 200 {
		t.Errorf("the first one: got %d %s", got.Status, got.Body)
	}
	rn.Next()
	wantBytesOfBodies(t, 0)
	if got := s.Post("/api/hooks/wake", large); got.Status != 200 {
		t.Errorf("when there is room again: got %d %s", got.Status, got.Body)
	}
}

// A caller that waits for an answer holds the memory of its body only until the run is stored.
func TestWaitingCallersHoldNoBytesOfBodies(t *testing.T) {
	rn, _, release := hookstest.HeldRunner(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "max_memory 8MB"))
	answers := make(chan int, 2)
	for range 2 {
		go func() {
			got, _ := hookstest.TryRequest("POST", s.URL+"/api/hooks/agent", `{"syncResponse":true,"message":"hold`+strings.Repeat("x", 600_000)+`"}`, "Authorization", "Bearer "+hookstest.Token)
			answers <- got.Status
		}()
		rn.Next()
		wantBytesOfBodies(t, 0)
	}
	close(release)
	for range 2 {
		if got := hookstest.ReceiveWithin(t, "a caller is answered", answers); got != 200 {
			t.Errorf("got %d", got)
		}
	}
}

// Whatever becomes of requests, their bytes are given back.
func TestBytesOfBodiesAreGivenBack(t *testing.T) {
	restore := caddyhooks.ShortenBodyTime(300 * time.Millisecond)
	s := hookstest.StartSite(t, "hooks {\n enabled\n token "+hookstest.Token+"\n max_memory 8MB\n max_payload 256KB\n queue_limit 50\n chat_limit 20\n"+
		" runner echo\n hook signed {\n auth hmac X-Sig secret\n }\n hook custom {\n action agent\n template {a}\n }\n}")
	t.Cleanup(restore)
	text := strings.Repeat("x", 150_000)
	head := func(hook string, more ...string) string {
		return "POST /api/hooks/" + hook + " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + hookstest.Token + "\r\n" + strings.Join(more, "\r\n") + "\r\n\r\n"
	}
	const slow = 1001 // bytes that do not come, but the connection stays open
	send := func(request string, cut int) func() {
		return func() {
			conn, err := net.Dial("tcp", "127.0.0.1:"+s.Port)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, request[:len(request)-cut])
			if cut == slow {
				_, _ = io.Copy(io.Discard, conn) // it is given up
			}
		}
	}
	post := func(hook, body string, headers ...string) func() {
		return func() {
			// The connection of a body that is refused may be closed while it is sent.
			_, _ = hookstest.TryRequest("POST", s.URL+"/api/hooks/"+hook, body, append(headers, "Authorization", "Bearer "+hookstest.Token)...)
		}
	}
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d", n) }
	requests := []func(){
		post("wake", `{"text":"`+text+`"}`),
		post("agent", `{"message":"`+text+`","syncResponse":true}`),
		post("agent", `{"message":"`+text+`"}`, "Idempotency-Key", "one"),
		post("agent", `{"message":"`+text+`","syncResponse":true}`, "Idempotency-Key", "two"),
		post("agent", `{"message":"`+text+`","syncResponse":true,"timeoutSeconds":-1}`),
		post("wake", `{"text":"`+text),
		post("signed", `{"text":"`+text+`"}`, "X-Sig", "00"),
		post("custom", `{"a":"`+text+`"}`),
		post("custom", `{"a":"`+text+text+`"}`),
		post("none", `{"a":"`+text+`"}`),
		send(head("wake", "Connection: close", length(len(text)))+text, slow),
		send(head("wake", length(len(text)))+text, 1000),
		send(head("wake", "Transfer-Encoding: chunked")+fmt.Sprintf("%x\r\n", len(text))+text, 1000),
		send(head("wake", "Connection: close", "Transfer-Encoding: chunked")+fmt.Sprintf("%x\r\n", len(text))+text+"\r\nzz\r\n", 0),
		send(head("signed", length(len(text)))+text, 10),
	}
	var senders sync.WaitGroup
	for range 5 {
		for _, request := range requests {
			senders.Go(request)
		}
	}
	senders.Wait()
	http.DefaultClient.CloseIdleConnections()
	wantBytesOfBodies(t, 0)
	if got := s.Post("/api/hooks/wake", `{"text":"after all that"}`); got.Status != 200 && got.Status != 503 {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

// fanOut is a hook that makes large messages of a small body, and a body that gives so many messages of about 30 KB each.
const fanOut = "hook fan {\n action agent\n each $.items[*]\n template \"{@root.big}{@root.big}{@root.big}\"\n }\n" +
	"hook whole {\n action agent\n untrusted wrap\n template \"{@body}{ $ }{big | json}{ $..big }{none}\"\n }\n" +
	"hook chats {\n action agent\n chat_id \"{big}{big}{big}{big}{big}{big}{big}{big}{big}{big}{big}{big}\"\n template \"{ok}\"\n }\n" +
	"hook plain {\n action agent\n max_payload 1MB\n }\n"

func fanOutBody(items int) string {
	return `{"ok":"ok","big":"` + strings.Repeat("x", 10_000) + `","items":[` + strings.TrimSuffix(strings.Repeat("1,", items), ",") + `]}`
}

// A template can make a large message, or a hundred of them, of a small body.
func TestMessagesBeyondMaxMemoryAreRefused(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "max_memory 8MB\n max_request 1MB\n"+fanOut))

	s.Post("/api/hooks/fan", fanOutBody(36)).WantError(t, 413, "larger than all the memory")
	wantBytesOfBodies(t, 0)
	ids, _ := acceptedRuns(t, s.Post("/api/hooks/fan", fanOutBody(34)))
	if len(ids) != 34 {
		t.Errorf("got the runs %v", ids)
	}
	wantBytesOfBodies(t, 0)

	// Another request has most of the memory.
	large := `{"text":"` + strings.Repeat("x", 900_000) + `"}`
	conn := dial(t, s)
	_, _ = fmt.Fprintf(conn, "POST /api/hooks/wake HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		hookstest.Token, len(large), large[:len(large)-1])
	wantBytesOfBodies(t, int64(len(large)-1))
	for range 2 {
		refused := s.Post("/api/hooks/fan", fanOutBody(34))
		refused.WantError(t, 503, "other requests are being read")
		if refused.Header.Get("Retry-After") != "1" || refused.Header.Get("Connection") == "close" {
			t.Errorf("the headers are %v", refused.Header)
		}
	}
	s.AdminRequest("POST", "/hooks/mappings/fan/test", fanOutBody(34)).WantAdminError(t, 503, "other requests are being read")
	wantBytesOfBodies(t, int64(len(large)-1))
	acceptedRuns(t, s.Post("/api/hooks/fan", fanOutBody(3)))
	_, _ = io.WriteString(conn, large[len(large)-1:])
	if got := readAnswer(t, conn); got.Status != 200 {
		t.Errorf("the large one: got %d %s", got.Status, got.Body)
	}
	wantBytesOfBodies(t, 0)
	acceptedRuns(t, s.Post("/api/hooks/fan", fanOutBody(34)))
}

// A body that fits can become a message, and whatever a template is made of is given back.
func TestMessagesOfAllTemplatesAreCounted(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "max_memory 8MB\n max_request 1MB\n max_payload 1MB\n"+fanOut))
	whole := `"` + strings.Repeat("x", 1<<20-2) + `"`
	if got := s.Post("/api/hooks/plain", whole); got.Status != 202 {
		t.Errorf("a body as large as fits: got %d %s", got.Status, got.Body)
	}
	rn.Next()
	for hook, body := range map[string]string{
		"whole":  `{"big":"` + strings.Repeat("x", 300_000) + `"}`,
		"whole?": `{"big":"` + strings.Repeat(`\u0001`, 60_000) + `"}`,
		"chats":  `{"ok":"ok","big":"` + strings.Repeat("x", 100_000) + `"}`,
	} {
		s.Post("/api/hooks/"+hook, body).WantError(t, 413, "larger than all the memory")
		wantBytesOfBodies(t, 0)
	}
	if got := s.Post("/api/hooks/whole", `{"big":"small"}`); got.Status != 202 {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	rn.Next()
	wantBytesOfBodies(t, 0)
}

// A small body can hold many values, which take much more memory than its bytes.
func TestValuesBeyondMaxMemoryAreRefused(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, "max_memory 8MB\n max_payload 256KB\n hook all {\n action agent\n template \"{ $..none }\"\n }\n"+
		"hook one {\n action agent\n template {ok}\n }\n hook form {\n action agent\n body form\n template {ok}\n }\n"+
		"hook events {\n action agent\n body cloudevents\n template \"{ $..none }{id}\"\n }"))
	values := func(n int) string { return `{"ok":"ok","a":[` + strings.Repeat(`{"a":{}},`, n) + `0]}` }
	event := `{"specversion":"1.0","id":"1","source":"/a","type":"t","data":` + values(20_000) + `}`
	for hook, body := range map[string]string{"all": values(20_000), "form": "payload=" + values(20_000), "events": "[" + event + "]"} {
		headers := []string{"Authorization", "Bearer " + hookstest.Token}
		if hook == "events" {
			headers = append(headers, "Content-Type", "application/cloudevents-batch+json")
		}
		got, err := hookstest.TryRequest("POST", s.URL+"/api/hooks/"+hook, body, headers...)
		if err != nil {
			t.Fatal(err)
		}
		got.WantError(t, 413, "values in this body take more")
		wantBytesOfBodies(t, 0)
	}
	for hook, body := range map[string]string{"all": values(5_000), "one": values(20_000), "form": "payload=" + values(5_000)} {
		if got := s.Post("/api/hooks/"+hook, body); got.Status != 202 {
			t.Errorf("%s: got %d %s", hook, got.Status, got.Body)
		}
		rn.Next()
		wantBytesOfBodies(t, 0)
	}
}
