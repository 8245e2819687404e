package settings

import (
	"encoding/json"
	"net/http"
)

// givenAnswer is the answer that a mapping gives to callers that do not wait for a reply.
type givenAnswer struct {
	Status      int
	ContentType string // "" without a body
	Body        []byte
}

// givenAnswer checks the answer of the mapping. It is nil if there is none.
func (m *Mapping) givenAnswer() (*givenAnswer, error) {
	switch {
	case m.RespondStatus == 0 && m.RespondBody == "":
		return nil, nil
	case m.RespondStatus == 0:
		return nil, FieldErrorf("respondBody", "needs respondStatus")
	case m.RespondStatus < 200 || m.RespondStatus > 299:
		return nil, FieldErrorf("respondStatus", "must be from 200 to 299: senders take others for a failure")
	case m.RespondBody != "" && (m.RespondStatus == http.StatusNoContent || m.RespondStatus == http.StatusResetContent):
		return nil, FieldErrorf("respondBody", "must have no body: an answer with the status %d has none", m.RespondStatus)
	case m.RespondBody == "":
		return &givenAnswer{Status: m.RespondStatus}, nil
	}
	contentType := "text/plain; charset=utf-8"
	if json.Valid([]byte(m.RespondBody)) {
		contentType = "application/json"
	}
	return &givenAnswer{m.RespondStatus, contentType, []byte(m.RespondBody)}, nil
}
