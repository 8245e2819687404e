package channels

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/realtest"
)

// smtpSpec is one server of testdata/smtpd.py, where its fields are explained.
type smtpSpec struct {
	TLS        string            `json:"tls,omitempty"`
	Cert       string            `json:"cert,omitempty"`
	Key        string            `json:"key,omitempty"`
	User       string            `json:"user,omitempty"`
	Password   string            `json:"password,omitempty"`
	Mechanisms []string          `json:"mechanisms,omitempty"`
	UTF8       bool              `json:"utf8,omitempty"`
	On         map[string]string `json:"on,omitempty"`
}

// smtpEvent is something that a server has seen.
type smtpEvent struct {
	Server    int
	Step      string
	TLS       bool
	Helo      string
	Mechanism string
	Message   *receivedMail
}

type receivedMail struct {
	From    string
	To      []string
	Options []string
	Data    []byte
	// How Python's email package reads it.
	Parsed struct {
		From, To, Subject, Text string
		Defects                 []string
	}
}

// smtpServers is a running testdata/smtpd.py.
type smtpServers struct {
	ports []int
	stdin io.Closer
	done  chan struct{} // closed when all events are there

	mu     sync.Mutex
	events []smtpEvent
	news   chan struct{} // closed at the next event
}

// pythonWithSMTP finds an interpreter that has aiosmtpd: the first one on the path need not be the system's.
var pythonWithSMTP = sync.OnceValue(func() string {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import aiosmtpd").Run() == nil {
			return python
		}
	}
	return ""
})

func startSMTP(t *testing.T, specs ...smtpSpec) *smtpServers {
	t.Helper()
	realtest.Needs(t, "Python")
	python := pythonWithSMTP()
	if python == "" {
		t.Fatal("needs Python with aiosmtpd, which is in Debian's python3-aiosmtpd")
	}
	arg, err := json.Marshal(specs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "testdata/smtpd.py", string(arg))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &smtpServers{stdin: stdin, done: make(chan struct{}), news: make(chan struct{})}
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadBytes('\n')
	if err != nil || json.Unmarshal(first, &s.ports) != nil {
		t.Fatalf("the SMTP servers did not start: %q, %v", first, err)
	}
	go func() {
		defer close(s.done)
		for decoder := json.NewDecoder(lines); ; {
			var event smtpEvent
			if decoder.Decode(&event) != nil {
				break
			}
			s.mu.Lock()
			s.events = append(s.events, event)
			close(s.news)
			s.news = make(chan struct{})
			s.mu.Unlock()
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { s.stop() })
	return s
}

// stop ends the servers and returns what each of them has seen.
func (s *smtpServers) stop() [][]smtpEvent {
	_ = s.stdin.Close()
	<-s.done
	seen := make([][]smtpEvent, len(s.ports))
	for _, event := range s.events {
		seen[event.Server] = append(seen[event.Server], event)
	}
	return seen
}

// wait waits until a server comes to a step.
func (s *smtpServers) wait(t *testing.T, step string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		news := s.news
		there := slices.ContainsFunc(s.events, func(e smtpEvent) bool { return e.Step == step })
		s.mu.Unlock()
		if there {
			return
		}
		select {
		case <-news:
		case <-s.done:
			t.Fatalf("the servers ended before %s", step)
		case <-deadline:
			t.Fatalf("no server came to %s", step)
		}
	}
}

func (s *smtpServers) address(i int) string { return fmt.Sprintf("127.0.0.1:%d", s.ports[i]) }

func mailsIn(events []smtpEvent) (mails []*receivedMail) {
	for _, e := range events {
		if e.Message != nil {
			mails = append(mails, e.Message)
		}
	}
	return mails
}

func stepsIn(events []smtpEvent) (steps []string) {
	for _, e := range events {
		if e.Step != "" {
			steps = append(steps, e.Step)
		}
	}
	return steps
}

// testPKI has certificates, as files and, for the good one, loaded.
type testPKI struct {
	root                            string
	good, expired, otherName, rogue struct{ cert, key string }
	loaded                          tls.Certificate
}

