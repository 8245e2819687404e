package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Whatever 200 callers send at once, Caddy takes at most max_memory and a constant beside its memory at rest. docs/reference/http-api.md
// promises it. Pages of the store's file, which the system can drop at any time, are left out.
func TestHostileRequestsTakeBoundedMemory(t *testing.T) {
	const maxMemory, constant, callers = 128 << 20, 256 << 20, 200
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"text":"done"}`)
	}))
	t.Cleanup(agent.Close)
	hooks := fmt.Sprintf("hooks {\nenabled\ntoken %s\nstore bolt\nrunner http %s\nmax_memory %d\nmax_payload 1MB\n%s}",
		hookstest.Token, agent.URL, maxMemory, hostileHooks+unauthenticatedHooks())
	p := hookstest.NewBinary(t).Serve(t, "", hooks)
	idle := anonymousMemory(t, p)
	peak, over := idle, make(chan struct{})
	var watcher, senders sync.WaitGroup
	watcher.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-over:
				return
			case <-tick.C:
				peak = max(peak, anonymousMemory(t, p))
			}
		}
	})
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	var mu sync.Mutex
	statuses := make(map[int]int)
	large, replacing := hostileRequests(1<<20), hostileRequest{hook: "replacing", body: `{"text":"` + strings.Repeat("x", 1<<20-100) + `"}`}
	for _, phase := range []struct {
		requests []hostileRequest
		each     bool // each caller begins with another one
	}{
		{append(large, hostileRequests(100<<10)...), true},
		{append(unauthenticatedRequests(1<<20), unauthenticatedRequests(100<<10)...), false},
		{[]hostileRequest{replacing}, false},
	} {
		for end, i := time.Now().Add(4*time.Second), 0; i < callers; i++ {
			senders.Go(func() {
				n := 0
				if phase.each {
					n = i
				}
				for ; time.Now().Before(end); n++ {
					status := phase.requests[n%len(phase.requests)].send(t, client, p.URL, i)
					mu.Lock()
					statuses[status]++
					mu.Unlock()
				}
			})
		}
		senders.Wait()
	}
	close(over)
	watcher.Wait()
	t.Logf("%d MB at rest, %d MB at most; answers %v, and 0 for connections that were closed", idle>>20, peak>>20, statuses)
	if peak-idle >= maxMemory+constant {
		t.Errorf("requests took %d MB beside the %d MB at rest", (peak-idle)>>20, idle>>20)
	}
	if statuses[202] == 0 || statuses[503] == 0 || statuses[400] > 0 {
		t.Errorf("the answers are %v; some must be accepted, and some refused for want of memory", statuses)
	}
	p.WantNoCrash(t)
}

// anonymousMemory is how many bytes of memory a process has that are no pages of a file.
func anonymousMemory(t *testing.T, p *hookstest.Process) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		t.Error(err)
	}
	found := residentPages.FindSubmatch(status)
	if found == nil {
		t.Errorf("no RssAnon in %s", status)
		return 0
	}
	kilobytes, _ := strconv.Atoi(string(found[1]))
	return kilobytes << 10
}

var residentPages = regexp.MustCompile(`RssAnon:\s+(\d+) kB`)

type hostileRequest struct {
	hook, body  string
	contentType string
	isSlow      bool
	header      http.Header // instead of the token
}

// send returns the status of the answer, 0 if there was none.
func (r hostileRequest) send(t *testing.T, client *http.Client, url string, caller int) int {
	var body io.Reader = strings.NewReader(r.body)
	if r.isSlow {
		body = &slowReader{r.body}
	}
	req, err := http.NewRequest("POST", url+"/api/hooks/"+r.hook, body)
	if err != nil {
		t.Error(err)
		return 0
	}
	if req.Header = r.header.Clone(); req.Header == nil {
		req.Header = http.Header{"Authorization": {"Bearer " + hookstest.Token}}
	}
	req.Header.Set("Content-Type", r.contentType)
	req.Header.Set("X-Chat", fmt.Sprint("chat-", caller%20))
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode == http.StatusBadRequest {
		t.Errorf("%s: %s", r.hook, answer)
	}
	return resp.StatusCode
}

// slowReader gives a text piece by piece, over some seconds.
type slowReader struct{ rest string }

func (s *slowReader) Read(b []byte) (int, error) {
	if s.rest == "" {
		return 0, io.EOF
	}
	time.Sleep(50 * time.Millisecond)
	n := copy(b, s.rest[:min(len(s.rest), 16<<10)])
	s.rest = s.rest[n:]
	return n, nil
}

// hostileRequests are bodies of about a size that become as much memory as possible.
func hostileRequests(size int) []hostileRequest {
	repeat := func(head, item, tail string) string {
		return head + strings.Repeat(item+",", (size-len(head)-len(item)-len(tail))/(len(item)+1)) + item + tail
	}
	fill := func(head, piece, tail string) string {
		return head + strings.Repeat(piece, (size-len(head)-len(tail))/len(piece)) + tail
	}
	var members, properties, events strings.Builder
	for i := 0; members.Len() < size-100; i++ {
		fmt.Fprintf(&members, `"%x":0,`, i)
	}
	for i := range 900 {
		fmt.Fprintf(&properties, `"%d":{"type":"string","pattern":"^[a-z]+$"},`, i)
	}
	nested := strings.Repeat(`{"a":`, 120) + "0" + strings.Repeat("}", 120)
	for i := 0; i < 95 && events.Len() < size-1500; i++ {
		fmt.Fprintf(&events, `{"specversion":"1.0","id":"%d","source":"/a","type":"t","data":[%s]},`, i,
			strings.Repeat(nested+",", size/100_000)+nested)
	}
	text := fill(`{"text":"`, "x", `"}`)
	fan := `{"big":"` + strings.Repeat("x", 10_000) + `","items":[` + strings.Repeat(`{"id":1},`, 99) + `{"id":1}]`
	return []hostileRequest{
		{hook: "wake", body: text},
		{hook: "wake", body: fill(`{"text":"`, `\u0001`, `"}`)},
		{hook: "wake", body: repeat(`{"text":"x","a":[`, `0`, `]}`)},
		{hook: "agent", body: fill(`{"message":"`, "x", `"}`)},
		{hook: "agent", body: repeat(`{"message":"x","metadata":{"a":[`, nested, `]}}`)},
		{hook: "agent", body: `{"message":"x","syncResponse":true,"responseJsonSchema":{"properties":{` + properties.String() + `"end":{}}}}`},
		{hook: "deep", body: repeat("[", "0", "]")},
		{hook: "deep", body: repeat("[", "[]", "]")},
		{hook: "deep", body: repeat("[", `{"a":0}`, "]")},
		{hook: "deep", body: repeat("[", nested, "]")},
		{hook: "deep", body: "{" + members.String() + `"end":0}`},
		{hook: "deep", body: repeat("[", `"\n"`, "]")},
		{hook: "deep", body: fill("[", "1", "]")},
		{hook: "one", body: "{" + members.String() + `"end":0}`},
		{hook: "plain", body: text},
		{hook: "plain", body: text, isSlow: true},
		{hook: "plain", body: repeat("[", nested, "]")},
		{hook: "condition", body: repeat(`{"ok":1,"items":[`, `{"a":0}`, `]}`)},
		{hook: "form", body: fill(strings.Repeat("a=1&", 900)+"b=", "%41", "")},
		{hook: "form", body: repeat(`payload={"a":[`, nested, `]}`)},
		{hook: "events", contentType: "application/cloudevents-batch+json", body: "[" + strings.TrimSuffix(events.String(), ",") + "]"},
		{hook: "fan", body: fan + "}"},
		{hook: "fan", body: repeat(fan+`,"a":[`, nested, `]}`)},
		{hook: "descend", body: repeat(fan+`,"a":[`, nested, `]}`)},
		{hook: "whole", body: repeat(`{"a":[`, nested, `]}`)},
		{hook: "folds", body: text},
		{hook: "newest", body: text},
		{hook: "replacing", body: text},
		{hook: "once", body: text},
		{hook: "rated", body: text},
	}
}

// unauthenticatedSchemes read a body before it is known who sent it.
var unauthenticatedSchemes = []string{
	"graph", "mailgun", "twilio", "zoom", "notion", "teams", "meta", "linear", "eventgrid", "slack", "discord", "dropbox", "stripe",
	"sendgrid",
}

func unauthenticatedHooks() (hooks string) {
	for _, scheme := range unauthenticatedSchemes {
		secret := "c2VjcmV0LXRoYXQtaXMtbG9uZy1lbm91Z2g="
		switch scheme {
		case "discord":
			secret = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
		case "sendgrid":
			secret = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
		}
		hooks += "hook by-" + scheme + " {\n\taction agent\n\tauth " + scheme + " " + secret + "\n}\n"
	}
	return hooks
}

// unauthenticatedRequests are bodies of about a size that become as much memory as possible where a scheme looks for its credential.
func unauthenticatedRequests(size int) (requests []hostileRequest) {
	add := func(scheme, contentType, body string, headers ...string) {
		r := hostileRequest{hook: "by-" + scheme, contentType: contentType, body: body, header: make(http.Header)}
		for i := 0; i < len(headers); i += 2 {
			r.header.Set(headers[i], headers[i+1])
		}
		requests = append(requests, r)
	}
	repeat := func(head, item, tail string) string {
		return head + strings.Repeat(item+",", (size-len(head)-len(item)-len(tail))/(len(item)+1)) + item + tail
	}
	for _, item := range []string{`0`, `{}`, `{"clientState":"a"}`} {
		add("graph", "application/json", repeat(`{"value":[`, item, `]}`))
	}
	for _, pair := range []string{"a=", "%41=%41"} {
		form := strings.Repeat(pair+"&", size/(len(pair)+1))
		add("mailgun", "application/x-www-form-urlencoded", form)
		add("twilio", "application/x-www-form-urlencoded", form, "X-Twilio-Signature", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=")
		fields := strings.Repeat(pair+"&", 900) + "b=" + strings.Repeat("%41", size/3-2000)
		add("mailgun", "application/x-www-form-urlencoded", fields)
		add("twilio", "application/x-www-form-urlencoded", fields, "X-Twilio-Signature", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	}
	add("mailgun", "application/json", repeat(`{"signature":{"timestamp":[`, `0`, `],"token":[],"signature":{}}}`))
	add("zoom", "application/json", repeat(`{"event":"endpoint.url_validation","payload":{"plainToken":[`, `0`, `]}}`))
	add("zoom", "application/json", repeat(`{"event":"endpoint.url_validation","payload":{"plainToken":"a","a":[`, `{"a":0}`, `]}}`),
		"X-Zm-Signature", "v0=00", "X-Zm-Request-Timestamp", fmt.Sprint(time.Now().Unix()))
	add("notion", "application/json", repeat(`{"verification_token":"secret_a","a":[`, `0`, `]}`))
	add("eventgrid", "application/json", repeat(`[{"data":{"validationCode":[`, `0`, `]}}]`), "Aeg-Event-Type", "SubscriptionValidation")
	array := repeat(`{"webhookTimestamp":[`, `0`, `]}`)
	for scheme, header := range map[string]string{
		"teams": "Authorization", "meta": "X-Hub-Signature-256", "linear": "Linear-Signature", "slack": "X-Slack-Signature",
		"discord": "X-Signature-Ed25519", "dropbox": "X-Dropbox-Signature", "stripe": "Stripe-Signature",
		"sendgrid": "X-Twilio-Email-Event-Webhook-Signature",
	} {
		add(scheme, "application/json", array, header, "sha256=00")
	}
	return requests
}

const hostileHooks = `
hook deep {
	action agent
	template "{ $..x }ok"
}
hook one {
	action agent
	template "{end}ok"
}
hook plain {
	action agent
}
hook condition {
	action agent
	only "$.items[?@.a == 1]"
	template "{ok}"
}
hook form {
	action agent
	body form
	template "{a}{b}"
}
hook events {
	action agent
	body cloudevents
	template "{ $..x }{id}"
}
hook fan {
	action agent
	each $.items[*]
	template "{@root.big}{@root.big}{@root.big}"
}
hook descend {
	action agent
	each $..id
	template "{@root.big}{@root.big}{@root.big}"
}
hook whole {
	action agent
	untrusted wrap
	template "{@body}{ $ }"
}
hook newest {
	action agent
	fold 1h 1000 latest
	chat_id "{@header.X-Chat}"
}
hook replacing {
	action agent
	overlap replace
	chat_id "{@header.X-Chat}"
}
hook once {
	action agent
	once "{text}"
}
hook rated {
	action agent
	rate 10/1s by "{text}"
}
hook folds {
	action agent
	fold 1h 1000
	chat_id "{@header.X-Chat}"
}
`
