package caddyhooks_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/memory"
)

func TestListsAreExportedAsLinesOfJSONOrCSV(t *testing.T) {
	s := hookstest.StartSite(t, strings.Replace(echoWithCallbacks, "runner echo", "runner echo\nstore memory", 1))
	rc := startMoodyReceiver(t, "")
	s.Ended(s.CallBack("=1+1", rc.URL+"/path?query"))
	hookstest.Eventually(t, "the delivery is given up", func() bool { return len(s.Deliveries("status=dead")) == 1 })
	const many = 250 // more than two pages
	for i := range many {
		s.Accept(fmt.Sprintf(`{"message":"message, \"%d\"\nand more","chatId":"c/1","name":"n"}`, i))
	}
	hookstest.Eventually(t, "all have ended", func() bool { ids, _ := s.Listed("?status=queued,running&limit=1"); return len(ids) == 0 })

	for of, want := range map[string]int{"runs": many + 1, "runs&chatId=c/1": many, "runs&q=and+more&status=completed": many, "chat&chatId=c/1": many, "deliveries": 1, "deliveries&status=pending": 0} {
		lines := adminWith(s, "GET", "/hooks/export?of="+of, "")
		name, _, _ := strings.Cut(of, "&")
		if lines.Status != 200 || lines.Header.Get("Content-Type") != "application/x-ndjson" ||
			!strings.HasPrefix(lines.Header.Get("Content-Disposition"), `attachment; filename="hooks-default-`+name+`-20`) || !strings.HasSuffix(lines.Header.Get("Content-Disposition"), `Z.jsonl"`) {
			t.Fatalf("%s: got %d %v %.200s", of, lines.Status, lines.Header, lines.Body)
		}
		var rows []map[string]any
		for scan := bufio.NewScanner(strings.NewReader(lines.Body)); scan.Scan(); {
			var row map[string]any
			if err := json.Unmarshal(scan.Bytes(), &row); err != nil {
				t.Fatalf("%s: %v in %s", of, err, scan.Text())
			}
			rows = append(rows, row)
		}
		table := adminWith(s, "GET", "/hooks/export?of="+of, "", "Accept", "text/csv")
		if table.Header.Get("Content-Type") != "text/csv; charset=utf-8" || !strings.HasSuffix(table.Header.Get("Content-Disposition"), `Z.csv"`) {
			t.Errorf("%s: got %v", of, table.Header)
		}
		cells, err := csv.NewReader(strings.NewReader(table.Body)).ReadAll()
		if err != nil || len(rows) != want || len(cells) != want+1 {
			t.Fatalf("%s: %d lines of JSON, %d of CSV, %v; want %d", of, len(rows), len(cells), err, want)
		}
		for i, row := range rows {
			for j, column := range cells[0] {
				shown, ok := row[column]
				if text, isText := shown.(string); isText && strings.TrimPrefix(cells[i+1][j], "'") != text || !isText && ok && cells[i+1][j] != fmt.Sprint(shown) {
					t.Fatalf("%s, line %d: %s is %q in CSV and %v in JSON", of, i, column, cells[i+1][j], shown)
				}
			}
		}
		switch of {
		case "chat&chatId=c/1":
			if rows[0]["message"] != fmt.Sprintf("message, \"%d\"\nand more", many-1) || rows[0]["reply"] != rows[0]["message"] {
				t.Errorf("the first row is %v", rows[0])
			}
		case "deliveries":
			if rows[0]["target"] != rc.URL+"/…" || rows[0]["hook"] != "agent" || rows[0]["lastError"] == "" {
				t.Errorf("the row is %v", rows[0])
			}
		case "runs":
			if last := cells[many+1]; !slices.Contains(last, "'=1+1") || slices.Contains(last, "=1+1") {
				t.Errorf("a cell that begins like a formula: %q", last)
			}
		}
	}
	for query, word := range map[string]string{
		"": "of must be one of runs, chat and deliveries", "?of=all": "of must be", "?of=chat": "chatId", "?of=runs&host=x": "no parameter", "?of=deliveries&hook=x": "no parameter",
		"?of=chat&chatId=c&status=failed": "no parameter", "?of=runs&limit=5": "no parameter", "?of=runs&status=done": "status", "?of=deliveries&status=done": "status",
		"?of=runs&hook=": "hook must not be empty", "?of=runs&since=x": "since",
	} {
		s.AdminRequest("GET", "/hooks/export"+query, "").WantAdminError(t, 400, word)
	}
}

