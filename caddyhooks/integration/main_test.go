package integration

import (
	"os"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

func TestMain(m *testing.M) {
	os.Exit(hookstest.RunTests(m))
}
