//go:build real

package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/pgtest"
)

// laterReleases are releases after this one: the next one adds to the schema, and calls functions of its own; the last one removes those of this one.
func laterReleases(t *testing.T) (next, last *release) {
	t.Helper()
	files := make(fstest.MapFS)
	for _, dir := range []struct {
		files fs.FS
		name  string
	}{{sqlFiles, "sql"}, {os.DirFS("."), "testdata"}} {
		entries, err := fs.ReadDir(dir.files, dir.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if !strings.HasSuffix(entry.Name(), ".sql") {
				continue
			}
			data, err := fs.ReadFile(dir.files, dir.name+"/"+entry.Name())
			if err != nil {
				t.Fatal(err)
			}
			files["sql/"+entry.Name()] = &fstest.MapFile{Data: data}
		}
	}
	renamed := strings.NewReplacer("@.add_runs_1(", "@.add_runs_3(", "@.end_runs_1(", "@.end_runs_3(",
		"@.add_and_claim_2(", "@.add_and_claim_3(", "@.end_plain_2(", "@.end_plain_3(")
	adds := append(migrations[:len(migrations):len(migrations)], []string{"3_next"})
	removes := append(adds[:len(adds):len(adds)], []string{"4_last"})
	next = &release{adds, files, oldestCompatible, renamed}
	return next, &release{removes, files, next.version(), renamed}
}

