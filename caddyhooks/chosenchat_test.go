package caddyhooks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

const chosenTeam = `channel team log {
	allow_to C1 "D*" on-call
}
hook chat {
	action agent
	deliver team "{event.channel}{event.thread | default event.none | default ''}"
}
hook many {
	action agent
	each $.items[*]
	deliver team "{to}"
}
hook fixed {
	action agent
	deliver team elsewhere
}
`

func TestARequestChoosesTheChatOfItsAnswer(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("x"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, chosenTeam))
	for body, want := range map[string]string{
		`{"event":{"channel":"C1"}}`:                "team:C1",
		`{"event":{"channel":"D","thread":null}}`:   "team:D",
		`{"event":{"channel":"D/","thread":17.50}}`: "team:D/17.50",
	} {
		run, _ := s.Post("/api/hooks/chat", body).Field(t, "runId").(string)
		wantDelivery(t, s, run, "delivered")
		if got := s.Run(run).Deliveries[0].Target; got != want {
			t.Errorf("%s: the answer went to %s", body, got)
		}
	}
	for body, want := range map[string][2]string{
		`{"event":{}}`:                             {"{event.channel} is missing.", "{event.channel} is missing"},
		`{"event":{"channel":["C1"]}}`:             {"{event.channel} is an array, and must be a text or a number.", "is an array"},
		`{"event":{"channel":null}}`:               {"{event.channel} is null", "{event.channel} is null"},
		`{"event":{"channel":true}}`:               {"is true or false", "is true or false"},
		`{"event":{"channel":""}}`:                 {"it is empty", "it is empty"},
		`{"event":{"channel":"C2"}}`:               {`"C2" is not among the chats that may be named on the channel team.`, "allow_to of the channel team does not have it"},
		`{"event":{"channel":" C1"}}`:              {`" C1" is not among`, "allow_to of the channel team"},
		`{"event":{"channel":"c1"}}`:               {`"c1" is not among`, "allow_to of the channel team"},
		`{"event":{"channel":"C1\n"}}`:             {`"C1\n" is none: a chat on this channel is`, "it is no chat of the channel team"},
		`{"event":{"channel":"D` + long + `"}}`:    {"is too long", "{event.channel} is too long"},
		`{"event":{"channel":"D","thread":[1,2]}}`: {"default ''} is an array", "is an array"},
	} {
		resp := s.Post("/api/hooks/chat", body)
		resp.WantError(t, 400, "The values of this request do not give a chat that the answer can go to: ", want[0])
		for _, secret := range []string{"on-call", "D*"} {
			if strings.Contains(resp.Body, secret) {
				t.Errorf("%s: the caller is told of %s: %s", body, secret, resp.Body)
			}
		}
		if listed := s.AdminRequest("GET", "/hooks/refused", "").Body; !strings.Contains(listed, want[1]) {
			t.Errorf("%s: the refusals are %s", body, listed)
		}
	}
	// All or none.
	before := len(s.Deliveries(""))
	s.Post("/api/hooks/many", `{"items":[{"to":"C1"},{"to":"C9"},{"to":"C1"}]}`).WantError(t, 400, `"C9" is not among`)
	if runs, _ := s.Listed("?hook=many"); len(runs) > 0 || len(s.Deliveries("")) != before {
		t.Errorf("there are the runs %v", runs)
	}
	s.Post("/api/hooks/many", `{"items":[{"to":"C1"},{"to":"Dx"}]}`)
	hookstest.Eventually(t, "both are delivered", func() bool {
		return slices.Equal(targetsOf(s, "?hook=many"), []string{"team:C1", "team:Dx"})
	})
	// A request to the agent names a chat literally.
	s.Post("/api/hooks/agent", delivered("{event.channel}")).WantError(t, 400, notAllowed)
}

var long = strings.Repeat("x", 600)

func targetsOf(s *hookstest.Server, query string) (targets []string) {
	ids, _ := s.Listed(query)
	for _, id := range ids {
		for _, d := range s.Run(id).Deliveries {
			if d.Status == "delivered" {
				targets = append(targets, d.Target)
			}
		}
	}
	slices.Sort(targets)
	return targets
}

