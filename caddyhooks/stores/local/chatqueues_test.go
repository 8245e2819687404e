package local

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// chatsInOrder is what Lanes promises, written as plainly as can be.
type chatsInOrder struct {
	chats map[string][]uuid.UUID
	held  map[string]uuid.UUID
	ready []string // chats whose first run may start, longest-ready first
}

func (m *chatsInOrder) offer(chat string) {
	if _, held := m.held[chat]; !held && len(m.chats[chat]) > 0 && !slices.Contains(m.ready, chat) {
		m.ready = append(m.ready, chat)
	}
}

func (m *chatsInOrder) unready(chat string) {
	m.ready = slices.DeleteFunc(m.ready, func(c string) bool { return c == chat })
}

func (m *chatsInOrder) queued() (n int) {
	for _, runs := range m.chats {
		n += len(runs)
	}
	return n
}

// hookOf is the hook of all runs of a chat.
func (m *chatsInOrder) hookOf(chat string) string { return "hook of " + chat[len(chat)-1:] }

// ofHook are the runs of a hook, queued or held.
func (m *chatsInOrder) ofHook(hook string) (ids []uuid.UUID) {
	for chat, runs := range m.chats {
		if m.hookOf(chat) == hook {
			ids = append(ids, runs...)
		}
	}
	for chat, id := range m.held {
		if m.hookOf(chat) == hook {
			ids = append(ids, id)
		}
	}
	SortIDs(ids)
	return ids
}

// TestChatQueuesDoWhatAPlainModelDoes drives both with the same random operations.
func TestChatQueuesDoWhatAPlainModelDoes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	random := rand.New(rand.NewPCG(1, 2))
	var chatQueues ChatQueues
	var ids IDs
	model := &chatsInOrder{chats: map[string][]uuid.UUID{}, held: map[string]uuid.UUID{}}
	now := time.Now()
	accepted := map[uuid.UUID]int64{}
	someHeld := func() (string, uuid.UUID, bool) {
		chats := make([]string, 0, len(model.held))
		for chat := range model.held {
			chats = append(chats, chat)
		}
		if len(chats) == 0 {
			return "", uuid.UUID{}, false
		}
		slices.Sort(chats)
		chat := chats[random.IntN(len(chats))]
		return chat, model.held[chat], true
	}
	for step := range 60_000 {
		chat := fmt.Sprint("chat ", random.IntN(20))
		if step%997 == 0 {
			chatQueues.compact()
		}
		pushes := 3
		if step/10_000%2 == 1 {
			pushes = 1 // let it run empty from time to time
		}
		switch op := random.IntN(pushes + 5); {
		case op < pushes:
			id, err := ids.Next(now)
			if err != nil {
				t.Fatal(err)
			}
			accepted[id] = int64(step)
			chatQueues.Push(Entry{ID: id, Chat: chat, Hook: model.hookOf(chat), Accepted: accepted[id]})
			model.chats[chat] = append(model.chats[chat], id)
			model.offer(chat)
		case op == pushes && random.IntN(3) == 0: // the first of a chat is taken, or another one, which cannot be
			runs := model.chats[chat]
			if len(runs) == 0 {
				break
			}
			i := random.IntN(min(2, len(runs)))
			_, held := model.held[chat]
			if ok := chatQueues.Hold(runs[i]); ok != (i == 0 && !held) {
				t.Fatalf("step %d: held run %d of a chat: %t", step, i, ok)
			} else if ok {
				model.unready(chat)
				model.held[chat] = runs[0]
				model.chats[chat] = runs[1:]
			}
		case op < pushes+2:
			popped, ok := chatQueues.Pop(nil)
			id := popped.ID
			if ok != (len(model.ready) > 0) {
				t.Fatalf("step %d: popped %v, the model has %d ready", step, ok, len(model.ready))
			}
			if ok {
				chat := model.ready[0]
				if want := model.chats[chat][0]; id != want {
					t.Fatalf("step %d: popped %v, want %v", step, id, want)
				}
				model.unready(chat)
				model.held[chat] = id
				model.chats[chat] = model.chats[chat][1:]
			}
		case op == pushes+2: // a popped one is over, or, one time in four, it is not after all
			if chat, id, ok := someHeld(); ok {
				gone := chatQueues.Done(id)
				if random.IntN(4) == 0 {
					chatQueues.Undo(gone)
					model.unready(chat)
					break
				}
				delete(model.held, chat)
				model.offer(chat)
			}
		case op == pushes+3:
			if chat, id, ok := someHeld(); ok {
				chatQueues.Return(id, false)
				delete(model.held, chat)
				model.chats[chat] = slices.Insert(model.chats[chat], 0, id)
				model.offer(chat)
			}
		default: // a queued one is withdrawn, or not after all
			if runs := model.chats[chat]; len(runs) > 0 {
				i := random.IntN(len(runs))
				gone := chatQueues.Done(runs[i])
				if len(runs) == 1 {
					model.unready(chat)
				}
				if random.IntN(4) == 0 {
					chatQueues.Undo(gone)
					model.offer(chat)
					break
				}
				model.chats[chat] = slices.Delete(slices.Clone(runs), i, i+1)
			}
		}
		if chatQueues.Queued() != model.queued() || chatQueues.QueuedIn(chat) != len(model.chats[chat]) {
			t.Fatalf("step %d: %d queued, %d in %s; the model has %d and %d", step,
				chatQueues.Queued(), chatQueues.QueuedIn(chat), chat, model.queued(), len(model.chats[chat]))
		}
		if step%100 == 0 {
			hook := model.hookOf(chat)
			if got, want := chatQueues.ofHooks([]string{hook, "none", hook}, &IDRange{Last: greatestID}, 1<<20), model.ofHook(hook); !slices.Equal(got, want) {
				t.Fatalf("step %d: %s has %d runs, the model has %d", step, hook, len(got), len(want))
			}
		}
		oldest, any := int64(0), false
		for _, runs := range model.chats {
			if len(runs) > 0 && (!any || accepted[runs[0]] < oldest) {
				oldest, any = accepted[runs[0]], true
			}
		}
		if at, ok := chatQueues.Oldest(); ok != any || at != oldest {
			t.Fatalf("step %d: the oldest is of %d, %t; the model has %d, %t", step, at, ok, oldest, any)
		}
	}
}

