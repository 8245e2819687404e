package auth

import (
	"crypto/sha256"
	"sync"
)

// OneBody remembers the bodies of requests whose signature is good for any body, so that it is used for one. Those that became a run need
// not be here, since the store knows them. The zero value remembers none. It knows the last maxOneBody, of this process.
type OneBody struct {
	mu     sync.Mutex
	bodies map[[sha256.Size]byte][sha256.Size]byte // digests, by that of what is signed
	order  [][sha256.Size]byte                     // of the signatures, as they came; a ring when it is full
	oldest int
}

// maxOneBody bounds what is remembered to 2 MB.
const maxOneBody = 10_000

// Allows reports whether a signature was used for no other body.
func (o *OneBody) Allows(signed, body [sha256.Size]byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	first, used := o.bodies[signed]
	return !used || first == body
}

// Note remembers the body of a signature, unless there is one.
func (o *OneBody) Note(signed, body [sha256.Size]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, used := o.bodies[signed]; used {
		return
	}
	if o.bodies == nil {
		o.bodies = make(map[[sha256.Size]byte][sha256.Size]byte)
	}
	if len(o.order) < maxOneBody {
		o.order = append(o.order, signed)
	} else {
		delete(o.bodies, o.order[o.oldest])
		o.order[o.oldest] = signed
		o.oldest = (o.oldest + 1) % maxOneBody
	}
	o.bodies[signed] = body
}
