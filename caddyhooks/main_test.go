package caddyhooks_test

import (
	"os"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	hookstest.RemoveShared() // the program that BenchmarkTurn has built
	os.Exit(code)
}
