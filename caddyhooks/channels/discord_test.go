package channels

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// discordServer answers as discord.com does, where one channel exists, and a thread, whose id is a channel's.
type discordServer struct {
	*service
	mu     sync.Mutex
	posted map[string]string // contents by nonce
}

func startDiscord(t *testing.T, token string, lose func(n int) bool) *discordServer {
	s := &discordServer{posted: make(map[string]string)}
	s.service = startService(t, func(w http.ResponseWriter, r request, n int) {
		var body struct {
			Content string
			Nonce   string
			Enforce bool         `json:"enforce_nonce"`
			Rows    []discordRow `json:"components"`
		}
		err := json.Unmarshal([]byte(r.body), &body)
		channel, messages, ok := strings.Cut(strings.TrimPrefix(r.path, "/api/v10/channels/"), "/messages")
		id := strings.TrimPrefix(messages, "/")
		switch {
		case r.header.Get("Authorization") != "Bot "+token:
			say(w, 401, `{"message":"401: Unauthorized","code":0}`)
			return
		case !strings.HasPrefix(r.header.Get("User-Agent"), "DiscordBot ("):
			say(w, 403, `{"message":"internal network error","code":40333}`)
			return
		case r.method == "GET" && r.path == "/api/v10/users/@me":
			say(w, 200, `{"id":"1200000000000000001","username":"agent","discriminator":"0000","global_name":null,"avatar":null,"bot":true,"flags":0}`)
			return
		case !ok || channel != "123456789012345678" && channel != "987654321098765432" || (r.method == "POST") != (id == ""):
			say(w, 404, `{"message":"Unknown Channel","code":10003}`)
			return
		case r.method == "DELETE" && s.remove(id):
			w.WriteHeader(204)
			return
		case r.method == "DELETE":
			say(w, 404, `{"message":"Unknown Message","code":10008}`)
			return
		case err != nil || strings.TrimSpace(body.Content) == "":
			say(w, 400, `{"message":"Cannot send an empty message","code":50006}`)
			return
		case utf8.RuneCountInString(body.Content) > 2000 || len(body.Nonce) > 25:
			say(w, 400, `{"message":"Invalid Form Body","code":50035,"errors":{"content":{"_errors":[{"code":"BASE_TYPE_MAX_LENGTH","message":"Must be 2000 or fewer in length."}]}}}`)
			return
		}
		if r.method == "PATCH" && !s.edit(id, body.Content) {
			say(w, 404, `{"message":"Unknown Message","code":10008}`)
			return
		}
		var buttons []askedButton
		for _, row := range body.Rows {
			if row.Type != 1 || len(row.Buttons) == 0 || len(row.Buttons) > 5 || len(body.Rows) > 5 {
				say(w, 400, `{"message":"Invalid Form Body","code":50035}`)
				return
			}
			for _, b := range row.Buttons {
				if n := utf8.RuneCountInString(b.Label); b.Type != 2 || b.Style != 2 || n == 0 || n > 80 || len(b.Data) > 100 {
					say(w, 400, `{"message":"Invalid Form Body","code":50035}`)
					return
				}
				buttons = append(buttons, askedButton{b.Label, b.Data})
			}
		}
		s.mu.Lock()
		if _, repeat := s.posted[body.Nonce]; !repeat || !body.Enforce {
			s.posted[body.Nonce] += body.Content
		}
		content, _ := json.Marshal(s.posted[body.Nonce])
		s.mu.Unlock()
		if r.method == "POST" {
			id = strconv.FormatInt(1300000000000000000+int64(n), 10)
			s.post(message{id, channel, "", body.Content})
		}
		if body.Rows != nil {
			s.postButtons(id, buttons)
		}
		if lose(n) {
			panic(http.ErrAbortHandler)
		}
		say(w, 200, fmt.Sprintf(`{"type":0,"content":%s,"mentions":[],"mention_roles":[],"attachments":[],"embeds":[],"timestamp":"2026-01-02T03:04:05.678000+00:00",`+
			`"edited_timestamp":null,"flags":4,"components":[],"id":%q,"channel_id":"123456789012345678","author":{"id":"1","username":"bot","bot":true},`+
			`"pinned":false,"mention_everyone":false,"tts":false,"nonce":%q}`, content, id, body.Nonce))
	})
	return s
}

func never(int) bool { return false }

func TestDiscordMessageOnTheWire(t *testing.T) {
	t.Parallel()
	s := startDiscord(t, "a.secret.token", never)
	d := delivery("123456789012345678", "Hello **world** @everyone <@123> & \x00")
	if err := loadChannel(t, "discord a.secret.token {\n url "+s.URL+"/api/v10\n}").Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	r := s.one()
	if r.method != "POST" || r.path != "/api/v10/channels/123456789012345678/messages" || r.query != "" || d.Sent != 1 {
		t.Errorf("got %s %s?%s", r.method, r.path, r.query)
	}
	r.wantHeaders(t, map[string]string{"Content-Type": "application/json; charset=utf-8", "Authorization": "Bot a.secret.token",
		"User-Agent": "DiscordBot (https://github.com/caddy-hooks/caddy-hooks, 1) caddy-hooks"})
	wantJSON(t, r.body, `{"content":"Hello \\*\\*world\\*\\* \\@everyone \\<\\@123\\> &","allowed_mentions":{"parse":[]},"flags":4,"nonce":"`+discordNonce(delivery("", ""))+`","enforce_nonce":true}`)
}

