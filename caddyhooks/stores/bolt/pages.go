package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"
)

// checkPages looks at every page that is in use. The database does so too when it opens a file without a list of free
// pages, but in a goroutine of its own, which cannot be kept from taking the process down when something is wrong. This is
// all that we know of the format of its pages.
func checkPages(tx *bbolt.Tx) error {
	file, err := os.Open(tx.DB().Path())
	if err != nil {
		return err
	}
	defer file.Close()
	c := &pageCheck{file: file, pageSize: tx.DB().Info().PageSize, seen: make(map[uint64]bool)}
	root, err := c.root(uint64(tx.ID()))
	if err != nil {
		return err
	}
	return c.bucket(root)
}

type pageCheck struct {
	file     io.ReaderAt
	pageSize int
	high     uint64          // no page is as high as this
	seen     map[uint64]bool // pages that something refers to
}

const (
	pageHeader    = 16
	elementHeader = 16
	branchFlag    = 1
	leafFlag      = 2
	bucketFlag    = 1
)

// root finds the root bucket of a transaction in the meta pages, and how high pages were then.
func (c *pageCheck) root(txID uint64) (root uint64, err error) {
	meta := make([]byte, 64)
	for n := range 2 {
		if _, err := c.file.ReadAt(meta, int64(n*c.pageSize)+pageHeader); err != nil {
			return 0, err
		}
		if binary.NativeEndian.Uint64(meta[48:]) == txID {
			c.high = binary.NativeEndian.Uint64(meta[40:])
			return binary.NativeEndian.Uint64(meta[16:]), nil
		}
	}
	return 0, errDamaged
}

func (c *pageCheck) bucket(root uint64) error {
	if root == 0 {
		return nil // it is in the page of its parent
	}
	_, err := c.page(root, nil, nil)
	return err
}

// page checks a page and what is below it. Its keys are from min on, and below max; nil is no bound. It returns the last.
func (c *pageCheck) page(id uint64, min, max []byte) (last []byte, err error) {
	bad := func(what string) error { return fmt.Errorf("%w: page %d %s", errDamaged, id, what) }
	if id < 2 || id >= c.high {
		return nil, bad("does not exist")
	}
	header := make([]byte, pageHeader)
	if _, err := c.file.ReadAt(header, int64(id)*int64(c.pageSize)); err != nil {
		return nil, err
	}
	flags, count := binary.NativeEndian.Uint16(header[8:]), int(binary.NativeEndian.Uint16(header[10:]))
	size := uint64(binary.NativeEndian.Uint32(header[12:])) + 1
	if binary.NativeEndian.Uint64(header) != id || flags != branchFlag && flags != leafFlag || size > c.high-id || flags == branchFlag && count == 0 {
		return nil, bad("is not what it should be")
	}
	for n := range size {
		if c.seen[id+n] {
			return nil, bad("is in two places")
		}
		c.seen[id+n] = true
	}
	data := make([]byte, size*uint64(c.pageSize))
	if _, err := c.file.ReadAt(data, int64(id)*int64(c.pageSize)); err != nil {
		return nil, err
	}
	if pageHeader+count*elementHeader > len(data) {
		return nil, bad("has too many entries")
	}
	u32 := func(at int) uint64 { return uint64(binary.NativeEndian.Uint32(data[at:])) }
	entry := func(i int) (at int, key, value []byte, ok bool) {
		at = pageHeader + i*elementHeader
		pos, keySize, valueSize := u32(at), u32(at+4), uint64(0)
		if flags == leafFlag {
			pos, keySize, valueSize = u32(at+4), u32(at+8), u32(at+12)
		}
		end := uint64(at) + pos + keySize + valueSize
		if end > uint64(len(data)) {
			return at, nil, nil, false
		}
		return at, data[uint64(at)+pos:][:keySize], data[uint64(at)+pos+keySize : end], true
	}
	last = min
	for i := range count {
		at, key, value, ok := entry(i)
		if !ok {
			return nil, bad("has an entry that goes beyond it")
		}
		if c := bytes.Compare(last, key); last != nil && (c > 0 || c == 0 && i > 0 && flags == leafFlag) || max != nil && bytes.Compare(key, max) >= 0 {
			return nil, bad("is not in order")
		}
		last = key
		switch {
		case flags == branchFlag:
			below := max
			if i+1 < count {
				if _, below, _, ok = entry(i + 1); !ok {
					return nil, bad("has an entry that goes beyond it")
				}
			}
			if last, err = c.page(binary.NativeEndian.Uint64(data[at+8:]), key, below); err != nil {
				return nil, err
			}
		case u32(at) == bucketFlag:
			if len(value) < 16 {
				return nil, bad("has a bucket that is none")
			}
			if err := c.bucket(binary.NativeEndian.Uint64(value)); err != nil {
				return nil, err
			}
		}
	}
	return last, nil
}
