package caddyhooks

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// csvColumns are the columns of a row in CSV.
type csvColumns[Row any] []csvColumn[Row]

type csvColumn[Row any] struct {
	name string
	cell func(row *Row) string
}

func (c csvColumns[Row]) names() []string {
	names := make([]string, len(c))
	for i, column := range c {
		names[i] = column.name
	}
	return names
}

func (c csvColumns[Row]) cells(row *Row) []string {
	cells := make([]string, len(c))
	for i, column := range c {
		cells[i] = column.cell(row)
	}
	return cells
}

var runColumns = csvColumns[runSummary]{
	{"status", func(r *runSummary) string { return string(r.Status) }},
	{"runId", func(r *runSummary) string { return r.RunID }},
	{"chatId", func(r *runSummary) string { return r.ChatID }},
	{"hook", func(r *runSummary) string { return r.Hook }},
	{"action", func(r *runSummary) string { return string(r.Action) }},
	{"runner", func(r *runSummary) string { return r.Runner }},
	{"name", func(r *runSummary) string { return r.Name }},
	{"acceptedAt", func(r *runSummary) string { return csvTime(r.AcceptedAt) }},
	{"startedAt", func(r *runSummary) string { return csvTime(r.StartedAt) }},
	{"finishedAt", func(r *runSummary) string { return csvTime(r.FinishedAt) }},
	{"attempts", func(r *runSummary) string { return strconv.Itoa(r.Attempts) }},
	{"waitingFor", func(r *runSummary) string { return r.WaitingFor }},
	{"errorMessage", func(r *runSummary) string { return r.ErrorMessage }},
	{"repairAttempts", func(r *runSummary) string { return csvCount(r.RepairAttempts) }},
	{"foldedInto", func(r *runSummary) string { return r.FoldedInto }},
	{"folded", func(r *runSummary) string { return csvCount(r.Folded) }},
	{"client", func(r *runSummary) string { return r.Client }},
	{"cancelledBy", func(r *runSummary) string { return r.CancelledBy }},
	{"reason", func(r *runSummary) string { return r.Reason }},
	{"againOf", func(r *runSummary) string { return r.AgainOf }},
	{"preview", func(r *runSummary) string { return r.Preview }},
	{"tier", func(r *runSummary) string { return r.Tier }},
	{"test", func(r *runSummary) string { return csvFlag(r.Test) }},
	{"sync", func(r *runSummary) string { return csvFlag(r.Sync) }},
	{"delivered", func(r *runSummary) string { return csvCount(orNone(r.SentOut).Delivered) }},
	{"pending", func(r *runSummary) string { return csvCount(orNone(r.SentOut).Pending) }},
	{"dead", func(r *runSummary) string { return csvCount(orNone(r.SentOut).Dead) }},
	{"sessionRenewed", func(r *runSummary) string { return csvFlag(r.SessionRenewed) }},
}

var turnColumns = append(columnsOfTurns(),
	csvColumn[turnJSON]{"message", func(t *turnJSON) string { return orEmpty(t.Message) }},
	csvColumn[turnJSON]{"messageCut", func(t *turnJSON) string { return csvFlag(t.MessageCut) }},
	csvColumn[turnJSON]{"messageBytes", func(t *turnJSON) string { return csvCount(t.MessageBytes) }},
	csvColumn[turnJSON]{"reply", func(t *turnJSON) string { return orEmpty(t.Reply) }},
	csvColumn[turnJSON]{"replyBytes", func(t *turnJSON) string { return csvCount(t.ReplyBytes) }},
)

func columnsOfTurns() (columns csvColumns[turnJSON]) {
	for _, c := range runColumns {
		columns = append(columns, csvColumn[turnJSON]{c.name, func(t *turnJSON) string { return c.cell(&t.runSummary) }})
	}
	return columns
}

var deliveryColumns = csvColumns[deliveryDetails]{
	{"id", func(d *deliveryDetails) string { return d.ID }},
	{"kind", func(d *deliveryDetails) string { return d.Kind }},
	{"target", func(d *deliveryDetails) string { return d.Target }},
	{"status", func(d *deliveryDetails) string { return string(d.Status) }},
	{"attempts", func(d *deliveryDetails) string { return strconv.Itoa(d.Attempts) }},
	{"lastError", func(d *deliveryDetails) string { return d.LastError }},
	{"runId", func(d *deliveryDetails) string { return d.RunID }},
	{"runStatus", func(d *deliveryDetails) string { return string(d.RunStatus) }},
	{"chatId", func(d *deliveryDetails) string { return d.ChatID }},
	{"hook", func(d *deliveryDetails) string { return d.Hook }},
	{"createdAt", func(d *deliveryDetails) string { return csvTime(d.CreatedAt) }},
	{"lastAttemptAt", func(d *deliveryDetails) string { return csvTime(d.LastAttemptAt) }},
	{"nextAttemptAt", func(d *deliveryDetails) string { return csvTime(d.NextAttemptAt) }},
	{"waitsFor", func(d *deliveryDetails) string { return d.WaitsFor }},
	{"lastStatus", func(d *deliveryDetails) string { return csvCount(d.LastStatus) }},
	{"lastAnswer", func(d *deliveryDetails) string { return d.LastAnswer }},
	{"contentType", func(d *deliveryDetails) string { return d.ContentType }},
}

// csvLines writes a line of names, and then the rows.
func csvLines(w http.ResponseWriter, columns []string) func(rows []exportRow) error {
	out := csv.NewWriter(w)
	begun := false
	return func(rows []exportRow) error {
		if !begun {
			begun = true
			if err := out.Write(columns); err != nil {
				return err
			}
		}
		for _, row := range rows {
			for i, cell := range row.cells {
				row.cells[i] = guardCell(cell)
			}
			if err := out.Write(row.cells); err != nil {
				return err
			}
		}
		out.Flush()
		return out.Error()
	}
}

// guardCell keeps a spreadsheet from taking text from outside for a formula.
func guardCell(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD") // as in JSON
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

func csvTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// csvCount is a number that is left out if it is 0, as in JSON.
func csvCount(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func csvFlag(is bool) string {
	if !is {
		return ""
	}
	return "true"
}

func orNone(sent *sentOutJSON) sentOutJSON {
	if sent == nil {
		return sentOutJSON{}
	}
	return *sent
}

func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// wantsCSV reports whether the Accept headers of a request name CSV, and do not like lines of JSON better.
func wantsCSV(accept []string) bool {
	forCSV, forJSON := 0, 0
	for r := range mediaRanges(accept) {
		switch strings.ToLower(r.name) {
		case "text/csv":
			forCSV = max(forCSV, r.quality)
		case "application/x-ndjson", "application/jsonl", "application/json":
			forJSON = max(forJSON, r.quality)
		}
	}
	return forCSV > 0 && forCSV >= forJSON
}
