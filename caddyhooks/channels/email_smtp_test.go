//go:build real

package channels

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/mail"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
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

func TestEmailArrivesFieldByField(t *testing.T) {
	t.Parallel()
	servers := startSMTP(t, smtpSpec{})
	e := newEmail(t, Email{Server: servers.address(0), TLS: "off", From: `"Ägent, the 2nd" <agent@bücher.example>`,
		Subject: "Antwort für {chat_id}: {status} ({run_id})", Helo: "client.example.com"})
	d := exampleDelivery()
	d.To, d.ChatID = "first.last+tag@BÜCHER.example/<CAF=x/y+1@mail.example>", "chät\r\nBcc: x@example.net\u202e {run_id}"
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
		"In-Reply-To":      "<CAF=x/y+1@mail.example>",
		"References":       "<CAF=x/y+1@mail.example>",
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
		{"dropped after the dot", on("DOT", "drop"), plain, "", again, "the connection broke before the mail server confirmed the message; it may have it", 354, "End data with <CR><LF>.<CR><LF>", "DOT"},
		{"answers without end", on("EHLO", "flood"), plain, "", again, "the mail server's answer is not SMTP", 220, "mail.test test server", "EHLO"},
		{"no SMTP", on("CONNECT", "HTTP/1.1 400 Bad Request"), plain, "", again, "the mail server's answer is not SMTP", 0, "", "CONNECT"},

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
