package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Fetch gets a document of at most limit bytes from a URL that callbacks could go to. It follows no redirect and uses no proxy. The
// context bounds its time. Errors are for operators, and quote nothing of the answer.
func (g *Guard) Fetch(ctx context.Context, url string, limit int64) ([]byte, error) {
	if err := g.CheckFetch(url); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, errors.New("the URL is not a valid URL")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "caddy-hooks")
	transport := &http.Transport{
		Proxy:                  nil, // as for callbacks
		DialContext:            g.dial,
		TLSHandshakeTimeout:    connectTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // so that limit is also that of what travels
		DisableKeepAlives:      true, // documents are fetched rarely
		MaxResponseHeaderBytes: 64 << 10,
	}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, errSlow
	case err != nil:
		return nil, errors.New(outcomeOfError(err).Reason)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(outcomeReason("the host", resp.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("the answer is larger than %d bytes", limit)
	case err != nil && ctx.Err() != nil:
		return nil, errSlow
	case err != nil:
		return nil, errors.New("the answer broke off before its end")
	}
	return body, nil
}

var errSlow = errors.New("the answer took too long")