func TestAChatWithPlaceholdersNeedsAllowTo(t *testing.T) {
	const needed = "has placeholders, so that requests choose the chat: allow_to of the channel team must then name the chats that are allowed"
	hook := "hook a {\n action agent\n deliver team \"{to}\"\n }\n"
	site := func(more string) string { return ":0 {\n hooks {\n runner echo\n" + more + "\n }\n}" }
	if err := validate(t, site(openTeam+hook)); err == nil || !strings.Contains(err.Error(), needed) {
		t.Errorf("got %v", err)
	}
	for _, allowed := range []string{limitedTeam, "channel team log {\n allow_to *\n}\n"} {
		if err := validate(t, site(allowed+hook)); err != nil {
			t.Errorf("got %v", err)
		}
	}
	for to, want := range map[string]string{
		"{env.CHAT}": "deliver has {env.CHAT}, which would be read from the body of a request: in a Caddyfile, write {$CHAT}",
		"{@run}":     "deliver must not have {@run}",
		"{ $.a[ }":   "deliver is refused: line 1, column 1",
	} {
		config := site(limitedTeam + strings.Replace(hook, "{to}", to, 1))
		if _, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", to, err)
		}
	}
	s := hookstest.StartSite(t, "hooks {\n runner echo\n"+openTeam+"}")
	s.AdminRequest("PUT", "/hooks/mappings/live", delivered("{to}")).WantAdminError(t, 400, needed)
	s.Reload("hooks {\n runner echo\n" + limitedTeam + "}")
	s.PutMapping("live", delivered("{to}"))
	if shown := s.AdminRequest("GET", "/hooks/mappings/live", ""); shown.Field(t, "to") != "{to}" {
		t.Errorf("got %s", shown.Body)
	}
}

// Chats may be taken from allow_to while answers are under way, also those of hooks of the Caddyfile.
func TestAChosenChatThatIsNoLongerAllowedGetsNothing(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("x"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, chosenTeam))
	chosen, _ := s.Post("/api/hooks/chat", `{"event":{"channel":"C1"}}`).Field(t, "runId").(string)
	fixed, _ := s.Post("/api/hooks/fixed", `{}`).Field(t, "runId").(string)
	wantDelivery(t, s, fixed, "delivered")
	id := wantDelivery(t, s, chosen, "delivered")
	s.Reload(hookstest.Hooks(rn, strings.Replace(chosenTeam, "C1", "C7", 1)))
	s.AdminRequest("POST", "/hooks/deliveries/"+id+"/retry?delivered=1", "")
	again, _ := s.AdminRequest("POST", "/hooks/runs/"+chosen+"/again", `{"deliver":true}`).Field(t, "runId").(string)
	wantDelivery(t, s, again, "dead")
	fixed, _ = s.Post("/api/hooks/fixed", `{}`).Field(t, "runId").(string)
	wantDelivery(t, s, fixed, "delivered")
}

func TestPreviewAndTestShowTheChatOfTheAnswer(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("x"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, chosenTeam))
	ask := func(payload string) hookstest.Response {
		t.Helper()
		caddyhooks.ForgetPreviews()
		return s.AdminRequest("POST", "/hooks/preview", `{"mapping":{"name":"new","action":"agent","deliver":true,"channel":"team","to":"{event.channel}"},
			"payload":`+quoted(payload)+`}`)
	}
	if shown := ask(`{"event":{"channel":"C1"}}`); shown.Field(t, "to") != "C1" || shown.Field(t, "channel") != "team" {
		t.Errorf("got %s", shown.Body)
	}
	for payload, want := range map[string]string{
		`{"event":{"channel":"C2"}}`: "to is refused with this payload: the chat for the answer is refused: allow_to of the channel team does not have it",
		`{}`:                         "{event.channel} is missing",
	} {
		if shown := ask(payload); !strings.Contains(shown.Body, want) || strings.Contains(shown.Body, `"to":"C`) {
			t.Errorf("got %s", shown.Body)
		}
	}
	tested := s.AdminRequest("POST", "/hooks/mappings/chat/test", `{"event":{"channel":"C1"}}`)
	if tested.Field(t, "to") != "C1" || tested.Field(t, "channel") != "team" {
		t.Errorf("got %s", tested.Body)
	}
	run, _ := tested.Field(t, "runId").(string)
	if sent := s.Ended(run).Deliveries; len(sent) > 0 {
		t.Errorf("a test sent %v", sent)
	}
	s.AdminRequest("POST", "/hooks/mappings/chat/test", `{"event":{"channel":"C2"}}`).WantAdminError(t, 400, `"C2" is not among`)
}

