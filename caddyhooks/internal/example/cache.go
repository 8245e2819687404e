package example

import (
	"sync"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/contract"
)

// A Cache makes examples and keeps them by the bytes of their schemas. The zero value is ready to use, by many goroutines
// at once.
type Cache struct {
	mu       sync.Mutex
	examples map[string][]byte
	size     int // bytes
}

const (
	maxCacheBytes = 16 << 20
	entryBytes    = 256 // of an entry, beside its schema and example
)

// Make compiles a schema and returns [Of] it, unless the cache has the example.
func (c *Cache) Make(schema []byte) ([]byte, error) {
	c.mu.Lock()
	example, found := c.examples[string(schema)]
	c.mu.Unlock()
	if found {
		return example, nil
	}
	compiled, err := contract.Compile(schema)
	if err != nil {
		return nil, err
	}
	example = Of(compiled)
	c.keep(string(schema), example)
	return example, nil
}

func (c *Cache) keep(schema string, example []byte) {
	size := entryBytes + len(schema) + len(example)
	if size > maxCacheBytes/16 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, found := c.examples[schema]; found {
		return // another goroutine was faster
	}
	if c.examples == nil || c.size+size > maxCacheBytes {
		c.examples, c.size = make(map[string][]byte), 0
	}
	c.examples[schema] = example
	c.size += size
}
