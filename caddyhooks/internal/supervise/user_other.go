//go:build !unix

package supervise

import (
	"fmt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

func asUser(_ *wrapper.Order, name string) error {
	return fmt.Errorf("running a program as another user (%q) does not work on this system", name)
}
