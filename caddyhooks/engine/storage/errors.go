package storage

import "errors"

var (
	// ErrClaimLost says that a claim does not hold any more.
	ErrClaimLost = errors.New("the claim was lost")

	// ErrUnreachable says that a store on another machine cannot be reached now. Whether a call that changes something was carried out is
	// not known then.
	ErrUnreachable = errors.New("the store cannot be reached")
)

// BrokenError says that a store is broken.
type BrokenError struct {
	Reason string
	Stack  []byte // of the panic that broke it; for the log alone
}

func (e *BrokenError) Error() string { return "the store is broken: " + e.Reason }
