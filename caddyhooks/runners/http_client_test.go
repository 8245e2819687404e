package runners

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/runnertest"
)

// authority makes certificates for tests.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.make("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// make writes <name>.pem and <name>.key.
func (a *authority) make(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	template.SerialNumber, template.Subject = big.NewInt(a.n), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", keyDER)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) write(name, kind string, der []byte) {
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// serve starts a server called agent.internal, which answers with the name of its client.
func (a *authority) serve() *httptest.Server {
	a.t.Helper()
	a.make("server", &x509.Certificate{DNSNames: []string{"agent.internal"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	a.make("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	cert, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	a.t.Cleanup(server.Close)
	return server
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	server := a.serve()
	addr := server.Listener.Addr().String()
	url := fmt.Sprintf("http https://%s/turn {\n", addr)
	ca, name := "tls_ca "+a.file("ca.pem")+"\n", "tls_server_name agent.internal\n"
	auth := "tls_client_auth " + a.file("client.pem") + " " + a.file("client.key") + "\n"
	proxy := func(options string) string {
		return "http /turn {\n reverse_proxy https://" + addr + " {\n transport http {\n" + options + "}\n }\n}"
	}
	for what, tc := range map[string]struct {
		block string
		good  bool
	}{
		"by URL":                         {url + ca + name + auth + "}", true},
		"by URL, whoever the server is":  {url + "tls_insecure_skip_verify\n" + auth + "}", true},
		"by URL, another name":           {url + ca + auth + "}", false},
		"by URL, unknown authority":      {url + name + auth + "}", false},
		"by URL, without a certificate":  {url + ca + name + "}", false},
		"by path":                        {proxy("tls_trust_pool file " + a.file("ca.pem") + "\n" + name + auth), true},
		"by path, unknown authority":     {proxy(name + auth), false},
		"by path, without a certificate": {proxy("tls_trust_pool file " + a.file("ca.pem") + "\n" + name), false},
	} {
		t.Run(what, func(t *testing.T) {
			reply, err := newRouted(t, tc.block).Run(t.Context(), runnertest.ExampleTurn())
			if tc.good && (err != nil || reply.Text != "client") {
				t.Errorf("got %q, %v", reply.Text, err)
			}
			var unavailable *engine.UnavailableError
			if !tc.good && err == nil {
				t.Errorf("got %q", reply.Text)
			}
			// With TLS 1.3, a client learns that its certificate is missing when it has sent the request.
			if !tc.good && !strings.Contains(what, "without a certificate") && !errors.As(err, &unavailable) {
				t.Errorf("got %v, which is not tried again", err)
			}
		})
	}
}

func TestErrorsNameTheFilesOfTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.make("one", new(x509.Certificate))
	a.make("two", new(x509.Certificate))
	none := a.file("none.pem")
	for options, want := range map[string]string{
		"tls_ca " + none:                                                 "runner http: reading tls_ca: open " + none + ": no such file or directory",
		"tls_ca " + a.file("one.key"):                                    "runner http: tls_ca " + a.file("one.key") + " holds no certificate in PEM form",
		"tls_client_auth " + none + " " + a.file("one.key"):              "runner http: reading tls_client_auth: open " + none + ": no such file or directory",
		"tls_client_auth " + a.file("one.pem") + " " + none:              "runner http: reading tls_client_auth: open " + none + ": no such file or directory",
		"tls_client_auth " + a.file("one.pem") + " " + a.file("two.key"): "runner http: tls_client_auth " + a.file("one.pem") + " " + a.file("two.key") + ": private key does not match public key",
	} {
		if _, err := tryRouted(t, "http https://agent.example {\n"+options+"\n}"); err == nil || err.Error() != want {
			t.Errorf("%s: got %v", options, err)
		}
	}
}

func TestHeadersOfTheOperator(t *testing.T) {
	t.Setenv("RUNNERS_TEST_KEY", "key-from-the-environment")
	t.Setenv("RUNNERS_TEST_BROKEN", "two\nlines")
	var header http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		w.WriteHeader(500)
		_, _ = fmt.Fprintln(w, r.Header["X-Api-Key"], r.Header["Authorization"], r.Header["X-Team"])
	}))
	defer server.Close()
	h := newRouted(t, "http "+server.URL+" {\n header x-api-key {env.RUNNERS_TEST_KEY}\n header Authorization \"Bearer short\"\n header X-Team blue\n}")
	_, err := h.Run(t.Context(), runnertest.ExampleTurn())
	if err == nil || err.Error() != "the runner answered 500: [REDACTED] [REDACTED] [blue]" {
		t.Errorf("got %v", err)
	}
	for name, want := range map[string]string{"X-Api-Key": "key-from-the-environment", "Authorization": "Bearer short", "X-Team": "blue", "Content-Type": "application/json"} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if got := h.Redact("the token short of key-from-the-environment"); got != "the token REDACTED of REDACTED" {
		t.Errorf("redacted to %s", got)
	}
	for value, want := range map[string]string{
		"{env.RUNNERS_TEST_UNSET}":  "runner http: the value of header X-A names the environment variable RUNNERS_TEST_UNSET, which is not set",
		"{env.RUNNERS_TEST_BROKEN}": "runner http: the value of header X-A is blank, or has characters in it that cannot be sent",
	} {
		if _, err := tryRouted(t, "http "+server.URL+" {\n header X-A "+value+"\n}"); err == nil || err.Error() != want {
			t.Errorf("%s: got %v", value, err)
		}
	}
}

func TestJSONOfHTTPThatIsRefused(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{"url":"http://a.example","path":"/a","routes":[{"handle":[{"handler":"static_response"}]}]}`: "runner http takes a URL or a path, not both",
		`{"path":"/a"}`: "runner http with a path needs a directive that answers, as in: reverse_proxy 127.0.0.1:9000",
		`{"path":"a","routes":[{"handle":[{"handler":"static_response"}]}]}`:                        "the path of runner http must begin with / and be one that a request can have",
		`{"routes":[{"handle":[{"handler":"static_response"}]}]}`:                                   "runner http: routes need a path",
		`{"path":"/a","headers":{"X-A":"b"},"routes":[{"handle":[{"handler":"static_response"}]}]}`: "runner http: headers and tls options go with a URL; with a path, the routes see to both",
		`{"url":"http://a.example","tls_server_name":"b"}`:                                          "runner http: tls options need a URL that starts with https://",
		`{"url":"https://a.example","tls_client_cert":"b"}`:                                         "runner http: tls_client_cert and tls_client_key go together",
		`{"url":"https://a.example","idle_timeout":-1}`:                                             "runner http: idle_timeout must not be negative",
		`{"url":"https://a.example","headers":{"X-A":"b","x-a":"c"}}`:                               "runner http: header X-A is set already",
		`{"url":"https://a.example","headers":{"Host":"b"}}`:                                        "runner http: header Host is set by the runner itself",
		`{"url":"https://a.example","headers":{"a b":"b"}}`:                                         "runner http: the name of a header must consist of letters, digits and dashes",
		`{"url":"https://a.example","token":"a","headers":{"authorization":"b"}}`:                   "runner http: token and header Authorization are the same header; use one of them",
		`{"url":"https://a.example","routes":[{"handle":[{"handler":"static_response"}]}]}`:         "runner http: routes need a path",
		`{"path":"/a","routes":[{"handle":[{"handler":"no_such"}]}]}`:                               "runner http: route 0: loading handler modules: position 0: loading module 'no_such': unknown module: http.handlers.no_such",
	} {
		h := new(HTTP)
		if err := json.Unmarshal([]byte(config), h); err != nil {
			t.Fatal(err)
		}
		base, err := caddyContext()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := caddy.NewContext(base)
		adapting.Lock()
		err = h.Provision(ctx)
		adapting.Unlock()
		if err == nil {
			err = h.Validate()
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", config, err, want)
		}
		if err := h.Cleanup(); err != nil {
			t.Error(err)
		}
		cancel()
	}
}
