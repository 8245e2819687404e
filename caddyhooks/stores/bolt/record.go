package bolt

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/pages"
)

// Runs and deliveries are written as a checksum, of their key too, and then numbered fields, as protocol buffers have them. A field that is
// not there has its zero value, and one of an unknown number is passed over, so fields can be added. A number must never
// be used for something else.

var (
	errDamaged = pages.ErrDamaged
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// encoder collects the fields of a record.
type encoder struct {
	data     []byte
	accepted time.Time // when the run was, from which its steps are counted
}

func newEncoder(size int) *encoder { return &encoder{data: make([]byte, 4, 4+size)} }

// scratch has the memory of records that were written. Most records of a run are of a similar size.
var scratch = sync.Pool{New: func() any { return new([scratchSize]byte) }}

const scratchSize = 2048

// newScratchEncoder is newEncoder for a record that recycle is called for.
func newScratchEncoder(size int) *encoder {
	if 4+size > scratchSize {
		return newEncoder(size)
	}
	return &encoder{data: scratch.Get().(*[scratchSize]byte)[:4]}
}

// recycle takes the memory of a record that nobody reads any more.
func recycle(record []byte) {
	if cap(record) == scratchSize {
		scratch.Put((*[scratchSize]byte)(record[:scratchSize]))
	}
}

func (e *encoder) text(n protowire.Number, s string) {
	if s != "" {
		e.data = protowire.AppendString(protowire.AppendTag(e.data, n, protowire.BytesType), s)
	}
}

// bytes writes a field that is there, though it may be empty.
func (e *encoder) bytes(n protowire.Number, b []byte) {
	if b != nil {
		e.data = protowire.AppendBytes(protowire.AppendTag(e.data, n, protowire.BytesType), b)
	}
}

func (e *encoder) number(n protowire.Number, v int64) {
	if v != 0 {
		e.data = protowire.AppendVarint(protowire.AppendTag(e.data, n, protowire.VarintType), uint64(v))
	}
}

func (e *encoder) flag(n protowire.Number, v bool) { e.number(n, int64(protowire.EncodeBool(v))) }

func (e *encoder) time(n protowire.Number, t time.Time) {
	if !t.IsZero() {
		e.number(n, t.UnixNano())
	}
}

// put writes a field by the type of what at points to. What is zero is left out; a list is a field for each of its values.
func (e *encoder) put(n protowire.Number, at any) {
	switch at := at.(type) {
	case *string:
		e.text(n, *at)
	case *[]byte:
		e.bytes(n, *at)
	case *bool:
		e.flag(n, *at)
	case *int:
		e.number(n, int64(*at))
	case *int64:
		e.number(n, *at)
	case *uint32:
		e.number(n, int64(*at))
	case *time.Duration:
		e.number(n, int64(*at))
	case *time.Time:
		e.time(n, *at)
	case *uuid.UUID:
		e.bytes(n, at[:])
	case *[]string:
		for _, text := range *at {
			e.bytes(n, []byte(text))
		}
	case []int64:
		e.counts(n, at)
	case *hookMinutes:
		for _, hook := range *at {
			e.bytes(n, hook)
		}
	case **engine.Key:
		e.key(n, *at)
	case *[]engine.Sibling:
		e.siblings(*at)
	case *[]engine.Permission:
		for i := range *at {
			e.bytes(n, encodePart(permissionFields(&(*at)[i])))
		}
	case *[]engine.Use:
		for i := range *at {
			e.bytes(n, encodePart(useFields(&(*at)[i])))
		}
	case *[]engine.Step:
		for i := range *at {
			e.bytes(n, encodeStep(&(*at)[i], e.accepted))
		}
	case *[]engine.Attempt:
		for i := range *at {
			e.bytes(n, encodePart(attemptFields(&(*at)[i])))
		}
	default:
		panic(fmt.Sprintf("a field of type %T cannot be written", at))
	}
}

// encodeFields writes a record, given as pointers to its fields. The number of each is its place, from 1 on.
func encodeFields(e *encoder, fields []any) []byte {
	for i, at := range fields {
		e.put(protowire.Number(i+1), at)
	}
	return e.data
}

// encodePart writes a record that is a part of another one, whose checksum it shares.
func encodePart(fields []any) []byte {
	return encodeFields(&encoder{data: make([]byte, 0, 32)}, fields)
}

// decodeFields reads what encodeFields wrote.
func decodeFields(key, record []byte, fields []any) error {
	var partErr error
	err := fieldsOf(key, record, fieldsInto(fields, &partErr))
	return cmp.Or(err, partErr)
}

// decodePart reads what encodePart wrote.
func decodePart(data []byte, fields []any) error {
	var partErr error
	err := eachField(data, fieldsInto(fields, &partErr))
	return cmp.Or(err, partErr)
}

func fieldsInto(fields []any, err *error) func(n protowire.Number, f field) bool {
	return func(n protowire.Number, f field) bool {
		if int(n) <= len(fields) {
			*err = f.into(fields[n-1], nil)
		}
		return *err == nil
	}
}

// seal puts the checksum into a record that is to be stored at a key.
func seal(key, record []byte) []byte {
	binary.BigEndian.PutUint32(record, checksum(key, record))
	return record
}

func checksum(key, record []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, record[4:])
}

