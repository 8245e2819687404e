package caddyhooks

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestAHeaderThatNamesTheOperatorIsLogged(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]string{
		"{http.request.header.Remote-User}":         "Remote-User",
		"{env.TEAM}/{http.request.header.X-Person}": "X-Person",
		defaultUser:            "",
		"operator":             "",
		"{http.vars.operator}": "",
	} {
		core, logs := observer.New(zap.InfoLevel)
		(&Dashboard{User: user, log: zap.New(core)}).noteUserHeader()
		got := ""
		for _, line := range logs.All() {
			got += line.ContextMap()["header"].(string)
		}
		if got != want {
			t.Errorf("%s: the log names %q, want %q", user, got, want)
		}
	}
}
