package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

var chatChecks = []check{
	{"the chat with the newest run is first, whether it has ended or not", chatsInOrder},
	{"chats that nobody named are not listed until somebody does", unnamedChats},
	{"chats are selected by their id and by when their newest run was accepted", selectedChats},
	{"a chat has as many runs as are kept, and is forgotten with the last one", chatsAndPruning},
	{"a cursor of chats that is none is refused", badChatCursor},
}

// chats collects all pages of a query. Limit may be left out.
func (s *store) chats(query engine.ChatQuery) []*engine.ChatSummary {
	s.t.Helper()
	query.Limit = cmp.Or(query.Limit, 1000)
	return allPages(s.t, query.Limit, func(cursor string) ([]*engine.ChatSummary, string, error) {
		query.Cursor = cursor
		return s.Runs().Chats(s.t.Context(), query)
	})
}

// listsChats expects chats with their number of runs, such as "chat 2", the last active first.
func (s *store) listsChats(query engine.ChatQuery, want ...string) {
	s.t.Helper()
	limits := []int{1, 2, 3, 1000}
	if query.Limit != 0 {
		limits = []int{query.Limit}
	}
	for _, query.Limit = range limits {
		var got []string
		for _, chat := range s.chats(query) {
			got = append(got, fmt.Sprint(chat.ChatID, " ", chat.Runs))
			if chat.Last == nil || chat.Last.Run.ChatID != chat.ChatID {
				s.t.Errorf("the newest run of chat %s is %+v", chat.ChatID, chat.Last)
			}
		}
		if !slices.Equal(got, want) {
			s.t.Errorf("listing chats %+v: got %q, want %q", query, got, want)
		}
	}
}

func chatsInOrder(_ *testing.T, s *store) {
	runs := s.addTo("a", "b", "a", "c")
	s.listsChats(engine.ChatQuery{}, "c 1", "a 2", "b 1")
	claims := s.claimAll(runs[0], runs[1], runs[3])
	s.listsChats(engine.ChatQuery{}, "c 1", "a 2", "b 1")
	for _, claim := range claims {
		s.end(claim, ended())
		s.listsChats(engine.ChatQuery{}, "c 1", "a 2", "b 1")
	}
	s.add(newRun("b"))
	s.listsChats(engine.ChatQuery{}, "b 2", "c 1", "a 2")
	// A newer run that ends before an older one is still the newest.
	late := s.addTo("c", "c")
	s.endQueued(late[1], endedAs(engine.Cancelled, ""))
	s.listsChats(engine.ChatQuery{}, "c 3", "b 2", "a 2")
	s.endQueued(late[0], ended())
	s.listsChats(engine.ChatQuery{}, "c 3", "b 2", "a 2")
	if last := s.chats(engine.ChatQuery{})[0].Last; last.Run.ID != late[1].ID || last.Status != engine.Cancelled {
		s.t.Errorf("the newest run of the chat is %+v", last)
	}
	// The store knows at once that there are no more.
	if page, next, err := s.Runs().Chats(s.t.Context(), engine.ChatQuery{Limit: 100}); len(page) != 3 || next != "" || err != nil {
		s.t.Errorf("got %d chats, %q and %v", len(page), next, err)
	}
}

// newChat is a run whose chat was made for it.
func newChat() *engine.Run {
	run := newRun("hook:" + uuid.Must(uuid.NewV7()).String())
	run.NewChat = true
	return run
}

func unnamedChats(_ *testing.T, s *store) {
	first, second, odd := newChat(), newChat(), newRun("not a fresh id")
	odd.NewChat = true
	s.add(first, second, odd)
	s.listsChats(engine.ChatQuery{})
	s.lists(engine.Query{ChatID: first.ChatID}, first)
	s.end(s.claimFirst(first), ended())
	s.lists(engine.Query{ChatID: first.ChatID}, first)
	s.listsChats(engine.ChatQuery{})
	s.end(s.claimFirst(second), ended())
	s.end(s.claimFirst(odd), ended())
	for _, run := range []*engine.Run{first, second, odd} {
		s.lists(engine.Query{ChatID: run.ChatID}, run)
		s.lists(engine.Query{ChatID: run.ChatID, Statuses: []engine.Status{engine.Completed}, Hooks: []string{run.Hook}}, run)
		s.lists(engine.Query{ChatID: run.ChatID, Statuses: []engine.Status{engine.Failed}})
	}
	s.lists(engine.Query{ChatID: "hook:" + uuid.Must(uuid.NewV7()).String()})
	s.listsChats(engine.ChatQuery{})
	// Nor does one that is run again.
	again := *second
	again.ID, again.AgainOf = "", second.ID
	s.add(&again)
	s.listsChats(engine.ChatQuery{})
	s.lists(engine.Query{ChatID: second.ChatID}, second, &again)
	s.end(s.claimFirst(&again), ended())
	s.listsChats(engine.ChatQuery{})
	s.lists(engine.Query{ChatID: second.ChatID}, second, &again)
	// Somebody goes on with one.
	more := newRun(first.ChatID)
	s.add(more)
	s.listsChats(engine.ChatQuery{}, first.ChatID+" 2")
	s.lists(engine.Query{ChatID: first.ChatID}, first, more)
	s.end(s.claimFirst(more), ended())
	s.listsChats(engine.ChatQuery{}, first.ChatID+" 2")
	for _, limit := range []int{1, 10} {
		s.lists(engine.Query{ChatID: first.ChatID, Limit: limit}, first, more)
	}
	// Also with one whose run has not ended, nor does it matter how old it is.
	third := newChat()
	s.add(third)
	s.advance(time.Hour)
	more = newRun(third.ChatID)
	s.add(more)
	s.listsChats(engine.ChatQuery{}, third.ChatID+" 2", first.ChatID+" 2")
	s.end(s.claimFirst(third), ended())
	s.listsChats(engine.ChatQuery{}, third.ChatID+" 2", first.ChatID+" 2")
	s.end(s.claimFirst(more), ended())
	s.listsChats(engine.ChatQuery{}, third.ChatID+" 2", first.ChatID+" 2")
	s.lists(engine.Query{ChatID: third.ChatID}, third, more)
}

