package admin

import (
	"encoding/csv"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

func TestEveryFieldOfARowHasAColumn(t *testing.T) {
	t.Parallel()
	runs := []string{"sentOut", "reply", "deliveries"} // as delivered, pending and dead; and of a chat alone
	for _, c := range []struct {
		row     reflect.Type
		columns []string
		without []string
	}{
		{reflect.TypeFor[api.RunSummary](), runColumns.names(), runs},
		{reflect.TypeFor[api.ChatTurn](), turnColumns.names(), []string{"sentOut", "deliveries"}},
		{reflect.TypeFor[api.DeliveryDetails](), deliveryColumns.names(), []string{"body", "history"}}, // which no list has
	} {
		for _, field := range settings.JSONFields(c.row) {
			if slices.Contains(c.columns, field) == slices.Contains(c.without, field) {
				t.Errorf("%v: %s has no column, or should have none", c.row, field)
			}
		}
	}
}

func TestCSVIsWhatTheRequestAsksFor(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "text/html,*/*;q=0.8": false, "text/csv": true, "Text/CSV; charset=utf-8": true, "text/csv;q=0": false, "text/csv, */*": true,
		"application/x-ndjson, text/csv;q=0.5": false, "application/x-ndjson;q=0.5, text/csv": true, "text/csv;q=x": false, "text/csv;q=NaN": false, ";;,text/csv": true,
	} {
		if got := wantsCSV([]string{accept}); got != want {
			t.Errorf("%q: %t", accept, got)
		}
	}
}

// A cell is never a formula, and is read again as it was, but for the sign in front of what could be one.
func FuzzCSVCells(f *testing.F) {
	for _, seed := range []string{"=1+1", "+1", "-1", "@a", "\ta", "\ra", "a,\"b\"\n", "'", "\xff=", "a\r\nb", "\\.", ""} {
		f.Add(seed, "text/csv;q=0.5")
	}
	f.Fuzz(func(t *testing.T, text, accept string) {
		_ = wantsCSV([]string{accept})
		w := httptest.NewRecorder()
		if err := csvLines(w, []string{"a", "b"})([]exportRow{{cells: []string{text, "end"}}}); err != nil {
			t.Fatal(err)
		}
		lines, err := csv.NewReader(w.Body).ReadAll()
		if err != nil || len(lines) != 2 || len(lines[1]) != 2 || lines[1][1] != "end" {
			t.Fatalf("%q is read as %q, %v", text, lines, err)
		}
		got := lines[1][0]
		if got != "" && strings.ContainsAny(got[:1], "=+-@\t\r") {
			t.Errorf("%q becomes the formula %q", text, got)
		}
		want := strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\r\n", "\n") // which the reader makes of it
		if text != "" && strings.ContainsAny(text[:1], "=+-@\t\r") {
			want = strings.ReplaceAll("'"+strings.ToValidUTF8(text, "\uFFFD"), "\r\n", "\n")
		}
		if got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	})
}
