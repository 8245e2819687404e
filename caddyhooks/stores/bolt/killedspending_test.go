package bolt

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// Whenever a process is killed, the ledger has what the runs have spent whose end was stored, to the token.
func TestKilledWhileSpending(t *testing.T) {
	if os.Getenv(isChild) != "" {
		spendUntilKilled(t)
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, killedFile)
	var spent engine.Use
	for tries := 0; tries < *kills || spent.Tokens() == 0; tries++ {
		if said, _, killed := child(t, dir, rand.N(400*time.Millisecond)); !killed {
			t.Fatalf("the child ended by itself: %s", said)
		}
		s := newBolt(t, path)
		var uses []engine.Use
		err := s.view(t.Context(), func(tx *bbolt.Tx) error {
			return tx.Bucket(endedBucket).ForEach(func(key, value []byte) error {
				record, err := decodeRun([16]byte(key), value)
				if err == nil {
					uses = usage.Add(uses, record.Outcome.Usage...)
				}
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		entries, _, err := s.Ledger().Spent(t.Context(), "", 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		var sum engine.LedgerEntry
		for i := range entries {
			sum.Add(&entries[i])
		}
		if spent = usage.Sum(uses); sum.Use != spent {
			t.Fatalf("the runs have used %+v, and the ledger has %+v", spent, sum.Use)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d tokens were spent", spent.Tokens())
}

// spendUntilKilled ends runs that have spent something.
func spendUntilKilled(t *testing.T) {
	s := newBolt(t, killedFile)
	fmt.Println("begin")
	for g := range 8 {
		go func() {
			for {
				run := testRun(fmt.Sprint("chat ", g), "hello")
				err := s.Runs().Add(context.Background(), run, engine.Terms{})
				var claims []*engine.Claim
				if err == nil {
					claims, _, err = s.Runs().Claim(context.Background(), engine.Batch{Max: 1, Lease: time.Minute})
				}
				for _, claim := range claims {
					use := engine.Use{HasTokens: true, Input: rand.N(int64(1000)), Output: rand.N(int64(100))}
					end := engine.End{Outcome: engine.Outcome{Status: engine.Completed, Usage: []engine.Use{use}}, Spent: []engine.LedgerEntry{
						{Account: usage.NewAccount("hook", fmt.Sprint(g%3)), Span: time.Second, Keep: 24 * time.Hour, Runs: 1, Use: use}}}
					if _, err = s.Runs().End(context.Background(), claim, end, engine.Batch{}); err != nil {
						break
					}
				}
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
			}
		}()
	}
	select {}
}