func selectedChats(_ *testing.T, s *store) {
	runs := s.addTo("Repo:acme/api", "repo:acme/web")
	s.endQueued(runs[0], ended())
	s.advance(time.Hour)
	later := s.addTo("ticket 7", "ticket 8")
	s.endQueued(later[0], ended())
	s.listsChats(engine.ChatQuery{}, "ticket 8 1", "ticket 7 1", "repo:acme/web 1", "Repo:acme/api 1")
	s.listsChats(engine.ChatQuery{Text: "REPO:"}, "repo:acme/web 1", "Repo:acme/api 1")
	s.listsChats(engine.ChatQuery{Text: "acme/api"}, "Repo:acme/api 1")
	s.listsChats(engine.ChatQuery{Text: "acme api"})
	s.listsChats(engine.ChatQuery{Since: later[0].AcceptedAt}, "ticket 8 1", "ticket 7 1")
	s.listsChats(engine.ChatQuery{Since: runs[0].AcceptedAt.Add(time.Minute), Text: "7"}, "ticket 7 1")
	s.listsChats(engine.ChatQuery{Since: later[1].AcceptedAt.Add(time.Minute)})
}

func chatsAndPruning(_ *testing.T, s *store) {
	retention := engine.Limits{Retention: time.Hour}
	pending := newRun("a")
	s.add(pending)
	s.end(s.claimFirst(pending), endedWith(newDelivery(pending, 0)))
	for range 3 {
		s.carryOut(newRun("a"), ended())
	}
	s.carryOut(newRun("b"), ended())
	fresh := newChat()
	s.carryOut(fresh, ended())
	s.carryOut(newRun(fresh.ChatID), ended())
	s.listsChats(engine.ChatQuery{}, fresh.ChatID+" 2", "b 1", "a 4")
	s.advance(2 * time.Hour)
	s.carryOut(newRun("b"), ended())
	waiting := s.addTo("c")[0]
	s.prune(retention)
	// The newest runs of a are gone, and an older one is still there.
	s.listsChats(engine.ChatQuery{}, "c 1", "b 1", "a 1")
	if last := s.chats(engine.ChatQuery{Text: "a"})[0].Last; last.Run.ID != pending.ID {
		s.t.Errorf("the newest run of the chat is %+v, want %s", last.Run, pending.ID)
	}
	s.lists(engine.Query{ChatID: "a"}, pending)
	s.lists(engine.Query{ChatID: fresh.ChatID})
	got, _ := s.due(10)
	if len(got) != 1 {
		s.t.Fatalf("%d deliveries are due", len(got))
	}
	s.settle(got[0], engine.Delivered, 0, "")
	s.prune(retention)
	s.listsChats(engine.ChatQuery{}, "c 1", "b 1")
	s.endQueued(waiting, ended())
	s.advance(2 * time.Hour)
	s.prune(retention)
	s.listsChats(engine.ChatQuery{})
	s.carryOut(newRun("a"), ended())
	s.listsChats(engine.ChatQuery{}, "a 1")
}

func badChatCursor(t *testing.T, s *store) {
	for range 2 {
		for _, cursor := range []string{"x", "\x00", "01234567-89ab", " ", "a"} {
			page, next, err := s.Runs().Chats(t.Context(), engine.ChatQuery{Limit: 10, Cursor: cursor})
			if !errors.Is(err, engine.ErrCursor) {
				t.Errorf("%q: got %d chats, %q and %v, want ErrCursor", cursor, len(page), next, err)
			}
		}
		s.addTo("a", "b")
	}
}
