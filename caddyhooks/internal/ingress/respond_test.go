package ingress

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestFailureOfTheStoreIsForOperatorsAlone(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	w := httptest.NewRecorder()
	answer := answerTo(errors.New("storing a run: no space left on /secret/path"), zap.New(core))
	WriteError(w, new(http.Request), answer)
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if answer.Cause == nil || !strings.Contains(answer.Cause.Error(), "no space left") || logs.Len() != 0 {
		t.Errorf("the cause is %v, logged %v", answer.Cause, logs.All())
	}
}
