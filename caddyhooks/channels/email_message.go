package channels

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net/mail"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
)

// mailMessage is one mail: plain text, which no reader takes for anything else.
type mailMessage struct {
	from    mail.Address
	to      mailAddress
	parent  string // the id of the message that it answers, with its brackets, or ""
	subject string
	id      string
	runID   string
	date    time.Time
	text    string
}

// newMailMessage makes the mail of a delivery. It depends on nothing that changes between attempts.
func newMailMessage(from mail.Address, to mailAddress, parent, subject string, d *engine.Delivery) *mailMessage {
	return &mailMessage{
		from: from, to: to, parent: parent,
		subject: fillMailSubject(subject, d),
		id:      d.ID + from.Address[strings.LastIndexByte(from.Address, '@'):],
		runID:   d.RunID,
		date:    d.CreatedAt,
		text:    strings.ToValidUTF8(d.Body, "\uFFFD"),
	}
}

// write writes the message with lines that end in CRLF, the last one too.
func (m *mailMessage) write(w io.Writer) error {
	var head bytes.Buffer
	fmt.Fprintf(&head, "From: %s\r\n", foldWords(m.from.String()))
	fmt.Fprintf(&head, "To: %s\r\n", m.to)
	fmt.Fprintf(&head, "Subject: %s\r\n", encodeHeaderText(m.subject))
	fmt.Fprintf(&head, "Date: %s\r\n", m.date.UTC().Format(time.RFC1123Z))
	fmt.Fprintf(&head, "Message-ID: <%s>\r\n", m.id)
	if m.parent != "" {
		fmt.Fprintf(&head, "In-Reply-To: %[1]s\r\nReferences: %[1]s\r\n", m.parent)
	}
	fmt.Fprintf(&head, "X-Service-Run-Id: %s\r\n", outbound.HeaderValue(m.runID))
	// Asks programs that answer mail not to answer this one.
	head.WriteString("Auto-Submitted: auto-generated\r\n")
	head.WriteString("MIME-Version: 1.0\r\n")
	head.WriteString("Content-Type: text/plain; charset=utf-8\r\n")
	head.WriteString("Content-Transfer-Encoding: quoted-printable\r\n\r\n")
	if _, err := w.Write(head.Bytes()); err != nil {
		return err
	}
	body := quotedprintable.NewWriter(w)
	if _, err := io.WriteString(body, m.text); err != nil {
		return err
	}
	if !strings.HasSuffix(m.text, "\n") && !strings.HasSuffix(m.text, "\r") {
		if _, err := io.WriteString(body, "\n"); err != nil {
			return err
		}
	}
	return body.Close()
}

// subjectPlaceholder matches the placeholders of subjects, and misspelt ones. Caddy's placeholders have dots in them.
var subjectPlaceholder = regexp.MustCompile(`\{[A-Za-z0-9_]*\}`)

func checkMailSubject(subject string) error {
	if strings.TrimSpace(subject) == "" {
		return errors.New("the subject must not be blank")
	}
	if strings.ContainsFunc(subject, unicode.IsControl) || !utf8.ValidString(subject) {
		return errors.New("the subject must be one line of text")
	}
	for _, p := range subjectPlaceholder.FindAllString(subject, -1) {
		if p != "{run_id}" && p != "{chat_id}" && p != "{status}" {
			return fmt.Errorf("the subject has the placeholder %s; it takes {run_id}, {chat_id} and {status}", p)
		}
	}
	return nil
}

// maxMailSubject bounds the subject, in characters.
const maxMailSubject = 250

// fillMailSubject replaces the placeholders of a subject. The chat id comes from outside: invisible
// characters in it could change how the rest is shown.
func fillMailSubject(subject string, d *engine.Delivery) string {
	chat := strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(d.ChatID, "\uFFFD"))
	subject = strings.NewReplacer("{run_id}", d.RunID, "{chat_id}", chat, "{status}", string(d.RunStatus)).Replace(subject)
	if runes := []rune(subject); len(runes) > maxMailSubject {
		subject = string(runes[:maxMailSubject-1]) + "…"
	}
	return strings.TrimSpace(subject)
}

// encodeHeaderText makes the text of a header field: as it is, if that is short and plain, or as encoded words, each on a line of
// its own. Text that only looks encoded is encoded, so that it is read as it was written.
func encodeHeaderText(text string) string {
	plain := len(text) <= 66 && !strings.Contains(text, "=?") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	if plain {
		return text
	}
	var words []string
	for len(text) > 0 {
		end := 0 // 45 bytes make an encoded word of 72 characters
		for end < len(text) {
			_, size := utf8.DecodeRuneInString(text[end:])
			if end+size > 45 {
				break
			}
			end += size
		}
		words = append(words, "=?utf-8?b?"+base64.StdEncoding.EncodeToString([]byte(text[:end]))+"?=")
		text = text[end:]
	}
	return strings.Join(words, "\r\n ")
}

