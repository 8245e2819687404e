//go:build !linux

package supervise

import (
	"os"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

func (p *Process) begin(order wrapper.Order, files []*os.File) (watch, error) {
	return p.beginGroup(order, files)
}
