package acp_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Somebody in a chat decides, while the only worker of a real Caddy carries out other runs.
func TestSomebodyInAChatDecidesWhatAnAgentMayDo(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	chats := hookstest.StartButtonChats(t)
	place := hookstest.ButtonPlaces[1]
	s := hookstest.StartSite(t, fmt.Sprintf(`hooks {
	enabled
	workers 1
	token %s
	runner acp %s {
		env ACP_TEST_AGENT agent
		env ACP_TEST_CAN "resume close"
		permit read
		ask execute in %s %s 1h by 4711 else reject
	}
	%s
}`, hookstest.Token, program, place.Channel, place.To, chats.Lines()))
	ask := func() string {
		return s.Accept(`{"message":"ask read execute","chatId":"a","memoryPreset":"general_chat"}`)
	}
	permissions := func(id string) string {
		_, list, _ := strings.Cut(s.AdminRequest("GET", "/hooks/runs/"+id, "").Body, `"permissions":`)
		return list
	}

	id := ask()
	question := chats.Asked(place.Chat, 1)
	if !strings.Contains(question.Text, "execute: use execute") || !strings.Contains(question.Text, `make\nrm -r /`) {
		t.Errorf("the question is %q", question.Text)
	}
	if other := s.Ended(s.Accept(`{"message":"hello","chatId":"b","memoryPreset":"general_chat"}`)); other.Status != "completed" {
		t.Errorf("the worker was not free: %s", other.Body)
	}
	chats.Press(s, question, "allow", "4712", "Ben")
	chats.Press(s, question, "allow", "4711", "Ann")
	if run := s.Ended(id); run.Status != "completed" || run.Reply != "read=a execute=a " {
		t.Errorf("got %s, because %s", run.Body, s.ReasonOf(id))
	}
	if list := permissions(id); !strings.Contains(list, `"answer":"allowed by Ann`) || strings.Contains(list, "Ben") {
		t.Errorf("the permissions are %s", list)
	}
	chats.Closed(question)

	id = ask()
	chats.Press(s, chats.Asked(place.Chat, 2), "reject", "4711", "Ann")
	if run := s.Ended(id); run.Reply != "read=a execute=r " || !strings.Contains(permissions(id), `"answer":"rejected by Ann`) {
		t.Errorf("got %s, %s", run.Body, permissions(id))
	}

	id = ask()
	question = chats.Asked(place.Chat, 3)
	s.CancelRun(id)
	if run := s.Ended(id); run.Status != "cancelled" || !strings.Contains(permissions(id), `"answer":"rejected: broken off before an answer"`) {
		t.Errorf("got %s, %s", run.Body, permissions(id))
	}
	chats.Closed(question)
}

func TestARunnerAsksOnlyWhereThereIsAChannel(t *testing.T) {
	s := hookstest.NewServer(t)
	err := s.TryLoad("hooks {\nenabled\ntoken " + hookstest.Token + "\nrunner acp claude {\nask edit in ops 1\n}\n}")
	if err == nil || !strings.Contains(err.Error(), "ask of runner default names no channel that is configured here: ops") {
		t.Errorf("got %v", err)
	}
}
