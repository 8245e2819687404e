package local

import "github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"

// PastQuery makes records as Past returns them.
var PastQuery = &engine.Query{Input: true, Replies: true}
