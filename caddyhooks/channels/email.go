package channels

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

func init() {
	caddy.RegisterModule(Email{})
}

// Email is a channel that mails answers, as plain text, through an SMTP server. A chat is a mail address, and a mail to
// <address>/<message id> answers that message. Every delivery has a connection of its own, and all its attempts send the same
// message, down to its Message-ID, so that a mailbox can drop a repeat.
type Email struct {
	// The mail server, as host or host:port; an IPv6 address stands in brackets. Default port: 587, with tls on 465, with
	// tls off 25.
	Server string `json:"server,omitempty"`

	// The sender of mails: an address, or a name with the address in angle brackets.
	From string `json:"from,omitempty"`

	// The user to log in as, if the server asks for a login. It needs a password.
	Username string `json:"username,omitempty"`

	// The password of the user. Placeholders such as {env.X} and {file.X} are replaced. It is sent over TLS only, unless tls
	// is off; then CRAM-MD5, which does not show it, is used if the server can.
	Password string `json:"password,omitempty"`

	// When TLS begins: starttls, before anything else is said, and nothing is sent if the server cannot; on, with the
	// connection; off, never, which is for a server on this machine or in a network that is trusted. Default: starttls.
	TLS string `json:"tls,omitempty"`

	// The subject of mails, in which {run_id}, {chat_id} and {status} are replaced. Default: Answer from the agent.
	Subject string `json:"subject,omitempty"`

	// PEM files with certificates of authorities to trust, in addition to the system's.
	RootCA []string `json:"root_ca,omitempty"`

	// The name by which this machine greets the server. Default: the host name if it has a dot, else localhost.
	Helo string `json:"helo,omitempty"`

	// How long one attempt may take, from looking up the server to its last word. Default: 30s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	Recipients

	username  string
	password  string
	from      mail.Address
	address   string // of the server, to dial
	tlsConfig *tls.Config
}

// When TLS begins.
const (
	startTLS = "starttls"
	tlsOn    = "on"
	tlsOff   = "off"
)

const defaultMailSubject = "Answer from the agent"

// CaddyModule returns the Caddy module information.
func (Email) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.channels.email",
		New: func() caddy.Module { return new(Email) },
	}
}

// Provision sets up the channel.
func (e *Email) Provision(caddy.Context) error {
	if e.Username != "" || e.Password != "" {
		login, err := caddyconf.ResolveSecrets([]string{e.Username, e.Password})
		if err != nil {
			return fmt.Errorf("channel email: username and password go together, and one of them %w", err)
		}
		e.username, e.password = login[0], login[1]
		if strings.ContainsFunc(e.username+e.password, unicode.IsControl) {
			return errors.New("channel email: the username or the password holds a line break or another control character")
		}
	}
	repl := caddy.NewReplacer()
	for _, text := range []*string{&e.Server, &e.From, &e.TLS, &e.Subject, &e.Helo} {
		*text = repl.ReplaceKnown(*text, "")
	}
	e.splitTo = splitMailChat
	if err := e.setUp(repl); err != nil {
		return fmt.Errorf("channel email: %w", err)
	}
	return e.provisionRecipients("email", e.ValidTo)
}

// setUp checks the configuration, in which placeholders are replaced, and prepares it for Send.
func (e *Email) setUp(repl *caddy.Replacer) error {
	if e.TLS == "" {
		e.TLS = startTLS
	}
	if err := checkMailTLS(e.TLS); err != nil {
		return err
	}
	host, port, err := splitMailServer(e.Server)
	if err != nil {
		return err
	}
	if port == "" {
		port = map[string]string{startTLS: "587", tlsOn: "465", tlsOff: "25"}[e.TLS]
	}
	e.address = net.JoinHostPort(host, port)
	if e.from, err = parseFrom(e.From); err != nil {
		return err
	}
	if e.Subject == "" {
		e.Subject = defaultMailSubject
	}
	if err := checkMailSubject(e.Subject); err != nil {
		return err
	}
	if e.Helo == "" {
		e.Helo = greetingName()
	}
	if err := checkHelo(e.Helo); err != nil {
		return err
	}
	if e.Timeout < 0 {
		return errors.New("the timeout must not be negative")
	}
	if e.Timeout == 0 {
		e.Timeout = caddy.Duration(30 * time.Second)
	}
	e.tlsConfig = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if len(e.RootCA) > 0 {
		e.tlsConfig.RootCAs, err = trustedRoots(e.RootCA, repl)
	}
	return err
}