// When an answer gets lost nobody knows whether the message was posted. The nonce tells Discord.
func TestDiscordPostsOnceWhenAnswersGetLost(t *testing.T) {
	t.Parallel()
	s := startDiscord(t, "hush-1", func(n int) bool { return n%2 == 1 })
	channel := loadChannel(t, "discord hush-1 {\n url "+s.URL+"/api/v10\n}")
	d := delivery("123456789012345678", strings.Repeat("word ", 1000))
	for range 3 {
		outcome{kind: "again"}.check(t, channel.Send(t.Context(), d))
	}
	if err := channel.Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	all := ""
	for nonce, content := range s.posted {
		if len(nonce) > 25 {
			t.Errorf("the nonce %s is too long", nonce)
		}
		all += content + " "
	}
	if got := strings.Count(all, "word"); got != 1000 || len(s.posted) != 3 || d.Sent != 3 {
		t.Errorf("%d words arrived in %d messages, and %d parts are noted", got, len(s.posted), d.Sent)
	}

	nonces := map[string]bool{}
	for _, id := range []string{"msg_1_0", "msg_1_1", "msg_2_0"} {
		for sent := range 50 {
			d := delivery("", "")
			d.ID, d.Sent = id, sent
			nonces[discordNonce(d)] = true
		}
	}
	if len(nonces) != 150 {
		t.Errorf("150 parts have %d nonces", len(nonces))
	}
}

func TestMarkdownIsEscaped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain text, 100 % (really): it's fine!":       "plain text, 100 % (really): it's fine!",
		"**b** __u__ ~~s~~ ||h|| `c`":                  `\*\*b\*\* \_\_u\_\_ \~\~s\~\~ \|\|h\|\| ` + "\\`c\\`",
		"```go\nx\n```":                                "\\`\\`\\`go\nx\n\\`\\`\\`",
		`\*`:                                           `\\\*`,
		"# big\n ## b\na # c":                          "\\# big\n \\## b\na # c",
		"- a\n+ b\n  - c\n-# d\nx - y":                 "\\- a\n\\+ b\n  \\- c\n\\-# d\nx - y",
		"1. a\n 23. b\n4) c\nv1.5":                     "1\\. a\n 23\\. b\n4\\) c\nv1.5",
		". a\n ) b":                                    ". a\n ) b",
		"> quote\n>>> more\na > b":                     "\\> quote\n\\>\\>\\> more\na \\> b",
		"[text](https://evil.example)":                 `\[text\](https://evil.example)`,
		"<#1> <:a:1> <t:1> </a:1> <id:x>":              `\<#1\> \<:a:1\> \<t:1\> \</a:1\> \<id:x\>`,
		"@everyone @here a@b.c":                        `\@everyone \@here a\@b.c`,
		"see https://example.org/a_b_c?d=~e#f_g, ok_":  `see https://example.org/a_b_c?d=~e#f_g, ok\_`,
		"http://a_b *x*":                               `http://a_b \*x\*`,
		"xhttp://a_b":                                  `xhttp://a\_b`,
		"https://a_b<@1>":                              `https://a_b\<\@1\>`,
		"https://a_b*c*":                               `https://a_b\*c\*`,
		"(https://a_b)":                                `(https://a_b)`,
		"https://en.example/wiki/Foo_(bar_baz)_x, y_z": `https://en.example/wiki/Foo_(bar_baz)_x, y\_z`,
		"(see https://a/b_(c_(d)_e)_f)_g_":             `(see https://a/b_(c_(d)_e)_f)\_g\_`,
		"https://a/it's_b_c":                           `https://a/it's_b_c`,
		"https://a/(b_c d_e":                           `https://a/(b_c d\_e`,
		"https://_ x https://_":                        `https://\_ x https://\_`,
		"http://~~ x ~~ https://(_a_)":                 `http://\~\~ x \~\~ https://(\_a\_)`,
		"https:// _":                                   `https:// \_`,
		"https:/a_b https//a_b":                        `https:/a\_b https//a\_b`,
		"snake_case ünï_cödé 日本_語":                     `snake\_case ünï\_cödé 日本\_語`,
	} {
		if got := escapeMarkdown(text); got != want {
			t.Errorf("%q\nbecame %q\nwant   %q", text, got, want)
		}
	}
}

