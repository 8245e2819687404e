package engine

import "time"

// ChatSummary is a chat that somebody named, as the list of chats shows it.
type ChatSummary struct {
	ChatID string
	Runs   int     // how many it has that are kept
	Last   *Record // of its runs the one accepted last, as a list shows it
}

// ChatQuery selects chats, the one with the newest run first.
type ChatQuery struct {
	Text   string // that is part of the id of the chat, whatever its case; "" is all
	Since  time.Time
	Limit  int
	Cursor string
}
