package caddyhooks

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestFailureOfTheStoreIsLoggedAndNotTold(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	w := httptest.NewRecorder()
	writeError(w, new(http.Request), answerTo(errors.New("storing a run: no space left on /secret/path"), zap.New(core)))
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if logs.Len() != 1 || !strings.Contains(logs.All()[0].ContextMap()["error"].(string), "no space left") {
		t.Errorf("logged %v", logs.All())
	}

	answerTo(errUnknownHook, zap.New(core))
	if logs.Len() != 1 {
		t.Errorf("an error of the caller's was logged: %v", logs.All())
	}
}
