package caddyhooks_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

type chatPage struct {
	Chats []struct {
		ChatID    string    `json:"chatId"`
		Runs      int       `json:"runs"`
		LastRunID string    `json:"lastRunId"`
		LastAt    time.Time `json:"lastAt"`
		Status    string    `json:"status"`
		Hook      string    `json:"hook"`
		Preview   string    `json:"preview"`
	} `json:"chats"`
	Cursor string `json:"cursor"`
}

type turnPage struct {
	Runs []struct {
		runRow
		Message      *string                  `json:"message"`
		MessageCut   bool                     `json:"messageCut"`
		MessageBytes int                      `json:"messageBytes"`
		Reply        *string                  `json:"reply"`
		ReplyBytes   int                      `json:"replyBytes"`
		Deliveries   []hookstest.DeliveryView `json:"deliveries"`
	} `json:"runs"`
	Cursor string `json:"cursor"`
}

func TestListedChatsAreThoseThatSomebodyNamed(t *testing.T) {
	for _, store := range []string{"bolt", "memory"} {
		t.Run(store, func(t *testing.T) {
			rn, _, _ := hookstest.HeldRunner(t)
			s := hookstest.StartSite(t, hookstest.Hooks(rn, "store "+store))
			if page := s.AdminRequest("GET", "/hooks/chats", ""); strings.TrimSpace(page.Body) != `{"chats":[]}` {
				t.Errorf("before all: %s", page.Body)
			}
			s.Ended(s.Accept(`{"message":"one","chatId":"Team/A b&c"}`))
			s.Ended(s.Accept(`{"message":"nobody named its chat"}`))
			s.Ended(s.Accept(`{"message":"two","chatId":"other"}`))
			last := s.Accept(`{"message":"fail","chatId":"Team/A b&c"}`)
			s.Ended(last)
			page := adminPage[chatPage](s, "/hooks/chats?limit=1")
			if len(page.Chats) != 1 || page.Cursor == "" {
				t.Fatalf("got %+v", page)
			}
			got := page.Chats[0]
			if got.ChatID != "Team/A b&c" || got.Runs != 2 || got.LastRunID != last || got.Status != "failed" || got.Hook != "agent" || got.Preview != "fail" || got.LastAt.IsZero() {
				t.Errorf("got %+v", got)
			}
			page = adminPage[chatPage](s, "/hooks/chats?limit=1&cursor="+page.Cursor)
			if len(page.Chats) != 1 || page.Chats[0].ChatID != "other" || page.Cursor != "" {
				t.Errorf("got %+v", page)
			}
			if page := adminPage[chatPage](s, "/hooks/chats?q=team/a"); len(page.Chats) != 1 || page.Chats[0].ChatID != "Team/A b&c" {
				t.Errorf("got %+v", page)
			}
			for query, word := range map[string]string{"?limit=0": "limit", "?cursor=x": "cursor", "?q=" + strings.Repeat("x", 300): "q must", "?chatId=x": "chatId"} {
				s.AdminRequest("GET", "/hooks/chats"+query, "").WantAdminError(t, 400, word)
			}
		})
	}
}

func TestASessionIsAConversation(t *testing.T) {
	rc := startMoodyReceiver(t, "")
	rc.status.Store(http.StatusOK)
	long := strings.Repeat("ü", 20<<10)
	rn := hookstest.StartRunner(t, hookstest.ReplyText(long))
	s := hookstest.StartSite(t, hookstest.Hooks(rn, hookstest.WithCallbacks))
	s.Ended(s.Accept(`{"message":"other","chatId":"c2"}`))
	s.Ended(s.Accept(`{"message":"with\nlines","chatId":"c/1","callbackUrl":"` + rc.URL + `/path?query"}`))
	hookstest.Eventually(t, "it arrives", func() bool { return len(s.Deliveries("status=delivered")) == 1 })
	s.Ended(s.Accept(`{"message":"x` + long + `","chatId":"c/1"}`))
	page := adminPage[turnPage](s, "/hooks/chat?chatId=c/1")
	if len(page.Runs) != 2 || page.Cursor != "" {
		t.Fatalf("got %d runs, %q", len(page.Runs), page.Cursor)
	}
	first, second := page.Runs[1], page.Runs[0]
	if *first.Message != "with\nlines" || first.MessageBytes != 10 || first.MessageCut || first.Preview != "with" || len(first.Deliveries) != 1 ||
		first.Deliveries[0].Status != "delivered" || first.Deliveries[0].Target != rc.URL+"/…" || first.SentOut["delivered"] != 1 {
		t.Errorf("the first is %+v", first)
	}
	if *first.Reply != long[:16<<10] || first.ReplyBytes != len(long) {
		t.Errorf("its reply has %d bytes of %d", len(*first.Reply), first.ReplyBytes)
	}
	if *second.Message != ("x" + long)[:16<<10-1] || second.MessageBytes != len(long)+1 || second.MessageCut || second.Deliveries != nil {
		t.Errorf("the message of the second has %d bytes of %d", len(*second.Message), second.MessageBytes)
	}
	page = adminPage[turnPage](s, "/hooks/chat?chatId=c/1&limit=1")
	if len(page.Runs) != 1 || page.Cursor == "" {
		t.Errorf("got %+v", page)
	}
	page = adminPage[turnPage](s, "/hooks/chat?chatId=c/1&limit=1&cursor="+page.Cursor)
	if len(page.Runs) != 1 || *page.Runs[0].Message != "with\nlines" {
		t.Errorf("got %+v", page)
	}
	s.AdminRequest("GET", "/hooks/chat", "").WantAdminError(t, 400, "say which: chatId")
	s.AdminRequest("GET", "/hooks/chat?chatId=none", "").WantJSON(t, `{"runs":[]}`)
}
