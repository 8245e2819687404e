package engine

import (
	"strings"
	"time"
)

// ChatSummary is a chat that somebody named, as the list of chats shows it.
type ChatSummary struct {
	ChatID string
	Runs   int     // how many it has that are kept, whether they have ended or not
	Last   *Record // of its runs the one accepted last, as a list shows it
}

// ChatQuery selects chats, the one with the newest run first.
type ChatQuery struct {
	Text   string    // that is part of the id of the chat, whatever its case; "" is all
	Since  time.Time // its newest run was accepted then or later
	Limit  int
	Cursor string

	Told bool // the newest run has what it was told, as far as that is kept
}

// Selects reports whether the query is about a chat, by its newest run.
func (q *ChatQuery) Selects(last *Record) bool {
	return q.SelectsID(last.Run.ChatID) && !last.Run.AcceptedAt.Before(q.Since)
}

// SelectsID reports whether the query is about a chat, as far as its id tells.
func (q *ChatQuery) SelectsID(chat string) bool {
	return q.Text == "" || strings.Contains(strings.ToLower(chat), strings.ToLower(q.Text))
}

// Listed is the newest run of a chat as a list shows it that this query asks for.
func (q *ChatQuery) Listed(last *Record) *Record { return (&Query{Told: q.Told}).Listed(last) }