func newTestPKI(t *testing.T) *testPKI {
	t.Helper()
	dir := t.TempDir()
	save := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	serial := int64(0)
	issue := func(name string, notAfter time.Time, parent *x509.Certificate, signer *ecdsa.PrivateKey, ips ...net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		serial++
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: ips,
			NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: notAfter,
			IsCA: parent == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		}
		if parent == nil {
			parent, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	later, loopback := time.Now().Add(time.Hour), net.IPv4(127, 0, 0, 1)
	root, rootKey := issue("root.test", later, nil, nil)
	other, otherKey := issue("other.test", later, nil, nil)
	p := &testPKI{root: save("root.pem", "CERTIFICATE", root.Raw)}
	pair := func(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) struct{ cert, key string } {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return struct{ cert, key string }{save(name+".pem", "CERTIFICATE", cert.Raw), save(name+".key", "PRIVATE KEY", der)}
	}
	cert, key := issue("mail.test", later, root, rootKey, loopback)
	p.good = pair("good", cert, key)
	p.loaded = tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
	cert, key = issue("mail.test", time.Now().Add(-24*time.Hour), root, rootKey, loopback)
	p.expired = pair("expired", cert, key)
	cert, key = issue("mail.test", later, root, rootKey)
	p.otherName = pair("other-name", cert, key)
	cert, key = issue("mail.test", later, other, otherKey, loopback)
	p.rogue = pair("rogue", cert, key)
	return p
}

// newEmail sets the channel up as Caddy does.
func newEmail(t *testing.T, e Email) *Email {
	t.Helper()
	if e.From == "" {
		e.From = "Agent <agent@example.com>"
	}
	if e.Timeout == 0 {
		e.Timeout = caddy.Duration(20 * time.Second)
	}
	if err := e.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	return &e
}

func exampleDelivery() *engine.Delivery {
	return &engine.Delivery{
		ID: "msg_0190a1b2c3d47e5f8a9b0c1d2e3f4a5b_1", RunID: "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", ChatID: "hook:1",
		RunStatus: engine.Completed, Channel: "mail", To: "user@example.org", ContentType: "text/plain; charset=utf-8",
		Body: "The backup is done.", CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// readMail parses a message with the standard library, and checks what all messages have in common.
func readMail(t *testing.T, data []byte) (header mail.Header, text string) {
	t.Helper()
	for line := range bytes.SplitSeq(data, []byte("\r\n")) {
		if len(line) > 998 || bytes.ContainsAny(line, "\r\n") {
			t.Errorf("a line of %d bytes: %.120q", len(line), line)
		}
	}
	m, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("net/mail cannot read it: %v\n%s", err, data)
	}
	for name, want := range map[string]string{
		"Mime-Version": "1.0", "Content-Type": "text/plain; charset=utf-8", "Content-Transfer-Encoding": "quoted-printable",
		"Auto-Submitted": "auto-generated",
	} {
		if got := m.Header[name]; len(got) != 1 || got[0] != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
	want := []string{"Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "Message-Id", "Mime-Version",
		"Subject", "To", "X-Service-Run-Id"}
	var names []string
	for name := range m.Header {
		names = append(names, name)
	}
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("got the fields %q", names)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		t.Fatalf("the body is not quoted-printable: %v", err)
	}
	return m.Header, string(body)
}

// asMailed is a text as it comes out of a mail: in lines that end in CRLF.
func asMailed(text string) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return strings.ReplaceAll(text, "\n", "\r\n")
}

func TestEmailArrivesFieldByField(t *testing.T) {
	t.Parallel()
	servers := startSMTP(t, smtpSpec{})
	e := newEmail(t, Email{Server: servers.address(0), TLS: "off", From: `"Ägent, the 2nd" <agent@bücher.example>`,
		Subject: "Antwort für {chat_id}: {status} ({run_id})", Helo: "client.example.com"})
	d := exampleDelivery()
	d.To, d.ChatID = "first.last+tag@BÜCHER.example", "chät\r\nBcc: x@example.net\u202e {run_id}"
	d.Body = "Grüße 🎉\n.\n..dots\nFrom here\n<b>not bold</b>  \n\ttab\r\nlone\rcr " + strings.Repeat("long ", 300) + "\nend"
	if err := e.Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if d.LastStatus != 250 || d.LastAnswer != "2.0.0 queued" {
		t.Errorf("noted %d %q", d.LastStatus, d.LastAnswer)
	}
	seen := servers.stop()[0]
	mails := mailsIn(seen)
	if len(mails) != 1 {
		t.Fatalf("got %d mails", len(mails))
	}
	got := mails[0]
	if got.From != "agent@xn--bcher-kva.example" || !slices.Equal(got.To, []string{"first.last+tag@xn--bcher-kva.example"}) || len(got.Options) != 0 {
		t.Errorf("got the envelope %s → %s, %s", got.From, got.To, got.Options)
	}
	header, text := readMail(t, got.Data)
	if text != asMailed(d.Body) {
		t.Errorf("got the text %q", text)
	}
	subject := "Antwort für chät  Bcc: x@example.net  {run_id}: completed (0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b)"
	if decoded, err := new(mime.WordDecoder).DecodeHeader(header.Get("Subject")); err != nil || decoded != subject {
		t.Errorf("got the subject %q, %v", decoded, err)
	}
	from, err := header.AddressList("From")
	if err != nil || len(from) != 1 || *from[0] != (mail.Address{Name: "Ägent, the 2nd", Address: "agent@xn--bcher-kva.example"}) {
		t.Errorf("got From %v, %v", from, err)
	}
	to, err := header.AddressList("To")
	if err != nil || len(to) != 1 || *to[0] != (mail.Address{Address: "first.last+tag@xn--bcher-kva.example"}) {
		t.Errorf("got To %v, %v", to, err)
	}
	if date, err := header.Date(); err != nil || !date.Equal(d.CreatedAt) {
		t.Errorf("got Date %v, %v", date, err)
	}
	for name, want := range map[string]string{
		"Message-Id":       "<msg_0190a1b2c3d47e5f8a9b0c1d2e3f4a5b_1@xn--bcher-kva.example>",
		"X-Service-Run-Id": "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
	} {
		if header.Get(name) != want {
			t.Errorf("got %s %q, want %q", name, header.Get(name), want)
		}
	}
	// Another implementation reads the same.
	p := got.Parsed
	if p.Subject != subject || p.From != `"Ägent, the 2nd" <agent@xn--bcher-kva.example>` || p.To != "first.last+tag@xn--bcher-kva.example" || len(p.Defects) != 0 {
		t.Errorf("Python reads %+v", p)
	}
	if want := strings.ReplaceAll(asMailed(d.Body), "\r\n", "\n"); strings.ReplaceAll(p.Text, "\r\n", "\n") != want {
		t.Errorf("Python reads the text %q, want %q", p.Text, want)
	}
	if !slices.ContainsFunc(seen, func(e smtpEvent) bool { return e.Helo == "client.example.com" }) {
		t.Errorf("did not greet with the name: %+v", seen)
	}
	if steps := stepsIn(seen); !slices.Equal(steps, []string{"CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "QUIT"}) {
		t.Errorf("got the steps %q", steps)
	}
}

func TestEmailLogsInOverTLS(t *testing.T) {
	pki := newTestPKI(t)
	const user, password = "agent@example.com", "pässword {}!"
	cases := []struct {
		name, tls string
		offered   []string
		want      string
	}{
		{"STARTTLS and PLAIN", "starttls", []string{"CRAM-MD5", "LOGIN", "PLAIN"}, "PLAIN"},
		{"STARTTLS and LOGIN", "starttls", []string{"CRAM-MD5", "LOGIN"}, "LOGIN"},
		{"STARTTLS and CRAM-MD5", "starttls", []string{"CRAM-MD5"}, "CRAM-MD5"},
		{"TLS and PLAIN", "on", []string{"PLAIN", "LOGIN"}, "PLAIN"},
		{"no TLS, and the password is better not said", "off", []string{"CRAM-MD5", "LOGIN", "PLAIN"}, "CRAM-MD5"},
		{"no TLS, and there is no other way", "off", []string{"LOGIN", "PLAIN"}, "PLAIN"},
	}
	var specs []smtpSpec
	for _, c := range cases {
		specs = append(specs, smtpSpec{TLS: c.tls, Cert: pki.good.cert, Key: pki.good.key, User: user, Password: password, Mechanisms: c.offered})
	}
	servers := startSMTP(t, specs...)
	t.Setenv("EMAIL_TEST_PASSWORD", password)
	for i, c := range cases {
		mode := c.tls
		if mode == "starttls" {
			mode = "" // the default
		}
		e := newEmail(t, Email{Server: servers.address(i), TLS: mode, Username: user, Password: "{env.EMAIL_TEST_PASSWORD}", RootCA: []string{pki.root}})
		if err := e.Send(t.Context(), exampleDelivery()); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for i, seen := range servers.stop() {
		c := cases[i]
		if mails := mailsIn(seen); len(mails) != 1 {
			t.Errorf("%s: got %d mails", c.name, len(mails))
		}
		for _, event := range seen {
			if event.Mechanism != "" && event.Mechanism != c.want {
				t.Errorf("%s: logged in with %s", c.name, event.Mechanism)
			}
			if slices.Contains([]string{"AUTH", "MAIL", "RCPT", "DATA"}, event.Step) && event.TLS != (c.tls != "off") {
				t.Errorf("%s: at %s, TLS is %v", c.name, event.Step, event.TLS)
			}
		}
	}
}

// How an attempt can fail.
const (
	again       = "tried again"
	final       = "final"
	unreachable = "unreachable"
	paused      = "all mail waits 30 s"
)

func kindOf(err error) string {
	if _, ok := errors.AsType[*engine.FinalError](err); ok {
		return final
	}
	if _, ok := errors.AsType[*engine.UnreachableError](err); ok {
		return unreachable
	}
	if later, ok := errors.AsType[*engine.RetryLaterError](err); ok {
		if later.WholeChannel && later.After == 30*time.Second {
			return paused
		}
		return fmt.Sprintf("%+v", later)
	}
	return again
}

func TestEmailFailsWithAReason(t *testing.T) {
	// Not parallel: another test could listen on the port that this one leaves.
	pki := newTestPKI(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	on := func(step, what string) smtpSpec { return smtpSpec{On: map[string]string{step: what}} }
	withLogin := smtpSpec{TLS: "starttls", Cert: pki.good.cert, Key: pki.good.key, User: "agent", Password: "right"}
	loginFails := withLogin
	loginFails.On = map[string]string{"AUTH": "454 4.7.0 later"}
	noWay := withLogin
	noWay.Mechanisms = []string{"GSSAPI"}
	plain := Email{TLS: "off"}
	starttls := Email{RootCA: []string{pki.root}}
	secure := Email{TLS: "on", RootCA: []string{pki.root}}
	login := Email{RootCA: []string{pki.root}, Username: "agent", Password: "right"}
	cases := []struct {
		name   string
		spec   smtpSpec
		e      Email
		to     string
		kind   string
		reason string
		status int
		answer string
		last   string // step that the server saw, other than QUIT
	}{
		{"busy at the start", on("CONNECT", "421 4.3.2 busy"), plain, "", paused, "the mail server refused the connection for now (421)", 421, "4.3.2 busy", "CONNECT"},
		{"too many connections", on("CONNECT", "450 4.7.0 too many"), plain, "", paused, "the mail server refused the connection for now (450)", 450, "4.7.0 too many", "CONNECT"},
		{"no service", on("CONNECT", "554 no"), plain, "", final, "the mail server refused the connection (554)", 554, "no", "CONNECT"},
		{"EHLO later", on("EHLO", "451 later"), plain, "", paused, "the mail server refused the greeting for now (451)", 451, "later", "EHLO"},
		{"EHLO refused", on("EHLO", "550 bad name"), plain, "", final, "the mail server refused the greeting (550)", 550, "bad name", "EHLO"},
		{"EHLO later, TLS required", on("EHLO", "451 later"), starttls, "", paused, "the mail server refused the greeting for now (451)", 451, "later", "EHLO"},
		{"EHLO later, in TLS", smtpSpec{TLS: "starttls", Cert: pki.good.cert, Key: pki.good.key, On: map[string]string{"EHLO in TLS": "451 later"}}, starttls, "", paused, "the mail server refused the greeting for now (451)", 451, "later", "EHLO"},
		{"MAIL later", on("MAIL", "451 4.3.0 later"), plain, "", again, "the mail server refused the sender for now (451)", 451, "4.3.0 later", "MAIL"},
		{"MAIL refused", on("MAIL", "553 5.7.1 not you"), plain, "", final, "the mail server refused the sender (553)", 553, "5.7.1 not you", "MAIL"},
		{"RCPT greylisted", on("RCPT", "450 4.2.0 greylisted"), plain, "", again, "the mail server refused the recipient for now (450)", 450, "4.2.0 greylisted", "RCPT"},
		{"RCPT out of space", on("RCPT", "452 4.2.2 full"), plain, "", again, "the mail server refused the recipient for now (452)", 452, "4.2.2 full", "RCPT"},
		{"RCPT refused, in several lines", on("RCPT", "550-5.1.1 no such user\r\n550 5.1.1 really"), plain, "", final, "the mail server refused the recipient (550)", 550, "5.1.1 no such user\n5.1.1 really", "RCPT"},
		{"RCPT, and busy", on("RCPT", "421 4.7.0 slow down"), plain, "", paused, "the mail server refused the recipient for now (421)", 421, "4.7.0 slow down", "RCPT"},
		{"message, and closing", on("DOT", "421 4.3.2 closing"), plain, "", paused, "the mail server refused the message for now (421)", 421, "4.3.2 closing", "DATA"},
		{"DATA later", on("DATA", "421 4.4.2 closing"), plain, "", paused, "the mail server refused the message for now (421)", 421, "4.4.2 closing", "DATA"},
		{"DATA refused", on("DATA", "554 5.5.1 no"), plain, "", final, "the mail server refused the message (554)", 554, "5.5.1 no", "DATA"},
		{"DATA answered with OK", on("DATA", "250 fine"), plain, "", again, "the mail server gave an answer that does not fit the message (250)", 250, "fine", "DATA"},
		{"message later", on("DOT", "451 4.3.0 later"), plain, "", again, "the mail server refused the message for now (451)", 451, "4.3.0 later", "DATA"},
		{"message refused", on("DOT", "552 5.3.4 too big"), plain, "", final, "the mail server refused the message (552)", 552, "5.3.4 too big", "DATA"},
		{"dropped at the start", on("CONNECT", "drop"), plain, "", again, "the connection to the mail server broke", 0, "", "CONNECT"},
		{"dropped at RCPT", on("RCPT", "drop"), plain, "", again, "the connection to the mail server broke", 250, "OK", "RCPT"},
		{"dropped after the dot", on("DOT", "drop"), plain, "", again, "the connection broke before the mail server confirmed the message, which it may have", 354, "End data with <CR><LF>.<CR><LF>", "DOT"},
		{"answers without end", on("EHLO", "flood"), plain, "", again, "what the mail server said is not SMTP", 220, "mail.test test server", "EHLO"},
		{"no SMTP", on("CONNECT", "HTTP/1.1 400 Bad Request"), plain, "", again, "what the mail server said is not SMTP", 0, "", "CONNECT"},

		{"STARTTLS not offered", smtpSpec{}, login, "", final, "the mail server does not offer STARTTLS, and nothing is sent to it in the clear", 250, "", "EHLO"},
		{"STARTTLS later", smtpSpec{TLS: "starttls", Cert: pki.good.cert, Key: pki.good.key, On: map[string]string{"STARTTLS": "454 4.7.0 later"}}, login, "", again, "the mail server refused the start of TLS for now (454)", 454, "4.7.0 later", "STARTTLS"},
		{"STARTTLS dropped", smtpSpec{TLS: "starttls", Cert: pki.good.cert, Key: pki.good.key, On: map[string]string{"STARTTLS": "drop"}}, login, "", again, "the connection to the mail server broke", 250, "", "STARTTLS"},
		{"STARTTLS with nothing behind it", smtpSpec{TLS: "starttls", Cert: pki.good.cert, Key: pki.good.key, On: map[string]string{"STARTTLS": "220 go\r\nabcdef"}}, login, "", unreachable, "the mail server does not speak TLS on this port", 220, "go", "STARTTLS"},
		{"unknown authority", smtpSpec{TLS: "starttls", Cert: pki.rogue.cert, Key: pki.rogue.key}, login, "", unreachable, "the certificate of the mail server comes from an authority that is not trusted; root_ca can name one", 220, "Ready to start TLS", "STARTTLS"},
		{"expired certificate", smtpSpec{TLS: "on", Cert: pki.expired.cert, Key: pki.expired.key}, secure, "", unreachable, "the certificate of the mail server has expired, or is not valid yet", 0, "", ""},
		{"certificate for another name", smtpSpec{TLS: "on", Cert: pki.otherName.cert, Key: pki.otherName.key}, secure, "", unreachable, "the certificate of the mail server is for another name", 0, "", ""},
		{"no TLS on the port", smtpSpec{}, secure, "", unreachable, "the mail server does not speak TLS on this port", 0, "", "CONNECT"},

		{"login later", loginFails, login, "", again, "the mail server refused the login for now (454)", 454, "4.7.0 later", "AUTH"},
		{"no login that is known", noWay, login, "", final, "the mail server offers none of PLAIN, LOGIN and CRAM-MD5 to log in with", 250, "", "EHLO"},
		{"login wanted", withLogin, starttls, "", final, "the mail server refused the sender (530)", 530, "5.7.0 Authentication required", "MAIL"},

		{"non-ASCII address at a server of old", smtpSpec{}, plain, "jürgen@example.org", final, "the mail server takes only ASCII before the @ of an address", 250, "", "EHLO"},
		{"bad address", smtpSpec{}, plain, "a@example.org, b@example.org", final, "before the @ of a mail address stand up to 64 letters, digits and signs like . _ + or -", 0, "", ""},
		{"nobody listens", smtpSpec{}, Email{Server: closed.Addr().String(), TLS: "off"}, "", unreachable, "the mail server refused the connection", 0, "", ""},
	}
	var specs []smtpSpec
	for _, c := range cases {
		specs = append(specs, c.spec)
	}
	servers := startSMTP(t, specs...)
	closed.Close() // not before: a server would take its port
	for i, c := range cases {
		if c.e.Server == "" {
			c.e.Server = servers.address(i)
		}
		d := exampleDelivery()
		if c.to != "" {
			d.To = c.to
		}
		before := *d
		err := newEmail(t, c.e).Send(t.Context(), d)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		if kindOf(err) != c.kind || err.Error() != c.reason {
			t.Errorf("%s: got %s, %q; want %s, %q", c.name, kindOf(err), err, c.kind, c.reason)
		}
		if d.LastStatus != c.status || c.answer != "" && d.LastAnswer != c.answer {
			t.Errorf("%s: noted %d %q, want %d %q", c.name, d.LastStatus, d.LastAnswer, c.status, c.answer)
		}
		d.LastStatus, d.LastAnswer = 0, ""
		if !reflect.DeepEqual(*d, before) {
			t.Errorf("%s: changed the delivery to %+v", c.name, d)
		}
	}
	for i, seen := range servers.stop() {
		steps := stepsIn(seen)
		steps = slices.DeleteFunc(steps, func(s string) bool { return s == "QUIT" })
		last := ""
		if len(steps) > 0 {
			last = steps[len(steps)-1]
		}
		if last != cases[i].last {
			t.Errorf("%s: the server saw %q, want %q to be the last", cases[i].name, steps, cases[i].last)
		}
	}
}

func TestEmailKeepsThePasswordFromErrorsAndAnswers(t *testing.T) {
	t.Parallel()
	pki := newTestPKI(t)
	const password = "pa$$w0rd?>~wrong"
	var specs []smtpSpec
	for _, mechanism := range []string{"PLAIN", "LOGIN", "CRAM-MD5"} {
		specs = append(specs, smtpSpec{TLS: "on", Cert: pki.good.cert, Key: pki.good.key, User: "agent", Password: "right", Mechanisms: []string{mechanism}})
	}
	servers := startSMTP(t, specs...)
	for i := range specs {
		e := newEmail(t, Email{Server: servers.address(i), TLS: "on", RootCA: []string{pki.root}, Username: "agent", Password: password})
		d := exampleDelivery()
		err := e.Send(t.Context(), d)
		if kindOf(err) != final || err.Error() != "the mail server refused the login (535)" {
			t.Errorf("%s: got %v", specs[i].Mechanisms, err)
		}
		if d.LastStatus != 535 || !strings.HasPrefix(d.LastAnswer, "5.7.8 no login with ") || !strings.Contains(d.LastAnswer, "••••") {
			t.Errorf("%s: noted %d %q", specs[i].Mechanisms, d.LastStatus, d.LastAnswer)
		}
		for _, secret := range []string{
			password, base64.RawStdEncoding.EncodeToString([]byte(password)),
			base64.RawStdEncoding.EncodeToString([]byte("\x00agent\x00" + password)),
		} {
			if strings.Contains(d.LastAnswer, secret) {
				t.Errorf("%s: the answer shows %q: %q", specs[i].Mechanisms, secret, d.LastAnswer)
			}
		}
	}
}

func TestEmailKeepsTheBeginningOfALongAnswer(t *testing.T) {
	t.Parallel()
	line := "550-" + strings.Repeat("ü", 200) + "\r\n"
	servers := startSMTP(t, smtpSpec{UTF8: true, On: map[string]string{"RCPT": strings.Repeat(line, 40) + "550 end"}})
	d := exampleDelivery()
	err := newEmail(t, Email{Server: servers.address(0), TLS: "off"}).Send(t.Context(), d)
	if kindOf(err) != final || d.LastStatus != 550 {
		t.Errorf("got %v and status %d", err, d.LastStatus)
	}
	if n := len(d.LastAnswer); n < 4090 || n > 4096 || !utf8.ValidString(d.LastAnswer) {
		t.Errorf("kept %d bytes: %.50q", n, d.LastAnswer)
	}
}

func TestEmailTakesNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	pki := newTestPKI(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	steps := []string{"CONNECT", "EHLO", "STARTTLS", "MAIL", "RCPT", "DATA", "DOT"}
	var specs []smtpSpec
	for _, step := range steps {
		spec := smtpSpec{On: map[string]string{step: "hang"}}
		if step == "STARTTLS" {
			spec.TLS, spec.Cert, spec.Key = "starttls", pki.good.cert, pki.good.key
		}
		specs = append(specs, spec)
	}
	servers := startSMTP(t, specs...)
	var wg sync.WaitGroup
	attempt := func(name string, e Email, kind, reason string) {
		e.Timeout = caddy.Duration(700 * time.Millisecond)
		e.RootCA = []string{pki.root}
		c := newEmail(t, e)
		wg.Go(func() {
			if err := c.Send(t.Context(), exampleDelivery()); err == nil || kindOf(err) != kind || err.Error() != reason {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
	for i, step := range steps {
		e := Email{Server: servers.address(i), TLS: "off"}
		if step == "STARTTLS" {
			e.TLS = "starttls"
		}
		attempt(step, e, unreachable, "the mail server did not take the message within 700ms")
	}
	attempt("no TLS", Email{Server: silent.Addr().String(), TLS: "on"}, unreachable, "connecting to the mail server took too long")
	wg.Wait()
}

func TestEmailStopsWithItsContext(t *testing.T) {
	t.Parallel()
	servers := startSMTP(t, smtpSpec{On: map[string]string{"RCPT": "hang"}})
	e := newEmail(t, Email{Server: servers.address(0), TLS: "off"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Send(ctx, exampleDelivery()) }()
	servers.wait(t, "RCPT")
	cancel()
	select {
	case err := <-done:
		if kindOf(err) != again || err.Error() != "the attempt was stopped before the mail server had the message" {
			t.Errorf("got %v", err)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("still sending")
	}
}

func TestEmailIsDeliveredWhateverBecomesOfTheGoodbye(t *testing.T) {
	t.Parallel()
	goodbyes := []string{"drop", "hang", "500 what", "421 gone"}
	var specs []smtpSpec
	for _, what := range goodbyes {
		specs = append(specs, smtpSpec{On: map[string]string{"QUIT": what}})
	}
	servers := startSMTP(t, specs...)
	for i, what := range goodbyes {
		// Far more time than the goodbye is given.
		e := newEmail(t, Email{Server: servers.address(i), TLS: "off", Timeout: caddy.Duration(time.Hour)})
		if err := e.Send(t.Context(), exampleDelivery()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i, seen := range servers.stop() {
		if len(mailsIn(seen)) != 1 || !slices.Contains(stepsIn(seen), "QUIT") {
			t.Errorf("%s: the server saw %+v", goodbyes[i], seen)
		}
	}
}

func TestEmailIsTheSameInEveryAttempt(t *testing.T) {
	t.Parallel()
	servers := startSMTP(t, smtpSpec{On: map[string]string{"DOT": "drop"}}, smtpSpec{})
	d := exampleDelivery()
	if err := newEmail(t, Email{Server: servers.address(0), TLS: "off"}).Send(t.Context(), d); err == nil || kindOf(err) != again {
		t.Errorf("the first attempt: %v", err)
	}
	d.Attempt, d.TriedAt = 1, time.Now()
	if err := newEmail(t, Email{Server: servers.address(1), TLS: "off"}).Send(t.Context(), d); err != nil {
		t.Errorf("the second attempt: %v", err)
	}
	seen := servers.stop()
	first, second := mailsIn(seen[0]), mailsIn(seen[1])
	if len(first) != 1 || len(second) != 1 || !bytes.Equal(first[0].Data, second[0].Data) {
		t.Errorf("got\n%+v\nand\n%+v", first, second)
	}
}

func TestEmailTakesAnAnswerOfAMegabyteInOnePiece(t *testing.T) {
	t.Parallel()
	pki := newTestPKI(t)
	servers := startSMTP(t, smtpSpec{TLS: "starttls", Cert: pki.good.cert, Key: pki.good.key})
	d := exampleDelivery()
	d.Body = strings.Repeat("日本", 50_000) + "\n" + strings.Repeat(".\n", 50_000) + strings.Repeat("x", 400_000)
	d.Body += strings.Repeat("=", 1<<20-len(d.Body))
	if err := newEmail(t, Email{Server: servers.address(0), RootCA: []string{pki.root}}).Send(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	mails := mailsIn(servers.stop()[0])
	if len(mails) != 1 {
		t.Fatalf("got %d mails", len(mails))
	}
	if _, text := readMail(t, mails[0].Data); text != asMailed(d.Body) {
		t.Errorf("got another text of %d bytes", len(text))
	}
}

func TestEmailGoesToNonASCIIAddressesThroughServersThatTakeThem(t *testing.T) {
	t.Parallel()
	servers := startSMTP(t, smtpSpec{UTF8: true}, smtpSpec{UTF8: true})
	for i, to := range []string{"jürgen@bücher.example", "user@example.org"} {
		d := exampleDelivery()
		d.To = to
		if err := newEmail(t, Email{Server: servers.address(i), TLS: "off"}).Send(t.Context(), d); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	seen := servers.stop()
	mails := slices.Concat(mailsIn(seen[0]), mailsIn(seen[1]))
	if len(mails) != 2 {
		t.Fatalf("got %d mails", len(mails))
	}
	if got := mails[0]; !slices.Equal(got.To, []string{"jürgen@xn--bcher-kva.example"}) || !slices.Equal(got.Options, []string{"BODY=8BITMIME", "SMTPUTF8"}) {
		t.Errorf("got %s with %s", got.To, got.Options)
	}
	header, _ := readMail(t, mails[0].Data)
	if to, err := header.AddressList("To"); err != nil || len(to) != 1 || to[0].Address != "jürgen@xn--bcher-kva.example" {
		t.Errorf("got To %v, %v", to, err)
	}
	if got := mails[1]; len(got.Options) != 0 {
		t.Errorf("asked for %s without need", got.Options)
	}
}

// TestEmailBelievesNothingSaidBeforeTLS talks to a server, or somebody in between, that sends answers ahead with the last
// one before TLS.
func TestEmailBelievesNothingSaidBeforeTLS(t *testing.T) {
	t.Parallel()
	pki := newTestPKI(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	heard := make(chan []string, 1)
	go func() {
		var lines []string
		defer func() { heard <- lines }()
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		hear := func(c net.Conn) bool {
			line, err := bufio.NewReaderSize(c, 512).ReadString('\n')
			lines = append(lines, strings.TrimSpace(line))
			return err == nil
		}
		fmt.Fprint(conn, "220 mail.test\r\n")
		hear(conn)
		fmt.Fprint(conn, "250-mail.test\r\n250-auth plain\r\n250 starttls\r\n")
		hear(conn)
		fmt.Fprint(conn, "220 go\r\n250-mail.test\r\n250 AUTH PLAIN\r\n235 welcome\r\n250 ok\r\n")
		secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pki.loaded}})
		hear(secure)
		fmt.Fprint(secure, "250 mail.test\r\n")
		for hear(secure) {
			fmt.Fprint(secure, "221 bye\r\n")
		}
	}()
	e := newEmail(t, Email{Server: listener.Addr().String(), RootCA: []string{pki.root}, Username: "agent", Password: "secret", Helo: "me"})
	err = e.Send(t.Context(), exampleDelivery())
	if kindOf(err) != final || err.Error() != "the mail server offers none of PLAIN, LOGIN and CRAM-MD5 to log in with" {
		t.Errorf("got %v", err)
	}
	if lines := <-heard; !slices.Equal(lines, []string{"EHLO me", "STARTTLS", "EHLO me", "QUIT", ""}) {
		t.Errorf("the server heard %q", lines)
	}
}

func TestEmailRefusesBlankAnswers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " \r\n\t\n", "\u200b\u2800", "\x00\x07", "\ufeff\u00ad \u3164"} {
		d := exampleDelivery()
		d.Body = text
		err := newEmail(t, Email{Server: "mail.invalid"}).Send(t.Context(), d)
		if kindOf(err) != final || err.Error() != "the answer is blank, and no mail is sent without a text" {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestEmailSaysWhyThereIsNoServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Err: &net.DNSError{Name: "mail.example", Server: "10.0.0.1", IsNotFound: true}}, "the name of the mail server does not exist"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Name: "mail.example", IsTimeout: true}}, "the name of the mail server could not be looked up"},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "connecting to the mail server took too long"},
		{&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, "the mail server could not be reached"},
		{&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.TooManyIntermediates}}, "the certificate of the mail server is not valid"},
		{io.EOF, "the mail server broke off the start of TLS"},
	} {
		if got := connectionProblem(c.err).Error(); got != c.want {
			t.Errorf("%v: got %q, want %q", c.err, got, c.want)
		}
	}
}

func TestEmailTakesBareAddressesOnly(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 60)
	for to, want := range map[string]string{
		"a@b":                                          "a@b",
		"root@localhost":                               "root@localhost",
		"First.Last+tag@Example.COM":                   "First.Last+tag@example.com",
		"!#$%&'*+-/=?^_`{|}~@a.example":                "!#$%&'*+-/=?^_`{|}~@a.example",
		"x@bücher.example":                             "x@xn--bcher-kva.example",
		"x@ｅｘａｍｐｌｅ.org":                                "x@example.org",
		"jürgen@example.org":                           "jürgen@example.org",
		"a@" + long + "." + long + "." + long + ".org": "a@" + long + "." + long + "." + long + ".org",
	} {
		got, err := parseMailAddress(to)
		if err != nil || got.String() != want {
			t.Errorf("%q: got %q, %v", to, got, err)
		}
	}
	for _, to := range []string{
		"", "@", "a", "a@", "@b", "a b@example.org", "Name <a@example.org>", "<a@example.org>", "a@example.org,b@example.org",
		"a@example.org b@example.org", "a@example.org;b@example.org", "a@b@example.org", "\"a b\"@example.org", "a(x)@example.org", ".a@example.org",
		"a.@example.org", "a..b@example.org", "a@example.org\r\nBcc: b@example.org", "a\r\n@example.org", "a\x00@example.org",
		"a\u0085@example.org", "a\u2028@example.org", "a\u202e@example.org", "a\u00a0@example.org", "a\xff@example.org", "a@exa\xffmple.org",
		"a@example..org", "a@.example.org", "a@example.org.", "a@-example.org", "a@exa mple.org", "a@exa_mple.org", "a@[127.0.0.1]",
		"a@[IPv6:::1]", "a@127.0.0.1", "a@①②⑦.0.0.1", "a@0x7f.1", "a@host.0x7f", "a@2130706433", "a@xn--a", "a@example.org>", "a@example.org> SIZE=1",
		strings.Repeat("a", 65) + "@example.org", "a@" + strings.Repeat("a", 64) + ".org",
		"aaaa@" + strings.Repeat(long+".", 4) + "example", "a@" + strings.Repeat("a.", 1<<20) + "org",
	} {
		if got, err := parseMailAddress(to); err == nil {
			t.Errorf("%.80q: taken as %q", to, got)
		} else if new(Email).ValidTo(to) == nil {
			t.Errorf("%.80q: ValidTo takes it", to)
		} else if strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 120 {
			t.Errorf("%.80q: %v", to, err)
		}
	}
}

func TestEmailSubjectIsShortAndReadAsWritten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ subject, chat, want string }{
		{"Answer from the agent", "x", "Answer from the agent"},
		{"[{status}] {run_id} {chat_id}", "c", "[completed] 0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b c"},
		{"{chat_id}", "=?utf-8?q?forged?=", "=?utf-8?q?forged?="},
		{"{chat_id}", " \xff\t", "\uFFFD"},
		{"Grüße {chat_id}", strings.Repeat("🎉", 64), "Grüße " + strings.Repeat("🎉", 64)},
		{"{chat_id}", strings.Repeat("ab", 200), strings.Repeat("ab", 200)[:249] + "…"},
	} {
		d := exampleDelivery()
		d.ChatID = c.chat
		field := encodeHeaderText(fillMailSubject(c.subject, d))
		for line := range strings.SplitSeq("Subject: "+field, "\r\n") {
			if len(line) > 82 || strings.ContainsAny(line, "\r\n") {
				t.Errorf("%q: a line of %d characters: %q", c.subject, len(line), line)
			}
		}
		if got, err := new(mime.WordDecoder).DecodeHeader(strings.ReplaceAll(field, "\r\n ", " ")); err != nil || got != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.subject, got, err, c.want)
		}
	}
}

