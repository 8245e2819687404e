package admin

import (
	"net/http"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /chats", listChats, "q", "since", "limit", "cursor")
	InstanceEndpoints.Handle("GET /chat", serveChat, "chatId", "limit", "cursor")
}

// listChats lists chats, the one with the newest run first. Chats that were made for one run alone are not among them.
func listChats(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	limit, err := parseLimit(params)
	if err != nil {
		return err
	}
	since, _, err := parsePeriod(params, time.Now())
	if err != nil {
		return err
	}
	q, err := parseSearch(params)
	if err != nil {
		return err
	}
	if q != "" {
		free, err := in.Service.Searches.Take(w, "searches")
		if err != nil {
			return err
		}
		defer free()
	}
	hideTexts := callerFrom(r).HideTexts
	chats, next, err := in.Service.Engine.Chats(r.Context(),
		engine.ChatQuery{Text: q, Since: since, Limit: limit, Cursor: params.Get("cursor"), Input: !hideTexts})
	if err != nil {
		return listError(err)
	}
	return writeJSON(w, http.StatusOK, api.ChatsPage{Cursor: next, Chats: api.ShowAll(chats, func(chat *engine.ChatSummary) api.Chat {
		last := api.NewRunSummary(chat.Last, hideTexts)
		return api.Chat{ChatID: chat.ChatID, Runs: chat.Runs, LastRunID: last.RunID, LastAt: last.AcceptedAt, Status: last.Status,
			Hook: last.Hook, Preview: last.Preview}
	})})
}

// maxTurnText is how many bytes of a message or of a reply a page of a chat shows. The details of a run have the rest.
const maxTurnText = 16 << 10

// newTurnJSON shows a run with the beginnings of its texts, as many bytes of each as asked for; 0 is all.
func newTurnJSON(r *engine.Record, most int, hideTexts bool) api.ChatTurn {
	turn := api.ChatTurn{RunSummary: api.NewRunSummary(r, hideTexts), Deliveries: api.ShowAll(r.Deliveries, api.NewDeliverySummary)}
	if hideTexts {
		return turn
	}
	shorten := func(value string) *string {
		if most > 0 {
			value = text.Beginning(value, most)
		}
		return &value
	}
	if message, ok := api.MessageOf(r); ok {
		turn.Message, turn.MessageBytes, turn.MessageCut = shorten(message), len(message), r.Kept == engine.KeptCut
	}
	if reply := api.NewRun(r).Reply; reply != nil {
		turn.Reply, turn.ReplyBytes = shorten(*reply), len(*reply)
	}
	return turn
}

// serveChat lists the runs of a chat, the newest first.
func serveChat(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	params := r.URL.Query()
	query := engine.Query{ChatID: params.Get("chatId"), Cursor: params.Get("cursor"), Deliveries: true}
	if query.ChatID == "" {
		return errNoChat
	}
	var err error
	if query.Limit, err = parseLimit(params); err != nil {
		return err
	}
	hideTexts := callerFrom(r).HideTexts
	query.Input, query.Replies = !hideTexts, !hideTexts
	records, next, err := in.Service.Engine.List(r.Context(), query)
	if err != nil {
		return listError(err)
	}
	return writeJSON(w, http.StatusOK, api.ChatPage{Cursor: next, Runs: api.ShowAll(records, func(r *engine.Record) api.ChatTurn {
		return newTurnJSON(r, maxTurnText, hideTexts)
	})})
}

var errNoChat = api.Errorf(http.StatusBadRequest, "say which: chatId is the id of the chat")
