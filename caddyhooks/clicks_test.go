package caddyhooks_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// oldQuestion is a message in a chat whose question nobody knows any more.
func oldQuestion(place hookstest.ButtonPlace, data string) hookstest.ButtonMessage {
	id := map[string]string{"slack": "1700000001.000001", "telegram": "1", "discord": "1300000000000000001"}[place.Service]
	return hookstest.ButtonMessage{Service: place.Service, Chat: place.Chat, ID: id, Text: "May it?", Buttons: []hookstest.ChatButton{{Label: "yes", Data: data}}}
}

// A click on one of our buttons is no event: no condition counts, and no run comes of it. Others are events as before.
func TestClicksAreNoEvents(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	chats := hookstest.StartButtonChats(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, strings.NewReplacer("skip header X-Slack-Signature", "body form", "only $.message", "", `only "$.type == 2"`, "").Replace(chats.Lines())))
	for _, place := range hookstest.ButtonPlaces {
		post := func(body string, headers []string) hookstest.Response {
			return s.Request("POST", "/api/hooks/"+place.Service, body, headers...)
		}
		data := engine.QuestionID("0197f5a0-1111-7222-8333-444455556666", 0) + ":0"
		for range 2 {
			resp := post(chats.Click(oldQuestion(place, data), "yes", "1", "Ana"))
			if resp.Status != 200 || place.Service != "slack" && !strings.Contains(resp.Body, "This question is closed.") || place.Service == "slack" && resp.Body != "" {
				t.Errorf("%s: a click is answered %d %s", place.Service, resp.Status, resp.Body)
			}
		}
		// Somebody else's button.
		resp := post(chats.Click(oldQuestion(place, "approve"), "yes", "1", "Ana"))
		if resp.Status/100 != 2 || place.Service != "discord" && !strings.Contains(resp.Body, "accepted") {
			t.Errorf("%s: another button is answered %d %s", place.Service, resp.Status, resp.Body)
		}
		if turn := rn.Next(); turn.Text("hook") != place.Service {
			t.Errorf("the turn is one of %s", turn.Text("hook"))
		}
		// Forged ones.
		body, headers := chats.Click(oldQuestion(place, data), "yes", "1", "Ana")
		last := &headers[len(headers)-1]
		*last = (*last)[:len(*last)-1] + map[bool]string{true: "1", false: "0"}[strings.HasSuffix(*last, "0")]
		if resp := post(body, headers); resp.Status != 401 {
			t.Errorf("%s: a forged click is answered %d %s", place.Service, resp.Status, resp.Body)
		}
		if resp := post(body, nil); resp.Status != 401 {
			t.Errorf("%s: a click without a signature is answered %d %s", place.Service, resp.Status, resp.Body)
		}
		if place.Service != "telegram" {
			if resp := post(strings.Replace(body, "Ana", "Eve", 1), headers); resp.Status != 401 {
				t.Errorf("%s: an altered click is answered %d %s", place.Service, resp.Status, resp.Body)
			}
		}
	}
	if runs, _ := s.Listed(""); len(runs) != len(hookstest.ButtonPlaces) {
		t.Errorf("there are %d runs", len(runs))
	}
}

// buttonSite has a hook for each chat whose runs need a yes there. more is what follows in the line.
func buttonSite(chats *hookstest.ButtonChats, more func(place hookstest.ButtonPlace) string) string {
	site := chats.Lines()
	for _, place := range hookstest.ButtonPlaces {
		site += fmt.Sprintf("hook deploy-%s {\n action agent\n template \"deploy {what}\"\n ask %s %s before run %s\n}\n", place.Service, place.Channel, place.To, more(place))
	}
	return site
}

func byAnybody(hookstest.ButtonPlace) string { return "" }

// startDeploy starts a run that has to be approved.
func startDeploy(t *testing.T, s *hookstest.Server, place hookstest.ButtonPlace, what string) (runID string) {
	t.Helper()
	resp := s.Post("/api/hooks/deploy-"+place.Service, `{"what":`+quoted(what)+`}`)
	_, rest, ok := strings.Cut(resp.Body, `"runId":"`)
	if resp.Status != 202 || !ok {
		t.Fatalf("answered %d %s", resp.Status, resp.Body)
	}
	return rest[:36]
}