// FuzzEmailMessage builds messages of any text for any address that is taken, from any name, about any chat.
func FuzzEmailMessage(f *testing.F) {
	f.Add("The backup is done.", "user@example.org", "Agent", "hook:1")
	f.Add(".\r\n.\rFrom x\n=3D \n\x00\t ", "jürgen@bücher.example", "Ägent \"X\" <a@b>", "a\r\nBcc: b@example.org")
	f.Add("=?utf-8?q?x?=", "!#$%&'*+-/=?^_`{|}~@a.example", "=?utf-8?q?x?=", "=?utf-8?b?eA==?=")
	f.Add(strings.Repeat("ü", 600), "a@b", strings.Repeat("🎉", 100), strings.Repeat("🎉", 100))
	f.Fuzz(func(t *testing.T, text, to, name, chat string) {
		address, err := parseMailAddress(to)
		if err != nil {
			return
		}
		from, err := parseFrom((&mail.Address{Name: name, Address: "agent@example.com"}).String())
		if err != nil {
			return
		}
		d := exampleDelivery()
		d.Body, d.To, d.ChatID = text, to, chat
		var data bytes.Buffer
		m := newMailMessage(from, address, "Re {chat_id}", d)
		if err := m.write(&data); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(data.Bytes(), []byte("\r\n")) {
			t.Error("the last line does not end")
		}
		header, got := readMail(t, data.Bytes())
		if want := asMailed(strings.ToValidUTF8(text, "\uFFFD")); got != want {
			t.Errorf("got the text %q, want %q", got, want)
		}
		tos, err := header.AddressList("To")
		if err != nil || len(tos) != 1 || tos[0].Address != address.String() || tos[0].Name != "" {
			t.Errorf("got To %v, %v; want %s", tos, err, address)
		}
		froms, err := header.AddressList("From")
		if err != nil || len(froms) != 1 || *froms[0] != from {
			t.Errorf("got From %v, %v; want %v", froms, err, from)
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(header.Get("Subject"))
		if err != nil || subject != m.subject || utf8.RuneCountInString(subject) > 250 {
			t.Errorf("got Subject %q, %v; want %q", subject, err, m.subject)
		}
	})
}

func TestEmailServerAndItsPort(t *testing.T) {
	for _, c := range []struct{ server, tls, want, name string }{
		{"smtp.example.com", "", "smtp.example.com:587", "smtp.example.com"},
		{"smtp.example.com", "on", "smtp.example.com:465", "smtp.example.com"},
		{"smtp.example.com", "off", "smtp.example.com:25", "smtp.example.com"},
		{"SMTP.Bücher.example:2525", "", "smtp.xn--bcher-kva.example:2525", "smtp.xn--bcher-kva.example"},
		{"192.0.2.1", "", "192.0.2.1:587", "192.0.2.1"},
		{"[2001:db8::1]", "on", "[2001:db8::1]:465", "2001:db8::1"},
		{"[::1]:1025", "off", "[::1]:1025", "::1"},
		{"mail_server:25", "off", "mail_server:25", "mail_server"},
		{"{env.EMAIL_TEST_SERVER}", "off", "relay.example:26", "relay.example"},
	} {
		t.Setenv("EMAIL_TEST_SERVER", "relay.example:26")
		e := newEmail(t, Email{Server: c.server, TLS: c.tls})
		if e.address != c.want || e.tlsConfig.ServerName != c.name {
			t.Errorf("%s: got %s and %s, want %s", c.server, e.address, e.tlsConfig.ServerName, c.want)
		}
	}
}

func TestEmailConfigurationIsRefusedWithoutShowingSecrets(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "not.pem")
	if err := os.WriteFile(notPEM, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	const missing = "channel email: username and password go together, and one of them is empty, or names an environment variable or a file that is not there"
	t.Setenv("EMAIL_TEST_BROKEN", "pass\nword")
	for _, c := range []struct {
		e    Email
		want string
	}{
		{Email{}, "channel email: the mail server must be the name or the address of a host"},
		{Email{Server: "mail.example"}, `channel email: from takes an address such as agent@example.com, or "Agent <agent@example.com>"`},
		{Email{Server: "mail.example", From: "a@example.org", Username: "u"}, missing},
		{Email{Server: "mail.example", From: "a@example.org", Password: "hunter2"}, missing},
		{Email{Server: "mail.example", From: "a@example.org", Username: "u", Password: "hunter2{env.EMAIL_TEST_ABSENT}"}, missing},
		{Email{Server: "mail.example", From: "a@example.org", Username: "u", Password: "hunter2{nonsense}"}, missing},
		{Email{Server: "mail.example", From: "a@example.org", Username: "u", Password: "{env.EMAIL_TEST_BROKEN}"}, "channel email: the username or the password holds a line break or another control character"},
		{Email{Server: "mail.example", From: "a@example.org", TLS: "ssl"}, "channel email: tls takes starttls, on or off, not 'ssl'"},
		{Email{Server: "mail.example", From: "a@example.org", Subject: "a\r\nBcc: b@example.org"}, "channel email: the subject must be one line of text"},
		{Email{Server: "mail.example", From: "a@example.org", Subject: "{runId}"}, "channel email: the subject has the placeholder {runId}; it takes {run_id}, {chat_id} and {status}"},
		{Email{Server: "mail.example", From: "a@example.org", Helo: "a\r\nMAIL FROM:<b>"}, "channel email: helo takes a host name, or an address in brackets"},
		{Email{Server: "mail.example", From: "a@example.org", Timeout: -1}, "channel email: the timeout must not be negative"},
		{Email{Server: "mail.example", From: "a@example.org", RootCA: []string{"no-such.pem"}}, "channel email: reading a root_ca: open no-such.pem: no such file or directory"},
		{Email{Server: "mail.example", From: "a@example.org", RootCA: []string{notPEM}}, "channel email: root_ca " + notPEM + " holds no certificate in PEM form"},
		{Email{Server: "mail.example", From: "jürgen@example.org"}, "channel email: the address in from must be ASCII before the @"},
		{Email{Server: "mail.example", From: strings.Repeat("n", 101) + " <a@example.org>"}, "channel email: the name in from must be one line of at most 100 characters"},
	} {
		err := c.e.Provision(caddy.Context{})
		if err == nil || err.Error() != c.want {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("shows the password: %v", err)
		}
	}
}
