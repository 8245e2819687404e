package cli

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func sessionVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session [CHAT] [--limit N]",
		Short: "Shows a chat as a conversation, or lists chats",
		Long: `
Shows the last runs of a chat as a conversation, the newest at the end: what came in after >, what the agent said after <, why a run failed
after !, and where an answer was sent after ->. Without a chat it lists the chats that somebody named, the last active one first.

Long texts are cut; caddy hooks show RUN-ID has them whole.`,
		Example: `  caddy hooks session
  caddy hooks session repo:acme/api --limit 5`,
		Args:              takesOneAtMost,
		RunE:              withSession(runSession),
		ValidArgsFunction: completeOne(chats.complete()),
	}
	limitFlag(cmd, "runs or chats")
	return cmd
}

func runSession(s *session, cmd *cobra.Command, args []string) error {
	limit, err := limitOf(cmd)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return chats.list(s, cmd)
	}
	if args[0] == "" {
		return &usageError{"the id of the chat is empty"}
	}
	chat := listing{path: "session", member: "runs", query: url.Values{"chatId": args[:1]}, limit: limit}
	if s.json {
		return s.printList(chat)
	}
	var turns []api.ChatTurn
	_, more, err := s.walk(chat, func(page listPage) error {
		rows, err := rowsOf[api.ChatTurn](s, page)
		turns = append(turns, rows...)
		return err
	})
	if err != nil {
		return err
	}
	if len(turns) == 0 {
		s.screen.Note("There are no runs of the chat %s. caddy hooks session lists chats.", args[0])
	}
	if more {
		s.screen.Note("There is more before this: use --limit %d, or --limit 0 for all.", limit*moreRows)
	}
	slices.Reverse(turns)
	clock := newClock()
	for i := range turns {
		if i > 0 {
			s.screen.Line()
		}
		s.showTurn(&turns[i], clock)
	}
	return nil
}

// showTurn shows a run in the course of its chat.
func (s *session) showTurn(t *api.ChatTurn, clock clock) {
	plain := terminal.Plain
	head := []terminal.Text{terminal.Bold(clock.when(t.AcceptedAt)), plain("  " + t.Hook + "  "), statusCell(t.Status)}
	if took := clock.took(&t.Run); took != "" {
		head = append(head, plain("  "+took))
	}
	s.screen.Line(append(head, terminal.Faint("  "+t.RunID))...)
	s.showPart(terminal.Faint("> "), t.Message, t.MessageBytes, t.MessageCut)
	s.showPart(terminal.Good("< "), t.Reply, t.ReplyBytes, false)
	if why := runReason(&t.RunSummary); why != "" {
		s.screen.Line(terminal.Bad("! "), plain(why))
	}
	for i := range t.Deliveries {
		d := &t.Deliveries[i]
		s.screen.Line(plain("-> "), deliveryStatusCell(d.Status), plain("  "+attempt(d)))
	}
}

// showPart shows a text of which the API may have given the beginning only.
func (s *session) showPart(mark terminal.Text, text *string, whole int, cut bool) {
	if text == nil {
		return
	}
	s.printLines(mark, *text)
	switch {
	case len(*text) < whole:
		s.screen.Line(mark, terminal.Faint(fmt.Sprintf("… %s more", byteSize(int64(whole-len(*text))))))
	case cut:
		s.screen.Line(mark, terminal.Faint("… and more, which was not kept"))
	}
}

// printLines prints a text of several lines, each after a mark.
func (s *session) printLines(mark terminal.Text, text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		line = strings.TrimRight(line, "\r\n")
		s.screen.Line(mark, terminal.Plain(strings.ReplaceAll(line, "\t", "    ")))
	}
}