func quoted(text string) string {
	encoded, _ := json.Marshal(text)
	return string(encoded)
}

// postedTo is a fake of all services that records where messages go, as the service itself reads the request.
type postedTo struct {
	mu     sync.Mutex
	places map[string]int
}

func (p *postedTo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var message struct {
		Channel  string          `json:"channel"`
		ThreadTS string          `json:"thread_ts"`
		ChatID   json.RawMessage `json:"chat_id"`
		Topic    json.RawMessage `json:"message_thread_id"`
		To       string          `json:"to"`
	}
	_ = json.Unmarshal(body, &message)
	service, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	place := ""
	switch service {
	case "slack":
		place = message.Channel + " " + message.ThreadTS
	case "telegram":
		place = string(bytes.Trim(message.ChatID, `"`)) + " " + string(message.Topic)
	case "discord", "github":
		place = path.Clean(rest) // as a server may read it
	case "webhook":
		place = message.To
	}
	p.mu.Lock()
	p.places[service+" "+strings.TrimSpace(place)]++
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if service == "github" {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":1,"body":"x"}`)
		return
	}
	_, _ = io.WriteString(w, `{"ok":true,"id":"1","ts":"1.1","channel":"C","result":{"message_id":1}}`)
}

// Whoever writes an event tries to have the answer sent elsewhere.
func TestNoValueLeadsToAChatThatIsNotAllowed(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests, one after the other")
	}
	posted := &postedTo{places: make(map[string]int)}
	server := httptest.NewServer(posted)
	t.Cleanup(server.Close)
	t.Setenv("CHAT_TOKEN", "12345:token")
	services := map[string]struct{ config, to, a, b string }{
		"slack":    {"allow_to C0123456789", "{a}", "C0123456789", ""},
		"telegram": {"allow_to -1001234567890/42", "{a}/{b}", "-1001234567890", "42"},
		"discord":  {"allow_to 123456789012345678", "{a | default b}", "123456789012345678", ""},
		"webhook":  {"allow_to acme/widgets#1 acme/widgets#2", "{a}#{b}", "acme/widgets", "1"},
		"github":   {"allow_to acme/*", "{a}#{b}", "acme/widgets", "1"},
	}
	allowed := []string{"slack C0123456789", "telegram -1001234567890 42", "discord channels/123456789012345678/messages", "webhook acme/widgets#1",
		"webhook acme/widgets#2"}
	config := "queue_limit 20000\nworkers 8\n"
	for name, s := range services {
		where := "{env.CHAT_TOKEN} {\n url " + server.URL + "/" + name
		if name == "webhook" {
			where = server.URL + "/webhook {"
		}
		config += fmt.Sprintf("channel %s %[1]s %s\n %s\n}\nhook %[1]s {\n action agent\n template x\n deliver %[1]s \"%[4]s\"\n}\n", name, where,
			s.config, s.to)
	}
	s := hookstest.StartSite(t, "hooks {\n enabled\n token "+hookstest.Token+"\n runner echo\n"+config+"}")
	chance := rand.New(rand.NewPCG(29, 1))
	accepted, refused := 0, 0
	for i := range hostileValues {
		for name, service := range services {
			if i%len(services) != slices.Index([]string{"slack", "telegram", "discord", "webhook", "github"}, name) {
				continue
			}
			body := fmt.Sprintf(`{"a":%s,"b":%s}`, hostileValue(chance, service.a), hostileValue(chance, service.b))
			switch resp := s.Post("/api/hooks/"+name, body); resp.Status {
			case http.StatusAccepted:
				accepted++
			case http.StatusBadRequest:
				refused++
			default:
				t.Fatalf("%s: got %d %s", body, resp.Status, resp.Body)
			}
		}
	}
	if accepted < hostileValues/50 || refused < hostileValues/2 {
		t.Errorf("%d requests were accepted and %d refused", accepted, refused)
	}
	hookstest.Eventually(t, "all answers have gone out", func() bool {
		posted.mu.Lock()
		defer posted.mu.Unlock()
		sent := 0
		for _, count := range posted.places {
			sent += count
		}
		return sent >= accepted
	})
	for place, count := range posted.places {
		if !slices.Contains(allowed, place) && !commentInAcme.MatchString(place) {
			t.Errorf("%d answers went to %q", count, place)
		}
	}
	t.Logf("%d accepted, %d refused: %v", accepted, refused, posted.places)
}