// trustedRoots returns the authorities of the system and of the files.
func trustedRoots(files []string, repl *caddy.Replacer) (*x509.CertPool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the certificates that the system trusts: %w", err)
	}
	for _, file := range files {
		pem, err := os.ReadFile(repl.ReplaceKnown(file, ""))
		if err != nil {
			return nil, fmt.Errorf("reading a root_ca: %w", err)
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("root_ca %s holds no certificate in PEM form", file)
		}
	}
	return roots, nil
}

// splitMailServer takes host or host:port apart. The port is "" if none is given.
func splitMailServer(server string) (host, port string, err error) {
	host = server
	bracketed := strings.HasPrefix(server, "[")
	if bracketed && strings.HasSuffix(server, "]") {
		host = server[1 : len(server)-1]
	} else if strings.Contains(server, ":") {
		if host, port, err = net.SplitHostPort(server); err != nil || strings.Contains(port, "/") {
			return "", "", errors.New("the mail server must be given as host or host:port, with an IPv6 address in brackets")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "", errors.New("the port of the mail server must be a number between 1 and 65535")
		}
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case bracketed && (err != nil || !addr.Is6()):
		return "", "", errors.New("what stands in brackets must be an IPv6 address")
	case err == nil:
		return host, port, nil
	}
	if strings.Contains(host, "_") { // not allowed in host names, but common in names of containers
		_, err = asciiDomain(strings.ReplaceAll(host, "_", "x"))
	} else {
		host, err = asciiDomain(host)
	}
	if err != nil {
		return "", "", errors.New("the mail server must be the name or the address of a host")
	}
	return host, port, nil
}

func checkMailServer(server string) error {
	_, _, err := splitMailServer(server)
	return err
}

func checkFrom(text string) error {
	_, err := parseFrom(text)
	return err
}

func checkMailTLS(mode string) error {
	if mode != startTLS && mode != tlsOn && mode != tlsOff {
		return fmt.Errorf("tls takes starttls, on or off, not '%s'", mode)
	}
	return nil
}

func checkHelo(name string) error {
	if name == "" || len(name) > 255 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("helo takes a host name, or an address in brackets")
	}
	return nil
}

// greetingName is the default of Helo. Many servers refuse a host name without a dot, and accept localhost.
func greetingName() string {
	name, err := os.Hostname()
	if err == nil && strings.Contains(name, ".") {
		if name, err = asciiDomain(name); err == nil {
			return name
		}
	}
	return "localhost"
}

// UnmarshalCaddyfile parses:
//
//	channel <name> email <host>[:<port>] {
//		from     <address>
//		username <name>
//		password <secret>
//		tls      starttls|on|off
//		subject  <text>
//		root_ca  <file>...
//		helo     <name>
//		timeout  <duration>
//		allow_to <to>...
//	}
func (e *Email) UnmarshalCaddyfile(d *caddyfile.Dispenser) (err error) {
	d.Next()
	if e.Server, err = caddyconf.CheckedText(checkMailServer)(d); err != nil {
		return err
	}
	err = caddyconf.ReadBlock(d, "channel email",
		caddyconf.Set("from", &e.From, caddyconf.CheckedText(checkFrom)),
		caddyconf.Set("username", &e.Username, credential("username takes one name, which must not be empty")),
		caddyconf.Set("password", &e.Password, credential("password takes one secret, which must not be empty")),
		caddyconf.Set("tls", &e.TLS, caddyconf.CheckedText(checkMailTLS)),
		// The placeholders of a subject are those of mails, so that it can be checked here.
		caddyconf.Set("subject", &e.Subject, caddyconf.Checked(caddyconf.Prose(caddyconf.Text), checkMailSubject)),
		caddyconf.Set("root_ca", &e.RootCA, readRootCA),
		caddyconf.Set("helo", &e.Helo, caddyconf.CheckedText(checkHelo)),
		timeoutDirective(&e.Timeout),
		e.allowDirective(e.ValidTo))
	if err != nil {
		return err
	}
	if e.From == "" {
		return d.Err("channel email needs from, the address that mails come from")
	}
	if (e.Username == "") != (e.Password == "") {
		return d.Err("username and password go together")
	}
	return nil
}

