package channels

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
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
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

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
	if m.Header.Get("In-Reply-To") != "" {
		want = append(want, "In-Reply-To", "References")
		slices.Sort(want)
	}
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

func TestEmailTakesTheIDOfAMailToAnswer(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"<a@b>", "<a>", "<CAF=x/y+1_2@mail.example.org>", "<a/<b", "<" + strings.Repeat("a", 500) + ">"} {
		to, parent, err := parseMailChat("x/y@example.org/" + id)
		if ok := id != "<a/<b"; ok != (err == nil) || ok && (to.String() != "x/y@example.org" || parent != id) {
			t.Errorf("%.80q: got %q, %.80q, %v", id, to, parent, err)
		}
	}
	for _, to := range []string{"a@b/", "a@b/x", "a@b/<>", "a@b/<x", "a@b/x>", "a@b/<x> ", "a@b/<x>\r\nBcc: c@d", "a@b/<x\r\ny>", "a@b/<x y>", "a@b/<x>/<y>", "a@b/<x><y>",
		"a@b/<ü@x>", "a@b/<x\x00>", "a@b/<x\x7f>", "/<x>", "a@b/c@d/<x>", "a@b<x>", "a@b/</<x>", "a@b/<" + strings.Repeat("a", 501) + ">"} {
		if err := new(Email).ValidTo(to); err == nil || strings.ContainsAny(err.Error(), "\r\n") {
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
	f.Add("x", "a@b.example/<id.1@c.example>", "n", "c")
	f.Fuzz(func(t *testing.T, text, to, name, chat string) {
		address, parent, err := parseMailChat(to)
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
		m := newMailMessage(from, address, parent, "Re {chat_id}", d)
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
		if header.Get("In-Reply-To") != parent || header.Get("References") != parent || len(header["References"]) > 1 {
			t.Errorf("got %q and %q, want %q", header["In-Reply-To"], header["References"], parent)
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
