package channels

import (
	"os"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

func TestMain(m *testing.M) { os.Exit(realtest.Main(m)) }