func TestQuestionsAreAnsweredByButtons(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	chats := hookstest.StartButtonChats(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, buttonSite(chats, func(place hookstest.ButtonPlace) string {
		return "by " + place.Person(1) + " " + place.Person(2)
	})))
	for _, place := range hookstest.ButtonPlaces {
		t.Run(place.Service, func(t *testing.T) {
			const hostile = "<!channel> @everyone *now* [yes](https://evil.example)"
			id := startDeploy(t, s, place, hostile)
			m := chats.Asked(place.Chat, 1)
			if thread := strings.TrimPrefix(strings.TrimPrefix(place.To, place.Chat), "/"); m.Thread != thread || len(m.Buttons) != 2 || !strings.Contains(m.Text, "evil.example") {
				t.Errorf("asked is %+v", m)
			}
			if place.Service != "telegram" && strings.Contains(m.Text, "<!channel>") {
				t.Errorf("the text is %q", m.Text)
			}
			told := func(m hookstest.ButtonMessage, label string, person int, name, want string) {
				t.Helper()
				if got := chats.Press(s, m, label, place.Person(person), name); got != want {
					t.Errorf("%s is told %q, want %q", name, got, want)
				}
			}
			elsewhere := m
			elsewhere.Chat = map[string]string{"slack": "C0999999999", "telegram": "-1009", "discord": "999999999999999999"}[place.Service]
			told(m, "yes", 3, "Eve", "You may not answer this question.")
			told(elsewhere, "yes", 1, "Ana", "You may not answer this question.")
			if run := s.Run(id); run.Status != "waiting" {
				t.Errorf("the run is %s", run.Status)
			}
			told(m, "yes", 1, "Ana", "You answered yes.")
			if turn := rn.Next(); !strings.Contains(turn.Text("message"), "deploy") {
				t.Errorf("the turn is %v", turn)
			}
			told(m, "yes", 1, "Ana", "You answered yes.")
			told(m, "no", 2, "Bob", "Ana answered first: yes.")
			if run := s.Ended(id); run.Status != "completed" {
				t.Errorf("the run is %s", run.Status)
			}
			if text := chats.Closed(m); !strings.Contains(strings.ReplaceAll(text, `\`, ""), "Answered by Ana ("+place.Person(1)+"): yes") {
				t.Errorf("the question is closed with %q", text)
			}
			// Somebody says no.
			id = startDeploy(t, s, place, "more")
			m = chats.Asked(place.Chat, 2)
			told(m, "no", 2, "Bob", "You answered no.")
			if run := s.Ended(id); run.Status != "cancelled" {
				t.Errorf("the run is %s", run.Status)
			}
			chats.Closed(m)
		})
	}
	if len(rn.Turns) != 0 {
		t.Error("the agent was asked once more")
	}
}

// Two people press at once: one wins, the other is told.
func TestTwoPeoplePressAtOnce(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	chats := hookstest.StartButtonChats(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, buttonSite(chats, byAnybody)))
	for _, place := range hookstest.ButtonPlaces {
		for n := 1; n <= 5; n++ {
			id := startDeploy(t, s, place, "it")
			m := chats.Asked(place.Chat, n)
			var both sync.WaitGroup
			names, labels, replies := []string{"Ana", "Bob"}, []string{"yes", "no"}, make([]string, 2)
			for i := range names {
				both.Go(func() { replies[i] = chats.Press(s, m, labels[i], place.Person(i+1), names[i]) })
			}
			both.Wait()
			first := slices.IndexFunc(replies, func(reply string) bool { return strings.HasPrefix(reply, "You answered ") })
			if first < 0 || replies[first] != "You answered "+labels[first]+"." || replies[1-first] != names[first]+" answered first: "+labels[first]+"." {
				t.Fatalf("%s: told are %q", place.Service, replies)
			}
			if run := s.Ended(id); run.Status != map[string]string{"yes": "completed", "no": "cancelled"}[labels[first]] {
				t.Errorf("%s answered, and the run is %s", labels[first], run.Status)
			}
			chats.Closed(m)
		}
	}
}

// A question of a run that is cancelled needs no answer: its message says so, and clicks come too late.
func TestCancelledRunClosesItsQuestion(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	chats := hookstest.StartButtonChats(t)
	s := hookstest.StartSite(t, hookstest.Hooks(rn, buttonSite(chats, byAnybody)))
	for _, place := range hookstest.ButtonPlaces {
		id := startDeploy(t, s, place, "it")
		m := chats.Asked(place.Chat, 1)
		if resp := s.CancelRun(id); resp.Status/100 != 2 {
			t.Fatalf("answered %d %s", resp.Status, resp.Body)
		}
		if text := chats.Closed(m); !strings.Contains(text, "no answer is needed any more") {
			t.Errorf("closed with %q", text)
		}
		if got := chats.Press(s, m, "yes", place.Person(1), "Ana"); got != "This question is closed." {
			t.Errorf("is told %q", got)
		}
	}
	if len(rn.Turns) != 0 {
		t.Error("the agent was asked")
	}
}

// Buttons that nobody hears of are warned about, until there is a hook that does.
func TestButtonsThatNobodyHearsOf(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	chats := hookstest.StartButtonChats(t)
	site := buttonSite(chats, byAnybody)
	deaf := strings.NewReplacer("auth slack ", "auth github ", "auth telegram ", "auth github ").Replace(site)
	const warning = "nobody hears of clicks on the buttons of ask before run: add a hook with auth "
	s := hookstest.StartSite(t, hookstest.Hooks(rn, deaf))
	shown := s.AdminRequest("GET", "/hooks/settings", "").Body
	for _, service := range []string{"slack", "telegram", "discord"} {
		if strings.Contains(shown, "hook deploy-"+service+": "+warning+service) != (service != "discord") {
			t.Errorf("%s: the settings are %s", service, shown)
		}
	}
	s.Reload(hookstest.Hooks(rn, site))
	if shown := s.AdminRequest("GET", "/hooks/settings", "").Body; strings.Contains(shown, warning) {
		t.Errorf("the settings are %s", shown)
	}
}