// field is one field of a record, valid as long as the record.
type field struct {
	bytes  []byte
	number uint64
}

func (f field) text() string            { return string(f.bytes) }
func (f field) copy() []byte            { return append([]byte{}, f.bytes...) }
func (f field) int() int                { return int(f.number) }
func (f field) flag() bool              { return f.number != 0 }
func (f field) duration() time.Duration { return time.Duration(f.number) }
func (f field) time() time.Time         { return time.Unix(0, int64(f.number)) }

// into puts a field where at points to, by its type. A step belongs to a run, of which the time of acceptance was read before.
func (f field) into(at any, run *engine.Run) (err error) {
	switch at := at.(type) {
	case *string:
		*at = f.text()
	case *[]byte:
		*at = f.copy()
	case *bool:
		*at = f.flag()
	case *int:
		*at = f.int()
	case *int64:
		*at = int64(f.number)
	case *uint32:
		*at = uint32(f.number)
	case *time.Duration:
		*at = f.duration()
	case *time.Time:
		*at = f.time()
	case *uuid.UUID:
		if len(f.bytes) == len(at) {
			*at = uuid.UUID(f.bytes)
		}
	case *[]string:
		*at = append(*at, f.text())
	case []int64:
		f.counts(at)
	case *hookMinutes:
		*at = append(*at, f.bytes)
	case **engine.Key:
		copy(keyOf(at).ID[:], f.bytes)
	case *[]engine.Sibling:
		if sibling, ok := siblingOf(f.bytes); ok {
			*at = append(*at, sibling)
		}
	case *[]engine.Permission:
		var p engine.Permission
		err = decodePart(f.bytes, permissionFields(&p))
		*at = append(*at, p)
	case *[]engine.Use:
		var use engine.Use
		err = decodePart(f.bytes, useFields(&use))
		*at = append(*at, use)
	case *[]engine.Step:
		var step engine.Step
		step, err = decodeStep(f.bytes, run.AcceptedAt)
		*at = append(*at, step)
	case *[]engine.Attempt:
		var a engine.Attempt
		err = decodePart(f.bytes, attemptFields(&a))
		*at = append(*at, a)
	}
	return err
}

// fieldsOf checks the record at a key and gives its fields to each, until that reports false.
func fieldsOf(key, record []byte, each func(n protowire.Number, f field) bool) error {
	if len(record) < 4 || binary.BigEndian.Uint32(record) != checksum(key, record) {
		return errDamaged
	}
	return uncheckedFieldsOf(record, each)
}

// uncheckedFieldsOf is fieldsOf without a look at the checksum, and so at all of a long record.
func uncheckedFieldsOf(record []byte, each func(n protowire.Number, f field) bool) error {
	if len(record) < 4 {
		return errDamaged
	}
	return eachField(record[4:], each)
}

// eachField gives the fields in data to each, until that reports false.
func eachField(data []byte, each func(n protowire.Number, f field) bool) error {
	for rest := data; len(rest) > 0; {
		n, kind, size := protowire.ConsumeTag(rest)
		if size < 0 {
			return errDamaged
		}
		rest = rest[size:]
		var f field
		switch kind {
		case protowire.BytesType:
			f.bytes, size = protowire.ConsumeBytes(rest)
		case protowire.VarintType:
			f.number, size = protowire.ConsumeVarint(rest)
		default:
			size = protowire.ConsumeFieldValue(n, kind, rest)
		}
		if size < 0 {
			return errDamaged
		}
		rest = rest[size:]
		if !each(n, f) {
			return nil
		}
	}
	return nil
}
