package channels

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// smtpSession is one connection to a mail server. The client of net/smtp is not used, since it takes STARTTLS for absent when
// EHLO failed for now, asks for SMTPUTF8 where it is not needed, and reads answers without end.
type smtpSession struct {
	raw     net.Conn
	text    *textproto.Conn   // over raw, or over TLS on it
	answers *io.LimitedReader // under text

	extensions map[string]string // of the server, with their parameters; nil before the greetings
	proofs     []string          // texts that were sent to prove knowledge of the password
	code       int               // of the last answer, 0 if there is none …
	answer     string            // … and its text
	sent       bool              // the whole message went out
	idle       bool              // the last command has been answered
	stop       func() bool       // lets go of the context
}

// maxSMTPAnswers bounds the answers of a server, all together.
const maxSMTPAnswers = 64 << 10

// open starts the session on a connection, which is broken off when ctx is done.
func (s *smtpSession) open(ctx context.Context, conn net.Conn) {
	s.raw = conn
	s.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	s.useConn(conn)
}

// useConn goes on over another connection. Bytes that were received and not read are dropped.
func (s *smtpSession) useConn(conn net.Conn) {
	s.extensions = nil
	s.answers = &io.LimitedReader{R: conn, N: maxSMTPAnswers}
	s.text = textproto.NewConn(struct {
		io.Reader
		io.WriteCloser
	}{s.answers, conn})
}

// secure goes on in TLS.
func (s *smtpSession) secure(ctx context.Context, config *tls.Config) error {
	s.idle = false
	conn := tls.Client(s.raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return &engine.UnreachableError{Err: connectionProblem(err)}
	}
	s.useConn(conn)
	s.idle = true
	return nil
}

// smtpQuitTimeout is how long the server's goodbye is waited for: nothing depends on it.
const smtpQuitTimeout = 2 * time.Second

// close says goodbye, if the server is listening, and closes the connection. It does not close TLS, which might wait.
func (s *smtpSession) close(ctx context.Context) {
	if s.raw == nil {
		return
	}
	defer s.raw.Close()
	defer s.stop()
	if !s.idle || s.raw.SetDeadline(time.Now().Add(smtpQuitTimeout)) != nil || ctx.Err() != nil {
		return
	}
	if s.text.PrintfLine("QUIT") == nil {
		_, _, _ = s.text.ReadResponse(0)
	}
}

// smtpRefusal is an answer other than the one that lets the dialogue go on.
type smtpRefusal struct {
	what string // the thing that was refused
	code int
}

func (r *smtpRefusal) Error() string {
	switch r.code / 100 {
	case 4:
		return fmt.Sprintf("the mail server refused %s for now (%d)", r.what, r.code)
	case 5:
		return fmt.Sprintf("the mail server refused %s (%d)", r.what, r.code)
	default:
		return fmt.Sprintf("the mail server gave an answer that does not fit %s (%d)", r.what, r.code)
	}
}

// command sends one line and reads the answer. what is the subject of the error if the server refuses.
func (s *smtpSession) command(what string, want int, format string, args ...any) (answer string, err error) {
	s.idle = false
	if err := s.text.PrintfLine(format, args...); err != nil {
		return "", err
	}
	return s.read(what, want)
}

// read reads an answer, whose code has to begin with the digit that is wanted.
func (s *smtpSession) read(what string, want int) (answer string, err error) {
	code, answer, err := s.text.ReadResponse(0)
	if err != nil {
		return "", err
	}
	s.code, s.answer, s.idle = code, answer, true
	if code/100 != want {
		return "", &smtpRefusal{what, code}
	}
	return answer, nil
}

// hello greets the server, which answers with its extensions.
func (s *smtpSession) hello(name string) error {
	answer, err := s.command("the greeting", 2, "EHLO %s", name)
	if err != nil {
		return err
	}
	s.extensions = make(map[string]string)
	_, lines, _ := strings.Cut(answer, "\n")
	for line := range strings.SplitSeq(lines, "\n") {
		word, parameters, _ := strings.Cut(strings.ToUpper(line), " ")
		s.extensions[word] = parameters
	}
	return nil
}

// login logs in. Over a private connection PLAIN comes first, since it works everywhere; where others can listen, CRAM-MD5
// does, which does not send the password.
func (s *smtpSession) login(username, password string, private bool) error {
	ways := []string{"PLAIN", "LOGIN", "CRAM-MD5"}
	if !private {
		ways = []string{"CRAM-MD5", "PLAIN", "LOGIN"}
	}
	offered := strings.Fields(s.extensions["AUTH"])
	known := slices.IndexFunc(ways, func(way string) bool { return slices.Contains(offered, way) })
	if known < 0 {
		return &engine.FinalError{Err: errors.New("the mail server offers none of PLAIN, LOGIN and CRAM-MD5 to log in with")}
	}
	const what = "the login"
	prove := func(format, proof string) error {
		proof = base64.StdEncoding.EncodeToString([]byte(proof))
		s.proofs = append(s.proofs, proof)
		_, err := s.command(what, 2, format, proof)
		return err
	}
	switch ways[known] {
	case "PLAIN":
		return prove("AUTH PLAIN %s", "\x00"+username+"\x00"+password)
	case "LOGIN":
		if _, err := s.command(what, 3, "AUTH LOGIN"); err != nil {
			return err
		}
		if _, err := s.command(what, 3, "%s", base64.StdEncoding.EncodeToString([]byte(username))); err != nil {
			return err
		}
		return prove("%s", password)
	default:
		answer, err := s.command(what, 3, "AUTH CRAM-MD5")
		if err != nil {
			return err
		}
		challenge, err := base64.StdEncoding.DecodeString(answer)
		if err != nil {
			return textproto.ProtocolError("challenge is not base64")
		}
		proof, err := smtp.CRAMMD5Auth(username, password).Next(challenge, true)
		if err != nil {
			return err
		}
		return prove("%s", string(proof))
	}
}