func TestABusyChatDoesNotStarveTheOthers(t *testing.T) {
	var chatQueues ChatQueues
	var ids IDs
	push := func(chat string) uuid.UUID {
		id, err := ids.Next(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		chatQueues.Push(Entry{ID: id, Chat: chat})
		return id
	}
	for range 10 {
		push("busy")
	}
	quiet := push("quiet")
	first, _ := chatQueues.Pop(nil)
	chatQueues.Done(first.ID)
	if second, ok := chatQueues.Pop(nil); !ok || second.ID != quiet {
		t.Error("the quiet chat is not next")
	}
}

func TestChatQueuesGiveBackTheMemoryOfALongQueue(t *testing.T) {
	var chatQueues ChatQueues
	var ids IDs
	var all []uuid.UUID
	for i := range 70 * slabPiece {
		id, err := ids.Next(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		chatQueues.Push(Entry{ID: id, Chat: fmt.Sprint(i), Deadline: int64(i)})
		all = append(all, id)
	}
	for _, id := range all {
		chatQueues.Done(id)
	}
	if chatQueues.place.used > 16*slabPiece || cap(chatQueues.heaps[byDeadline]) > 32*slabPiece || cap(chatQueues.heaps[byAge]) > 32*slabPiece || chatQueues.Queued() != 0 {
		t.Error("the empty lanes still hold their memory")
	}
	if chatQueues.Push(Entry{ID: all[0], Chat: "chat"}); chatQueues.Queued() != 1 {
		t.Error("and cannot be used again")
	}
}

// A busy server always has some run in its queue.
func TestChatQueuesGiveBackMemoryThoughSomeRunsStay(t *testing.T) {
	var chatQueues ChatQueues
	var ids IDs
	var all []uuid.UUID
	for i := range 70 * slabPiece {
		id, err := ids.Next(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		chatQueues.Push(Entry{ID: id, Chat: fmt.Sprint("chat ", i%(60*slabPiece)), Deadline: int64(i + 1)})
		all = append(all, id)
	}
	popped, _ := chatQueues.Pop(nil)
	if popped.ID != all[0] {
		t.Fatal("the first run is not the first one")
	}
	for _, id := range all[3 : len(all)-3] {
		chatQueues.Done(id)
	}
	if chatQueues.place.used > 16*slabPiece {
		t.Errorf("%d places are kept for %d runs", chatQueues.place.used, len(chatQueues.places))
	}
	for _, id := range append(all[1:3], all[len(all)-3:]...) {
		if next, ok := chatQueues.Pop(nil); !ok || next.ID != id {
			t.Errorf("the next run is %v, want %v", next, id)
		}
		chatQueues.Done(id)
	}
	chatQueues.Done(popped.ID)
}

func TestIDsAreInOrderEvenIfTheClockIsNot(t *testing.T) {
	var ids IDs
	now := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	last := uuid.UUID{}
	for _, clock := range []time.Time{now, now, now.Add(time.Microsecond), now.Add(-time.Hour), now.Add(-time.Hour), now.Add(time.Second)} {
		id, err := ids.Next(clock)
		if err != nil {
			t.Fatal(err)
		}
		if id.String() <= last.String() || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
			t.Errorf("%v after %v, version %d", id, last, id.Version())
		}
		last = id
	}
	if got := IDTime(last); !got.Equal(now.Add(time.Second).Truncate(time.Millisecond)) {
		t.Errorf("the id is of %v", got)
	}
	var later IDs
	later.After(last)
	if id, _ := later.Next(now); id.String() <= last.String() {
		t.Errorf("%v after %v", id, last)
	}
}

func TestAVeryLongQueueTimeIsForEver(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for queueTime, want := range map[time.Duration]bool{0: false, time.Second: true, 99 * 365 * 24 * time.Hour: true, 1<<63 - 1: false} {
		entry := EntryOf(uuid.New(), &engine.Run{QueueTime: queueTime}, now)
		if got := entry.Deadline > now.UnixNano(); got != want || entry.Deadline < 0 {
			t.Errorf("a queue time of %s ends at %d", queueTime, entry.Deadline)
		}
	}
}
