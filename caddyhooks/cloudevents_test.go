package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

var (
	structuredEvent = []string{"Content-Type", "application/cloudevents+json; charset=utf-8"}
	batchOfEvents   = []string{"Content-Type", "application/cloudevents-batch+json"}
)

// eventOf is a structured event with an id and a number.
func eventOf(id string, n int) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"%s","source":"/shop","type":"order.paid","subject":"o %d","data":{"n":%d}}`, id, n, n)
}

// eventHeaders are those of the same event in binary mode. Its body is {"n": …}.
func eventHeaders(id string, n int) []string {
	return []string{"ce-specversion", "1.0", "ce-id", id, "ce-source", "/shop", "ce-type", "order.paid", "ce-subject", fmt.Sprintf("o%%20%d", n),
		"Content-Type", "application/json"}
}

// batchOf is a batch of so many events.
func batchOf(n int) string {
	var all []string
	for i := range n {
		all = append(all, eventOf(fmt.Sprint("b", i), i))
	}
	return "[" + strings.Join(all, ",") + "]"
}

func TestCloudEventsAreTheSameInEveryMode(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `workers 1
	hook a {
		action agent
		body cloudevents
		only "$.type == 'order.paid'"
		skip "$.data.n == 13"
		chat_id "{source}:{subject}"
		template "{type} {subject}: {data.n}{@root.a | default ''}"
	}
	hook plain {
		action agent
		body cloudevents
	}
	hook wait {
		action agent
		body cloudevents
		sync
	}`))
	send := func(hook, body string, headers ...string) hookstest.Response {
		return s.Post("/api/hooks/"+hook, body, headers...)
	}
	next := func(t *testing.T, want string) {
		t.Helper()
		if got := rn.Next().Text("message"); got != want {
			t.Errorf("the message is %q, want %q", got, want)
		}
	}

	t.Run("one event", func(t *testing.T) {
		for i, resp := range []hookstest.Response{send("a", eventOf("1", 7), structuredEvent...), send("a", `{"n": 7}`, eventHeaders("2", 7)...)} {
			id := acceptedRun(t, resp)
			next(t, "order.paid o 7: 7")
			if resp.Field(t, "chatId") != "/shop:o 7" {
				t.Errorf("got %s", resp.Body)
			}
			request := fmt.Sprint(i+1, " /shop")
			if found, _ := s.Listed("?requestId=" + url.QueryEscape(request)); !slices.Equal(found, []string{id}) {
				t.Errorf("%s leads to %v", request, found)
			}
		}
		acceptedRun(t, send("plain", eventOf("1", 7), structuredEvent...))
		next(t, `{"data":{"n":7},"id":"1","source":"/shop","specversion":"1.0","subject":"o 7","type":"order.paid"}`)
		acceptedRun(t, send("plain", `{"n": 7}`, eventHeaders("2", 7)...))
		next(t, `{"data":{"n":7},"datacontenttype":"application/json","id":"2","source":"/shop","specversion":"1.0","subject":"o 7","type":"order.paid"}`)
		acceptedRun(t, send("plain", "\x00", "ce-specversion", "1.0", "ce-id", "3", "ce-source", "/a", "ce-type", "t", "Content-Type", "image/png"))
		next(t, `{"data_base64":"AA==","datacontenttype":"image/png","id":"3","source":"/a","specversion":"1.0","type":"t"}`)
	})
	t.Run("a batch", func(t *testing.T) {
		other := strings.Replace(eventOf("other", 1), "order.paid", "order.sent", 1)
		ids, chats := acceptedRuns(t, send("a", "["+strings.Join([]string{other, eventOf("5", 5), eventOf("13", 13), eventOf("5", 5), eventOf("6", 6)}, ",")+"]", batchOfEvents...))
		if len(ids) != 2 || !slices.Equal(chats, []string{"/shop:o 5", "/shop:o 6"}) {
			t.Fatalf("got the runs %v in %v", ids, chats)
		}
		next(t, "order.paid o 5: 5")
		next(t, "order.paid o 6: 6")
		for i, id := range ids {
			if got := s.AdminRequest("GET", "/hooks/runs/"+id, "").Field(t, "requestId"); got != fmt.Sprint(5+i, " /shop") {
				t.Errorf("the request id is %v", got)
			}
		}
		if ids, _ := acceptedRuns(t, send("a", "["+eventOf("8", 8)+"]", batchOfEvents...)); len(ids) != 1 {
			t.Errorf("got the runs %v", ids)
		}
		next(t, "order.paid o 8: 8")
		if ids, _ := acceptedRuns(t, send("plain", batchOf(100), batchOfEvents...)); len(ids) != 100 {
			t.Errorf("got the runs %v", ids)
		}
		for range 100 {
			if got := rn.Next().Text("message"); !strings.HasPrefix(got, `{"data":{"n":`) {
				t.Errorf("the message is %q", got)
			}
		}
		wantIgnored(t, send("a", "[]", batchOfEvents...))
		wantIgnored(t, send("a", "["+other+"]", batchOfEvents...))
		wantIgnored(t, send("a", eventOf("13", 13), structuredEvent...))
		send("a", batchOf(101), batchOfEvents...).WantError(t, 413, "100")
	})
	t.Run("a caller waits", func(t *testing.T) {
		if resp := send("wait", eventOf("1", 1), structuredEvent...); resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		rn.Next()
		send("wait", batchOf(1), batchOfEvents...).WantError(t, 415, "one by one")
	})
	t.Run("none", func(t *testing.T) {
		send("a", eventOf("1", 1), "Content-Type", "application/json").WantError(t, 400, "application/cloudevents+json", "ce-")
		send("a", eventOf("1", 1), "Content-Type", "application/cloudevents+avro").WantError(t, 415, "content types")
		send("a", "{", structuredEvent...).WantError(t, 400, "CloudEvent", "byte 1")
		send("a", `{"specversion":"1.0"}`, structuredEvent...).WantError(t, 400, "id is missing")
		send("a", "{}", append(eventHeaders("1", 1), "CE-ID", "2")...).WantError(t, 400, "more than once")
	})
	rn.WantNoTurn(s)
}

func TestCloudEventsAreKnownByTheirIDs(t *testing.T) {
	s := hookstest.StartSite(t, `hooks {
		enabled
		token `+hookstest.Token+` other-token
		runner echo
		hook a {
			action agent
			body cloudevents
			template "{data.n}"
		}
		hook signed {
			action agent
			auth github s3cret
			body cloudevents
		}
		hook named {
			action agent
			body cloudevents
			idempotency_header X-Own
		}
	}`)
	send := func(hook, body string, headers ...string) hookstest.Response {
		return s.Post("/api/hooks/"+hook, body, headers...)
	}

	first := send("a", eventOf("1", 7), structuredEvent...)
	var pretty any
	_ = json.Unmarshal([]byte(eventOf("1", 7)), &pretty)
	indented, _ := json.MarshalIndent(pretty, "", "  ")
	send("a", string(indented), structuredEvent...).WantReplay(t, first)
	send("a", `{"n":7}`, eventHeaders("1", 7)...).WantReplay(t, first)
	send("a", `{"n":7}`, append(eventHeaders("1", 7), "Idempotency-Key", "another")...).WantReplay(t, first)
	send("a", eventOf("2", 7), structuredEvent...).WantNew(t, 202)
	send("a", strings.Replace(eventOf("1", 7), "/shop", "/other", 1), structuredEvent...).WantNew(t, 202)
	s.Request("POST", "/api/hooks/a", eventOf("1", 7), append(structuredEvent, "Authorization", "Bearer other-token")...).WantNew(t, 202)

	batch := send("a", batchOf(3), batchOfEvents...)
	send("a", strings.ReplaceAll(batchOf(3), ",", ", "), batchOfEvents...).WantReplay(t, batch)
	send("a", batchOf(2), batchOfEvents...).WantNew(t, 202)
	single := send("a", batchOf(1), batchOfEvents...)
	send("a", batchOf(1), batchOfEvents...).WantReplay(t, single)

	// However often a sender delivers an event: the ids of deliveries do not count.
	deliver := func(delivery, event string) hookstest.Response {
		return s.Request("POST", "/api/hooks/signed", event, append(structuredEvent, "X-GitHub-Delivery", delivery, "X-Hub-Signature-256", "sha256="+hexSum("s3cret", event))...)
	}
	first = deliver("d1", eventOf("1", 7))
	deliver("d2", string(indented)).WantReplay(t, first)
	deliver("d1", eventOf("2", 7)).WantNew(t, 202)

	named := send("named", eventOf("1", 7), append(structuredEvent, "X-Own", "k1")...)
	send("named", eventOf("1", 7), append(structuredEvent, "X-Own", "k1")...).WantReplay(t, named)
	if got := s.AdminRequest("GET", "/hooks/runs/"+acceptedRun(t, named), "").Field(t, "requestId"); got != "k1" {
		t.Errorf("the request id is %v", got)
	}
	send("named", eventOf("1", 7), append(structuredEvent, "X-Own", "k2")...).WantNew(t, 202)
	named = send("named", eventOf("3", 7), structuredEvent...)
	send("named", string(indented), append(structuredEvent, "X-Own", "k1")...).WantError(t, 409)
	send("named", eventOf("3", 8), structuredEvent...).WantReplay(t, named)
}

// Senders of CloudEvents ask whether they may send, whatever the scheme of the hook is.
func TestCloudEventsAreConsentedTo(t *testing.T) {
	s := hookstest.StartSite(t, `hooks {
		enabled
		token `+hookstest.Token+`
		runner echo
		hook a {
			body cloudevents
		}
		hook signed {
			auth github s3cret
			body cloudevents
		}
		hook elsewhere {
			body cloudevents
			from 192.0.2.0/24
		}
		hook json
	}`)
	for hook, want := range map[string]int{"a": 200, "signed": 200, "elsewhere": 403, "json": 405} {
		resp := s.Request("OPTIONS", "/api/hooks/"+hook, "", "WebHook-Request-Origin", "events.example.com")
		if resp.Status != want || (resp.Header.Get("WebHook-Allowed-Origin") == "events.example.com") != (want == 200) {
			t.Errorf("%s answers %d %v", hook, resp.Status, resp.Header)
		}
	}
	for _, method := range []string{"OPTIONS", "GET", "HEAD"} {
		if resp := s.Request(method, "/api/hooks/a", ""); resp.Status != 405 || resp.Header.Get("Allow") != "POST" {
			t.Errorf("%s is answered %d %v", method, resp.Status, resp.Header)
		}
	}
	if resp := s.Request("POST", "/api/hooks/a", eventOf("1", 1), append(structuredEvent, "WebHook-Request-Origin", "events.example.com")...); resp.Status != 401 {
		t.Errorf("an event without a token is answered %d", resp.Status)
	}
}

// In binary mode the attributes of an event are headers, and so may be the secret of its sender.
func TestASecretIsNoAttributeOfACloudEvent(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, `hook a {
		action agent
		auth token s3cret-of-the-sender {
			header Ce-Token
		}
		body cloudevents
		template "{$} {token}"
	}`))
	resp := s.Request("POST", "/api/hooks/a", `{"n":1}`, append(eventHeaders("1", 1), "Ce-Token", "s3cret-of-the-sender")...)
	resp.WantNew(t, 202)
	if message := rn.Next().Text("message"); strings.Contains(message, "s3cret") || !strings.Contains(message, "order.paid") ||
		!strings.HasSuffix(message, " <missing>") {
		t.Errorf("the agent is told %s", message)
	}
}

func TestPreviewOfCloudEvents(t *testing.T) {
	t.Setenv("HOOKS_TOKEN", hookstest.Token)
	s := hookstest.StartSite(t, `hooks {
		enabled
		token `+hookstest.Token+`
		runner echo
		hook shop {
			action agent
			body cloudevents
			template "{type}: {data.n}"
		}
	}`)
	const mapping = `{"name":"shop","action":"agent","body":"cloudevents","messageTemplate":"{type}: {data.n}","only":["$.data.n > 1"]}`
	if p := previewOf(s, mapping, eventOf("1", 7)); p.text() != "order.paid: 7" || p.Runs != 1 || !*p.Conditions[0].Holds || p.fields() != "" {
		t.Errorf("an event: %s", p.Body)
	}
	if p := previewOf(s, mapping, batchOf(4)); p.text() != "order.paid: 2" || p.Runs != 2 || p.Ignored != "" {
		t.Errorf("a batch: %s", p.Body)
	}
	if p := previewOf(s, mapping, batchOf(2)); p.text() != "order.paid: 0" || p.Runs != 0 || p.Ignored == "" {
		t.Errorf("a batch of which nothing is left: %s", p.Body)
	}
	if p := previewOf(s, mapping, "[]"); p.Ignored == "" || p.Runs != 0 {
		t.Errorf("an empty batch: %s", p.Body)
	}
	if p := previewOf(s, mapping, `{"n":1}`); p.fields() != "payload" || !strings.Contains(p.Body, "specversion is missing") {
		t.Errorf("no event: %s", p.Body)
	}
	if p := previewOf(s, strings.Replace(mapping, `"only"`, `"each":"$.data[*]","only"`, 1), eventOf("1", 7)); p.fields() != "each" {
		t.Errorf("with each: %s", p.Body)
	}
	if p := previewOf(s, strings.Replace(mapping, "{type}", "{$.a[}", 1), eventOf("1", 7)); p.fields() != "messageTemplate" {
		t.Errorf("with a template that cannot be read: %s", p.Body)
	}

	// What came before is shown again, also the attributes in headers, and commands make events themselves.
	acceptedRun(t, s.Post("/api/hooks/shop", `{"n":9}`, append(eventHeaders("9", 9), "ce-secretcode", "hidden")...))
	if p := previewOf(s, mapping, eventOf("1", 7)); len(p.Samples) != 1 || p.Samples[0].Runs != 1 {
		t.Errorf("a sample: %s", p.Body)
	}
	if body := s.AdminRequest("GET", "/hooks/samples?hook=shop", "").Body; !strings.Contains(body, "Ce-Id") || strings.Contains(body, "hidden") {
		t.Errorf("the samples are %s", body)
	}
	file := writeInput(t, "event.json", eventOf("31", 31))
	out, errs, err := command(t, "render", "shop", "--payload", file, "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if out != "order.paid: 31\n" {
		t.Errorf("render prints %q", out)
	}
	for _, args := range [][]string{{"try", "shop", "--payload", file}, {"try", "shop", "--example"}, {"send", "shop", "--payload", file}, {"send", "shop", "--example"}} {
		_, errs, err := command(t, append(args, "--address", s.Admin)...)
		wantExit(t, 0, errs, err)
	}
}
