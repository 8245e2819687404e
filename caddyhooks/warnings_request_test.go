package caddyhooks_test

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// The contract accepts fields that nobody knows. Callers should hear of them all the same.
func TestIgnoredFieldsAreNamedInAHeader(t *testing.T) {
	s := hookstest.StartSite(t, `hooks {
		enabled
		token `+hookstest.Token+`
		runner echo {
			reply "{}"
		}
		hook custom {
			template "{a}"
		}
	}`)
	const agent, wake = "/api/hooks/agent", "/api/hooks/wake"
	long := strings.Repeat("n", 100_000)
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{agent, `{"message":"a","chatId":"c","metadata":{"sync_response":1,"typ":"string"}}`, 202, ""},
		{wake, `{"text":"a","metadata":{"timeout":1}}`, 200, ""},
		{"/api/hooks/custom", `{"a":1,"sync_response":true}`, 200, ""},
		{agent, `{"message":"a","sync_response":true,"timeout":5}`, 202,
			"ignored fields: sync_response (did you mean syncResponse?), timeout (did you mean timeoutSeconds?)"},
		{agent, `{"message":"a","syncResponse":true,"Model":"smart","foo":1}`, 200, "ignored fields: Model (did you mean model?), foo"},
		{wake, `{"text":"a","chat_id":"c","message":"b","model":"smart"}`, 200, "ignored fields: chat_id (did you mean chatId?), model"},
		{agent, `{"mesage":"a"}`, 400, "ignored fields: mesage (did you mean message?)"},
		{agent, `{"message":"a","channel":"team","to":"1"}`, 202, "ignored without deliver: channel, to"},
		{agent, `{"message":"a","deliver":false,"channel":"team","to":"1"}`, 202, ""},
		{agent, `{"message":"a","a":1,"b":2,"c":3,"d":4,"e":5}`, 202, "ignored fields: a, b, c and others"},
		{agent, `{"message":"a","x\r\nSet-Cookie: y=\u00e9":1}`, 202, "ignored fields: x%0D%0ASet-Cookie:%20y=%C3%A9"},
		{agent, `{"message":"a","` + long + `":1}`, 202, "ignored fields: " + long[:40] + "..."},
		{agent, `{"message":"a","syncResponse":true,"sync":1,"responseJsonSchema":{"type":"object","requird":["a"],"description":"typ","x-items":1,
			"properties":{"typ":{"anyOf":[{"minlength":1}]}}}}`, 200,
			"ignored fields: sync (did you mean syncResponse?); ignored schema keywords: minlength (did you mean minLength?), requird (did you mean required?)"},
	} {
		resp := s.Post(c.path, c.body)
		if got := strings.Join(resp.Header["X-Service-Warning"], "|"); got != c.want || resp.Status != c.status {
			t.Errorf("%.200s\ngot  %d %s\nwant %d %s\n%s", c.body, resp.Status, got, c.status, c.want, resp.Body)
		}
	}
	streamed := s.Post(agent, `{"message":"a","syncResponse":true,"sync":true}`, "Accept", "text/event-stream")
	if got := streamed.Header.Get("X-Service-Warning"); got != "ignored fields: sync (did you mean syncResponse?)" {
		t.Errorf("a stream has the warning %q", got)
	}
	s.Post(agent, `{"mesage":"a"}`).WantError(t, 400,
		"The field message is missing or blank: it must hold the prompt; ignored fields: mesage (did you mean message?).")
	stranger := s.Request("POST", agent, `{"message":"a","sync":true}`, "Authorization", "Bearer wrong")
	if stranger.Status != 401 || stranger.Header["X-Service-Warning"] != nil {
		t.Errorf("a stranger got %d %v", stranger.Status, stranger.Header["X-Service-Warning"])
	}
}
