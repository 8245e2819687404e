package hookstest

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ButtonChats is a Slack, a Telegram and a Discord in which bots post messages with buttons. Whoever presses one makes a request that is
// signed as the services sign theirs.
type ButtonChats struct {
	*httptest.Server
	t       testing.TB
	private ed25519.PrivateKey

	// Sign makes the headers with which a service signs a body.
	Sign func(service, body string) (headers []string)

	mu       sync.Mutex
	messages []*ButtonMessage
	whispers []string // what Slack has shown to one person: "U1: You answered yes."
	down     bool     // no service answers
}

// ButtonMessage is a message as it is now.
type ButtonMessage struct {
	Service, Chat, Thread string
	ID                    string
	Text                  string
	Buttons               []ChatButton
	Edits                 int
	Removed               bool
}

// ChatButton is a button under a message.
type ChatButton struct{ Label, Data string }

const chatSecret = "a-secret-of-chats"

// StartButtonChats starts the services.
func StartButtonChats(t testing.TB) *ButtonChats {
	t.Helper()
	seed := sha256.Sum256([]byte(chatSecret))
	c := &ButtonChats{t: t, private: ed25519.NewKeyFromSeed(seed[:])}
	c.Sign = c.sign
	mux := http.NewServeMux()
	mux.HandleFunc("POST /slack/{method}", c.slack)
	mux.HandleFunc("POST /telegram/bot42:token/{method}", c.telegram)
	mux.HandleFunc("GET /discord/users/@me", func(w http.ResponseWriter, _ *http.Request) { sayJSON(w, 200, `{"id":"1200000000000000001"}`) })
	mux.HandleFunc("POST /discord/channels/{chat}/messages", c.discord)
	mux.HandleFunc("PATCH /discord/channels/{chat}/messages/{id}", c.discord)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

// Lines are the lines of a hooks block for the channels team (Slack), ops (Telegram) and crew (Discord), and for hooks that get clicks.
func (c *ButtonChats) Lines() string {
	public := hex.EncodeToString(c.private.Public().(ed25519.PublicKey))
	return fmt.Sprintf(`
	channel team slack xoxb-1 {
		url %[1]s/slack
	}
	channel ops telegram 42:token {
		url %[1]s/telegram
	}
	channel crew discord a-token {
		url %[1]s/discord
	}
	hook slack {
		action agent
		auth slack %[2]s
		skip header X-Slack-Signature
	}
	hook telegram {
		action agent
		auth telegram %[2]s
		only $.message
	}
	hook discord {
		action agent
		auth discord %[3]s
		only "$.type == 2"
		respond 200 ok
	}
`, c.URL, chatSecret, public)
}

// ButtonPlace is a chat on a service.
type ButtonPlace struct{ Service, Channel, To, Chat string }

// ButtonPlaces has a chat on each service.
var ButtonPlaces = []ButtonPlace{
	{"slack", "team", "C0123456789/1700000000.000100", "C0123456789"},
	{"telegram", "ops", "-1001234567890/7", "-1001234567890"},
	{"discord", "crew", "123456789012345678", "123456789012345678"},
}

// Person is the id of a person on the service.
func (p ButtonPlace) Person(number int) string {
	switch p.Service {
	case "slack":
		return fmt.Sprintf("U%d", number)
	case "discord":
		return fmt.Sprintf("53000000000000000%d", number)
	default:
		return strconv.Itoa(number)
	}
}

// SetDown says whether the services fail.
func (c *ButtonChats) SetDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

// Messages are those in a chat, the oldest first.
func (c *ButtonChats) Messages(chat string) (all []ButtonMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.messages {
		if m.Chat == chat && !m.Removed {
			all = append(all, *m)
		}
	}
	return all
}

// Asked waits for the message with buttons that is the n-th message in a chat, from 1.
func (c *ButtonChats) Asked(chat string, n int) (m ButtonMessage) {
	c.t.Helper()
	Eventually(c.t, fmt.Sprintf("question %d is asked in %s", n, chat), func() bool {
		all := c.Messages(chat)
		if len(all) < n {
			return false
		}
		m = all[n-1]
		return len(m.Buttons) > 0
	})
	return m
}

// Closed waits until a message has no buttons, and returns its text.
func (c *ButtonChats) Closed(m ButtonMessage) (text string) {
	c.t.Helper()
	Eventually(c.t, "the question is closed in "+m.Chat, func() bool {
		all := c.Messages(m.Chat)
		i := slices.IndexFunc(all, func(other ButtonMessage) bool { return other.ID == m.ID })
		if i >= 0 {
			text = all[i].Text
		}
		return i >= 0 && len(all[i].Buttons) == 0
	})
	return text
}

// Click is what a service sends when a person presses a button, and how it is signed.
func (c *ButtonChats) Click(m ButtonMessage, label, person, name string) (body string, headers []string) {
	c.t.Helper()
	i := slices.IndexFunc(m.Buttons, func(b ChatButton) bool { return b.Label == label })
	if i < 0 {
		c.t.Fatalf("%s is none of the buttons %q", label, m.Buttons)
	}
	data := m.Buttons[i].Data
	encode := func(v map[string]any) string {
		encoded, err := json.Marshal(v)
		if err != nil {
			c.t.Fatal(err)
		}
		return string(encoded)
	}
	type object = map[string]any
	switch m.Service {
	case "slack":
		body = "payload=" + url.QueryEscape(encode(object{"type": "block_actions", "user": object{"id": person, "name": name, "username": name}, "api_app_id": "A1",
			"container": object{"type": "message", "message_ts": m.ID, "channel_id": m.Chat, "thread_ts": m.Thread}, "channel": object{"id": m.Chat, "name": "general"},
			"message": object{"type": "message", "ts": m.ID, "text": m.Text, "bot_id": "B1", "user": "U0AGENT"},
			"actions": []any{object{"type": "button", "action_id": data, "block_id": "b", "value": data, "action_ts": "1700000001.000000"}}}))
		headers = []string{"Content-Type", "application/x-www-form-urlencoded"}
	case "telegram":
		id, err1 := strconv.ParseInt(person, 10, 64)
		chat, err2 := strconv.ParseInt(m.Chat, 10, 64)
		number, err3 := strconv.Atoi(m.ID)
		if err1 != nil || err2 != nil || err3 != nil {
			c.t.Fatal(err1, err2, err3)
		}
		body = encode(object{"update_id": number, "callback_query": object{"id": "cb-" + person, "from": object{"id": id, "is_bot": false, "first_name": name},
			"message":       object{"message_id": number, "from": object{"id": 42, "is_bot": true}, "chat": object{"id": chat, "type": "supergroup"}, "date": 1, "text": m.Text},
			"chat_instance": "1", "data": data}})
		headers = []string{"Content-Type", "application/json"}
	case "discord":
		body = encode(object{"type": 3, "id": m.ID + "1", "application_id": "1", "token": "x", "version": 1, "channel_id": m.Chat, "guild_id": "1",
			"data": object{"component_type": 2, "custom_id": data}, "member": object{"nick": nil, "user": object{"id": person, "username": name}},
			"message": object{"id": m.ID, "content": m.Text, "author": object{"id": "1200000000000000001", "bot": true}}})
		headers = []string{"Content-Type", "application/json"}
	}
	return body, append(headers, c.Sign(m.Service, body)...)
}

// Secret is what a service signs with: of Discord the seed of its key.
func (c *ButtonChats) Secret(service string) string {
	if service == "discord" {
		return hex.EncodeToString(c.private.Seed())
	}
	return chatSecret
}

// sign signs without the libraries of the services.
func (c *ButtonChats) sign(service, body string) []string {
	at := strconv.FormatInt(time.Now().Unix(), 10)
	switch service {
	case "slack":
		sum := hmac.New(sha256.New, []byte(chatSecret))
		sum.Write([]byte("v0:" + at + ":" + body))
		return []string{"X-Slack-Request-Timestamp", at, "X-Slack-Signature", "v0=" + hex.EncodeToString(sum.Sum(nil))}
	case "discord":
		return []string{"X-Signature-Timestamp", at, "X-Signature-Ed25519", hex.EncodeToString(ed25519.Sign(c.private, []byte(at+body)))}
	default:
		return []string{"X-Telegram-Bot-Api-Secret-Token", chatSecret}
	}
}

// Press has a person press a button, and returns what only this person is told.
func (c *ButtonChats) Press(s *Server, m ButtonMessage, label, person, name string) (reply string) {
	c.t.Helper()
	c.mu.Lock()
	before := len(c.whispers)
	c.mu.Unlock()
	body, headers := c.Click(m, label, person, name)
	resp, err := TryRequest("POST", s.URL+"/api/hooks/"+m.Service, body, headers...)
	if err != nil || resp.Status != http.StatusOK {
		c.t.Errorf("a click is answered %d %s, %v", resp.Status, resp.Body, err)
		return ""
	}
	switch m.Service {
	case "slack":
		if resp.Body != "" {
			c.t.Errorf("Slack is answered %q", resp.Body)
		}
		Eventually(c.t, "Slack tells "+person, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, line := range c.whispers[min(before, len(c.whispers)):] {
				if to, text, _ := strings.Cut(line, ": "); to == person {
					reply = text
				}
			}
			return reply != ""
		})
	case "telegram":
		var answer struct {
			Method, Text string
			ID           string `json:"callback_query_id"`
		}
		if err := json.Unmarshal([]byte(resp.Body), &answer); err != nil || answer.Method != "answerCallbackQuery" || answer.ID != "cb-"+person {
			c.t.Errorf("Telegram is answered %s", resp.Body)
		}
		reply = answer.Text
	case "discord":
		var answer struct {
			Type int
			Data struct {
				Content string
				Flags   int
			}
		}
		if err := json.Unmarshal([]byte(resp.Body), &answer); err != nil || answer.Type != 4 || answer.Data.Flags != 64 {
			c.t.Errorf("Discord is answered %s", resp.Body)
		}
		reply = strings.ReplaceAll(answer.Data.Content, `\`, "")
	}
	return reply
}

// add keeps a message, and returns its number. The mutex is held.
func (c *ButtonChats) add(m ButtonMessage, id string) string {
	m.ID = fmt.Sprintf(id, len(c.messages)+1)
	c.messages = append(c.messages, &m)
	return m.ID
}

// edit changes a message, and reports whether it is there. The mutex is held.
func (c *ButtonChats) edit(service, chat, id, text string, buttons []ChatButton) bool {
	for _, m := range c.messages {
		if m.Service == service && m.Chat == chat && m.ID == id && !m.Removed {
			m.Text, m.Buttons = text, buttons
			m.Edits++
			return true
		}
	}
	return false
}

func (c *ButtonChats) slack(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Channel, Text, TS, User string
		Thread                  string `json:"thread_ts"`
		Blocks                  []struct {
			Elements []struct {
				Text  json.RawMessage
				Value string
			}
		}
	}
	c.decode(r, &call)
	var buttons []ChatButton
	for _, block := range call.Blocks {
		for _, e := range block.Elements {
			var label struct{ Text string }
			if e.Value != "" && json.Unmarshal(e.Text, &label) == nil {
				buttons = append(buttons, ChatButton{label.Text, e.Value})
			}
		}
	}
	switch method := r.PathValue("method"); {
	case r.Header.Get("Authorization") != "Bearer xoxb-1":
		sayJSON(w, 200, `{"ok":false,"error":"invalid_auth"}`)
	case method == "auth.test":
		sayJSON(w, 200, `{"ok":true,"user_id":"U0AGENT","bot_id":"B1"}`)
	case method == "chat.postEphemeral":
		c.whispers = append(c.whispers, call.User+": "+call.Text)
		sayJSON(w, 200, `{"ok":true,"message_ts":"1.1"}`)
	case method == "chat.postMessage":
		id := c.add(ButtonMessage{Service: "slack", Chat: call.Channel, Thread: call.Thread, Text: call.Text, Buttons: buttons}, "1700000001.%06d")
		sayJSON(w, 200, fmt.Sprintf(`{"ok":true,"channel":%q,"ts":%q}`, call.Channel, id))
	case method == "chat.update" && c.edit("slack", call.Channel, call.TS, call.Text, buttons):
		sayJSON(w, 200, fmt.Sprintf(`{"ok":true,"channel":%q,"ts":%q}`, call.Channel, call.TS))
	default:
		sayJSON(w, 200, `{"ok":false,"error":"message_not_found"}`)
	}
}

func (c *ButtonChats) telegram(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Chat   json.Number `json:"chat_id"`
		Topic  json.Number `json:"message_thread_id"`
		ID     json.Number `json:"message_id"`
		Text   string
		Markup struct {
			Rows [][]struct {
				Text string
				Data string `json:"callback_data"`
			} `json:"inline_keyboard"`
		} `json:"reply_markup"`
	}
	c.decode(r, &call)
	var buttons []ChatButton
	for _, b := range slices.Concat(call.Markup.Rows...) {
		buttons = append(buttons, ChatButton{b.Text, b.Data})
	}
	id := call.ID.String()
	switch method := r.PathValue("method"); {
	case method == "sendMessage":
		id = c.add(ButtonMessage{Service: "telegram", Chat: call.Chat.String(), Thread: call.Topic.String(), Text: call.Text, Buttons: buttons}, "%d")
	case method != "editMessageText" || !c.edit("telegram", call.Chat.String(), id, call.Text, buttons):
		sayJSON(w, 400, `{"ok":false,"error_code":400,"description":"Bad Request: message to edit not found"}`)
		return
	}
	sayJSON(w, 200, `{"ok":true,"result":{"message_id":`+id+`}}`)
}

func (c *ButtonChats) discord(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Content string
		Rows    []struct {
			Buttons []struct {
				Label string
				Data  string `json:"custom_id"`
			} `json:"components"`
		} `json:"components"`
	}
	c.decode(r, &call)
	var buttons []ChatButton
	for _, row := range call.Rows {
		for _, b := range row.Buttons {
			buttons = append(buttons, ChatButton{b.Label, b.Data})
		}
	}
	chat, id := r.PathValue("chat"), r.PathValue("id")
	switch {
	case r.Header.Get("Authorization") != "Bot a-token":
		sayJSON(w, 401, `{"message":"401: Unauthorized","code":0}`)
		return
	case r.Method == http.MethodPost:
		id = c.add(ButtonMessage{Service: "discord", Chat: chat, Text: call.Content, Buttons: buttons}, "1300000000000000%03d")
	case !c.edit("discord", chat, id, call.Content, buttons):
		sayJSON(w, 404, `{"message":"Unknown Message","code":10008}`)
		return
	}
	sayJSON(w, 200, fmt.Sprintf(`{"id":%q,"channel_id":%q}`, id, chat))
}

func (c *ButtonChats) decode(r *http.Request, into any) {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		c.t.Errorf("%s has no JSON: %v", r.URL.Path, err)
	}
}

func sayJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}
