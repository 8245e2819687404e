package hookstest

import (
	"encoding/json"
	"net/http"
	"time"
)

// DeliveryView is all that the admin API shows of a delivery.
type DeliveryView struct {
	ID            string    `json:"id"`
	Kind          string    `json:"kind"`
	Target        string    `json:"target"`
	Status        string    `json:"status"`
	Attempts      int       `json:"attempts"`
	LastError     string    `json:"lastError"`
	RunID         string    `json:"runId"`
	RunStatus     string    `json:"runStatus"`
	ChatID        string    `json:"chatId"`
	Hook          string    `json:"hook"`
	CreatedAt     time.Time `json:"createdAt"`
	LastAttemptAt time.Time `json:"lastAttemptAt"`
	NextAttemptAt time.Time `json:"nextAttemptAt"`
	LastStatus    int       `json:"lastStatus"`
	LastAnswer    string    `json:"lastAnswer"`
	ContentType   string    `json:"contentType"`
	Body          string    `json:"body"`
}

// Deliveries lists what a query selects, page by page.
func (s *Server) Deliveries(query string) (all []DeliveryView) {
	s.T.Helper()
	for cursor := ""; ; {
		resp := s.AdminRequest("GET", "/hooks/deliveries?limit=7&"+query+cursor, "")
		var page struct {
			Deliveries []DeliveryView `json:"deliveries"`
			Cursor     string         `json:"cursor"`
		}
		if err := json.Unmarshal([]byte(resp.Body), &page); err != nil || resp.Status != 200 {
			s.T.Fatalf("listing deliveries: %d %s", resp.Status, resp.Body)
		}
		if len(page.Deliveries) > 7 {
			s.T.Fatalf("%d deliveries on a page", len(page.Deliveries))
		}
		all = append(all, page.Deliveries...)
		if page.Cursor == "" {
			return all
		}
		cursor = "&cursor=" + page.Cursor
	}
}

// Delivery shows one.
func (s *Server) Delivery(id string) (d DeliveryView) {
	s.T.Helper()
	resp := s.AdminRequest("GET", "/hooks/deliveries/"+id, "")
	if err := json.Unmarshal([]byte(resp.Body), &d); err != nil || resp.Status != 200 {
		s.T.Fatalf("showing a delivery: %d %s", resp.Status, resp.Body)
	}
	return d
}

// CallBack has an agent answer to a URL.
func (s *Server) CallBack(message, url string) (runID string) {
	s.T.Helper()
	resp := s.Post("/api/hooks/agent", AsJSON(s.T, map[string]any{"message": message, "chatId": "chat of " + message, "callbackUrl": url}))
	if resp.Status != http.StatusAccepted {
		s.T.Fatalf("got %d %s", resp.Status, resp.Body)
	}
	return resp.Field(s.T, "runId").(string)
}