// foldWords puts encoded words on lines of their own.
func foldWords(field string) string { return strings.ReplaceAll(field, "?= =?", "?=\r\n =?") }

// mailAddress is a mail address that is safe to put into commands and headers.
type mailAddress struct {
	local  string
	domain string // in ASCII
}

func (a mailAddress) String() string { return a.local + "@" + a.domain }

// ascii reports whether every mail server takes the address.
func (a mailAddress) ascii() bool {
	return !strings.ContainsFunc(a.local, func(r rune) bool { return r >= utf8.RuneSelf })
}

const (
	maxMailAddress = 254
	maxLocalPart   = 64
)

// splitMailChat takes the id of a message, which follows after a slash, off a chat. No < is in an address.
func splitMailChat(to string) (address, parent string) {
	if at := strings.Index(to, "/<"); at >= 0 {
		return to[:at], to[at+1:]
	}
	return to, ""
}

// mailID matches the ids of messages that are safe to put into headers. One with unusual characters is not for threads.
var mailID = regexp.MustCompile(`^<[!-;=?-~]{1,500}>$`)

// parseMailChat reads a chat: a bare address, and the id of the message to answer, "" if there is none.
func parseMailChat(to string) (address mailAddress, parent string, err error) {
	text, parent := splitMailChat(to)
	if parent != "" && !mailID.MatchString(parent) {
		return mailAddress{}, "", errors.New("the id of a mail to answer looks like <id@example.com>, with up to 500 characters of ASCII")
	}
	address, err = parseMailAddress(text)
	return address, parent, err
}

// parseMailAddress reads one bare address. Less is taken than the standards allow: nothing quoted, no comments, no addresses
// of hosts in place of a name, which are rare in mail addresses and common in attacks.
func parseMailAddress(text string) (mailAddress, error) {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return mailAddress{}, errors.New("a mail address looks like name@example.com")
	}
	local := text[:at]
	if !validLocal(local) {
		return mailAddress{}, errors.New("before the @ of a mail address stand up to 64 letters, digits and signs like . _ + or -")
	}
	domain, err := asciiDomain(text[at+1:])
	if err != nil {
		return mailAddress{}, err
	}
	a := mailAddress{local, domain}
	if len(text) > maxMailAddress || len(a.String()) > maxMailAddress {
		return mailAddress{}, fmt.Errorf("a mail address is not longer than %d bytes", maxMailAddress)
	}
	return a, nil
}

// validLocal reports whether the text can stand before the @: words with dots between them.
func validLocal(local string) bool {
	if len(local) > maxLocalPart || !utf8.ValidString(local) {
		return false
	}
	for word := range strings.SplitSeq(local, ".") {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !inLocal(r) }) {
			return false
		}
	}
	return true
}

func inLocal(r rune) bool {
	switch {
	case r >= utf8.RuneSelf:
		return unicode.IsGraphic(r) && !unicode.IsSpace(r) && r != utf8.RuneError
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return true
	default:
		return strings.ContainsRune("!#$%&'*+-/=?^_`{|}~", r)
	}
}

var (
	errDomain   = errors.New("after the @ of a mail address stands the name of a host or a domain")
	domainLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// asciiDomain returns the name of a host as it stands in the DNS. A name that ends in a number is none: it would be read
// as an address.
func asciiDomain(name string) (string, error) {
	if len(name) > 4*maxMailAddress || !utf8.ValidString(name) {
		return "", errDomain // before work is spent on it
	}
	domain, err := idna.Lookup.ToASCII(name)
	if err != nil || len(domain) > 253 {
		return "", errDomain
	}
	labels := strings.Split(domain, ".")
	for _, label := range labels {
		if !domainLabel.MatchString(label) {
			return "", errDomain
		}
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "", errDomain
	}
	return domain, nil
}

// maxFromName bounds the name beside an address.
const maxFromName = 100

// parseFrom reads an address with or without a name.
func parseFrom(text string) (mail.Address, error) {
	parsed, err := mail.ParseAddress(text)
	if err != nil {
		return mail.Address{}, errors.New("from takes an address such as agent@example.com, or \"Agent <agent@example.com>\"")
	}
	a, err := parseMailAddress(parsed.Address)
	if err != nil {
		return mail.Address{}, fmt.Errorf("the address in from is refused: %w", err)
	}
	if !a.ascii() {
		return mail.Address{}, errors.New("the address in from must be ASCII before the @")
	}
	if utf8.RuneCountInString(parsed.Name) > maxFromName || strings.ContainsFunc(parsed.Name, unicode.IsControl) {
		return mail.Address{}, fmt.Errorf("the name in from must be one line of at most %d characters", maxFromName)
	}
	return mail.Address{Name: parsed.Name, Address: a.String()}, nil
}
