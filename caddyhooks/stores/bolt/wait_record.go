package bolt

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// The fields of a wait.
const (
	waitDue protowire.Number = iota + 1
	waitTimes
	waitFor
)

func encodeWait(wait local.Wait) []byte {
	e := newEncoder(64 + len(wait.For))
	e.time(waitDue, wait.Due)
	e.number(waitTimes, int64(wait.Times))
	e.text(waitFor, wait.For)
	return e.data
}

func decodeWait(key, data []byte) (wait local.Wait, err error) {
	err = fieldsOf(key, data, func(n protowire.Number, f field) bool {
		switch n {
		case waitDue:
			wait.Due = f.time()
		case waitTimes:
			wait.Times = f.int()
		case waitFor:
			wait.For = f.text()
		}
		return true
	})
	return wait, err
}
