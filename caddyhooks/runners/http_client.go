package runners

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// newClient returns the client of a runner with a URL.
func (h *HTTP) newClient() (*http.Client, error) {
	tlsConfig, err := h.tlsConfig()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			TLSClientConfig:     tlsConfig,
			MaxIdleConnsPerHost: 256,
			// Shorter than the five seconds after which Node closes an idle connection: a turn sent into a connection that
			// is being closed is a turn that failed.
			IdleConnTimeout:     4 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true,
		},
		// A redirect would turn the POST into a GET, or carry the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// hasTLSOptions reports whether anything is said about TLS.
func (h *HTTP) hasTLSOptions() bool {
	return h.TLSCA != "" || h.TLSClientCert != "" || h.TLSClientKey != "" || h.TLSServerName != "" || h.TLSInsecureSkipVerify
}

// tlsConfig is nil if nothing is said about TLS. Errors name the file.
func (h *HTTP) tlsConfig() (*tls.Config, error) {
	if !h.hasTLSOptions() {
		return nil, nil
	}
	repl := caddy.NewReplacer()
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: repl.ReplaceKnown(h.TLSServerName, ""),

		InsecureSkipVerify: h.TLSInsecureSkipVerify, //nolint:gosec // the operator says so
	}
	if h.TLSCA != "" {
		file := repl.ReplaceKnown(h.TLSCA, "")
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("runner http: reading tls_ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("runner http: tls_ca %s holds no certificate in PEM form", file)
		}
	}
	if h.TLSClientCert != "" || h.TLSClientKey != "" {
		cert, err := clientCertificate(repl.ReplaceKnown(h.TLSClientCert, ""), repl.ReplaceKnown(h.TLSClientKey, ""))
		if err != nil {
			return nil, fmt.Errorf("runner http: %w", err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

// clientCertificate reads a certificate and its key. Errors of Go about their content do not name the files.
func clientCertificate(certFile, keyFile string) (tls.Certificate, error) {
	if certFile == "" || keyFile == "" {
		return tls.Certificate{}, errors.New("tls_client_cert and tls_client_key go together")
	}
	var files [2][]byte
	for i, file := range []string{certFile, keyFile} {
		var err error
		if files[i], err = os.ReadFile(file); err != nil {
			return tls.Certificate{}, fmt.Errorf("reading tls_client_auth: %w", err)
		}
	}
	cert, err := tls.X509KeyPair(files[0], files[1])
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("tls_client_auth %s %s: %s", certFile, keyFile, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return cert, nil
}

// post sends the request of a turn to the URL.
func (h *HTTP) post(req *http.Request, way *sending) (*http.Response, error) {
	// Redirects are not followed and there are no cookies, so a client would add nothing but work.
	resp, err := h.client.Transport.RoundTrip(req)
	if err != nil {
		return nil, callError(err, way.begun())
	}
	return resp, nil
}

// callError is the error of a turn that has no answer.
func callError(err error, begun bool) error {
	switch {
	case !begun: // whatever the reason
		return &engine.UnavailableError{Err: fmt.Errorf("reaching the runner: %w", err)}
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errNoAnswer
	default:
		return fmt.Errorf("calling the runner: %w", err)
	}
}