// FuzzEscapeMarkdown checks that backslashes are all that is added, and that no markup outside of addresses is without one.
func FuzzEscapeMarkdown(f *testing.F) {
	for _, text := range []string{"**b**", "a https://x_y *z*", "1. - # >", `\\`, "https://", "ü_", "https://_ x https://_", "(https://a_(b_c)_d)_e", "https://http_a"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		escaped := escapeMarkdown(text)
		i := 0
		for j := 0; j < len(escaped); j++ {
			if escaped[j] == '\\' && j+1 < len(escaped) && !(i < len(text) && text[i] == '\\' && escaped[j+1] != '\\') {
				j++
			} else if strings.IndexByte("\\*_~`|<>[]@", escaped[j]) >= 0 {
				inAddress := false
				for n := range i {
					inAddress = inAddress || i < n+plainAddress(text[n:])
				}
				if !inAddress {
					t.Fatalf("%q at %d of %q is not escaped", escaped[j], j, escaped)
				}
			}
			if i == len(text) || escaped[j] != text[i] {
				t.Fatalf("%q became %q", text, escaped)
			}
			i++
		}
		if i != len(text) {
			t.Fatalf("%q became %q", text, escaped)
		}
		for n := range text {
			if utf8.RuneStart(text[n]) && len(escapeMarkdown(text[:n])) > len(escaped) {
				t.Fatalf("the first %d bytes of %q are longer than all of it", n, text)
			}
		}
	})
}

func TestDiscordErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		body   string
		want   outcome
	}{
		{429, `{"message":"You are being rate limited.","retry_after":64.57,"global":false}`, outcome{"later", 65 * time.Second, "Discord answered 429: it asks for a pause"}},
		{429, `{"message":"This action cannot be performed due to slowmode rate limit.","retry_after":3,"code":20016}`, outcome{"later", 3 * time.Second, "pause"}},
		{400, `{"message":"Invalid Form Body","code":50035}`, outcome{"final", 0, "Discord answered 400"}},
		{401, `{"message":"401: Unauthorized","code":0}`, outcome{"final", 0, "does not take the token"}},
		{403, `{"message":"Missing Access","code":50001}`, outcome{"final", 0, "Discord answered 403: the bot may not see the channel"}},
		{403, `{"message":"Missing Permissions","code":50013}`, outcome{"final", 0, "may not write"}},
		{403, `{"message":"Cannot send messages to this user","code":50007}`, outcome{"final", 0, "takes no messages"}},
		{403, `{"message":"Thread is locked","code":160005}`, outcome{"final", 0, "locked"}},
		{403, `{"message":"x","code":40333}`, outcome{"final", 0, "firewall"}},
		{400, `{"message":"x","code":200000}`, outcome{"final", 0, "moderation"}},
		{404, `{"message":"Unknown Channel","code":10003}`, outcome{"final", 0, "there is no such channel"}},
		{404, `{"message":"404: Not Found","code":0}`, outcome{"final", 0, "url or the token"}},
		{500, `{"message":"500: Internal Server Error","code":0}`, outcome{"again", 0, "Discord answered 500"}},
		{502, `error code: 502`, outcome{"again", 0, "Discord answered 502"}},
	} {
		s := startService(t, func(w http.ResponseWriter, _ request, _ int) { say(w, tc.status, tc.body) })
		d := delivery("123456789012345678", "x")
		tc.want.check(t, loadChannel(t, "discord hush-1 {\n url "+s.URL+"\n}").Send(t.Context(), d))
		if d.Sent != 0 || d.LastStatus != tc.status || d.LastAnswer != tc.body {
			t.Errorf("noted: %+v", d)
		}
	}
	// The longer pause of two is meant.
	s := startService(t, func(w http.ResponseWriter, _ request, _ int) {
		w.Header().Set("Retry-After", "65")
		say(w, 429, `{"retry_after":1.5}`)
	})
	outcome{"later", 65 * time.Second, "pause"}.check(t, loadChannel(t, "discord hush-1 {\n url "+s.URL+"\n}").Send(t.Context(), delivery("123456789012345678", "x")))
	server := startDiscord(t, "hush-2", never)
	outcome{kind: "final", words: "401"}.check(t, loadChannel(t, "discord hush-1 {\n url "+server.URL+"/api/v10\n}").Send(t.Context(), delivery("123456789012345678", "x")))
	outcome{kind: "final", words: "no such channel"}.check(t, loadChannel(t, "discord hush-2 {\n url "+server.URL+"/api/v10\n}").Send(t.Context(), delivery("123456789012345679", "x")))
}

func TestDiscordChats(t *testing.T) {
	t.Parallel()
	channel := new(Discord)
	for _, to := range []string{"123456789012345", "123456789012345678", "12345678901234567890"} {
		if err := channel.ValidTo(to); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, to := range []string{"", "1", "12345678901234", "123456789012345678901", "-123456789012345678", "12345678901234567x", "123456789012345678/..", "#general",
		"<#123456789012345678>", "１２３４５６７８９０１２３４５６７８", "123456789012345678\n"} {
		if err := channel.ValidTo(to); err == nil || !strings.Contains(err.Error(), "15 to 20 digits") {
			t.Errorf("%q: %v", to, err)
		}
	}
}
