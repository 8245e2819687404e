package local

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestIDsOfATimeAreBetweenItsFirstAndLast(t *testing.T) {
	t.Parallel()
	var ids IDs
	at := time.Now()
	id, err := ids.Next(at)
	if err != nil {
		t.Fatal(err)
	}
	if compareIDs(FirstID(at), id) > 0 || compareIDs(LastID(at), id) < 0 {
		t.Errorf("%s is not between %s and %s", id, FirstID(at), LastID(at))
	}
	for _, other := range []time.Time{{}, time.Unix(-5, 0), at.Add(-time.Millisecond)} {
		if compareIDs(LastID(other), id) >= 0 {
			t.Errorf("%s is not after %v", id, other)
		}
	}
	for _, other := range []time.Time{at.Add(time.Millisecond), time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if compareIDs(FirstID(other), id) <= 0 {
			t.Errorf("%s is not before %v", id, other)
		}
	}
}

func TestACursorGoesOnWithItsID(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"01a1e17b-9bcf-75a4-a00a-177800959d66", "01a1e17b-9bcf-75a4-ffff-ffffffffffff", "01a1e17b-9bcf-75a4-0000-000000000000",
		"00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-fffffffffffe",
	} {
		id := uuid.MustParse(text)
		for _, oldestFirst := range []bool{false, true} {
			order := IDRange{Descending: !oldestFirst}
			next, ok, err := RangeOf(&engine.Query{Cursor: order.CursorAt(id), OldestFirst: oldestFirst}, 0)
			if err != nil || !ok || next.Begin() != id {
				t.Errorf("a list that is to go on with %s begins with %s (%v, %v)", id, next.Begin(), ok, err)
			}
		}
	}
}

func TestTheRunOfAFreshChatIsFoundByTimeIfItCameSoon(t *testing.T) {
	t.Parallel()
	chat := uuid.Must(uuid.NewV7())
	made := IDTime(chat)
	for after, want := range map[time.Duration]bool{0: true, 90 * time.Millisecond: true, 200 * time.Millisecond: false, -time.Second: false, time.Hour: false} {
		id, err := new(IDs).Next(made.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		run := &engine.Run{ChatID: "hook:" + chat.String(), NewChat: true}
		if got := IsFoundByTime(run, id); got != want {
			t.Errorf("after %v: %v", after, got)
		}
		run.NewChat = false
		if IsFoundByTime(run, id) || !IsNamed(run) {
			t.Errorf("a run that goes on with the chat counts as the one that it was made for")
		}
	}
	if IsNamed(&engine.Run{ChatID: "hook:" + uuid.NewString()}) {
		t.Error("a chat that an earlier version made counts as named")
	}
}
