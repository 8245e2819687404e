package ingress

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/intake"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// newerSettings returns newer settings than those that a request was checked against, nil if there are none. It looks for
// them only if the request was refused, or ignored, because of the settings.
func newerSettings(in *service.Instance, ctx context.Context, active *settings.Active, err error) *settings.Active {
	if !errors.Is(err, engine.ErrSettingsChanged) && !isBySettings(err) {
		return nil
	}
	if newer := in.UpToDate(ctx, active); newer != active {
		return newer
	}
	return nil
}

// isBySettings reports whether a request was refused, or ignored, because of the settings.
func isBySettings(err error) bool {
	var nothing *noWebhookError
	var refused *settings.RefusedCredential
	var ignored *intake.IgnoredError
	return errors.As(err, &nothing) || errors.As(err, &refused) || errors.As(err, &ignored) || errors.Is(err, errNotFrom)
}

// whyNoHook says why no hook has a name.
func whyNoHook(a *settings.Active, name string) *noWebhookError {
	if a.Problems[settings.Part{Mapping: name}.String()] != "" {
		return errHookLeftOut
	}
	if _, ok := a.Gone[name]; ok {
		return errHookDeleted
	}
	return errUnknownHook
}

// errNotFrom is the answer to a caller from another address.
var errNotFrom = &api.Error{Status: http.StatusForbidden, Message: "This hook is not open to callers from this address.",
	Reason: "the caller's address is in no range of from"}

// reasonOfRefusal is how the request is counted.
func reasonOfRefusal(e *settings.RefusedCredential, throttled bool) observe.AuthReason {
	_, signs := e.Verifier.(auth.Signer)
	switch {
	case throttled:
		return observe.ThrottledClient
	case signs:
		return observe.BadSignature
	default:
		return observe.BadToken
	}
}

// answerToRefused is the answer to the caller.
func answerToRefused(e *settings.RefusedCredential) *api.Error {
	message := e.Wrong
	if e.Verdict.Missing {
		message = e.Missing
	}
	scheme := e.WwwAuthenticate
	if named, ok := e.Verifier.(interface{ Name() string }); ok {
		scheme = named.Name()
	}
	return &api.Error{Status: http.StatusUnauthorized, Header: [2]string{"WWW-Authenticate", scheme}, Message: message,
		Reason: string(e.Verdict.Reason)}
}
