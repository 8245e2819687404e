package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/panics"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
)

func init() {
	parameters := []string{"of"}
	for _, e := range exports {
		for _, name := range e.parameters {
			if !slices.Contains(parameters, name) {
				parameters = append(parameters, name)
			}
		}
	}
	InstanceEndpoints.Handle("GET /export", serveExport, parameters...)
}

// exportOf is something that can be exported: rows of a list, one after the other.
type exportOf struct {
	name       string
	parameters []string // the filters of the list
	columns    csvColumns

	// open checks the parameters, and returns what reads a page after the other.
	open func(in *service.Instance, r *http.Request) (pages exportPages, search bool, err error)
}

// exportPages reads the rows of the page at a cursor.
type exportPages func(ctx context.Context, cursor string) (rows []exportRow, next string, err error)

// exportRow is a row: a value that becomes a line of JSON or of CSV.
type exportRow any

// exportPage is how many rows are read at once. Few of them are in memory, and the store is not held up.
const exportPage = 100

// exportPatience is how long a client may take to read a page. One that stops reading must not keep its slot from others.
const exportPatience = 30 * time.Second

var exports = []exportOf{
	{"runs", api.ExportFilters["runs"], columnsOf(reflect.TypeFor[api.RunSummary](), "reply"), exportRuns},
	{"chat", api.ExportFilters["chat"], columnsOf(reflect.TypeFor[api.ChatTurn]()), exportChat},
	{"deliveries", api.ExportFilters["deliveries"], columnsOf(reflect.TypeFor[api.DeliveryDetails](), "body"), exportDeliveries},
}

// serveExport writes all rows of a list, as lines of JSON or, if the request asks for it, as CSV.
func serveExport(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	i := slices.IndexFunc(exports, func(e exportOf) bool { return e.name == params.Get("of") })
	if i < 0 {
		return api.Errorf(http.StatusBadRequest, "of must be one of runs, chat and deliveries")
	}
	what := exports[i]
	if err := checkParameters(r.URL.RawQuery, append([]string{"of"}, what.parameters...)); err != nil {
		return err
	}
	if err := checkNotEmpty(params); err != nil {
		return err
	}
	pages, search, err := what.open(in, r)
	if err != nil {
		return err
	}
	free, err := in.Service.Exports.Take(w, "exports")
	if err != nil {
		return err
	}
	defer free()
	if search {
		free, err := in.Service.Searches.Take(w, "searches")
		if err != nil {
			return err
		}
		defer free()
	}
	rows, next, err := pages(r.Context(), "")
	if err != nil {
		return err
	}
	write, ending := jsonLines(w), "jsonl"
	w.Header().Set("Content-Type", "application/x-ndjson")
	if wantsCSV(r.Header.Values("Accept")) {
		write, ending = csvLines(w, what.columns), "csv"
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	}
	w.Header().Set("Content-Disposition",
		fmt.Sprintf(`attachment; filename="hooks-%s-%s-%s.%s"`, in.Name, what.name, time.Now().UTC().Format("20060102T150405Z"), ending))
	client := http.NewResponseController(w)
	defer func() { _ = client.SetWriteDeadline(time.Time{}) }() // the connection may serve other requests
	for {
		_ = client.SetWriteDeadline(time.Now().Add(exportPatience)) // all servers of Caddy can
		err := write(rows)
		if err == nil {
			err = client.Flush()
		}
		if err == nil && next == "" {
			return nil
		}
		if err == nil {
			rows, next, err = pages(r.Context(), next)
		}
		if err != nil {
			if r.Context().Err() == nil {
				in.Log.Error("export broke off", zap.String("of", what.name), panics.Field(err))
			}
			// Part of it is sent. Whoever reads it must not take it for the whole.
			panic(http.ErrAbortHandler)
		}
	}
}

func jsonLines(w http.ResponseWriter) func(rows []exportRow) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return func(rows []exportRow) error {
		for _, row := range rows {
			if err := enc.Encode(row); err != nil {
				return err
			}
		}
		return nil
	}
}

func exportRuns(in *service.Instance, r *http.Request) (exportPages, bool, error) {
	query, err := parseRunQuery(r.URL.Query(), time.Now())
	if err != nil {
		return nil, false, err
	}
	hideTexts := callerFrom(r).HideTexts
	query.Input, query.Deliveries = !hideTexts, true
	q, _ := parseSearch(r.URL.Query())
	return pagesOfRuns(in, query, q, func(record *engine.Record) exportRow {
		return api.NewRunSummary(record, hideTexts)
	}), searches(&query), nil
}

func exportChat(in *service.Instance, r *http.Request) (exportPages, bool, error) {
	chatID := r.URL.Query().Get("chatId")
	if chatID == "" {
		return nil, false, errNoChat
	}
	hideTexts := callerFrom(r).HideTexts
	query := engine.Query{ChatID: chatID, Input: !hideTexts, Replies: !hideTexts, Deliveries: true}
	return pagesOfRuns(in, query, "", func(record *engine.Record) exportRow {
		return newTurnJSON(record, 0, hideTexts)
	}), false, nil
}

func pagesOfRuns(in *service.Instance, query engine.Query, q string, show func(*engine.Record) exportRow) exportPages {
	query.Limit = exportPage
	return func(ctx context.Context, cursor string) ([]exportRow, string, error) {
		query.Cursor = cursor
		records, next, err := listFound(ctx, in.Service.Engine, query, q)
		return api.ShowAll(records, show), next, err
	}
}

func exportDeliveries(in *service.Instance, r *http.Request) (exportPages, bool, error) {
	query, err := parseDeliveryQuery(r.URL.Query())
	query.Limit = exportPage
	return func(ctx context.Context, cursor string) ([]exportRow, string, error) {
		query.Cursor = cursor
		deliveries, next, err := in.Service.Engine.ListDeliveries(ctx, query)
		if err != nil {
			return nil, "", err
		}
		shown := api.ShowAll(deliveries, api.NewDeliverySummary)
		err = in.Service.ExplainWaits(ctx, shown, deliveries)
		return api.ShowAll(shown, func(row api.DeliveryDetails) exportRow { return row }), next, err
	}, false, err
}
