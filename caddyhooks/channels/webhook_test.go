package channels

import (
	"net/http"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestWebhookOnTheWire(t *testing.T) {
	t.Parallel()
	s := startService(t, func(w http.ResponseWriter, _ request, _ int) { w.WriteHeader(204) })
	d := delivery("any chat, ünd so", "<b>& \"x\"\r\n  "+strings.Repeat("y", 100_000)+"\n")
	if err := loadChannel(t, "webhook "+s.URL+"/answers/?a=b%2Fc {\n token hush\n}").Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	r := s.one()
	if r.method != "POST" || r.path != "/answers/" || r.query != "a=b%2Fc" || d.Sent != 0 {
		t.Errorf("got %s %s?%s", r.method, r.path, r.query)
	}
	r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "User-Agent": "caddy-hooks", "Authorization": "Bearer hush",
		"Webhook-Id": d.ID})
	want := `{"runId":"` + runID + `","chatId":"chät 1","to":"any chat, ünd so","status":"completed","text":"<b>& \"x\"\r\n  ` + strings.Repeat("y", 100_000) + `\n"}`
	if r.body != want {
		t.Errorf("got %.300s", r.body)
	}

	// Without a token there is nothing to show, and a blank text is a text.
	s = startService(t, func(http.ResponseWriter, request, int) {})
	d = delivery("x", "")
	if err := loadChannel(t, "webhook "+s.URL+"/answers/").Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if r = s.one(); r.path != "/answers/" {
		t.Errorf("got %s", r.path)
	}
	r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "User-Agent": "caddy-hooks", "Webhook-Id": d.ID})
	wantJSON(t, r.body, `{"runId":"`+runID+`","chatId":"chät 1","to":"x","status":"completed","text":""}`)
}

func TestWebhookIsSigned(t *testing.T) {
	const before, after = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	t.Setenv("WEBHOOK_SECRET", after)
	s := startService(t, func(w http.ResponseWriter, _ request, n int) {
		if n == 1 {
			say(w, 500, before+" "+after)
		}
	})
	channel := loadChannel(t, "webhook "+s.URL+" {\n secret "+before+" {env.WEBHOOK_SECRET}\n}")
	d := delivery("x", "signed <&>")
	outcome{kind: "again", words: "500"}.check(t, channel.Send(t.Context(), d))
	if d.LastAnswer != "•••• ••••" {
		t.Errorf("kept of the answer: %s", d.LastAnswer)
	}
	if err := channel.Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.seen() {
		r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "User-Agent": "caddy-hooks",
			"Webhook-Id": d.ID, "Webhook-Timestamp": "…", "Webhook-Signature": "…"})
		for _, secret := range []string{before, after} {
			verifier, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			if err := verifier.Verify([]byte(r.body), r.header); err != nil {
				t.Errorf("with %.8s…: %v", secret, err)
			}
			if verifier.Verify([]byte(r.body+" "), r.header) == nil {
				t.Error("another body passes")
			}
		}
	}
}

func TestWebhookTakesEverySuccess(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 201, 202, 204, 299} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) { w.WriteHeader(status) })
		d := delivery("x", "y")
		if err := loadChannel(t, "webhook "+s.URL).Send(t.Context(), d); err != nil || d.LastStatus != status {
			t.Errorf("%d: %v, noted %d", status, err, d.LastStatus)
		}
	}
}

// Some URLs are secrets, and whoever answers may repeat the request.
func TestWebhookURLIsNeverShown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ path, answer, want string }{
		{"/services/T0/hush", "Cannot POST /services/T0/hush", "Cannot POST ••••"},
		{"/services/T0/hush?key=hush2", "no /services/T0/hush?key=hush2 here", "no •••• here"},
		{"/services/T0/hush?key=hush2", "no /services/T0/hush here", "no •••• here"},
		{"/services/T0/hush?key=hush2", "no /behind/a/proxy?key=hush2 here", "no /behind/a/proxy•••• here"},
		{"/?key=hush", "/?key=hush", "••••"},
		{"?key=hush", "/?key=hush", "••••"},
		{"/a%2Fhush?b=%C3%A4&c", `a: /a%2Fhush?b=%C3%A4&c, b: /a/hush?b=ä&amp;c, c: \/a%2fhush?b=%C3%A4\u0026c, d: %2Fa%252Fhush`, "a: ••••, b: ••••, c: ••••, d: ••••"},
		{"/x/token-hush", "/x/token-hush, token-hush", "••••, ••••"},
		{"/", "a/b?c", "a/b?c"},
		{"", "a/b?c", "a/b?c"},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, 500, tc.answer) })
		d := delivery("x", "y")
		outcome{kind: "again", words: "the receiver answered 500"}.check(t, loadChannel(t, "webhook "+s.URL+tc.path+" {\n token token-hush\n}").Send(t.Context(), d))
		if d.LastAnswer != tc.want {
			t.Errorf("%s: kept of the answer: %s", tc.path, d.LastAnswer)
		}
	}
}

func TestChatsOfAnyName(t *testing.T) {
	t.Parallel()
	for _, channel := range []engine.Channel{new(Webhook), new(Log)} {
		for _, to := range []string{"a", "#team", "a b", "büro/1", strings.Repeat("a", 256)} {
			if err := channel.ValidTo(to); err != nil {
				t.Errorf("%T: %s: %v", channel, to, err)
			}
		}
		for _, to := range []string{"", "a\nb", "a\x00", "\u202e", "\xff", strings.Repeat("a", 257)} {
			if err := channel.ValidTo(to); err == nil || !strings.Contains(err.Error(), "256 bytes") {
				t.Errorf("%T: %q: %v", channel, to, err)
			}
		}
	}
}
