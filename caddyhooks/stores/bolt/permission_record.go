package bolt

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// The fields of a permission that an agent asked for.
const (
	permissionKind protowire.Number = iota + 1
	permissionTitle
	permissionAnswer
)

// encodePermission writes down a permission, as a part of the record of a run.
func encodePermission(p *engine.Permission) []byte {
	e := encoder{data: make([]byte, 0, p.Size())}
	e.text(permissionKind, p.Kind)
	e.text(permissionTitle, p.Title)
	e.text(permissionAnswer, p.Answer)
	return e.data
}

// decodePermission reads what encodePermission wrote.
func decodePermission(data []byte) (p engine.Permission, err error) {
	err = eachField(data, func(n protowire.Number, f field) bool {
		switch n {
		case permissionKind:
			p.Kind = f.text()
		case permissionTitle:
			p.Title = f.text()
		case permissionAnswer:
			p.Answer = f.text()
		}
		return true
	})
	return p, err
}
