package admin

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

// csvColumn is a column of a list in CSV: a field that its rows have in JSON.
type csvColumn struct {
	name      string
	index     []int // of the field, as reflect has it
	omitEmpty bool  // a zero is an empty cell, as it is left out in JSON
}

type csvColumns []csvColumn

// columnsOf are the columns of rows of a type. A field that is a list has none. The counts of deliveries
// have one each, and so has what a run used.
func columnsOf(row reflect.Type, without ...string) (columns csvColumns) {
	var used csvColumns
	for _, field := range reflect.VisibleFields(row) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "" || field.Type.Kind() == reflect.Slice || slices.Contains(without, name):
		case field.Type == reflect.TypeFor[*api.SentOut]():
			for _, count := range columnsOf(field.Type.Elem()) {
				columns = append(columns, csvColumn{count.name, slices.Concat(field.Index, count.index), true})
			}
		case field.Type == reflect.TypeFor[api.Spent]():
			for _, part := range columnsOf(field.Type) {
				used = append(used, csvColumn{part.name, slices.Concat(field.Index, part.index), true})
			}
		default:
			columns = append(columns, csvColumn{name, field.Index, options == "omitempty"})
		}
	}
	columns.move("sessionRenewed", "dead") // these were added when the others had their places
	columns.move("repeats", "contentType")
	columns.move("usageRefused", "replyBytes")
	return append(columns, used...)
}

// move puts a column behind another one.
func (c csvColumns) move(name, behind string) {
	names := c.names()
	if from, to := slices.Index(names, name), slices.Index(names, behind); from >= 0 && from < to {
		column := c[from]
		copy(c[from:to], c[from+1:])
		c[to] = column
	}
}

func (c csvColumns) names() []string {
	return api.ShowAll(c, func(column csvColumn) string { return column.name })
}

func (c csvColumns) cells(row any) []string {
	return api.ShowAll(c, func(column csvColumn) string {
		cell, err := reflect.ValueOf(row).FieldByIndexErr(column.index)
		if err != nil || cell.IsZero() && (column.omitEmpty || cell.Kind() == reflect.Pointer) {
			return ""
		}
		switch cell := reflect.Indirect(cell).Interface().(type) {
		case time.Time:
			return cell.Format(time.RFC3339Nano)
		default:
			return fmt.Sprint(cell)
		}
	})
}

// csvLines writes a line of names, and then the rows.
func csvLines(w http.ResponseWriter, columns csvColumns) func(rows []exportRow) error {
	out := csv.NewWriter(w)
	begun := false
	return func(rows []exportRow) error {
		if !begun {
			begun = true
			if err := out.Write(columns.names()); err != nil {
				return err
			}
		}
		for _, row := range rows {
			if err := out.Write(api.ShowAll(columns.cells(row), guardCell)); err != nil {
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
