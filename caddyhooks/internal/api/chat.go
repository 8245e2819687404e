package api

import (
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// Chat is a chat that somebody named, with its newest run.
type Chat struct {
	ChatID    string        `json:"chatId"`
	Runs      int           `json:"runs"`
	LastRunID string        `json:"lastRunId"`
	LastAt    *time.Time    `json:"lastAt"`
	Status    engine.Status `json:"status"`
	Hook      string        `json:"hook"`
	Preview   string        `json:"preview,omitempty"`
}

// ChatsPage is a page of the list of chats.
type ChatsPage struct {
	Chats  []Chat `json:"chats"`
	Cursor string `json:"cursor,omitempty"` // of the next page
}

// ChatPage is a page of the runs of a chat.
type ChatPage struct {
	Runs   []ChatTurn `json:"runs"`
	Cursor string     `json:"cursor,omitempty"` // of the next page
}

// ChatTurn is a run in the course of its chat.
type ChatTurn struct {
	RunSummary
	Message      *string           `json:"message,omitempty"`
	MessageCut   bool              `json:"messageCut,omitempty"`   // not all of it was kept
	MessageBytes int               `json:"messageBytes,omitempty"` // that are kept
	Reply        *string           `json:"reply,omitempty"`
	ReplyBytes   int               `json:"replyBytes,omitempty"`
	Deliveries   []DeliveryDetails `json:"deliveries,omitempty"`
}
