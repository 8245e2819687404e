package caddyhooks_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// chatToken is the token of all channels.
const chatToken = "7654321:loud-chat-token"

// chatChannels are channels with the same host. The token is not in the configuration, which Caddy logs.
func chatChannels(t *testing.T, url string) string {
	t.Setenv("CHAT_TOKEN", chatToken)
	return fmt.Sprintf(`
	channel ops telegram %[2]s {
		url %[1]s/telegram
	}
	channel team slack %[2]s {
		url %[1]s/slack
	}
	channel crew discord %[2]s {
		url %[1]s/discord
	}
	channel room matrix %[1]s/matrix %[2]s
	channel code github %[2]s {
		url %[1]s/github
	}
	channel work gitlab %[2]s {
		url %[1]s/gitlab
	}
	channel plan linear %[2]s {
		url %[1]s/linear
	}
	channel town mattermost %[1]s/mattermost %[2]s
	channel office teams %[1]s/teams?sig=%[2]s
	channel own webhook %[1]s/webhook {
		token %[2]s
	}`, url, "{env.CHAT_TOKEN}")
}

var chats = []struct{ channel, to, path, text string }{
	{"ops", "-1001234567890/42", "/telegram/bot" + chatToken + "/sendMessage", `"text":"Hello <!channel> *you* @everyone"`},
	{"team", "C0123456789", "/slack/chat.postMessage", `"text":"Hello &lt;!channel&gt; *you* @everyone"`},
	{"crew", "123456789012345678", "/discord/channels/123456789012345678/messages", `"content":"Hello \\<!channel\\> \\*you\\* \\@everyone"`},
	{"room", "!room:example.org", "/matrix/_matrix/client/v3/rooms/!room:example.org/send/m.room.message/msg_", `"body":"Hello <!channel> *you* @everyone"`},
	{"code", "acme/widgets#7", "/github/repos/acme/widgets/issues/7/comments", `"body":"Hello <` + "\u200b" + `!channel> *you* @` + "\u200b" + `everyone"`},
	{"work", "acme/tools/widgets!8", "/gitlab/projects/acme/tools/widgets/merge_requests/8/notes", `"body":"Hello <` + "\u200b" + `!channel> *you* @` + "\u200b" + `everyone"`},
	{"plan", "ENG-123", "/linear", `"body":"Hello <` + "\u200b" + `!channel> *you* @` + "\u200b" + `everyone"`},
	{"town", "4xp9fdt77pncbef59f4k1qe83o", "/mattermost/api/v4/posts", `"message":"Hello <` + "\u200b" + `!channel> *you* @` + "\u200b" + `everyone"`},
	{"office", "anybody", "/teams", `"text":"Hello <!channel> *you* @everyone"`},
	{"own", "anybody", "/webhook", `"text":"Hello <!channel> *you* @everyone"`},
}

