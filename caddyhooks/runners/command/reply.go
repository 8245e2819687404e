package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// ReplyFormat says where the answer is in the output of a program.
type ReplyFormat struct {
	// text: all of the output is the answer. json: the output is one JSON document. lines: each line is one. Default: text.
	Format string `json:"format,omitempty"`

	// A condition on the lines that count, such as $.type == 'message'.
	Filter string `json:"filter,omitempty"`

	// A JSONPath expression that leads to the text in the document, or in each line that counts, such as $.message.text. The
	// texts of all matches are joined.
	Path string `json:"path,omitempty"`
}

// The formats of an output.
const (
	replyText  = "text"
	replyJSON  = "json"
	replyLines = "lines"
)

const replyGrammar = "reply takes text, json and a JSONPath expression, or lines with a condition and an expression, each in quotes, " +
	`as in: reply lines "$.type == 'text'" "$.part.text"`

// read parses: reply text | json <jsonpath> | lines <condition> <jsonpath>
func (c *ReplyFormat) read(d *caddyfile.Dispenser) error {
	words := d.RemainingArgs()
	for i, word := range words {
		words[i] = shorthand.Undo(word)
	}
	const jsonWords, linesWords = 2, 3
	switch {
	case len(words) == 1 && words[0] == replyText:
		c.Format = replyText
	case len(words) == jsonWords && words[0] == replyJSON:
		c.Format, c.Path = replyJSON, words[1]
	case len(words) == linesWords && words[0] == replyLines:
		c.Format, c.Filter, c.Path = replyLines, words[1], words[2]
	default:
		return d.Err(replyGrammar)
	}
	if _, err := c.compile(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// A replyReader finds the answer in an output. It is given the output in pieces by run, and may be used by many at once.
type replyReader struct {
	format string
	filter *template.Condition
	path   *template.Each
	fields *strictjson.Selection
}

func (c ReplyFormat) compile() (r replyReader, err error) {
	r.format = c.Format
	switch c.Format {
	case "", replyText:
		if c.Filter != "" || c.Path != "" {
			return r, errors.New("reply text takes no expression")
		}
		r.format = replyText
		return r, nil
	case replyJSON:
		if c.Filter != "" {
			return r, errors.New("reply json takes no condition")
		}
	case replyLines:
		if r.filter, err = template.ParseCondition(c.Filter); err != nil {
			return r, fmt.Errorf("the condition of reply lines: %w", err)
		}
		if !r.filter.NeedsBody() {
			return r, errors.New("the condition of reply lines must not ask for a header or a query; write as in: $.type == 'text'")
		}
	default:
		return r, errors.New("reply must be text, json or lines")
	}
	if r.path, err = template.ParseEach(c.Path); err != nil {
		return r, fmt.Errorf("the JSONPath expression of reply %s: %w", c.Format, err)
	}
	r.fields = new(strictjson.Selection)
	r.path.Select(r.fields)
	if r.filter != nil {
		r.filter.Select(r.fields)
	}
	return r, nil
}

// read reads an output to its end, and tells what it finds on the way.
func (r *replyReader) read(output io.Reader, emit func(engine.Progress)) (text string, err error) {
	a := &growingAnswer{emit: emit}
	switch r.format {
	case replyText:
		err = a.readText(output)
	case replyJSON:
		var data []byte
		if data, err = io.ReadAll(output); err == nil {
			err = r.addFrom(data, a)
		}
	default:
		err = readLines(output, func(line []byte) error { return r.addLine(line, a) })
	}
	if err != nil {
		return "", err
	}
	return a.whole()
}

// addLine adds the text of a line if it counts. A line that is no JSON does not.
func (r *replyReader) addLine(line []byte, a *growingAnswer) error {
	document, err := strictjson.ParseSelected(line, r.fields)
	if err != nil {
		return nil //nolint:nilerr // programs write other lines, too
	}
	steps := template.ConditionSteps
	holds, decided := r.filter.Holds(template.Input{Body: document}, &steps)
	switch {
	case !decided:
		return errors.New("a line of the output takes too long to look through")
	case !holds:
		return nil
	}
	_, err = r.add(document, a)
	return err
}

// addFrom adds the text of an output that is one document.
func (r *replyReader) addFrom(data []byte, a *growingAnswer) error {
	document, err := strictjson.ParseSelected(data, r.fields)
	if err != nil {
		return &answers.Error{Problem: fmt.Sprintf("the output is not the JSON that reply json needs: %v", err), Text: answers.Beginning(data)}
	}
	found, err := r.add(document, a)
	if err == nil && found == 0 {
		err = &answers.Error{Problem: "the output has nothing at " + r.path.String(), Text: answers.Beginning(data)}
	}
	return err
}

// add adds the matches in a document, and returns their number.
func (r *replyReader) add(document any, a *growingAnswer) (int, error) {
	const most = 10_000
	matches, more, decided := r.path.Find(document, most)
	if more || !decided {
		return 0, fmt.Errorf("%s matches too much of the output", r.path)
	}
	found := 0
	for _, match := range matches {
		text, ok := match.(string)
		if match == nil {
			continue
		}
		if !ok {
			encoded, err := turns.EncodeJSON(match)
			if err != nil {
				return 0, err
			}
			text = string(encoded)
		}
		found++
		if err := a.add(text); err != nil {
			return 0, err
		}
	}
	return found, nil
}

// growingAnswer is an answer of which more arrives. A line break at its end is held back, as it may be the last one.
type growingAnswer struct {
	text    strings.Builder
	emit    func(engine.Progress)
	emitted int
}

// add adds a text, which is valid UTF-8.
func (a *growingAnswer) add(text string) error {
	const lineBreak = len("\r\n")
	if a.text.Len()+len(text) > answers.MaxReply+lineBreak {
		return answers.ErrTooLarge
	}
	a.text.WriteString(text)
	a.tell(strings.TrimSuffix(strings.TrimSuffix(a.text.String(), "\n"), "\r"))
	return nil
}

// tell emits what is new in the answer so far.
func (a *growingAnswer) tell(text string) {
	if a.emit != nil && len(text) > a.emitted {
		a.emit(engine.Progress{Text: text[a.emitted:]})
		a.emitted = len(text)
	}
}

// whole is the answer, without one line break at its end.
func (a *growingAnswer) whole() (string, error) {
	text := withoutLineBreak(a.text.String())
	switch {
	case len(text) > answers.MaxReply:
		return "", answers.ErrTooLarge
	case strings.TrimSpace(text) == "":
		return "", errNoOutput
	}
	a.tell(text)
	return text, nil
}

var (
	errNoOutput   = errors.New("the program gave no answer")
	errNotUTF8    = errors.New("the output of the program is not valid UTF-8")
	errMuchOutput = errors.New("the program wrote more than max_output allows")
	errLongLine   = fmt.Errorf("the program wrote a line of more than %d bytes", maxOutputLine)
)

func withoutLineBreak(text string) string {
	if rest, ok := strings.CutSuffix(text, "\r\n"); ok {
		return rest
	}
	return strings.TrimSuffix(text, "\n")
}

// readText adds an output as it arrives.
func (a *growingAnswer) readText(output io.Reader) error {
	buffer := make([]byte, 32<<10)
	kept := 0 // the bytes of an incomplete character at the beginning of buffer
	for {
		n, err := output.Read(buffer[kept:])
		data := buffer[:kept+n]
		end := len(data)
		if err == nil {
			end -= incompleteAtEnd(data)
		}
		if !utf8.Valid(data[:end]) {
			return errNotUTF8
		}
		if err := a.add(string(data[:end])); err != nil {
			return err
		}
		kept = copy(buffer, data[end:])
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// incompleteAtEnd is how many bytes at the end are the beginning of a character.
func incompleteAtEnd(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if tail := data[len(data)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// maxOutputLine bounds a line of an output.
const maxOutputLine = 8 << 20

// readLines calls line for each line that is not blank. The bytes are valid until it returns.
func readLines(output io.Reader, line func([]byte) error) error {
	lines := bufio.NewScanner(output)
	lines.Buffer(make([]byte, 0, 64<<10), maxOutputLine)
	for lines.Scan() {
		if data := bytes.TrimSpace(lines.Bytes()); len(data) > 0 {
			if err := line(data); err != nil {
				return err
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return errLongLine
	}
	return lines.Err()
}

// boundedOutput fails once more was read than is allowed.
type boundedOutput struct {
	r    io.Reader
	left int64
}

func (b *boundedOutput) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 { // one more, to see whether there is more
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errMuchOutput
	}
	return n, err
}

// decodeLine reads a line of a program that is known here into value. It is lenient with what other lines have.
func decodeLine(line []byte, value any) bool { return json.Unmarshal(line, value) == nil }