// credential returns a reader of one text that is not empty. A password may consist of spaces. Its only error is the given
// one, which does not quote the text.
func credential(problem string) caddyconf.Reader[string] {
	return func(d *caddyfile.Dispenser) (string, error) {
		text, err := caddyconf.Text(d)
		if err != nil || text == "" {
			return "", d.Err(problem + caddyconf.Unset)
		}
		return text, nil
	}
}

func readRootCA(d *caddyfile.Dispenser) ([]string, error) {
	files, err := caddyconf.List(d)
	if err != nil {
		return nil, d.Err("root_ca takes one or more PEM files" + caddyconf.Unset)
	}
	return files, nil
}

// ValidTo takes one bare mail address, with the id of a message or without.
func (*Email) ValidTo(to string) error {
	_, _, err := parseMailChat(to)
	return err
}

// Send mails the answer.
func (e *Email) Send(ctx context.Context, d *engine.Delivery) error {
	to, inReplyTo, err := parseMailChat(d.To)
	if err != nil {
		return &engine.FinalError{Err: err}
	}
	if isBlank(cleanText(d.Body)) {
		return &engine.FinalError{Err: errors.New("the answer is blank, and no mail is sent without a text")}
	}
	attempt, cancel := context.WithTimeout(ctx, time.Duration(e.Timeout))
	defer cancel()
	s := new(smtpSession)
	defer s.close(attempt)
	err = e.converse(attempt, s, to, newMailMessage(e.from, to, inReplyTo, e.Subject, d))
	d.LastStatus, d.LastAnswer = s.code, e.withoutSecrets(s.answer, s.proofs)
	return e.outcome(ctx, attempt, s, err)
}

// converse leads the whole dialogue with the server, until it confirms that it has the message.
func (e *Email) converse(ctx context.Context, s *smtpSession, to mailAddress, m *mailMessage) error {
	if err := e.connect(ctx, s); err != nil {
		return err
	}
	if e.username != "" {
		if err := s.login(e.username, e.password, e.TLS != tlsOff); err != nil {
			return err
		}
	}
	options := ""
	if !to.ascii() {
		if _, ok := s.extensions["SMTPUTF8"]; !ok {
			return &engine.FinalError{Err: errors.New("the mail server takes only ASCII before the @ of an address")}
		}
		options = " BODY=8BITMIME SMTPUTF8"
	}
	if _, err := s.command("the sender", 2, "MAIL FROM:<%s>%s", e.from.Address, options); err != nil {
		return err
	}
	if _, err := s.command("the recipient", 2, "RCPT TO:<%s>", to); err != nil {
		return err
	}
	if _, err := s.command("the message", 3, "DATA"); err != nil {
		return err
	}
	w := s.text.DotWriter()
	if err := m.write(w); err != nil {
		return err
	}
	s.sent = true
	if err := w.Close(); err != nil {
		return err
	}
	_, err := s.read("the message", 2)
	return err
}

// smtpConnectTimeout leaves time for another attempt at a host that has several addresses.
const smtpConnectTimeout = 10 * time.Second