func TestAnswersReachChats(t *testing.T) {
	arrived := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- r.URL.Path + " " + string(body)
		switch service, _, _ := strings.Cut(r.URL.Path[1:], "/"); service {
		case "github", "gitlab":
			_, _ = io.WriteString(w, `{"id":1,"body":"x"}`)
		case "linear":
			_, _ = io.WriteString(w, `{"data":{"commentCreate":{"success":true,"comment":{"id":"2174add1-f7c8-44e3-bbf3-2d60b5ea8bc9"}}}}`)
		default:
			_, _ = io.WriteString(w, `{"ok":true,"id":"8xp9fdt77pncbef59f4k1qe83o","event_id":"$1"}`)
		}
	}))
	t.Cleanup(server.Close)
	s := hookstest.StartSite(t, hookstest.Hooks(hookstest.StartRunner(t, hookstest.ReplyText("Hello <!channel> *you* @everyone")), chatChannels(t, server.URL)))
	for _, chat := range chats {
		id := s.Accept(fmt.Sprintf(`{"message":"a","deliver":true,"channel":%q,"to":%q}`, chat.channel, chat.to))
		select {
		case got := <-arrived:
			if !strings.HasPrefix(got, chat.path) || !strings.Contains(got, chat.text) {
				t.Errorf("%s: got %s", chat.channel, got)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: nothing arrived", chat.channel)
		}
		hookstest.Eventually(t, "the delivery is noted", func() bool {
			run := s.Run(id)
			return len(run.Deliveries) == 1 && run.Deliveries[0].Status == "delivered" && run.Deliveries[0].Target == chat.channel+":"+chat.to
		})
	}

	for _, refused := range []struct{ fields, words string }{
		{`"channel":"pager","to":"x"`, "channel names no channel"},
		{`"channel":"telegram","to":"42"`, "channel names no channel"},
		{`"channel":"ops","to":"the team"`, "a chat on Telegram is an id"},
		{`"channel":"ops","to":"-1001234567890/../x"`, "a chat on Telegram is an id"},
		{`"channel":"team","to":"general"`, "a chat on Slack is an id"},
		{`"channel":"crew","to":"123"`, "a chat on Discord is the id"},
		{`"channel":"crew","to":"123456789012345678/../1"`, "a chat on Discord is the id"},
		{`"channel":"room","to":"room:example.org"`, "a chat on Matrix is the id"},
		{`"channel":"code","to":"acme/../x#7"`, "a chat on GitHub is an issue"},
		{`"channel":"work","to":"acme#7"`, "a chat on GitLab is an issue"},
		{`"channel":"plan","to":"eng-1"`, "a chat on Linear is an issue"},
		{`"channel":"town","to":"town-square"`, "a chat on Mattermost is the id"},
		{`"channel":"own","to":"a\nb"`, "a chat on this channel is"},
	} {
		s.Post("/api/hooks/agent", `{"message":"a","deliver":true,`+refused.fields+`}`).WantError(t, http.StatusBadRequest, refused.words)
	}
}

func TestAPlaceholderInAChatNeedsAllowToOnEveryChannel(t *testing.T) {
	const hint = "has placeholders, so that requests choose the chat: allow_to of the channel"
	channels := "channel lines log\n channel post email 127.0.0.1 {\n from agent@example.com\n }\n" + chatChannels(t, "http://127.0.0.1:9")
	s := hookstest.StartSite(t, "hooks {\n runner echo\n"+channels+"\n}")
	for _, channel := range []string{"lines", "post", "ops", "team", "crew", "room", "code", "work", "plan", "town", "office", "own"} {
		resp := s.AdminRequest("PUT", "/hooks/mappings/a", `{"action":"agent","deliver":true,"channel":"`+channel+`","to":"{team.chat}"}`)
		if !strings.Contains(resp.Body, hint) {
			t.Errorf("%s: got %d %s", channel, resp.Status, resp.Body)
		}
		err := validate(t, ":0 {\n hooks {\n runner echo\n"+channels+"\n hook a {\n action agent\n deliver "+channel+" \"{team.chat}\"\n }\n }\n}")
		if err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: validated with %v", channel, err)
		}
	}
}

// A host that repeats requests, tokens and all, must not make us repeat them.
func TestTokensOfChannelsAreNeverShown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "%s %v", r.URL, r.Header)
	}))
	t.Cleanup(server.Close)
	s := hookstest.NewServer(t)
	log := filepath.Join(t.TempDir(), "log")
	s.Globals = "log {\n output file " + log + "\n level DEBUG\n}"
	s.Load(hookstest.Hooks(hookstest.StartRunner(t, nil), chatChannels(t, server.URL)))
	for _, chat := range chats {
		id := s.Accept(fmt.Sprintf(`{"message":"a","deliver":true,"channel":%q,"to":%q}`, chat.channel, chat.to))
		hookstest.Eventually(t, "the delivery is given up", func() bool {
			run := s.Run(id)
			return len(run.Deliveries) == 1 && run.Deliveries[0].Status == "dead" && strings.Contains(run.Deliveries[0].LastError, "403")
		})
		wantNoSecrets(t, "the run", s.Run(id).Body, "loud-chat", "7654321", "127.0.0.1")
	}
	text, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(text), "delivery given up") {
		t.Fatalf("the log does not tell: %v", err)
	}
	wantNoSecrets(t, "the log", string(text), "loud-chat", "7654321")
}
