package httpcall

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// ServerTLS is how a runner with a URL that starts with https:// knows the server, and shows who it is itself.
type ServerTLS struct {
	// A PEM file with the certificates of the authorities to trust, instead of the system's.
	TLSCA string `json:"tls_ca,omitempty"`

	// A PEM file with the certificate to show to the server.
	TLSClientCert string `json:"tls_client_cert,omitempty"`

	// A PEM file with the key of that certificate.
	TLSClientKey string `json:"tls_client_key,omitempty"`

	// The name in the server's certificate, if it is not the one in the URL.
	TLSServerName string `json:"tls_server_name,omitempty"`

	// Whether any certificate of the server is accepted. Only for trying things out: the token is then anybody's.
	TLSInsecureSkipVerify bool `json:"tls_insecure_skip_verify,omitempty"`
}

// TLSDirectives are the lines of a block that set the options.
func (s *ServerTLS) TLSDirectives() []caddyconf.Directive {
	return []caddyconf.Directive{
		caddyconf.Set("tls_ca", &s.TLSCA, caddyconf.Text),
		{Word: "tls_client_auth", Read: s.unmarshalClientAuth},
		caddyconf.Set("tls_server_name", &s.TLSServerName, caddyconf.Word),
		caddyconf.Set("tls_insecure_skip_verify", &s.TLSInsecureSkipVerify, caddyconf.Present),
	}
}

func (s *ServerTLS) unmarshalClientAuth(d *caddyfile.Dispenser) error {
	place := *d
	files, err := caddyconf.List(d)
	if err != nil {
		return err
	}
	if len(files) != 2 {
		return place.Err("tls_client_auth takes two PEM files: the certificate and its key")
	}
	s.TLSClientCert, s.TLSClientKey = files[0], files[1]
	return nil
}

// HasTLSOptions reports whether anything is said about TLS.
func (s *ServerTLS) HasTLSOptions() bool { return *s != ServerTLS{} }

// CheckTLS refuses options that have no effect.
func (s *ServerTLS) CheckTLS(address string) error {
	if !caddyconf.HasPlaceholder(address) && !strings.HasPrefix(strings.ToLower(address), "https:") && s.HasTLSOptions() {
		return errors.New("tls options need a URL that starts with https://")
	}
	if s.TLSInsecureSkipVerify && s.TLSCA != "" {
		return errors.New("tls_ca has no effect with tls_insecure_skip_verify")
	}
	return nil
}

// tlsConfig is nil if nothing is said about TLS. Errors name the file.
func (s *ServerTLS) tlsConfig() (*tls.Config, error) {
	if !s.HasTLSOptions() {
		return nil, nil
	}
	repl := caddy.NewReplacer()
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: repl.ReplaceKnown(s.TLSServerName, ""),

		InsecureSkipVerify: s.TLSInsecureSkipVerify, //nolint:gosec // the operator says so
	}
	if s.TLSCA != "" {
		file := repl.ReplaceKnown(s.TLSCA, "")
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading tls_ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls_ca %s holds no certificate in PEM form", file)
		}
	}
	if s.TLSClientCert != "" || s.TLSClientKey != "" {
		cert, err := clientCertificate(repl.ReplaceKnown(s.TLSClientCert, ""), repl.ReplaceKnown(s.TLSClientKey, ""))
		if err != nil {
			return nil, err
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