// connect opens the connection, starts TLS if it is configured, and exchanges greetings. Mail can be sent after it.
func (e *Email) connect(ctx context.Context, s *smtpSession) error {
	dialer := &net.Dialer{Timeout: smtpConnectTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", e.address)
	if err != nil {
		return &engine.UnreachableError{Err: connectionProblem(err)}
	}
	s.open(ctx, conn)
	if e.TLS == tlsOn {
		if err := s.secure(ctx, e.tlsConfig); err != nil {
			return err
		}
	}
	if _, err := s.read("the connection", 2); err != nil {
		return err
	}
	if err := s.hello(e.Helo); err != nil || e.TLS != startTLS {
		return err
	}
	if _, ok := s.extensions["STARTTLS"]; !ok {
		return &engine.FinalError{Err: errors.New("the mail server does not offer STARTTLS, and nothing is sent to it in the clear")}
	}
	if _, err := s.command("the start of TLS", 2, "STARTTLS"); err != nil {
		return err
	}
	if err := s.secure(ctx, e.tlsConfig); err != nil {
		return err
	}
	return s.hello(e.Helo) // anybody could have written the offers that came before TLS
}

// connectionProblem explains why there is no connection. It shows no address.
func connectionProblem(err error) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return errors.New("the name of the mail server does not exist")
	} else if ok {
		return errors.New("the name of the mail server could not be looked up")
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errors.New("the mail server refused the connection")
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return errors.New("the certificate of the mail server comes from an authority that is not trusted; root_ca can name one")
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return errors.New("the certificate of the mail server is for another name")
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return errors.New("the certificate of the mail server has expired, or is not valid yet")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return errors.New("the certificate of the mail server is not valid")
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return errors.New("the mail server does not speak TLS on this port")
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return errors.New("connecting to the mail server took too long")
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return errors.New("the mail server could not be reached")
	}
	return errors.New("the mail server broke off the start of TLS")
}

// smtpPause is the pause of the whole channel after a server is busy or has too many connections. It says so before it has
// looked at a message, or by closing the connection.
const smtpPause = 30 * time.Second

// outcome is the error that Send returns when the dialogue ended with err.
func (e *Email) outcome(ctx, attempt context.Context, s *smtpSession, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return errors.New("the attempt was stopped before the mail server had the message")
	}
	if refused, ok := errors.AsType[*smtpRefusal](err); ok {
		switch {
		case refused.code/100 == 5:
			return &engine.FinalError{Err: refused}
		case refused.code == 421, refused.code/100 == 4 && s.extensions == nil:
			return &engine.RetryLaterError{After: smtpPause, WholeChannel: true, Err: refused}
		}
		return refused // for a mail that is greylisted, say, the usual schedule is the right one
	}
	_, final := errors.AsType[*engine.FinalError](err)
	_, unreachable := errors.AsType[*engine.UnreachableError](err)
	_, nonsense := errors.AsType[textproto.ProtocolError](err)
	switch {
	case final || unreachable:
		return err
	case attempt.Err() != nil:
		return &engine.UnreachableError{Err: fmt.Errorf("the mail server did not take the message within %s", time.Duration(e.Timeout))}
	case nonsense || s.answers != nil && s.answers.N <= 0:
		return errors.New("the mail server's answer is not SMTP")
	case s.sent:
		return errors.New("the connection broke before the mail server confirmed the message; it may have it")
	default:
		return errors.New("the connection to the mail server broke")
	}
}

// maxMailAnswer bounds the part of the server's answer that is stored.
const maxMailAnswer = 4 << 10

// withoutSecrets is the beginning of a server's answer, in which the password and the proofs that were sent are masked.
func (e *Email) withoutSecrets(answer string, proofs []string) string {
	if e.password != "" {
		secrets := proofs
		for _, text := range []string{"\x00" + e.username + "\x00" + e.password, e.password} {
			secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(text)), base64.URLEncoding.EncodeToString([]byte(text)))
		}
		pairs := []string{e.password, "••••"}
		for _, secret := range secrets {
			pairs = append(pairs, strings.TrimRight(secret, "="), "••••")
		}
		answer = strings.NewReplacer(pairs...).Replace(answer)
	}
	return strings.ToValidUTF8(answer[:min(len(answer), maxMailAnswer)], "")
}

// Interface guards
var (
	_ engine.Channel        = (*Email)(nil)
	_ caddy.Provisioner     = (*Email)(nil)
	_ caddyfile.Unmarshaler = (*Email)(nil)
)