func TestFewExportsAreMadeAtOnce(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nstore memory\n}")
	free := caddyhooks.HoldExports("default")
	resp := s.AdminRequest("GET", "/hooks/export?of=runs", "")
	resp.WantAdminError(t, 503, "4 exports are under way already; try again")
	if resp.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
	}
	free()
	for range 9 {
		if resp := s.AdminRequest("GET", "/hooks/export?of=runs", ""); resp.Status != 200 || resp.Body != "" {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	}
}

func init() {
	caddy.RegisterModule(endlessStore{})
}

// endlessStore is a store whose list of runs has no end, unless it breaks down.
type endlessStore struct{}

var (
	endlessPages = make(chan string, 1000) // the cursors of pages that were read
	endlessBreak = make(chan struct{})     // closed when it breaks down
)

func (endlessStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "hooks.stores.zz_endless", New: func() caddy.Module { return new(endlessStore) }}
}

func (*endlessStore) StoreKey(instance string) string { return "endless:" + instance }

func (*endlessStore) OpenStore(context.Context, string) (engine.Store, error) {
	return &endless{memory.New().Store()}, nil
}

type endless struct{ engine.Store }

func (s *endless) Runs() engine.Runs { return endlessRuns{s.Store.Runs()} }

type endlessRuns struct{ engine.Runs }

func (endlessRuns) List(ctx context.Context, query engine.Query) (page []*engine.Record, next string, err error) {
	select {
	case <-endlessBreak:
		return nil, "", fmt.Errorf("the disk is gone")
	case <-ctx.Done():
		return nil, "", ctx.Err()
	case endlessPages <- query.Cursor:
	}
	record := &engine.Record{Run: &engine.Run{ID: "x", Message: strings.Repeat("words ", 1000)}, Status: engine.Queued}
	return slices.Repeat([]*engine.Record{record}, query.Limit), "019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31", nil
}

func TestAnExportEndsWithItsReader(t *testing.T) {
	s := hookstest.NewServer(t)
	config := fmt.Sprintf(`{"admin":{"listen":%q},"logging":{"logs":{"default":{"level":"PANIC"}}},"apps":{"http":{"servers":{"a":{"listen":[":%s"],
		"routes":[{"handle":[{"handler":"hooks","store":{"store":"zz_endless"}}]}]}}}}}`, strings.TrimPrefix(s.Admin, "http://"), s.Port)
	if err := caddy.Load([]byte(config), true); err != nil {
		t.Fatal(err)
	}
	start := func() (lines *bufio.Reader, leave func()) {
		t.Helper()
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", s.Admin+"/hooks/export?of=runs", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		lines = bufio.NewReader(resp.Body)
		for range 250 { // more than two pages, while the export goes on
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		return lines, leave
	}
	_, leave := start()
	leave()
	// All four can be taken again, as soon as it has ended.
	hookstest.Eventually(t, "the export ends", func() bool {
		select {
		case <-endlessPages:
		default:
		}
		return hookstest.GoroutinesIn(s, "serveExport") == 0
	})

	// What breaks off is not taken for the whole.
	lines, leave := start()
	defer leave()
	close(endlessBreak)
	for {
		select {
		case <-endlessPages:
		default:
		}
		if _, err := lines.ReadString('\n'); err != nil {
			if !strings.Contains(err.Error(), "unexpected EOF") {
				t.Errorf("the reader is told %v", err)
			}
			return
		}
	}
}

// deadlineWriter notes the deadline of each write.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
	writes   []time.Time
}

func (w *deadlineWriter) SetWriteDeadline(deadline time.Time) error {
	w.deadline = deadline
	return nil
}

func (w *deadlineWriter) Write(text []byte) (int, error) {
	w.writes = append(w.writes, w.deadline)
	return w.ResponseRecorder.Write(text)
}

// A client that does not read would keep its slot, and four of them all slots.
func TestAnExportWaitsForItsReaderOnlySoLong(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\nenabled\ntoken "+hookstest.Token+"\nrunner echo\nstore memory\n}")
	s.Ended(s.Accept(`{"message":"a"}`))
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	begun := time.Now()
	caddyhooks.AdminAPI(false).ServeHTTP(w, httptest.NewRequest("GET", "/hooks/export?of=runs", nil))
	if w.Code != 200 || len(w.writes) == 0 || slices.ContainsFunc(w.writes, begun.After) {
		t.Errorf("got %d with the deadlines %v", w.Code, w.writes)
	}
	if !w.deadline.IsZero() {
		t.Errorf("the deadline %v is left to the next request of the connection", w.deadline)
	}
}
