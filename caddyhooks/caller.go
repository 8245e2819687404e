package caddyhooks

import (
	"context"
	"net/http"
)

// caller is who calls the admin API, and by which door: the admin endpoint, or a dashboard.
type caller struct {
	by        string // the operator
	via       string // the door
	address   string
	hideTexts bool // lists show nothing of what runs were told and answered
}

type callerKey struct{}

// withCaller lets a request be one of a caller that a dashboard knows.
func withCaller(r *http.Request, c caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// callerFrom is the caller of a request to the admin API.
func callerFrom(r *http.Request) caller {
	if c, ok := r.Context().Value(callerKey{}).(caller); ok {
		return c
	}
	return caller{by: "admin", via: "admin API", address: adminAddress(r)}
}

// String says to operators who that is, in the log and in the record of a run.
func (c caller) String() string {
	if c.by == "admin" {
		return callerOf("the "+c.via, c.address)
	}
	return callerOf(c.by, c.address)
}
