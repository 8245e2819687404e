// Package pages looks at the pages of a bbolt file before the database does. It knows the format of pages, and imports nothing of this
// project.
package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// ErrDamaged is what is wrong with a file.
var ErrDamaged = errors.New("the record is damaged")

// File is an open file, as a transaction left it.
type File struct {
	io.ReaderAt
	PageSize int
	TxID     int
}

// Check looks at every page that is in use, and at the list of free ones. The database trusts what it finds: a key
// that is out of order, or a page that is listed as free though it is in use, would have it lose what is written later, and
// a page that refers to itself would take the process down. After this check it finds nothing of that kind. keySizes are the
// lengths of the keys in buckets where all have the same.
func (f File) Check(keySizes map[string]int) error {
	c := &pageCheck{file: f, pageSize: f.PageSize, keySizes: keySizes}
	root, freelist, err := c.meta(uint64(f.TxID))
	if err != nil {
		return err
	}
	c.used = make([]uint64, c.high/64+1)
	if _, err := c.page(root, place{isRoot: true}); err != nil {
		return err
	}
	return c.freelist(freelist)
}

type pageCheck struct {
	file     io.ReaderAt
	pageSize int
	keySizes map[string]int
	high     uint64   // no page is as high as this
	used     []uint64 // a bit for each page that something refers to
	buffers  [][]byte // one for each level of a tree, for all its pages
}

const (
	pageHeader    = 16
	elementHeader = 16
	bucketHeader  = 16
	branchFlag    = 1
	leafFlag      = 2
	freelistFlag  = 16
	bucketFlag    = 1
	noFreelist    = ^uint64(0)
)

// place is where a page is in a tree.
type place struct {
	isRoot   bool   // of the tree whose entries are the buckets
	level    int    // pages above it
	keySize  int    // 0 is any
	min, max []byte // its first key is min, and all are below max; nil is no bound
}

// meta finds the meta page of a transaction, and notes how high pages are.
func (c *pageCheck) meta(txID uint64) (root, freelist uint64, err error) {
	const sumAt = 56
	meta := make([]byte, sumAt+8)
	for n := range 2 {
		if _, err := c.file.ReadAt(meta, int64(n*c.pageSize)+pageHeader); err != nil {
			return 0, 0, err
		}
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:sumAt]) // never fails
		if binary.NativeEndian.Uint64(meta[48:]) == txID && binary.NativeEndian.Uint64(meta[sumAt:]) == sum.Sum64() {
			c.high = binary.NativeEndian.Uint64(meta[40:])
			return binary.NativeEndian.Uint64(meta[16:]), binary.NativeEndian.Uint64(meta[32:]), nil
		}
	}
	return 0, 0, ErrDamaged
}