// openRelease opens a schema as a node of a release. It may be unreachable.
func openRelease(t *testing.T, r *release, schema string, checksOnly bool) (*store, error) {
	t.Helper()
	n, err := parseDSN(pgtest.Shared(t).DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	d := newDatabase(n, schema)
	d.release, d.checksOnly = r, checksOnly
	if err := d.open(t.Context()); err != nil && !errors.Is(err, engine.ErrUnreachable) {
		d.close()
		return nil, err
	}
	s := newStore(d)
	t.Cleanup(func() { _ = s.Close() })
	return s, nil
}

func mustOpenRelease(t *testing.T, r *release, schema string, checksOnly bool) *store {
	t.Helper()
	s, err := openRelease(t, r, schema, checksOnly)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantMeta checks what the schema says of itself.
func wantMeta(t *testing.T, s *store, version, oldest int) {
	t.Helper()
	var gotVersion, gotOldest, rows int
	err := s.query(t.Context(), func(row pgx.Rows) error { rows++; return row.Scan(&gotVersion, &gotOldest) }, "SELECT version, oldest_compatible FROM @.meta")
	if err != nil || gotVersion != version || gotOldest != oldest || rows != 1 {
		t.Fatalf("the schema has version %d, for programs from %d on, in %d rows, %v; want %d and %d", gotVersion, gotOldest, rows, err, version, oldest)
	}
}

// readAll reads what nodes read, so that no statement of a connection is left that a new column has spoilt.
func readAll(t *testing.T, s *store) {
	t.Helper()
	ctx := t.Context()
	runs, _, list := s.Runs().List(ctx, engine.Query{Limit: 10, Deliveries: true})
	_, _, text := s.Runs().List(ctx, engine.Query{Limit: 10, Text: "1"})
	_, _, chats := s.Runs().Chats(ctx, engine.ChatQuery{Limit: 10})
	_, _, overdue := s.Runs().Overdue(ctx, 1)
	_, past := s.Runs().Past(ctx, "a", 10, 1000)
	_, backlog := s.Runs().Backlog(ctx)
	var get error
	if len(runs) > 0 {
		_, get = s.Runs().Get(ctx, runs[0].Run.ID)
	}
	_, _, deliveries := s.Deliveries().List(ctx, engine.DeliveryQuery{Limit: 10})
	_, _, due := s.Deliveries().Claim(ctx, engine.DeliveryBatch{Max: 1, Lease: time.Minute})
	_, prune := s.Prune(ctx, engine.Limits{Retention: time.Hour, Keys: 1, KeyAge: time.Hour, HistoryBytes: 1 << 20})
	if err := errors.Join(list, text, chats, overdue, past, backlog, get, deliveries, due, prune); err != nil {
		t.Errorf("reading: %v", err)
	}
}

// upgrade is a load of nodes that may come and go.
type upgrade struct {
	turmoil
	stop    atomic.Bool
	drained atomic.Bool
	adders  sync.WaitGroup
	workers sync.WaitGroup
	chats   int
}

// work gives a node some load of its own, until all stop.
func (u *upgrade) work(s *store) {
	u.chats++
	for i := range 5 {
		chat := fmt.Sprintf("%d %d", u.chats, i)
		chance := rand.New(rand.NewPCG(uint64(u.chats), uint64(100+i))) //nolint:gosec // nothing here is secret
		u.adders.Go(func() {
			for n := 0; !u.stop.Load() && !u.t.Failed(); n++ {
				for u.total.Load()-u.over.Load() > 100 && !u.t.Failed() {
					time.Sleep(time.Millisecond) // the workers catch up
				}
				run := &engine.Run{ChatID: chat, Hook: "agent", Message: strconv.Itoa(n)}
				if n%7 == 0 {
					run.Fold = engine.Fold{Window: 100 * time.Millisecond, Max: 3}
				}
				batch := engine.Batch{Lease: u.lease}
				if s.release.version() > firstVersion { // others cannot claim in this step
					batch.Max = n % 2
				}
				claims, err := s.runs.AddAndClaim(u.t.Context(), []*engine.Run{run}, engine.Terms{}, batch)
				if err != nil {
					u.t.Errorf("adding: %v", err)
					return
				}
				u.total.Add(1)
				u.carryOutAll(s, chance, claims)
			}
		})
	}
	seed := uint64(u.chats)
	for i := range uint64(2) {
		u.workers.Go(func() {
			chance := rand.New(rand.NewPCG(seed, i)) //nolint:gosec // nothing here is secret
			for !u.drained.Load() && !u.t.Failed() {
				claims, _, err := s.Runs().Claim(u.t.Context(), engine.Batch{Max: 1 + chance.IntN(3), Lease: u.lease})
				if err != nil {
					u.t.Errorf("claiming: %v", err)
					return
				}
				u.answer(s, chance)
				if len(claims) == 0 {
					select {
					case <-s.Watch().Claimable():
					case <-time.After(20 * time.Millisecond):
					}
				}
				u.carryOutAll(s, chance, claims)
			}
		})
	}
}

// goOn waits until so many more runs have ended.
func (u *upgrade) goOn(runs int64) {
	u.t.Helper()
	u.until("runs end", u.over.Load()+runs)
}

func (u *upgrade) until(what string, over int64) {
	u.t.Helper()
	for deadline := time.Now().Add(time.Minute); u.over.Load() < over && !u.t.Failed(); {
		if time.Now().After(deadline) {
			u.t.Fatalf("waiting until %s: %d of %d have ended", what, u.over.Load(), over)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestTwoReleasesWorkSideBySide(t *testing.T) {
	t.Parallel()
	next, _ := laterReleases(t)
	s := workSideBySide(t, thisRelease, next)
	for _, release := range []int{1, 2} {
		if n := s.number(t, "SELECT count(*) FROM @.done WHERE release = $1", release); n == 0 {
			t.Errorf("no run has ended with release %d", release)
		}
	}
}

// The release before knows nothing of gates.
func TestTheReleaseBeforeWorksBesideThisOne(t *testing.T) {
	t.Parallel()
	before := &release{migrations[:1], sqlFiles, oldestCompatible, strings.NewReplacer("@.prune_gates_2($11, $9)", "($11::bigint < 0)",
		plainStatement, `SELECT 'retry', 0, NULL::text, NULL::text, 0, now(), NULL::float8, 0, false, NULL::bigint, NULL::timestamptz, NULL::text, NULL::text, NULL::text,
			NULL::json, NULL::bytea FROM (SELECT $1::text, $2::bigint, $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::boolean[],
			$10::float8[], $11::text[], $12::int[], $13::text[], $14::text[], $15::text[], $16::json, $17::bigint, $18::float8, $19::int[], $20::float8[],
			$21::int[], $22::int[], $23::int[], $24::text[], $25::boolean[], $26::int[], $27::text[]) p`)}
	s := workSideBySide(t, before, thisRelease)
	now := mustOpenRelease(t, thisRelease, s.schema, true)
	if err := now.Runs().Add(t.Context(), newGated("gated", "", onceAnHour("x")), engine.Terms{}); err != nil {
		t.Error(err)
	}
}

// workSideBySide has nodes of two releases carry out runs, and returns an older one.
func workSideBySide(t *testing.T, older, newer *release) *store {
	t.Helper()
	schema := pgtest.NewName("upgrade_")
	u := &upgrade{turmoil: turmoil{t: t, lease: 1000 * time.Hour, held: map[string]string{}, ended: map[string]int{}, known: map[string][]*engine.Run{},
		answered: map[string]int{}}}
	t.Cleanup(func() { u.stop.Store(true); u.drained.Store(true); u.adders.Wait(); u.workers.Wait() })
	var old []*store
	for range 2 {
		s := mustOpenRelease(t, older, schema, false)
		old = append(old, s)
		u.work(s)
	}
	u.goOn(80)
	readAll(t, old[0])
	wantMeta(t, old[0], older.version(), firstVersion)

	// The newer release comes while the others work.
	first := mustOpenRelease(t, newer, schema, false)
	mustReturn(t, first)
	u.total.Add(1) // it adds one
	wantMeta(t, old[0], newer.version(), firstVersion)
	u.work(first)
	u.goOn(80)
	readAll(t, old[0])
	readAll(t, first)

	// Nodes of both are started on the new schema.
	again := mustOpenRelease(t, older, schema, false)
	wantMeta(t, again, newer.version(), firstVersion)
	u.work(again)
	for _, r := range []*release{older, newer} {
		s := mustOpenRelease(t, r, schema, true) // with migrate off
		if _, err := addTo(t.Context(), s, "once"); err != nil {
			t.Error(err)
		}
		u.total.Add(1)
	}
	u.goOn(80)
	wantMeta(t, again, newer.version(), firstVersion)

	u.stop.Store(true)
	u.adders.Wait()
	u.until("all runs have ended", u.total.Load())
	u.drained.Store(true)
	u.workers.Wait()
	if total, over := u.total.Load(), u.over.Load(); total != over {
		t.Errorf("%d of %d runs have ended", over, total)
	}
	facts := []struct {
		count string
		is    func(n int) bool
	}{
		{"SELECT count(*) FROM @.queue", func(n int) bool { return n == 0 }},
		{"SELECT count(*) FROM @.done", func(n int) bool { return n == int(u.total.Load()) }},
		{"SELECT coalesce(sum(running), 0) FROM @.counter", func(n int) bool { return n == 0 }},
	}
	for _, want := range facts {
		if n := old[0].number(t, want.count); !want.is(n) {
			t.Errorf("%s is %d", want.count, n)
		}
	}
	return old[0]
}

// A migration must not make nodes wait until a backup is over.
func TestMigrationGivesWayToABackup(t *testing.T) {
	t.Parallel()
	next, _ := laterReleases(t)
	schema := pgtest.NewName("backup_")
	old := mustOpenRelease(t, thisRelease, schema, false)
	if _, err := addTo(t.Context(), old, "first"); err != nil {
		t.Fatal(err)
	}
	backup, err := pgx.Connect(t.Context(), pgtest.Shared(t).DSN("postgres")+" application_name=a-backup")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backup.Close(t.Context()) }()
	if _, err := backup.Exec(t.Context(), "BEGIN; SELECT FROM "+old.sql("@.queue")); err != nil {
		t.Fatal(err)
	}
	var added atomic.Int64
	var stop atomic.Bool
	var group sync.WaitGroup
	group.Go(func() {
		for ; !stop.Load(); added.Add(1) {
			if _, err := addTo(t.Context(), old, "during"); err != nil {
				t.Errorf("while the newer node waits: %v", err)
				return
			}
		}
	})
	t.Cleanup(func() { stop.Store(true); group.Wait() })
	newer := mustOpenRelease(t, next, schema, false)
	if _, _, cause := newer.Outage(); cause == nil || !strings.Contains(cause.Error(), "as soon as its tables are free; a-backup (process ") {
		t.Fatalf("the newer node is unreachable because of %v", cause)
	}
	before := added.Load()
	waitFor(t, "the older node goes on", func() bool { return added.Load() >= before+20 || t.Failed() })
	wantMeta(t, old, thisRelease.version(), firstVersion)
	if _, err := backup.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	mustReturn(t, newer)
	wantMeta(t, old, next.version(), firstVersion)
	stop.Store(true)
	group.Wait()
}

func TestReleaseThatIsTooOldIsRefused(t *testing.T) {
	t.Parallel()
	next, last := laterReleases(t)
	schema := pgtest.NewName("old_")
	old := mustOpenRelease(t, thisRelease, schema, false)
	silent := makeStore(newDatabase(old.dsn, schema)) // which nobody sees
	t.Cleanup(func() { silent.database.close() })
	if _, err := addTo(t.Context(), silent, "chat"); err != nil {
		t.Fatal(err)
	}
	if err := old.watch.beat(t.Context(), request{full: true}); err != nil {
		t.Fatal(err)
	}
	newest := mustOpenRelease(t, last, schema, false)
	if _, _, cause := newest.Outage(); cause == nil || !strings.Contains(cause.Error(), "nodes of version 7 work with it, and version 9 goes with nodes of version 8 or newer: stop the older ones first") {
		t.Errorf("beside an older node: %v", cause)
	}
	wantMeta(t, old, thisRelease.version(), firstVersion)
	if _, err := addTo(t.Context(), old, "chat"); err != nil {
		t.Error(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	mustReturn(t, newest)
	wantMeta(t, newest, last.version(), next.version())

	const refusal = "has version 9, which works with programs of version 8 or newer, and this one has version 7: install a newer release on this node"
	for _, checksOnly := range []bool{false, true} {
		if _, err := openRelease(t, thisRelease, schema, checksOnly); err == nil || !strings.Contains(err.Error(), refusal) {
			t.Errorf("an older node: %v", err)
		}
	}
	wantMeta(t, newest, last.version(), next.version())
	if s := mustOpenRelease(t, next, schema, false); s != nil {
		mustReturn(t, s)
	}
	// One that was not seen meanwhile finds out by its next call.
	if _, err := addTo(t.Context(), silent, "chat"); !errors.Is(err, engine.ErrUnreachable) {
		t.Errorf("the silent node: %v", err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		_, changed, cause := silent.Outage()
		if cause != nil && strings.Contains(cause.Error(), refusal) {
			break
		}
		select {
		case <-changed:
		case <-time.After(time.Until(deadline)):
			t.Fatalf("the silent node is unreachable because of %v", cause)
		}
	}
}

func TestAScriptIsForOneVersion(t *testing.T) {
	t.Parallel()
	next, _ := laterReleases(t)
	schema := pgtest.NewName("script_")
	s := mustOpenRelease(t, next, schema, false)
	if _, err := addTo(t.Context(), s, "chat"); err != nil {
		t.Fatal(err)
	}
	conn, err := s.dsn.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for from, want := range map[int]string{0: "is there already: say which version it has, by --from", 7: "has version 8, and this is for version 7: name the right one by --from"} {
		script, err := next.script(schema, from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.PgConn().Exec(t.Context(), "BEGIN;"+script+"COMMIT").ReadAll(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a script for version %d: %v, want %q", from, err, want)
		}
		if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	}
	wantMeta(t, s, next.version(), firstVersion)
}