const hostileValues = 10_000

var commentInAcme = regexp.MustCompile(`^github repos/acme/[\w.-]+/issues/\d+/comments$`)

// hostileValue is a value in JSON that is good, or nearly, or nothing like it.
func hostileValue(chance *rand.Rand, good string) string {
	tricks := []string{"/../", "..", "/", "#", "#1", "%2f", "%23", "%00", "\x00", "\n", "\r\n", " ", "\t", "\u202e", "\u200b", "\ufeff", "？", "＃", "１", "é", "*",
		"?", "&", ";", ",", "@", "\\", "'", "`", "$", "{a}", "{b}", "{{", "}", "<missing>", "null", "-", "+", "e5", ".0", "0x", "C0123456780", "C0000000000",
		"-1009999999999", "42", "43", "123456789012345679", "evil/widgets", "acme/widgets", "acme/widgets#2", "acme/secrets#1", "@everyone", "#general",
		"channel=C0000000000", "https://evil.example/", "/messages/1", "1700000000.000100", strings.Repeat("A", 700), strings.Repeat("/..", 100)}
	pick := func() string { return tricks[chance.IntN(len(tricks))] }
	at := chance.IntN(len(good) + 1)
	var text string
	switch chance.IntN(14) {
	case 0, 1, 2, 3:
		return quoted(good)
	case 4:
		text = good[:at] + pick() + good[at:]
	case 5:
		text = pick() + good
	case 6:
		text = good + pick()
	case 7:
		text = pick()
	case 8:
		text = pick() + pick() + pick()
	case 9:
		text = strings.ToLower(good) + pick()
	case 10:
		return []string{"null", "true", "0", "-1", "1e400", "42", "1", "42.0", "123456789012345678", "-1001234567890", `""`}[chance.IntN(11)]
	case 11:
		return `[` + quoted(good) + `]`
	case 12:
		return `{"a":` + quoted(good) + `,"toString":` + quoted(pick()) + `}`
	default:
		letters := []rune(good + "x")
		letters[chance.IntN(len(letters))] = rune(chance.IntN(0x3000))
		text = string(letters)
	}
	return quoted(text)
}

func TestCommandsShowTheChatOfTheAnswer(t *testing.T) {
	rn := hookstest.StartRunner(t, hookstest.ReplyText("x"))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, chosenTeam))
	good, other := writeInput(t, "good.json", `{"event":{"channel":"C1"}}`), writeInput(t, "other.json", `{"event":{"channel":"C2"}}`)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"render", "chat", "--payload", good}, 0, "The answer goes to team C1"},
		{[]string{"render", "chat", "--payload", other}, 0, "allow_to of the channel team does not have it"},
		{[]string{"try", "chat", "--payload", good}, 0, "The answer of such a request goes to team C1. This one is sent nowhere."},
		{[]string{"try", "chat", "--payload", other}, 1, `"C2" is not among the chats`},
		{[]string{"show", "chat"}, 0, "{event.channel}{event.thread | default event.none | default ''}"},
	} {
		caddyhooks.ForgetPreviews()
		out, errs, err := command(t, append(c.args, "--address", s.Admin)...)
		wantExit(t, c.code, out+errs, err, c.want)
	}
}