// read reads a page as a whole, into a buffer that the next page of its level takes over, and notes that it is in use.
func (c *pageCheck) read(id uint64, level int) (data []byte, err error) {
	if id < 2 || id >= c.high {
		return nil, badPage(id, "does not exist")
	}
	if level == len(c.buffers) {
		c.buffers = append(c.buffers, make([]byte, c.pageSize))
	}
	data = c.buffers[level][:c.pageSize]
	if _, err := c.file.ReadAt(data, int64(id)*int64(c.pageSize)); err != nil {
		return nil, err
	}
	size := uint64(binary.NativeEndian.Uint32(data[12:])) + 1
	if binary.NativeEndian.Uint64(data) != id || size > c.high-id {
		return nil, badPage(id, "is not what it should be")
	}
	for n := range size {
		if err := c.use(id + n); err != nil {
			return nil, err
		}
	}
	if size > 1 {
		whole := int(size) * c.pageSize
		if cap(data) < whole {
			data = append(make([]byte, 0, whole), data...)
			c.buffers[level] = data
		}
		data = data[:whole]
		if _, err := c.file.ReadAt(data[c.pageSize:], int64(id+1)*int64(c.pageSize)); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// use notes that something refers to a page.
func (c *pageCheck) use(id uint64) error {
	if c.used[id/64]&(1<<(id%64)) != 0 {
		return badPage(id, "is in two places")
	}
	c.used[id/64] |= 1 << (id % 64)
	return nil
}

func badPage(id uint64, what string) error { return fmt.Errorf("%w: page %d %s", ErrDamaged, id, what) }

// page checks a page and what is below it, and returns its last key.
func (c *pageCheck) page(id uint64, at place) (last []byte, err error) {
	data, err := c.read(id, at.level)
	if err != nil {
		return nil, err
	}
	return c.entries(id, data, at)
}

// entries checks the contents of a page, or of a bucket that is so small that it is in its parent's page.
func (c *pageCheck) entries(id uint64, data []byte, at place) (last []byte, err error) {
	flags, count := binary.NativeEndian.Uint16(data[8:]), int(binary.NativeEndian.Uint16(data[10:]))
	if flags != branchFlag && flags != leafFlag || count == 0 && (flags == branchFlag || at.min != nil) {
		return nil, badPage(id, "is not what it should be")
	}
	if pageHeader+count*elementHeader > len(data) {
		return nil, badPage(id, "has too many entries")
	}
	u32 := func(at int) uint64 { return uint64(binary.NativeEndian.Uint32(data[at:])) }
	// entry returns an entry, if it begins where the one before it ends.
	entry := func(i int, begin uint64) (key, value []byte, end uint64, ok bool) {
		header := pageHeader + i*elementHeader
		pos, keySize, valueSize := u32(header), u32(header+4), uint64(0)
		if flags == leafFlag {
			pos, keySize, valueSize = u32(header+4), u32(header+8), u32(header+12)
		}
		end = begin + keySize + valueSize
		if uint64(header)+pos != begin || end > uint64(len(data)) {
			return nil, nil, 0, false
		}
		return data[begin:][:keySize], data[begin+keySize : end], end, true
	}
	begin := uint64(pageHeader + count*elementHeader)
	for i := range count {
		key, value, end, ok := entry(i, begin)
		if !ok {
			return nil, badPage(id, "has an entry that is not where it should be")
		}
		begin = end
		if i == 0 && at.min != nil && !bytes.Equal(key, at.min) || i > 0 && bytes.Compare(last, key) >= 0 ||
			at.max != nil && bytes.Compare(key, at.max) >= 0 {
			return nil, badPage(id, "is not in order")
		}
		if len(key) == 0 || at.keySize > 0 && len(key) != at.keySize {
			return nil, badPage(id, "has a key of the wrong length")
		}
		last = key
		header := pageHeader + i*elementHeader
		if flags == branchFlag {
			below := place{isRoot: at.isRoot, level: at.level + 1, keySize: at.keySize, min: key, max: at.max}
			if i+1 < count {
				if below.max, _, _, ok = entry(i+1, begin); !ok {
					return nil, badPage(id, "has an entry that is not where it should be")
				}
			}
			if last, err = c.page(binary.NativeEndian.Uint64(data[header+8:]), below); err != nil {
				return nil, err
			}
			continue
		}
		if isBucket := u32(header) == bucketFlag; isBucket != at.isRoot || !isBucket && u32(header) != 0 {
			return nil, badPage(id, "has an entry of the wrong kind")
		}
		if at.isRoot {
			if err := c.bucket(id, value, place{level: at.level + 1, keySize: c.keySizes[string(key)]}); err != nil {
				return nil, err
			}
		}
	}
	return last, nil
}

// bucket checks a bucket, whose header is in the given page.
func (c *pageCheck) bucket(id uint64, header []byte, at place) error {
	if len(header) < bucketHeader {
		return badPage(id, "has a bucket that is none")
	}
	root := binary.NativeEndian.Uint64(header)
	if root != 0 {
		_, err := c.page(root, at)
		return err
	}
	inline := header[bucketHeader:]
	if len(inline) < pageHeader || binary.NativeEndian.Uint16(inline[8:]) != leafFlag {
		return badPage(id, "has a bucket that is none")
	}
	_, err := c.entries(id, inline, at)
	return err
}

// freelist checks the list of free pages, after all pages in use are known.
func (c *pageCheck) freelist(id uint64) error {
	if id == noFreelist {
		return nil // the database finds out for itself
	}
	data, err := c.read(id, 0)
	if err != nil {
		return err
	}
	count, list := uint64(binary.NativeEndian.Uint16(data[10:])), data[pageHeader:]
	if count == 0xFFFF && len(list) >= 8 {
		count, list = binary.NativeEndian.Uint64(list), list[8:]
	}
	if binary.NativeEndian.Uint16(data[8:]) != freelistFlag || count > uint64(len(list)/8) {
		return badPage(id, "is not what it should be")
	}
	for i := range count {
		free := binary.NativeEndian.Uint64(list[8*i:])
		if free < 2 || free >= c.high {
			return badPage(free, "does not exist")
		}
		if err := c.use(free); err != nil {
			return err
		}
	}
	return nil
}

// FreelistPages returns how many pages the list of free pages takes. The database frees as many of them as it reads in the first one
// with the next transaction: a number that is damaged meanwhile would have it free pages that are in use, or count until there is no
// memory left.
func (f File) FreelistPages() (int, error) {
	c := &pageCheck{file: f, pageSize: f.PageSize}
	_, id, err := c.meta(uint64(f.TxID))
	if err != nil || id == noFreelist {
		return 0, err
	}
	var header [pageHeader]byte
	if _, err := c.file.ReadAt(header[:], int64(id)*int64(c.pageSize)); err != nil {
		return 0, err
	}
	if binary.NativeEndian.Uint64(header[:]) != id || binary.NativeEndian.Uint16(header[8:]) != freelistFlag {
		return 0, badPage(id, "is not what it should be")
	}
	return int(binary.NativeEndian.Uint32(header[12:])) + 1, nil
}
