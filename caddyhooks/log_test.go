package caddyhooks_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// newLoggedServer is a Caddy whose log can be read.
func newLoggedServer(t *testing.T) (s *hookstest.Server, log func() string) {
	t.Helper()
	s = hookstest.NewServer(t)
	file := filepath.Join(t.TempDir(), "caddy.log")
	s.Globals = "log {\n output file " + file + "\n level DEBUG\n}"
	return s, func() string {
		data, _ := os.ReadFile(file)
		return string(data)
	}
}
