package admin

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
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

var runColumns = csvColumns[api.RunSummary]{
	{"status", func(r *api.RunSummary) string { return string(r.Status) }},
	{"runId", func(r *api.RunSummary) string { return r.RunID }},
	{"chatId", func(r *api.RunSummary) string { return r.ChatID }},
	{"hook", func(r *api.RunSummary) string { return r.Hook }},
	{"action", func(r *api.RunSummary) string { return string(r.Action) }},
	{"runner", func(r *api.RunSummary) string { return r.Runner }},
	{"name", func(r *api.RunSummary) string { return r.Name }},
	{"acceptedAt", func(r *api.RunSummary) string { return csvTime(r.AcceptedAt) }},
	{"startedAt", func(r *api.RunSummary) string { return csvTime(r.StartedAt) }},
	{"finishedAt", func(r *api.RunSummary) string { return csvTime(r.FinishedAt) }},
	{"attempts", func(r *api.RunSummary) string { return strconv.Itoa(r.Attempts) }},
	{"waitingFor", func(r *api.RunSummary) string { return r.WaitingFor }},
	{"errorMessage", func(r *api.RunSummary) string { return r.ErrorMessage }},
	{"repairAttempts", func(r *api.RunSummary) string { return csvCount(r.RepairAttempts) }},
	{"foldedInto", func(r *api.RunSummary) string { return r.FoldedInto }},
	{"folded", func(r *api.RunSummary) string { return csvCount(r.Folded) }},
	{"client", func(r *api.RunSummary) string { return r.Client }},
	{"cancelledBy", func(r *api.RunSummary) string { return r.CancelledBy }},
	{"reason", func(r *api.RunSummary) string { return r.Reason }},
	{"againOf", func(r *api.RunSummary) string { return r.AgainOf }},
	{"preview", func(r *api.RunSummary) string { return r.Preview }},
	{"tier", func(r *api.RunSummary) string { return r.Tier }},
	{"test", func(r *api.RunSummary) string { return csvFlag(r.Test) }},
	{"sync", func(r *api.RunSummary) string { return csvFlag(r.Sync) }},
	{"delivered", func(r *api.RunSummary) string { return csvCount(orNone(r.SentOut).Delivered) }},
	{"pending", func(r *api.RunSummary) string { return csvCount(orNone(r.SentOut).Pending) }},
	{"dead", func(r *api.RunSummary) string { return csvCount(orNone(r.SentOut).Dead) }},
	{"sessionRenewed", func(r *api.RunSummary) string { return csvFlag(r.SessionRenewed) }},
}

var turnColumns = append(columnsOfTurns(),
	csvColumn[api.ChatTurn]{"message", func(t *api.ChatTurn) string { return orEmpty(t.Message) }},
	csvColumn[api.ChatTurn]{"messageCut", func(t *api.ChatTurn) string { return csvFlag(t.MessageCut) }},
	csvColumn[api.ChatTurn]{"messageBytes", func(t *api.ChatTurn) string { return csvCount(t.MessageBytes) }},
	csvColumn[api.ChatTurn]{"reply", func(t *api.ChatTurn) string { return orEmpty(t.Reply) }},
	csvColumn[api.ChatTurn]{"replyBytes", func(t *api.ChatTurn) string { return csvCount(t.ReplyBytes) }},
)

func columnsOfTurns() (columns csvColumns[api.ChatTurn]) {
	for _, c := range runColumns {
		columns = append(columns, csvColumn[api.ChatTurn]{c.name, func(t *api.ChatTurn) string { return c.cell(&t.RunSummary) }})
	}
	return columns
}

var deliveryColumns = csvColumns[api.DeliveryDetails]{
	{"id", func(d *api.DeliveryDetails) string { return d.ID }},
	{"kind", func(d *api.DeliveryDetails) string { return d.Kind }},
	{"target", func(d *api.DeliveryDetails) string { return d.Target }},
	{"status", func(d *api.DeliveryDetails) string { return string(d.Status) }},
	{"attempts", func(d *api.DeliveryDetails) string { return strconv.Itoa(d.Attempts) }},
	{"lastError", func(d *api.DeliveryDetails) string { return d.LastError }},
	{"runId", func(d *api.DeliveryDetails) string { return d.RunID }},
	{"runStatus", func(d *api.DeliveryDetails) string { return string(d.RunStatus) }},
	{"chatId", func(d *api.DeliveryDetails) string { return d.ChatID }},
	{"hook", func(d *api.DeliveryDetails) string { return d.Hook }},
	{"createdAt", func(d *api.DeliveryDetails) string { return csvTime(d.CreatedAt) }},
	{"lastAttemptAt", func(d *api.DeliveryDetails) string { return csvTime(d.LastAttemptAt) }},
	{"nextAttemptAt", func(d *api.DeliveryDetails) string { return csvTime(d.NextAttemptAt) }},
	{"waitsFor", func(d *api.DeliveryDetails) string { return d.WaitsFor }},
	{"lastStatus", func(d *api.DeliveryDetails) string { return csvCount(d.LastStatus) }},
	{"lastAnswer", func(d *api.DeliveryDetails) string { return d.LastAnswer }},
	{"contentType", func(d *api.DeliveryDetails) string { return d.ContentType }},
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

func orNone(sent *api.SentOut) api.SentOut {
	if sent == nil {
		return api.SentOut{}
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
	for r := range api.MediaRanges(accept) {
		switch strings.ToLower(r.Name) {
		case "text/csv":
			forCSV = max(forCSV, r.Quality)
		case "application/x-ndjson", "application/jsonl", "application/json":
			forJSON = max(forJSON, r.Quality)
		}
	}
	return forCSV > 0 && forCSV >= forJSON
}
