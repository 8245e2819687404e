package contract

import (
	"bytes"
	"container/list"
	"sync"
)

// A Cache keeps compiled schemas by their bytes, the most recently used ones. With it, the schema of a mapping is compiled
// once, and the schema of a request is not compiled again by the worker. The zero value is ready to use, by many
// goroutines at once.
type Cache struct {
	mu      sync.Mutex
	entries map[string]*list.Element
	recent  list.List // of *cacheEntry, used last first
	weight  int
}

type cacheEntry struct {
	raw    string
	schema *Schema
}

const (
	maxCacheEntries = 1024
	maxCacheBytes   = 64 << 20
)

// Compile is [Compile], unless the cache has the schema.
func (c *Cache) Compile(raw []byte) (*Schema, error) {
	raw = bytes.TrimSpace(raw)
	if s := c.find(raw); s != nil {
		return s, nil
	}
	s, err := Compile(raw)
	if err != nil {
		return nil, err
	}
	c.keep(string(raw), s)
	return s, nil
}

func (c *Cache) find(raw []byte) *Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.entries[string(raw)]
	if element == nil {
		return nil
	}
	c.recent.MoveToFront(element)
	return element.Value.(*cacheEntry).schema
}

func (c *Cache) keep(raw string, s *Schema) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[raw] != nil {
		return // another goroutine was faster
	}
	if c.entries == nil {
		c.entries = make(map[string]*list.Element)
	}
	c.entries[raw] = c.recent.PushFront(&cacheEntry{raw, s})
	c.weight += s.weight
	for c.recent.Len() > maxCacheEntries || c.weight > maxCacheBytes {
		oldest := c.recent.Remove(c.recent.Back()).(*cacheEntry)
		delete(c.entries, oldest.raw)
		c.weight -= oldest.schema.weight
	}
}
