package admin

import (
	"encoding/csv"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

// Programs read columns by their places, too.
func TestColumnsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	const runs = "status runId chatId hook action runner name acceptedAt startedAt finishedAt attempts waitingFor errorMessage repairAttempts foldedInto folded " +
		"client cancelledBy reason againOf preview tier test sync delivered pending dead sessionRenewed requestId queuedMs durationMs"
	const used = " usageRefused inputTokens outputTokens cachedTokens reasoningTokens costUsd"
	for i, want := range []string{
		runs + used, runs + " message messageCut messageBytes reply replyBytes" + used,
		"id kind target status attempts lastError runId runStatus chatId hook createdAt lastAttemptAt nextAttemptAt waitsFor lastStatus lastAnswer contentType repeats",
	} {
		if got := strings.Join(exports[i].columns.names(), " "); got != want {
			t.Errorf("%s: the columns are %s, want %s", exports[i].name, got, want)
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
	type row struct {
		A string `json:"a"`
		B string `json:"b"`
	}
	f.Fuzz(func(t *testing.T, text, accept string) {
		_ = wantsCSV([]string{accept})
		w := httptest.NewRecorder()
		if err := csvLines(w, columnsOf(reflect.TypeFor[row]()))([]exportRow{row{text, "end"}}); err != nil {
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
