package bolt

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// nameSession has a run of a chat name a session of the runner "r".
func nameSession(t testing.TB, s engine.Store, chat, id string) {
	t.Helper()
	run := testRun(chat, "hello")
	if err := s.Runs().Add(t.Context(), run, engine.Terms{}); err != nil {
		t.Fatal(err)
	}
	end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}, Session: engine.Session{Runner: "r", ID: id}}
	if _, err := s.Runs().End(t.Context(), &engine.Claim{Run: run}, end, engine.Batch{}); err != nil {
		t.Fatal(err)
	}
}

func wantSession(t *testing.T, s engine.Store, runner, chat, want string) {
	t.Helper()
	if got, err := s.Sessions().Get(t.Context(), runner, chat); err != nil || got != want {
		t.Errorf("the session of %q in %.20q is %q, %v, want %q", runner, chat, got, err, want)
	}
}

// entries is how many entries a bucket has.
func entries(t *testing.T, s *store, bucket []byte) (n int) {
	t.Helper()
	err := s.view(t.Context(), func(tx *bbolt.Tx) error {
		n = tx.Bucket(bucket).Stats().KeyN
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Nothing that a runner or a chat may be called leads to the session of another pair.
func TestSessionsOfAnyNamesAreKeptApart(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	long := strings.Repeat("long", 20_000) // a key of the database has 32 KiB at most
	chats := []string{"", "\x00", "a", "a\x00", "\x00a", "\xff", "\xfe", "\x01a", long, long + "\x00"}
	for i, chat := range chats {
		nameSession(t, s, chat, fmt.Sprint("session ", i))
	}
	for i, chat := range chats {
		wantSession(t, s, "r", chat, fmt.Sprint("session ", i))
		if strings.HasPrefix(chat, "a") {
			wantSession(t, s, "ra", chat[1:], "")
		}
		wantSession(t, s, "", "r"+chat, "")
		wantSession(t, s, "", "\x01r"+chat, "")
	}
	if n := entries(t, s, sessionsBucket); n != len(chats) {
		t.Errorf("there are %d sessions", n)
	}
}

// A session that is named often has one entry by age, and pruning leaves nothing of one that is old.
func TestSessionsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	for round := range 20 {
		for chat := range 10 {
			nameSession(t, s, fmt.Sprint(chat), fmt.Sprint(round))
		}
		s.clock.Advance(10 * time.Minute)
		if round%5 == 4 {
			prune(t, s, time.Hour)
		}
		if sessions, ages := entries(t, s, sessionsBucket), entries(t, s, sessionAgesBucket); sessions != 10 || ages != 10 {
			t.Errorf("in round %d there are %d sessions and %d entries by age", round, sessions, ages)
		}
	}
	s.clock.Advance(time.Hour)
	prune(t, s, time.Hour)
	if sessions, ages := entries(t, s, sessionsBucket), entries(t, s, sessionAgesBucket); sessions != 0 || ages != 0 {
		t.Errorf("%d sessions and %d entries by age are left", sessions, ages)
	}
}

func prune(t *testing.T, s *store, retention time.Duration) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.Prune(t.Context(), engine.Limits{Retention: retention}); err != nil {
			t.Fatal(err)
		}
	}
}

// A chat whose session is damaged begins a new one. All else would keep it from going on.
func TestADamagedSessionIsNone(t *testing.T) {
	t.Parallel()
	s := newBolt(t, filepath.Join(t.TempDir(), "hooks.db"))
	defer s.Close()
	for _, chat := range []string{"a", "b", "c"} {
		nameSession(t, s, chat, "one")
	}
	damage := func(chat string) {
		key := newSessionKey("r", chat)
		err := s.committer.do(t.Context(), &change{apply: func(tx *transaction) error {
			data := append([]byte(nil), tx.bucket(sessionsBucket).Get(key[:])...)
			data[len(data)-1] ^= 1
			tx.put(sessionsBucket, key[:], data)
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	damage("a")
	damage("b")
	wantSession(t, s, "r", "a", "")
	wantSession(t, s, "r", "c", "one")
	nameSession(t, s, "a", "two")
	wantSession(t, s, "r", "a", "two")
	s.clock.Advance(time.Hour)
	prune(t, s, time.Minute)
	if sessions, ages := entries(t, s, sessionsBucket), entries(t, s, sessionAgesBucket); sessions != 0 || ages != 0 {
		t.Errorf("%d sessions and %d entries by age are left", sessions, ages)
	}
}

// Whenever a process is killed, each chat has the session of the run that ended last, neither an older one nor one of a run
// that has not ended.
func TestKilledWhileSessionsAreNamed(t *testing.T) {
	if os.Getenv(isChild) != "" {
		nameUntilKilled(t)
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, killedFile)
	compared := 0
	for tries := 0; tries < *kills || compared == 0; tries++ {
		said, _, killed := child(t, dir, rand.N(300*time.Millisecond))
		if !killed {
			t.Fatalf("the child ended by itself: %s", said)
		}
		s := newBolt(t, path)
		for chat := range 8 {
			name := fmt.Sprint("chat ", chat)
			page, _, err := s.Runs().List(t.Context(), engine.Query{ChatID: name, Statuses: []engine.Status{engine.Completed}, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, last := range page {
				compared++
				wantSession(t, s, "r", name, "of "+last.Run.ID)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d sessions were compared", compared)
}

// nameUntilKilled ends runs of some chats, and forgets sessions of others.
func nameUntilKilled(t *testing.T) {
	s := newBolt(t, killedFile)
	fmt.Println("begin")
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	go func() {
		for {
			_, err := s.Prune(context.Background(), engine.Limits{Retention: time.Minute})
			fail(err)
		}
	}()
	for chat := range 8 {
		go func() {
			for {
				run := testRun(fmt.Sprint("chat ", chat), "hello")
				fail(s.Runs().Add(context.Background(), run, engine.Terms{}))
				end := engine.End{Outcome: engine.Outcome{Status: engine.Completed}, Session: engine.Session{Runner: "r", ID: "of " + run.ID}}
				// One that was accepted before an earlier kill is left queued.
				_, err := s.Runs().End(context.Background(), &engine.Claim{Run: run}, end, engine.Batch{})
				fail(err)
			}
		}()
	}
	select {}
}
